"""Core figures: what ten thousand waiting tasks cost, how late the loop's timers are, what importing costs."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable

import numba
import numpy as np
from core_submit import nothing
from harness import Bar, Figure, Run

import aiodev

__all__ = ["FIGURES"]

STREAMS = 32


@aiodev.kernel
def busy(i, out):
    """Takes about 100 µs over 16,384 indices."""
    value = out[i]
    for _ in range(16):
        value = value * 0.5 + 1.0
    out[i] = value


@numba.njit(nogil=True)
def compiled_busy(out):
    """The same work in one function."""
    for i in range(out.size):
        value = out[i]
        for _ in range(16):
            value = value * 0.5 + 1.0
        out[i] = value


class Gates:
    """A future for each of 32 streams; the stream's next kernel completes when it is set."""

    def __init__(self, streams: list[aiodev.Stream]) -> None:
        loop = asyncio.get_running_loop()
        self.gates = [loop.create_future() for _ in streams]
        for stream, gate in zip(streams, self.gates, strict=True):
            stream.wait_future(gate)
        self.completions = [nothing[1, stream]() for stream in streams]

    def open(self) -> None:
        """Let every stream run on."""
        for gate in self.gates:
            gate.set_result(None)


async def _streams() -> list[aiodev.Stream]:
    streams = [aiodev.Stream("cpu") for _ in range(STREAMS)]
    await asyncio.gather(*(nothing[1, stream]().synchronize() for stream in streams))
    return streams


async def _wait(done: aiodev.Completion) -> None:
    await done


async def _wait_event(event: asyncio.Event) -> None:
    await event.wait()


async def parked_time(run: Run) -> Figure:
    """Start 10,000 tasks that wait on 32 streams, let them park, release the streams, and see all of them end."""
    streams, count = await _streams(), run.scale(10_000)

    async def ours() -> float:
        began = time.perf_counter()
        gates = Gates(streams)
        tasks = [asyncio.create_task(_wait(gates.completions[n % STREAMS])) for n in range(count)]
        await asyncio.sleep(0)
        gates.open()
        await asyncio.gather(*tasks)
        return (time.perf_counter() - began) * 1e3

    async def theirs() -> float:
        began = time.perf_counter()
        events = [asyncio.Event() for _ in range(STREAMS)]
        tasks = [asyncio.create_task(_wait_event(events[n % STREAMS])) for n in range(count)]
        await asyncio.sleep(0)
        for event in events:
            event.set()
        await asyncio.gather(*tasks)
        return (time.perf_counter() - began) * 1e3

    values = await run.medians({"aiodev": ours, "asyncio.Event": theirs})
    return Figure(f"{count:,} tasks parked on {STREAMS} streams", "ms", values, [Bar("asyncio.Event", at_most=3)])


async def parked_memory(run: Run) -> Figure:
    """Memory of one parked task beyond a task that waits for one future with all others."""
    streams, count = await _streams(), run.scale(10_000)

    async def bare() -> float:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await future

        return await _memory(lambda n: wait(), lambda: future.set_result(None), count)

    async def ours() -> float:
        gates = Gates(streams)
        size = await _memory(lambda n: _wait(gates.completions[n % STREAMS]), gates.open, count)
        return size - await bare()

    async def theirs() -> float:
        events = [asyncio.Event() for _ in range(STREAMS)]

        def release() -> None:
            for event in events:
                event.set()

        return await _memory(lambda n: _wait_event(events[n % STREAMS]), release, count) - await bare()

    tracemalloc.start()
    try:
        values = await run.medians({"aiodev": ours, "asyncio.Event": theirs}, repeats=1)
    finally:
        tracemalloc.stop()
    values["limit"] = 1024.0
    return Figure("memory of a parked task beyond the bare one", "bytes", values, [Bar("limit", at_most=1)])


async def _memory(start: Callable[[int], Awaitable[None]], release: Callable[[], None], count: int) -> float:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.ensure_future(start(n)) for n in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    size = tracemalloc.get_traced_memory()[0] - before
    release()
    await asyncio.gather(*tasks)
    return size / count


async def lag(run: Run) -> Figure:
    """Lateness of a 1 ms timer, 99th percentile, while the loop compiles, copies and waits."""
    seconds = 0.05 if run.smoke else 0.5
    stream = aiodev.Stream("cpu")
    host = np.ones(1 << 24, np.float32)
    array = aiodev.empty(host.shape, dtype=host.dtype, device="cpu")
    await aiodev.synchronize("cpu")

    async def copying() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await stream.copy(array, host)

    async def waiting() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await nothing[1, stream]()

    async def compiling() -> None:
        # A constant of its own makes each kernel new to the disk cache.
        constant = time.time_ns()

        def body(i, out):
            out[i] = constant + i

        out = aiodev.empty(8, dtype=np.int64, device="cpu")
        await aiodev.kernel(body)[8, stream](out)

    worst: dict[str, float] = {}

    async def late(name: str, work: Callable[[], Awaitable[None]]) -> float:
        lags = await _lags(work)
        worst[name] = max(worst.get(name, 0.0), *lags)
        return statistics.quantiles(lags, n=100)[98]

    values = await run.medians(
        {
            "aiodev": lambda: late("waiting", waiting),
            "aiodev, copying": lambda: late("copying", copying),
            "aiodev, compiling": lambda: late("compiling", compiling),
            "loop woken by a pipe": lambda: late("woken by a pipe", lambda: _woken(seconds)),
            "idle loop": lambda: late("idle", lambda: asyncio.sleep(seconds)),
        },
        repeats=min(3, run.repeats),
    )
    note = "99th percentile; worst of all: " + ", ".join(f"{name} {value:.1f} ms" for name, value in worst.items())
    cases = ("aiodev", "aiodev, copying", "aiodev, compiling")
    bars = [Bar("idle loop", within=1.0, case=case) for case in cases]
    return Figure("lag of a 1 ms timer while waiting", "ms", values, bars, note)


