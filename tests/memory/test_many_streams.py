"""Memory where many streams have work that is not done: what they share, what each keeps, and what it costs to tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memory_model import FakeMemory, FakeTimeline

import aiodev
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.block import FREE, Block
from aiodev._memory.tuning import SEARCH

KIB, MIB = 1 << 10, 1 << 20
IN_BOTH = pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "ranges"])


def allocator(granularity: int, total: int = 1 << 40, hold: Any = None) -> tuple[CachingAllocator, FakeMemory]:
    """An allocator over fake memory."""
    memory = FakeMemory(total, granularity)
    hold = hold or (lambda timeline, points: timeline.hold(points))
    return CachingAllocator(aiodev.Device("cpu"), memory, True, hold), memory


def at_work(name: str) -> FakeTimeline:
    """A timeline with an operation that is not done."""
    timeline = FakeTimeline(name)
    timeline.submit()
    return timeline


def used(pool: CachingAllocator, nbytes: int, *timelines: FakeTimeline) -> Any:
    """A buffer that the first of these timelines writes, and the others read."""
    writer, *readers = timelines
    buffer = pool.allocate(nbytes, writer)
    buffer._record_write(writer, writer.submit())
    for timeline in readers:
        buffer._record_read(timeline, timeline.submit())
    return buffer


def free_blocks(pool: CachingAllocator) -> list[Block]:
    """In order of address, of ranges and segments in no order."""
    return [block for segment in pool.slow_path.segments.all() for block in segment.blocks() if block.state == FREE]


# What nobody has used


@IN_BOTH
@pytest.mark.parametrize("nbytes", [512, 100_000, 2 * MIB])
def test_streams_at_work_share_what_nobody_has_used(granularity: int, nbytes: int) -> None:
    """Each with an array that it keeps: as much is reserved as that needs, and not a segment for each."""
    pool, memory = allocator(granularity)
    timelines = [at_work(f"S{k}") for k in range(200)]
    kept = [used(pool, nbytes, timeline) for timeline in timelines]
    assert memory.nbytes <= 1.1 * sum(buffer.block.size for buffer in kept) + 20 * MIB


def test_what_is_mapped_beyond_a_request_is_anybodys() -> None:
    """Also where it begins in memory that the work of the stream uses."""
    pool, memory = allocator(2 * MIB)
    a, b = at_work("A"), at_work("B")
    first = used(pool, 4 * MIB, a)
    address = first.address
    del first
    larger = pool.allocate(5 * MIB, a)
    assert larger.address == address and memory.nbytes == 6 * MIB
    (rest,) = free_blocks(pool)
    assert rest.size == MIB and rest.pending() == {} and rest.serves(b)


@IN_BOTH
def test_idle_memory_beside_what_work_uses_is_still_anybodys(granularity: int) -> None:
    """It is not joined with that, in whichever order they become free; the best fit is there for each."""
    pool, _ = allocator(granularity)
    a, b, c = at_work("A"), FakeTimeline("B"), at_work("C")
    buffers = [used(pool, 100 * KIB, a), pool.allocate(100 * KIB, b), used(pool, 100 * KIB, a)]
    addresses = [buffer.address for buffer in buffers]
    for number in (0, 1, 2):
        buffers[number] = None
        pool.slow_path._empty_bins()
    assert [block.pending() for block in free_blocks(pool)][:3] == [{a: 2}, {}, {a: 3}]
    assert pool.allocate(98 * KIB, c).address == addresses[1]
    assert pool.allocate(100 * KIB, a).address in addresses


# Taken together


def in_a_row(pool: CachingAllocator, order: str, a: FakeTimeline, room: int) -> tuple[int, Any]:
    """Have free pieces of 4 MiB side by side; returns where they begin, and what ends the memory that there is."""
    pieces = [used(pool, 4 * MIB, a) if kind == "used" else pool.allocate(4 * MIB, a) for kind in order.split(", ")]
    end = pool.allocate(room - 4 * len(pieces) * MIB, a)
    address = pieces[0].address
    assert end.address == address + 4 * len(pieces) * MIB
    pieces.clear()
    pool.slow_path._empty_bins()
    return address, end


@IN_BOTH
@pytest.mark.parametrize("order", ["idle, used", "used, idle", "idle, used, idle", "used, idle, used"])
def test_a_stream_takes_its_own_memory_and_what_is_idle_beside_it_together(granularity: int, order: str) -> None:
    """Nothing more is reserved; and what is left over serves those whom it served before."""
    pool, memory = allocator(granularity)
    a, b = at_work("A"), FakeTimeline("B")
    kinds = order.split(", ")
    address, end = in_a_row(pool, order, a, 20 * MIB)
    reserved = memory.nbytes
    together = pool.allocate(4 * len(kinds) * MIB - MIB, a)
    assert address <= together.address <= address + MIB and memory.nbytes == reserved
    (rest,) = free_blocks(pool)
    assert rest.size == MIB and (rest.address == address or rest.address + rest.size == end.address)
    assert rest.serves(b) == (kinds[0 if rest.address == address else -1] == "idle")


def test_what_is_taken_together_serves_no_one_before_all_of_it_does() -> None:
    """Of three neighbours one is another stream's: it is taken with the others once that one is ordered before."""
    pool, memory = allocator(2 * MIB)
    a, b = at_work("A"), at_work("B")
    pieces = [used(pool, 4 * MIB, a), pool.allocate(4 * MIB, a), used(pool, 4 * MIB, b)]
    end = pool.allocate(8 * MIB, a)
    address = pieces[0].address
    pieces.clear()
    pool.slow_path._empty_bins()
    elsewhere = pool.allocate(12 * MIB, a)
    assert not address <= elsewhere.address < address + 12 * MIB
    a.join(b)
    reserved = memory.nbytes
    together = pool.allocate(12 * MIB, a)
    assert (together.address, memory.nbytes) == (address, reserved)
    assert together.pending() == [(a, a.submitted)]  # the wait stands for all of the other stream's work before it
    del end


