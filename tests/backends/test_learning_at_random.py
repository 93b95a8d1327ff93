"""Random programs while what threads have learnt changes at random: a crowd, spins, workers. Only the time may differ."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selection import some

import aiodev
from aiodev._backends.cpu.executor.executor import NativeExecutor

CELLS = 4
LONG = 1 << 62

#: A process of its own: no thread of it ever runs beside another. What no worker comes to do, who waits does.
ON_ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import asyncio
import aiodev, test_learning_at_random as programs
from aiodev.testing import held_workers

async def main():
    await aiodev.init("cpu")
    backend = aiodev.get_backend("cpu")
    assert backend.executor.thread_count == 1
    for seed in range(2):
        await asyncio.gather(*(programs.program(8 * seed + k) for k in range(3)))
    x = aiodev.zeros(1000, "int64", "cpu")
    for _ in range(3):
        await programs.axpy_evenly[1000](1, x, x, x)
    for _ in range(100):  # this process may be kept from its core just then, and parks
        with held_workers(backend):
            done = programs.axpy_evenly[1000](1, x, x, x)
            try:
                await asyncio.wait_for(done.synchronize(), 0.2)
                break
            except TimeoutError:
                pass
    else:
        raise AssertionError("nobody helps")

asyncio.run(main())
"""


@aiodev.kernel
def axpy(i: int, a: int, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel(uniform=True)
def axpy_evenly(i: int, a: int, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel
def axpy_slowly(i: int, a: int, x: Any, y: Any, out: Any) -> None:
    """As the others, but for what an index costs: the more, the further it is from the beginning."""
    total = y[i]
    for _ in range(a % 5):
        total += x[i]
    for _ in range(i % 64):
        total ^= 1
        total ^= 1
    out[i] = total


@contextmanager
def changing(executor: NativeExecutor, chance: random.Random) -> Iterator[None]:
    """Have the executor's threads believe now this, now that; afterwards what they believed."""
    crowd, ended, spin, workers = executor._crowd, threading.Event(), executor._spin_ns, len(executor._workers)
    before, coalesces = (crowd.until.value, crowd.span), crowd.coalesces

    def change() -> None:
        while not ended.is_set():
            now = time.monotonic_ns()
            crowd.until.value = chance.choice((0, now + 50_000, now + 2_000_000, LONG))
            crowd.span = chance.choice((-1, 0, 1_000_000))
            executor.limit_spin(chance.choice((0, 5_000, spin)))
            executor.limit_workers(chance.choice((1, workers)))
            executor.share_core(chance.random() < 0.1)
            executor.coalesce_wake_ups(chance.random() < 0.5)
            time.sleep(chance.choice((0, 0.0001, 0.002)))  # how often it changes is a part of the chance; nothing waits for it

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        executor.limit_spin(spin)
        executor.limit_workers(workers)
        executor.coalesce_wake_ups(bool(coalesces))
        crowd.until.value, crowd.span = before


async def program(seed: int) -> None:
    """Launches of three kinds on two streams, which wait for each other, against a sequential model.

    Some are awaited, some withdrawn and made again; now and then a stream gives way to a fresh one.
    """
    chance = random.Random(seed)
    streams = [aiodev.Stream("cpu", priority=chance.choice((-1, 0, 1))) for _ in range(2)]
    size = chance.choice((1, 70, 5_000, 150_000))
    cells = [aiodev.asarray(np.full(size, k), device="cpu") for k in range(CELLS)]
    await aiodev.synchronize("cpu")
    model = list(range(CELLS))
    for _ in range(300):
        stream, other = chance.sample(streams, 2)
        a, b, out = (chance.randrange(CELLS) for _ in range(3))
        stream.wait_stream(other)
        kind, factor = chance.choice((axpy, axpy_evenly, axpy_slowly)), chance.randrange(5)
        done = kind[size, stream](factor, cells[a], cells[b], cells[out])
        match chance.randrange(7):
            case 0:
                await done
            case 1:
                await asyncio.sleep(0)
            case 2:
                if done.cancel():
                    kind[size, stream](factor, cells[a], cells[b], cells[out])
            case 3:
                done.synchronize_blocking(60)
            case 4:
                seen: list[int] = []
                await stream.call(seen.append, 1)
                assert seen == [1]
            case 5:  # another one, which may have the queue of one that was dropped
                number, dropped = streams.index(stream), stream
                stream = streams[number] = aiodev.Stream("cpu", priority=chance.choice((-1, 0, 1)))
                stream.wait_stream(dropped)
                del dropped
        model[out] = (factor * model[a] + model[b] + (1 << 63)) % (1 << 64) - (1 << 63)
    for stream in streams:
        await stream.synchronize()
    for cell, value in zip(cells, model, strict=True):
        assert (await cell.numpy() == value).all()


@pytest.mark.parametrize("seed", some(range(24), 3))
async def test_programs_are_right_whatever_threads_believe(seed: int) -> None:
    """A crowd that comes and goes, spins that are cut off, workers that are taken away and given back: each result is there."""
    await aiodev.init("cpu")
    executor = aiodev.get_backend("cpu").executor
    if not isinstance(executor, NativeExecutor):
        pytest.skip("the executor is another one, which learns nothing")
    with changing(executor, random.Random(seed)):
        async with asyncio.timeout(120):
            await asyncio.gather(*(program(8 * seed + k) for k in range(3)))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not let a process choose its cores")
def test_programs_are_right_on_a_single_core() -> None:
    """Nobody spins there, workers are seldom woken, and who waits helps."""
    if aiodev.get_backend("cpu").executor_kind != "native":  # type: ignore[attr-defined]
        pytest.skip("the executor is another one, which learns nothing")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    for name in ("AIODEV_CPU_DEVICES", "AIODEV_CPU_THREADS", "AIODEV_SPIN_US"):
        environment.pop(name, None)
    command = [sys.executable, "-c", ON_ONE_CORE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
