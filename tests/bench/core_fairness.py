"""Fairness: many clients that always have one request under way, and a stream for each request; more than the device can do.

The perfectly fair device serves all that is under way at once, each at the same speed (processor sharing). As each client
always has one request under way, a request is answered when the device has done as many times its work as there are clients,
or everything. How much it has done when is what this process has had of the cores by then: other programs may have them, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numba
import numpy as np
from core_device import chain
from harness import Bar, Case, Figure, Run

import aiodev

__all__ = ["FIGURES"]

INDICES, KERNELS = 64, 4
STEPS = 2_500  #: of each index: a request takes about 2 ms of one core


@numba.njit(nogil=True)
def request_in_a_thread(steps: int, out: np.ndarray) -> None:
    """A request's work in one call without the GIL."""
    for _ in range(KERNELS):
        for i in range(INDICES):
            value = out[i]
            for _ in range(steps):
                value = value * 1.0000001 + 1e-9
            out[i] = value


@dataclass(frozen=True)
class Served:
    """What clients were given: for each the size of its requests, in steps, and when its responses came, in ms."""

    sizes: list[int]
    times: list[list[float]]  #: from the beginning, which is 0
    used: list[tuple[float, float]]  #: when, and what the process had had of the cores by then

    def percentile(self, part: float, size: int) -> float:
        """Of the responses to requests of a size, how long they took."""
        return float(np.percentile(np.concatenate([np.diff(each, prepend=0.0) for each in self._of(size)]), part))

    def fair(self, part: float, size: int) -> float:
        """The same of a perfectly fair device."""
        when, used = np.array(self.used).T
        work = sum(own * len(times) for own, times in zip(self.sizes, self.times, strict=True))
        began = np.concatenate([[0.0, *each[:-1]] for each in self._of(size)])
        enough = np.interp(began, when, used) + len(self.sizes) * size / work * (used[-1] - used[0])
        return float(np.percentile(np.interp(enough, used, when) - began, part))

    def counts(self, size: int) -> list[int]:
        """Responses of each client whose requests are of a size."""
        return [len(each) for each in self._of(size)]

    def rate(self) -> float:
        """Responses for each ms."""
        return sum(map(len, self.times)) / max(map(max, self.times))

    def _of(self, size: int) -> list[list[float]]:
        return [each for own, each in zip(self.sizes, self.times, strict=True) if own == size]


async def serve(sizes: list[int], seconds: float, answer: Callable[[int, int], Awaitable[object]]) -> Served:
    """Have each client ask again and again; ``answer(client, steps)`` is a request."""
    times: list[list[float]] = [[] for _ in sizes]
    began, used = time.perf_counter(), [(0.0, time.process_time())]

    async def client(number: int, steps: int) -> None:
        now = began
        while now < began + seconds:
            await answer(number, steps)
            now = time.perf_counter()
            times[number].append((now - began) * 1e3)
            used.append((times[number][-1], time.process_time()))

    await asyncio.gather(*(client(number, steps) for number, steps in enumerate(sizes)))
    return Served(sizes, times, used)


async def measure(run: Run, name: str, sizes: list[int]) -> Figure:
    """Serve clients with requests of such sizes, on streams and in threads."""
    seconds = 0.02 if run.smoke else 1.5
    arrays = [aiodev.ones(INDICES, dtype="f8", device="cpu") for _ in sizes]
    hosts = [np.ones(INDICES) for _ in sizes]
    await aiodev.synchronize("cpu")
    await chain[INDICES](STEPS, arrays[0])
    request_in_a_thread(STEPS, hosts[0])

    async def on_a_stream(client: int, steps: int) -> None:
        async with aiodev.Stream("cpu") as stream:
            for _ in range(KERNELS):
                done = chain[INDICES, stream](steps, arrays[client])
            await done

    async def in_a_thread(client: int, steps: int) -> None:
        await asyncio.to_thread(request_in_a_thread, steps, hosts[client])

    served: dict[str, Served] = {}
    kinds = sorted(set(sizes))

    async def ours() -> float:
        served["aiodev"] = await serve(sizes, seconds, on_a_stream)
        return served["aiodev"].percentile(99, kinds[0])

    async def theirs() -> float:
        served["to_thread"] = await serve(sizes, seconds, in_a_thread)
        return served["to_thread"].percentile(99, kinds[0])

    cases: dict[str, Case] = {"aiodev": ours, "perfectly fair": lambda: served["aiodev"].fair(99, kinds[0])}
    bars = [Bar("perfectly fair", at_most=1.5)]
    if len(kinds) > 1:
        cases["aiodev, long"] = lambda: served["aiodev"].percentile(99, kinds[1])
        cases["perfectly fair, long"] = lambda: served["aiodev"].fair(99, kinds[1])
        bars.append(Bar("perfectly fair, long", at_most=1.5, case="aiodev, long"))
    cases["aiodev, median"] = lambda: served["aiodev"].percentile(50, kinds[0])
    cases["to_thread"] = theirs
    if len(kinds) > 1:
        cases["to_thread, long"] = lambda: served["to_thread"].percentile(99, kinds[1])
    values = await run.medians(cases, repeats=min(3, run.repeats))
    counts, rates = served["aiodev"].counts(kinds[0]), [each.rate() for each in served.values()]
    note = f"responses for each client {min(counts)} to {max(counts)}; {rates[0]:.2f} for each ms, to_thread {rates[1]:.2f}"
    return Figure(name, "ms", values, bars, note)


async def equal(run: Run, clients: int) -> Figure:
    """Clients that all ask for the same."""
    return await measure(run, f"99th percentile of {clients} equal clients", [STEPS] * clients)


async def mixed(run: Run) -> Figure:
    """Half of the clients ask for eight times as much as the other half."""
    name = "99th percentile of 32 clients, beside 32 with requests eight times as long"
    return await measure(run, name, [STEPS, 8 * STEPS] * 32)


FIGURES = {
    "fair-16": lambda run: equal(run, 16),
    "fair-64": lambda run: equal(run, 64),
    "fair-256": lambda run: equal(run, 256),
    "fair-mixed": mixed,
}
