"""The caching policy against a model: no overlap, no early reuse, no leak, exact accounts (see the module's invariants)."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_model import FakeMemory, FakeTimeline

import aiodev
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer, size_class
from aiodev._memory.block import CACHED, FREE, HOLE, LIVE
from aiodev._memory.buffer import Buffer
from aiodev._memory.tuning import SMALL, SMALL_SEGMENT

DEVICE = aiodev.Device("cpu")
SIZES = st.one_of(
    st.integers(0, 4096), st.integers(0, 3 << 20), st.sampled_from([512, 513, SMALL, SMALL + 1, SMALL_SEGMENT])
)


class PythonsBuffer(DeviceBuffer):
    """A buffer whose end is no native code's."""

    __slots__ = ()

    __del__ = DeviceBuffer._release


class PythonsAllocator(CachingAllocator):
    """An allocator of which nothing is native code's."""

    __slots__ = ()

    def allocate(self, nbytes: int, timeline: Any) -> Buffer:
        """As Python does it."""
        buffer = self._allocate(nbytes, timeline)
        buffer.__class__ = PythonsBuffer
        return buffer


def allocator(
    total: int = 1 << 30, granularity: int = 0, kind: type[CachingAllocator] = CachingAllocator
) -> tuple[CachingAllocator, Any]:
    """An allocator over fake memory."""
    memory = FakeMemory(total, granularity)
    return kind(DEVICE, memory, True, lambda timeline, points: timeline.hold(points)), memory


@dataclass
class Freed:
    """Memory that was freed, and what used it."""

    start: int
    stop: int
    uses: list[tuple[Any, int]]


