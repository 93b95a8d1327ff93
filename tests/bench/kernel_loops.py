"""Bodies that loop: what one writes for an element of a product, or of a filter, next to numba's parallel loops of it.

The peer compiles the very same body, for as many threads, and runs it for each index, rows in a ``prange``: what one would
write without a runtime. Each call is awaited, the peer's in ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from harness import Bar, Figure, Run

import aiodev
from aiodev._core.usable_cores import core_watch

__all__ = ["FIGURES"]

PEER = "numba's prange"


def product(i, j, x, y, out):
    """An element of a product of matrices."""
    total = np.float32(0)
    for k in range(x.shape[1]):
        total += x[i, k] * y[k, j]
    out[i, j] = total


def dense(i, j, x, weights, out):
    """An element of a dense layer; ``weights`` is (outputs, inputs)."""
    total = np.float32(0)
    for k in range(x.shape[1]):
        total += x[i, k] * weights[j, k]
    out[i, j] = max(total, np.float32(0))


def convolution(i, j, x, weights, out):
    """A pixel of a filtered image."""
    total = np.float32(0)
    for a in range(weights.shape[0]):
        for b in range(weights.shape[1]):
            total += x[i + a, j + b] * weights[a, b]
    out[i, j] = total


def distances(i, j, x, y, out):
    """The square of a distance between points."""
    total = np.float32(0)
    for k in range(x.shape[1]):
        difference = x[i, k] - y[j, k]
        total += difference * difference
    out[i, j] = total


BODIES: dict[str, tuple[Callable[..., None], tuple[tuple[int, int], ...]]] = {
    "product": (product, ((256, 256), (256, 256), (256, 256))),
    "dense": (dense, ((64, 512), (512, 512), (64, 512))),
    "convolution": (convolution, ((262, 262), (7, 7), (256, 256))),
    "distances": (distances, ((256, 32), (256, 32), (256, 256))),
}
WHAT = {
    "product": "a product of matrices, 256 by 256",
    "dense": "a dense layer of 512 outputs, 64 rows",
    "convolution": "a filter of 7 by 7, 256 by 256 pixels",
    "distances": "distances of 256 points to 256, of 32 numbers each",
}


def parallel(body: Callable[..., None], fastmath: bool) -> Callable[..., None]:
    """numba's parallel loop of a body."""
    compiled = numba.njit(nogil=True, fastmath=fastmath)(body)

    @numba.njit(nogil=True, parallel=True, fastmath=fastmath)
    def loop(x: Any, y: Any, out: Any) -> None:
        for i in numba.prange(out.shape[0]):
            for j in range(out.shape[1]):
                compiled(i, j, x, y, out)

    return loop


async def measure(name: str, run: Run) -> Figure:
    """A body, with sums in order and in any order."""
    body, shapes = BODIES[name]
    numba.set_num_threads(min(core_watch.cores.count, numba.config.NUMBA_NUM_THREADS))
    rng = np.random.default_rng(0)
    x, y, out = (rng.random(shape, np.float32) for shape in shapes)
    given = [aiodev.asarray(each, device="cpu") for each in (x, y, out)]
    count = run.scale(20)

    def ours(fastmath: bool) -> Callable[[], Any]:
        kernel = aiodev.kernel(ndim=2, fastmath=fastmath)(body)

        async def case() -> float:
            await kernel[out.shape](*given)
            began = time.perf_counter()
            for _ in range(count):
                await kernel[out.shape](*given)
            return (time.perf_counter() - began) / count * 1e6

        return case

    def theirs(fastmath: bool) -> Callable[[], Any]:
        loop = parallel(body, fastmath)
        loop(x, y, out)

        async def case() -> float:
            await asyncio.to_thread(loop, x, y, out)
            began = time.perf_counter()
            for _ in range(count):
                await asyncio.to_thread(loop, x, y, out)
            return (time.perf_counter() - began) / count * 1e6

        return case

    cases = {"aiodev": ours(False), PEER: theirs(False), "aiodev, fastmath": ours(True), f"{PEER}, fastmath": theirs(True)}
    values = await run.medians(cases)
    bars = [Bar(PEER, at_most=0.8), Bar(f"{PEER}, fastmath", at_most=0.8, case="aiodev, fastmath")]
    return Figure(f"{WHAT[name]}, as a loop for each element", "µs", values, bars)


def _figure(name: str) -> Callable[[Run], Any]:
    return lambda run: measure(name, run)


FIGURES = {f"loops-{name}": _figure(name) for name in BODIES}
