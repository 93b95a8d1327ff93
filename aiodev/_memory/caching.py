"""The caching allocator's policy: which memory serves which request, given what is still using it.

**Problem.** Raw allocation is slow everywhere (a driver call that may wait for the device; page faults), so freed memory is
kept and handed out again. It may still be in use by queued work when it is freed, and the host must not wait for that.

**Invariants.**

1.  A block is handed out to a timeline only if each use it was freed with is done, or is ordered before whatever that
    timeline is given from now on: on the same timeline, or because that timeline's frontier says so.
2.  Blocks of one size class are interchangeable; a request gets a block of its class or none. A class is at most 1/8 larger
    than the request, or 511 bytes where that is more.
3.  ``allocated`` is the sum of the blocks in use, ``reserved`` that of the segments held. Memory goes back to the backend by
    whole segments, with every block cached and no use running.
4.  A block is in use, or in the ``free`` list of its bin, or in the hands of one thread that is looking for a block.

The common case takes no lock: lists' ``append`` and ``pop`` are atomic, and so is a statement that calls nothing. A lock
guards segments only. ``release`` runs wherever the garbage collector likes, so it takes none.

Nothing here does input or output but through :class:`RawMemory`, and a timeline is whatever has ``counters`` and
``frontier``; so the policy is tested against a model.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aiodev._core.backend import COMPLETED
from aiodev._core.errors import OutOfMemoryError
from aiodev._memory.buffer import Buffer
from aiodev._memory.stats import Totals

if TYPE_CHECKING:
    from aiodev._core.device import Device
    from aiodev._core.timeline import Timeline

__all__ = ["Bin", "Block", "CachingAllocator", "RawMemory", "Segment", "size_class"]

GRANULE = 512
#: Requests up to this are carved from shared segments.
SMALL = 1 << 20
SEGMENT = 2 << 20
#: How many blocks of a bin are looked at, at most, before new memory is taken.
SEARCH = 64
_OPEN_SEGMENTS = 8
_REQUESTS_KEPT = 4096


class RawMemory(Protocol):
    """What the allocator takes memory from."""

    def allocate(self, nbytes: int) -> int:
        """Address of fresh memory; MemoryError when there is none."""

    def deallocate(self, address: int, nbytes: int) -> None:
        """Give it back."""

    def info(self) -> tuple[int, int]:
        """Bytes free and in total."""


def size_class(nbytes: int) -> int:
    """The size of the blocks that serve a request: 8 sizes for each doubling, multiples of 512."""
    last = nbytes - 1
    if last < 8 * GRANULE:
        return GRANULE if last < GRANULE else (last // GRANULE + 1) * GRANULE
    shift = last.bit_length() - 4
    return ((last >> shift) + 1) << shift


class Segment:
    """One raw allocation."""

    __slots__ = ("address", "blocks", "nbytes", "used")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.used = 0  # bytes that have become blocks
        self.blocks: list[Block] = []


class Bin:
    """The blocks of one size that are free."""

    __slots__ = ("free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[Block] = []


class Block:
    """A piece of a segment, through all its lives.

    While it is cached: the use that it was freed with, ``timeline`` being None when that is done. While it is in use: what
    its buffer inherited.
    """

    __slots__ = ("address", "bin", "cached", "segment", "size", "timeline", "uses", "value")

    def __init__(self, address: int, home: Bin, segment: Segment) -> None:
        self.address = address
        self.bin = home
        self.size = home.size
        self.segment = segment
        self.cached = False
        self.timeline: Timeline | None = None
        self.value = 0
        self.uses: dict[Timeline, int] | None = None

    def settle(self) -> bool:
        """Forget the uses that are done; whether none is left. Only for the one thread that holds the block."""
        if self.uses is not None:
            left = {t: v for t, v in self.uses.items() if t.counters[COMPLETED] < v}
            if len(left) > 1:
                self.uses = left
                return False
            self.timeline, self.value = next(iter(left.items())) if left else (None, 0)
            self.uses = None
        timeline = self.timeline
        if timeline is not None and timeline.counters[COMPLETED] >= self.value:
            self.timeline = None
        return self.timeline is None

    def forget(self) -> bool:
        """Forget the timeline of a cached block if its use is done; False if it is not. For any thread.

        From the test to the store nothing is called, so that nobody takes the block in between.
        """
        if self.uses is None:
            timeline = self.timeline
            if self.cached and timeline is not None:
                if timeline.counters[COMPLETED] < self.value:
                    return False
                self.timeline = None
            return True
        try:
            self.bin.free.remove(self)
        except ValueError:  # somebody has it
            return True
        done = self.settle()
        self.bin.free.append(self)
        return done

    def offer(self, timeline: Timeline) -> bool:
        """Whether ``timeline`` may have the block (invariant 1); then its use is one of that timeline."""
        if self.settle():
            return True
        clock = timeline.frontier[1]
        own = 0
        for t, v in ((self.timeline, self.value),) if self.uses is None else self.uses.items():
            if t is timeline:
                own = v
            elif clock.get(t, 0) < v:  # type: ignore[arg-type]
                return False
        if self.uses is not None or self.timeline is not timeline:
            # The wait that the frontier stems from is done only after all that it implies: it stands for the other uses.
            own = max(own, timeline.frontier[0])
        self.timeline, self.value, self.uses = timeline, own, None
        return True


_new = object.__new__


class CachingAllocator:
    """The memory of one device.

    Args:
        device: the device.
        raw: where memory comes from.
        host_accessible: whether the host may touch it.
    """

    def __init__(self, device: Device, raw: RawMemory, host_accessible: bool) -> None:
        self.device = device
        self.host_accessible = host_accessible
        self.totals = Totals()
        self.limit: int | None = None  #: bytes that may be reserved; None for any number
        self.segments: dict[int, Segment] = {}
        self._raw = raw
        self._bins: dict[int, Bin] = {}
        self._bin_of_request: dict[int, Bin] = {}
        self._open: list[Segment] = []
        self._pending: deque[Block] = deque()
        # Re-entrant: an allocation in a finalizer that the garbage collector runs while this thread holds it.
        self._lock = threading.RLock()

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
            block = self._new_block(home)
        if block.timeline is None:
            value = 0
        elif block.timeline is timeline and block.uses is None:
            value = block.value
        else:
            block = self._search(home, block, timeline)
            value = 0 if block.timeline is None else block.value
        block.cached = False
        totals = self.totals
        totals.allocations += 1
        totals.allocated_ever += block.size
        totals.allocated += block.size
        if totals.allocated > totals.peak_allocated:
            totals.peak_allocated = totals.allocated
        buffer = _new(Buffer)  # what its constructor does, in half the time
        buffer.address = block.address
        buffer.source = self
        buffer.block = block
        buffer._timeline = timeline
        buffer._value = value
        buffer._reader = timeline
        buffer._read = 0
        buffer._uses = None
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Cache a dead buffer's block, with the uses that are still running."""
        block: Block = buffer.block
        timeline, value, uses = buffer._timeline, buffer._value, buffer._uses
        if buffer._read:
            reader, read = buffer._reader, buffer._read
            if reader is timeline:
                value = max(value, read)
            else:
                uses = {} if uses is None else uses
                uses[reader] = max(read, uses.get(reader, 0))
        if uses is not None:
            if uses.get(timeline, 0) < value:
                uses[timeline] = value
            block.uses, block.timeline = uses, timeline
            if not block.settle():
                self._pending.append(block)
        elif timeline.counters[COMPLETED] >= value:
            block.timeline = None
        else:
            block.timeline, block.value = timeline, value
            self._pending.append(block)
        self.totals.allocated -= block.size
        self.totals.frees += 1
        block.cached = True
        block.bin.free.append(block)
        if self._pending:
            self._forget_done()

    def _forget_done(self) -> None:
        """Let go of timelines whose work is done, in order of release; two at each release keep up with what comes in.

        A cached block must not keep a closed stream's queue, so this cannot be left to the next use of the block.
        """
        pending = self._pending
        for _ in range(2):
            try:
                block = pending.popleft()
            except IndexError:
                return
            if not block.forget():
                pending.appendleft(block)
                return

    # Slow paths

    def _bin(self, nbytes: int) -> Bin:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        size = size_class(nbytes)
        if len(self._bin_of_request) >= _REQUESTS_KEPT:
            self._bin_of_request.clear()
        found = self._bin_of_request[nbytes] = self._bins.setdefault(size, Bin(size))
        return found

    def _search(self, home: Bin, unfit: Block, timeline: Timeline) -> Block:
        """A block of the bin that ``timeline`` may have, or a new one; ``unfit`` was taken from the bin."""
        taken = [unfit]
        try:
            while not taken[-1].offer(timeline):
                if len(taken) >= SEARCH:
                    break
                taken.append(home.free.pop())
            else:
                return taken.pop()
        except IndexError:
            pass
        finally:
            home.free.extend(reversed(taken))
        self.totals.passed_over += 1
        return self._new_block(home)

    def _new_block(self, home: Bin) -> Block:
        with self._lock:
            if home.size <= SMALL:
                for segment in reversed(self._open):
                    if segment.nbytes - segment.used >= home.size:
                        return self._carve(segment, home)
            segment = self._reserve(SEGMENT if home.size <= SMALL else home.size)
            block = self._carve(segment, home)
            if home.size <= SMALL:
                self._open.append(segment)
                del self._open[:-_OPEN_SEGMENTS]
            return block

    def _carve(self, segment: Segment, home: Bin) -> Block:
        block = Block(segment.address + segment.used, home, segment)
        segment.used += home.size
        segment.blocks.append(block)
        return block

    def _reserve(self, nbytes: int) -> Segment:
        totals = self.totals
        try:
            address = self._take(nbytes)
        except MemoryError:
            totals.retries += 1
            self.empty_cache()
            try:
                address = self._take(nbytes)
            except MemoryError as error:
                totals.out_of_memory += 1
                raise self.out_of_memory(nbytes) from error
        segment = self.segments[address] = Segment(address, nbytes)
        totals.reserve(nbytes)
        return segment

    def info(self) -> tuple[int, int]:
        """Bytes that the device has left for this process, and in total."""
        free, total = self._raw.info()
        if self.limit is not None:
            total = min(total, self.limit)
            free = max(0, min(free, self.limit - self.totals.reserved))
        return free, total

    def out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        """The error, with the figures of now."""
        free, total = self.info()
        totals = self.totals
        return OutOfMemoryError(
            str(self.device), nbytes, allocated=totals.allocated, reserved=totals.reserved, free=free, total=total
        )

    def _take(self, nbytes: int) -> int:
        if self.limit is not None and self.totals.reserved + nbytes > self.limit:
            raise MemoryError(f"{self.limit:,} bytes is this process's limit")
        return self._raw.allocate(nbytes)

    def empty_cache(self) -> int:
        """Give every segment back whose blocks are all cached and done with; returns how many bytes."""
        with self._lock:
            returned = 0
            for segment in self._take_idle_segments():
                self._raw.deallocate(segment.address, segment.nbytes)
                self.totals.unreserve(segment.nbytes)
                returned += segment.nbytes
            return returned

    def _take_idle_segments(self) -> list[Segment]:
        """Remove idle segments, with their blocks, from all that the allocator knows."""
        taken: list[Block] = []
        for home in list(self._bins.values()):
            try:
                while True:
                    taken.append(home.free.pop())
            except IndexError:
                pass
        idle: dict[int, int] = {}
        for block in taken:
            if block.settle():
                idle[block.segment.address] = idle.get(block.segment.address, 0) + 1
        gone = [s for s in self.segments.values() if s.blocks and idle.get(s.address, 0) == len(s.blocks)]
        for segment in gone:
            del self.segments[segment.address]
        self._open = [segment for segment in self._open if segment not in gone]
        for block in taken:
            if block.segment.address in self.segments:
                block.bin.free.append(block)
        return gone

    def settle(self) -> None:
        """Let go of every timeline whose work is done."""
        for _ in range(len(self._pending)):
            try:
                block = self._pending.popleft()
            except IndexError:  # another thread was faster
                return
            if not block.forget():
                self._pending.append(block)

    def each_block(self, visit: Callable[[Segment, list[Block]], None]) -> None:
        """Show each segment with its blocks, in order of address."""
        with self._lock:
            for address in sorted(self.segments):
                segment = self.segments[address]
                visit(segment, list(segment.blocks))
