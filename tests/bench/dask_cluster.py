"""Figures of a Dask cluster on this machine: arrays there and back, the memory that takes, a task, a message, a byte."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Bar, Figure, Run

import aiodev
from aiodev.testing import SimulatedBackend

__all__ = ["FIGURES"]

#: Of what goes there and back.
TOTAL, BLOCK = 1 << 30, 64 << 20


@contextlib.asynccontextmanager
async def _cluster(workers: int, threads: int = 4, simulated: bool = False) -> AsyncIterator[Any]:
    """A client of so many workers, each a process with so many threads, and a device."""
    from distributed import Client, LocalCluster

    import aiodev.dask

    options = {"dashboard_address": ":0", "silence_logs": 50, "memory_limit": 0, "processes": True}
    async with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, asynchronous=True, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        if simulated:
            await client.run(_simulate, threads)
        await aiodev.dask.install(client, "sim" if simulated else None)
        yield client


def _simulate(devices: int) -> None:
    """Give a worker as many simulated GPUs as it runs tasks at once: each operation takes its latency, and no core."""
    aiodev.register_backend("sim", lambda: SimulatedBackend(1, threads=devices))


def _set_latency(seconds: float) -> None:
    simulated = aiodev.get_backend("sim")
    assert isinstance(simulated, SimulatedBackend)
    simulated.latency = seconds


async def one_operation(number: int) -> None:
    """A task whose work is one operation of a simulated GPU."""
    aiodev.zeros(8)


def scaled(x: Any) -> Any:
    """Two passes over a block; of NumPy's in a thread, of aiodev's submitted there."""
    return x * 2.0 + 1.0


def nothing(x: Any) -> Any:
    """The least that a task can do."""
    return x


def touch(x: Any) -> None:
    """A task that needs a block."""


def _blocks(make: Callable[[np.ndarray], Any], total: int, block: int) -> list[Any]:
    return [make(np.full(block // 8, float(number))) for number in range(total // block)]


def _on_device(values: np.ndarray) -> aiodev.Array:
    return aiodev.asarray(values, device="cpu")


async def _there_and_back(client: Any, blocks: list[Any]) -> list[Any]:
    """Scatter, compute, gather."""
    scattered = await client.scatter(blocks, hash=False)
    found: list[Any] = await client.gather(client.map(scaled, scattered, pure=False))
    return found


def _lower_peak() -> None:
    """Have the system forget what this process's memory once was."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """The most memory (MiB) that this process has had since."""
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def _resident() -> float:
    match = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


KINDS: dict[str, Callable[[np.ndarray], Any]] = {"aiodev": _on_device, "NumPy": np.asarray}


async def _measured_round_trip(client: Any, blocks: list[Any]) -> float:
    began = time.perf_counter()
    found = await _there_and_back(client, blocks)
    for block in found:
        if isinstance(block, aiodev.Array):
            await block.numpy() if block.nbytes < 100 else None
    await aiodev.synchronize("cpu")
    return time.perf_counter() - began


