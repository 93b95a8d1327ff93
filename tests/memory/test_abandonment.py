"""Pools that were dropped while work used their memory, or arrays had it: all of it goes back, and nobody waits for that."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pytest
from memory_model import FakeMemory, FakeTimeline

import aiodev
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.block import LIVE
from aiodev._memory.buffer import Buffer
from aiodev.testing import Latch

MIB = 1 << 20


@pytest.fixture(params=[0, 2 * MIB], ids=["segments", "ranges"])
def common(request: pytest.FixtureRequest) -> CachingAllocator:
    """A device's allocator."""
    memory: Any = FakeMemory(1 << 30, request.param)
    return CachingAllocator(aiodev.Device("cpu"), memory, True, lambda timeline, points: timeline.hold(points))


def use(buffer: Buffer, timeline: Any) -> None:
    """Queue an operation that writes a buffer."""
    buffer._record_write(timeline, timeline.submit())


def finish(*timelines: FakeTimeline) -> None:
    """Complete all that was queued."""
    while any(timeline.advance() for timeline in timelines):
        pass


def test_a_pool_for_each_request(common: CachingAllocator) -> None:
    """Whose work is done by the next request: a few pools are left at any time, whatever else is pending on the device."""
    timeline, slow = FakeTimeline("A"), FakeTimeline("B")
    for _ in range(200):  # of the device itself, for long
        buffer = common.allocate(1000, slow)
        use(buffer, slow)
        del buffer
    own = common.totals.reserved
    for _ in range(300):
        pool = common.make_private()
        buffers = [pool.allocate(nbytes, timeline) for nbytes in (1000, 3 * MIB, 2000)]
        for buffer in buffers:
            use(buffer, timeline)
        del buffers, buffer
        pool.abandon()
        finish(timeline)
        assert common.totals.reserved - own <= 3 * (22 + 2) * MIB
    common.make_private()
    assert common.totals.reserved == own and len(common.private_pools) <= 3


def test_requests_that_overlap(common: CachingAllocator) -> None:
    """Of many pools whose work takes long, and whose arrays live long, those are left that are in use, and a few."""
    timelines = [FakeTimeline(str(n)) for n in range(40)]
    kept = []
    for n in range(400):
        timeline = timelines[n % 40]
        finish(timeline)  # the request of 40 before
        pool = common.make_private()
        buffer = pool.allocate(1000, timeline)
        use(buffer, timeline)
        kept.append(buffer)
        del buffer
        pool.abandon()
        if len(kept) > 20:
            del kept[0]
        assert common.totals.reserved <= 2 * MIB * (40 + 20 + 20)


def test_at_the_next_release_on_the_device(common: CachingAllocator) -> None:
    """Where no pool is made any more, and no memory looked for."""
    timeline = FakeTimeline("A")
    later = common.allocate(1000, timeline)
    own = common.totals.reserved
    pool = common.make_private()
    buffer = pool.allocate(1000, timeline)
    use(buffer, timeline)
    pool.abandon()
    del buffer
    assert common.totals.reserved > own
    finish(timeline)
    del later
    assert common.totals.reserved == own


def test_when_memory_is_looked_for(common: CachingAllocator) -> None:
    """By the device itself, or by another pool."""
    timeline = FakeTimeline("A")
    for other in (common, common.make_private()):
        pool = common.make_private()
        buffer = pool.allocate(30 * MIB, timeline)
        use(buffer, timeline)
        pool.abandon()
        del buffer
        finish(timeline)
        kept = other.allocate(1000, timeline)
        assert common.totals.reserved < 30 * MIB
        del kept


def test_arrays_that_outlive_the_pool(common: CachingAllocator) -> None:
    """The last one takes the memory along; the pool is looked through seldom before."""
    timeline = FakeTimeline("A")
    own = common.totals.reserved
    pool = common.make_private()
    buffers = [pool.allocate(1000, timeline) for _ in range(500)]
    looks = 0
    empty = pool.slow_path.empty

    def counted() -> int:
        nonlocal looks
        looks += 1
        return empty()

    pool.slow_path.empty = counted  # type: ignore[method-assign]
    pool.abandon()
    while buffers:
        assert common.totals.reserved > own
        buffers.pop()
    assert common.totals.reserved == own and looks < 15


def test_several_streams_use_it(common: CachingAllocator) -> None:
    """All of their work has to be done."""
    timelines = [FakeTimeline(name) for name in "ABC"]
    pool = common.make_private()
    buffer = pool.allocate(1000, timelines[0])
    for timeline in timelines:
        buffer._record_read(timeline, timeline.submit())
    pool.abandon()
    del buffer
    for timeline in timelines:
        common.make_private()
        assert common.totals.reserved > 0
        finish(timeline)
    common.make_private()
    assert common.totals.reserved == 0


def test_a_graph_keeps_it(common: CachingAllocator) -> None:
    """What is free as well, until the graph is gone; then it goes as ever."""
    timeline = FakeTimeline("A")
    pool = common.make_private()
    pool.pin()
    buffer = pool.allocate(1000, timeline)
    use(buffer, timeline)
    pool.abandon()
    del buffer
    finish(timeline)
    common.make_private()
    assert common.totals.reserved > 0
    pool.unpin()
    assert common.totals.reserved == 0


