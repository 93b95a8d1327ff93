"""When a stream takes no more work: it is full, or it is closed. What is submitted is held by latches, never by time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from turns import Clock, Turns

from aiodev import ClosedError, Stream, StreamFullError, default_stream
from aiodev._core.waiting.reactor import current_reactor
from aiodev.testing import Latch, SimulatedBackend

pytestmark = pytest.mark.anyio

AllocateBlock = Callable[[int], Any]

# Full


async def test_qsize_counts_what_is_pending() -> None:
    """Operations submitted and not done; a stream without a bound is never full."""
    stream = Stream("cpu")
    with Latch(stream):
        for _ in range(3):
            stream.call(int)
        assert stream.qsize() == 4 and not stream.empty() and not stream.full()
    await stream.synchronize()
    assert stream.qsize() == 0 and stream.empty()


async def test_a_full_stream_refuses(block: AllocateBlock) -> None:
    """Every kind of submission to a full stream raises StreamFullError, which is asyncio's QueueFull."""
    stream, memory = Stream("cpu", maxsize=2), block(16)
    with Latch(stream):
        stream.call(int)
        assert stream.full()
        for submit in (
            lambda: stream.call(int),
            lambda: stream.wait_future(object()),
            lambda: stream._fill(memory.address, 1, b"\0"),
            lambda: stream._copy(memory.address, memory.address + 8, 8),
            lambda: stream._launch(0, 1, b"", 0),
        ):
            with pytest.raises(StreamFullError, match="2 operations pending") as caught:
                submit()
        assert isinstance(caught.value, asyncio.QueueFull) and caught.value.maxsize == 2
        assert stream.qsize() == 2, "a refused submission was counted"
    await stream.drain()
    assert await stream.call(int, 3) == 3


async def test_drain_waits_for_room_and_no_more() -> None:
    """``drain`` returns as soon as one more operation fits, while others are still pending."""
    stream = Stream("cpu", maxsize=2)
    first = Latch(stream)
    second = Latch(stream)
    with anyio.move_on_after(0) as scope:
        await stream.drain()
    assert scope.cancelled_caught
    first.release()
    await stream.drain()
    assert stream.qsize() == 1 and not stream.full()
    second.release()


async def test_drain_of_a_stream_without_bound_returns() -> None:
    """There is always room."""
    stream = Stream("cpu")
    with Latch(stream):
        await stream.drain()
        assert stream.qsize() == 1


async def test_a_producer_with_drain_keeps_to_the_bound() -> None:
    """asyncio's write and drain: never more than ``maxsize`` pending, nothing lost, nothing refused."""
    stream, seen = Stream("cpu", maxsize=4), list[int]()
    for i in range(100):
        await stream.drain()
        stream.call(seen.append, i)
        assert stream.qsize() <= 4
    await stream.synchronize()
    assert seen == list(range(100))


async def test_drain_waits_for_room_for_a_whole_step() -> None:
    """Five submissions after ``drain(5)`` never meet a full stream, whatever is pending before."""
    stream, seen = Stream("cpu", maxsize=7), list[int]()
    for step in range(50):
        await stream.drain(5)
        assert stream.qsize() <= 2
        for part in range(5):
            stream.call(seen.append, 5 * step + part)
    await stream.synchronize()
    assert seen == list(range(250))


async def test_drain_refuses_what_never_fits() -> None:
    """More than ``maxsize``, where any number fits an unbounded stream; and what is no number of operations."""
    with pytest.raises(ValueError, match=r"drain\(3\).*maxsize=2"):
        await Stream("cpu", maxsize=2).drain(3)
    for stream in (Stream("cpu", maxsize=2), Stream("cpu")):
        with pytest.raises(ValueError, match=r"drain\(-1\): expected a number of operations"):
            await stream.drain(-1)
    await Stream("cpu").drain(3)


async def test_drain_of_a_full_stream_waits_for_the_low_water_mark() -> None:
    """And where there is room it does not."""
    stream, left = Stream("cpu", maxsize=4, low_water=1), list[int]()
    latches = [Latch(stream) for _ in range(3)]
    await stream.drain()
    latches.append(Latch(stream))

    async def drain() -> None:
        await stream.drain()
        left.append(stream.qsize())

    async with anyio.create_task_group() as group:
        group.start_soon(drain)
        while not current_reactor().waits:  # it has not looked yet, and one whose time is over lets others run before that
            await anyio.lowlevel.checkpoint()
        for pending, latch in zip((3, 2, 1), latches[:3], strict=True):
            assert left == []
            latch.release()
            while stream.qsize() > pending:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
    assert left == [1]
    latches[3].release()


