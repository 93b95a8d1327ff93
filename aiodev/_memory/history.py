"""Memory history: which line of the program allocated each block, recorded on request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._core import callsites
from aiodev._core.arguments import instance
from aiodev._core.backend.registry import DeviceLike
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.allocators import allocator_for, pools
from aiodev._memory.buffer import Buffer
from aiodev._memory.events import WatchedAllocator, note_with

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["RecordingAllocator", "record_memory_history", "watch_allocations"]

# What these allocate is their callers' doing.
callsites.register_library("aiodev._array")
callsites.register_library("aiodev._memory")


class RecordingAllocator(CachingAllocator):
    """An allocator that notes the site of each allocation. It adds no state, so that an allocator's class can be switched."""

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """Allocate a buffer, and note the line of the program that asked for it."""
        buffer = super().allocate(nbytes, timeline)
        buffer.block.site = callsites.outside(sys._getframe(1))
        return buffer


class _WatchedRecordingAllocator(WatchedAllocator, RecordingAllocator):
    """An allocator that does both."""


#: Classes of allocators, by whether they note sites, and whether they note events. The debugging one is none of them.
_KINDS: dict[tuple[bool, bool], type[CachingAllocator]] = {
    (False, False): CachingAllocator,
    (True, False): RecordingAllocator,
    (False, True): WatchedAllocator,
    (True, True): _WatchedRecordingAllocator,
}


def _switch(pool: CachingAllocator, sites: bool | None = None, events: bool | None = None) -> None:
    """Have a device's allocators note sites, or events, or no longer; None leaves that as it is."""
    for allocator in (pool, *pool.private_pools):
        for (had_sites, had_events), kind in _KINDS.items():
            if type(allocator) is kind:
                wanted = had_sites if sites is None else sites, had_events if events is None else events
                allocator.__class__ = _KINDS[wanted]
                break


def watch_allocations(note: Callable[[Any], object] | None) -> None:
    """Have each allocation of every device, and the end of each buffer, noted from now on; None: no longer."""
    note_with(note)
    for pool in list(pools.values()):
        _switch(pool, events=note is not None)


def record_memory_history(enabled: bool = True, device: DeviceLike | None = None) -> None:
    """Note, from now on, which line of the program allocates each block, for :func:`memory_snapshot`; or stop doing so.

    An allocation then takes about half a microsecond longer.

    Raises:
        TypeError: ``enabled`` is neither True nor False.

    Example:
        >>> import aiodev
        >>> aiodev.memory.record_memory_history(True, "cpu")
        >>> aiodev.memory.record_memory_history(False, "cpu")
    """
    instance("record_memory_history", "enabled", enabled, bool, "True or False")
    _switch(allocator_for(device), sites=enabled)  # the debugging one always does
