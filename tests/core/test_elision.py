"""Waits that cost nothing, because the order is already there, and what a stream remembers of others for that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from aiodev import Stream
from aiodev._core.timeline.vector_clock import MOST_KNOWN, PartialClock, totals
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio


def counted(work: Callable[[], object]) -> tuple[int, int]:
    """How many waits ``work`` enqueued and elided."""
    before = totals.waits_enqueued, totals.waits_elided
    work()
    return totals.waits_enqueued - before[0], totals.waits_elided - before[1]


async def test_a_wait_for_ones_own_stream_enqueues_nothing() -> None:
    """A stream follows itself."""
    stream = Stream("cpu")
    with Latch(stream):
        done, event = stream.call(int), stream.record_event()
        assert counted(lambda: stream.wait(done)) == (0, 1)
        assert counted(lambda: stream.wait_event(event)) == (0, 1)
        assert counted(lambda: stream.wait_stream(stream)) == (0, 1)
        assert stream.qsize() == 2


async def test_a_wait_for_what_is_done_enqueues_nothing() -> None:
    """A point that is reached needs no wait."""
    first, second = Stream("cpu"), Stream("cpu")
    done, event = first.call(int), first.record_event()
    await done
    assert counted(lambda: second.wait(done)) == (0, 1)
    assert counted(lambda: second.wait_event(event)) == (0, 1)
    assert second.timeline.submitted == 0


async def test_a_wait_that_was_made_before_enqueues_nothing() -> None:
    """The same point, or an earlier one of the same stream, twice."""
    first, second = Stream("cpu"), Stream("cpu")
    with Latch(first):
        early, late = first.call(int), first.call(int)
        assert counted(lambda: second.wait(late)) == (1, 0)
        assert counted(lambda: (second.wait(late), second.wait(early))) == (0, 2)
        assert counted(lambda: second.wait(first.call(int))) == (1, 0)
    await second.synchronize()


async def test_a_wait_that_another_implies_enqueues_nothing() -> None:
    """A stream that follows one which follows a third follows that, too, at any length."""
    streams = [Stream("cpu") for _ in range(5)]
    with Latch(streams[0]):
        points = []
        for before, after in zip(streams, streams[1:], strict=False):
            points.append(before.call(int))
            after.wait(points[-1])
        for stream, known in zip(streams[1:], range(1, 5), strict=True):
            assert counted(lambda s=stream, n=known: [s.wait(p) for p in points[:n]]) == (0, known)
    await streams[-1].synchronize()


async def test_an_implied_wait_is_not_taken_for_more() -> None:
    """What the other stream came to follow only after the point that is waited for is waited for."""
    first, second, third = Stream("cpu"), Stream("cpu"), Stream("cpu")
    latch_first, latch_second = Latch(first), Latch(second)
    early, event = second.call(int), second.record_event()
    second.wait_stream(first)
    assert counted(lambda: third.wait(early)) == (1, 0)
    assert counted(lambda: third.wait_event(event)) == (0, 1)
    assert counted(lambda: third.wait_stream(first)) == (1, 0)
    later = third.call(int)
    latch_second.release()
    await early
    assert not later.query()
    latch_first.release()
    await later


async def test_waits_in_a_ring_do_not_deadlock() -> None:
    """Many streams that follow each other round and round, from many threads, come to an end."""
    streams = [Stream("cpu") for _ in range(8)]
    ready = threading.Barrier(8)

    def weave(index: int) -> None:
        ready.wait(30)
        for _ in range(50):
            streams[index].call(int)
            streams[index].wait_event(streams[index - 1].record_event())

    threads = [threading.Thread(target=weave, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for stream in streams:
        await stream.synchronize()
        assert stream.query()


async def test_what_is_known_of_a_stream_is_the_later_of_two_points() -> None:
    """Following a stream that follows an earlier point of a third takes nothing from what is known of the third."""
    first, second, third = Stream("cpu"), Stream("cpu"), Stream("cpu")
    with Latch(first):
        early, late = first.call(int), first.call(int)
        third.wait(late)
        second.wait(early)
        assert counted(lambda: third.wait_stream(second)) == (1, 0)
        assert counted(lambda: third.wait(late)) == (0, 1)
    await third.synchronize()


async def test_points_that_are_reached_are_forgotten() -> None:
    """A stream knows of those alone that have work in flight, however many it has followed."""
    stream, held = Stream("cpu"), Stream("cpu")
    for _ in range(5):
        done = Stream("cpu")
        with Latch(done):
            stream.wait_stream(done)
    await stream.synchronize()
    with Latch(held):
        stream.wait_stream(held)
        assert set(stream.timeline.frontier[1]) == {held.timeline}
    await stream.synchronize()


async def test_waits_that_are_over_hold_few_streams() -> None:
    """What finished waits were for is let go now and then, though nothing else is submitted."""
    stream = Stream("cpu")
    for _ in range(60):
        other = Stream("cpu")
        with Latch(other):
            stream.wait_stream(other)
        await stream.synchronize()
    assert len(stream.timeline._kept) <= 16


def chain_behind(first: Stream, length: int) -> list[Stream]:
    """Streams of which each waits for the one before, with an operation each."""
    streams = [first]
    for _ in range(length):
        streams.append(Stream("cpu"))
        streams[-1].wait_stream(streams[-2])
        empty(streams[-1])
    return streams


def empty(stream: Stream) -> int:
    """Submit an operation that does nothing."""
    return stream._fill(0, 0, bytes(1))


async def test_a_chain_of_streams_knows_of_a_bounded_number() -> None:
    """Each of the newest; so that clocks of a long chain of pending streams take memory in proportion to its length."""
    first = Stream("cpu")
    with Latch(first):
        streams = chain_behind(first, 3 * MOST_KNOWN)
        assert max(len(stream.timeline.frontier[1]) for stream in streams) == MOST_KNOWN
        last, before = streams[-1], streams[-MOST_KNOWN - 1 : -1]
        assert counted(lambda: [last.wait_stream(stream) for stream in before]) == (0, MOST_KNOWN)
        assert counted(lambda: last.wait_stream(first)) == (1, 0), "what is not known is waited for once more"
    await last.synchronize()


async def test_what_a_clock_left_out_is_ordered_all_the_same() -> None:
    """Also behind streams that follow one whose clock leaves out points, and that later follow others."""
    first, later = Stream("cpu"), Stream("cpu")
    order = list[int]()
    with Latch(first):
        first.call(order.append, 0)
        last = chain_behind(first, 2 * MOST_KNOWN)[-1]
        later.wait_stream(last)
        assert type(later.timeline.frontier[1]) is PartialClock
        with Latch(other := Stream("cpu")):
            later.wait_stream(other)
            assert type(later.timeline.frontier[1]) is PartialClock
            later.call(order.append, 1)
    await later.synchronize()
    assert order == [0, 1]


async def test_a_clock_is_whole_again_when_what_it_is_of_is_done() -> None:
    """All that it had left out is done then, too."""
    first, other = Stream("cpu"), Stream("cpu")
    with Latch(first):
        last = chain_behind(first, 2 * MOST_KNOWN)[-1]
    await last.synchronize()
    with Latch(other):
        last.wait_stream(other)
        assert last.timeline.frontier[1] == {other.timeline: other.timeline.submitted}
        assert type(last.timeline.frontier[1]) is dict
    await last.synchronize()
