"""Launches that are found again by the layouts of their operands: what they are told apart by, and what they do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import ClosedError, KernelError, StreamFullError
from aiodev._array import array as array_module
from aiodev._core import callsites

pytestmark = pytest.mark.anyio


@aiodev.kernel
def add_scaled(i: int, factor: float, x: Any, out: Any) -> None:
    out[i] += factor * x[i]


@aiodev.kernel
def look_up(i: int, table: Any, shift: int, x: Any, out: Any) -> None:
    out[i] = table[x[i] + shift]


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


class Accumulate:
    """A function of a library: ``out += factor * x`` of arrays of any shape."""

    def __init__(self, most: int = 1024) -> None:
        self.launches = aiodev.LaunchCache(2, most)
        self.repeated = 0

    def __call__(self, factor: Any, x: aiodev.Array, out: aiodev.Array) -> None:
        if self.launches.repeat(None, factor, x, out) is out:
            self.repeated += 1
            return
        number = x.dtype.type(factor)
        args = number, x.reshape(-1), out.reshape(-1)
        self.launches.launch(None, (factor, x), out, add_scaled, x.size, args, takes=(0, 1, 2), made=False)


def on_device(host: Any, dtype: str = "f4") -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(host, dtype), device="cpu")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What is not compiled yet is launched, but not remembered."""

    async def compile() -> None:
        x, wide, gaps = aiodev.zeros(2, "f4", "cpu"), aiodev.zeros(2, "f8", "cpu"), on_device([1, 2, 3])[::2]
        for array in (x, wide, gaps):
            await add_scaled.compile(array.dtype.type(2), array, array)
        await look_up.compile(wide, 1, on_device([0, 1], "i8"), wide)
        await refuse.compile(x)

    asyncio.run(compile())


def test_it_is_remembered_from_the_second_time_on() -> None:
    """Every call has its effect; what is called once is not kept."""
    accumulate, x, out = Accumulate(), on_device([1, 2, 3]), on_device([0, 0, 0])
    for call in range(1, 6):
        accumulate(2.0, x, out)
        assert accumulate.repeated == max(0, call - 2)
    assert len(accumulate.launches._known) == 1 and not accumulate.launches._met
    assert out.numpy_blocking().tolist() == [10, 20, 30]


def test_other_arrays_and_numbers_of_the_same_layout() -> None:
    """Addresses and the values of numbers are those of each call; operands may be one array."""
    accumulate = Accumulate()
    for round in range(4):
        x, out = on_device(np.arange(6.0).reshape(2, 3) + round), on_device(np.ones((2, 3)))
        accumulate(0.5 + round, x, out)
        expected = np.ones((2, 3), "f4") + np.float32(0.5 + round) * (np.arange(6, dtype="f4").reshape(2, 3) + round)
        assert np.array_equal(out.numpy_blocking(), expected)
    assert accumulate.repeated == 2
    accumulate(1.0, x, x)
    assert accumulate.repeated == 3
    assert np.array_equal(x.numpy_blocking(), 2 * (np.arange(6, dtype="f4").reshape(2, 3) + 3))


@given(st.lists(st.sampled_from(["line", "longer", "matrix", "wide", "gaps", "transposed", "column"]), max_size=12))
@settings(deadline=None, max_examples=examples(40))
def test_no_call_takes_anothers_plan(kinds: list[str]) -> None:
    """Calls of different shapes, dtypes and strides in any order, with tables so small that they are emptied in between."""
    accumulate = Accumulate(most=2)
    for kind in kinds:
        host = np.arange(12, dtype="f8" if kind == "wide" else "f4")
        views: dict[str, Any] = {"line": lambda a: a[:6], "matrix": lambda a: a.reshape(3, 4), "gaps": lambda a: a[::2]}
        views |= {"transposed": lambda a: a.reshape(3, 4).T, "column": lambda a: a.reshape(3, 4)[:, 1]}
        view = views.get(kind, lambda a: a)
        x, whole = aiodev.asarray(host, device="cpu"), aiodev.zeros(12, host.dtype, "cpu")
        expected = np.zeros(12, host.dtype)
        view(expected)[...] += 3 * view(host)
        out = view(whole)
        if kind != "transposed":  # whose flat copy would be what is written to
            accumulate(3.0, view(x), out)
            assert np.array_equal(whole.numpy_blocking(), expected), kind
        else:
            accumulate(3.0, view(x), aiodev.zeros((4, 3), "f4", "cpu"))
    assert len(accumulate.launches._known) <= 2 and len(accumulate.launches._met) <= 2


