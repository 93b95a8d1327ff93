"""Where memory comes from when it is short, or goes to when there is too much: ranges, the threshold, hooks, waiting, pools."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import pytest
from memory_model import FakeMemory, FakeTimeline

import aiodev
from aiodev._core.config import Settings
from aiodev._memory import segments
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.block import FREE, HOLE
from aiodev._memory.tuning import LARGE_SEGMENT, SMALL_SEGMENT
from aiodev.testing.latch import Latch

MIB = 1 << 20


def allocator(total: int = 1 << 30, granularity: int = 0, hold: Any = None) -> tuple[CachingAllocator, Any]:
    """An allocator over fake memory."""
    memory = FakeMemory(total, granularity)
    hold = hold or (lambda timeline, points: timeline.hold(points))
    return CachingAllocator(aiodev.Device("cpu"), memory, True, hold), memory


# Splitting and joining


@pytest.mark.parametrize("granularity", [0, 2 * MIB])
def test_neighbours_are_joined_for_a_larger_request(granularity: int) -> None:
    """Three pieces that were freed serve a request of their sum, and the rest another; nothing more is taken."""
    pool, memory = allocator(granularity=granularity)
    timeline = FakeTimeline("A")
    pieces = [pool.allocate(6 * MIB, timeline) for _ in range(3)]
    first = pieces[0].address
    reserved = memory.nbytes
    del pieces
    whole = pool.allocate(17 * MIB, timeline)
    assert whole.address == first
    assert pool.allocate(MIB // 2, timeline).block.segment is not whole.block.segment  # small ones live elsewhere
    assert memory.nbytes == reserved + 2 * MIB


def test_neighbours_with_work_of_different_timelines_stay_apart_until_it_is_done() -> None:
    """Joined, each would wait for the other's work."""
    pool, memory = allocator(total=16 * MIB, granularity=2 * MIB, hold=lambda timeline, points: None)
    a, b = FakeTimeline("A"), FakeTimeline("B")
    left, right = pool.allocate(8 * MIB, a), pool.allocate(8 * MIB, b)
    left._record_write(a, a.submit())
    right._record_write(b, b.submit())
    del left, right
    with pytest.raises(aiodev.OutOfMemoryError):
        pool.allocate(16 * MIB, a)
    a.advance()
    b.advance()
    assert pool.allocate(16 * MIB, a).block.size == 16 * MIB
    assert memory.nbytes == 16 * MIB


# Ranges


def test_a_range_grows_by_what_is_missing_next_to_free_memory() -> None:
    """What is free at the end of a range and new memory behind it serve a request together."""
    pool, memory = allocator(granularity=2 * MIB)
    timeline = FakeTimeline("A")
    kept = pool.allocate(4 * MIB, timeline)
    freed = pool.allocate(6 * MIB, timeline)
    address = freed.address
    del freed
    larger = pool.allocate(10 * MIB, timeline)
    assert larger.address == address == kept.address + 4 * MIB
    assert memory.nbytes == 14 * MIB
    assert pool.totals.segments == 1


def test_what_is_given_back_leaves_a_hole_that_is_filled_again() -> None:
    """Whole granules inside of a free piece go; the addresses stay, and the next request that fits is put there."""
    pool, memory = allocator(granularity=2 * MIB)
    timeline = FakeTimeline("A")
    blocks = [pool.allocate(3 * MIB, timeline) for _ in range(3)]
    addresses = [buffer.address for buffer in blocks]
    del blocks[1]
    assert pool.empty_cache() == 2 * MIB  # of the middle one, the granule that lies in it as a whole
    assert memory.nbytes == 8 * MIB
    again = pool.allocate(3 * MIB, timeline)
    assert again.address == addresses[1]
    assert memory.nbytes == 10 * MIB
    blocks.clear()
    del again
    assert pool.empty_cache() == 10 * MIB
    assert memory.held == {} and pool.totals.reserved == 0


