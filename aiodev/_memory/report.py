"""Reports of what the allocators hold, and limits on it, by torch's names where torch has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiodev._core import arguments, callsites
from aiodev._core.backend.device import Device
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.allocators import allocator_for, known_allocator
from aiodev._memory.block import HOLE, LIVE, Block, Segment
from aiodev._memory.lease import look_again
from aiodev._memory.pinned import empty_pinned_cache
from aiodev._memory.stats import Totals, summarise


def _totals(device: DeviceLike | None) -> Totals:
    pool = known_allocator(device)
    return Totals() if pool is None else pool.totals


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use by arrays, as rounded by the allocator.

    Example:
        >>> import aiodev
        >>> before = aiodev.memory.memory_allocated("cpu")
        >>> x = aiodev.empty(1000, "uint8", "cpu")
        >>> aiodev.memory.memory_allocated("cpu") - before
        1024
    """
    return _totals(device).allocated


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes that were in use at once, since the start or :func:`reset_peak_memory_stats`.

    Example:
        >>> import aiodev
        >>> aiodev.memory.max_memory_allocated("cpu") >= aiodev.memory.memory_allocated("cpu")
        True
    """
    return _totals(device).peak_allocated


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds, in use or not.

    Example:
        >>> import aiodev
        >>> aiodev.memory.memory_reserved("cpu") >= aiodev.memory.memory_allocated("cpu")
        True
    """
    return _totals(device).reserved


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator held, since the start or :func:`reset_peak_memory_stats`.

    Example:
        >>> import aiodev
        >>> aiodev.memory.max_memory_reserved("cpu") >= aiodev.memory.memory_reserved("cpu")
        True
    """
    return _totals(device).peak_reserved


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """All counts, by torch's names, and some that torch has not.

    ``num_ordered_reuses`` is how often memory that another stream's work still used served a stream that was ordered after that
    work, ``num_passed_over`` how often there was memory of the right size, but only with work that was not. How often a stream
    was held until memory was free, since there was no other, is ``num_waits_for_memory``.

    Example:
        >>> import aiodev
        >>> sorted(aiodev.memory.memory_stats("cpu"))[:2]
        ['allocated_bytes.all.allocated', 'allocated_bytes.all.current']
    """
    return _totals(device).as_dict()


def memory_summary(device: DeviceLike | None = None) -> str:
    """The counts as a table.

    Example:
        >>> import aiodev
        >>> print(aiodev.memory.memory_summary("cpu").splitlines()[0])
        memory of cpu:0
    """
    return summarise(registry.resolve(device)[1], _totals(device))


def memory_snapshot(device: DeviceLike | None = None) -> list[dict[str, Any]]:
    """The allocator's segments in order of address, each with its blocks.

    A segment has ``device``, ``address``, ``total_size``, ``allocated_size``, ``segment_type`` (``small`` or ``large``),
    ``segment_pool_id`` (0, or the number of a :class:`MemoryPool`), ``is_expandable`` and ``blocks``; a block ``address``,
    ``size``, ``state`` and ``site``. The state is ``active_allocated``, ``active_pending_free`` (freed, with work that uses it
    not done) or ``inactive``. The site is the file and line that allocated it, None unless :func:`record_memory_history` was
    on.

    Example:
        >>> import aiodev
        >>> x = aiodev.empty(1000, "uint8", "cpu")
        >>> segments = aiodev.memory.memory_snapshot("cpu")
        >>> {block["size"] for s in segments for block in s["blocks"] if block["state"] == "active_allocated"} >= {1024}
        True
    """
    segments: list[dict[str, Any]] = []
    pool = known_allocator(device)
    if pool is not None:
        for allocator in (pool, *pool.private_pools):
            allocator.forget_all_done()
            segments += allocator.each_segment(_describe)
    return sorted(segments, key=lambda segment: segment["address"])


def _describe(allocator: CachingAllocator, segment: Segment, blocks: list[Block]) -> dict[str, Any]:
    return {
        "device": str(allocator.device),
        "address": segment.address,
        "total_size": segment.mapped(),
        "allocated_size": sum(block.size for block in blocks if block.state == LIVE),
        "segment_type": segment.kind.name,
        "segment_pool_id": allocator.number,
        "is_expandable": segment.growable,
        "blocks": [
            {"address": block.address, "size": block.size, "state": _state(block), "site": _site(block)}
            for block in blocks if block.state != HOLE
        ],
    }  # fmt: skip


def _state(block: Block) -> str:
    if block.state == LIVE:
        return "active_allocated"
    return "inactive" if block.timeline is None else "active_pending_free"


def _site(block: Block) -> str | None:
    return callsites.describe_site(block.site) if block.state == LIVE else None


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Let the peaks start from what is now.

    Example:
        >>> import aiodev
        >>> aiodev.memory.reset_peak_memory_stats("cpu")
        >>> aiodev.memory.max_memory_allocated("cpu") == aiodev.memory.memory_allocated("cpu")
        True
    """
    _totals(device).reset_peaks()


