"""
A pipeline with backpressure
============================

A producer that is faster than the device fills memory with work that waits. A stream with ``maxsize`` refuses more than that
many pending operations, and ``await stream.drain()`` waits for room, as with asyncio's stream writers. Memory has the same:
``async with memory.lease(nbytes)`` admits tasks first come, first served, so that what they need together always fits.
"""

import asyncio

import matplotlib.pyplot as plt
import numpy as np

import aiodev
from aiodev import memory

OPERATIONS = 400


@aiodev.kernel
def work(i, steps, x):
    value = x[i]
    for _ in range(steps):
        value = value * 0.5 + 1.0
    x[i] = value


async def produce(stream, depths):
    """Submit as fast as the stream takes it; note how much is pending."""
    with stream:
        x = aiodev.zeros(8, dtype=np.float64)
    for _ in range(OPERATIONS):
        if stream.full():
            await stream.drain()
        work[8, stream](5_000, x)
        depths.append(stream.qsize())
    await stream.synchronize()


async def queues():
    """The depth of the queue with and without a bound."""
    figure, chart = plt.subplots(figsize=(8, 3), layout="constrained")
    for maxsize in (0, 16):
        depths = []
        await produce(aiodev.Stream(maxsize=maxsize), depths)
        print(f"maxsize={maxsize:2}: at most {max(depths)} operations were pending")
        chart.plot(depths, label=f"maxsize={maxsize}" if maxsize else "unbounded")
    chart.set(xlabel="operations submitted", ylabel="pending")
    chart.legend()
    plt.show()


async def leases():
    """Ten tasks that need 30 % of the device's memory each: three at a time, and all of them finish."""
    capacity = memory.mem_get_info()[0]
    inside, most = 0, 0

    async def task(number):
        nonlocal inside, most
        async with memory.lease(int(capacity * 0.3)):
            inside += 1
            most = max(most, inside)
            async with aiodev.Stream():
                await work[8](50_000, aiodev.zeros(8, dtype=np.float64))
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(task(number))
    print(f"all ten finished, {most} at a time")


async def main():
    async with aiodev.device("cpu"):
        await work.compile(1, aiodev.zeros(8, dtype=np.float64))
        await queues()
        await leases()


asyncio.run(main())
