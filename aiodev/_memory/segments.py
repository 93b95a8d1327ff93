"""Segments, the memory that an allocator takes from its backend: allocations, or ranges of addresses that grow.

A backend that can map memory into reserved addresses gets one range for each kind of request. Memory is mapped where it is
missing, next to what is free, so that a request is served by joining the two; what is given back leaves a hole of addresses,
which may be filled again. Other backends allocate segments of fixed size.

Small and large requests have segments of their own: a small array that lives long must not split a large piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.config import settings
from aiodev._memory.block import CACHED, FREE, HOLE, LIVE, TAKEN, Block, Extents, Segment
from aiodev._memory.stats import Totals
from aiodev._memory.tuning import COMMON, LARGE_SEGMENT, LITTLE, OWN_SEGMENT_FROM, SLACK, SMALL_SEGMENT

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["RawMemory", "Segments"]


class RawMemory(Protocol):
    """What the allocator takes memory from; see :class:`aiodev.backends.Backend` for what each method does."""

    def allocate(self, nbytes: int) -> int:
        """Address of fresh memory; MemoryError when there is none."""

    def deallocate(self, address: int, nbytes: int) -> None:
        """Give memory back to the backend."""

    def info(self) -> tuple[int, int]:
        """Bytes free and in total."""

    def granularity(self) -> int:
        """Ranges are mapped in multiples of so many bytes; 0 when there are no ranges."""

    def reserve_range(self, nbytes: int) -> int:
        """First address of a range without memory; MemoryError when there are no such addresses."""

    def map_range(self, address: int, nbytes: int) -> None:
        """Map memory into a part of a range; MemoryError when there is none."""

    def unmap_range(self, address: int, nbytes: int) -> None:
        """Give it back."""

    def release_range(self, address: int, nbytes: int) -> None:
        """Give back the addresses of a range that has no memory."""


class Segments:
    """The segments of one allocator, and how it takes them from the backend. Callers hold the allocator's lock.

    Attributes:
        small: free memory for small requests.
        large: for the others.
        pins: graphs that use what is free here, too.
    """

    def __init__(self, raw: RawMemory, totals: Totals) -> None:
        self.small = Extents("small", SMALL_SEGMENT)
        self.large = Extents("large", LARGE_SEGMENT)
        self._raw = raw
        self._totals = totals
        self.pins = 0
        self._granularity: int | None = None  # not asked yet: that may start the backend

    def all(self) -> list[Segment]:
        """All segments, in no order."""
        return self.small.segments + self.large.segments

    def info(self) -> tuple[int, int]:
        """Bytes that the device has left for this process, and its total, whatever this process may have of it."""
        free, total = self._raw.info()
        limit = self._totals.limit
        if limit is not None:
            free = max(0, min(free, limit - self._totals.reserved))
        return free, total

    def capacity(self) -> int:
        """Bytes that this process may have: the device's total, or the process's limit."""
        total = self._raw.info()[1]
        limit = self._totals.limit
        return total if limit is None else min(total, limit)

    @property
    def growable(self) -> bool:
        """Whether memory can be mapped into ranges."""
        if self._granularity is None:
            self._granularity = self._raw.granularity()
        return self._granularity > 0

    # More memory

    def grow(self, kind: Extents, size: int, timeline: Timeline) -> Block:
        """A block for ``timeline`` out of new memory, and out of what is free next to it.

        Raises:
            MemoryError: the backend, or this process's limit, refuses; nothing has changed then.
        """
        if self.growable:
            return self._fill_hole(kind, size, timeline)
        if size > kind.segment_size // COMMON:
            kind.let_own(timeline)
        block = self._new_segment(kind, size, timeline).first
        kind.let_own(timeline)  # the next one; the first is everybody's, since most streams never fill one
        return kind.cut(kind.add(block), size)

    def segment_for(self, kind: Extents, size: int, timeline: Timeline) -> Block:
        """A block of a segment of its own."""
        return self._allocate(kind, size, timeline).first

    def _new_segment(self, kind: Extents, size: int, timeline: Timeline) -> Segment:
        if kind is self.small or size < OWN_SEGMENT_FROM:
            try:
                return self._allocate(kind, kind.segment_size, timeline)
            except MemoryError:
                if size > kind.segment_size // 2:
                    raise
        return self._allocate(kind, -(-size // SMALL_SEGMENT) * SMALL_SEGMENT, timeline)

    def _allocate(self, kind: Extents, nbytes: int, timeline: Timeline) -> Segment:
        self._check(nbytes)
        segment = Segment(self._raw.allocate(nbytes), nbytes, kind, growable=False, owner=kind.owner_for(timeline))
        kind.segments.append(segment)
        self._totals.add_segment()
        self._totals.reserve(nbytes)
        return segment

    def _check(self, nbytes: int) -> None:
        limit = self._totals.limit
        if limit is not None and self._totals.reserved + nbytes > limit:
            raise MemoryError(f"{limit:,} bytes is this process's limit")

    def _fill_hole(self, kind: Extents, size: int, timeline: Timeline) -> Block:
        """Map memory into the hole that, with what is free before it, needs the least; of several the first."""
        best, least, start = None, 0, None
        for segment in kind.segments:
            for hole in segment.holes:
                first, usable = self._usable_before(hole, size, timeline)
                if usable >= size:  # the search did not come as far as this one
                    return kind.cut(first, size)
                missing = self._whole(size - usable)
                if hole.size >= missing and (best is None or missing < least):
                    best, least, start = hole, missing, first if missing < size else hole
        if best is None or start is None:
            best = start = self._reserve_range(kind, size)
            least = self._whole(size)
        return self._fill(kind, start, best, least, size)

    def _whole(self, nbytes: int) -> int:
        granularity = self._granularity or 1
        return -(-nbytes // granularity) * granularity

    def _usable_before(self, hole: Block, size: int, timeline: Timeline) -> tuple[Block, int]:
        """The first of the free blocks before a hole that serve ``timeline``, as many as are needed, and their bytes."""
        first, nbytes, before = hole, 0, hole.prev
        while nbytes < size and before is not None and before.state == FREE and before.serves(timeline) and before.uses is None:
            first, nbytes, before = before, nbytes + before.size, before.prev
        return first, nbytes

    def _fill(self, kind: Extents, block: Block, hole: Block, nbytes: int, size: int) -> Block:
        """Map memory into the first bytes of a hole, and join it with the free blocks before it, from ``block`` on.

        Without that memory they have less than ``size``, so that what is left over is new. They are not looked for anew: with
        those whose work is done by now there might be more, and what is left over would be memory that other work uses.
        """
        self._map(hole, nbytes)
        if block is not hole:
            kind.remove(block)
            while block.next is not hole:
                after = block.next
                assert after is not None
                kind.remove(after)
                block.absorb(after)
            block.absorb(hole)
        rest = block.cut(size)
        block.state = TAKEN
        if rest is not None:
            # It is new, whatever used what the block begins with: nobody's work has to be done before it serves anybody.
            rest.timeline = rest.uses = None
            kind.add(rest)
        return block

    def _map(self, hole: Block, nbytes: int) -> None:
        """Map memory into the first bytes of a hole, which become a free block, in no list."""
        self._check(nbytes)
        self._raw.map_range(hole.address, nbytes)
        self._totals.reserve(nbytes)
        holes = hole.segment.holes
        place = holes.index(hole)
        rest = hole.cut(nbytes)
        holes[place : place + 1] = [] if rest is None else [rest]
        hole.state = FREE

    def bridge(self, size: int) -> bool:
        """Map memory between free blocks, whatever uses those, so that ``size`` bytes are in a row; False if that cannot be.

        Of all places that which needs the least memory.
        """
        places = (place for segment in self.all() if segment.growable for place in self._gaps(segment, size))
        best = min(places, key=lambda place: place[0], default=None)
        if best is None:
            return False
        missing, run, begin, end = best
        try:
            self._check(missing)
            for hole in run[begin + 1 : end - 1]:
                if hole.state == HOLE:
                    missing -= hole.size
                    self._map(hole, hole.size)
                    hole.segment.kind.add(hole)
            first, last = run[begin], run[end - 1]
            if last.state == HOLE and missing:
                nbytes = min(missing, last.size)
                missing -= nbytes
                self._map(last, nbytes)
                last.segment.kind.add(last)
            if missing:
                rest = self._map_end(first, missing)
                rest.segment.kind.add(rest)
        except MemoryError:  # what was mapped is free
            return False
        return True

    def _map_end(self, hole: Block, nbytes: int) -> Block:
        """Map memory into the last bytes of a hole; the free block that they become, in no list."""
        rest = hole if hole.size == nbytes else hole.cut(hole.size - nbytes)
        assert rest is not None
        if rest is not hole:
            holes = hole.segment.holes
            holes.insert(holes.index(hole) + 1, rest)
        try:
            self._map(rest, nbytes)
        except MemoryError:
            if rest is not hole:
                hole.segment.holes.remove(rest)
                hole.absorb(rest)
            raise
        return rest

    def _gaps(self, segment: Segment, size: int) -> Iterator[tuple[int, list[Block], int, int]]:
        """Where there would be room for ``size`` if so many bytes were mapped: neighbours, free or holes, from one to another.

        Of those that begin at a block the fewest, and then more, while with more that is free less would have to be mapped.
        """
        run: list[Block] = []
        for block in (*segment.blocks(), None):
            if block is not None and block.state in (FREE, HOLE):
                run.append(block)
                continue
            for begin, first in enumerate(run):
                nbytes = {FREE: 0, HOLE: 0}  # of run[begin:end]
                for end in range(begin + 1, len(run) + 1):
                    last = run[end - 1]
                    nbytes[last.state] += last.size
                    if nbytes[FREE] and sum(nbytes.values()) >= size:
                        inside = nbytes[HOLE] - sum(one.size for one in {first, last} if one.state == HOLE)
                        missing = self._whole(size - nbytes[FREE])
                        yield max(inside, missing), run, begin, end
                        if inside >= missing:
                            break
                if sum(nbytes.values()) < size:
                    break
            run = []

    def _reserve_range(self, kind: Extents, size: int) -> Block:
        """A range that can hold all that the device has; where addresses are short, a smaller one.

        None for what the device can never hold: backends may take a size that no address space has for another one.

        Raises:
            MemoryError: there is none.
        """
        total = self._raw.info()[1]
        if size > total:
            raise MemoryError(f"{size:,} bytes asked for, the device has {total:,}")
        nbytes = self._whole(total)
        while True:
            try:
                address = self._raw.reserve_range(nbytes)
                break
            except MemoryError:
                if nbytes // 2 < size:
                    raise
                nbytes = self._whole(nbytes // 2)
        segment = Segment(address, nbytes, kind, growable=True)
        kind.segments.append(segment)
        self._totals.add_segment()
        return segment.first

    # Less memory

    def surplus(self, nbytes: int) -> int:
        """How many cached bytes should go back before so many more are reserved.

        What is reserved stays within the threshold of the settings; and, where memory can be moved between addresses by giving
        it back here and mapping it there, within a sixteenth of the most that was ever in use, if that is not little.
        """
        totals = self._totals
        wanted = totals.reserved + nbytes
        surplus = 0
        if self.growable:
            most = max(totals.peak_allocated, totals.allocated + nbytes)
            surplus = wanted - max(most + most // SLACK, LITTLE)  # in integers: what is asked for may be more than any float
        part = settings.memory_gc_threshold
        if part > 0:
            surplus = max(surplus, wanted - int(part * self.capacity()))
        return surplus

    def idle(self) -> list[Block]:
        """Free blocks that no work uses; those that have been free for the longest time first."""
        return [block for kind in (self.small, self.large) for block in kind.blocks() if block.forget_done()]

    def spare(self) -> list[Block]:
        """Of the idle blocks those that can be given back, or a part of them; in ranges, what is known to be idle alone."""
        if not self.growable:
            return self.idle()
        least = self._granularity or 1
        return [block for kind in (self.small, self.large) for block in kind.anybodys(least) if block.forget_done()]

    def in_flight(self) -> int:
        """Bytes that nobody has, and that work still uses."""
        blocks = (block for segment in self.all() for block in segment.blocks() if block.state in (FREE, CACHED))
        return sum(block.size for block in blocks if any(t.counters[COMPLETED] < v for t, v in block.pending().items()))

    def left_over(self) -> tuple[dict[Timeline, int], int, bool]:
        """What keeps memory that could not go back: the last operation of each timeline, and the number of live blocks.

        The third says whether more of it could go back by now.
        """
        points: dict[Timeline, int] = {}
        living, is_stale = 0, False
        for block in (block for segment in self.all() for block in segment.blocks()):
            if block.state not in (FREE, CACHED):
                living += block.state == LIVE
                continue
            pending = block.pending()
            left = {t: v for t, v in pending.items() if t is not None and t.counters[COMPLETED] < v}
            if not left:  # its work, or a release, came to its end since
                is_stale = is_stale or block.state == CACHED or bool(pending)
            for timeline, value in left.items():
                points[timeline] = max(value, points.get(timeline, 0))
        return points, living, is_stale

    def release(self, blocks: list[Block], enough: int | None = None) -> int:
        """Give free blocks back, as far as they are whole segments, or whole pieces of ranges; returns how many bytes.

        Nothing goes back while somebody uses what is free (``pins``).

        Args:
            enough: stop when so many bytes were given back; None for all.
        """
        returned = 0
        if self.pins:
            return 0
        left = deque(blocks)
        while left and (enough is None or returned < enough):
            block = left.popleft()
            if block not in block.segment.kind:
                # The end of one that was given back was joined with it, since work between the two was done by then.
                continue
            returned += self._unmap(block, left) if block.segment.growable else self._deallocate(block)
        return returned

    def release_ranges(self) -> None:
        """Give back the addresses of ranges that have no memory: the allocator is not used any more."""
        for kind in (self.small, self.large):
            for segment in [segment for segment in kind.segments if segment.growable and segment.is_empty()]:
                kind.segments.remove(segment)
                self._raw.release_range(segment.address, segment.nbytes)
                self._totals.remove_segment()

    def _deallocate(self, block: Block) -> int:
        segment = block.segment
        if block.size != segment.nbytes:
            return 0
        kind = segment.kind
        kind.remove(block)
        kind.segments.remove(segment)
        self._raw.deallocate(segment.address, segment.nbytes)
        self._totals.remove_segment()
        self._totals.unreserve(segment.nbytes)
        return segment.nbytes

    def _unmap(self, block: Block, left: deque[Block]) -> int:
        """Give back a block's whole pieces; ``left`` gets what its ends become, which may have whole pieces, too."""
        granularity = self._granularity or 1
        first = self._whole(block.address)
        last = (block.address + block.size) // granularity * granularity
        if first >= last:
            return 0
        kind, holes = block.segment.kind, block.segment.holes
        kind.remove(block)
        self._raw.unmap_range(first, last - first)
        self._totals.unreserve(last - first)
        hole = block
        if first > block.address:
            hole = block.cut(first - block.address) or block
        after = hole.cut(last - first)
        hole.state = HOLE
        if hole is not block:
            left.append(kind.add(block))
        if after is not None:
            left.append(kind.add(after))
        if hole.next is not None and hole.next.state == HOLE:
            holes.remove(hole.next)
            hole.absorb(hole.next)
        if hole.prev is not None and hole.prev.state == HOLE:
            hole.prev.absorb(hole)
        else:
            holes.append(hole)
            holes.sort(key=lambda hole: hole.address)
        return last - first
