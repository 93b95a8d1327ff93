"""Device memory: how much is in use, what the allocator keeps, and admission to it.

Freed memory is kept for the next array of its size. Bytes are *allocated* while arrays use them, and *reserved* while the
allocator holds them, in use or not.
"""

from __future__ import annotations

from typing import Any

from aiodev._core.registry import DeviceLike, registry
from aiodev._memory.block import HOLE, LIVE, Block, Segment
from aiodev._memory.lease import Lease
from aiodev._memory.pools import known_pool, pool_for
from aiodev._memory.stats import Totals, summarise

__all__ = [
    "empty_cache",
    "lease",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def _totals(device: DeviceLike | None) -> Totals:
    pool = known_pool(device)
    return Totals() if pool is None else pool.totals


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use by arrays, as rounded by the allocator."""
    return _totals(device).allocated


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes that were in use at once."""
    return _totals(device).peak_allocated


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds."""
    return _totals(device).reserved


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator held."""
    return _totals(device).peak_reserved


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """All counts, by torch's names, and ``num_passed_over``: requests that found only blocks still in use elsewhere.

    Example:
        >>> import aiodev
        >>> sorted(aiodev.memory.memory_stats("cpu"))[:2]
        ['allocated_bytes.all.allocated', 'allocated_bytes.all.current']
    """
    return _totals(device).as_dict()


def memory_summary(device: DeviceLike | None = None) -> str:
    """The counts as a table."""
    return summarise(registry.resolve(device)[1], _totals(device))


def memory_snapshot(device: DeviceLike | None = None) -> list[dict[str, Any]]:
    """The allocator's segments in order of address, each with its blocks.

    A segment has ``address``, ``total_size``, ``allocated_size`` and ``blocks``; a block ``address``, ``size`` and ``state``:
    ``active_allocated``, ``active_pending_free`` (freed, with work that uses it not done) or ``inactive``.
    """
    found: list[dict[str, Any]] = []
    pool = known_pool(device)

    def add(segment: Segment, blocks: list[Block]) -> None:
        found.append({
            "device": str(pool.device if pool else ""),
            "address": segment.address,
            "total_size": segment.mapped(),
            "segment_type": segment.kind.name,
            "is_expandable": segment.growable,
            "allocated_size": sum(block.size for block in blocks if block.state == LIVE),
            "blocks": [
                {"address": block.address, "size": block.size, "state": _state(block)}
                for block in blocks if block.state != HOLE
            ],
        })  # fmt: skip

    if pool is not None:
        pool.settle()
        pool.each_segment(add)
    return found


def _state(block: Block) -> str:
    if block.state == LIVE:
        return "active_allocated"
    return "inactive" if block.timeline is None else "active_pending_free"


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Let the peaks start from what is now."""
    _totals(device).reset_peaks()


def empty_cache(device: DeviceLike | None = None) -> None:
    """Give what is cached, and no longer in use by queued work, back to the backend. Waits for nothing."""
    pool = known_pool(device)
    if pool is not None:
        pool.empty_cache()


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Bytes that the device has left for this process, and its total, as the backend says."""
    return pool_for(device).info()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Let this process reserve at most a fraction of a device's memory.

    Raises:
        ValueError: ``fraction`` is not in 0 … 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction!r}: expected a number from 0 to 1")
    pool = pool_for(device)
    pool.supply.limit = None
    if fraction < 1:
        pool.supply.limit = int(fraction * pool.info()[1])


def lease(nbytes: int, device: DeviceLike | None = None) -> Lease:
    """Set memory aside: ``async with memory.lease(nbytes):`` waits until that much can be had.

    Leases of one device never sum up to more than its memory, or than this process's fraction of it, and are granted first
    come, first served. A lease allocates nothing, and arrays are not held to it: it is admission among those who ask.
    Cancellation gives the place back.

    Raises:
        OutOfMemoryError: on entering, when the device could never have that much.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     async with aiodev.memory.lease(1 << 20, "cpu"):
        ...         return aiodev.empty(1 << 17, device="cpu").nbytes
        >>> import asyncio; asyncio.run(main())
        1048576
    """
    return Lease(nbytes, device)
