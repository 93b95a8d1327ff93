"""Core figures: twice as many requests as the device can answer, each with a deadline, after which its client is gone."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import numpy as np
from harness import Bar, Figure, Medians, Run

import aiodev

__all__ = ["FIGURES"]

KERNELS = 80  #: of a request, one after the other, at most; half of that on average
STEPS = 160_000  #: of each kernel: about 0.4 ms of one core
DEADLINE = 0.1  #: seconds

#: What a handler has around its work, from which it takes a stream.
Scope = Callable[[], AbstractAsyncContextManager[aiodev.Stream | aiodev.StreamGroup]]


@aiodev.kernel
def serve(i, steps, request, ran, out):
    """Keeps one core busy for a while, and notes that it did."""
    value = out[i]
    for _ in range(steps):
        value = value * 1.0000001 + 1e-9
    out[i] = value
    ran[request] += 1


class Load:
    """An open loop of requests for some seconds, and what became of them."""

    def __init__(self, seconds: float, cost: float) -> None:
        workers = aiodev.get_device_properties("cpu").multi_processor_count
        self.cost = cost  # seconds of one kernel
        self.interval = (KERNELS + 1) / 2 * cost / workers / 2
        self.count = max(8, int(seconds / self.interval))
        self.sizes = random.Random(1).choices(range(1, KERNELS + 1), k=self.count)
        self.counts = np.zeros(self.count, dtype="i8")  # kernels that ran, by request
        self.in_time = np.array(self.sizes)  # those that ran before the client went
        self.ran = aiodev.from_dlpack(self.counts)  # the host's memory, to be read whatever became of the last request

    async def run(self, scope: Scope) -> tuple[float, float]:
        """Answers per second, and seconds that the device computed for clients who had gone."""
        await aiodev.synchronize("cpu")
        began = time.perf_counter()
        handlers = []
        for number in range(self.count):
            await asyncio.sleep(max(0.0, began + number * self.interval - time.perf_counter()))
            handlers.append(asyncio.create_task(self.handle(scope, number)))
        answered = sum(await asyncio.gather(*handlers))
        elapsed = self.count * self.interval
        await _idle()
        return answered / elapsed, int((self.counts - self.in_time).sum()) * self.cost

    async def handle(self, scope: Scope, number: int) -> bool:
        try:
            async with asyncio.timeout(DEADLINE), scope() as given:
                stream = given.stream() if isinstance(given, aiodev.StreamGroup) else given
                out = aiodev.empty(1, dtype="f8", device="cpu")
                for _ in range(self.sizes[number]):
                    done = serve[1, stream](STEPS, number, self.ran, out)
                try:
                    await done
                except asyncio.CancelledError:
                    self.in_time[number] = self.counts[number]
                    raise
        except TimeoutError:
            return False
        return True


async def _idle() -> None:
    """Wait until the device is done, whatever became of it."""
    while True:
        try:
            return await aiodev.synchronize("cpu")
        except (aiodev.WithdrawnError, aiodev.DependencyError):
            pass


async def _measure(run: Run) -> tuple[Medians, Medians]:
    cost = await _cost(run)
    scopes: dict[str, Scope] = {
        "aiodev": lambda: aiodev.StreamGroup("cpu", cancel=True),
        "StreamGroup": lambda: aiodev.StreamGroup("cpu"),
        "a stream for each request": lambda: aiodev.Stream("cpu"),
    }
    answers = Medians((name, 0.0) for name in scopes)
    wasted = Medians((name, 0.0) for name in scopes)
    for name, scope in scopes.items():
        answers[name], wasted[name] = await Load(0.1 if run.smoke else 3.0, cost).run(scope)
    return answers, wasted


async def _cost(run: Run) -> float:
    """Seconds of one kernel where every worker has one, beside whatever else the machine does."""
    workers, rounds = aiodev.get_device_properties("cpu").multi_processor_count, 2 if run.smoke else 500
    streams = [aiodev.Stream("cpu") for _ in range(workers)]
    for count in (1, rounds):
        began = time.perf_counter()
        for number, stream in enumerate(streams):
            with stream:
                out, ran = aiodev.zeros(1, dtype="f8"), aiodev.zeros(workers, dtype="i8")
                for _ in range(count):
                    serve[1](STEPS, number, ran, out)
        await aiodev.synchronize("cpu")
    return (time.perf_counter() - began) / rounds


async def overload(run: Run) -> Figure:
    """What the device computes for clients who have gone."""
    answers, wasted = await _measure(run)
    note = "3 s of twice the capacity, deadlines of 100 ms; answers per second: " + ", ".join(
        f"{name} {count:.0f}" for name, count in answers.items()
    )
    bars = [Bar("a stream for each request", at_most=0.1)]
    return Figure("device time for clients who have gone", "s", wasted, bars, note)


FIGURES = {"overload": overload}