def test_without_addresses_there_are_no_ranges_but_an_error_that_tells() -> None:
    """A range as large as the device is asked for first, then smaller ones."""
    pool, memory = allocator(total=256 * MIB, granularity=2 * MIB)
    asked: list[int] = []

    def refuse(nbytes: int) -> int:
        asked.append(nbytes)
        raise MemoryError("no addresses")

    memory.reserve_range = refuse
    with pytest.raises(aiodev.OutOfMemoryError):
        pool.allocate(100 * MIB, FakeTimeline("A"))
    assert asked[:2] == [256 * MIB, 128 * MIB] and min(asked) >= 100 * MIB


@pytest.mark.parametrize("nbytes", [257 * MIB, 1 << 64, 1 << 83, 1 << 2000])
def test_no_addresses_are_asked_for_what_the_device_can_never_hold(nbytes: int) -> None:
    """A backend might take such a size for a smaller one."""
    pool, memory = allocator(total=256 * MIB, granularity=2 * MIB)
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        pool.allocate(nbytes, FakeTimeline("A"))
    assert caught.value.requested >= nbytes and not memory.ranges


# Work that ends in the midst


@pytest.mark.parametrize("way", ["empty_cache", "in need", "threshold"])
@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210"])
def test_all_that_is_idle_goes_back_though_work_beside_it_ends_meanwhile(
    way: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of what went first is joined with the pieces behind it, or before, which were to go next."""
    pool, memory = allocator(total=64 * MIB, granularity=2 * MIB)
    a, b = FakeTimeline("A"), FakeTimeline("B")
    pieces = {number: pool.allocate(3 * MIB, a) for number in "012"}
    start = pieces["0"].address
    kept = pool.allocate(3 * MIB, b)
    pieces["1"]._record_write(a, a.submit())
    for number in order:
        del pieces[number]
        pool.slow_path._empty_bins()
    unmap = memory.unmap_range

    def unmap_range(address: int, nbytes: int) -> None:
        a.advance()
        unmap(address, nbytes)

    monkeypatch.setattr(memory, "unmap_range", unmap_range)
    if way == "empty_cache":
        assert pool.empty_cache() == 8 * MIB
    else:
        if way == "threshold":
            monkeypatch.setattr(segments, "settings", Settings(memory_gc_threshold=0.01))
        else:
            memory.total = 24 * MIB
        large = pool.allocate(17 * MIB, b)
        assert large.address >= kept.address + 3 * MIB
        assert pool.totals.collected == (8 * MIB if way == "threshold" else 0)
    assert not any(address in memory.held for address in range(start, start + 8 * MIB, 2 * MIB))
    assert pool.totals.reserved == memory.nbytes
    holes = [hole for segment in pool.slow_path.segments.all() for hole in segment.holes]
    assert [hole.size for hole in holes if hole.address == start] == [8 * MIB]
    (rest,) = [block for block in pool.slow_path.segments.large.blocks() if block.address < kept.address]
    assert (rest.address, rest.size) == (start + 8 * MIB, MIB)


@pytest.mark.parametrize("looks", range(1, 12))
def test_neighbours_are_joined_whenever_work_ends(looks: int) -> None:
    """Were it taken for done beside one neighbour, and not beside the other, nobody would join them later."""
    pool, _ = allocator(total=64 * MIB, granularity=2 * MIB)
    a = FakeTimeline("A")
    pieces = [pool.allocate(size * MIB, a) for size in (2, 3, 4)]
    pieces[1]._record_write(a, a.submit())
    del pieces[2], pieces[0]
    pool.slow_path._empty_bins()
    pieces.clear()
    a.advance_at_look(looks)
    pool.slow_path._empty_bins()
    a.advance_at_look(0)
    a.advance()
    pool.slow_path._join_all_done()
    (free,) = pool.slow_path.segments.large.blocks()
    assert free.size == pool.totals.reserved


@pytest.mark.parametrize("looks", range(1, 30))
def test_new_memory_is_joined_with_what_was_found_before_it(looks: int) -> None:
    """Where work has ended since, more would be; then what is left over would not be new, and other work may use it."""
    pool, _ = allocator(granularity=2 * MIB)
    a, b, c = (FakeTimeline(name) for name in "ABC")
    pieces = [pool.allocate(size * MIB, a) for size in (10, 4, 2, 2)]
    used_by_a = [(piece.address, piece.address + piece.block.size) for piece in (pieces[1], pieces[3])]
    for number, line, value in ((0, b, b.submit()), (1, a, a.submit()), (2, b, 1), (3, a, 1)):
        pieces[number]._record_write(line, value)
    pieces.clear()
    pool.slow_path._empty_bins()
    b.advance_at_look(looks)
    made = pool.allocate(12 * MIB, a)
    others = [pool.allocate(3 * MIB // 2, c) for _ in range(12)]
    for start, stop in ((other.address, other.address + other.block.size) for other in others):
        assert all(stop <= first or last <= start for first, last in used_by_a), "A's work still uses it"
    assert made.block.size == 12 * MIB


# Segments


def test_segments_have_the_usual_sizes() -> None:
    """2 MiB for small requests, 20 MiB for middling ones, whole 2 MiB for large ones."""
    pool, memory = allocator()
    timeline = FakeTimeline("A")
    buffers = [pool.allocate(nbytes, timeline) for nbytes in (1000, 3 * MIB, 31 * MIB)]
    assert sorted(memory.held.values()) == [SMALL_SEGMENT, LARGE_SEGMENT, 32 * MIB]
    del buffers


# The threshold


def test_beyond_the_threshold_what_has_been_free_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of it as is needed; what is in use stays."""
    monkeypatch.setattr(segments, "settings", Settings(memory_gc_threshold=0.5))
    pool, memory = allocator(total=256 * MIB, granularity=2 * MIB)
    timeline = FakeTimeline("A")
    kept = [pool.allocate(nbytes * MIB, timeline) for nbytes in (40, 2, 40, 2, 20)]
    first, second = kept[0].address, kept[2].address
    del kept[0]
    del kept[1]
    grown = pool.allocate(60 * MIB, timeline)
    assert pool.totals.collected == 80 * MIB
    assert first not in memory.held and second not in memory.held
    assert memory.nbytes <= 128 * MIB
    del grown, kept


# Out of memory


def test_hooks_are_called_until_there_is_room() -> None:
    """In order; those after the one that helped are left alone; one that is removed is not called."""
    pool, _ = allocator(total=32 * MIB)
    timeline = FakeTimeline("A")
    held = [pool.allocate(30 * MIB, timeline)]
    calls: list[tuple[str, int]] = []

    def useless(device: aiodev.Device, nbytes: int) -> None:
        calls.append((f"useless {device}", nbytes))

    def useful(device: aiodev.Device, nbytes: int) -> None:
        calls.append(("useful", nbytes))
        held.clear()
        segment = pool.allocate(1000, timeline).block.segment  # a hook may allocate
        assert segment.nbytes == SMALL_SEGMENT, "it was served as in the midst of another allocation"

    def late(device: aiodev.Device, nbytes: int) -> None:
        calls.append(("late", nbytes))

    pool.slow_path.hooks += [useless, useful, late]
    assert pool.allocate(16 * MIB, timeline).block.size == 16 * MIB
    assert calls == [("useless cpu:0", 16 * MIB), ("useful", 16 * MIB)]


def test_a_hook_that_needs_more_than_there_is_does_not_call_itself() -> None:
    """What it allocates fails as if there were no hooks; from a private pool, too."""
    pool, _ = allocator(total=32 * MIB)
    private = pool.make_private()
    timeline = FakeTimeline("A")
    held = pool.allocate(30 * MIB, timeline)
    calls = 0

    def greedy(device: aiodev.Device, nbytes: int) -> None:
        nonlocal calls
        calls += 1
        for source in (pool, private):
            with pytest.raises(aiodev.OutOfMemoryError):
                source.allocate(nbytes, timeline)

    pool.slow_path.hooks.append(greedy)
    for expected in (1, 2):
        with pytest.raises(aiodev.OutOfMemoryError):
            pool.allocate(16 * MIB, timeline)
        assert calls == expected
    del held


def test_a_hook_that_raises_ends_the_allocation() -> None:
    """With its own error, behind which is the backend's; later hooks are not called, and nothing else has changed."""
    pool, memory = allocator(total=32 * MIB)
    timeline = FakeTimeline("A")
    held = [pool.allocate(30 * MIB, timeline)]
    calls: list[str] = []

    def broken(device: aiodev.Device, nbytes: int) -> None:
        calls.append("broken")
        raise LookupError("no such cache")

    def useful(device: aiodev.Device, nbytes: int) -> None:
        calls.append("useful")
        held.clear()

    pool.slow_path.hooks += [broken, useful]
    for _ in range(2):
        with pytest.raises(LookupError, match="no such cache") as caught:
            pool.allocate(16 * MIB, timeline)
        assert isinstance(caught.value.__context__, MemoryError)
    assert calls == ["broken", "broken"] and pool.totals.out_of_memory == 0
    assert pool.totals.allocated == held[0].block.size and pool.totals.reserved == memory.nbytes
    pool.slow_path.hooks.remove(broken)
    assert pool.allocate(16 * MIB, timeline).block.size == 16 * MIB and calls[2:] == ["useful"]


def test_a_hook_is_a_function() -> None:
    """What cannot be called is refused where it is given, and not when memory is short."""
    with pytest.raises(TypeError, match="on_out_of_memory"):
        aiodev.memory.on_out_of_memory(None, "cpu")  # type: ignore[arg-type]


def test_a_stream_waits_for_memory_that_another_still_uses() -> None:
    """Rather than fail: it is held until the other's work is done; what follows on it is ordered after that."""
    pool, _ = allocator(total=32 * MIB)
    a, b = FakeTimeline("A"), FakeTimeline("B")
    buffer = pool.allocate(30 * MIB, a)
    buffer._record_write(a, a.submit())
    address = buffer.address
    del buffer
    served = pool.allocate(30 * MIB, b)
    assert served.address == address
    assert b.ordered_before_next()[a] == 1
    assert pool.totals.waits == 1 and pool.totals.out_of_memory == 0
    work = b.submit()
    assert not b.advance()
    a.advance()
    assert b.advance() and b.advance() and b.completed == work


# On a real device


@pytest.mark.parametrize("holes", ["between", "before", "behind", "around"])
def test_memory_on_both_sides_of_a_hole_is_waited_for_together(holes: str) -> None:
    """Whatever uses it; the hole is filled as far as needed, where that needs the least."""
    pool, memory = allocator(total=64 * MIB, granularity=2 * MIB)
    a, b = FakeTimeline("A"), FakeTimeline("B")
    sizes = {"between": (28, 4, 28), "before": (4, 28, 28), "behind": (28, 28, 4), "around": (2, 28, 26, 4)}[holes]
    pieces = [pool.allocate(size * MIB, a) for size in sizes]
    kept = pool.allocate(2 * MIB, b)
    address = pieces[0].address
    for number, size in enumerate(sizes):
        if size > 4:
            pieces[number]._record_write(a, a.submit())
            pieces[number]._record_read(b, b.submit())
    pieces = [piece for piece, size in zip(pieces, sizes, strict=True) if size > 4]
    assert pool.empty_cache() == (6 if holes == "around" else 4) * MIB
    pieces.clear()
    c = FakeTimeline("C")
    whole = pool.allocate(58 * MIB, c)
    assert c.holds and address <= whole.address < address + 4 * MIB and whole.block.size == 58 * MIB
    assert 60 * MIB <= memory.nbytes <= 62 * MIB and kept.address == address + sum(sizes) * MIB
    del whole
    assert pool.totals.allocated == 2 * MIB


@pytest.mark.parametrize("seed", range(40))
def test_gaps_are_bridged_where_that_needs_the_least(seed: int) -> None:
    """As by looking at every row of neighbours that are free or holes; nothing is mapped where none would do."""
    chance = random.Random(seed)
    pool, memory = allocator(total=256 * MIB, granularity=2 * MIB)
    a = FakeTimeline("A")
    pieces = [pool.allocate(2 * chance.randrange(1, 6) * MIB, a) for _ in range(20)]
    kinds = [chance.choice(("kept", "used", "used", "hole", "hole")) for _ in pieces]
    kept = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == "kept"]
    for piece, kind in zip(pieces, kinds, strict=True):
        if kind == "used":
            piece._record_write(a, a.submit())
    del piece
    pieces.clear()
    pool.empty_cache()
    (segment,) = [one for one in pool.slow_path.segments.all() if one.growable and not one.is_empty()]
    pool.slow_path._empty_bins(shared=True)
    blocks = [(block.state, block.size) for block in segment.blocks()][:-1]  # behind the last there is no end of addresses
    size, needed = 2 * chance.randrange(6, 20) * MIB, []
    for begin in range(len(blocks)):
        for end in range(begin + 1, len(blocks) + 1):
            row = blocks[begin:end]
            free, holes = (sum(nbytes for state, nbytes in row if state == kind) for kind in (FREE, HOLE))
            inside = sum(nbytes for state, nbytes in row[1:-1] if state == HOLE)
            if free and free + holes >= size and all(state in (FREE, HOLE) for state, _ in row):
                needed.append(max(inside, size - free))
    memory.total = memory.nbytes + min(needed, default=2 * MIB)
    before = memory.nbytes
    assert pool.slow_path.segments.bridge(size) or not needed or min(needed) == 0
    assert memory.nbytes - before <= min(needed, default=2 * MIB) and len(kept) == kinds.count("kept")
    for hole in segment.holes:
        assert hole.state == HOLE and (hole.next is None or hole.next.state != HOLE)


