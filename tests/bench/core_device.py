"""Core figures: what the device does by itself, whatever Python does meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import numba
from core_submit import nothing
from harness import Bar, Figure, Run
from peers import PythonWorker, thread_handover

import aiodev

__all__ = ["FIGURES"]

SPINS = 40_000  #: steps of a dependent chain of operations: about a tenth of a millisecond


@aiodev.kernel
def chain(i, steps, out):
    """Keeps one core busy for ``steps`` dependent steps."""
    value = out[i]
    for _ in range(steps):
        value = value * 1.0000001 + 1e-9
    out[i] = value


@numba.njit(nogil=True)
def python_chain(steps: int, value: float) -> float:
    """The same work for the Python worker thread, which releases the GIL in it."""
    for _ in range(steps):
        value = value * 1.0000001 + 1e-9
    return value


async def busy_loop(run: Run) -> Figure:
    """How many kernels complete while the loop runs pure Python, against how many complete beside an idle loop."""
    seconds = 0.05 if run.smoke else 0.5
    count = int(seconds / 20e-6)
    stream = aiodev.Stream("cpu")
    out = aiodev.zeros(1, dtype="f8", device="cpu")
    await aiodev.synchronize("cpu")
    await chain[1, stream](SPINS, out)
    python_chain(SPINS, 1.0)

    async def ours(meanwhile: Callable[[float], object]) -> float:
        for _ in range(count):
            last = chain[1, stream](SPINS, out)
        before = stream.qsize()
        await _during(meanwhile, seconds)
        completed = before - stream.qsize()
        await last
        return completed / seconds

    async def theirs(meanwhile: Callable[[float], object]) -> float:
        with PythonWorker() as worker:
            for _ in range(count):
                worker.push(lambda: python_chain(SPINS, 1.0))
            before = worker.completed
            await _during(meanwhile, seconds)
            return (worker.completed - before) / seconds

    async def machine(meanwhile: Callable[[float], object]) -> float:
        """What one native call, which holds no GIL and touches nothing of Python's or ours, gets done meanwhile."""
        steps, ended = count * SPINS // 5, 0.0

        def call() -> None:
            nonlocal ended
            python_chain(steps, 1.0)
            ended = time.perf_counter()

        thread = threading.Thread(target=call)
        began = time.perf_counter()
        thread.start()
        await _during(meanwhile, seconds)
        thread.join()
        return steps / SPINS / (ended - began)

    values = await run.medians(
        {
            "aiodev": lambda: ours(_busy),
            "aiodev, loop idle": lambda: ours(asyncio.sleep),
            "one long native call": lambda: machine(_busy),
            "one long native call, loop idle": lambda: machine(asyncio.sleep),
            "Python worker thread": lambda: theirs(_busy),
            "Python worker thread, loop idle": lambda: theirs(asyncio.sleep),
        },
        repeats=min(3, run.repeats),
    )
    kept = values["one long native call"] / values["one long native call, loop idle"]
    note = f"beside a busy thread this machine itself keeps {kept:.0%} of its speed"
    return Figure(
        "kernels completed while the loop is busy", "/s", values, [Bar("aiodev, loop idle", at_least=0.95)], note
    )


async def _during(meanwhile: Callable[[float], object], seconds: float) -> None:
    outcome = meanwhile(seconds)
    if asyncio.iscoroutine(outcome):
        await outcome


def _busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    total = 0
    while time.perf_counter() < end:
        for number in range(200):
            total += number * number


async def handover(run: Run) -> Figure:
    """From one stream to another that waits for it and back, both hot; all submitted before the first may run."""
    streams = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    for stream in streams:
        await nothing[1, stream]()
    count = run.scale(5_000)

    async def ours() -> float:
        gate = asyncio.get_running_loop().create_future()
        streams[0].wait_future(gate)
        done = None
        for _ in range(count):
            for ahead, behind in (streams, streams[::-1]):
                done = nothing[1, ahead]()
                behind.wait(done)
        began = time.perf_counter()
        gate.set_result(None)
        await done
        return (time.perf_counter() - began) / (2 * count) * 1e6

    values = await run.medians({"aiodev": ours, "threading.Event": lambda: thread_handover(run.scale(5_000))})
    note = "with the empty kernel on each side"
    return Figure("hand-over between streams, hot", "µs", values, [Bar("threading.Event", at_most=1 / 20)], note)


FIGURES = {
    "busy-loop": busy_loop,
    "handover": handover,
}
