"""Core figures: what submitting and waiting cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable

import numpy as np
from harness import Bar, Figure, Run
from peers import PythonWorker, awaited, numpy_add, timed

import aiodev
from aiodev import profiler

__all__ = ["FIGURES", "nothing"]


@aiodev.kernel
def nothing(i):
    """Takes no argument and does nothing."""


@aiodev.kernel
def four(i, a, b, c, out):
    """Takes four arrays."""
    out[i] = a[i] + b[i] + c[i]


def noop() -> None:
    """What the peers run in place of an empty kernel."""


async def launch(run: Run) -> Figure:
    """Launch of a compiled kernel with four arrays, from Python; the queue is emptied outside the timed part."""
    stream = aiodev.Stream("cpu")
    a, b, c, out = (aiodev.zeros(8, dtype=np.float32, device="cpu") for _ in range(4))
    await aiodev.synchronize("cpu")
    await four[8, stream](a, b, c, out)
    count = run.scale(20_000)

    async def ours() -> float:
        value = timed(lambda: four[8, stream](a, b, c, out), count)
        await stream.synchronize()
        return value

    values = await run.medians({"aiodev": ours, "np.add": lambda: numpy_add(count)})
    return Figure("launch of a compiled kernel, 4 arrays", "µs", values, [Bar("np.add", at_most=8)])


async def await_hot(run: Run) -> Figure:
    """Launch of an empty kernel and its await, again and again."""
    stream, loop = aiodev.Stream("cpu"), asyncio.get_running_loop()
    await nothing[1, stream]()
    with PythonWorker() as worker:
        values = await run.medians(
            {
                "aiodev": lambda: awaited(lambda: nothing[1, stream](), run.scale(20_000)),
                "run_in_executor": lambda: awaited(lambda: loop.run_in_executor(None, noop), run.scale(2_000)),
                "asyncio.to_thread": lambda: awaited(lambda: asyncio.to_thread(noop), run.scale(2_000)),
                "Python worker thread": lambda: awaited(lambda: worker.submit(noop), run.scale(2_000)),
            }
        )
    return Figure("launch + await, hot", "µs", values, [Bar("run_in_executor", at_most=1 / 50)])


async def await_parked(run: Run) -> Figure:
    """The same when everything has been asleep for 3 ms before each."""
    stream, loop = aiodev.Stream("cpu"), asyncio.get_running_loop()
    await nothing[1, stream]()
    count = run.scale(800)

    async def rested(function) -> float:
        total = 0.0
        for _ in range(count):
            await asyncio.sleep(0.003)
            began = time.perf_counter()
            await function()
            total += time.perf_counter() - began
        return total / count * 1e6

    with PythonWorker() as worker:
        values = await run.medians(
            {
                "aiodev": lambda: rested(lambda: nothing[1, stream]()),
                "run_in_executor": lambda: rested(lambda: loop.run_in_executor(None, noop)),
                "asyncio.to_thread": lambda: rested(lambda: asyncio.to_thread(noop)),
                "Python worker thread": lambda: rested(lambda: worker.submit(noop)),
            },
            repeats=min(3, run.repeats),
        )
    return Figure("launch + await, everything parked", "µs", values, [Bar("run_in_executor", at_most=0.7)])


async def await_done(run: Run) -> Figure:
    """Await of a completion that is done."""
    stream = aiodev.Stream("cpu")
    done = nothing[1, stream]()
    await done

    async def empty() -> None:
        pass

    count = run.scale(100_000)

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await done
        return (time.perf_counter() - began) / count * 1e6

    async def theirs() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await empty()
        return (time.perf_counter() - began) / count * 1e6

    values = await run.medians({"aiodev": ours, "empty coroutine": theirs})
    return Figure("await of something done", "µs", values, [Bar("empty coroutine", at_most=5)])


async def order(run: Run) -> Figure:
    """record_event + wait_event across streams, none elided: each record follows a launch that cannot have completed.

    The launches are timed by themselves in the same way and taken off.
    """
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    event = aiodev.Event("cpu")
    await nothing[1, first]()
    count = run.scale(10_000)

    async def held(step) -> float:
        gate = asyncio.get_running_loop().create_future()
        first.wait_future(gate)
        await asyncio.sleep(0)
        value = timed(step, count)
        gate.set_result(None)
        await first.synchronize()
        await second.synchronize()
        return value

    def launch_only() -> None:
        nothing[1, first]()

    def launch_and_order() -> None:
        nothing[1, first]()
        first.record_event(event)
        second.wait_event(event)

    async def ours() -> float:
        return await held(launch_and_order) - await held(launch_only)

    values = await run.medians({"aiodev": ours, "np.add": lambda: numpy_add(count)})
    return Figure("record_event + wait_event across streams", "µs", values, [Bar("np.add", at_most=4)])


async def throughput(run: Run) -> Figure:
    """Consecutive empty kernels of one stream, all submitted before the first may run."""
    stream = aiodev.Stream("cpu")
    await nothing[1, stream]()
    count = run.scale(200_000)

    async def ours() -> float:
        gate = asyncio.get_running_loop().create_future()
        stream.wait_future(gate)
        last = None
        for _ in range(count):
            last = nothing[1, stream]()
        began = time.perf_counter()
        gate.set_result(None)
        await last
        return (time.perf_counter() - began) / count * 1e6

    values = await run.medians({"aiodev": ours, "np.add": lambda: numpy_add(count)})
    return Figure("consecutive empty kernels, submitted beforehand", "µs", values, [Bar("np.add", at_most=0.25)])


async def stream_each(run: Run) -> Figure:
    """A stream that is made for one empty kernel, which is awaited, and dropped; the same with a thread; and a stream alone."""
    count = run.scale(2_000)

    def used() -> Awaitable[None]:
        return nothing[1, aiodev.Stream("cpu")]()

    def thread() -> None:
        made = threading.Thread(target=noop)
        made.start()
        made.join()

    await used()
    values = await run.medians(
        {
            "aiodev": lambda: awaited(used, count),
            "made and dropped": lambda: timed(lambda: aiodev.Stream("cpu"), count),
            "a thread for each": lambda: timed(thread, run.scale(500)),
        }
    )
    bars = [Bar("a thread for each", at_most=0.5), Bar("a thread for each", at_most=0.3, case="made and dropped")]
    return Figure("a stream for one kernel, made, awaited and dropped", "µs", values, bars)


async def profiled(run: Run) -> Figure:
    """Launch of the kernel with four arrays and its run, with a profile and without: submission and worker together."""
    stream = aiodev.Stream("cpu")
    a, b, c, out = (aiodev.zeros(8, dtype=np.float32, device="cpu") for _ in range(4))
    await four[8, stream](a, b, c, out)
    count = run.scale(20_000)

    async def submit_and_run() -> float:
        gate = asyncio.get_running_loop().create_future()
        stream.wait_future(gate)  # else what the worker does would be hidden behind the submission
        value = timed(lambda: four[8, stream](a, b, c, out), count)
        began = time.perf_counter()
        gate.set_result(None)
        await stream.synchronize()
        return value + (time.perf_counter() - began) / count * 1e6

    async def ours() -> float:
        async with profiler.profile(most=2 * count):
            return await submit_and_run()

    values = await run.medians({"aiodev": ours, "without a profile": submit_and_run})
    note = "submission and run, one after the other"
    return Figure("an operation that is profiled", "µs", values, [Bar("without a profile", within=1.0)], note)


async def profiled_replay(run: Run) -> Figure:
    """Submission of a graph of one such kernel, with a profile and without."""
    stream = aiodev.Stream("cpu")
    a, b, c, out = (aiodev.zeros(8, dtype=np.float32, device="cpu") for _ in range(4))
    await four[8, stream](a, b, c, out)
    async with aiodev.capture(stream) as graph:
        four[8](a, b, c, out)
    await graph.replay(stream)
    count = run.scale(5_000)

    async def replays() -> float:
        value = timed(lambda: graph.replay(stream), count)
        await stream.synchronize()
        return value

    async def ours() -> float:
        async with profiler.profile(most=4 * count):
            return await replays()

    values = await run.medians({"aiodev": ours, "without a profile": replays})
    return Figure("a replay that is profiled", "µs", values, [Bar("without a profile", within=1.0)])


FIGURES = {
    "launch": launch,
    "await-hot": await_hot,
    "await-parked": await_parked,
    "await-done": await_done,
    "order": order,
    "throughput": throughput,
    "stream": stream_each,
    "profiled": profiled,
    "profiled-replay": profiled_replay,
}