def empty_cache(device: DeviceLike | None = None) -> None:
    """Give what is cached, and no longer in use by queued work, back to the backend. Waits for nothing.

    Page-locked host memory that nobody uses goes back, too.

    Example:
        >>> import aiodev
        >>> x = aiodev.empty(64 << 20, "uint8", "cpu")
        >>> reserved = aiodev.memory.memory_reserved("cpu")
        >>> del x
        >>> aiodev.memory.empty_cache("cpu")
        >>> aiodev.memory.memory_reserved("cpu") <= reserved - (64 << 20)
        True
    """
    pool = known_allocator(device)
    if pool is not None:
        pool.empty_cache()
    empty_pinned_cache(registry.resolve(device)[0])


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Bytes that the device has left for this process, and the device's total, as the backend says.

    A limit of this process's (:func:`set_per_process_memory_fraction`) leaves less to it; the total stays what it is.

    Example:
        >>> import aiodev
        >>> free, total = aiodev.memory.mem_get_info("cpu")
        >>> 0 <= free <= total
        True
    """
    return allocator_for(device).slow_path.segments.info()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Let this process reserve at most a fraction of a device's memory.

    What is cached beyond that, and not in use, goes back at once; nobody is made to give up what is used. The fraction is of
    the device's total (:func:`mem_get_info`), whatever the limit was before. Leases that wait are granted if there is room for
    them now; those that no longer fit at all raise OutOfMemoryError.

    Raises:
        TypeError: ``fraction`` is no number.
        ValueError: ``fraction`` is not in 0 … 1.

    Example:
        >>> import aiodev
        >>> aiodev.memory.set_per_process_memory_fraction(0.5, "cpu")
        >>> aiodev.memory.set_per_process_memory_fraction(1.0, "cpu")
    """
    fraction = arguments.number("set_per_process_memory_fraction", "fraction", fraction)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction!r}: expected a number from 0 to 1")
    pool = allocator_for(device)
    pool.totals.limit = int(fraction * pool.slow_path.segments.info()[1]) if fraction < 1 else None
    if pool.totals.limit is not None and pool.totals.reserved > pool.totals.limit:
        pool.empty_cache()
    look_again(device)


def on_out_of_memory(hook: Callable[[Device, int], object], device: DeviceLike | None = None) -> Callable[[], None]:
    """Have a function called when there is no memory left, before OutOfMemoryError: to drop what can be dropped.

    Args:
        hook: called with the device and the bytes that are missing, in the thread that allocates, with the allocator locked: it
            must not wait for anything. It may allocate, but hooks are not called for that. After each hook the allocator
            looks again. What a hook raises, the allocation raises in place of OutOfMemoryError, and calls no further hook.
        device: whose memory; the current device by default.

    Returns:
        What takes the hook away again.

    Raises:
        TypeError: ``hook`` is no function, or makes coroutines.

    Example:
        >>> import aiodev
        >>> cache = {}
        >>> remove = aiodev.memory.on_out_of_memory(lambda device, nbytes: cache.clear(), "cpu")
        >>> remove()
    """
    arguments.callback("on_out_of_memory", "hook", hook)
    hooks = allocator_for(device).slow_path.hooks
    registered = partial(hook)  # which equals no other, as the same function may be registered twice
    hooks.append(registered)

    def remove() -> None:
        if registered in hooks:
            hooks.remove(registered)

    return remove
