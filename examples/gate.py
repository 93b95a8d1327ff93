"""
A stream that waits for the network
===================================

Work can be queued before its input exists. ``wait_future`` holds a stream until a future, a task or a coroutine of the host is
done: the device waits, the loop does not, and no code has to run on the host between the arrival of the data and the kernel.
Other streams go on meanwhile. If the coroutine raises, what was queued behind it does not run, and its waiter gets the error.
"""

import asyncio
import time

import numpy as np

import aiodev


@aiodev.kernel
def normalise(i, x, mean, scale, out):
    out[i] = (x[i] - mean) * scale


async def download(room, delay, fails=False):
    """Stand in for a response that is read from the network into ``room``."""
    await asyncio.sleep(delay)
    if fails:
        raise ConnectionError("the peer hung up")
    room[:] = np.arange(room.size)


async def main():
    began = time.perf_counter()

    def log(text):
        print(f"{(time.perf_counter() - began) * 1e3:5.0f} ms  {text}")

    async with aiodev.device("cpu"):
        slow, quick = aiodev.Stream(), aiodev.Stream()
        room = np.empty(4, np.float32)
        with slow:
            x, out = aiodev.empty(4, dtype=np.float32), aiodev.empty(4, dtype=np.float32)
        await normalise.compile(x, 0.0, 1.0, out)
        began = time.perf_counter()

        slow.wait_future(download(room, delay=0.1))
        slow.copy(x, room)
        done = normalise[4, slow](x, 1.5, 2.0, out)
        log("a copy and a kernel are queued behind a download")

        with quick:
            y = aiodev.ones(4, dtype=np.float32)
            await normalise[4](y, 0.0, 3.0, y)
        log(f"another stream was not held up: {await y.numpy()}")

        await done
        log(f"the download has come, and so has the result: {await out.numpy()}")

        slow.wait_future(download(room, delay=0.05, fails=True))
        slow.copy(x, room)
        failed = normalise[4, slow](x, 1.5, 2.0, out)
        try:
            await failed
        except aiodev.DependencyError as error:
            log(f"the kernel did not run: {error.__cause__!r}")

        slow.wait_stream(quick)
        await normalise[4, slow](y, 0.0, 1.0, out)  # the failure was told: the stream works again
        log(f"and the stream goes on: {await out.numpy()}")


asyncio.run(main())