def test_a_copy_is_not_taken_for_a_view() -> None:
    """An argument that was copied on the way is launched with, each time anew."""
    accumulate, out = Accumulate(), aiodev.zeros(6, "f4", "cpu")
    for round in range(4):
        x = on_device(np.arange(6.0).reshape(2, 3) + round).T
        accumulate(1.0, x, out)
    assert accumulate.repeated == 0
    expected = sum((np.arange(6, dtype="f4").reshape(2, 3) + round).T.reshape(6) for round in range(4))
    assert np.array_equal(out.numpy_blocking(), expected)


def test_numbers_are_told_by_their_class() -> None:
    """And one that does not fit is the function's to deal with."""
    accumulate, x, out = Accumulate(), on_device([1, 1]), on_device([0, 0])
    for number in (2.0, 2.0, 2, np.float64(2), True, 2.0):
        accumulate(number, x, out)
    assert accumulate.repeated == 1
    with np.errstate(over="ignore"):
        accumulate(1e300, x, out)  # what NumPy makes of it
    assert accumulate.repeated == 1
    assert out.numpy_blocking().tolist() == [np.inf, np.inf]


async def test_fixed_arrays_and_keys() -> None:
    """What no operand gives is what it was, and is kept alive; another key is another launch."""
    launches, x = aiodev.LaunchCache(1), on_device([0, 1, 0], "i8")

    def shifted(by: int, out: aiodev.Array) -> bool:
        if launches.repeat(by, x, out) is not None:
            return True
        table = on_device([5, 6, 7], "f8")
        launches.launch(by, (x,), out, look_up, 3, (table, by, x, out), (None, None, 0, 1), made=False)
        return False

    for by in (0, 1):
        out = aiodev.zeros(3, "f8", "cpu")
        known = [shifted(by, out) for _ in range(3)]
        filler = [on_device(np.full(3, 9.0), "f8") for _ in range(4)]  # takes the memory of tables that were dropped
        known.append(shifted(by, out))
        assert known == [False, False, True, True] and filler
        assert (await out.numpy()).tolist() == [5 + by, 6 + by, 5 + by]
    with pytest.raises(TypeError, match="unhashable"):
        assert launches.repeat([], x, out) is None
        launches.launch([], (x,), out, look_up, 3, (out, 0, x, out), (None, None, 0, 1), made=False)


def test_it_runs_on_the_current_stream() -> None:
    """Whose end, bound and operations are those of any other launch; buffers know of their use."""
    accumulate, x, out = Accumulate(), on_device([1, 1]), on_device([0, 0])
    for _ in range(3):
        accumulate(1.0, x, out)
    aiodev.synchronize_blocking("cpu")
    stream = aiodev.Stream("cpu")
    with stream:
        accumulate(1.0, x, out)
    last = stream.timeline, stream.timeline.submitted
    assert last[1] == 1 and last in out._buffer.uses() and last in x._buffer.uses()
    stream.synchronize_blocking()
    bounded = aiodev.Stream("cpu", maxsize=1)
    with bounded:
        gate = bounded._gate()
        with pytest.raises(StreamFullError):
            accumulate(1.0, x, out)
        gate.open()
        bounded.synchronize_blocking()
        accumulate(1.0, x, out)
    bounded.synchronize_blocking()
    assert out.numpy_blocking().tolist() == [5, 5]


