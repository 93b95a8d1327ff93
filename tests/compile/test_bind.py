"""Bound launches: everything fixed, submitted again and again."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_entry import needs_compiler

import aiodev
from aiodev import ClosedError, CompileError, DependencyError, KernelError, LaunchError, StreamFullError

pytestmark = pytest.mark.anyio

STEP = 1.0


@aiodev.kernel
def saxpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel(ndim=2)
def increment(i: int, j: int, x: Any, step: float = 2.0) -> None:
    x[i, j] += step


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


@aiodev.kernel
def nonsense(i: int, x: Any) -> None:
    x[i] = not_defined_anywhere(i)  # noqa: F821


async def test_it_launches_as_often_as_it_is_called() -> None:
    """From the first call on, which may find the kernel not yet compiled; each gives its completion."""

    @aiodev.kernel
    def fresh(i: int, x: Any) -> None:
        x[i] += STEP

    x = aiodev.zeros(4)
    bound = fresh.bind(4, x)
    completions = [bound() for _ in range(50)]
    await completions[-1]
    assert [done.value for done in completions] == sorted({done.value for done in completions})
    assert (await x.numpy()).tolist() == [50] * 4
    await bound()
    assert (await x.numpy()).tolist() == [51] * 4


async def test_the_place_is_what_the_brackets_hold() -> None:
    """A shape of the kernel's dimensions, with a stream or without; defaults hold."""
    x, stream = aiodev.zeros((2, 3)), aiodev.Stream("cpu")
    await aiodev.synchronize()
    for place in ((2, 3), ((2, 3), stream), (2, 3, stream)):
        await increment.bind(place, x)()
    assert (await x.numpy() == 6).all()
    bound = increment.bind(((2, 3), stream), x, 4.0)
    assert (bound.kernel, bound.shape, bound.stream, bound.arguments) == (increment, (2, 3), stream, (x, 4.0))
    assert repr(bound) == f"<aiodev.BoundLaunch increment[2, 3] on {stream!r}>"
    done = bound()
    assert done.timeline is stream.timeline
    await done


async def test_its_stream_is_that_of_its_binding() -> None:
    """Wherever it is called."""
    x, first, second = aiodev.zeros((2, 2)), aiodev.Stream("cpu"), aiodev.Stream("cpu")
    await aiodev.synchronize()
    async with first:
        bound = increment.bind((2, 2), x)
    async with second:
        done = bound()
    assert done.timeline is first.timeline
    await done


async def test_arguments_may_be_named() -> None:
    """As in a plain launch."""
    x, y, out = aiodev.ones(4), aiodev.ones(4), aiodev.zeros(4)
    await saxpy.bind(4, 2.0, x, out=out, y=y)()
    assert (await out.numpy() == 3).all()


async def test_an_empty_shape_runs_nothing() -> None:
    """And completes."""
    x = aiodev.zeros((2, 3))
    assert await increment.bind((0, 3), x)() is None
    assert not (await x.numpy()).any()


async def test_uses_are_noted_in_the_buffers() -> None:
    """On every call: what may write, and what only reads."""
    x, y, out = aiodev.zeros(8), aiodev.zeros(8), aiodev.zeros(8)
    await aiodev.synchronize()
    stream = aiodev.Stream("cpu")
    bound = saxpy.bind((8, stream), 2.0, x, y, out)
    for _ in range(3):
        done = bound()
        assert out._buffer.contents() == [(done.timeline, done.value)]
        for array in (x, y):
            assert (done.timeline, done.value) in array._buffer.uses()
            assert (done.timeline, done.value) not in array._buffer.contents()
    await done


async def test_it_keeps_its_arrays_alive() -> None:
    """While it lives, and no longer."""
    x = aiodev.zeros((2, 2))
    bound = increment.bind((2, 2), x)
    buffer = weakref.ref(x._buffer)
    del x
    gc.collect()
    await bound()
    assert buffer() is not None
    del bound
    gc.collect()
    assert buffer() is None


async def test_a_failure_names_the_call_and_the_stream_works_again() -> None:
    """As with plain launches: what follows does not run until somebody was told."""
    x, y = aiodev.asarray(np.arange(8.0)), aiodev.zeros((2, 2))
    await aiodev.synchronize()
    stream = aiodev.Stream("cpu")
    bound, behind = refuse.bind((8, stream), x), increment.bind((2, 2, stream), y)
    await behind()
    for _ in range(2):
        failing = bound()
        skipped = behind()
        with pytest.raises(KernelError) as caught:
            await failing
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.submitted_at is not None and caught.value.submitted_at.startswith(__file__)
        with pytest.raises(DependencyError):
            await skipped
        await behind()
    assert (await y.numpy() == 6).all()


@needs_compiler
async def test_what_does_not_compile_fails_at_every_call() -> None:
    """With the compiler's message."""
    bound = nonsense.bind(4, aiodev.zeros(4))
    for _ in range(2):
        with pytest.raises(CompileError, match="not_defined_anywhere"):
            await bound()


async def test_a_closed_or_full_stream_refuses() -> None:
    """As it refuses a plain launch."""
    x, stream = aiodev.zeros((2, 2)), aiodev.Stream("cpu", maxsize=1)
    await aiodev.synchronize()
    bound = increment.bind((2, 2, stream), x)
    await bound()
    gate = stream._gate()
    with pytest.raises(StreamFullError):
        bound()
    gate.open()
    await stream.synchronize()
    await bound()
    await stream.aclose()
    with pytest.raises(ClosedError):
        bound()
    assert (await x.numpy() == 4).all()


def test_wrong_arguments_are_refused_when_it_is_bound() -> None:
    """Each is named."""
    x = aiodev.zeros(8)
    with pytest.raises(LaunchError, match="argument y"):
        saxpy.bind(8, 2.0, x, None, x)
    with pytest.raises(LaunchError, match="expected 4 arguments"):
        saxpy.bind(8, 2.0, x)
    with pytest.raises(LaunchError, match="a number that fits"):
        saxpy.bind(8, 10**400, x, x, x)
    with pytest.raises(LaunchError, match="shape"):
        saxpy.bind((2, 3), 2.0, x, x, x)
    with pytest.raises(LaunchError, match=r"argument z: expected arguments among a, x, y, out, each once, got z=1"):
        saxpy.bind(8, 2.0, x, x, x, z=1)
    with pytest.raises(LaunchError, match="argument x: .* got it by position, too"):
        saxpy.bind(8, 2.0, x, x=x, y=x, out=x)
    with pytest.raises(TypeError, match="its process"):
        pickle.dumps(saxpy.bind(8, 2.0, x, x, x))


FORKING = """
import os, sys
import aiodev

@aiodev.kernel
def add(i, x):
    x[i] += 1

x = aiodev.zeros(4)
bound = add.bind(4, x)
bound().synchronize_blocking(60)
if os.fork() == 0:
    try:
        bound()
    except aiodev.BadForkError:
        os._exit(5)
    os._exit(6)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
bound().synchronize_blocking(60)
assert x.numpy_blocking().tolist() == [2] * 4
"""


@pytest.mark.parametrize("executor", ["native", "python"])
def test_in_a_forked_child_it_says_that_its_stream_is_the_parents(executor: str) -> None:
    """As any submission to that stream does; in the parent it goes on working."""
    root = str(Path(aiodev.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "AIODEV_EXECUTOR": executor}
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