def test_what_lies_apart_is_not_enough_but_the_error_tells() -> None:
    """An array between two free pieces stays where it is; what is still used will be free when that is done."""
    pool, _ = allocator(total=32 * MIB, granularity=2 * MIB)
    a = FakeTimeline("A")
    first, kept, last = (pool.allocate(size * MIB, a) for size in (12, 4, 12))
    for buffer in (first, last):
        buffer._record_write(a, a.submit())
    del first, last, buffer
    with pytest.raises(aiodev.OutOfMemoryError, match="25,165,824 were freed, but queued work still uses them; await it"):
        pool.allocate(20 * MIB, a)
    a.advance()
    a.advance()
    assert pool.allocate(20 * MIB, a).block.size == 20 * MIB and kept.block.size == 4 * MIB


def test_work_that_waits_for_the_program_is_not_waited_for() -> None:
    """The program may be waiting for the very stream that would be held: an error, not a deadlock; then all goes on."""
    memory = aiodev.memory
    memory.empty_cache("cpu")
    nbytes = 64 * MIB
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    total = memory.mem_get_info("cpu")[1]
    memory.set_per_process_memory_fraction((memory.memory_reserved("cpu") + nbytes + 4 * MIB) / total, "cpu")
    try:
        with aiodev.stream(first):
            x = aiodev.empty(nbytes, "u1")
        with Latch(first):
            first.copy(x[:8], bytearray(8))
            del x
            with aiodev.stream(second), pytest.raises(aiodev.OutOfMemoryError):
                aiodev.empty(nbytes, "u1")
        with aiodev.stream(second):
            y = aiodev.full(nbytes, 3, "u1")
            assert y[-1:].numpy_blocking() == [3]
    finally:
        memory.set_per_process_memory_fraction(1.0, "cpu")


