"""Memory history: which line of the program allocated each block, recorded on request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aiodev._core import callsites
from aiodev._core.arguments import instance
from aiodev._core.backend.registry import DeviceLike
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.allocators import allocator_for
from aiodev._memory.buffer import Buffer

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["RecordingAllocator", "record_memory_history"]

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
    pool = allocator_for(device)
    for allocator in (pool, *pool.private_pools):
        if type(allocator) in (CachingAllocator, RecordingAllocator):  # the debugging one always does
            allocator.__class__ = RecordingAllocator if enabled else CachingAllocator
