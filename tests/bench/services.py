"""Services: requests of many clients of one process, beside processes that keep the cores busy.

Each client asks again as soon as it is answered. The peer runs the same machine code without the GIL, by ``asyncio.to_thread``,
for as many requests at a time as there are cores, which is what one would write without a runtime. Small requests are a task
each, as where they come from a web framework, and the peer is NumPy in ``to_thread``. Both take turns of a second; what counts
is the time per answer, the reciprocal of the rate, and the 99th percentile of the latencies.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import shading
from crowded import compiled_shading
from harness import Bar, Figure, Run

import aiodev
from aiodev import kernels
from aiodev._core.usable_cores import core_watch
from aiodev._demo.program import busy_processes

__all__ = ["FIGURES"]

BESIDE = (0, 2)
PEER = "to_thread"
CLIENTS = 16
#: Of an image: pixels of a side, and how far the blur reaches.
SIDE, RADIUS = 192, 4
OUTER, INNER = SIDE + 2 * RADIUS, SIDE - 2
#: Of the network for digits.
FEATURES, HIDDEN, CLASSES, LARGEST_BATCH = 64, 512, 10, 64
#: Numbers of a small request.
NUMBERS = 64

Way = Callable[[], Awaitable[object]]


@dataclass
class Images:
    """Decode a picture, shade it by four kernels, encode it."""

    data: bytes = b""
    weights: np.ndarray = field(default_factory=lambda: np.full(2 * RADIUS + 1, 1 / (2 * RADIUS + 1), np.float32))

    def __post_init__(self) -> None:
        hills = np.random.default_rng(0).normal(size=(OUTER, OUTER)).cumsum(0).cumsum(1)
        pixels = ((hills - hills.min()) / np.ptp(hills) * 255).astype(np.uint8)
        self.data = zlib.compress(pixels.tobytes(), 1)
        self.given = aiodev.asarray(self.weights, device="cpu")

    def decode(self) -> np.ndarray:
        """The picture as numbers; zlib needs no GIL."""
        return np.frombuffer(zlib.decompress(self.data), np.uint8).reshape(OUTER, OUTER).astype(np.float32)

    def encode(self, shade: np.ndarray) -> bytes:
        """The answer."""
        return zlib.compress((shade * 255).astype(np.uint8).tobytes(), 1)

    async def ours(self) -> None:
        """Coding in threads, kernels on a stream of the request's."""
        image = await asyncio.to_thread(self.decode)
        async with aiodev.Stream("cpu"):
            across, height = (aiodev.empty((n, SIDE), np.float32) for n in (OUTER, SIDE))
            gx, gy, slope, shade = (aiodev.empty((INNER, INNER), np.float32) for _ in range(4))
            shading.blur_rows[OUTER, SIDE](aiodev.asarray(image), self.given, across)
            shading.blur_columns[SIDE, SIDE](across, self.given, height)
            shading.gradient[INNER, INNER](height, 0.5, 0.5, gx, gy, slope)
            shading.hillshade[INNER, INNER](gx, gy, 0.5, 0.5, 0.7, shade)
            shaded = await shade.numpy()
        await asyncio.to_thread(self.encode, shaded)

    def theirs(self) -> None:
        """All of a request, in a thread."""
        across, height = (np.empty((n, SIDE), np.float32) for n in (OUTER, SIDE))
        gx, gy, slope, shade = (np.empty((INNER, INNER), np.float32) for _ in range(4))
        compiled_shading(self.decode(), self.weights, across, height, gx, gy, slope, shade)
        self.encode(shade)


@aiodev.kernel(ndim=2, fastmath=True)  # sums in any order: vectorised
def dense(i, j, x, weights, bias, relu, out):
    """One output of a dense layer; ``weights`` is (outputs, inputs), so that its rows lie together."""
    total = bias[j]
    for k in range(weights.shape[1]):
        total += x[i, k] * weights[j, k]
    out[i, j] = max(total, np.float32(0)) if relu else total


compiled_output = numba.njit(nogil=True, fastmath=True)(dense.py_func)


@numba.njit(nogil=True)
def compiled_dense(x, weights, bias, relu, out) -> None:
    """A dense layer, without the GIL."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            compiled_output(i, j, x, weights, bias, relu, out)


class Digits:
    """A network of three dense layers, asked for one digit at a time; what has come meanwhile is one batch."""

    def __init__(self) -> None:
        rng, sizes = np.random.default_rng(0), (FEATURES, HIDDEN, HIDDEN, CLASSES)
        self.image = rng.random(FEATURES, np.float32)
        self.layers = [
            (rng.normal(size=(outputs, inputs)).astype(np.float32) / 8, np.zeros(outputs, np.float32))
            for inputs, outputs in zip(sizes, sizes[1:], strict=False)
        ]
        self.given = [tuple(aiodev.asarray(each, device="cpu") for each in layer) for layer in self.layers]

    async def ours(self, images: np.ndarray) -> np.ndarray:
        """A batch's logits, on a stream of its own."""
        async with aiodev.Stream("cpu"):
            values = aiodev.asarray(images)
            for number, (weights, bias) in enumerate(self.given):
                out = aiodev.empty((len(images), len(bias)), np.float32)
                dense[out.shape](values, weights, bias, number < 2, out)
                values = out
            return await values.numpy()

    def compute(self, images: np.ndarray) -> np.ndarray:
        """A batch's logits, here."""
        for number, (weights, bias) in enumerate(self.layers):
            out = np.empty((len(images), len(bias)), np.float32)
            compiled_dense(images, weights, bias, number < 2, out)
            images = out
        return images

    async def theirs(self, images: np.ndarray) -> np.ndarray:
        """A batch's logits, in a thread."""
        return await asyncio.to_thread(self.compute, images)


