"""Blocks: the pieces that segments are cut into, who may have one that queued work still uses, and where free ones are found.

A block is in one of five states. *Live*: a buffer has it. *Cached*: it is in its bin, as it was freed. *Free*: it is in the
extents of its kind, where neighbours are joined. *Taken*: it was free, and is to become live. A *hole* has no memory behind it;
only ranges of addresses have holes.

**Invariants of extents.**

1.  A free block's neighbours are not free, unless other timelines use them: joined, each would wait for the other's work.
2.  A joined block is free for those for whom all its parts are.
3.  A timeline finds its own blocks, and those that are anybody's, however many of others there are: each timeline has a
    list. A block is in that of the timeline whose work uses it; a piece of a segment that cannot grow, in that of the
    segment's owner.

The lists are sorted by size, then address, so that the smallest block that is large enough is taken, and of several the first:
what is at high addresses becomes free as a whole. Blocks whose work is done since, or whose owner is gone, change lists when
they are joined again. Whoever calls extents holds the allocator's lock.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from aiodev._core.backend.interface import COMPLETED
from aiodev._memory.tuning import GLANCE, SEARCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiodev._core.timeline.timeline import Timeline

__all__ = ["CACHED", "FREE", "HOLE", "LIVE", "TAKEN", "Bin", "Block", "Extents", "Segment"]

LIVE: Final = 0
CACHED: Final = 1
FREE: Final = 2
HOLE: Final = 3
TAKEN: Final = 4
#: The lists of blocks that are anybody's, and of those that several timelines use.
_ANYBODYS, _SHARED = 0, -1


class Segment:
    """One allocation of the backend's, or one range of addresses; its blocks cover it without gaps.

    Attributes:
        first: the block at its first address.
        growable: whether it is a range, whose memory comes and goes.
        holes: where it has no memory, in order of address.
        kind: the extents that its blocks belong to.
        owner: the timeline that it was allocated for, while that lives; None for a range, which is for all.
    """

    __slots__ = ("address", "first", "growable", "holes", "kind", "nbytes", "owner")

    def __init__(
        self, address: int, nbytes: int, kind: Extents, growable: bool, owner: weakref.ref[Timeline] | None = None
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.kind = kind
        self.growable = growable
        self.owner = owner
        self.first = Block(address, nbytes, self, HOLE if growable else TAKEN)
        self.holes = [self.first] if growable else []

    def blocks(self) -> Iterator[Block]:
        """All blocks in order of address, holes included."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next

    def is_empty(self) -> bool:
        """Whether it has no memory, but addresses."""
        return self.first.state == HOLE and self.first.next is None

    def mapped(self) -> int:
        """Bytes that are memory."""
        return sum(block.size for block in self.blocks() if block.state != HOLE)


class Bin:
    """The cached blocks of one size."""

    __slots__ = ("free", "kind", "size")

    def __init__(self, size: int, kind: Extents) -> None:
        self.size = size
        self.kind = kind
        self.free: list[Block] = []