async def test_closed_streams_and_freed_arrays() -> None:
    """They are refused as by any other launch."""
    accumulate, x, out = Accumulate(), on_device([1, 1]), on_device([0, 0])
    for _ in range(3):
        accumulate(1.0, x, out)
    stream = aiodev.Stream("cpu")
    await stream.aclose()
    with stream, pytest.raises(ClosedError):
        accumulate(1.0, x, out)
    x.free()
    with pytest.raises(ClosedError):
        accumulate(1.0, x, out)
    assert (await out.numpy()).tolist() == [3, 3]


async def test_an_error_names_the_place_that_called_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a library in between the function that repeats."""
    monkeypatch.setattr(callsites, "_libraries", callsites._libraries | {"shelf"})
    launches, x = aiodev.LaunchCache(0), on_device(np.arange(8.0))
    source = (
        "def check(x):\n"
        "    if launches.repeat(None, x) is None:\n"
        "        launches.launch(None, (), x, refuse, x.size, (x,), (0,), made=False)\n"
        "def deep(x):\n"
        "    return check(x)\n"
    )
    namespace: dict[str, Any] = {"__name__": "shelf", "refuse": refuse, "launches": launches}
    exec(compile(source, "shelf.py", "exec"), namespace)
    stream = aiodev.current_stream("cpu")
    for call in ("check", "check", "check", "deep"):
        line, _ = sys._getframe().f_lineno, namespace[call](x)
        with pytest.raises(KernelError) as caught:
            await stream.synchronize()
        assert caught.value.submitted_at == f"{__file__}:{line}"
    line, found = sys._getframe().f_lineno, launches.repeat(None, x)
    assert found is x
    with pytest.raises(KernelError) as caught:
        await stream.synchronize()
    assert caught.value.submitted_at == f"{__file__}:{line}"


def test_forms_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their table is emptied when it is full; old arrays keep theirs, and both compute."""
    monkeypatch.setattr(array_module, "_MOST_FORMS", 3)
    monkeypatch.setattr(array_module, "_forms", {})
    accumulate, old, out = Accumulate(), on_device([1, 2]), on_device([0, 0])
    for size in range(3, 12):
        accumulate(1.0, old, out)
        accumulate(1.0, on_device(np.ones(size)), aiodev.zeros(size, "f4", "cpu"))
        assert len(array_module._forms) <= 3
    again = on_device([1, 2])
    accumulate(1.0, again, out)
    assert again._form is not old._form
    assert out.numpy_blocking().tolist() == [10, 20]


def test_several_threads() -> None:
    """Each with its own arrays and stream, all with one cache that is too small for them."""
    accumulate, outs = Accumulate(most=3), [aiodev.zeros(size, "f4", "cpu") for size in range(2, 8)]
    aiodev.synchronize_blocking("cpu")  # what fills them is on another stream

    def work(out: aiodev.Array) -> None:
        with aiodev.Stream("cpu") as stream:
            x = on_device(np.ones(out.shape))
            for _ in range(300):
                accumulate(1.0, x, out)
            stream.synchronize_blocking()

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.numpy_blocking().tolist() == [300] * out.size for out in outs)


def test_a_forked_child_starts_with_nothing() -> None:
    """What the parent has compiled is not where the child's backend has it."""
    program = """
import os, sys
import aiodev, aiodev.kernels as kernels
x, out = aiodev.ones(3, "f4", "cpu"), aiodev.zeros(3, "f4", "cpu")
for _ in range(3):
    kernels.add(x, x, out=out).numpy_blocking()
child = os.fork()
if child == 0:
    y, z = aiodev.ones(3, "f4", "cpu"), aiodev.zeros(3, "f4", "cpu")
    found = [kernels.add(y, y, out=z).numpy_blocking().tolist() for _ in range(4)]
    os._exit(0 if found == [[2, 2, 2]] * 4 else 1)
assert os.waitpid(child, 0)[1] == 0
assert kernels.add(out, x, out=out).numpy_blocking().tolist() == [3, 3, 3]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
