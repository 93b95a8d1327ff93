"""Finding wrong uses of memory: ``AIODEV_DEBUG=1``, for memory that the host can touch.

Around each buffer are guards. Freed memory is filled with 0xFF bytes, not-a-number for floats and -1 for integers, once the
work that used it is done, and is not handed out before. What has changed was written by somebody who had no right to.

-   Guards are looked at when the last array lets go of the buffer, and again at the first allocation or release behind the end
    of the work that used it. Those of every buffer are looked at when the cache is emptied, and at exit, where work that still
    runs has a second to finish. A buffer whose guards are broken is told of once.
-   The fill is looked at when the memory is handed out again.

All of it is logged, with the line that allocated the memory, and the kernel or copy that used it last, with the line that
submitted it. Kernels are compiled with bounds checks in this mode, so that guards have to find only what is out of their reach:
addresses that a program computes itself, and libraries.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from aiodev._core import journal
from aiodev._core.finalizing import until_exit, weakly
from aiodev._core.waiting.block_until import hold_until
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev._memory.block import CACHED, Block
from aiodev._memory.buffer import Buffer
from aiodev._memory.events import note_allocation
from aiodev._memory.races import OrderedBuffer, RaceAllocator
from aiodev._memory.tuning import GUARD, LAST_WAIT

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._memory.segments import RawMemory

__all__ = ["GUARD", "POISON", "DebugAllocator"]

logger = logging.getLogger("aiodev")

_GUARD_BYTES = b"\xa5" * GUARD
POISON = 0xFF

Points = Iterable["tuple[Timeline, int]"]


@until_exit
class DebugBuffer(OrderedBuffer):
    """A buffer between guards."""

    __slots__ = ()

    source: DebugAllocator

    def own_uses(self) -> list[tuple[Timeline, int]]:
        """The last use on each timeline. A use that the memory was freed with counts only while it is not done."""
        return [(timeline, value) for timeline, value in self.uses() if value]

    def __del__(self) -> None:
        """Check the guards, and quarantine the block until its work is done."""
        block, source = self.block, self.source
        uses = self.own_uses()
        source.look_at(block, uses)
        self._leave_uses(block)
        source.totals.allocated -= block.size
        source.totals.frees += 1
        block.state = CACHED
        source.quarantine(block, uses)
        note_allocation(source, -block.size)
        if not source.slow_path.looking:  # else blocks are being joined, perhaps in this thread: the next one looks
            source.sweep()
        abandonment = source.slow_path.abandonment
        if abandonment is not None:
            abandonment.note_release()


class DebugAllocator(RaceAllocator):
    """A :class:`RaceAllocator` that finds wrong writes."""

    buffers = DebugBuffer

    def __init__(
        self, device: Device, raw: RawMemory, host_accessible: bool,
        hold: Callable[[Any, Any], int | None] = hold_until, common: Self | None = None,
    ) -> None:  # fmt: skip
        super().__init__(device, raw, host_accessible, hold, common)
        self.slow_path.before_emptying = weakly(self._prepare_emptying)
        self._quarantine: deque[tuple[Block, list[tuple[Timeline, int]]]] = deque()
        self._requested: dict[Block, int] = {}
        self._alive: dict[Block, weakref.ref[DebugBuffer]] = {}
        self._told: set[Block] = set()
        self._process = os.getpid()
        atexit.register(weakly(self._look_at_exit))

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """Allocate a buffer with guards around it; its memory is poisoned."""
        self.sweep()
        buffer = super().allocate(nbytes + 2 * GUARD if nbytes >= 0 else nbytes, timeline)
        block: Block = buffer.block
        before = self._requested.get(block)
        if before is not None and not _is_filled(block.address + GUARD, before, POISON):
            logger.error("%s: %s, was written to after it was freed", self.device, self.name_of(block))
        assert isinstance(buffer, DebugBuffer)
        self._requested[block] = nbytes
        self._told.discard(block)
        buffer.address += GUARD
        ctypes.memset(buffer.address, POISON, nbytes)
        for guard in (block.address, buffer.address + nbytes):
            ctypes.memmove(guard, _GUARD_BYTES, GUARD)
        self._alive[block] = weakref.ref(buffer)  # from here on another thread may look at the guards
        note_allocation(self, block.size)
        return buffer

    def quarantine(self, block: Block, uses: list[tuple[Timeline, int]]) -> None:
        """Take a block whose buffer is gone, and its last uses. The garbage collector calls this, in any thread."""
        self._alive.pop(block, None)
        self._quarantine.append((block, uses))

    def sweep(self) -> None:
        """Check, poison and cache the blocks whose work is done."""
        aside = self._quarantine
        for _ in range(len(aside)):
            try:
                block, uses = aside.popleft()
            except IndexError:  # another thread was faster
                return
            if not block.forget_done():
                aside.append((block, uses))
                continue
            self.look_at(block, uses)
            ctypes.memset(block.address + GUARD, POISON, self._requested[block])
            assert block.bin is not None
            block.bin.free.append(block)

    def forget_all_done(self) -> None:
        """Let go of every timeline whose work is done, and sweep the quarantine."""
        self.sweep()
        super().forget_all_done()

    def look_at(self, block: Block, uses: Points) -> None:
        """Log broken guards once; ``uses`` are the last uses, which the log names."""
        if block in self._told:
            return
        end = block.address + GUARD + self._requested[block]
        for guard, what in ((block.address, "before the start"), (end, "beyond the end")):
            if ctypes.string_at(guard, GUARD) != _GUARD_BYTES:
                self._told.add(block)
                known = dict.fromkeys(filter(None, (journal.describe(timeline, value) for timeline, value in uses)))
                last = " and by ".join(known) or "nothing that was submitted to a stream"
                logger.error(
                    "%s: something wrote %s of %s, last used by %s", self.device, what, self.name_of(block), last
                )

    def look_at_all(self) -> None:
        """Check the guards of every buffer, alive or in quarantine."""
        self.sweep()
        for block, uses in list(self._quarantine):
            self.look_at(block, uses)
        for reference in list(self._alive.values()):
            buffer = reference()
            if buffer is not None:
                self.look_at(buffer.block, buffer.own_uses())

    def _look_at_exit(self) -> None:
        if os.getpid() != self._process:  # a forked child, whose parent looks
            return
        alive = [buffer for reference in list(self._alive.values()) if (buffer := reference()) is not None]
        points = [point for buffer in alive for point in buffer.pending()]
        points += [point for block, _ in list(self._quarantine) for point in block.pending().items()]
        with contextlib.suppress(Exception):  # late, or lost with its device, which others tell of
            wait_all_blocking(points, LAST_WAIT)
        self.look_at_all()

    def extent_of(self, block: Block) -> tuple[int, int]:
        """Without the guards."""
        return self._requested[block], block.address + GUARD

    def empty_cache(self) -> int:
        """Check every buffer's guards, then give back all memory that is cached and not in use."""
        self.look_at_all()
        return super().empty_cache()

    def _prepare_emptying(self) -> None:
        """Cache what may be, and forget what was said of cached blocks."""
        self.sweep()
        for home in list(self._bins.values()):
            for block in list(home.free):
                self._requested.pop(block, None)  # it may be cut or joined
                self._told.discard(block)


def _is_filled(address: int, nbytes: int, byte: int) -> bool:
    content = ctypes.string_at(address, nbytes)
    return content.count(byte) == nbytes