class Block:
    """A piece of a segment.

    While it is cached or free, the work that may still use it: operation ``value`` of ``timeline``, None when there is none;
    where several timelines do, all of them are in ``uses``, and ``timeline`` is any of them. A live block has none: its buffer
    has taken them over.
    """

    __slots__ = (
        "address", "bin", "listed", "next", "prev", "segment", "site", "size", "state", "timeline", "uses", "value"
    )  # fmt: skip

    def __init__(self, address: int, size: int, segment: Segment, state: int) -> None:
        self.address = address
        self.size = size
        self.segment = segment
        self.state = state
        self.bin: Bin | None = None
        self.prev: Block | None = None
        self.next: Block | None = None
        self.timeline: Timeline | None = None
        self.value = 0
        self.uses: dict[Timeline, int] | None = None
        self.site = 0  #: where it was allocated, when that is recorded
        self.listed = False  #: among those whose timelines the allocator is to forget

    def __repr__(self) -> str:
        state = ("live", "cached", "free", "hole", "taken")[self.state]
        return f"<{state} block of {self.size:,} bytes at {self.address:#x}>"

    # Uses

    def forget_done(self) -> bool:
        """Forget the uses that are done; whether none is left. Only the thread that holds the block may call it."""
        if self.uses is not None:
            left = {t: v for t, v in self.uses.items() if t.counters[COMPLETED] < v}
            if len(left) > 1:
                self.uses = left
                self.timeline, self.value = next(iter(left.items()))
                return False
            self.timeline, self.value = next(iter(left.items())) if left else (None, 0)
            self.uses = None
        timeline = self.timeline
        if timeline is not None and timeline.counters[COMPLETED] >= self.value:
            self.timeline = None
        return self.timeline is None

    def forget(self) -> bool:
        """Forget the timeline of a cached or free block if its use is done; False if it is not. For any thread.

        From the test to the store nothing is called, so that nobody takes the block, or joins it to another, in between.
        """
        if self.uses is None:
            timeline = self.timeline
            if timeline is not None and (self.state == CACHED or self.state == FREE):
                if timeline.counters[COMPLETED] < self.value:
                    return False
                self.timeline = None
            return True
        if self.state != CACHED or self.bin is None:
            return True  # settled when somebody looks for memory
        home = self.bin
        try:
            home.free.remove(self)
        except ValueError:  # somebody has it
            return True
        done = self.forget_done()
        home.free.append(self)
        return done

    def pending(self) -> dict[Timeline, int]:
        """The last use on each timeline, done or not."""
        if self.uses is not None:
            return self.uses
        return {} if self.timeline is None else {self.timeline: self.value}

    def serves(self, timeline: Timeline) -> bool:
        """Whether all its uses are done, or ordered before what ``timeline`` is given from now on."""
        if self.forget_done():
            return True
        if self.uses is None and self.timeline is timeline:
            return True
        clock = timeline.frontier[1]
        return all(t is timeline or clock.get(t, 0) >= v for t, v in self.pending().items())

    def hand_to(self, timeline: Timeline) -> bool:
        """Hand the block to a timeline that it serves; whether another's use is ordered before, but not known to be done."""
        if self.timeline is None and self.uses is None:
            return False
        if self.uses is None and self.timeline is timeline:
            return False
        own = self.pending().get(timeline, 0)
        # The wait that the frontier stems from is done only after all that it implies: it stands for the other uses.
        self.timeline, self.value, self.uses = timeline, max(own, timeline.frontier[0]), None
        return True

    def suits(self, timeline: Timeline) -> bool:
        """Whether ``timeline`` is to have it, though it may serve others: pieces of a segment stay with the segment's owner.

        While the owner's work runs, what another timeline would put between its blocks could be joined with none of them.
        """
        owner = None if self.segment.owner is None else self.segment.owner()
        if owner is None or owner is timeline or self.size == self.segment.nbytes:
            return True
        last = owner.submitted
        return owner.counters[COMPLETED] >= last or timeline.frontier[1].get(owner, 0) >= last

    def can_join(self, other: Block) -> bool:
        """Whether both may become one block without serving fewer timelines; idle memory joins with any."""
        if self.uses is not None or other.uses is not None:
            return False
        return self.timeline is None or other.timeline is None or self.timeline is other.timeline

    # Neighbours

    def absorb(self, right: Block) -> None:
        """Join with the next block; the result has the uses of both."""
        if right.timeline is not None or right.uses is not None:
            if self.can_join(right):
                value = max(self.value, right.value) if self.timeline is right.timeline else right.value
                self.timeline, self.value = right.timeline, value
            else:
                uses = dict(self.pending())
                for timeline, value in right.pending().items():
                    uses[timeline] = max(value, uses.get(timeline, 0))
                self.uses = uses
                self.timeline, self.value = next(iter(uses.items()))
        self.size += right.size
        self.next = right.next
        if right.next is not None:
            right.next.prev = self
        right.prev = right.next = None

    def cut(self, size: int) -> Block | None:
        """Keep the first ``size`` bytes; returns the rest, with the same uses and state, or None if there is none."""
        if size == self.size:
            return None
        rest = Block(self.address + size, self.size - size, self.segment, self.state)
        rest.timeline, rest.value = self.timeline, self.value
        rest.uses = None if self.uses is None else dict(self.uses)
        rest.prev, rest.next = self, self.next
        if self.next is not None:
            self.next.prev = rest
        self.next = rest
        self.size = size
        return rest


