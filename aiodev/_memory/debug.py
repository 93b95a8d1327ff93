"""Finding wrong uses of memory: ``AIODEV_DEBUG=1``, for memory that the host can touch.

Around each buffer are guards. Freed memory is filled with 0xFF bytes, not-a-number for floats and -1 for integers, once the
work that used it is done, and is not handed out before. Guards are looked at then, and the fill when the memory is handed out
again: what has changed was written by somebody who had no right to.

Streams that use the same array have to be ordered. A use is looked at when it is submitted: work of another stream that has not
finished with the array, and that nothing orders before it, is a race, unless both only read. Parts of a buffer are not told
apart. Work that happens to be finished by then is not noticed, for the program may have waited for it.

All of it is logged, with the lines that allocated and that use the memory.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections import deque
from typing import TYPE_CHECKING

from aiodev._core import sites
from aiodev._core.finalizing import until_exit
from aiodev._core.order import follows
from aiodev._memory.block import CACHED, Bin, Block
from aiodev._memory.buffer import Buffer, Uses
from aiodev._memory.caching import CachingAllocator, DeviceBuffer

if TYPE_CHECKING:
    from aiodev._core.timeline import Timeline

__all__ = ["GUARD", "POISON", "DebugAllocator"]

logger = logging.getLogger("aiodev")

#: Bytes before and after a buffer; alignment is kept.
GUARD = 256
_GUARD_BYTES = b"\xa5" * GUARD
POISON = 0xFF


@until_exit
class DebugBuffer(DeviceBuffer):
    """A buffer between guards."""

    __slots__ = ()

    source: DebugAllocator

    def _stamp(self, timeline: Timeline, value: int) -> None:
        """See :class:`Buffer`."""
        self._check_order(timeline, value, "written or read", self.pending())
        super()._stamp(timeline, value)
        self.see_every_use()

    def _stamp_aside(self, timeline: Timeline, value: int) -> None:
        self._check_order(timeline, value, "read", self.contents())
        super()._stamp_aside(timeline, value)
        self.see_every_use()

    def stamp_foreign(self, timeline: Timeline, value: int) -> None:
        """See :class:`Buffer`: there is no order to check."""
        super()._stamp(timeline, value)
        self.see_every_use()

    def check(self) -> None:
        """See :class:`Buffer`."""
        super().check()
        self.see_every_use()

    def see_every_use(self) -> None:
        """Have no timeline be the last one that a launch compares with its own, so that the next use is looked at, too."""
        writer, reader = self._writer, self._reader
        if not isinstance(writer, Uses):
            self._writer = Uses(((writer, self._written),))
        if reader is not None:
            reads = {} if self._readers is None else dict(self._readers)
            self._readers = Uses((reads | {reader: max(self._read, reads.get(reader, 0))}).items())
            self._reader, self._read = None, 0

    def _check_order(self, timeline: Timeline, value: int, use: str, earlier: list[tuple[Timeline, int]]) -> None:
        for other, last in earlier:
            if other is not timeline and not other.reached(last) and not follows(timeline, value, other, last):
                logger.error(
                    "%s: %s is %s on %s at %s, while operation %d of %s may still be using it, and nothing orders one before "
                    "the other; let one stream wait for the other (Stream.wait_stream)",
                    self.source.device, self.source.name_of(self.block), use, timeline.label,
                    sites.describe(sites.outside(sys._getframe(1))), last, other.label,
                )  # fmt: skip

    def __del__(self) -> None:
        """Put the block aside until its work is done."""
        block, source = self.block, self.source
        self._leave_uses(block)
        source.totals.allocated -= block.size
        source.totals.frees += 1
        block.state = CACHED
        source.put_aside(block)


class DebugAllocator(CachingAllocator):
    """A :class:`CachingAllocator` that finds wrong writes."""

    _aside: deque[Block]
    _requested: dict[Block, int]

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """See :class:`CachingAllocator`; the memory is poisoned."""
        self.sweep()
        buffer = super().allocate(nbytes + 2 * GUARD if nbytes >= 0 else nbytes, timeline)
        block: Block = buffer.block
        before = self.__dict__.setdefault("_requested", {}).get(block)
        if before is not None and not _is_filled(block.address + GUARD, before, POISON):
            logger.error("%s: %s, was written to after it was freed", self.device, self.name_of(block))
        block.site = sites.outside(sys._getframe(1))
        self._requested[block] = nbytes
        buffer.__class__ = DebugBuffer
        assert isinstance(buffer, DebugBuffer)
        buffer.see_every_use()
        buffer.address += GUARD
        ctypes.memset(buffer.address, POISON, nbytes)
        for guard in (block.address, buffer.address + nbytes):
            ctypes.memmove(guard, _GUARD_BYTES, GUARD)
        return buffer

    def put_aside(self, block: Block) -> None:
        """Take a block whose buffer is gone. Called by the garbage collector, in any thread."""
        self.__dict__.setdefault("_aside", deque()).append(block)

    def sweep(self) -> None:
        """Check, poison and cache the blocks whose work is done."""
        aside: deque[Block] = self.__dict__.setdefault("_aside", deque())
        for _ in range(len(aside)):
            try:
                block = aside.popleft()
            except IndexError:  # another thread was faster
                return
            if not block.settle():
                aside.append(block)
                continue
            self._check(block)
            assert block.bin is not None
            block.bin.free.append(block)

    def settle(self) -> None:
        """See :class:`CachingAllocator`; what is put aside is looked at, too."""
        self.sweep()
        super().settle()

    def _check(self, block: Block) -> None:
        nbytes = self._requested[block]
        start = block.address + GUARD
        for guard, what in ((block.address, "before the start"), (start + nbytes, "beyond the end")):
            if ctypes.string_at(guard, GUARD) != _GUARD_BYTES:
                logger.error("%s: something wrote %s of %s", self.device, what, self.name_of(block))
        ctypes.memset(start, POISON, nbytes)

    def name_of(self, block: Block) -> str:
        """Size, address and origin."""
        nbytes, site = self._requested[block], sites.describe(block.site)
        return f"memory of {nbytes:,} bytes at {block.address + GUARD:#x}, allocated at {site}"

    def _empty_bins(self, like: Bin | None = None, whatever_uses_it: bool = False) -> None:
        self.sweep()
        for home in list(self._bins.values()):
            for block in list(home.free):
                self._requested.pop(block, None)  # it may be cut or joined
        super()._empty_bins(like, whatever_uses_it)


def _is_filled(address: int, nbytes: int, byte: int) -> bool:
    found = ctypes.string_at(address, nbytes)
    return found.count(byte) == nbytes
