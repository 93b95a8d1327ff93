"""Blocks: the pieces that segments are cut into, and who may have one that queued work still uses.

A block is in one of four states. *Live*: a buffer has it. *Cached*: it is in its bin, as it was freed. *Free*: it is in the
extents of its kind, where neighbours are joined. A *hole* has no memory behind it; only ranges of addresses have holes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from aiodev._core.backend.interface import COMPLETED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiodev._core.timeline.timeline import Timeline
    from aiodev._memory.extents import Extents

__all__ = ["CACHED", "FREE", "HOLE", "LIVE", "Bin", "Block", "Segment"]

LIVE: Final = 0
CACHED: Final = 1
FREE: Final = 2
HOLE: Final = 3


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
        self.first = Block(address, nbytes, self, HOLE if growable else LIVE)
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
        state = ("live", "cached", "free", "hole")[self.state]
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
