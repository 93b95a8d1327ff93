"""How late the loop is while kernels are compiled, and while they are loaded from the disk cache."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from core_loop import _lags as lags_during
from harness import Bar, Figure, Run

import aiodev
from aiodev import profiler

__all__ = ["FIGURES", "compile_lag", "load_lag"]

Work = Callable[[], Awaitable[object]]

#: The cases' names, by what is told of each: the 99th percentile, and the worst.
_BARS = [Bar("idle loop", within=1.0), Bar("idle loop, worst", within=15.0, case="aiodev, worst")]


def _body(constant: int) -> Any:
    """A body that its constant makes another kernel, to the disk cache and to numba."""

    def body(i, a, x, y, out):
        total = a * x[i] + y[i]
        if total > constant:
            total = np.sqrt(total) - y[i]
        out[i] = total

    return body


def compile_all(first: int, count: int) -> Work:
    """What compiles, or loads, as many kernels at once."""
    kernels = [aiodev.kernel(_body(first + number)) for number in range(count)]
    arrays = [aiodev.zeros(64, dtype=np.float32, device="cpu") for _ in range(3)]

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for kernel in kernels:
                group.create_task(kernel.compile(2.0, *arrays))
                await asyncio.sleep(0)  # a hundred calls in one turn of the loop would be a lag of their own

    return work


async def _numba_in_threads(first: int, count: int) -> None:
    import numba

    single, array = numba.float32, numba.float32[::1]

    def compile_one(constant: int) -> None:
        numba.njit((numba.int64, single, array, array, array))(_body(constant))

    await asyncio.gather(*(asyncio.to_thread(compile_one, first + number) for number in range(count)))


def _told(lags: dict[str, list[float]]) -> dict[str, float]:
    """The 99th percentile and the worst lateness of a 1 ms timer in each case."""
    values: dict[str, float] = {}
    for name, found in lags.items():
        values[name] = statistics.quantiles(found, n=100, method="inclusive")[98]
        values[f"{name}, worst"] = max(found)
    return values


async def compile_lag(run: Run) -> Figure:
    """Lateness of a 1 ms timer while a hundred kernels compile at once."""
    count = 3 if run.smoke else 100
    first = time.time_ns()
    await compile_all(first - 1, 1)()
    cases: dict[str, Work] = {
        "aiodev": compile_all(first, count),
        "numba in asyncio.to_thread": lambda: _numba_in_threads(first, count),
        "idle loop": lambda: asyncio.sleep(0.1 if run.smoke else 5.0),
    }
    values = _told({name: await lags_during(work) for name, work in cases.items()})
    return Figure(f"lag of a 1 ms timer while {count} kernels compile", "ms", values, _BARS)


async def load_lag(run: Run) -> Figure:
    """The same while a fresh process loads a hundred kernels that were compiled by another."""
    count = 3 if run.smoke else 100
    first = time.time_ns()
    await compile_all(first, count)()
    lags: dict[str, list[float]] = {}
    command = [sys.executable, __file__, str(first), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # that of a safe path has not our neighbours
    for _ in range(1 if run.smoke else 10):  # each takes some 40 ms, which is few beats
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
        output, _ = await child.communicate()
        for name, found in json.loads(output).items():
            lags.setdefault(name, []).extend(found)
    return Figure(f"lag of a 1 ms timer while {count} kernels are loaded from the disk cache", "ms", _told(lags), _BARS)


async def _load(first: int, count: int) -> None:
    """What the child does."""
    await aiodev.init("cpu")
    before = profiler.counters()
    cases: dict[str, Work] = {"aiodev": compile_all(first, count), "idle loop": lambda: asyncio.sleep(1.0)}
    lags = {name: await lags_during(work) for name, work in cases.items()}
    after = profiler.counters()
    assert after["kernels_compiled"] == before["kernels_compiled"], "nothing was to be compiled"
    print(json.dumps(lags))


FIGURES = {"compile-lag": compile_lag, "load-lag": load_lag}

if __name__ == "__main__":
    asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2])))
