"""Crowded: awaits beside processes that keep the cores busy, next to the same machine code in a thread.

Each figure is one shape of work beside so many busy processes. What counts is the mean time of an await, the reciprocal of
the rate, and the 99th percentile. Both ways take turns of a third of a second, so that what else happens on the machine hits
both. A step of the demo, and a network that is computed call by call, are next to NumPy's in a thread, which is what one would
write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numba
import numpy as np
import shading
from core_submit import nothing
from harness import Bar, Figure, Run

import aiodev
from aiodev import kernels
from aiodev._demo.measure import Step, threaded
from aiodev._demo.program import busy_processes
from aiodev._demo.transformer import FIRST, LENGTH, DeviceText, DeviceWeights, NumPyText, make_weights

__all__ = ["FIGURES", "SHAPES", "measure"]

BESIDE = (0, 1, 2, 4, 8)
STREAMS, CHAIN, INDICES, SIDE = 10, 50, 1024, 96
#: Of the small network.
LAYERS = ((64, 64), (64,), (64, 64), (64,), (64, 10), (10,))
PEER, NUMPY = "run_in_executor", "NumPy, to_thread"
#: Seconds of a turn.
TURN = 0.3


@aiodev.kernel
def steps(i, count, out):
    """Takes its time over every index."""
    value = 0.0
    for _ in range(count):
        value = value * 0.5 + 1.0
    out[i] = value


compiled_step = numba.njit(nogil=True)(steps.py_func)
compiled_rows, compiled_columns, compiled_gradient, compiled_shade = (
    numba.njit(each.py_func) for each in (shading.blur_rows, shading.blur_columns, shading.gradient, shading.hillshade)
)


@numba.njit(nogil=True)
def compiled_steps(size: int, count: int, out: np.ndarray) -> None:
    """The kernel ``steps`` over so many indices."""
    for i in range(size):
        compiled_step(i, count, out)


@numba.njit(nogil=True)
def compiled_nothing() -> None:
    """The empty kernel."""


@numba.njit(nogil=True)
def compiled_shading(image, weights, across, height, gx, gy, slope, shade) -> None:
    """The four kernels that shade a picture, one after the other."""
    for i in range(across.shape[0]):
        for j in range(across.shape[1]):
            compiled_rows(i, j, image, weights, across)
    for i in range(height.shape[0]):
        for j in range(height.shape[1]):
            compiled_columns(i, j, across, weights, height)
    for i in range(shade.shape[0]):
        for j in range(shade.shape[1]):
            compiled_gradient(i, j, height, 0.5, 0.5, gx, gy, slope)
    for i in range(shade.shape[0]):
        for j in range(shade.shape[1]):
            compiled_shade(i, j, gx, gy, 0.5, 0.5, 0.7, shade)


def classified(library: Any, x: Any, *layers: Any) -> Any:
    """The likeliest class of each row, by layers of weights and biases."""
    for weights, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = library.maximum(x @ weights + bias, 0)
    return library.argmax(x @ layers[-2] + layers[-1], axis=1)


@dataclass
class Ways:
    """One shape of work, awaited in both ways."""

    ours: Callable[[], Awaitable[object]]
    theirs: Callable[[], Awaitable[object]]
    peer: str = PEER


class Work:
    """The shapes of work, with what they work on."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.stream = aiodev.Stream("cpu")
        self.streams = [aiodev.Stream("cpu") for _ in range(STREAMS)]
        self.outs = [aiodev.zeros(INDICES, dtype="f8", device="cpu") for _ in self.streams]
        self.hosts = [np.zeros(INDICES) for _ in self.streams]
        self._in_thread = partial(asyncio.get_running_loop().run_in_executor, pool)
        compiled_steps(1, 1, self.hosts[0])

    async def empty(self) -> Ways:
        """A kernel that does nothing."""

        async def ours() -> None:
            await nothing[1, self.stream]()

        return Ways(ours, lambda: self._in_thread(compiled_nothing))

    async def chained(self) -> Ways:
        """50 small kernels of some µs, one after the other, of which the last is awaited; in a thread they are one call."""
        count, out, host = self._count(2, 1), self.outs[0], self.hosts[0]

        async def ours() -> None:
            for _ in range(CHAIN):
                done = steps[1, self.stream](count, out)
            await done

        def in_a_row() -> None:
            for _ in range(CHAIN):
                compiled_steps(1, count, host)

        return Ways(ours, lambda: self._in_thread(in_a_row))

    async def stepping(self, duration: int, size: int) -> Ways:
        """A kernel of so many µs, over so many indices."""
        count, out, host = self._count(duration, size), self.outs[0], self.hosts[0]

        async def ours() -> None:
            await steps[size, self.stream](count, out)

        return Ways(ours, lambda: self._in_thread(compiled_steps, size, count, host))

    async def streaming(self) -> Ways:
        """A kernel of 60 µs on each of ten streams, all of which are awaited together."""
        count = self._count(60, 1)

        async def ours() -> None:
            await asyncio.gather(
                *[steps[1, stream](count, out) for stream, out in zip(self.streams, self.outs, strict=True)]
            )

        async def theirs() -> None:
            await asyncio.gather(*[self._in_thread(compiled_steps, 1, count, host) for host in self.hosts])

        return Ways(ours, theirs)

    async def shading(self) -> Ways:
        """A small picture is shaded: four kernels, of which the last is awaited."""
        radius = 4
        weights = np.full(2 * radius + 1, 1 / (2 * radius + 1), np.float32)
        inner, outer = SIDE - 2, SIDE + 2 * radius
        shapes = [(outer, outer), (outer, SIDE), (SIDE, SIDE), *[(inner, inner)] * 4]
        hosts = [np.ones(shape, np.float32) for shape in shapes]
        arrays = [aiodev.asarray(host, device="cpu") for host in hosts]
        image, across, height, gx, gy, slope, shade = arrays
        given = aiodev.asarray(weights, device="cpu")

        async def ours() -> None:
            shading.blur_rows[(outer, SIDE), self.stream](image, given, across)
            shading.blur_columns[(SIDE, SIDE), self.stream](across, given, height)
            shading.gradient[(inner, inner), self.stream](height, 0.5, 0.5, gx, gy, slope)
            await shading.hillshade[(inner, inner), self.stream](gx, gy, 0.5, 0.5, 0.7, shade)

        return Ways(ours, lambda: self._in_thread(compiled_shading, hosts[0], weights, *hosts[1:]))

    async def calling(self) -> Ways:
        """A network of three layers on 16 rows, in nine calls of the library, the last of which is awaited."""
        random = np.random.default_rng(0)
        hosts = [random.random(shape, np.float32) - 0.5 for shape in ((16, 64), *LAYERS)]
        arrays = [aiodev.asarray(host, device="cpu") for host in hosts]

        async def ours() -> np.ndarray:
            with self.stream:
                return await classified(kernels, *arrays).numpy()

        async def theirs() -> np.ndarray:
            return await self._in_thread(classified, np, *hosts)

        assert (await ours() == await theirs()).all()
        return Ways(ours, theirs, NUMPY)

    async def writing(self) -> Ways:
        """A step of the demo's transformer, captured: the next token of a text, which is begun anew when it is full."""
        weights = make_weights()
        text = await DeviceText(DeviceWeights(weights, self.stream.device)).capture()
        assert [await text.step(FIRST, 0)] == [await threaded(NumPyText(weights))(FIRST, 0)]

        def written(step: Step) -> Callable[[], Awaitable[object]]:
            token, place = FIRST, 0

            async def one() -> None:
                nonlocal token, place
                token, place = await step(token, place), place + 1
                if place == LENGTH:
                    token, place = FIRST, 0

            return one

        return Ways(written(text.step), written(threaded(NumPyText(weights))), NUMPY)

    def _count(self, duration: int, size: int) -> int:
        """How many steps each of so many indices takes, that all of them take so many µs."""
        tried, times = max(1, 200_000 // size), []
        for _ in range(5):
            began = time.perf_counter()
            compiled_steps(size, tried, self.hosts[0])
            times.append((time.perf_counter() - began) * 1e6)
        return max(1, round(duration * tried / min(times)))


SHAPES: dict[str, tuple[str, Callable[[Work], Awaitable[Ways]]]] = {
    "empty": ("an empty kernel", Work.empty),
    "index": ("60 µs of one index", lambda work: work.stepping(60, 1)),
    "shared": ("60 µs shared", lambda work: work.stepping(60, INDICES)),
    "long": ("1 ms shared", lambda work: work.stepping(1000, INDICES)),
    "chain": ("a chain of 50 kernels of 2 µs", Work.chained),
    "streams": ("60 µs on each of ten streams at once", Work.streaming),
    "shading": ("shading a small picture", Work.shading),
    "calls": ("a small network, call by call", Work.calling),
    "token": ("a step of the demo", Work.writing),
}


@dataclass
class Turn:
    """What a way's turn gave: the µs of each await."""

    seconds: float
    times: list[float] = field(default_factory=list)

    async def mean(self, way: Callable[[], Awaitable[object]]) -> float:
        """Await for so many seconds; the mean time."""
        self.times = []
        ended = began = time.perf_counter()
        while ended < began + self.seconds:
            before = time.perf_counter()
            await way()
            ended = time.perf_counter()
            self.times.append((ended - before) * 1e6)
        return (ended - began) * 1e6 / len(self.times)

    def p99(self) -> float:
        """Of the last turn."""
        return float(np.percentile(self.times, 99))


async def measure(shape: str, run: Run, where: str, beside: int = 0, seconds: float = TURN) -> Figure:
    """Awaits of one shape of work, in turns of so many seconds, beside so many busy processes."""
    what, make = SHAPES[shape]
    await aiodev.init("cpu")
    ours, theirs = (Turn(0.01 if run.smoke else seconds) for _ in range(2))
    with ThreadPoolExecutor(None if shape == "streams" else 1) as pool:
        ways = await make(Work(pool))
        for turn, way in ((ours, ways.ours), (theirs, ways.theirs)):  # all code is loaded
            await turn.mean(way)
        with busy_processes(beside):
            values = await run.medians(
                {
                    "aiodev": lambda: ours.mean(ways.ours),
                    ways.peer: lambda: theirs.mean(ways.theirs),
                    "aiodev, p99": ours.p99,
                    f"{ways.peer}, p99": theirs.p99,
                }
            )
    bars = [Bar(ways.peer, at_most=1), Bar(f"{ways.peer}, p99", at_most=1, case="aiodev, p99")]
    return Figure(f"{what}, {where}", "µs", values, bars)


def _figure(shape: str, beside: int) -> Callable[[Run], Any]:
    return lambda run: measure(shape, run, f"beside {beside} busy processes", beside)


FIGURES = {f"{shape}-beside-{beside}": _figure(shape, beside) for shape in SHAPES for beside in BESIDE}