def test_work_that_needs_nobody_is_waited_for_on_the_device() -> None:
    """The second stream gets the memory behind the first one's work, even if that fails, without the host waiting."""
    memory = aiodev.memory
    memory.empty_cache("cpu")
    nbytes = 64 * MIB
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    total = memory.mem_get_info("cpu")[1]
    waits = memory.memory_stats("cpu")["num_waits_for_memory"]
    memory.set_per_process_memory_fraction((memory.memory_reserved("cpu") + nbytes + 4 * MIB) / total, "cpu")
    try:
        with aiodev.stream(first):
            x = aiodev.empty(nbytes, "u1")
        gate = first._gate()
        first.copy(x[:8], bytearray(8))
        del x
        with aiodev.stream(second):
            y = aiodev.full(nbytes, 3, "u1")
        assert memory.memory_stats("cpu")["num_waits_for_memory"] == waits + 1
        done = second.record_event()
        assert not done.query()
        gate.open(ValueError("the first stream's own"))
        assert y[-1:].numpy_blocking() == [3]
        with pytest.raises(ValueError, match="own"):
            first.synchronize_blocking()
        second.synchronize_blocking()
    finally:
        memory.set_per_process_memory_fraction(1.0, "cpu")


# Pools


async def test_a_pool_serves_only_those_inside() -> None:
    """Its memory is its own; its task's children inherit it; what leaves it in the wrong order is told."""
    memory = aiodev.memory
    pool, other = memory.MemoryPool("cpu"), memory.MemoryPool("cpu")
    before = memory.memory_reserved("cpu")
    with pool:
        x = aiodev.empty(3 * MIB, "u1", "cpu")
        async with other:
            y = aiodev.empty(3 * MIB, "u1", "cpu")
        z = aiodev.empty(3 * MIB, "u1", "cpu")
    address = x._address
    assert pool.memory_reserved() >= 6 * MIB and 3 * MIB <= other.memory_reserved() < 6 * MIB
    assert memory.memory_reserved("cpu") == before + pool.memory_reserved() + other.memory_reserved()
    del x
    outside = aiodev.empty(3 * MIB, "u1", "cpu")
    assert outside._address != address
    with pool:
        assert aiodev.empty(3 * MIB, "u1", "cpu")._address == address
    numbers = {s["segment_pool_id"] for s in memory.memory_snapshot("cpu")}
    assert len(numbers) == 3 and 0 in numbers
    with pytest.raises(RuntimeError, match="the innermost guard of this task is"):
        pool.__exit__(None, None, None)
    del y, z, outside