# When work is done


@IN_BOTH
def test_what_many_streams_are_done_with_is_found_before_more_is_reserved(granularity: int) -> None:
    """More of them than a search asks: some at each, and more where memory would be taken else."""
    pool, memory = allocator(granularity)
    timelines = [at_work(f"S{k}") for k in range(4 * SEARCH)]
    buffers = [used(pool, 8000, timeline) for timeline in timelines]
    reserved = memory.nbytes
    buffers.clear()
    pool.slow_path._empty_bins()
    for timeline in timelines:
        while timeline.advance():
            pass
    c = at_work("C")
    kept = [pool.allocate(MIB // 2, c) for _ in range(4 * SEARCH * 8192 // MIB * 2)]
    assert memory.nbytes == reserved and len(kept) == 4


def test_what_several_streams_use_waits_for_each_in_turn() -> None:
    """Once the work of one is done, it is found by that of another; and joined after the last."""
    pool, _ = allocator(2 * MIB)
    a, b, c = (FakeTimeline(name) for name in "ABC")
    buffer = used(pool, 4 * MIB, a, b, c)
    kind = pool.slow_path.segments.large
    del buffer
    pool.slow_path._empty_bins(shared=True)
    (block,) = kind.blocks()
    for timeline, left in ((b, {a, c}), (a, {c})):
        timeline.advance()
        kind.join_done()
        assert kind.is_waiting(block) and {t for t in block.pending() if t.completed < block.pending()[t]} == left
    c.advance()
    assert kind.join_done() == [block] and not kind.is_waiting(block) and block.pending() == {}


def test_a_stream_that_is_gone_keeps_nothing_apart() -> None:
    """Its work was done, so that its memory is anybody's; another stream may be where it was."""
    pool, _ = allocator(2 * MIB)
    kind = pool.slow_path.segments.large
    for _ in range(20):
        timeline = FakeTimeline("A")
        used(pool, 4 * MIB, timeline)
        used(pool, 6 * MIB, timeline)
        pool.slow_path._empty_bins()
        while timeline.advance():
            pass
        pool.forget_all_done()
        del timeline
        kind.join_done()
        assert [block.pending() for block in kind.blocks()] == [{}]


def test_a_stream_that_is_held_for_long_costs_no_memory_of_the_hosts() -> None:
    """What its blocks waited for is dropped when they are taken again."""
    pool, _ = allocator(2 * MIB)
    a, b = at_work("A"), at_work("B")
    other = used(pool, 4 * MIB, b)
    kind = pool.slow_path.segments.large
    kept = used(pool, 2 * MIB, a)
    fence = pool.allocate(2 * MIB, b)
    del kept
    for _ in range(2000):
        used(pool, 4 * MIB, a)
        pool.slow_path._empty_bins()
    (dues,) = {due for due, _ in kind._due_of.values()}
    assert dues.count == 2 and len(dues.heap) <= 2 * dues.count + SEARCH + 1
    del other, fence


# What it costs


class Counted(list[int]):
    """Counters that count how often they are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.reads += 1
        return super().__getitem__(index)


@IN_BOTH
def test_a_search_asks_no_more_where_more_streams_wait(granularity: int) -> None:
    """All of them with memory that they have freed, and that their queued work uses."""
    pool, memory = allocator(granularity)
    timelines, kept, asked = [], [], []
    for number in range(1, 1201):
        if number in (300, 400, 1100, 1200):
            asked.append(Counted.reads)
        timeline = FakeTimeline(f"S{number}")
        timeline.counters = Counted(timeline.counters)
        timelines.append(timeline)
        for nbytes in (8000, 16_000, 30_000):
            used(pool, nbytes, timeline)
        kept.append(used(pool, 8, timeline))
    assert asked[3] - asked[2] <= 1.5 * (asked[1] - asked[0])
    freed = sum(block.size for block in free_blocks(pool) if block.pending())
    cached = sum(len(home.free) * home.size for home in pool.slow_path.segments.small.bins)
    assert memory.nbytes <= 1.1 * (pool.totals.allocated + freed + cached) + 2 * MIB


# When memory is short


def test_a_limit_is_met_where_it_is_and_the_error_says_what_was_freed() -> None:
    """Many streams that keep something and free something: what is reserved is in use by one or the other."""
    pool, memory = allocator(2 * MIB, total=4 * MIB, hold=lambda timeline, points: None)
    timelines, kept, freed = [], [], 0
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        for number in range(10_000):
            timelines.append(at_work(f"S{number}"))
            kept.append(used(pool, 4096, timelines[-1]))
            freed += used(pool, 8192, timelines[-1]).block.size
    error = caught.value
    assert (error.allocated, error.in_flight) == (pool.totals.allocated, freed)
    assert error.allocated + error.in_flight > 4 * MIB - 8192 and len(kept) > 300


def test_a_stream_that_is_refused_leaves_what_is_free_as_it_was() -> None:
    """Idle memory between what others' work uses, which might have been waited for with it."""
    pool, memory = allocator(2 * MIB, total=2 * MIB, hold=lambda timeline, points: None)
    a, b, c = at_work("A"), at_work("B"), at_work("C")
    kept = [used(pool, 300 * KIB, a), pool.allocate(300 * KIB, c), used(pool, 300 * KIB, b), pool.allocate(1000 * KIB, c)]
    address = kept[1].address
    del kept[:3]
    with pytest.raises(aiodev.OutOfMemoryError):
        pool.allocate(850 * KIB, c)
    assert pool.allocate(290 * KIB, c).address == address and memory.nbytes == 2 * MIB


# On real streams


def test_clients_that_wait_share_memory() -> None:
    """Streams behind one gate, each with what it computes; what they have freed is reused only in their own order."""

    async def main() -> None:
        memory = aiodev.memory
        await aiodev.synchronize("cpu")
        memory.empty_cache("cpu")
        reserved = memory.memory_reserved("cpu")
        gate = asyncio.get_running_loop().create_future()
        results = []
        for number in range(300):
            with aiodev.Stream("cpu") as stream:
                stream.wait_future(gate)
                results.append((aiodev.full(100, number, "i8") * 2 + 1).sum())
        assert memory.memory_reserved("cpu") - reserved <= 6 * MIB
        gate.set_result(None)
        assert [int(await result.item()) for result in results] == [200 * number + 100 for number in range(300)]

    asyncio.run(main())