@pytest.mark.parametrize("low_water", [-1, 4, 5])
async def test_the_low_water_mark_is_below_the_high_one(low_water: int) -> None:
    """Or the stream is refused."""
    with pytest.raises(ValueError, match=f"low_water={low_water}: .* below maxsize=4"):
        Stream("cpu", maxsize=4, low_water=low_water)
    assert Stream("cpu", maxsize=4).low_water == 3 and Stream("cpu").low_water == 0


async def test_tasks_that_drain_do_not_take_the_same_room() -> None:
    """Each submits its whole step before the next one is let go on, first come, first served, large steps too."""
    stream, order = Stream("cpu", maxsize=8), list[int]()
    latches = [Latch(stream) for _ in range(8)]

    async def produce(number: int, n: int) -> None:
        await stream.drain(n)
        order.append(number)
        for _ in range(n):
            stream.call(int)

    async with anyio.create_task_group() as group:
        for number, n in enumerate((5, 1, 3, 8, 1, 1, 5)):
            group.start_soon(produce, number, n)
            await anyio.wait_all_tasks_blocked()
        for latch in latches:
            latch.release()
    assert order == list(range(7))


async def test_a_large_step_is_not_starved_by_small_ones() -> None:
    """While others keep the stream full, one at a time, who needs all of it gets it."""
    stream, done = Stream("cpu", maxsize=4), False

    async def small() -> None:
        while not done:
            await stream.drain()
            stream.call(int)

    async def large() -> None:
        nonlocal done
        for _ in range(10):
            await stream.drain(4)
            for _ in range(4):
                stream.call(int)
        done = True

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(small)
        group.start_soon(large)


async def test_a_drain_that_is_cancelled_leaves_the_line() -> None:
    """Those behind it go on."""
    stream = Stream("cpu", maxsize=1)
    latch = Latch(stream)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as doomed:
                doomed.start_soon(stream.drain)
                await anyio.wait_all_tasks_blocked()
                group.start_soon(stream.drain)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        latch.release()


async def test_who_drains_where_there_is_room_yields_in_time(clock: Clock) -> None:
    """As any await does that need not wait."""
    bounded, unbounded = Stream("cpu", maxsize=4), Stream("cpu")
    async with Turns() as turns:
        for stream in (bounded, unbounded):
            await stream.drain()
            before = turns.count
            clock.work()
            await stream.drain()
            assert turns.count > before


# Closed


async def test_closing_waits_and_then_refuses(block: AllocateBlock) -> None:
    """``aclose`` waits for what is pending; afterwards every submission raises ClosedError."""
    stream, seen, memory = Stream("cpu"), list[int](), block(16)
    stream.call(seen.append, 1)
    await stream.aclose()
    assert seen == [1]
    for submit in (
        lambda: stream.call(int),
        lambda: stream.wait_future(object()),
        lambda: stream._fill(memory.address, 1, b"\0"),
        lambda: stream._copy(memory.address, memory.address + 8, 8),
        lambda: stream._launch(0, 1, b"", 0),
    ):
        with pytest.raises(ClosedError, match=f"Stream {stream.stream_id} on cpu:0.* is closed"):
            submit()


async def test_closing_twice_does_nothing() -> None:
    """The second ``aclose`` returns."""
    stream = Stream("cpu")
    await stream.aclose()
    await stream.aclose()
    await stream.synchronize()
    with pytest.raises(ClosedError):
        stream.call(int)


async def test_a_default_stream_is_not_closed() -> None:
    """It belongs to every task: whoever closes it is told so, and it takes work afterwards."""
    stream = default_stream("cpu")
    with pytest.raises(RuntimeError, match="is a default stream, for everybody, and stays open"):
        await stream.aclose()
    assert await stream.call(int) == 0 and default_stream("cpu") is stream


async def test_a_closed_stream_stays_closed_when_its_backend_starts(simulated: SimulatedBackend) -> None:
    """A stream that is closed before its backend has started refuses afterwards, too."""
    held = threading.Event()
    start = simulated.start
    simulated.start = lambda: held.wait(30) and start()
    stream = Stream(simulated.name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)
        await anyio.wait_all_tasks_blocked()
        held.set()
    with pytest.raises(ClosedError):
        stream._fill(0, 0, b"\0")
    with pytest.raises(ClosedError):
        stream.call(int)
