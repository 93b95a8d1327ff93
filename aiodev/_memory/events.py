"""Watched allocators: each allocation, and the end of each buffer, is noted while somebody profiles."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiodev._core.finalizing import until_exit
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer
from aiodev._memory.buffer import Buffer

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["MemoryEvent", "WatchedAllocator", "note_allocation", "note_with", "observing"]


class MemoryEvent(NamedTuple):
    """A buffer that was allocated, or is no longer needed.

    Example:
        >>> from aiodev.profiler import MemoryEvent
        >>> MemoryEvent(0, aiodev.Device("cpu"), -512, allocated=1024, reserved=2 << 20).nbytes
        -512
    """

    time_ns: int  #: by ``time.perf_counter_ns``
    device: Any  #: the :class:`~aiodev.Device`
    nbytes: int  #: of the buffer, as rounded by the allocator; negative when it is no longer needed
    allocated: int  #: bytes in use on the device afterwards
    reserved: int  #: bytes that the allocator holds


#: Takes events, as tuples; None while nobody wants any.
_note: Callable[[Any], object] | None = None


def note_with(note: Callable[[Any], object] | None) -> None:
    """Have events noted by a function from now on; None: no longer."""
    global _note
    _note = note


def observing() -> bool:
    """Whether events are noted."""
    return _note is not None


def _tell(source: Any, nbytes: int) -> None:
    note = _note
    if note is not None:  # a tuple in place of a MemoryEvent: this runs at each allocation
        totals = source.totals
        note((time.perf_counter_ns(), source.device, nbytes, totals.allocated, totals.reserved))


@until_exit
class _WatchedBuffer(DeviceBuffer):
    """A buffer whose end is noted."""

    __slots__ = ()

    def __del__(self) -> None:
        super().__del__()
        _tell(self.source, -self.block.size)


class WatchedAllocator(CachingAllocator):
    """An allocator whose allocations are noted. It adds no state, so that an allocator's class can be switched."""

    __slots__ = ()

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """Allocate a buffer, and note that."""
        buffer = super().allocate(nbytes, timeline)
        buffer.__class__ = _WatchedBuffer
        _tell(self, buffer.block.size)
        return buffer


def note_allocation(source: CachingAllocator, nbytes: int) -> None:
    """Note an allocation, or with fewer than no bytes the end of a buffer, of an allocator that does not do so by its class."""
    if _note is not None:
        _tell(source, nbytes)
