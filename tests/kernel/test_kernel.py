"""Kernels from the decorator to the result, on the CPU."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from kernel_entry import needs_compiler
from kernel_fakes import FakeArray, arrays

import aiodev
from aiodev import CompileError, DependencyError, KernelError, LaunchError
from aiodev._kernel.kernel import kernel

FACTOR = 3.0


@kernel
def saxpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@kernel(ndim=2)
def transpose(i: int, j: int, x: Any, out: Any) -> None:
    out[j, i] = x[i, j]


@kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


@kernel
def nonsense(i: int, x: Any) -> None:
    x[i] = not_defined_anywhere(i)  # type: ignore[name-defined]  # noqa: F821


@kernel
def defaulted(i: int, x: Any, scale: float = 2.0) -> None:
    x[i] = scale


def operands(count: int = 8, dtype: str = "f4") -> tuple[FakeArray, FakeArray, FakeArray]:
    x, y, out = arrays(np.arange(count, dtype=dtype), np.ones(count, dtype), np.zeros(count, dtype))
    return x, y, out


@pytest.mark.anyio
async def test_launch() -> None:
    """The first launch, the second, and one on a given stream; in every order of awaiting."""
    x, y, out = operands()
    first = saxpy[8](2.0, x, y, out)
    second = saxpy[8](3.0, x, y, out)
    await second
    await first
    assert (out.host == 3 * x.host + 1).all()
    await saxpy[np.int64(8)](3.0, x, y, out)
    await saxpy[(8,), aiodev.current_stream()](3.0, x, y, out)
    await saxpy[8, aiodev.Stream("cpu")](4.0, x, y, out)
    assert (out.host == 4 * x.host + 1).all()
    await aiodev.Stream("cpu").launch(saxpy, 8, 5.0, x, y, out)
    assert (out.host == 5 * x.host + 1).all()


@pytest.mark.anyio
async def test_two_dimensions_and_empty_shapes() -> None:
    """A shape is a tuple; with a length of 0 nothing runs and the launch completes."""
    x, out = arrays(np.arange(6.0).reshape(2, 3), np.zeros((3, 2)))
    await transpose[2, 3](x, out)
    assert (out.host == x.host.T).all()
    await transpose[(2, 3), aiodev.current_stream()](x, out)
    await transpose[0, 3](x, out)
    await saxpy[0](1.0, *operands())


@pytest.mark.anyio
async def test_types_may_alternate() -> None:
    """A kernel keeps what was compiled for each combination of types, more of them than it has branches for."""
    for _ in range(3):
        for dtype in ("f4", "f8", "i4", "i8", "u1", "c16"):
            x, y, out = operands(dtype=dtype)
            for a in (2, 2.0):
                await saxpy[8](a, x, y, out)
                assert (out.host == (2 * x.host + 1)).all()


def test_uses_are_noted_in_the_buffers() -> None:
    """By the first launch and by later ones, of every array: as written, or as read where the body surely only reads."""
    x, y, out = operands()
    for _ in range(3):
        done = saxpy[8](2.0, x, y, out)
        done.synchronize_blocking()
        assert (out._buffer._timeline, out._buffer._value) == tuple(done)
        for array in (x, y):
            assert (array._buffer._reader, array._buffer._read) == tuple(done)
            assert array._buffer._timeline is None


@pytest.mark.anyio
async def test_kernel_error() -> None:
    """What a body raises is the cause; the error names kernel, line and place of launch; then the stream works again."""
    (x,) = arrays(np.arange(8.0))
    for _ in range(2):
        with pytest.raises(KernelError) as caught:
            await refuse[8](x)
        error = caught.value
        assert isinstance(error.__cause__, ValueError) and error.__cause__.args == ("bad row", 3)
        assert error.location == f"{__file__}:{refuse.py_func.__code__.co_firstlineno + 3}"
        assert error.submitted_at is not None and error.submitted_at.startswith(__file__)
    await refuse[2](x)


@needs_compiler
@pytest.mark.anyio
async def test_compile_error_reaches_every_waiter() -> None:
    """Those that launched at once, those that came later, and ``compile``; each gets the compiler's message."""
    stream = aiodev.Stream("cpu")
    (x,) = arrays(np.zeros(8, "f4"))
    launches = [nonsense[8, aiodev.Stream("cpu")](x) for _ in range(4)]
    for launch in (*launches, nonsense[8, stream](x)):
        with pytest.raises(CompileError, match="not_defined_anywhere") as caught:
            await launch
        assert caught.value.location is not None and caught.value.location.startswith(__file__)
    with pytest.raises(CompileError):
        await nonsense.compile(x)
    after = nonsense[8, stream](x)
    behind = saxpy[8, stream](1.0, *operands())
    with pytest.raises(CompileError):
        await after
    with pytest.raises(DependencyError):
        await behind
    await saxpy[8, stream](1.0, *operands())


