"""Finding streams that use the same array unordered: ``AIODEV_DEBUG=1``, on every device.

A use is looked at when it is submitted: work of another stream that has not finished with the array, and that nothing orders
before it, is a race, unless both only read. Parts of a buffer are not told apart. Work that happens to be finished by then is
not noticed, for the program may have waited for it. What a function that a stream calls submits elsewhere counts as that call:
the stream goes on when the function has returned, which waits for what it needs.

It is logged, with the line that allocated the memory, and the line that submitted the use.
"""

from __future__ import annotations

import logging
import sys
import weakref
from typing import TYPE_CHECKING

from aiodev._core import callsites
from aiodev._core.streams.host_calls import running_call
from aiodev._core.timeline.vector_clock import follows
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer
from aiodev._memory.block import Block
from aiodev._memory.buffer import Buffer, Uses

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["OrderedBuffer", "RaceAllocator", "tell"]

logger = logging.getLogger("aiodev")


class OrderedBuffer(DeviceBuffer):
    """A buffer whose uses are to be ordered."""

    __slots__ = ()

    source: RaceAllocator

    def _record_write(self, timeline: Timeline, value: int) -> None:
        """Check that the streams that use the buffer are ordered, then note the write."""
        if timeline.recording is None:
            self._check_order(timeline, value, True, self.pending())
        else:
            timeline.recording.note_use(self, timeline, value, True)
        super()._record_write(timeline, value)
        self.see_every_use()

    def _record_read(self, timeline: Timeline, value: int) -> None:
        if timeline.recording is None:
            self._check_order(timeline, value, False, self.contents())
        else:
            timeline.recording.note_use(self, timeline, value, False)
        super()._record_read(timeline, value)
        self.see_every_use()

    def record_foreign(self, timeline: Timeline, value: int) -> None:
        """Note work of another library, whose order cannot be checked."""
        if timeline.recording is not None:
            timeline.recording.note_use(self, timeline, value, True, False)
        super()._record_write(timeline, value)
        self.see_every_use()

    def check(self) -> None:
        """Raise what went wrong with the contents, and have the next use checked, too."""
        super().check()
        self.see_every_use()

    def see_every_use(self) -> None:
        """Have no timeline be the last one that a launch compares with its own, so that the next use is looked at, too."""
        writer, reader = self._writer, self._reader
        if not isinstance(writer, Uses):
            self._writer = writers = Uses(((writer, self._written),))
            writers.credit = 0  # so the next write finds out whether this one is over, as it would without debug mode
        if reader is not None:
            reads = {} if self._readers is None else dict(self._readers)
            self._readers = Uses((reads | {reader: max(self._read, reads.get(reader, 0))}).items())
            self._reader, self._read = None, 0

    def _check_order(self, timeline: Timeline, value: int, writes: bool, earlier: list[tuple[Timeline, int]]) -> None:
        call = running_call()
        if call is None:
            _called.pop(timeline, None)
        else:
            _called[timeline] = weakref.ref(call[0]), call[1]
        for other, last in earlier:
            if other is timeline or other.reached(last) or (call is not None and other is call[0]):
                continue
            if follows(timeline, value, other, last) or _follows_call(timeline, value, other):
                continue
            if not other.reached(last):  # still: what is done by now may have been ordered, which is not known any more
                place = callsites.describe_site(callsites.outside(sys._getframe(1)))
                tell(self, writes, f"on {timeline.label} at {place}", f"operation {last} of {other.label}")


def tell(buffer: OrderedBuffer, writes: bool, place: str, other: str) -> None:
    """Log a race: what uses the buffer, and where; and what else may."""
    source = buffer.source
    logger.error(
        "%s: %s is %s %s, while %s may still be using it, and nothing orders one before the other; let one stream wait for "
        "the other (Stream.wait_stream)",
        source.device, source.name_of(buffer.block), "written or read" if writes else "read", place, other,
    )  # fmt: skip


#: Of timelines that functions have submitted to, and nobody else since, the last such function's call.
_called: weakref.WeakKeyDictionary[Timeline, tuple[weakref.ref[Timeline], int]] = weakref.WeakKeyDictionary()


def _follows_call(timeline: Timeline, value: int, other: Timeline) -> bool:
    """Whether an operation follows the call whose function has submitted what is on ``other``."""
    reference, number = _called.get(other, (None, 0))
    caller = None if reference is None else reference()
    return caller is not None and follows(timeline, value, caller, number)


class RaceAllocator(CachingAllocator):
    """A :class:`CachingAllocator` that finds uses in no order."""

    #: What its buffers become, with the same slots.
    buffers: type[OrderedBuffer] = OrderedBuffer

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """Allocate a buffer, each of whose uses is looked at."""
        buffer = super().allocate(nbytes, timeline)
        block: Block = buffer.block
        block.site = callsites.outside(sys._getframe(1))
        buffer.__class__ = self.buffers
        assert isinstance(buffer, OrderedBuffer)
        if timeline.reached(buffer._read):
            buffer._read = 0  # of the memory's life before: it is not to be named
        buffer.see_every_use()
        return buffer

    def name_of(self, block: Block) -> str:
        """Size, address and origin."""
        nbytes, address = self.extent_of(block)
        return f"memory of {nbytes:,} bytes at {address:#x}, allocated at {callsites.describe_site(block.site)}"

    def extent_of(self, block: Block) -> tuple[int, int]:
        """How many bytes a block was taken for, or a few more, and where they begin."""
        return block.size, block.address
