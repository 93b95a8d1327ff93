"""When a stream takes no more work: it is full, or it is closed. What is submitted is held by latches, never by time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiodev import ClosedError, Stream, StreamFullError
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


async def test_a_closed_stream_stays_closed_when_its_backend_starts(simulated: SimulatedBackend) -> None:
    """A stream that is closed before its backend has started refuses afterwards, too."""
    held = threading.Event()
    start = simulated.start
    simulated.start = lambda: held.wait(30) and start()
    stream = Stream("sim")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)
        await anyio.wait_all_tasks_blocked()
        held.set()
    with pytest.raises(ClosedError):
        stream._fill(0, 0, b"\0")
    with pytest.raises(ClosedError):
        stream.call(int)