@pytest.mark.anyio
async def test_many_first_launches_compile_once() -> None:
    """Whoever comes while a kernel is being compiled waits for that compilation."""

    @kernel
    def fresh(i: int, x: Any) -> None:
        x[i] = x[i] + FACTOR

    targets = [FakeArray(np.zeros(4, "f2" if n < 0 else "f4")) for n in range(20)]
    launches = [fresh[4, aiodev.Stream("cpu")](x) for x in targets]
    async with anyio.create_task_group() as group:
        for launch in launches:
            group.start_soon(launch.synchronize)
    assert all((x.host == 3).all() for x in targets)
    assert len({id(variant.loading) for variant in fresh._variants.all()}) == 1


@pytest.mark.anyio
async def test_compile_ahead() -> None:
    """After ``compile`` a launch has nothing to wait for."""
    x, y, out = operands(dtype="i2")
    await saxpy.compile(np.int16(2), x, y, out)
    (variant,) = (v for v in saxpy._variants.all() if v.signature.descriptors[0] == "i2")
    assert variant.loading.ready


@pytest.mark.anyio
async def test_compile_can_be_cancelled() -> None:
    """Cancelling it stops the waiting, not the compilation."""

    @kernel
    def slow(i: int, x: Any) -> None:
        x[i] = x[i] * FACTOR - 1

    (x,) = arrays(np.ones(4))
    with anyio.move_on_after(0):
        await slow.compile(x)
    await slow[4](x)
    assert (x.host == 2).all()


def test_wrong_launches_name_what_is_wrong() -> None:
    """Each at the call, not later."""
    x, y, out = operands()
    cases: list[tuple[Any, tuple[Any, ...], str | None, str]] = [
        (8, (2.0, x, y), "out", r"expected 4 arguments \(a, x, y, out\), got 3"),
        (8, (2.0, x, y, out, out), None, "got 5"),
        (8, (2.0, x, None, out), "y", "expected a number or an array"),
        (8, (2.0, x.host, y, out), "x", "NumPy array"),
        (8, (1e300, x, y, out), "a", "a number that fits f4"),
        (-1, (2.0, x, y, out), "shape", "lengths of 0 or more"),
        ((-1, aiodev.current_stream()), (2.0, x, y, out), "shape", "lengths of 0 or more"),
        (np.int64(-1), (2.0, x, y, out), "shape", "lengths of 0 or more"),
        ((2, 3), (2.0, x, y, out), "shape", "expected an int"),
        ("8", (2.0, x, y, out), "shape", "expected an int"),
        (2.0, (2.0, x, y, out), "shape", "expected an int"),
    ]
    for _ in range(2):
        for shape, args, argument, message in cases:
            with pytest.raises(LaunchError, match=message) as caught:
                saxpy[shape](*args)
            assert caught.value.argument == argument
        saxpy[8](2.0, x, y, out).synchronize_blocking()
    with pytest.raises(LaunchError, match="a tuple of 2 ints"):
        transpose[8](x, out)


def test_names_and_defaults() -> None:
    """Arguments may be given by name; the body's defaults hold."""
    x, y, out = operands()
    saxpy[8](2.0, x, out=out, y=y).synchronize_blocking()
    assert (out.host == 2 * x.host + 1).all()
    for _ in range(2):
        defaulted[8](x).synchronize_blocking()
        assert (x.host == 2).all()
        defaulted[8](x, scale=4.0).synchronize_blocking()
        assert (x.host == 4).all()


def test_a_kernel_is_launched_not_called() -> None:
    """A call without an index says how to launch; one with it runs the plain function for that index."""
    with pytest.raises(TypeError, match=r"launch it over a shape: saxpy\[shape\]"):
        saxpy(2.0, [1.0], [3.0], [0.0])
    for call in (saxpy, saxpy.py_func):
        out = [0.0]
        call(0, 2.0, [1.0], [3.0], out)
        assert out == [5.0]
    assert saxpy.__name__ == "saxpy" and "saxpy(a, x, y, out)" in repr(saxpy)


async def _coroutine(i: int, x: Any) -> None:
    x[i] = 0


def _generator(i: int, x: Any) -> Any:
    yield x[i]


def test_refused_at_decoration() -> None:
    """What no kernel can be."""
    with pytest.raises(ValueError, match="1, 2 or 3"):
        kernel(ndim=4)
    with pytest.raises(TypeError, match="2 indices first"):
        kernel(ndim=2)(lambda i: None)
    with pytest.raises(TypeError, match="use def"):
        kernel(lambda i, x: None)
    for wrong in (_coroutine, _generator, int, "name"):
        with pytest.raises(TypeError, match="a kernel is made of a plain function"):
            kernel(wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="plain ones"):
        kernel(lambda i, *args: None)


