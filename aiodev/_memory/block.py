"""Blocks: the pieces that segments are cut into, who may have one that queued work still uses, and where free ones are found.

A block is in one of five states. *Live*: a buffer has it. *Cached*: it is in its bin, as it was freed. *Free*: it is in the
extents of its kind, where neighbours are joined. *Taken*: it was free, and is to become live. A *hole* has no memory behind it;
only ranges of addresses have holes.

**Invariants of extents.**

1.  A free block's neighbours are not free, unless other work uses them, or none does: joined, what is anybody's would be one
    timeline's, and the memory of two timelines nobody's. Who needs more than one of them takes them together.
2.  Blocks that are taken together serve those whom all of them serve; what is left of them stays as it was.
3.  A timeline finds its own blocks, and those that are anybody's, however many of others there are: each timeline has a
    list. A block is in that of the timeline whose work uses it; a piece of a segment that cannot grow, in that of the
    segment's owner.

The lists are sorted by size, then address, so that the smallest block that is large enough is taken, and of several the first:
what is at high addresses becomes free as a whole. Beside its list, each timeline has a heap of the operations that its blocks
wait for: so one comparison tells whether any of them can be joined by now, and only those are touched. Blocks whose owner is
gone change lists when they are added again. Whoever calls extents holds the allocator's lock.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import islice
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
        owner: the timeline that it was allocated for, while that lives; None for a range, or a segment, that is for all.
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
        if self.uses is None:  # as usual, and a search asks many
            user = self.timeline
            if user is None or user is timeline:
                return True
            if user.counters[COMPLETED] >= self.value:
                self.timeline = None
                return True
            return timeline.frontier[1].get(user, 0) >= self.value
        if self.forget_done():
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
        """Whether both may become one block without either serving fewer timelines: one timeline uses them, or none."""
        return self.uses is None and other.uses is None and self.timeline is other.timeline

    # Neighbours

    def absorb(self, right: Block) -> None:
        """Join with the next block; the result has the uses of both."""
        timeline, value = right.timeline, right.value  # once: another thread may forget it
        is_shared = right.uses is not None or (
            timeline is not None
            and (self.uses is not None or (self.timeline is not None and self.timeline is not timeline))
        )
        if is_shared:
            uses = dict(self.pending())
            for timeline, value in right.pending().items():
                uses[timeline] = max(value, uses.get(timeline, 0))
            self.uses = uses
            self.timeline, self.value = next(iter(uses.items()))
        elif timeline is not None:
            # Nothing is called here, so that nobody forgets this block's timeline in between, by the lesser value.
            if self.timeline is None or self.value < value:
                self.value = value
            self.timeline = timeline
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


class _Dues:
    """What the free blocks of one timeline wait for.

    Attributes:
        timeline: whose operations they are; blocks of one that is gone wait for nothing.
        heap: operations and addresses, those of blocks that were taken since among them.
        count: the blocks.
    """

    __slots__ = ("count", "heap", "key", "timeline")

    def __init__(self, timeline: Timeline) -> None:
        self.key = id(timeline)
        self.timeline = weakref.ref(timeline)
        self.heap: list[tuple[int, int]] = []
        self.count = 0


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
        self._owned: dict[int, None] = {}  # those of them of pieces of segments that have owners
        self._list_of: dict[int, int] = {}  # by address
        self._blocks: dict[int, Block] = {}
        self._owners: weakref.WeakSet[Timeline] = weakref.WeakSet()
        self._ages: dict[int, int] = {}
        self._clock = 0
        self._dues: dict[int, _Dues] = {}  # by the id of a timeline
        self._turns: deque[_Dues] = deque()  # those that have blocks, or had
        self._due_of: dict[int, tuple[_Dues, int]] = {}  # by address

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: Block) -> bool:
        """Whether it is free by itself: not taken, no hole, and not joined with the one before it."""
        return self._blocks.get(block.address) is block

    def blocks(self) -> list[Block]:
        """All, those that have been free for the longest time first."""
        return [self._blocks[address] for address in sorted(self._blocks, key=self._ages.__getitem__)]

    def anybodys(self, least: int) -> list[Block]:
        """Those of at least so many bytes that no work uses, in ranges, by age as all."""
        sizes = self._lists.get(_ANYBODYS, [])
        addresses = [address for _, address in sizes[bisect_left(sizes, (least, 0)) :]]
        return [self._blocks[address] for address in sorted(addresses, key=self._ages.__getitem__)]

    def add(self, block: Block) -> Block:
        """Make a block free and join it with its neighbours, and theirs; returns what it became."""
        block.bin = None
        block.state = FREE
        # Whether its work is done is asked once. If it were asked again when the block is listed, work that ends in between
        # would leave two neighbours neither of which waits for anything, so that nobody would join them.
        block.forget_done()
        user = block.timeline
        while (before := block.prev) is not None and before.state == FREE and self._joinable(before, block):
            self.remove(before)
            before.absorb(block)
            block = before
        while (after := block.next) is not None and after.state == FREE and self._joinable(after, block):
            self.remove(after)
            block.absorb(after)
        self._insert(block, user)
        return block

    def _joinable(self, neighbour: Block, block: Block) -> bool:
        neighbour.forget_done()
        return neighbour.can_join(block)

    def _insert(self, block: Block, user: Timeline | None) -> None:
        """List a block; ``user`` is its timeline, which another thread may have forgotten meanwhile."""
        key = self._list_of[block.address] = _key_of(block, user)
        sizes = self._lists.get(key)
        if sizes is None:
            sizes = self._lists[key] = []
            if key < _SHARED:
                self._owned[key] = None
        insort(sizes, (block.size, block.address))
        self._blocks[block.address] = block
        self._ages[block.address] = self._clock
        self._clock += 1
        self.nbytes += block.size
        if user is not None:
            self._note_due(block.address, user, block.value if block.timeline is user else 0)

    def remove(self, block: Block) -> None:
        """Take a block out."""
        key = self._list_of.pop(block.address)
        sizes = self._lists[key]
        del sizes[bisect_left(sizes, (block.size, block.address))]
        if not sizes:
            del self._lists[key]
            self._owned.pop(key, None)
        del self._blocks[block.address], self._ages[block.address]
        self.nbytes -= block.size
        due = self._due_of.pop(block.address, None)
        if due is not None:
            dues = due[0]
            dues.count -= 1
            if dues.count == 0:
                dues.heap.clear()

    # Owners

    def owner_for(self, timeline: Timeline) -> weakref.ref[Timeline] | None:
        """Who is to own a segment that a timeline gets."""
        return weakref.ref(timeline) if timeline in self._owners else None

    def let_own(self, timeline: Timeline) -> None:
        """Have a timeline own the segments that it gets from now on."""
        self._owners.add(timeline)

    # What work keeps apart

    def _note_due(self, address: int, timeline: Timeline, value: int) -> None:
        dues = self._dues.get(id(timeline))
        if dues is None or dues.timeline() is not timeline:  # another one, that is gone, may have had its id
            dues = self._dues[id(timeline)] = _Dues(timeline)
            self._turns.append(dues)
        elif len(dues.heap) > 2 * dues.count + SEARCH:  # most of them were taken since
            dues.heap = [entry for entry in set(dues.heap) if self._due_of.get(entry[1]) == (dues, entry[0])]
            heapify(dues.heap)
        dues.count += 1
        self._due_of[address] = dues, value
        heappush(dues.heap, (value, address))

    def is_waiting(self, block: Block) -> bool:
        """Whether a free block had work when it was added, and has not been looked at since that was done."""
        return block.address in self._due_of

    def join_done(self, most: int | None = None) -> list[Block]:
        """Join what is free of work by now with its neighbours; returns what changed.

        Args:
            most: of so many timelines, by turns; None for all.
        """
        changed: list[Block] = []
        turns = self._turns
        for _ in range(len(turns) if most is None else min(most, len(turns))):
            dues = turns.popleft()
            timeline = dues.timeline()
            completed = None if timeline is None else timeline.counters[COMPLETED]
            while dues.heap and (completed is None or dues.heap[0][0] <= completed):
                value, address = heappop(dues.heap)
                if self._due_of.get(address) == (dues, value):
                    block = self._blocks[address]
                    self.remove(block)
                    changed.append(self.add(block))  # where other timelines use it, too, it waits for one of those now
            if dues.heap:
                turns.append(dues)
            elif self._dues.get(dues.key) is dues:
                del self._dues[dues.key]
        return changed

    # Looking for memory

    def take(self, size: int, timeline: Timeline, in_need: bool = False) -> Block | None:
        """The best fit that serves ``timeline``, cut to ``size``.

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
                if _may_have(timeline, self._blocks[entry[1]], in_need):
                    best = entry
                    break
        if best is None:
            return None
        block = self._blocks[best[1]]
        if block.size == block.segment.nbytes and not block.segment.growable:
            block.segment.owner = self.owner_for(timeline)
        return self.cut(block, size)

    def _where(self, timeline: Timeline) -> Iterator[tuple[int, int]]:
        """The lists to look into, and how far."""
        near = self._near(timeline)
        yield from ((key, SEARCH) for key in near)
        # Else others' lists have nothing but what others' work uses.
        yield from ((key, GLANCE) for key in list(islice(self._owned, SEARCH)) if key not in near)

    def _near(self, timeline: Timeline) -> dict[int, None]:
        users = (id(timeline), *map(id, timeline.frontier[1]))
        return dict.fromkeys((*users, _ANYBODYS, _SHARED, *(_owned_by(user) for user in users if self._owned)))

    def take_together(self, size: int, timeline: Timeline, in_need: bool = False) -> Block | None:
        """Neighbours that all serve ``timeline``, and have room for ``size`` together; the rest of them stays free.

        What it begins at is a third of the size at least, as one of any three blocks must be.
        """
        for key in self._near(timeline):
            for nbytes, address in reversed(self._lists.get(key, ())[-SEARCH:]):
                if 3 * nbytes < size:
                    break
                block = self._blocks[address]
                if _may_have(timeline, block, in_need):
                    first, total = self._around(block, size, timeline, in_need)
                    if total >= size:
                        return self.cut(first, size, 0 if first is block else total - size)
        return None

    def _around(self, block: Block, size: int, timeline: Timeline, in_need: bool) -> tuple[Block, int]:
        """The first of neighbours around a block that serve ``timeline``, as many as are needed, and their bytes."""
        first, total, after, before = block, block.size, block.next, block.prev
        while total < size and after is not None and after.state == FREE and _may_have(timeline, after, in_need):
            total, after = total + after.size, after.next
        while total < size and before is not None and before.state == FREE and _may_have(timeline, before, in_need):
            first, total, before = before, total + before.size, before.prev
        return first, total

    def row(self, size: int) -> Block | None:
        """The first of free neighbours that have room for ``size`` together, whatever uses them; of such rows the shortest."""
        best: tuple[Block, int] | None = None
        for segment in self.segments:
            first, total = segment.first, 0
            for block in (*segment.blocks(), None):
                if block is not None and block.state == FREE:
                    first, total = (first, total) if total else (block, 0)
                    total += block.size
                    continue
                if total >= size and (best is None or total < best[1]):
                    best = first, total
                total = 0
        return None if best is None else best[0]

    def cut(self, first: Block, size: int, skip: int = 0) -> Block:
        """Take ``size`` bytes of a free block, or of it and its free neighbours behind, as one block.

        Args:
            first: where they begin.
            size: of the block.
            skip: bytes of the first that stay free.
        """
        block = first
        self.remove(first)
        if skip:
            tail = first.cut(skip)
            assert tail is not None
            block, tail.state = tail, TAKEN
            self.add(first)
        block.state = TAKEN
        while block.size < size:
            after = block.next
            assert after is not None and after.state == FREE
            self.remove(after)
            after.state = TAKEN
            self._free_rest(after, size - block.size)  # with its own uses, and none of those before it
            block.absorb(after)
        self._free_rest(block, size)
        return block

    def _free_rest(self, block: Block, size: int) -> None:
        """Make free what of a taken block is behind so many bytes."""
        rest = block.cut(size) if block.size > size else None
        if rest is not None:
            self.add(rest)


def _may_have(timeline: Timeline, block: Block, in_need: bool) -> bool:
    return (in_need or block.suits(timeline)) and block.serves(timeline)


def _owned_by(timeline: int) -> int:
    """The list of pieces of a timeline's segments, of its id: less than any other list's."""
    return -2 - timeline


def _key_of(block: Block, timeline: Timeline | None) -> int:
    """The list that a block belongs in, which ``timeline`` uses."""
    segment = block.segment
    owner = None if segment.owner is None or block.size == segment.nbytes else segment.owner()
    if owner is not None:
        return _owned_by(id(owner))
    if block.uses is not None:
        return _SHARED
    return _ANYBODYS if timeline is None else id(timeline)