def test_a_forked_child_leaves_it(common: CachingAllocator) -> None:
    """It is the parent's memory."""
    timeline = FakeTimeline("A")
    pool, other = common.make_private(), common.make_private()
    buffers = [source.allocate(1000, timeline) for source in (pool, other)]
    for buffer in buffers:
        use(buffer, timeline)
    pool.abandon()
    reserved = common.totals.reserved
    common.leave_to_parent()
    del buffer, buffers[:]
    other.abandon()
    finish(timeline)
    kept = common.allocate(1000, timeline)
    assert common.totals.reserved > reserved
    assert all(source.slow_path.segments.all() for source in (pool, other))
    del kept


def test_a_release_while_another_thread_has_the_lock(common: CachingAllocator) -> None:
    """It does not wait; the next turn does what is left."""
    timeline = FakeTimeline("A")
    pool = common.make_private()
    buffers = [pool.allocate(1000, timeline)]
    pool.abandon()
    holding, over = threading.Event(), threading.Event()

    def hold() -> None:
        with common.slow_path.lock:
            holding.set()
            assert over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holding.wait(30)
        buffers.clear()
        assert common.totals.reserved > 0
    finally:
        over.set()
        thread.join()
    common.make_private()
    assert common.totals.reserved == 0


def test_at_random(common: CachingAllocator) -> None:
    """Whatever comes in whatever order: nothing goes back that is used, and in the end all does, without being asked for."""
    choose = random.Random(11)
    timelines = [FakeTimeline(name) for name in "ABCD"]
    pools: list[CachingAllocator] = []
    abandoned: list[CachingAllocator] = []
    buffers: list[Buffer] = []
    for _ in range(4000):
        action = choose.choice(("make", "allocate", "allocate", "allocate", "use", "use", "free", "free", "drop", "advance"))
        timeline: Any = choose.choice(timelines)
        if action == "make" and len(pools) < 5:
            pools.append(common.make_private())
        elif action == "allocate" and len(buffers) < 40:
            nbytes = choose.choice((1000, 5000, MIB, 3 * MIB))
            buffers.append(choose.choice((common, *pools)).allocate(nbytes, timeline))
        elif action == "use" and buffers:
            buffer = choose.choice(buffers)
            for other in timelines:
                timeline.join(other)
            use(buffer, timeline)
            del buffer
        elif action == "free" and buffers:
            buffers.pop(choose.randrange(len(buffers)))
        elif action == "drop" and pools:
            pool = pools.pop(choose.randrange(len(pools)))
            is_pinned = choose.random() < 0.3
            if is_pinned:
                pool.pin()
            pool.abandon()
            if is_pinned:
                pool.unpin()
            abandoned.append(pool)
        elif action == "advance":
            if choose.random() < 0.3:
                timeline.advance_at_look(choose.randrange(1, 20))
            for _ in range(choose.randrange(60)):
                choose.choice(timelines).advance()
        assert common.totals.allocated == sum(buffer.block.size for buffer in buffers)
        assert all(buffer.block.state == LIVE for buffer in buffers)
    while pools:
        pools[-1].abandon()
        abandoned.append(pools.pop())
    for pool in abandoned:
        held = sum(segment.mapped() for segment in pool.slow_path.segments.all())
        assert held == 0 or any(buffer.source is pool for buffer in buffers) or pool.slow_path.abandonment.queued  # type: ignore[union-attr]
    buffers.clear()
    finish(*timelines)
    for _ in range(len(abandoned)):
        common.make_private()
    assert all(pool.slow_path.is_spent() for pool in abandoned)
    common.empty_cache()
    assert common.totals.reserved == common.totals.allocated == 0


@pytest.mark.parametrize("is_dropped_first", [False, True])
async def test_arrays_whose_work_is_queued(is_dropped_first: bool) -> None:
    """Arrays and pools of a device, dropped in either order while a kernel has to write to them, and while others read them."""
    memory = aiodev.memory
    gc.collect()
    await aiodev.synchronize("cpu")
    memory.empty_cache("cpu")
    before = memory.memory_reserved("cpu")
    async with aiodev.Stream("cpu") as stream:
        for _ in range(100):
            pool = memory.MemoryPool("cpu")
            with Latch(stream):
                with pool:
                    x = aiodev.full(1 << 20, 1, "uint8")
                if is_dropped_first:
                    del pool
                    gc.collect(0)
                del x
            await stream.synchronize()
            assert memory.memory_reserved("cpu") <= before + 6 * MIB
        pool = memory.MemoryPool("cpu")
        with pool:
            x = aiodev.full(1 << 20, 1, "uint8")
        view = np.from_dlpack(x)  # another library's from now on
        del x, pool
        await stream.synchronize()
        memory.MemoryPool("cpu")
        assert (view == 1).all() and memory.memory_reserved("cpu") > before
        del view
        memory.MemoryPool("cpu")
    assert memory.memory_reserved("cpu") <= before + 2 * MIB
