"""Slow path of the caching allocator: taken when a request's size bin is empty.

It serves such a request from the extents, by a block or by several in a row. Before it takes memory from the backend, it
empties bins that hold much into the extents, where neighbours are joined. Where segments cannot grow, it empties the bins of
large blocks whenever one misses: to cut a larger block, although a cached one would fit by itself or with its neighbours,
fragments memory. Before it reserves more than it should, it gives back what has been free for long. When the backend has no
more, it gives back all unused memory, has the requesting timeline wait for memory that others use, and calls hooks.

All of this happens under the lock that guards segments and extents. The common case, without the lock, is the allocator's
(:mod:`aiodev._memory.allocator`), which has one of these; the invariants of both are there.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.errors import OutOfMemoryError
from aiodev._core.sigint import sigint_held
from aiodev._core.timeline.timeline import living
from aiodev._memory.abandonment import Abandonment, take_turns
from aiodev._memory.block import CACHED, FREE, LIVE, TAKEN, Bin, Block, Extents, Segment
from aiodev._memory.segments import RawMemory, Segments
from aiodev._memory.stats import Totals
from aiodev._memory.tuning import (
    BYTES_PER_LOOK,
    LITTLE,
    SEARCH,
    SMALL_SEGMENT,
    TURNS,
    WORTHWHILE,
    WORTHWHILE_IN_SEGMENTS,
)

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["SlowPath"]


class SlowPath:
    """The segments and extents of one allocator, and what is done to find memory in them.

    Args:
        device: whose memory, for hooks and errors.
        raw: where it comes from.
        hold: see :func:`~aiodev._core.waiting.block_until.hold_until`.
        common: for a private pool, that of the device's own allocator; they share accounts, hooks and lock.

    Attributes:
        totals: accounts of the device.
        segments: the segments, and how they are taken from the backend.
        hooks: called when the device has no more memory.
        before_emptying: called before blocks leave the bins.
        others: those of the device's private pools; the device's own keeps them.
        abandonment: what it waits for, if nobody will allocate from it again.
        turns: the abandoned pools of the device that wait for work.
        pending: cached or free blocks with a timeline to forget.
        noticed: those of the device's own allocator.
        lock: guards segments and extents, of the whole device. Re-entrant: the garbage collector may run a finalizer that
            allocates while this thread holds it.
        looking: a thread is at work on segments and extents.
        is_parents: this is a forked child, and the memory its parent's: it is not given back, nor is any looked for in there,
            since another thread may have been at work on it.
    """

    def __init__(
        self, device: Device, raw: RawMemory, hold: Callable[[Any, Any], int | None], common: SlowPath | None
    ) -> None:
        self.totals: Totals = Totals() if common is None else common.totals
        self.segments = Segments(raw, self.totals)
        self.hooks: list[Callable[[Device, int], object]] = [] if common is None else common.hooks
        self.before_emptying: Callable[[], object] | None = None
        self.others: list[SlowPath] = []
        self.abandonment: Abandonment | None = None
        self.turns: deque[Abandonment] = deque() if common is None else common.turns
        self.pending: deque[Block] = deque()
        self.noticed: deque[Block] = self.pending if common is None else common.pending
        self.lock: threading.RLock = threading.RLock() if common is None else common.lock
        self.looking = self.is_parents = False
        self._device = device
        self._hold = hold
        self._common = common
        self._calling = False  # a hook, which may allocate (kept by the device's own)

    def find(self, home: Bin, timeline: Timeline) -> Block:
        """A block of the bin's size from the extents, else from the bins of other sizes, else from the backend."""
        with sigint_held, self.lock:
            if self.looking or self.is_parents:  # a finalizer allocates, in the midst of what this thread does here
                return self._own_segment(home, timeline)
            if self.turns:
                take_turns(self.turns)
            self.looking = True
            try:
                block = self._cut(home, timeline)
                if block.next is not None and block.next.state == FREE:  # what is left of the free block, with its uses
                    self._list(block.next)
            finally:
                self.looking = False
            self.totals.ordered += block.hand_to(timeline)
            return block

    def _own_segment(self, home: Bin, timeline: Timeline) -> Block:
        try:
            block = self.segments.segment_for(home.kind, home.size, timeline)
        except MemoryError as error:
            raise self.out_of_memory(home.size) from error
        block.bin = home
        return block

    def _cut(self, home: Bin, timeline: Timeline) -> Block:
        kind, size = home.kind, home.size
        if kind is self.segments.large and not self.segments.growable and kind.nbytes + _cached(kind) >= size:
            # A larger free block must not be cut where a cached one fits, or would with its neighbours.
            self._join_cached(kind)
        self._join_done(kind, TURNS)
        block = kind.take(size, timeline)
        if block is None and self._join_done(kind, SEARCH):
            block = kind.take(size, timeline)
        if block is None:
            block = kind.take_together(size, timeline)
        if block is None and self._worth_emptying(home):
            self._empty_bins(home)
            block = self._take(kind, size, timeline)
        if block is None and self._look(kind, size):
            block = self._take(kind, size, timeline)
        if block is None:
            surplus = self.segments.surplus(size)
            if surplus > 0:
                block = self._make_room(home, timeline, surplus)
        if block is None:
            try:
                block = self.segments.grow(kind, size, timeline)
            except MemoryError as error:
                block = self._in_need(home, timeline, error)
        block.bin = home
        return block

    def _take(self, kind: Extents, size: int, timeline: Timeline, in_need: bool = False) -> Block | None:
        return kind.take(size, timeline, in_need) or kind.take_together(size, timeline, in_need)

    def _worth_emptying(self, home: Bin) -> bool:
        cached = _cached(home.kind)
        if not self.segments.growable and cached + home.kind.nbytes < home.size:
            return False  # in ranges, what is missing can be put beside it
        if not self.segments.growable:
            return cached >= WORTHWHILE_IN_SEGMENTS
        little = LITTLE if home.kind is self.segments.small else 0
        return cached >= max(WORTHWHILE * self.totals.reserved, little)

    def _empty_bins(self, like: Bin | None = None, shared: bool = False) -> None:
        """Join what is cached, of one kind or of both, with the extents; what several timelines use if it says so."""
        if self.before_emptying is not None:
            self.before_emptying()
        for kind in (self.segments.small, self.segments.large):
            if like is None or kind is like.kind:
                self._join_cached(kind, shared)

    def _join_cached(self, kind: Extents, shared: bool = False) -> None:
        """Join what is cached of one kind with the extents. What it costs is shared by those who have freed the blocks."""
        for home in list(kind.bins):
            taken: list[Block] = []
            try:
                while home.free:
                    taken.append(home.free.pop())
            except IndexError:  # another thread was faster
                pass
            for block in taken:
                if not block.forget_done() and block.uses is not None and not shared:
                    home.free.append(block)
                else:
                    self._list(block.segment.kind.add(block))

    def _join_done(self, kind: Extents, most: int | None = None) -> bool:
        """Join what work kept apart that is done by now; whether there was any. See :meth:`Extents.join_done`."""
        changed = kind.join_done(most)
        for block in changed:
            self._list(block)
        return bool(changed)

    def _look(self, kind: Extents, size: int) -> bool:
        """As ``_join_done``, as far as it is worth it before memory for ``size`` bytes is taken."""
        return self._join_done(kind, max(size, SMALL_SEGMENT) // BYTES_PER_LOOK)

    def _join_all_done(self) -> None:
        self._join_done(self.segments.small)
        self._join_done(self.segments.large)

    def find_dropped(self) -> None:
        """Free the blocks that nobody has: Ctrl-C came between a block and its buffer, or before a buffer's finalizer.

        Nothing but its neighbours refers to such a block. What used it is not known, so that all that is queued now counts.
        """
        # Segments that nobody has show how many references are the loops' own. Three, since a debugger may hold one, say.
        unused = [Segment(0, 0, self.segments.small, growable=False) for _ in range(3)]
        dropped, alone = [], sys.maxsize
        for segment in (*unused, *self.segments.all()):
            for block in segment.blocks():
                count = sys.getrefcount(block) - (block.next is not None)
                if segment in unused:
                    alone = min(alone, count)
                elif count - block.listed <= alone and block.state in (LIVE, CACHED, TAKEN):
                    # Unless Ctrl-C came when it was taken from the list, to be looked at. No thread comes between these two.
                    is_listed = block in self.pending
                    count = sys.getrefcount(block) - (block.next is not None)
                    if count - is_listed <= alone:
                        dropped.append(block)
                    elif not is_listed:
                        self.pending.append(block)
        lines = living.all() if dropped else ()
        queued = {line: line.submitted for line in lines if line.counters[COMPLETED] < line.submitted}
        for block in dropped:
            if block.state == LIVE:
                self.totals.allocated -= block.size
                self.totals.frees += 1
            if queued:
                block.uses = dict(queued)
                block.timeline, block.value = next(iter(queued.items()))
            block.segment.kind.add(block)

    def _list(self, block: Block) -> None:
        """Have the timeline of a free block forgotten when its work is done."""
        if block.timeline is not None and not block.listed:
            block.listed = True
            self.pending.append(block)

    def _make_room(self, home: Bin, timeline: Timeline, surplus: int) -> Block | None:
        """Give back what has been free for long, before more is reserved than should be; or find a block on the way."""
        self._empty_bins()
        self._look(self._other(home.kind), home.size)
        block = self._take(home.kind, home.size, timeline)
        if block is None:
            self.totals.collected += self.segments.release(self.segments.spare(), surplus)
        return block

    def _in_need(self, home: Bin, timeline: Timeline, error: MemoryError) -> Block:
        """A block when the backend has no more."""
        self.totals.retries += 1
        hooks = [] if (self._common or self)._calling else list(self.hooks)  # else a hook that allocates would call itself
        self.find_dropped()
        while True:
            self._empty_bins()
            self._join_all_done()
            block = self._take_anywhere(home, timeline)
            if block is not None:
                return block
            self.segments.release(self.segments.idle())
            self._empty_others()
            try:
                return self.segments.grow(home.kind, home.size, timeline)
            except MemoryError:
                pass
            block = self._wait_for(home, timeline)
            if block is not None:
                return block
            if not hooks:
                break
            self._call(hooks.pop(0), home.size)
        self.totals.out_of_memory += 1
        raise self.out_of_memory(home.size) from error

    def _take_anywhere(self, home: Bin, timeline: Timeline) -> Block | None:
        """A block of either kind: now that memory is short, small pieces of a large segment, and large ones of a small."""
        size, other = home.size, self._other(home.kind)
        return self._take(home.kind, size, timeline, in_need=True) or self._take(other, size, timeline, in_need=True)

    def _other(self, kind: Extents) -> Extents:
        return self.segments.small if kind is self.segments.large else self.segments.large

    def _call(self, hook: Callable[[Device, int], object], nbytes: int) -> None:
        """Let a hook drop what it can; it may allocate and free."""
        common = self._common or self
        self.looking, common._calling = False, True
        try:
            with sigint_held.let_through():
                hook(self._device, nbytes)
        finally:
            self.looking, common._calling = True, False

    def _wait_for(self, home: Bin, timeline: Timeline) -> Block | None:
        """Memory that queued work still uses, with ``timeline`` held until that is done."""
        self._empty_bins(shared=True)
        self._join_all_done()
        first = block = self._row(home)
        if first is None and self.segments.growable and self.segments.bridge(home.size):
            first = block = self._row(home)
        if first is None:
            return None
        points: dict[Timeline, int] = {}
        nbytes = 0
        while nbytes < home.size:
            assert block is not None
            for user, value in block.pending().items():
                points[user] = max(value, points.get(user, 0))
            nbytes, block = nbytes + block.size, block.next
        held = self._hold(timeline, points)
        if held is None:
            return None
        taken = first.segment.kind.cut(first, home.size)
        self.totals.waits += 1
        taken.timeline, taken.value, taken.uses = timeline, held, None
        return taken

    def _row(self, home: Bin) -> Block | None:
        """The first of free neighbours of either kind that have room together."""
        return home.kind.row(home.size) or self._other(home.kind).row(home.size)

    def _empty_others(self) -> None:
        """Give back what the other pools of the device have cached."""
        common = self._common or self
        for other in (common, *common.others):
            if other is not self:
                other.empty()

    def out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        """The error, with the figures of now."""
        free, total, totals = self.segments.info()[0], self.segments.capacity(), self.totals
        return OutOfMemoryError(
            str(self._device), nbytes, allocated=totals.allocated, reserved=totals.reserved, free=free, total=total,
            in_flight=self.segments.in_flight(),
        )  # fmt: skip

    def empty(self) -> int:
        """Give all memory back that is cached and done with (lock held); returns how many bytes."""
        if self.looking or self.is_parents:
            return 0
        self.looking = True
        try:
            self.find_dropped()
            self._empty_bins()
            self._join_all_done()
            returned = self.segments.release(self.segments.idle())
            if self.abandonment is not None:
                self.segments.release_ranges()
            return returned
        finally:
            self.looking = False

    def forget_all_done(self) -> None:
        """Let go of timelines whose work is done, those of free blocks that several timelines used too (lock held)."""
        if not (self.looking or self.is_parents):
            self.segments.idle()

    def is_spent(self) -> bool:
        """Whether nobody will allocate from it again, and it has no memory any more."""
        return self.abandonment is not None and not self.segments.all()


def _cached(kind: Extents) -> int:
    """Bytes of one kind that are in bins."""
    return sum(len(home.free) * home.size for home in list(kind.bins))
