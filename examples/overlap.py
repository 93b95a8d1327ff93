"""
Overlapping copies and computation
==================================

Frames come from host memory, are smoothed on the device, and go back. On one stream each step waits for the one before. With
a stream for copies in, one for kernels and one for copies out, joined by events, frame 2 is copied in while frame 1 is
computed and frame 0 is copied out. An event is a point of a stream; waiting for one costs the host well under a microsecond,
and nothing when the order is there already.

How much that saves depends on the device. A GPU has engines of its own for copies. On a CPU the streams share the cores, and
what is won is the cores that a copy by itself leaves idle.
"""

import asyncio
import time

import matplotlib.pyplot as plt
import numpy as np

import aiodev
from aiodev import profiler

FRAMES, ROWS, COLUMNS = 12, 512, 768
SLOTS = 3  # frames that are under way at once, each with its own memory on the device


@aiodev.kernel(ndim=2)
def smooth(i, j, image, radius, out):
    total, count = 0.0, 0
    for di in range(-radius, radius + 1):
        for dj in range(-radius, radius + 1):
            if 0 <= i + di < image.shape[0] and 0 <= j + dj < image.shape[1]:
                total += image[i + di, j + dj]
                count += 1
    out[i, j] = total / count


async def run(frames, results, copies_in, kernels, copies_out):
    """Send every frame through three streams, which may be one and the same."""
    images = [aiodev.empty((ROWS, COLUMNS), dtype=np.float32) for _ in range(SLOTS)]
    smoothed = [aiodev.empty((ROWS, COLUMNS), dtype=np.float32) for _ in range(SLOTS)]
    read = [aiodev.Event() for _ in range(SLOTS)]  # the slot's image was read, and its result too
    written = [aiodev.Event() for _ in range(SLOTS)]
    for n, frame in enumerate(frames):
        slot = n % SLOTS
        copies_in.wait_event(read[slot])  # an event that was never recorded is done
        copies_in.copy(images[slot], frame)
        kernels.wait_event(copies_in.record_event())
        kernels.wait_event(written[slot])
        smooth[(ROWS, COLUMNS), kernels](images[slot], 2, smoothed[slot])
        kernels.record_event(read[slot])
        copies_out.wait_event(read[slot])
        copies_out.copy(results[n], smoothed[slot])
        copies_out.record_event(written[slot])
    # Everything was submitted within a millisecond or so. Only here does the task wait, and other tasks run.
    await copies_out.synchronize()


async def main():
    async with aiodev.device("cpu"):
        frames = np.random.default_rng(0).random((FRAMES, ROWS, COLUMNS), dtype=np.float32)
        results = {"one stream": np.empty_like(frames), "three streams": np.empty_like(frames)}
        await run(frames[:1], results["one stream"], *[aiodev.Stream()] * 3)  # compiles the kernel

        figure, charts = plt.subplots(2, 1, figsize=(9, 3.6), sharex=True, layout="constrained", height_ratios=[1, 2.2])
        for chart, (name, result) in zip(charts, results.items(), strict=True):
            streams = [aiodev.Stream()] * 3 if name == "one stream" else [aiodev.Stream() for _ in range(3)]
            began = time.perf_counter()
            async with profiler.profile() as profile:
                await run(frames, result, *streams)
            print(f"{name:13}  {(time.perf_counter() - began) * 1e3:6.1f} ms for {FRAMES} frames")
            operations = [operation for operation in profile.operations if operation.runs]
            draw(chart, name, operations, {stream.stream_id: row for row, stream in enumerate(streams)})
        charts[-1].set_xlabel("ms")
        plt.show()
    assert np.array_equal(*results.values())


def draw(chart, name, operations, rows):
    """One bar for each operation, where and when the device ran it."""
    began = min(operation.start_ns for operation in operations)
    for operation in operations:
        span = ((operation.start_ns - began) / 1e6, operation.duration_ns / 1e6)
        colour, edge = ("tab:blue", "tab:blue") if operation.name == "copy" else ("tab:orange", "white")
        chart.broken_barh([span], (rows[operation.stream_id] - 0.4, 0.8), color=colour, edgecolor=edge)
    chart.set(title=name, yticks=range(3), yticklabels=["copies in", "kernels", "copies out"], ylim=(2.6, -0.6))
    if name == "one stream":
        chart.set(yticks=[2], yticklabels=["everything"], ylim=(2.6, 1.4))


asyncio.run(main())
