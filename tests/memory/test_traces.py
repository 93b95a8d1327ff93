"""Allocations that look like real use: how much more is reserved than asked for, and that accounts do not drift."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from memory_model import FakeMemory, FakeTimeline
from memory_reference import ReferencePolicy
from memory_traces import COMPARED, TRACES, replay, replay_reference
from selection import examples

import aiodev
from aiodev._memory.allocator import CachingAllocator


@pytest.mark.parametrize("name", TRACES)
def test_little_more_is_reserved_than_asked_for(name: str) -> None:
    """At most 15 % at the peaks, rounding included, and nine allocations of ten take nothing from the backend."""
    memory = FakeMemory(1 << 40, granularity=2 << 20)
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True)
    outcome = replay(TRACES[name](), pool, FakeTimeline("A"))
    assert 1 <= outcome.fragmentation <= 1.15
    assert outcome.hit_rate >= 0.88
    assert pool.totals.allocated == 0
    pool.empty_cache()
    assert memory.held == {}


@pytest.mark.parametrize("granularity", [0, 2 << 20], ids=["segments", "ranges"])
@pytest.mark.parametrize("held", [False, True], ids=["done", "held"])
@pytest.mark.parametrize("name", COMPARED)
def test_hardly_more_is_reserved_than_pytorch_would(name: str, held: bool, granularity: int) -> None:
    """At most a tenth, at the peaks; with all work done at once, and with none of it ever done; on up to 32 streams."""
    memory = FakeMemory(1 << 40, granularity)
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True, lambda timeline, points: timeline.hold(points))
    timelines = [FakeTimeline(f"S{k}") for k in range(32)]
    outcome = replay(COMPARED[name](), pool, *timelines, held=held)
    assert outcome.peak_reserved <= 1.1 * reserved_by_pytorch(name)


@functools.cache
def reserved_by_pytorch(name: str) -> int:
    """By its policy, on the same trace."""
    return replay_reference(COMPARED[name](), ReferencePolicy())


def test_the_reference_splits_and_joins_as_pytorch_does() -> None:
    """Segments of 2 and 20 MiB, or whole ones; rests that are split off or not; pools of streams and sizes."""
    policy = ReferencePolicy()
    small = policy.allocate(1, "A")
    assert (small.size, policy.reserved) == (512, 2 << 20)
    large = policy.allocate((1 << 20) + 1, "A")
    assert policy.reserved == 22 << 20
    rest = policy.allocate((18 << 20) + (512 << 10), "A")  # what is left is no more than 1 MiB, and stays with it
    assert rest.size == (19 << 20) - 512 and policy.reserved == 22 << 20
    policy.release(large)
    policy.release(rest)
    assert policy.allocate(20 << 20, "A").size == 20 << 20 and policy.reserved == 22 << 20
    policy.allocate(1, "B")
    policy.allocate((10 << 20) + 1, "B")
    assert policy.reserved == 22 + 2 + 12 << 20


def test_a_timeline_finds_its_own_memory_among_that_of_many() -> None:
    """However many free blocks other streams' work uses, in segments and in ranges."""
    for granularity in (0, 2 << 20):
        memory = FakeMemory(1 << 40, granularity)
        pool = CachingAllocator(aiodev.Device("cpu"), memory, True)
        timelines = [FakeTimeline(f"S{k}") for k in range(200)]
        for turn in range(3):
            for timeline in timelines:
                held = [pool.allocate(nbytes, timeline) for nbytes in (300_000 + 1000 * turn, 5_000_000)]
                for buffer in held:
                    buffer._record_write(timeline, timeline.submit())
                del held, buffer
            if turn == 0:
                reserved = pool.totals.reserved
        assert pool.totals.reserved <= 1.1 * reserved


def test_a_million_operations_leave_the_accounts_exact() -> None:
    """Sizes from one byte to 4 MiB, several thousand blocks alive."""
    memory = FakeMemory(1 << 40, granularity=2 << 20)
    pool, timeline = CachingAllocator(aiodev.Device("cpu"), memory, True), FakeTimeline("A")
    rng = random.Random(5)
    sizes = [int(2 ** rng.uniform(0, 22)) for _ in range(4096)]
    places = [rng.randrange(3000) for _ in range(4099)]
    held: list[Any] = [None] * 3000
    for k in range(examples(500_000)):  # each an allocation, and the free of what was there
        held[places[k % 4099]] = pool.allocate(sizes[k % 4096], timeline)
    alive = [buffer.block.size for buffer in held if buffer is not None]
    assert pool.totals.allocated == sum(alive)
    assert pool.totals.allocations - pool.totals.frees == len(alive)
    assert pool.totals.reserved == memory.nbytes <= 1.2 * pool.totals.peak_allocated
    held.clear()
    pool.empty_cache()
    assert pool.totals.allocated == pool.totals.reserved == memory.nbytes == 0