class Allocations(RuleBasedStateMachine):
    """Any sequence of allocations, uses, frees, waits, completions and releases."""

    @initialize(
        total=st.sampled_from([6 << 20, 64 << 20]),
        granularity=st.sampled_from([0, 64 << 10, 2 << 20]),
        kind=st.sampled_from([CachingAllocator, PythonsAllocator]),
    )
    def begin(self, total: int, granularity: int, kind: type[CachingAllocator]) -> None:
        """Three timelines, little or much memory, in segments or in ranges; native code or Python's."""
        self.pool, self.memory = allocator(total, granularity, kind)
        self.timelines = [FakeTimeline(name) for name in "ABC"]
        self.live: list[tuple[Buffer, int]] = []
        self.freed: list[Freed] = []

    @rule(nbytes=SIZES, who=st.integers(0, 2))
    def allocate(self, nbytes: int, who: int) -> None:
        """A block overlaps no other in use, and its former uses are ordered before its owner's next operation (1)."""
        timeline = self.timelines[who]
        try:
            buffer = self.pool.allocate(nbytes, timeline)
        except aiodev.OutOfMemoryError as error:
            assert error.allocated == self.pool.totals.allocated
            return
        start, stop = buffer.address, buffer.address + buffer.block.size
        assert buffer.block.size >= nbytes
        assert all(stop <= b.address or b.address + b.block.size <= start for b, _ in self.live)
        assert self.memory.has(start, stop)
        before = timeline.ordered_before_next()
        for freed in self.freed:
            if freed.start < stop and start < freed.stop:
                for t, v in freed.uses:
                    assert t.completed >= v or before.get(t, 0) >= v
        self.live.append((buffer, nbytes))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1 << 16), who=st.integers(0, 2))
    def use(self, which: int, who: int) -> None:
        """Queue an operation that touches a buffer."""
        buffer, _ = self.live[which % len(self.live)]
        timeline = self.timelines[who]
        if buffer._writer is not timeline and not self.follows(timeline, buffer):
            for other in self.timelines:
                timeline.join(other)  # the rule of streams: order them, then share memory
        buffer._record_write(timeline, timeline.submit())

    def follows(self, timeline: Any, buffer: Buffer) -> bool:
        """Whether the timeline runs after every use of the buffer."""
        before = timeline.ordered_before_next()
        return all(t.completed >= v or before.get(t, 0) >= v for t, v in buffer.uses())

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1 << 16))
    def free(self, which: int) -> None:
        """Drop the last reference, whatever is running."""
        buffer, _ = self.live.pop(which % len(self.live))
        self.freed.append(Freed(buffer.address, buffer.address + buffer.block.size, list(buffer.uses())))
        del buffer

    @rule(row=st.lists(st.tuples(SIZES, st.sampled_from([None, 0, 1, 2])), min_size=2, max_size=6))
    def pass_by(self, row: list[tuple[int, int | None]]) -> None:
        """Neighbours, as a rule, some of which are used, each by one timeline; all are dropped."""
        for nbytes, who in row:
            count = len(self.live)
            self.allocate(nbytes, who or 0)
            if who is not None and len(self.live) > count:
                self.use(count, who)
        for _ in row[: len(self.live)]:
            self.free(len(self.live) - 1)

    @rule(who=st.integers(0, 2), whom=st.integers(0, 2))
    def wait(self, who: int, whom: int) -> None:
        """Order one timeline after another."""
        self.timelines[who].join(self.timelines[whom])

    @rule(who=st.integers(0, 2), count=st.integers(1, 4))
    def complete(self, who: int, count: int) -> None:
        """Let operations finish."""
        for _ in range(count):
            self.timelines[who].advance()

    @rule(who=st.integers(0, 2), looks=st.integers(1, 30))
    def complete_meanwhile(self, who: int, looks: int) -> None:
        """Let an operation finish in the midst of what the allocator does then."""
        self.timelines[who].advance_at_look(looks)

    @rule(part=st.sampled_from([None, 0.5, 1.0]))
    def limit(self, part: float | None) -> None:
        """Change what this process may have."""
        self.pool.totals.limit = None if part is None else int(part * self.memory.total)

    @rule(who=st.integers(0, 2), looks=st.integers(0, 30))
    def release(self, who: int, looks: int) -> None:
        """Give back what is idle: never what is in use, nor what queued work uses (3), some of which may end meanwhile."""
        self.timelines[who].advance_at_look(looks)
        before = dict(self.memory.held)
        self.pool.empty_cache()
        for address in before.keys() - self.memory.held.keys():
            stop = address + before[address]
            assert all(b.address + b.block.size <= address or stop <= b.address for b, _ in self.live)
            for freed in self.freed:
                if freed.start < stop and address < freed.stop:
                    assert all(t.completed >= v for t, v in freed.uses)

    @invariant()
    def accounts_are_exact(self) -> None:
        """``allocated`` and ``reserved`` say what is (3)."""
        if not hasattr(self, "pool"):
            return
        totals = self.pool.totals
        assert totals.allocated == sum(buffer.block.size for buffer, _ in self.live)
        assert totals.reserved == self.memory.nbytes
        assert totals.peak_reserved >= totals.reserved >= totals.allocated
        assert totals.allocations - totals.frees == len(self.live)

    @invariant()
    def blocks_cover_their_segments(self) -> None:
        """Without gaps; each is where its state says, and what could be joined is (4)."""
        if not hasattr(self, "pool"):
            return
        segments, found = self.pool.slow_path.segments, []
        for segment in segments.all():
            position = segment.address
            for block in segment.blocks():
                assert block.address == position and block.size > 0 and block.segment is segment
                assert block.next is None or block.next.prev is block
                position += block.size
                assert (block in segment.holes) == (block.state == HOLE)
                assert block.state == HOLE or self.memory.has(block.address, position)
                assert block.state != CACHED or block in block.bin.free
                if block.state in (FREE, HOLE) and block.next is not None and block.next.state == block.state:
                    assert block.state == FREE
                    assert any(segment.kind.is_waiting(one) for one in (block, block.next))
                found.append(block)
            assert position == segment.address + segment.nbytes
        free = [block for kind in (segments.small, segments.large) for block in kind.blocks()]
        assert {id(block) for block in found if block.state == FREE} == {id(block) for block in free}
        assert sum(block.size for block in free) == segments.small.nbytes + segments.large.nbytes
        live = {id(buffer.block) for buffer, _ in self.live}
        assert {id(block) for block in found if block.state == LIVE} == live

    @invariant()
    def nothing_is_withheld_that_no_work_uses(self) -> None:
        """All of a free block that is to wait for a timeline was used by it: what was not is anybody's."""
        if not hasattr(self, "pool"):
            return
        segments = self.pool.slow_path.segments
        for block in (*segments.small.blocks(), *segments.large.blocks()):
            waits = {t for t, v in block.pending().items() if t.completed < v}
            position, stop = block.address, block.address + block.size
            while waits and position < stop:  # neighbours that one timeline uses wait for the later of its operations
                after = [f.stop for f in self.freed if f.start <= position < f.stop and any(t in waits for t, _ in f.uses)]
                position = max(after, default=0)
                assert position, f"{block} waits for {waits}"

    def teardown(self) -> None:
        """When all work is done and every buffer dropped, every byte goes back."""
        if not hasattr(self, "pool"):
            return
        self.live.clear()
        while any(timeline.advance() for timeline in self.timelines):
            pass
        self.pool.forget_all_done()
        blocks = [block for segment in self.pool.slow_path.segments.all() for block in segment.blocks()]
        assert not any(block.pending() for block in blocks if block.state in (CACHED, FREE))
        self.pool.empty_cache()
        assert self.memory.held == {}
        assert self.pool.totals.allocated == self.pool.totals.reserved == 0


