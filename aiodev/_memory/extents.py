"""Free memory of one kind: joined with its neighbours, and found by best fit.

**Invariants.**

1.  A free block's neighbours are not free, unless other timelines use them: joined, each would wait for the other's work.
2.  A joined block is free for those for whom all its parts are.
3.  A timeline finds its own blocks, and those that are anybody's, however many of others there are: each timeline has a
    list. A block is in that of the timeline whose work uses it; a piece of a segment that cannot grow, in that of the
    segment's owner.

The lists are sorted by size, then address, so that the smallest block that is large enough is taken, and of several the first:
what is at high addresses becomes free as a whole. Blocks whose work is done since, or whose owner is gone, change lists when
they are joined again. Whoever calls holds the allocator's lock.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiodev._memory.block import FREE, LIVE, Bin, Block, Segment
from aiodev._memory.tuning import GLANCE, SEARCH

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["Extents"]

#: The lists of blocks that are anybody's, and of those that several timelines use.
_ANYBODYS, _SHARED = 0, -1


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
        block.state = LIVE
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