class Extents:
    """The free blocks of one kind.

    Attributes:
        segment_size: bytes of a segment, where the backend cannot map memory into ranges; a larger request has its own.
        segments: those whose blocks these are.
        bins: those of the blocks that are cached.
        nbytes: free bytes.
    """

    def __init__(self, name: str, segment_size: int) -> None:
        self.name = name
        self.segment_size = segment_size
        self.segments: list[Segment] = []
        self.bins: list[Bin] = []
        self.nbytes = 0
        self._lists: dict[int, list[tuple[int, int]]] = {}  # by the id of a timeline
        self._list_of: dict[int, int] = {}  # by address
        self._blocks: dict[int, Block] = {}
        self._ages: dict[int, int] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def blocks(self) -> list[Block]:
        """All, those that have been free for the longest time first."""
        return [self._blocks[address] for address in sorted(self._blocks, key=self._ages.__getitem__)]

    def add(self, block: Block, whatever_uses_it: bool = False) -> Block:
        """Make a block free and join it with its neighbours; returns what it became.

        Args:
            whatever_uses_it: join blocks of different timelines, too.
        """
        block.bin = None
        block.state = FREE
        before, after = block.prev, block.next
        if before is not None and before.state == FREE and (whatever_uses_it or self._joinable(before, block)):
            self.remove(before)
            before.absorb(block)
            block = before
        if after is not None and after.state == FREE and (whatever_uses_it or self._joinable(block, after)):
            self.remove(after)
            block.absorb(after)
        self._insert(block)
        return block

    def _joinable(self, left: Block, right: Block) -> bool:
        left.forget_done()
        right.forget_done()
        return left.can_join(right)

    def _insert(self, block: Block) -> None:
        block.forget_done()
        key = self._list_of[block.address] = _key_of(block)
        insort(self._lists.setdefault(key, []), (block.size, block.address))
        self._blocks[block.address] = block
        self._ages[block.address] = self._clock
        self._clock += 1
        self.nbytes += block.size

    def remove(self, block: Block) -> None:
        """Take a block out."""
        key = self._list_of.pop(block.address)
        sizes = self._lists[key]
        del sizes[bisect_left(sizes, (block.size, block.address))]
        if not sizes:
            del self._lists[key]
        del self._blocks[block.address], self._ages[block.address]
        self.nbytes -= block.size

    def rejoin(self, whatever_uses_it: bool = False) -> None:
        """Join what other timelines' work kept apart, where that is done."""
        for block in self.blocks():
            if block.state == FREE and self._blocks.get(block.address) is block:
                self.remove(block)
                self.add(block, whatever_uses_it)

    def take(self, size: int, timeline: Timeline | None, in_need: bool = False) -> Block | None:
        """The best fit that serves ``timeline``, or, for None, whatever uses it; cut to ``size``.

        Args:
            size: of the block.
            timeline: who is to have it.
            in_need: whether it may be a piece of another timeline's segment.
        """
        best: tuple[int, int] | None = None
        for key, depth in self._where(timeline):
            sizes = self._lists.get(key, ())
            place = bisect_left(sizes, (size, 0))
            for entry in sizes[place : place + depth]:
                if best is not None and entry > best:
                    break
                block = self._blocks[entry[1]]
                if timeline is None or ((in_need or block.suits(timeline)) and block.serves(timeline)):
                    best = entry
                    break
        if best is None:
            return None
        block = self._blocks[best[1]]
        if timeline is not None and block.size == block.segment.nbytes and not block.segment.growable:
            block.segment.owner = weakref.ref(timeline)
        return self.cut(block, size)

    def _where(self, timeline: Timeline | None) -> Iterator[tuple[int, int]]:
        """The lists to look into, and how far."""
        if timeline is None:
            yield from ((key, 1) for key in list(self._lists))
            return
        near = dict.fromkeys((id(timeline), _ANYBODYS, _SHARED, *map(id, timeline.frontier[1])))
        yield from ((key, SEARCH) for key in near)
        yield from ((key, GLANCE) for key in list(self._lists)[:SEARCH] if key not in near)

    def cut(self, block: Block, size: int) -> Block:
        """Take the first ``size`` bytes of a free block."""
        self.remove(block)
        rest = block.cut(size)
        block.state = TAKEN
        if rest is not None:
            self._insert(rest)
        return block


def _key_of(block: Block) -> int:
    """The list that a block belongs in."""
    segment = block.segment
    owner = None if segment.owner is None or block.size == segment.nbytes else segment.owner()
    if owner is not None:
        return id(owner)
    if block.uses is not None:
        return _SHARED
    timeline = block.timeline  # which another thread may forget
    return _ANYBODYS if timeline is None else id(timeline)
