"""The caching allocator's policy: which memory serves which request, given what is still using it.

**Problem.** Raw allocation is slow everywhere (a driver call that may wait for the device; page faults), so freed memory is
kept and handed out again. It may still be in use by queued work when it is freed, and the host must not wait for that.

**How.** In two layers. *Bins* hold blocks as they were freed, one bin for each size: a program that asks again for what it had
before is served there, without a lock. What no bin has comes from the *extents* of free memory, by best fit, and is cut to
size. Before memory is taken from the backend, bins that hold much are emptied into the extents, where neighbours are joined.

**Invariants.**

1.  A block is handed out to a timeline only if each use it was freed with is done, or is ordered before whatever that
    timeline is given from now on: on the same timeline, or because that timeline's frontier says so.
2.  A block in use has the size of its bin: the request's, rounded up by at most 1/16, or 511 bytes where that is more.
3.  ``allocated`` is the sum of the blocks in use, ``reserved`` that of the segments' memory. Memory goes back to the backend
    only where no use is running.
4.  The blocks of a segment cover it without gaps or overlaps. Each is live, or cached in its bin, or free in the extents, or a
    hole, or in the hands of one thread that is looking for memory.

The common case takes no lock: lists' ``append`` and ``pop`` are atomic, and so is a statement that calls nothing. A lock
guards segments and extents. ``release`` runs wherever the garbage collector likes, so it takes none.

Nothing here does input or output but through :class:`~aiodev._memory.supply.RawMemory`, and a timeline is whatever has
``counters`` and a ``frontier``; so the policy is tested against a model.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aiodev._core.backend import COMPLETED
from aiodev._core.errors import OutOfMemoryError
from aiodev._core.finalizing import until_exit
from aiodev._core.holding import hold_until
from aiodev._memory.block import CACHED, FREE, LIVE, Bin, Block, Segment
from aiodev._memory.buffer import Buffer
from aiodev._memory.extents import SEARCH
from aiodev._memory.stats import Totals
from aiodev._memory.supply import GRANULE, SMALL, RawMemory, Supply

if TYPE_CHECKING:
    from aiodev._core.device import Device
    from aiodev._core.timeline import Timeline

__all__ = ["CachingAllocator", "DeviceBuffer", "size_class"]

_T = TypeVar("_T")
_REQUESTS_KEPT = 4096
#: Bins are emptied before memory is taken if they hold this much of what there is.
_WORTHWHILE = 1 / 8


def size_class(nbytes: int) -> int:
    """The size of the blocks that serve a request: 16 sizes for each doubling, multiples of 512."""
    last = nbytes - 1
    if last < 16 * GRANULE:
        return GRANULE if last < GRANULE else (last // GRANULE + 1) * GRANULE
    shift = last.bit_length() - 5
    return ((last >> shift) + 1) << shift


@until_exit
class DeviceBuffer(Buffer):
    """Memory of a :class:`CachingAllocator`."""

    __slots__ = ()

    block: Block
    source: CachingAllocator

    def __del__(self) -> None:
        """Cache the block, with the uses that are still running."""
        block = self.block
        timeline, value, read = self._timeline, self._value, self._read
        if self._uses is None and (not read or self._reader is timeline):
            if value < read:
                value = read
            if timeline.counters[COMPLETED] >= value:
                block.timeline = None
            else:
                block.timeline, block.value = timeline, value
        else:
            self._leave_uses(block)
        source = self.source
        totals = source.totals
        totals.allocated -= block.size
        totals.frees += 1
        block.state = CACHED
        block.bin.free.append(block)  # type: ignore[union-attr]
        if block.timeline is not None and not block.listed:
            block.listed = True
            source.pending.append(block)
        if source.pending:
            source.forget_done()

    def _leave_uses(self, block: Block) -> None:
        uses: dict[Timeline, int] = {}
        for timeline, value in self.uses():
            if uses.get(timeline, 0) < value:
                uses[timeline] = value
        block.uses = uses
        block.settle()


_new = object.__new__


class CachingAllocator:
    """The memory of one device, or a pool of it that serves nobody else.

    Args:
        device: the device.
        raw: where memory comes from.
        host_accessible: whether the host may touch it.
        hold: see :func:`~aiodev._core.holding.hold_until`.
        common: for a private pool, the device's own allocator; they share accounts, limit, hooks and lock.

    Attributes:
        private: the private pools of this device.
        number: 0, or that of a private pool.
        abandoned: nobody will allocate from it again.
    """

    def __init__(
        self, device: Device, raw: RawMemory, host_accessible: bool,
        hold: Callable[[Any, Any], int | None] = hold_until, common: CachingAllocator | None = None,
    ) -> None:  # fmt: skip
        self.device = device
        self.host_accessible = host_accessible
        self.totals: Totals = Totals() if common is None else common.totals
        self.supply = Supply(raw, self.totals)
        self.hooks: list[Callable[[Device, int], object]] = [] if common is None else common.hooks
        self.private: list[CachingAllocator] = []
        self.number = 0
        self.abandoned = False
        self.pending: deque[Block] = deque()  #: cached or free blocks with a timeline to forget
        self._raw = raw
        self._hold = hold
        self._common = common
        self._pools_made = 0
        self._bins: dict[int, Bin] = {}
        self._bin_of_request: dict[int, Bin] = {}
        # Re-entrant: an allocation in a finalizer that the garbage collector runs while this thread holds it.
        self._lock: threading.RLock = threading.RLock() if common is None else common._lock
        self._looking = False  # a thread is at work on segments and extents

    def make_private(self) -> CachingAllocator:
        """A pool of this device's memory that serves nobody else."""
        with self._lock:
            made = type(self)(self.device, self._raw, self.host_accessible, self._hold, self)
            self._pools_made += 1
            made.number = self._pools_made
            self.private.append(made)
            return made

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """A buffer for work that ``timeline`` is given from now on.

        Raises:
            OutOfMemoryError: the backend has no more, even after all that can be released was.
        """
        home = self._bin_of_request.get(nbytes)
        if home is None:
            home = self._bin(nbytes)
        try:
            block = home.free.pop()
        except IndexError:
            block = self._find(home, timeline)
        used_by = block.timeline
        if used_by is None:
            value = 0
        elif used_by is timeline and block.uses is None:
            value = block.value
        else:
            block = self._search(home, block, timeline)
            value = 0 if block.timeline is None else block.value
        block.state = LIVE
        totals = self.totals
        totals.allocations += 1
        totals.allocated_ever += block.size
        totals.allocated += block.size
        if totals.allocated > totals.peak_allocated:
            totals.peak_allocated = totals.allocated
        buffer = _new(DeviceBuffer)  # what its constructor does, in half the time
        buffer.address = block.address
        buffer.source = self
        buffer.block = block
        buffer._timeline = buffer._reader = timeline
        buffer._value = value
        buffer._read = 0
        buffer._uses = None
        return buffer

    def forget_done(self) -> None:
        """Let go of timelines whose work is done, in order of release; two at each release keep up with what comes in.

        A cached block must not keep a closed stream's queue, so this cannot be left to the next use of the block.
        """
        pending = self.pending
        for _ in range(2):
            try:
                block = pending.popleft()
            except IndexError:
                return
            if not block.forget():
                pending.appendleft(block)
                return
            block.listed = False

    # Slow paths

    def _bin(self, nbytes: int) -> Bin:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        size = size_class(nbytes)
        if len(self._bin_of_request) >= _REQUESTS_KEPT:
            self._bin_of_request.clear()
        supply = self.supply
        kind = supply.small if size <= SMALL else supply.large
        found = self._bin_of_request[nbytes] = self._bins.setdefault(size, Bin(size, kind))
        return found

    def _search(self, home: Bin, unfit: Block, timeline: Timeline) -> Block:
        """A block of the bin's size that ``timeline`` may have; ``unfit`` was taken from the bin."""
        taken = [unfit]
        try:
            while not taken[-1].serves(timeline):
                if len(taken) >= SEARCH:
                    break
                taken.append(home.free.pop())
            else:
                block = taken.pop()
                self.totals.ordered += block.hand_to(timeline)
                return block
        except IndexError:
            pass
        finally:
            home.free.extend(reversed(taken))
        self.totals.passed_over += 1
        return self._find(home, timeline)

    def _find(self, home: Bin, timeline: Timeline) -> Block:
        """A block of the bin's size from the extents, or, in this order: from the bins of other sizes, from the backend."""
        with self._lock:
            if self._looking:  # a finalizer allocates, in the midst of what this thread does here
                return self._own_segment(home)
            self._looking = True
            try:
                block = self._cut(home, timeline)
                if block.next is not None and block.next.state == FREE:  # what is left of the free block, with its uses
                    self._list(block.next)
            finally:
                self._looking = False
            self.totals.ordered += block.hand_to(timeline)
            return block

    def _list(self, block: Block) -> None:
        """Have the timeline of a free block forgotten when its work is done."""
        if block.timeline is not None and not block.listed:
            block.listed = True
            self.pending.append(block)

    def _cut(self, home: Bin, timeline: Timeline) -> Block:
        kind, size = home.kind, home.size
        block = kind.take(size, timeline)
        if block is None and self._worth_emptying(home):
            self._empty_bins(home)
            block = kind.take(size, timeline)
        if block is None:
            surplus = self.supply.surplus(size)
            if surplus > 0:
                block = self._make_room(home, timeline, surplus)
        if block is None:
            try:
                block = self.supply.grow(kind, size, timeline)
            except MemoryError as error:
                block = self._in_need(home, timeline, error)
        block.bin = home
        return block

    def _worth_emptying(self, home: Bin) -> bool:
        kind = home.kind
        cached = sum(len(other.free) * other.size for other in list(self._bins.values()) if other.kind is kind)
        enough = self.supply.growable or cached + kind.nbytes >= home.size  # what is missing can be put beside it
        return enough and cached >= _WORTHWHILE * self.totals.reserved

    def _empty_bins(self, like: Bin | None = None, whatever_uses_it: bool = False) -> None:
        """Join what is cached, of one kind or of both, with the extents."""
        for home in list(self._bins.values()):
            if like is None or home.kind is like.kind:
                taken: list[Block] = []
                try:
                    while True:
                        taken.append(home.free.pop())
                except IndexError:
                    pass
                for block in taken:
                    if not block.settle() and block.uses is not None and not whatever_uses_it:
                        home.free.append(block)
                    else:
                        block.segment.kind.add(block, whatever_uses_it)
        for kind in (self.supply.small, self.supply.large):
            kind.rejoin(whatever_uses_it)
            for block in kind.blocks():
                self._list(block)

    def _make_room(self, home: Bin, timeline: Timeline, surplus: int) -> Block | None:
        """Give back what has been free for long, before more is reserved than should be; or find a block on the way."""
        self._empty_bins()
        block = home.kind.take(home.size, timeline)
        if block is None:
            self.totals.collected += self.supply.release(self.supply.idle(), surplus)
        return block

    def _in_need(self, home: Bin, timeline: Timeline, error: MemoryError) -> Block:
        """A block when the backend has no more."""
        self.totals.retries += 1
        hooks = list(self.hooks)
        while True:
            self._empty_bins()
            block = self._take_anywhere(home, timeline)
            if block is not None:
                return block
            self.supply.release(self.supply.idle())
            self._empty_others()
            try:
                return self.supply.grow(home.kind, home.size, timeline)
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
        supply = self.supply
        other = supply.small if home.kind is supply.large else supply.large
        return home.kind.take(home.size, timeline) or other.take(home.size, timeline)

    def _call(self, hook: Callable[[Device, int], object], nbytes: int) -> None:
        """Let a hook drop what it can; it may allocate and free."""
        self._looking = False
        try:
            hook(self.device, nbytes)
        finally:
            self._looking = True

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

    def _own_segment(self, home: Bin) -> Block:
        try:
            block = self.supply.segment_for(home.kind, home.size)
        except MemoryError as error:
            raise self.out_of_memory(home.size) from error
        block.bin = home
        return block

    def info(self) -> tuple[int, int]:
        """Bytes that the device has left for this process, and in total."""
        return self.supply.info()

    def out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        """The error, with the figures of now."""
        free, total = self.info()
        totals = self.totals
        return OutOfMemoryError(
            str(self.device), nbytes, allocated=totals.allocated, reserved=totals.reserved, free=free, total=total
        )

    def _empty_others(self) -> int:
        """Give back what the other pools of the device have cached."""
        common = self._common or self
        return sum(other._empty_own() for other in (common, *common.private) if other is not self)

    def empty_cache(self) -> int:
        """Give all memory back that is cached and done with, by the private pools too; returns how many bytes."""
        with self._lock:
            returned = self._empty_own() + sum(other._empty_own() for other in self.private)
            self.private = [other for other in self.private if not other.abandoned or other.supply.segments()]
            return returned

    def _empty_own(self) -> int:
        if self._looking:
            return 0
        self._looking = True
        try:
            self._empty_bins()
            return self.supply.release(self.supply.idle())
        finally:
            self._looking = False

    def settle(self) -> None:
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
        with self._lock:
            if not self._looking:
                self.supply.idle()  # settles free blocks, those that several timelines used too

    def each_segment(self, describe: Callable[[CachingAllocator, Segment, list[Block]], _T]) -> list[_T]:
        """What ``describe`` says of each segment and its blocks."""
        with self._lock:
            return [describe(self, segment, list(segment.blocks())) for segment in self.supply.segments()]
