"""Ctrl-C at any moment of an allocation, of a release and of a lease: nothing is torn, handed out twice, or lost for good."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import asyncio
import gc
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from interrupts import Interrupted, interrupted_everywhere, sigint_raises
from memory_model import FakeMemory, FakeTimeline

import aiodev
from aiodev._core import sigint
from aiodev._core.backend.interface import COMPLETED
from aiodev._core.sigint import sigint_held
from aiodev._core.waiting.watcher import watcher
from aiodev._memory import allocator as allocator_module, block, lease as lease_module, segments, slow_path
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.block import CACHED, FREE, HOLE
from aiodev._memory.lease import Admission, Lease

POLICY = (allocator_module, slow_path, segments, block)
SIZES = (700, 3 << 20, 5 << 20, 100)


@pytest.fixture(autouse=True)
def forget_what_finalizers_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a finalizer is only told of; who keeps that keeps the finalizer's object."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> set[FakeTimeline]:
    """All timelines that there are, to which other tests may have left work that is held."""
    lines: set[FakeTimeline] = set()
    monkeypatch.setattr(slow_path, "living", SimpleNamespace(all=lambda: lines))
    return lines


@pytest.mark.parametrize("sizes", [(700,), (3 << 20, 5 << 20)])
@pytest.mark.parametrize("granularity", [0, 2 << 20])
def test_an_allocator_survives_ctrl_c_at_any_moment(granularity: int, sizes: tuple[int, ...]) -> None:
    """Requests are served as before, no block is in two hands, and all memory goes back in the end (invariant 5)."""
    memory = FakeMemory(64 << 20, granularity)
    timeline = FakeTimeline("A")

    def act(pool: CachingAllocator) -> None:
        kept = [pool.allocate(size, timeline) for size in sizes]
        del kept[0]
        pool.empty_cache()
        kept.clear()

    pool = CachingAllocator(aiodev.Device("cpu"), memory, True, lambda line, points: line.hold(points))
    with sigint_raises() as arrive:
        for _ in interrupted_everywhere(lambda: act(pool), *POLICY, sigint, arrive=arrive, least=100):
            gc.collect(0)
            again = [pool.allocate(size, timeline) for size in SIZES]
            held = sorted((buffer.address, buffer.address + buffer.block.size) for buffer in again)
            assert all(stop <= start for (_, stop), (start, _) in zip(held, held[1:], strict=False))
            del again
            assert pool.slow_path.lock.acquire(blocking=False), "the lock is held"
            pool.slow_path.lock.release()
            assert not pool.slow_path.looking
    gc.collect()
    pool.empty_cache()
    assert pool.totals.allocated == 0 and pool.totals.allocations == pool.totals.frees
    assert pool.totals.reserved == 0
    assert all(part.state in (FREE, HOLE) for whole in pool.slow_path.segments.all() for part in whole.blocks())


def test_a_block_that_somebody_has_is_not_taken_for_a_dropped_one() -> None:
    """Neither one with a buffer, nor one that is just being handed out, nor one that is cached, or has neighbours or uses."""
    memory, timeline = FakeMemory(64 << 20, 0), FakeTimeline("A")
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True, lambda line, points: line.hold(points))
    live = [pool.allocate(size, timeline) for size in (600, 600, 600, 3 << 20)]
    used = pool.allocate(600, timeline)
    used._record_write(timeline, timeline.submit())
    del used  # cached, and listed, since its use is not done
    in_hand = live[0].block
    allocated = pool.totals.allocated
    assert pool.slow_path.find_dropped() is None and pool.totals.allocated == allocated
    del live[1].block  # its buffer has gone without a finalizer
    pool.slow_path.find_dropped()
    assert pool.totals.allocated == allocated - 1024
    assert in_hand.state == live[2].block.state != FREE


def test_a_cached_block_that_ctrl_c_took_from_a_list_is_not_taken_for_a_dropped_one() -> None:
    """Its bin still has it: it would be handed out from there and as free memory."""
    memory, timeline = FakeMemory(64 << 20, 0), FakeTimeline("A")
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True, lambda line, points: line.hold(points))

    buffers: list[Any] = []

    def prepare() -> None:
        buffers[:] = [pool.allocate(600, timeline) for _ in range(2)]
        buffers[0]._record_write(timeline, timeline.submit())

    def act() -> None:
        buffers.pop(0)  # is cached, and listed, since its use is not done
        timeline.counters[COMPLETED] = timeline.submitted
        buffers.pop()  # looks at what is listed

    with sigint_raises() as arrive:
        for _ in interrupted_everywhere(act, allocator_module, block, prepare=prepare, arrive=arrive, least=5):
            pool.slow_path.find_dropped()
            assert all(cached.state == CACHED for home in pool._bins.values() for cached in home.free)
            assert all(cached.listed is (cached in pool.pending) for home in pool._bins.values() for cached in home.free)


def test_a_dropped_block_waits_for_all_that_is_queued(lines: set[FakeTimeline]) -> None:
    """Who used it is not known: it serves who is ordered behind all work, and goes back when that is done."""
    memory, busy, other = FakeMemory(64 << 20, 0), FakeTimeline("A"), FakeTimeline("B")
    lines.update({busy, other})
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True, lambda line, points: line.hold(points))
    buffer = pool.allocate(3 << 20, busy)
    buffer._record_write(busy, busy.submit())
    del buffer.block  # its buffer has gone without a finalizer
    assert pool.empty_cache() == 0 and pool.totals.allocated == 0
    address = pool.allocate(3 << 20, busy).address
    assert pool.allocate(3 << 20, other).address != address, "it is still in use"
    busy.counters[COMPLETED] = busy.submitted
    assert pool.empty_cache() == pool.totals.reserved_ever and pool.totals.reserved == 0


def test_a_lease_gives_back_whatever_ctrl_c_tears() -> None:
    """What was granted to a task that Ctrl-C ended goes back, at the latest when its lease is collected."""

    async def one() -> None:
        async with Lease(10, "cpu"):
            pass

    async def reached() -> None:
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        watcher.call(lambda: loop.call_soon_threadsafe(done.set))
        await done.wait()

    admission = Lease(10, "cpu")._admission
    before = admission.leased
    with sigint_raises() as arrive:
        for _ in interrupted_everywhere(lambda: _run(one()), lease_module, arrive=arrive, least=10):
            gc.collect(0)
            asyncio.run(reached())
            assert admission.leased == before and len(admission) == 0


def test_admission_counts_what_is_granted_whatever_ctrl_c_tears() -> None:
    """It is granted and known to be, or not granted."""
    admission = Admission(lambda: 100)

    async def one() -> None:
        if await admission.acquire(10):
            admission.release(10)

    with sigint_raises() as arrive:
        for _ in interrupted_everywhere(lambda: _run(one()), lease_module, arrive=arrive, least=10):
            assert admission.leased in (0, 10)  # ten: between the two
            admission.leased = 0
            assert len(admission) == 0


def test_ctrl_c_arrives_at_the_end_of_the_section() -> None:
    """Once, with sections within sections; and at once in code of others that one calls."""
    made: list[str] = []
    with sigint_raises() as arrive:
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(Interrupted), sigint_held:
            with sigint_held:
                arrive()
                made.append("inner")
            arrive()
            made.append("outer")
        assert made == ["inner", "outer"] and signal.getsignal(signal.SIGINT) is handler
        with sigint_held:
            with pytest.raises(Interrupted), sigint_held.let_through():
                arrive()
            made.append("after")
        assert made[-1] == "after" and signal.getsignal(signal.SIGINT) is handler


def test_a_section_does_not_ask_how_a_handler_is_shown() -> None:
    """``signal.signal`` has asyncio's handler shown, with the task that it would cancel: for 20 us, and in ``__repr__``."""

    class Handler:
        def __call__(self, number: int, frame: object) -> None: ...

        def __repr__(self) -> str:
            raise AssertionError("a section is short")

    before = _signal.getsignal(signal.SIGINT)
    try:
        _signal.signal(signal.SIGINT, handler := Handler())
        with sigint_held:
            assert _signal.getsignal(signal.SIGINT) is not handler
        assert _signal.getsignal(signal.SIGINT) is handler
    finally:
        _signal.signal(signal.SIGINT, before)


def test_sections_leave_a_handler_that_raises_nothing_alone() -> None:
    """Neither the system's, nor one that somebody sets meanwhile, is replaced."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with sigint_held:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    def other(number: int, frame: object) -> None: ...

    try:
        with sigint_raises(), sigint_held:
            signal.signal(signal.SIGINT, other)
        signal.signal(signal.SIGINT, other)
    finally:
        signal.signal(signal.SIGINT, before)


def _run(coroutine: Any) -> None:
    """Run a coroutine by hand, in this thread: a loop would have handlers of its own."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()
