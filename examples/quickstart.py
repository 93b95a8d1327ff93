"""
Quickstart
==========

A kernel, a stream, three arrays: submitting is a plain call that returns at once, waiting is an ``await``.
"""

import asyncio

import numpy as np

import aiodev


@aiodev.kernel
def saxpy(i, a, x, y, out):
    out[i] = a * x[i] + y[i]


async def main():
    async with aiodev.device("cpu"), aiodev.Stream():
        x = aiodev.asarray(np.arange(8, dtype=np.float32))
        y = aiodev.ones(8, dtype=np.float32)
        out = aiodev.empty_like(x)
        saxpy[8](2.0, x, y, out)  # submitting is a plain call; it returns at once
        error = abs(2.0 * x + y - out).max()  # so are operators and the library's functions
        print(await out.numpy(), await error.item())  # waiting is an await; other tasks run meanwhile


asyncio.run(main())
