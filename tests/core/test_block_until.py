"""A timeline that is held until work of others is done, whatever becomes of that."""

from __future__ import annotations

import pytest
from thread_limit import no_more_threads

from aiodev import DependencyError, Stream
from aiodev._core.timeline.vector_clock import MOST_KNOWN
from aiodev._core.waiting.block_until import hold_until, waits_for_program
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio


async def test_it_is_held_until_all_of_them_are_done() -> None:
    """And what follows runs, though some of it failed."""
    held, first, second = Stream("cpu"), Stream("cpu"), Stream("cpu")
    gates = [stream._gate() for stream in (first, second)]
    value = hold_until(held.timeline, {stream.timeline: stream.timeline.submitted for stream in (first, second)})
    assert value == 1
    done = held.call(int, 3)
    gates[0].open(OSError("the first one's own"))
    with pytest.raises(OSError):
        await first.synchronize()
    assert not done.query()
    gates[1].open()
    assert await done == 3


async def test_what_is_done_holds_nothing() -> None:
    """Nor does what is the timeline's own, of which the last one is named."""
    held, other = Stream("cpu"), Stream("cpu")
    done = other.call(int)
    await done
    assert hold_until(held.timeline, {other.timeline: done.value}) == 0
    gate = held._gate()
    assert hold_until(held.timeline, {held.timeline: gate.value}) == gate.value
    assert held.qsize() == 1
    gate.open()
    await held.synchronize()


async def test_nothing_is_held_where_no_thread_can_wait() -> None:
    """Else it would be for ever; there is other memory."""
    held, other = Stream("cpu"), Stream("cpu")
    gate = other._gate()
    with no_more_threads(with_watcher=False):
        assert hold_until(held.timeline, {other.timeline: gate.value}) is None
    assert held.empty()
    gate.open()
    await other.synchronize()


@pytest.mark.parametrize("between", [0, 1, 2])
async def test_what_waits_for_the_program_holds_nobody(between: int) -> None:
    """Neither does what is ordered after such work, at any distance: the program may be waiting for the one to be held."""
    held, streams = Stream("cpu"), [Stream("cpu") for _ in range(between + 1)]
    with Latch(streams[0]):
        for before, after in zip(streams, streams[1:], strict=False):
            after.wait_stream(before)
        last = streams[-1].timeline
        assert hold_until(held.timeline, {last: last.submitted}) is None
        assert held.empty()
    for stream in streams:
        await stream.synchronize()
    assert hold_until(held.timeline, {last: last.submitted}) == 0


async def test_who_comes_after_another_does_not_fail_with_it() -> None:
    """Whatever becomes of that; so the clock must not say that it follows."""
    held, reader, writer = Stream("cpu"), Stream("cpu"), Stream("cpu")
    gate = writer._gate()
    reader.wait_stream(writer)
    read = reader.call(int)
    held.timeline.come_after(reader.timeline, read.value)
    done = held.call(int, "7")
    assert not held.timeline.frontier[1] and not done.query()
    gate.open(OSError("the writer's own"))
    assert await done == 7
    for stream in (writer, reader):
        with pytest.raises((OSError, DependencyError)):
            await stream.synchronize()


async def test_behind_many_streams_it_is_not_seen_whom_the_program_holds() -> None:
    """A stream that knows of some of those that it follows may wait for the program, until it no longer waits."""
    first = Stream("cpu")
    gate = first._gate(by_program=True)
    streams = [first]
    for _ in range(2 * MOST_KNOWN):
        streams.append(Stream("cpu"))
        streams[-1].wait_stream(streams[-2])
        streams[-1]._fill(0, 0, bytes(1))
    last = streams[-1]
    assert first.timeline not in last.timeline.frontier[1] and waits_for_program(last.timeline)
    gate.open()
    await last.synchronize()
    assert not waits_for_program(last.timeline)