class Batcher:
    """Answers what has come by the time that one of so many is free."""

    def __init__(self, image: np.ndarray, answer: Callable[[np.ndarray], Awaitable[np.ndarray]], at_once: int) -> None:
        self._image, self._answer, self._free = image, answer, at_once
        self._waiting: list[asyncio.Future[np.ndarray]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self) -> None:
        """The logits of an image."""
        asked: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append(asked)
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._serve())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asked

    async def _serve(self) -> None:
        while batch := self._waiting[:LARGEST_BATCH]:
            del self._waiting[:LARGEST_BATCH]
            for asked, row in zip(batch, await self._answer(np.stack([self._image] * len(batch))), strict=True):
                asked.set_result(row)
        self._free += 1


class Small:
    """Six operations on a few numbers."""

    def __init__(self) -> None:
        self.scale, self.shift, self.given = np.random.default_rng(0).random((3, NUMBERS), np.float32)
        self.known = aiodev.asarray(self.scale, device="cpu"), aiodev.asarray(self.shift, device="cpu")

    async def ours(self) -> float:
        """On a stream of the request's own, as a web service's handler has it."""
        scale, shift = self.known
        async with aiodev.StreamGroup("cpu", cancel=True) as group:
            with group.stream():
                values = kernels.tanh(aiodev.asarray(self.given) * scale + shift)
                answer: float = await kernels.sum(values - kernels.max(values)).item()
                return answer

    def theirs(self) -> float:
        """The same by NumPy."""
        values = np.tanh(self.given * self.scale + self.shift)
        return float((values - values.max()).sum())


def small() -> tuple[Way, Way]:
    """Both ways to serve small requests, each of which is a task."""
    work = Small()

    async def ours() -> None:
        await asyncio.create_task(work.ours())

    async def theirs() -> None:
        await asyncio.create_task(asyncio.to_thread(work.theirs))

    return ours, theirs


def images() -> tuple[Way, Way]:
    """Both ways to serve images."""
    work, free = Images(), asyncio.Semaphore(core_watch.cores.count)

    async def theirs() -> None:
        async with free:
            await asyncio.to_thread(work.theirs)

    return work.ours, theirs


def digits() -> tuple[Way, Way]:
    """Both ways to serve digits."""
    work = Digits()
    ours, theirs = (Batcher(work.image, answer, 2) for answer in (work.ours, work.theirs))
    return ours.ask, theirs.ask


SERVICES: dict[str, tuple[str, Callable[[], tuple[Way, Way]]]] = {
    "images": (f"{CLIENTS} clients of an image service", images),
    "digits": (f"{CLIENTS} clients of a digits service", digits),
    "small": (f"{CLIENTS} clients with six operations each on {NUMBERS} numbers", small),
}


@dataclass
class Load:
    """Clients who ask again and again, and how long each answer took, in ms."""

    seconds: float
    latencies: list[float] = field(default_factory=list)

    async def mean(self, way: Way) -> float:
        """The time per answer, in ms."""
        self.latencies = []
        began = time.perf_counter()

        async def client() -> None:
            while True:
                asked = time.perf_counter()
                await way()
                answered = time.perf_counter()
                self.latencies.append((answered - asked) * 1e3)
                if answered > began + self.seconds:
                    return

        await asyncio.gather(*[client() for _ in range(CLIENTS)])
        return (time.perf_counter() - began) * 1e3 / len(self.latencies)

    def p99(self) -> float:
        """Of the last turn."""
        return float(np.percentile(self.latencies, 99))


async def measure(service: str, beside: int, run: Run) -> Figure:
    """A service beside so many busy processes."""
    what, make = SERVICES[service]
    await aiodev.init("cpu")
    ours, theirs = (Load(0.01 if run.smoke else 1.0) for _ in range(2))
    way, peer = make()
    for load, each in ((ours, way), (theirs, peer)):  # all code is loaded
        await load.mean(each)
    cases: dict[str, Any] = {
        "aiodev": lambda: ours.mean(way),
        PEER: lambda: theirs.mean(peer),
        "aiodev, p99": ours.p99,
        f"{PEER}, p99": theirs.p99,
    }
    with busy_processes(beside):
        values = await run.medians(cases)
    bars = [Bar(PEER, at_most=1), Bar(f"{PEER}, p99", at_most=1, case="aiodev, p99")]
    return Figure(f"{what}, beside {beside} busy processes", "ms", values, bars)


def _figure(service: str, beside: int) -> Callable[[Run], Any]:
    return lambda run: measure(service, beside, run)


FIGURES = {f"{service}-beside-{beside}": _figure(service, beside) for service in SERVICES for beside in BESIDE}