@pytest.mark.anyio
async def test_implementation() -> None:
    """A hand-written body is used on its type of device, and is visible; it must take the same parameters."""

    @kernel
    def one(i: int, x: Any) -> None:
        x[i] = 1

    @one.implementation("cpu")
    def one_cpu(i: int, x: Any) -> None:
        x[i] = 2

    assert dict(one.implementations) == {"cpu": one_cpu}
    (x,) = arrays(np.zeros(4))
    await one[4](x)
    assert (x.host == 2).all()
    with pytest.raises(ValueError, match="already launched"):
        one.implementation("cpu")(one_cpu)
    with pytest.raises(TypeError, match="the cuda body takes"):
        one.implementation("cuda")(lambda i, y: None)


@pytest.mark.anyio
async def test_a_kernel_may_call_another() -> None:
    """As a plain function of its index and arguments."""

    @kernel
    def set_to(i: int, x: Any, value: float) -> None:
        x[i] = value

    @kernel
    def twice(i: int, x: Any) -> None:
        set_to(i, x, 2.0 * i)

    (x,) = arrays(np.zeros(4))
    await twice[4](x)
    assert x.host.tolist() == [0, 2, 4, 6]


@pytest.mark.anyio
async def test_boundscheck() -> None:
    """An index out of bounds is an IndexError where that was asked for."""

    @kernel(boundscheck=True)
    def over(i: int, x: Any) -> None:
        x[i + 1] = 0

    with pytest.raises(KernelError) as caught:
        await over[4](*arrays(np.zeros(4)))
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_full_stream_leaves_no_shut_gate() -> None:
    """A first launch that finds no room raises, and the stream goes on."""

    @kernel
    def never(i: int, x: Any) -> None:
        x[i] = x[i] / FACTOR

    stream = aiodev.Stream("cpu", maxsize=1)
    gate = stream._gate()
    with pytest.raises(aiodev.StreamFullError):
        never[4, stream](*arrays(np.zeros(4)))
    gate.open()
    stream.synchronize_blocking(timeout=20)


def test_threads_may_launch_at_once() -> None:
    """The first time too."""

    @kernel
    def count(i: int, x: Any) -> None:
        x[i] += FACTOR - 2

    target = FakeArray(np.zeros(4))
    stream, barrier = aiodev.Stream("cpu"), threading.Barrier(4)

    def launch() -> None:
        barrier.wait()
        for _ in range(50):
            count[4, stream](target)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.synchronize_blocking(timeout=60)
    assert target.host.tolist() == [200] * 4


PROGRAM = """
import asyncio, sys
sys.path.insert(0, {helpers!r})
import numpy as np
import aiodev
from aiodev._kernel.kernel import kernel
from aiodev import profiler
from aiodev._kernel.service import service
from kernel_fakes import arrays

SCALE = {scale}

@kernel
def scaled(i, x):
    x[i] = x[i] * SCALE

def local(offset):
    @kernel
    def shifted(i, x):
        x[i] = x[i] + offset
    return shifted

async def main():
    x, = arrays(np.ones(4))
    await scaled[4](x)
    await local(1.0)[4](x)
    found = profiler.counters()
    print(x.host.tolist(), found["kernels_compiled"], found["kernels_loaded"], len(service.workers.processes))

asyncio.run(main())
"""


def test_a_new_process_finds_everything(tmp_path: Path, cache_without_kernels: Path) -> None:
    """Kernels of ``__main__`` and closures too; another constant is another kernel, and nothing else is compiled again."""

    def run(scale: float) -> str:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(helpers=str(Path(__file__).parent), scale=scale))
        root = str(Path(aiodev.__file__).parents[1])
        environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": str(cache_without_kernels), "PATH": ""}
        done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run(2.0) == "[3.0, 3.0, 3.0, 3.0] 2 0 1"
    assert run(2.0) == "[3.0, 3.0, 3.0, 3.0] 0 2 0"
    assert run(5.0) == "[6.0, 6.0, 6.0, 6.0] 1 1 1"


FORKING = """
import os, sys
sys.path.insert(0, {helpers!r})
import numpy as np
import aiodev
from aiodev._kernel.kernel import kernel
from aiodev._kernel.service import service
from kernel_fakes import arrays

@kernel
def add(i, x):
    x[i] = x[i] + 1

x, = arrays(np.zeros(4))
add[4](x).synchronize_blocking(timeout=60)
workers = list(service.workers.processes)
if os.fork() == 0:
    add[4](x).synchronize_blocking(timeout=60)
    assert x.host.tolist() == [2] * 4 and not service.workers.processes
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
add[4](x).synchronize_blocking(timeout=60)
assert x.host.tolist() == [2] * 4
assert workers and all(worker.poll() is None for worker in workers)
"""


@pytest.mark.parametrize("executor", ["native", "python"])
def test_a_forked_child_starts_afresh(executor: str, cache_without_kernels: Path) -> None:
    """Its launches work, and its end does not touch the parent's workers."""
    program = FORKING.format(helpers=str(Path(__file__).parent))
    root = str(Path(aiodev.__file__).parents[1])
    environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": str(cache_without_kernels), "AIODEV_EXECUTOR": executor}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
