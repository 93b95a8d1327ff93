"""
Three ways to wait
==================

A task launches short kernels one after another and needs each before it launches the next, as a handler does that looks at a
result to decide what comes next. Another task wants a turn every 0.2 ms: it stands for every other connection of the program.

- *Blocking* keeps the device busy, and nobody else has a turn meanwhile.
- *A thread for each wait* lets the others run, and leaves the device idle between two kernels, while a thread takes over and
  hands back to the loop.
- *Awaiting* keeps the device busy, and the others run. Its bars are longer by the waking of the loop, which the device's worker
  does before it goes on.
"""

import asyncio
import time

import matplotlib.pyplot as plt
import numpy as np

import aiodev
from aiodev import profiler

KERNELS, STEPS = 40, 35_000


@aiodev.kernel
def iterate(i, steps, x):
    value = x[i]
    for _ in range(steps):
        value = value * 0.5 + 1.0
    x[i] = value


async def block(done):
    done.synchronize_blocking()  # what not to do: the loop stands still


async def thread(done):
    await asyncio.to_thread(done.synchronize_blocking)


async def awaiting(done):
    await done


async def other_task(turns):
    """Note when it had a turn; it asks for one every 0.2 ms."""
    while True:
        turns.append(time.perf_counter_ns())
        await asyncio.sleep(0.0002)


async def run(wait, x):
    """Launch and wait, KERNELS times; what the device did, and when the other task ran."""
    turns = []
    other = asyncio.create_task(other_task(turns))
    await asyncio.sleep(0.005)
    async with profiler.profile() as profile:
        for _ in range(KERNELS):
            await wait(iterate[1](STEPS, x))
    other.cancel()
    return [operation for operation in profile.operations if operation.runs], turns


def duration(outcome):
    kernels, _ = outcome
    return kernels[-1].end_ns - kernels[0].start_ns


def draw(chart, name, kernels, turns):
    """The device's kernels above, the other task's turns below."""
    began, ended = kernels[0].start_ns, kernels[-1].end_ns
    spans = [((kernel.start_ns - began) / 1e6, kernel.duration_ns / 1e6) for kernel in kernels]
    chart.broken_barh(spans, (0.55, 0.8), color="tab:blue", edgecolor="white", linewidth=0.5)
    inside = [(turn - began) / 1e6 for turn in turns if began <= turn <= ended]
    chart.vlines(inside, -0.4, 0.4, color="tab:orange")
    chart.set(yticks=[0.95, 0], yticklabels=["device", "other task"], ylim=(-0.6, 1.6))
    chart.set_title(name, loc="left", fontsize="medium")
    chart.spines[["top", "right"]].set_visible(False)
    chart.tick_params(axis="y", left=False)
    print(f"{name:24} {(ended - began) / 1e6:5.1f} ms for {KERNELS} kernels; the other task had {len(inside)} turns")


async def main():
    ways = {"blocking": block, "a thread for each wait": thread, "await": awaiting}
    figure, charts = plt.subplots(len(ways), 1, figsize=(9, 4), sharex=True, layout="constrained")
    async with aiodev.device("cpu"), aiodev.Stream():
        x = aiodev.zeros(1, dtype=np.float64)
        for chart, (name, wait) in zip(charts, ways.items(), strict=True):
            await run(wait, x)  # warm: the kernel is compiled, the thread is there
            runs = [await run(wait, x) for _ in range(7)]
            draw(chart, name, *min(runs, key=duration))  # the one that other programs disturbed least
    charts[-1].set_xlabel("ms")
    plt.show()


asyncio.run(main())