async def round_trip(run: Run) -> Figure:
    """1 GiB in blocks of 64 MiB to two workers, computed with, and back; the same of NumPy's blocks on the same cluster."""
    total, block = (TOTAL // 64, BLOCK // 16) if run.smoke else (TOTAL, BLOCK)
    async with _cluster(2) as client:
        blocks = {name: _blocks(make, total, block) for name, make in KINDS.items()}
        values = await run.medians({name: _case(client, own) for name, own in blocks.items()})
    name = f"scatter, compute, gather of {total >> 20:,} MiB"
    return Figure(name, "s", values, [Bar("NumPy", at_most=1.0)], "blocks of 64 MiB, two workers")


def _case(client: Any, blocks: list[Any]) -> Callable[[], Any]:
    return lambda: _measured_round_trip(client, blocks)


async def round_trip_memory(run: Run) -> Figure:
    """How far the workers' and the client's memory rises meanwhile; a copy more of the data would show as so much more."""
    total, block = (TOTAL // 64, BLOCK // 16) if run.smoke else (TOTAL, BLOCK)
    async with _cluster(2) as client:
        blocks = {name: _blocks(make, total, block) for name, make in KINDS.items()}

        async def rise(own: list[Any]) -> float:
            await client.run(_lower_peak)
            _lower_peak()
            before = _resident() + sum((await client.run(_resident)).values())
            await _there_and_back(client, own)
            return _peak() + sum((await client.run(_peak)).values()) - before

        values = await run.medians({name: (lambda own=own: rise(own)) for name, own in blocks.items()}, min(run.repeats, 3))
    note = f"peaks of client and workers together, above what they had; {total >> 20:,} MiB there, as much back"
    return Figure("memory of scatter, compute, gather", "MiB", values, [Bar("NumPy", at_most=1.05)], note)


async def task_overhead(run: Run) -> Figure:
    """A task of 8 elements among 500 that are submitted at once, on one worker."""
    count = run.scale(500)
    async with _cluster(1) as client:
        given = {name: (await client.scatter([make(np.ones(8))], hash=False))[0] for name, make in KINDS.items()}

        async def each(function: Callable[..., Any], x: Any) -> float:
            began = time.perf_counter()
            await client.gather([client.submit(function, x, pure=False) for _ in range(count)])
            return (time.perf_counter() - began) / count * 1e6

        async def awaited(x: Any) -> Any:
            return x * 2.0 + 1.0

        values = await run.medians(
            {
                "aiodev": lambda: each(awaited, given["aiodev"]),
                "aiodev, in a thread": lambda: each(scaled, given["aiodev"]),
                "NumPy": lambda: each(scaled, given["NumPy"]),
            },
            3 * run.repeats,  # a round of the scheduler's differs from the next by a tenth and more
        )
    bars = [Bar("NumPy", at_most=1.2), Bar("NumPy", at_most=1.2, case="aiodev, in a thread")]
    return Figure("a task, x * 2 + 1 of 8 elements", "µs", values, bars, "result gathered")


async def message(run: Run) -> Figure:
    """A result of 8 elements that another worker's task needs: two tasks in turns, on two workers."""
    count = run.scale(100)
    async with _cluster(2) as client:
        here, there = sorted(await client.run(int))
        given = {name: (await client.scatter([make(np.ones(8))], hash=False))[0] for name, make in KINDS.items()}

        async def each(x: Any) -> float:
            began = time.perf_counter()
            for turn in range(count):
                x = client.submit(scaled, x, workers=[(here, there)[turn % 2]], pure=False)
            await x
            return (time.perf_counter() - began) / count * 1e6

        values = await run.medians({name: (lambda x=x: each(x)) for name, x in given.items()})
    return Figure("a task, and its result to another worker", "µs", values, [Bar("NumPy", at_most=1.2)], "one after the other")


async def byte(run: Run) -> Figure:
    """A block of 64 MiB from one worker to another."""
    block = BLOCK // 16 if run.smoke else BLOCK
    async with _cluster(2) as client:
        here, there = sorted(await client.run(int))

        async def each(make: Callable[[np.ndarray], Any]) -> float:
            (x,) = await client.scatter([make(np.ones(block // 8))], workers=[here], hash=False)
            began = time.perf_counter()
            await client.submit(touch, x, workers=[there], pure=False)
            return block / (time.perf_counter() - began) / 1e9

        values = await run.medians({name: (lambda make=make: each(make)) for name, make in KINDS.items()})
    return Figure("64 MiB to another worker", "GB/s", values, [Bar("NumPy", at_least=1.0)])


async def default_scatter(run: Run) -> Figure:
    """A block of 64 MiB to the cluster, by Dask's defaults: the key is made of the array."""
    block = BLOCK // 16 if run.smoke else BLOCK
    async with _cluster(1) as client:
        blocks = {name: make(np.ones(block // 8)) for name, make in KINDS.items()}

        async def each(x: Any, **options: Any) -> float:
            began = time.perf_counter()
            await client.scatter(x, **options)
            return time.perf_counter() - began

        cases = {name: (lambda x=x: each(x)) for name, x in blocks.items()}
        values = await run.medians(cases | {"a random key": lambda: each(blocks["aiodev"], hash=False)})
    return Figure("scatter of 64 MiB, by default", "s", values, [Bar("NumPy", at_most=1.0)], "NumPy's key: of the contents")


@aiodev.kernel
def smooth(i, steps, x, out):
    """Much arithmetic for each element."""
    value = x[i]
    for _ in range(steps):
        value = value * 0.999 + 0.001
    out[i] = value


def smoothed(x: aiodev.Array, steps: int) -> aiodev.Array:
    """A block's worth of it."""
    out = aiodev.empty_like(x)
    smooth[x.size](steps, x, out)
    return out


async def several_workers(run: Run) -> Figure:
    """16 tasks that compute, on 1, 2 and 4 workers, which share the cores; and the same without a cluster."""
    steps, size = (10, 1 << 12) if run.smoke else (200, 1 << 20)
    values: dict[str, float] = {}
    for workers in (1, 2, 4):
        async with _cluster(workers) as client:
            scattered = await client.scatter(_blocks(_on_device, 16 * size * 8, size * 8), hash=False)

            async def once(client: Any = client, scattered: Any = scattered) -> float:
                began = time.perf_counter()
                futures = client.map(smoothed, scattered, steps=steps, pure=False)
                await client.gather(client.map(touch, futures, pure=False))
                return time.perf_counter() - began

            values["aiodev" if workers == 1 else f"{workers} workers"] = (await run.medians({"": once}))[""]
    blocks = _blocks(_on_device, 16 * size * 8, size * 8)

    async def alone() -> float:
        began = time.perf_counter()
        with aiodev.device("cpu"):
            results = [smoothed(block, steps) for block in blocks]
            await aiodev.synchronize()
            del results
        return time.perf_counter() - began

    values["no cluster"] = (await run.medians({"": alone}))[""]
    return Figure("16 tasks of 1 Mi elements, 200 steps each", "s", values, [], "aiodev: one worker; all share the same cores")


async def simulated_devices(run: Run) -> Figure:
    """How busy one scheduler keeps 64 simulated GPUs with tasks of this many seconds each, while there are enough of them.

    From the end of the first round to that of the last but one: before, the workers have no tasks yet, and afterwards those
    that got two more than others have a round to themselves. The devices cost no core; but the workers' part of a task does,
    and two cores bear no more than four workers beside the scheduler.
    """
    rounds, lengths = (3, (0.1,)) if run.smoke else (8, (0.05, 0.2, 1.0, 4.0))
    values: dict[str, float] = {}
    async with _cluster(4, 16, simulated=True) as client:
        for seconds in lengths:
            await client.run(_set_latency, seconds)

            async def busy(seconds: float = seconds) -> float:
                ends = await _ends(client, 64 * rounds)
                return 100 * (rounds - 2) * seconds / (ends[64 * (rounds - 1) - 1] - ends[63])

            values["aiodev" if seconds == 1.0 or run.smoke else f"{seconds} s"] = (await run.medians({"": busy}, 3))[""]
    note = "by tasks of 1 s, and of others; four workers of 16, on these cores; without the first and the last round"
    return Figure("64 simulated GPUs, busy", "%", values, [], note)


async def _ends(client: Any, count: int) -> list[float]:
    """When each of so many tasks was known to be done, in this order."""
    from distributed import as_completed

    found = []
    async for _ in as_completed(client.map(one_operation, range(count), pure=False)):
        found.append(time.perf_counter())
    return found


FIGURES = {
    "dask-devices": simulated_devices,
    "dask-round-trip": round_trip,
    "dask-memory": round_trip_memory,
    "dask-task": task_overhead,
    "dask-message": message,
    "dask-byte": byte,
    "dask-scatter": default_scatter,
    "dask-workers": several_workers,
}
