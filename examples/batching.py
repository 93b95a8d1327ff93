"""
Many requests, dynamic batching
===============================

Requests arrive one by one and each is small; the device is best at large batches. A batcher takes what has come by the time the
device is free, up to a limit, computes it at once, and gives each request its own answer. While the device works the loop goes
on accepting: batches grow with the load by themselves, and nobody waits for a timer.

Each request asks for the nearest of 4,096 points in 32 dimensions.
"""

import asyncio
import time

import matplotlib.pyplot as plt
import numpy as np

import aiodev

POINTS, DIMENSIONS, LARGEST = 4096, 32, 64
REQUESTS = 1500


@aiodev.kernel
def nearest(i, queries, points, found):
    best, which = np.inf, 0
    for p in range(points.shape[0]):
        distance = 0.0
        for d in range(points.shape[1]):
            difference = queries[i, d] - points[p, d]
            distance += difference * difference
        if distance < best:
            best, which = distance, p
    found[i] = which


class Batcher:
    """Answers requests in batches of at most ``largest``."""

    def __init__(self, points, largest):
        self.stream = aiodev.Stream()
        with self.stream:
            self.points = aiodev.asarray(points)
            self.queries = aiodev.empty((largest, DIMENSIONS), dtype=np.float32)
            self.found = aiodev.empty(largest, dtype=np.int64)
        self.waiting = asyncio.Queue()
        self.largest = largest
        self.sizes = []

    async def ask(self, query):
        """The number of the point that is nearest to ``query``."""
        answer = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((query, answer))
        return await answer

    async def serve(self):
        """Run until cancelled."""
        async with self.stream:
            while True:
                batch = [await self.waiting.get()]
                while len(batch) < self.largest and not self.waiting.empty():
                    batch.append(self.waiting.get_nowait())
                size = len(batch)
                self.sizes.append(size)
                self.queries[:size].copy_from(np.stack([query for query, _ in batch]))
                nearest[size](self.queries, self.points, self.found)
                for (_, answer), number in zip(batch, await self.found[:size].numpy(), strict=True):
                    if not answer.cancelled():  # whoever asked may have gone
                        answer.set_result(int(number))


async def load(batcher, queries, rate):
    """Requests at random times, ``rate`` per second on average; the seconds that each waited for its answer."""
    delays = np.random.default_rng(1).exponential(1 / rate, len(queries)).cumsum()
    began = time.perf_counter()

    async def request(query, at):
        await asyncio.sleep(began + at - time.perf_counter())
        asked = time.perf_counter()
        answer = await batcher.ask(query)
        return answer, time.perf_counter() - asked

    answers, waited = zip(*await asyncio.gather(*map(request, queries, delays)), strict=True)
    return np.array(answers), np.array(waited), len(queries) / (time.perf_counter() - began)


async def main():
    random = np.random.default_rng(0)
    points = random.standard_normal((POINTS, DIMENSIONS), dtype=np.float32)
    queries = random.standard_normal((REQUESTS, DIMENSIONS), dtype=np.float32)
    expected = ((points**2).sum(1) - 2 * queries @ points.T).argmin(1)
    figure, chart = plt.subplots(figsize=(8, 3), layout="constrained")
    async with aiodev.device("cpu"):
        for largest in (1, LARGEST):
            batcher = Batcher(points, largest)
            await nearest.compile(batcher.queries, batcher.points, batcher.found)
            serving = asyncio.create_task(batcher.serve())
            answers, waited, rate = await load(batcher, queries, rate=20_000)
            serving.cancel()
            assert (answers == expected).all()
            print(
                f"batches of up to {largest:2}: {rate:5.0f} answers/s, median wait {np.median(waited) * 1e3:6.2f} ms, "
                f"mean batch {np.mean(batcher.sizes):4.1f}"
            )
            chart.plot(np.sort(waited) * 1e3, np.linspace(0, 100, REQUESTS), label=f"batches of up to {largest}")
    chart.set(xscale="log", xlabel="ms from request to answer", ylabel="% of the requests")
    chart.legend()
    plt.show()


asyncio.run(main())
