"""The caching allocator's policy: which memory serves which request, given what is still using it.

**Problem.** Raw allocation is slow everywhere (a driver call that may wait for the device; page faults), so freed memory is
kept and handed out again. It may still be in use by queued work when it is freed, and the host must not wait for that.

**How.** In two layers. *Bins* hold blocks as they were freed, one bin for each size: a program that asks again for what it had
before is served there, without a lock. What no bin has comes from the *extents* of free memory, by best fit, and is cut to
size. Before memory is taken from the backend, bins that hold much are emptied into the extents, where neighbours are joined.
The first layer is here, the second in :mod:`aiodev._memory.slow_path`.

**Invariants.**

1.  A block is handed out to a timeline only if each use it was freed with is done, or is ordered before whatever that
    timeline is given from now on: on the same timeline, or because that timeline's frontier says so.
2.  A block in use has the size of its bin: the request's, rounded up by at most 1/16, or 511 bytes where that is more.
3.  ``allocated`` is the sum of the blocks in use, ``reserved`` that of the segments' memory. Memory goes back to the backend
    only where no use is running.
4.  The blocks of a segment cover it without gaps or overlaps. Each is live, or cached in its bin, or free in the extents, or a
    hole, or in the hands of one thread that is looking for memory.
5.  Whatever Ctrl-C tears, nothing is handed out twice, and what it dropped is found again when memory is short. What holds the
    lock is not torn at all.

The common case takes no lock: lists' ``append`` and ``pop`` are atomic, and so is a statement that calls nothing. A lock
guards segments and extents. A buffer is finalized wherever the garbage collector likes, so that takes none.

Nothing here does input or output but through :class:`~aiodev._memory.segments.RawMemory`, and a timeline is whatever has
``counters`` and a ``frontier``; so the policy is tested against a model.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.finalizing import until_exit
from aiodev._core.sigint import sigint_held
from aiodev._core.waiting.block_until import hold_until
from aiodev._memory.abandonment import Abandonment, take_turns
from aiodev._memory.block import CACHED, LIVE, Bin, Block, Segment
from aiodev._memory.buffer import Buffer, Uses
from aiodev._memory.segments import RawMemory
from aiodev._memory.slow_path import SlowPath
from aiodev._memory.stats import Totals
from aiodev._memory.tuning import GRANULE, SEARCH, SMALL

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["CachingAllocator", "DeviceBuffer", "size_class"]

_T = TypeVar("_T")


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

    is_own = True

    block: Block
    source: CachingAllocator

    def _release(self) -> None:
        """Cache the block, with the uses that are still running. Native code does what is usual here, and calls this else."""
        try:
            block = self.block
        except AttributeError:  # Ctrl-C came before it was made
            return
        timeline, value, read = self._writer, self._written, self._read
        if self._readers is None and (self._reader is timeline or (not read and not isinstance(timeline, Uses))):
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
        block.bin.free.append(block)  # type: ignore[union-attr]  # a live block has one
        if block.timeline is not None and not block.listed:
            block.listed = True
            source.pending.append(block)
        pending = source.pending
        if pending:
            try:
                first = pending[0]
                last = first.timeline
                if last is None or first.uses is not None or last.counters[COMPLETED] >= first.value:
                    source.forget_done()
                else:  # as usual, while a stream is busy: the next one at the next release
                    pending.rotate(-1)
            except (IndexError, AttributeError):  # another thread was faster
                pass

    __del__ = _release

    def _leave_uses(self, block: Block) -> None:
        uses: dict[Timeline, int] = {}
        for timeline, value in self.uses():
            if uses.get(timeline, 0) < value:
                uses[timeline] = value
        block.uses = uses
        block.forget_done()


_new = object.__new__


class CachingAllocator:
    """The memory of one device, or a pool of it that serves nobody else.

    Args:
        device: the device.
        raw: where memory comes from.
        host_accessible: whether the host may touch it.
        hold: see :func:`~aiodev._core.waiting.block_until.hold_until`.
        common: for a private pool, the device's own allocator; they share accounts, limit, hooks and lock.

    Attributes:
        slow_path: where memory comes from that no bin has.
        totals: accounts of the device.
        pending: cached or free blocks with a timeline to forget.
        number: 0, or that of a private pool.
        private_pools: the private pools of this device.
    """

    __slots__ = ("__dict__", "__weakref__", "_bins", "pending", "totals")  # native code reads these three

    _bins: dict[int, Bin]
    pending: deque[Block]
    totals: Totals

    def __init__(
        self, device: Device, raw: RawMemory, host_accessible: bool,
        hold: Callable[[Any, Any], int | None] = hold_until, common: Self | None = None,
    ) -> None:  # fmt: skip
        self.device = device
        self.host_accessible = host_accessible
        self.slow_path: SlowPath = SlowPath(device, raw, hold, None if common is None else common.slow_path)
        self.totals = self.slow_path.totals
        self.pending = self.slow_path.pending
        self.number = 0
        self.private_pools: list[Self] = []
        self._raw = raw
        self._hold = hold
        self._pools_made = 0
        self._bins: dict[int, Bin] = {}

    def make_private(self) -> Self:
        """A pool of this device's memory that serves nobody else."""
        with sigint_held, self.slow_path.lock:
            take_turns(self.slow_path.turns)
            made = type(self)(self.device, self._raw, self.host_accessible, self._hold, self)
            self._pools_made += 1
            made.number = self._pools_made
            self._keep([*self.private_pools, made])
            return made

    def _keep(self, pools: Iterable[Self]) -> None:
        """Have these private pools, but for those that nobody will allocate from again, and that have no memory any more."""
        self.private_pools = [pool for pool in pools if not pool.slow_path.is_spent()]
        self.slow_path.others = [pool.slow_path for pool in self.private_pools]

    def _allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """A buffer for work that ``timeline`` is given from now on.

        Raises:
            OutOfMemoryError: the backend has no more, even after all that can be released was.
        """
        home = (nbytes >= 0 and self._bins.get(size_class(nbytes))) or self._bin(nbytes)
        try:
            block = home.free.pop()
        except IndexError:
            block = self.slow_path.find(home, timeline)
        used_by = block.timeline
        if used_by is None:
            value = 0
        else:
            if used_by is not timeline or block.uses is not None:
                block = self._search(home, block, timeline)
            value = 0 if block.timeline is None else block.value
            block.timeline = None  # a live block would keep it, and whatever it knows of failures, for as long as it lives
        block.state = LIVE
        totals = self.totals
        size = block.size
        totals.allocations += 1
        totals.allocated_ever += size
        allocated = totals.allocated = totals.allocated + size
        if allocated > totals.peak_allocated:
            totals.peak_allocated = allocated
        buffer = _new(DeviceBuffer)  # what its constructor does, in half the time
        buffer.address = block.address
        buffer.source = self
        buffer.block = block
        buffer._writer = buffer._reader = timeline
        buffer._written = 0
        buffer._read = value
        buffer._readers = None
        return buffer

    #: Native code does what is usual there, and calls this else.
    allocate = _allocate

    def forget_done(self) -> None:
        """Let go of timelines whose work is done, by turns; two at each release keep up with what comes in.

        A cached block must not keep a closed stream's queue, so this cannot be left to the next use of the block; nor to the
        work of another stream, which may be held for long.
        """
        pending = self.pending
        abandonment = self.slow_path.abandonment
        if abandonment is not None:
            abandonment.note_release()
            return
        for _ in range(2):
            try:
                block = pending.popleft()
            except IndexError:
                return
            if block.forget():
                block.listed = False
            else:
                pending.append(block)

    def forget_all_done(self) -> None:
        """Let go of every timeline whose work is done."""
        pending, slow_path = self.pending, self.slow_path
        for _ in range(len(pending)):
            try:
                block = pending.popleft()
            except IndexError:  # another thread was faster
                return
            if block.forget():
                block.listed = False
            else:
                pending.append(block)
        with sigint_held, slow_path.lock:
            slow_path.forget_all_done()

    def empty_cache(self) -> int:
        """Give all memory back that is cached and done with, by the private pools too; returns how many bytes."""
        with sigint_held, self.slow_path.lock:
            returned = self.slow_path.empty() + sum(pool.slow_path.empty() for pool in self.private_pools)
            self._keep(self.private_pools)
            return returned

    def leave_to_parent(self) -> None:
        """In a forked child: give back nothing of this device's memory, which is the parent's."""
        lock = threading.RLock()  # another thread of the parent may have held the one that they share
        for path in (self.slow_path, *self.slow_path.others):
            path.lock, path.is_parents = lock, True

    def abandon(self) -> None:
        """Give back what is free, and the rest when work and arrays are done with it: nobody will allocate from it again."""
        path = self.slow_path
        if path.abandonment is None:
            path.abandonment = Abandonment(path)
        self.return_abandoned()
        take_turns(path.turns)

    def return_abandoned(self) -> None:
        """Give back what is free, if nobody will allocate from it again."""
        abandonment = self.slow_path.abandonment
        if abandonment is not None:
            with sigint_held, self.slow_path.lock:
                self.empty_cache()
                abandonment.note()

    def pin(self) -> None:
        """Give nothing back from now on, not even what is free: a graph uses it."""
        with sigint_held, self.slow_path.lock:
            self.slow_path.segments.pins += 1

    def unpin(self) -> None:
        """End what ``pin`` began. Where nobody will allocate from it again, what is free goes back."""
        with sigint_held, self.slow_path.lock:
            self.slow_path.segments.pins -= 1
        self.return_abandoned()

    def each_segment(self, describe: Callable[[Self, Segment, list[Block]], _T]) -> list[_T]:
        """What ``describe`` says of each segment and its blocks."""
        with sigint_held, self.slow_path.lock:
            return [describe(self, segment, list(segment.blocks())) for segment in self.slow_path.segments.all()]

    def _bin(self, nbytes: int) -> Bin:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        size = size_class(nbytes)
        home = self._bins.get(size)
        if home is None:
            segments = self.slow_path.segments
            kind = segments.small if size <= SMALL else segments.large
            made = Bin(size, kind)
            home = self._bins.setdefault(size, made)
            if home is made:
                kind.bins.append(made)
        return home

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
        return self.slow_path.find(home, timeline)
