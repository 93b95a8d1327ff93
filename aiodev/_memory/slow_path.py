"""Slow path of the caching allocator: taken when a request's size bin is empty.

The allocator serves such a request from the extents. Before it takes memory from the backend, it empties bins that hold much
into the extents, where neighbours are joined. Where segments cannot grow, it empties the bins of large blocks whenever one
misses: to cut a larger block, although a cached one would fit by itself or with its neighbours, fragments memory. Before it
reserves more than it should, it gives back what has been free for long. When the backend has no more, it gives back all unused
memory, has the requesting timeline wait for memory that others use, and calls hooks.

All of this happens under the lock that guards segments and extents. The common case, without the lock, is in
:mod:`aiodev._memory.allocator`, with the invariants of both.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.errors import OutOfMemoryError
from aiodev._core.sigint import sigint_held
from aiodev._core.timeline.timeline import living_timelines
from aiodev._memory.block import CACHED, FREE, LIVE, TAKEN, Bin, Block, Extents, Segment
from aiodev._memory.segments import RawMemory, Segments
from aiodev._memory.stats import Totals
from aiodev._memory.tuning import WORTHWHILE, WORTHWHILE_IN_SEGMENTS

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["SlowPath"]

_T = TypeVar("_T")


class SlowPath:
    """The bins, extents and segments of one allocator.

    Attributes:
        totals: accounts of the device.
        segments: the segments, and how they are taken from the backend.
        hooks: called when the device has no more memory.
        private_pools: the private pools of this device.
        number: 0, or that of a private pool.
        abandoned: nobody will allocate from it again.
        pending: cached or free blocks with a timeline to forget.
    """

    def __init__(
        self, device: Device, raw: RawMemory, hold: Callable[[Any, Any], int | None], common: Self | None
    ) -> None:
        self.device = device
        self.totals: Totals = Totals() if common is None else common.totals
        self.segments = Segments(raw, self.totals)
        self.hooks: list[Callable[[Device, int], object]] = [] if common is None else common.hooks
        self.private_pools: list[Self] = []
        self.number = 0
        self.abandoned = False
        self.pending: deque[Block] = deque()
        self._hold = hold
        self._common = common
        self._bins: dict[int, Bin] = {}
        # Re-entrant: an allocation in a finalizer that the garbage collector runs while this thread holds it.
        self._lock: threading.RLock = threading.RLock() if common is None else common._lock
        self._calling = False  # a hook, which may allocate (kept by the device's own allocator)
        self._looking = False  # a thread is at work on segments and extents
        self._apart = False  # free neighbours may be kept apart by work that is done by now

    def _find(self, home: Bin, timeline: Timeline) -> Block:
        """A block of the bin's size from the extents, else from the bins of other sizes, else from the backend."""
        with sigint_held, self._lock:
            if self._looking:  # a finalizer allocates, in the midst of what this thread does here
                return self._own_segment(home, timeline)
            self._looking = True
            try:
                block = self._cut(home, timeline)
                if block.next is not None and block.next.state == FREE:  # what is left of the free block, with its uses
                    self._list(block.next)
            finally:
                self._looking = False
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
        block = kind.take(size, timeline)
        if block is None and self._apart:
            self._rejoin()
            block = kind.take(size, timeline)
        if block is None and self._worth_emptying(home):
            self._empty_bins(home)
            block = kind.take(size, timeline)
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

    def _worth_emptying(self, home: Bin) -> bool:
        cached = _cached(home.kind)
        if not self.segments.growable and cached + home.kind.nbytes < home.size:
            return False  # in ranges, what is missing can be put beside it
        return cached >= (WORTHWHILE * self.totals.reserved if self.segments.growable else WORTHWHILE_IN_SEGMENTS)

    def _empty_bins(self, like: Bin | None = None, whatever_uses_it: bool = False) -> None:
        """Join what is cached, of one kind or of both, with the extents."""
        for kind in (self.segments.small, self.segments.large):
            if like is None or kind is like.kind:
                self._join_cached(kind, whatever_uses_it)
        self._rejoin(whatever_uses_it)

    def _join_cached(self, kind: Extents, whatever_uses_it: bool = False) -> None:
        """Join what is cached of one kind with the extents. What it costs is shared by those who have freed the blocks."""
        for home in list(kind.bins):
            taken: list[Block] = []
            try:
                while home.free:
                    taken.append(home.free.pop())
            except IndexError:  # another thread was faster
                pass
            for block in taken:
                if not block.forget_done() and block.uses is not None and not whatever_uses_it:
                    home.free.append(block)
                else:
                    self._list(block.segment.kind.add(block, whatever_uses_it))

    def _rejoin(self, whatever_uses_it: bool = False) -> None:
        """Join free neighbours; those that work keeps apart are looked at again."""
        self._apart = False
        for kind in (self.segments.small, self.segments.large):
            kind.rejoin(whatever_uses_it)
            for block in kind.blocks():
                self._list(block)

    def _find_dropped(self) -> None:
        """Free the blocks that nobody has: Ctrl-C came between a block and its buffer, or before a buffer's finalizer.

        Nothing but its neighbours refers to such a block. What used it is not known, so that all that is queued now counts.
        """
        # Segments that nobody has show how many references are the loops' own. Three, since a debugger may hold one, say.
        unused = [Segment(0, 0, self.segments.small, growable=False) for _ in range(3)]
        dropped, alone = [], sys.maxsize
        for segment in (*unused, *self.segments.all()):
            for block in segment.blocks():
                count = sys.getrefcount(block) - (block.next is not None) - block.listed
                if segment in unused:
                    alone = min(alone, count)
                elif count <= alone and block.state in (LIVE, CACHED, TAKEN):
                    dropped.append(block)
        lines = living_timelines() if dropped else ()
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
        if block.timeline is not None:
            self._apart = True
            if not block.listed:
                block.listed = True
                self.pending.append(block)

    def _make_room(self, home: Bin, timeline: Timeline, surplus: int) -> Block | None:
        """Give back what has been free for long, before more is reserved than should be; or find a block on the way."""
        self._empty_bins()
        block = home.kind.take(home.size, timeline)
        if block is None:
            self.totals.collected += self.segments.release(self.segments.idle(), surplus)
        return block

    def _in_need(self, home: Bin, timeline: Timeline, error: MemoryError) -> Block:
        """A block when the backend has no more."""
        self.totals.retries += 1
        hooks = [] if (self._common or self)._calling else list(self.hooks)  # else a hook that allocates would call itself
        self._find_dropped()
        while True:
            self._empty_bins()
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

    def _take_anywhere(self, home: Bin, timeline: Timeline | None) -> Block | None:
        """A block of either kind: now that memory is short, small pieces of a large segment, and large ones of a small."""
        segments = self.segments
        other = segments.small if home.kind is segments.large else segments.large
        return home.kind.take(home.size, timeline, in_need=True) or other.take(home.size, timeline, in_need=True)

    def _call(self, hook: Callable[[Device, int], object], nbytes: int) -> None:
        """Let a hook drop what it can; it may allocate and free."""
        common = self._common or self
        self._looking, common._calling = False, True
        try:
            with sigint_held.let_through():
                hook(self.device, nbytes)
        finally:
            self._looking, common._calling = True, False

    def _wait_for(self, home: Bin, timeline: Timeline) -> Block | None:
        """Memory that other timelines' work still uses, with ``timeline`` held until that is done."""
        self._empty_bins(whatever_uses_it=True)
        block = self._take_anywhere(home, None)
        if block is None:
            return None
        value = self._hold(timeline, block.pending())
        if value is None:
            block.segment.kind.add(block)
            return None
        self.totals.waits += 1
        block.timeline, block.value, block.uses = timeline, value, None
        return block

    def _empty_others(self) -> int:
        """Give back what the other pools of the device have cached."""
        common = self._common or self
        return sum(other._empty_own() for other in (common, *common.private_pools) if other is not self)

    def info(self) -> tuple[int, int]:
        """Bytes that the device has left for this process, and in total."""
        return self.segments.info()

    def out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        """The error, with the figures of now."""
        free, total = self.info()
        totals = self.totals
        return OutOfMemoryError(
            str(self.device), nbytes, allocated=totals.allocated, reserved=totals.reserved, free=free, total=total
        )

    def empty_cache(self) -> int:
        """Give all memory back that is cached and done with, by the private pools too; returns how many bytes."""
        with sigint_held, self._lock:
            returned = self._empty_own() + sum(other._empty_own() for other in self.private_pools)
            self.forget_abandoned()
            return returned

    def forget_abandoned(self) -> None:
        """Let go of private pools that nobody will allocate from again, and that have no memory any more."""
        self.private_pools = [other for other in self.private_pools if not other.abandoned or other.segments.all()]

    def pin(self) -> None:
        """Give nothing back from now on, not even what is free: a graph uses it."""
        with sigint_held, self._lock:
            self.segments.pins += 1

    def unpin(self) -> None:
        """End what ``pin`` began. Where nobody will allocate from it again, what is free goes back."""
        with sigint_held, self._lock:
            self.segments.pins -= 1
        self.return_abandoned()

    def return_abandoned(self) -> None:
        """Give back what is free, if nobody will allocate from it again."""
        if self.abandoned:
            self.empty_cache()

    def _empty_own(self) -> int:
        if self._looking:
            return 0
        self._looking = True
        try:
            self._find_dropped()
            self._empty_bins()
            returned = self.segments.release(self.segments.idle())
            if self.abandoned:
                self.segments.release_ranges()
            return returned
        finally:
            self._looking = False

    def forget_all_done(self) -> None:
        """Let go of every timeline whose work is done."""
        for _ in range(len(self.pending)):
            try:
                block = self.pending.popleft()
            except IndexError:  # another thread was faster
                return
            if block.forget():
                block.listed = False
            else:
                self.pending.append(block)
        with sigint_held, self._lock:
            if not self._looking:
                self.segments.idle()  # settles free blocks, those that several timelines used too

    def each_segment(self, describe: Callable[[Self, Segment, list[Block]], _T]) -> list[_T]:
        """What ``describe`` says of each segment and its blocks."""
        with sigint_held, self._lock:
            return [describe(self, segment, list(segment.blocks())) for segment in self.segments.all()]


def _cached(kind: Extents) -> int:
    """Bytes of one kind that are in bins."""
    return sum(len(home.free) * home.size for home in list(kind.bins))
