"""
Several devices on one machine
==============================

``AIODEV_CPU_DEVICES`` splits the processor into several devices, each with workers and memory of its own: code for several GPUs
can be written, run and tested on any machine. Here a ring of devices passes blocks of a vector round, and each adds its own:
an all-reduce, with the order between devices kept by events alone.
"""

import asyncio
import os

os.environ.setdefault("AIODEV_CPU_DEVICES", "2")  # is read when aiodev is imported

import numpy as np

import aiodev


@aiodev.kernel
def add(i, x, out):
    out[i] += x[i]


async def all_reduce(vectors, streams):
    """Every device's vector becomes the sum of all; a ring in two rounds of ``len(vectors) - 1`` steps."""
    count = len(vectors)
    length = vectors[0].size // count
    blocks = [[v[n * length : (n + 1) * length] for n in range(count)] for v in vectors]
    rooms = [aiodev.empty(length, dtype=np.float32, device=stream.device) for stream in streams]
    for step in range(2 * (count - 1)):
        ready = [stream.record_event() for stream in streams]
        for rank, stream in enumerate(streams):
            ahead = (rank - 1) % count  # takes a block from its neighbour in the ring …
            which = (ahead - step) % count
            stream.wait_event(ready[ahead])
            if step < count - 1:
                stream.copy(rooms[rank], blocks[ahead][which])
                add[length, stream](rooms[rank], blocks[rank][which])  # … and adds it to its own,
            else:
                stream.copy(blocks[rank][which], blocks[ahead][which])  # or, once it is complete, keeps it
    for stream in streams:
        await stream.synchronize()


async def main():
    await aiodev.init("cpu")
    devices = [aiodev.Device("cpu", index) for index in range(aiodev.device_count("cpu"))]
    streams = [aiodev.Stream(device) for device in devices]
    size = len(devices) << 14
    vectors = []
    for stream in streams:
        with stream:
            vectors.append(aiodev.full(size, stream.device_index + 1.0, dtype=np.float32))
    await all_reduce(vectors, streams)
    expected = sum(range(1, len(devices) + 1))
    for vector in vectors:
        result = await vector.numpy()
        print(
            f"{vector.device}: {result[0]:.0f} … {result[-1]:.0f}, all {expected}: {bool((result == expected).all())}"
        )


asyncio.run(main())
