"""Buffers and allocators as native code sees them (:mod:`aiodev._native.objects`)."""

from __future__ import annotations

from aiodev._core.timeline.timeline import Timeline
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer
from aiodev._memory.block import CACHED, LIVE, Bin, Block
from aiodev._memory.buffer import Buffer, Uses
from aiodev._memory.stats import Totals
from aiodev._native.fields import Struct
from aiodev._native.objects import List, MemoryView, Object, Tuple, slot

__all__ = [
    "KNOWN", "VIEWS", "AllocatorView", "BinView", "BlockView", "BufferView", "CountsView", "KnownView", "TimelineView",
    "TotalsView",
]  # fmt: skip


class BufferView(Object):
    """A buffer, and the last operations that use it: objects of timelines and of ints."""

    start: int = slot(Buffer, "address")
    source: int = slot(Buffer, "source")
    block: BlockView = slot(Buffer, "block")
    writer: int = slot(Buffer, "_writer")
    written: int = slot(Buffer, "_written")
    reader: int = slot(Buffer, "_reader")
    read: int = slot(Buffer, "_read")
    readers: int = slot(Buffer, "_readers")


class BlockView(Object):
    """A block."""

    bin: BinView = slot(Block, "bin")
    listed: int = slot(Block, "listed")
    start: int = slot(Block, "address")
    size: int = slot(Block, "size")
    state: int = slot(Block, "state")
    timeline: int = slot(Block, "timeline")
    value: int = slot(Block, "value")
    uses: int = slot(Block, "uses")


class BinView(Object):
    """The cached blocks of one size."""

    free: List = slot(Bin, "free")


class CountsView(Struct):
    """The accounts of a device, the first of them (:data:`aiodev._memory.stats.COUNTS`)."""

    allocated: int
    allocated_ever: int
    allocations: int
    frees: int
    peak_allocated: int


class TotalsView(Object):
    """The accounts of a device, as an object."""

    start: int = slot(Totals, "address")  #: an int, the address of the :class:`CountsView`


class TimelineView(Object):
    """A timeline."""

    counters: MemoryView = slot(Timeline, "counters")  #: or another sequence
    noted: int = slot(Timeline, "noted")  #: a dict, or Python's None
    recording: int = slot(Timeline, "recording")


class AllocatorView(Object):
    """An allocator."""

    bins: int = slot(CachingAllocator, "_bins")
    pending: Object = slot(CachingAllocator, "pending")
    totals: TotalsView = slot(CachingAllocator, "totals")


class KnownView(Tuple):
    """Objects that are the same for all allocations, as a tuple has them."""

    none: int
    allocator_class: int
    buffer_class: int
    uses_class: int
    zero: int
    minus_one: int
    true: int
    live: int
    cached: int
    allocate: int
    allocate_slowly: int
    release: int
    forget_done: int
    counters: int
    append: int
    rotate: int
    timeline_class: int
    memoryview_class: int


#: In the order of :class:`KnownView`.
KNOWN = (
    None, CachingAllocator, DeviceBuffer, Uses, 0, -1, True, LIVE, CACHED, "allocate", "_allocate", "_release", "forget_done",
    "counters", "append", "rotate", Timeline, memoryview,
)  # fmt: skip
#: Whose offsets are in the code.
VIEWS: tuple[type[Struct], ...] = (BufferView, BlockView, BinView, TotalsView, TimelineView, AllocatorView)
