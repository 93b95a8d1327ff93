"""First launches: who waits until a kernel is compiled, who is told that it cannot be, and what another process finds."""

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
from programs import search_path

import aiodev
from aiodev import CompileError, DependencyError
from aiodev._kernel.kernel import kernel

FACTOR = 3.0


@kernel
def double(i: int, x: Any) -> None:
    x[i] = 2 * x[i]


@kernel
def nonsense(i: int, x: Any) -> None:
    x[i] = not_defined_anywhere(i)  # noqa: F821


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
    behind = double[8, stream](x)
    with pytest.raises(CompileError):
        await after
    with pytest.raises(DependencyError):
        await behind
    await double[8, stream](x)


@pytest.mark.anyio
async def test_many_first_launches_compile_once() -> None:
    """Whoever comes while a kernel is being compiled waits for that compilation."""

    @kernel
    def fresh(i: int, x: Any) -> None:
        x[i] = x[i] + FACTOR

    targets = [FakeArray(np.zeros(4, "f4")) for _ in range(20)]
    launches = [fresh[4, aiodev.Stream("cpu")](x) for x in targets]
    async with anyio.create_task_group() as group:
        for launch in launches:
            group.start_soon(launch.synchronize)
    assert all((x.host == 3).all() for x in targets)
    assert len({id(variant.loading) for variant in fresh._specializations.all()}) == 1


@pytest.mark.anyio
async def test_compile_ahead() -> None:
    """After ``compile`` a launch has nothing to wait for."""
    (x,) = arrays(np.ones(4, "i2"))
    await double.compile(x)
    (variant,) = (v for v in double._specializations.all() if v.signature.descriptors[0].startswith("A1i2"))
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
import numpy as np
import aiodev
from aiodev._kernel.kernel import kernel
from aiodev import profiler
from aiodev._kernel.compile.service import service
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
        program.write_text(PROGRAM.format(scale=scale))
        environment = {"PYTHONPATH": search_path(), "AIODEV_CACHE_DIR": str(cache_without_kernels), "PATH": ""}
        done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run(2.0) == "[3.0, 3.0, 3.0, 3.0] 2 0 1"
    assert run(2.0) == "[3.0, 3.0, 3.0, 3.0] 0 2 0"
    assert run(5.0) == "[6.0, 6.0, 6.0, 6.0] 1 1 1"


FORKING = """
import os, sys
import numpy as np
import aiodev
from aiodev._kernel.kernel import kernel
from aiodev._kernel.compile.service import service
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
    environment = {"PYTHONPATH": search_path(), "AIODEV_CACHE_DIR": str(cache_without_kernels), "AIODEV_EXECUTOR": executor}
    done = subprocess.run([sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