def test_the_memory_of_a_dropped_pool_comes_back() -> None:
    """What is cached at once, what arrays still use when they are gone."""
    memory = aiodev.memory
    gc.collect()
    aiodev.synchronize_blocking("cpu")
    memory.empty_cache("cpu")
    reserved = memory.memory_reserved("cpu")
    pool = memory.MemoryPool("cpu")
    with pool:
        kept = aiodev.full(3 * MIB, 1, "u1", "cpu")
        aiodev.empty(30 * MIB, "u1", "cpu")
    del pool
    gc.collect()
    assert reserved + 3 * MIB <= memory.memory_reserved("cpu") < reserved + 30 * MIB
    assert int(kept.numpy_blocking().sum()) == 3 * MIB
    del kept
    assert memory.memory_reserved("cpu") == reserved


def test_many_threads_allocate_and_free_without_drift() -> None:
    """Sizes of all kinds from eight threads, on streams of their own: accounts are exact and all memory comes back."""
    memory = aiodev.memory
    gc.collect()
    aiodev.synchronize_blocking("cpu")  # what other tests left in flight
    memory.empty_cache("cpu")
    before = memory.memory_allocated("cpu"), memory.memory_reserved("cpu")
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            sizes = [(seed * 7919 + k * 104729) % (4 * MIB) + 1 for k in range(400)]
            with aiodev.Stream("cpu") as stream:
                held = []
                for k, size in enumerate(sizes):
                    held.append(aiodev.empty(size, "u1"))
                    if k % 3:
                        del held[(seed + k) % len(held)]
                    if k % 16 == 0:
                        stream.copy(held[-1][:1], bytearray(1))
                stream.synchronize_blocking()
        except BaseException as error:  # told to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    gc.collect()
    aiodev.synchronize_blocking("cpu")
    memory.empty_cache("cpu")
    assert (memory.memory_allocated("cpu"), memory.memory_reserved("cpu")) == before
