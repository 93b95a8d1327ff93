"""Free memory of one kind: joined with its neighbours, and found by best fit.

**Invariants.**

1.  A free block's neighbours are not free, unless other timelines use them: joined, each would wait for the other's work.
2.  A joined block is free for those for whom all its parts are.

The lists are sorted by size, then address, so that the smallest block that is large enough is taken, and of several the first:
what is at high addresses becomes free as a whole. Whoever calls holds the allocator's lock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from aiodev._memory.block import FREE, LIVE, Block, Segment

if TYPE_CHECKING:
    from aiodev._core.timeline import Timeline

__all__ = ["SEARCH", "Extents"]

#: How many blocks are looked at, at most, for one that no other timeline's work uses.
SEARCH = 64


class Extents:
    """The free blocks of one kind.

    Attributes:
        segment_size: bytes of a segment, where the backend cannot map memory into ranges; a larger request has its own.
        segments: those whose blocks these are.
        nbytes: free bytes.
    """

    def __init__(self, name: str, segment_size: int) -> None:
        self.name = name
        self.segment_size = segment_size
        self.segments: list[Segment] = []
        self.nbytes = 0
        self._sizes: list[tuple[int, int]] = []
        self._blocks: dict[int, Block] = {}
        self._ages: dict[int, int] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._sizes)

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
        left.settle()
        right.settle()
        return left.joins(right)

    def _insert(self, block: Block) -> None:
        insort(self._sizes, (block.size, block.address))
        self._blocks[block.address] = block
        self._ages[block.address] = self._clock
        self._clock += 1
        self.nbytes += block.size

    def remove(self, block: Block) -> None:
        """Take a block out."""
        del self._sizes[bisect_left(self._sizes, (block.size, block.address))]
        del self._blocks[block.address], self._ages[block.address]
        self.nbytes -= block.size

    def rejoin(self, whatever_uses_it: bool = False) -> None:
        """Join what other timelines' work kept apart, where that is done."""
        for block in self.blocks():
            if block.state == FREE and self._blocks.get(block.address) is block:
                self.remove(block)
                self.add(block, whatever_uses_it)

    def take(self, size: int, timeline: Timeline | None) -> Block | None:
        """The best fit that serves ``timeline``, or, for None, whatever uses it; cut to ``size``."""
        sizes = self._sizes
        place = bisect_left(sizes, (size, 0))
        for _, address in sizes[place : place + SEARCH]:
            block = self._blocks[address]
            if timeline is None or block.serves(timeline):
                return self.cut(block, size)
        return None

    def cut(self, block: Block, size: int) -> Block:
        """Take the first ``size`` bytes of a free block."""
        self.remove(block)
        rest = block.cut(size)
        block.state = LIVE
        if rest is not None:
            self._insert(rest)
        return block