TestAllocations = Allocations.TestCase
TestAllocations.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@given(st.integers(0, 1 << 40))
def test_a_size_class_is_little_larger_than_the_request(nbytes: int) -> None:
    """At most 1/16, or 511 bytes; multiples of 512; and a class is its own class (2)."""
    size = size_class(nbytes)
    assert size >= max(nbytes, 1)
    assert size % 512 == 0
    assert size - nbytes <= max(512, nbytes // 16)
    assert size_class(size) == size


def test_memory_comes_back_to_the_same_timeline_with_work_in_flight() -> None:
    """What is freed behind a running kernel serves the same stream at once; no wait, no event (1)."""
    pool, _ = allocator()
    timeline = FakeTimeline("A")
    first = pool.allocate(1000, timeline)
    first._record_write(timeline, timeline.submit())
    address = first.address
    del first
    again = pool.allocate(1000, timeline)
    assert again.address == address
    assert again.pending() == [(timeline, 1)]
    assert again.contents() == [(timeline, 0)]  # nobody has written it; the failure of that use is not its own


def test_another_timeline_gets_it_only_when_ordered_after_the_work() -> None:
    """Before: other memory. After a wait, or when the work is done: that memory (1)."""
    pool, _ = allocator()
    a, b, c = (FakeTimeline(name) for name in "ABC")
    first = pool.allocate(1000, a)
    first._record_write(a, a.submit())
    address = first.address
    del first
    other = pool.allocate(1000, b)
    assert other.address != address
    assert pool.totals.passed_over == 1
    b.join(a)
    follower = pool.allocate(1000, b)
    assert follower.address == address
    del follower
    unrelated = pool.allocate(1000, c)
    assert unrelated.address != address  # it still waits for what b waits for
    a.advance()
    b.advance()
    assert pool.allocate(1000, c).address == address


def test_one_retry_gives_back_what_is_cached() -> None:
    """Cached memory of other sizes does not stand in the way; then the figures are in the error."""
    pool, memory = allocator(total=10 << 20)
    timeline = FakeTimeline("A")
    for _ in range(2):
        pool.allocate(8 << 20, timeline)
    assert pool.totals.retries == 0
    kept = pool.allocate(9 << 20, timeline)
    assert pool.totals.retries == 1
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        pool.allocate(2 << 20, timeline)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert (error.requested, error.allocated, error.free, error.total) == (2 << 20, 9 << 20, 0, 10 << 20)
    del kept
    assert pool.allocate(2 << 20, timeline).address in memory.held


def test_a_limit_counts_as_running_out() -> None:
    """The fraction that a process was given is what there is."""
    pool, _ = allocator()
    pool.totals.limit = 4 << 20
    timeline = FakeTimeline("A")
    held = pool.allocate(4 << 20, timeline)
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        pool.allocate(1, timeline)
    assert caught.value.total == 4 << 20
    del held
    assert pool.allocate(1, timeline).address


def test_a_cached_block_does_not_keep_a_timeline_whose_work_is_done() -> None:
    """A closed stream's queue must not live on in the cache."""
    pool, _ = allocator()
    a, b = FakeTimeline("A"), FakeTimeline("B")
    buffer = pool.allocate(1000, a)
    buffer._record_write(a, a.submit())
    block = buffer.block
    del buffer
    assert block.timeline is a
    a.advance()
    pool.allocate(5000, b)  # dropped at once: any release will do
    gc.collect()
    assert block.timeline is None


def test_a_stream_that_is_held_does_not_hold_what_others_are_done_with() -> None:
    """Its block comes first, and is looked at again and again; those behind it have their turns."""
    pool, _ = allocator()
    held, *others = (FakeTimeline(name) for name in "ABCDE")
    blocks = []
    for timeline in (held, *others):
        buffer = pool.allocate(1000, timeline)
        buffer._record_write(timeline, timeline.submit())
        blocks.append(buffer.block)
        del buffer
    for timeline in others:
        timeline.advance()
    for _ in range(4):
        pool.allocate(5000, others[0])  # dropped at once
    assert [block.timeline for block in blocks] == [held, None, None, None, None]


def test_a_live_block_keeps_no_timeline() -> None:
    """It would for as long as an array lives; what the memory was used for before is a use of the buffer's."""
    pool, _ = allocator()
    timeline, other = FakeTimeline("A"), FakeTimeline("B")
    for who in (timeline, other):
        first = pool.allocate(1000, timeline)
        first._record_write(timeline, timeline.submit())
        del first
        other.join(timeline)
        again = pool.allocate(1000, who)
        assert again.block.timeline is None and again.block.uses is None
        assert again.pending() and again.contents() == [(who, 0)]


@pytest.mark.parametrize("granularity", [0, 2 << 20])
def test_what_is_left_of_a_free_block_does_not_keep_the_timeline_either(granularity: int) -> None:
    """A smaller request of the same timeline takes a part while the work is running."""
    pool, _ = allocator(granularity=granularity)
    a, b = FakeTimeline("A"), FakeTimeline("B")
    buffer = pool.allocate(20 << 20, a)
    buffer._record_write(a, a.submit())
    del buffer
    part = pool.allocate(3 << 20, a)
    assert part.block.next is not None and part.block.next.timeline is a
    a.advance()
    for _ in range(3):
        pool.allocate(5000, b)  # dropped at once
    gc.collect()
    assert part.block.next.timeline is None


def test_a_buffer_used_by_several_timelines_waits_for_all() -> None:
    """Each timeline's last use counts."""
    pool, _ = allocator()
    a, b, c = (FakeTimeline(name) for name in "ABC")
    buffer = pool.allocate(1000, a)
    buffer._record_write(a, a.submit())
    b.join(a)
    buffer._record_write(b, b.submit())
    address = buffer.address
    del buffer
    a.advance()
    unrelated = pool.allocate(1000, c)
    assert unrelated.address != address
    b.advance()
    b.advance()
    assert pool.allocate(1000, c).address == address


def test_a_search_leaves_the_bin_as_it_was() -> None:
    """What it passed over goes back in order: who frees and asks again gets what it freed last, which is in its caches."""
    pool, _ = allocator()
    a, b = FakeTimeline("A"), FakeTimeline("B")
    buffers = [pool.allocate(1000, a) for _ in range(3)]
    addresses = [buffer.address for buffer in buffers]
    for buffer in buffers:
        buffer._record_write(a, a.submit())
    del buffer
    while buffers:
        del buffers[0]
    other = pool.allocate(1000, b)
    assert other.address not in addresses and pool.totals.passed_over == 1
    assert [pool.allocate(1000, a).address, pool.allocate(1000, a).address] == [addresses[2]] * 2


def test_bins_that_hold_little_are_not_emptied() -> None:
    """Less than an eighth of what there is: what is missing is taken from the backend."""
    pool, memory = allocator(granularity=2 << 20)
    timeline = FakeTimeline("A")
    kept = [pool.allocate(6 << 20, timeline) for _ in range(10)]
    block = pool.allocate(3 << 20, timeline).block
    reserved = memory.nbytes
    assert block.state == CACHED
    kept.append(pool.allocate(5 << 20, timeline))
    assert block.state == CACHED and memory.nbytes > reserved


def test_bins_are_not_emptied_for_what_they_cannot_serve() -> None:
    """Where memory cannot be put beside what is free, and all that is free would not do."""
    pool, _ = allocator()
    timeline = FakeTimeline("A")
    block = pool.allocate(8 << 20, timeline).block
    large = pool.allocate(40 << 20, timeline)
    assert block.state == CACHED and block.segment is not large.block.segment


def test_an_allocation_in_the_midst_of_another_takes_memory_of_its_own() -> None:
    """As in a finalizer that the collector runs while segments and extents are being changed."""
    pool, memory = allocator()
    timeline = FakeTimeline("A")
    allocate, inner = memory.allocate, []

    def interrupted(nbytes: int) -> int:
        memory.allocate = allocate
        inner.append(pool.allocate(1000, timeline))
        return allocate(nbytes)

    memory.allocate = interrupted
    outer = pool.allocate(2000, timeline)
    assert inner[0].block.segment.nbytes == 1024
    assert outer.block.segment.nbytes == SMALL_SEGMENT
    assert pool.totals.allocated == 1024 + 2048 and pool.totals.reserved == memory.nbytes


def test_neighbours_are_joined_once_the_work_that_kept_them_apart_is_done() -> None:
    """Though meanwhile it was forgotten that there was any, and no bin has anything to empty."""
    pool, memory = allocator()
    a, b, c = (FakeTimeline(name) for name in "ABC")
    buffers = [pool.allocate(6 << 20, timeline) for timeline in (a, b)]
    for buffer, timeline in zip(buffers, (a, b), strict=True):
        buffer._record_write(timeline, timeline.submit())
    segment = buffers[0].block.segment
    small = [pool.allocate(5000, c) for _ in range(3)]
    del buffers, buffer
    kept = [pool.allocate(9 << 20, c)]  # for which the bins are emptied
    assert [block.pending() for block in segment.blocks()] == [{a: 1}, {b: 1}, {}]
    a.advance()
    b.advance()
    del small
    assert [block.pending() for block in segment.blocks()] == [{}, {}, {}]
    reserved = memory.nbytes
    kept.append(pool.allocate(15 << 20, c))
    assert kept[1].block.segment is segment and memory.nbytes == reserved


def test_fewer_bytes_than_none_are_refused() -> None:
    """Also where there is a cached block of the least size."""
    pool, _ = allocator()
    timeline = FakeTimeline("A")
    pool.allocate(1, timeline)
    with pytest.raises(ValueError, match="-1 bytes"):
        pool.allocate(-1, timeline)
