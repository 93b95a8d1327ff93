"""
A Monte Carlo estimate that can be repeated
===========================================

Eight streams throw points at a square at the same time and count those inside the circle. Each has a generator of its own,
spawned from one seed, so that the streams never share a number, and the result is the same to the last bit however many cores
there are and whichever stream is first.
"""

import asyncio
import math

import matplotlib.pyplot as plt
import numpy as np

import aiodev
from aiodev.kernels import random
from aiodev.lang import atomic_add

STREAMS, ROUNDS, POINTS = 8, 40, 50_000


@aiodev.kernel
def count_inside(i, x, y, hits):
    if x[i] * x[i] + y[i] * y[i] < 1.0:
        atomic_add(hits, 0, 1)


async def throw(generator):
    """The hits of one stream after each round, int64 (ROUNDS,)."""
    async with aiodev.Stream():
        hits = aiodev.zeros((ROUNDS, 1), dtype=np.int64)
        for n in range(ROUNDS):
            x, y = random.random((2, POINTS), dtype=np.float32, generator=generator)
            count_inside[POINTS](x, y, hits[n])
        return (await hits.numpy())[:, 0].cumsum()


async def estimate(seed):
    """π after each round, float64 (ROUNDS,)."""
    generators = aiodev.Generator().manual_seed(seed).spawn(STREAMS)
    hits = await asyncio.gather(*map(throw, generators))
    return 4 * sum(hits) / (STREAMS * POINTS * np.arange(1, ROUNDS + 1))


async def main():
    async with aiodev.device("cpu"):
        first, again, other = await estimate(1), await estimate(1), await estimate(2)
    points = STREAMS * POINTS * np.arange(1, ROUNDS + 1)
    error = math.sqrt(math.pi * (4 - math.pi)) / np.sqrt(points)  # one standard deviation
    print(f"seed 1: {first[-1]:.6f}  again: {again[-1]:.6f}  seed 2: {other[-1]:.6f}  ± {error[-1]:.6f}")
    assert (first == again).all() and not (first == other).all()

    figure, chart = plt.subplots(figsize=(8, 3.5), layout="constrained")
    chart.fill_between(points, math.pi - error, math.pi + error, color="0.9", label="one standard deviation")
    chart.axhline(math.pi, color="0.5", linewidth=1)
    chart.plot(points, first, label="seed 1")
    chart.plot(points, other, label="seed 2")
    chart.set(xscale="log", xlabel="points", ylabel="estimate of π")
    chart.legend()
    plt.show()


asyncio.run(main())
