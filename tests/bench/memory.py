"""Memory: what an allocation costs, what reuse saves, and how much more than is asked for is held."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from harness import Bar, Case, Figure, Run
from peers import timed

import aiodev
from aiodev._core.backend.registry import registry
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.allocators import BackendMemory

sys.path.append(str(Path(__file__).parents[1] / "support"))
from memory_traces import TRACES, Outcome, replay

__all__ = ["FIGURES"]

MIB = 1 << 20
_TORCH = importlib.util.find_spec("torch") is not None


async def hit(run: Run) -> Figure:
    """Make an array of memory that is cached, and drop it; three sizes."""
    count = run.scale(20_000)

    def ours(nbytes: int) -> Case:
        def case() -> float:
            with stream:
                return timed(lambda: aiodev.empty(nbytes, "u1"), count)

        return case

    stream = aiodev.Stream("cpu")
    cases: dict[str, Case] = {"aiodev": ours(4096), "aiodev, 1 MiB": ours(MIB), "aiodev, 64 MiB": ours(64 * MIB)}
    cases["np.empty(1024)"] = lambda: timed(lambda: np.empty(1024), count)
    cases["np.empty, 1 MiB"] = lambda: timed(lambda: np.empty(MIB, "u1"), count)
    if _TORCH:
        import torch

        cases["torch.empty"] = lambda: timed(lambda: torch.empty(1024), count)
    bars = [Bar("np.empty(1024)", at_most=8, case=case) for case in ("aiodev", "aiodev, 1 MiB", "aiodev, 64 MiB")]
    return Figure("an array of cached memory, made and dropped", "µs", await run.medians(cases), bars)


async def first_touch(run: Run) -> Figure:
    """64 MiB that can be written to: from the cache, or from the system, page by page."""
    stream = aiodev.Stream("cpu")
    with stream:
        aiodev.full(64 * MIB, 1, "u1")
    await stream.synchronize()

    def ours() -> float:
        with stream:
            return timed(lambda: aiodev.empty(64 * MIB, "u1"), run.scale(5000)) / 1e3

    def fresh() -> float:
        began = time.perf_counter()
        np.empty(64 * MIB, "u1")[::4096] = 1
        return (time.perf_counter() - began) * 1e3

    cases: dict[str, Case] = {"aiodev": ours, "np.empty and first touch": fresh}
    if _TORCH:
        import torch

        def tensor() -> float:
            began = time.perf_counter()
            torch.empty(64 * MIB, dtype=torch.uint8)[::4096] = 1
            return (time.perf_counter() - began) * 1e3

        cases["torch.empty and first touch"] = tensor
    return Figure("64 MiB to write to", "ms", await run.medians(cases), [Bar("np.empty and first touch", at_most=1 / 100)])


class Segmented(BackendMemory):
    """The CPU's memory as that of a backend that cannot map memory into ranges."""

    def granularity(self) -> int:
        """None."""
        return 0


def _replay(name: str, memory: type[BackendMemory]) -> Outcome:
    device = aiodev.Device("cpu")
    pool = CachingAllocator(device, memory(registry.handle("cpu"), 0), True)
    outcome = replay(TRACES[name](), pool, aiodev.default_stream("cpu").timeline)
    pool.empty_cache()
    return outcome


def fragmentation(name: str) -> Callable[[Run], Awaitable[Figure]]:
    """Replay a trace: bytes reserved, at their peak, for each that was asked for, at its peak."""

    async def figure(run: Run) -> Figure:
        ranges = _replay(name, BackendMemory)
        values = {
            "aiodev": ranges.fragmentation,
            "aiodev, segments of 2 and 20 MiB": _replay(name, Segmented).fragmentation,
            "what is asked for": 1.0,
        }
        note = f"{ranges.hit_rate:.1%} of {ranges.allocations:,} allocations took nothing from the backend"
        return Figure(f"memory reserved, {name}", "×", values, [Bar("what is asked for", at_most=1.15)], note)

    return figure


@aiodev.kernel
def scale(i, x, out):
    """Twice."""
    out[i] = 2 * x[i]


async def ordered_reuse(run: Run) -> Figure:
    """Batches through two streams that are joined by events: whose memory serves whom."""
    count, size = run.scale(2000), 1 << 16
    copies, compute = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    host = np.ones(size, np.float32)
    await scale.compile(aiodev.empty(1, "f4", "cpu"), aiodev.empty(1, "f4", "cpu"))
    before = aiodev.memory.memory_stats("cpu")
    for number in range(count):
        with copies:
            x = aiodev.empty(size, "f4")
            copies.copy(x, host)
        compute.wait_stream(copies)
        with compute:
            y = aiodev.empty(size, "f4")
            scale[size](x, y)
        copies.wait_stream(compute)
        with copies:
            z = aiodev.empty(size, "f4")
            done = copies.copy(z, y)
        if number % 8 == 7:
            await done
    await compute.synchronize()
    after = aiodev.memory.memory_stats("cpu")
    counts = {name: after[name] - before[name] for name in before}
    values = {
        "allocations": float(counts["allocation.all.allocated"]),
        "aiodev": float(counts["num_ordered_reuses"]),
        "cached, but used by work that is not ordered before": float(counts["num_passed_over"]),
        "taken from the backend": float(counts["num_device_alloc"]),
    }
    name = "memory that another stream's work still used, and that served a stream ordered after it"
    return Figure(name, "times", values)


FIGURES = {
    "allocation-hit": hit,
    "first-touch": first_touch,
    **{f"fragmentation-{name.split()[0]}": fragmentation(name) for name in TRACES},
    "ordered-reuse": ordered_reuse,
}