async def _woken(seconds: float) -> None:
    """What any wake-up costs a timer: asyncio rounds what is left of its time up to whole milliseconds.

    A thread writes to a pipe now and then, as anything that wakes a loop from outside does.
    """
    loop, ended = asyncio.get_running_loop(), threading.Event()
    read_end, write_end = os.pipe()
    loop.add_reader(read_end, lambda: os.read(read_end, 64))

    def write() -> None:
        while not ended.wait(0.0017):
            os.write(write_end, b"x")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        await asyncio.sleep(seconds)
    finally:
        ended.set()
        thread.join()
        loop.remove_reader(read_end)
        os.close(read_end)
        os.close(write_end)


async def _lags(work: Callable[[], Awaitable[None]]) -> list[float]:
    lags: list[float] = []

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append((time.perf_counter() - before) * 1e3 - 1.0)

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0)
    await work()
    await asyncio.sleep(0.003)
    while len(lags) < 2:  # noqa: ASYNC110  # a busy machine; nothing tells of a beat
        await asyncio.sleep(0.003)
    heart.cancel()
    return lags


async def lag_working(run: Run) -> Figure:
    """Lateness of a 1 ms timer beyond the longest stretch between two awaits, 99th percentiles, while tasks work and await.

    1, 8 and 32 tasks each work for 0, 0.1, 0.5 or 2 ms and then await: what is done, a launch, or a kernel of some 100 µs. The
    worst combination of each counts. Kernels keep every core busy, and are awaited through a descriptor: whenever one wakes its
    loop, asyncio rounds what is left of a timer up to whole milliseconds. So those have a millisecond more.
    """
    seconds = 0.02 if run.smoke else 0.5
    stream = aiodev.Stream("cpu")
    done = nothing[1, stream]()
    await done
    out = aiodev.zeros(1 << 14, dtype=np.float64, device="cpu")
    host = np.zeros(out.size)
    await busy[out.size, stream](out)
    compiled_busy(host)
    waits: dict[str, Callable[[aiodev.Stream], Awaitable[None]]] = {
        "aiodev, what is done": lambda own: done,
        "aiodev": lambda own: nothing[1, own](),
        "aiodev, kernels": lambda own: busy[out.size, own](out),
        "kernels in to_thread": lambda own: asyncio.to_thread(compiled_busy, host),
    }
    worst: dict[str, tuple[float, str]] = {}

    async def excess(submit: Callable[[aiodev.Stream], Awaitable[None]], tasks: int, work: float) -> float:
        stretches: list[float] = []

        async def task() -> None:
            own = aiodev.Stream("cpu")
            await done  # all of them are started in one turn
            end = time.perf_counter() + seconds
            while (began := time.perf_counter()) < end or len(stretches) < 2:
                while time.perf_counter() < began + work:
                    pass
                completion = submit(own)
                stretches.append((time.perf_counter() - began) * 1e3)
                await completion

        async def together() -> None:
            await asyncio.gather(*(task() for _ in range(tasks)))

        lags = await _lags(together)
        return statistics.quantiles(lags, n=100)[98] - statistics.quantiles(stretches, n=100)[98]

    async def all_of(name: str) -> float:
        found = [
            (await excess(waits[name], tasks, work), f"{tasks} tasks, {work * 1e3:g} ms")
            for tasks in (1, 8, 32)
            for work in (0, 1e-4, 5e-4, 2e-3)
        ]
        worst[name] = max(found)
        return worst[name][0]

    values = await run.medians({name: lambda name=name: all_of(name) for name in waits}, repeats=min(3, run.repeats))
    values["limit"] = 1.0
    note = "beyond the longest stretch; worst: " + ", ".join(f"{name} {which}" for name, (_, which) in worst.items())
    bars = [
        Bar("limit", at_most=1, case="aiodev, what is done"),
        Bar("limit", at_most=1, case="aiodev"),
        Bar("limit", at_most=2, case="aiodev, kernels"),
    ]
    return Figure("lag of a 1 ms timer while tasks work and await", "ms", values, bars, note)


async def import_time(run: Run) -> Figure:
    """``import aiodev`` in a fresh interpreter."""

    def fresh(modules: str) -> float:
        code = f"import time; began = time.perf_counter(); import {modules}; print(time.perf_counter() - began)"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as an installed package
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return float(done.stdout) * 1e3

    values = await run.medians({"aiodev": lambda: fresh("aiodev"), "numpy, anyio": lambda: fresh("numpy, anyio")})
    return Figure("import", "ms", values, [Bar("numpy, anyio", at_most=1.5)])


FIGURES = {
    "parked-time": parked_time,
    "parked-memory": parked_memory,
    "lag": lag,
    "lag-working": lag_working,
    "import": import_time,
}
