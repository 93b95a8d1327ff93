"""
Deadlines and cancellation
==========================

Cancelling a task that waits for the device stops the waiting, never the work: ``asyncio.timeout``, task groups and anyio's
cancel scopes do what they do everywhere else, and nothing leaks, however unlucky the moment. What an operation reads and
writes stays alive until it is done, whoever was cancelled.
"""

import asyncio
import time

import numpy as np

import aiodev


@aiodev.kernel
def iterate(i, steps, x):
    value = x[i]
    for _ in range(steps):
        value = value * 0.5 + 1.0
    x[i] = value


@aiodev.kernel
def check(i, x):
    if x[i] > 1.0:
        raise ValueError("not a probability")


async def a_deadline(stream):
    """A wait that gives up; the work goes on, and may be waited for again."""
    with stream:  # what is made here is made in the stream's order
        x = aiodev.zeros(64, dtype=np.float64)
        done = iterate[64](4_000_000, x)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(0.01):
            await done
    except TimeoutError:
        print(f"gave up after {(time.perf_counter() - began) * 1e3:.0f} ms; done: {done.query()}")
    await done
    print(f"waited again: after {(time.perf_counter() - began) * 1e3:.0f} ms the result is {(await x.numpy())[0]:.1f}")


async def the_fastest_of_three(streams):
    """Ask three, take the first answer, cancel the waiting for the others."""

    async def ask(number, stream):
        with stream:
            await iterate[1](2_000_000 * (number + 1), aiodev.zeros(1, dtype=np.float64))
        return number

    tasks = [asyncio.create_task(ask(number, stream)) for number, stream in enumerate(streams)]
    first, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    print(f"the first answer came from stream {first.pop().result()}; {len(others)} waits were cancelled")


async def failures_arrive_together():
    """Leaving a StreamGroup waits for all that was submitted, and raises all that failed."""
    try:
        async with aiodev.StreamGroup() as group:
            for value in (0.5, 2.0, 3.0):
                with group.stream():
                    check[1](aiodev.full(1, value))
    except* aiodev.KernelError as errors:
        print(f"{len(errors.exceptions)} of 3 kernels failed: {errors.exceptions[0].__cause__!r}")


async def main():
    async with aiodev.device("cpu"):
        await iterate.compile(1, aiodev.zeros(1, dtype=np.float64))
        await check.compile(aiodev.full(1, 0.5))
        streams = [aiodev.Stream() for _ in range(3)]
        await a_deadline(streams[0])
        await the_fastest_of_three(streams)
        await aiodev.synchronize()
        await failures_arrive_together()


asyncio.run(main())
