"""Events: points of streams, that streams and tasks wait for."""

from __future__ import annotations

import gc
import time

import anyio
import pytest
from thread_limit import no_more_threads

import aiodev
from aiodev import Event, Stream
from aiodev._core.timeline.vector_clock import totals
from aiodev.testing import Latch, SimulatedBackend

pytestmark = pytest.mark.anyio


# Records


async def test_an_unrecorded_event_is_done() -> None:
    """Querying, awaiting, waiting for it: all return at once and enqueue nothing."""
    event, stream = Event(), Stream("cpu")
    assert event.query() and event.device is None and "unrecorded" in repr(event)
    await event
    await event.synchronize()
    event.synchronize_blocking(timeout=0)
    with Latch(stream):
        stream.wait_event(event)
        assert await event.wait(stream) is None
        assert stream.qsize() == 1


async def test_an_event_is_done_when_its_stream_has_come_there() -> None:
    """Not before what was submitted ahead of it, and without regard to what comes later."""
    stream = Stream("cpu")
    first = Latch(stream)
    event = stream.record_event()
    second = Latch(stream)
    assert not event.query()
    with anyio.move_on_after(0) as scope:
        await event
    assert scope.cancelled_caught
    first.release()
    await event
    assert event.query() and not stream.query()
    second.release()


async def test_a_record_fixes_the_device() -> None:
    """The first record does, when none was given; ids differ."""
    event = Event()
    event.record(Stream("cpu"))
    assert event.device == aiodev.Device("cpu") and event.event_id != Event().event_id


@pytest.mark.skipif(aiodev.device_count("cpu") < 2, reason="needs AIODEV_CPU_DEVICES=2")
def test_an_event_stays_on_its_device() -> None:
    """Recording it on a stream of another device raises."""
    event = Event("cpu:0")
    with pytest.raises(ValueError, match="belongs to cpu:0"):
        event.record(Stream("cpu:1"))


async def test_an_event_is_recorded_on_the_current_stream() -> None:
    """By default; and so does it wait."""
    stream = Stream("cpu")
    latch = Latch(stream)
    event = Event()
    async with stream:
        event.record()
    assert not event.query()
    other = Stream("cpu")
    async with other:
        event.wait()
    later = other.call(int)
    assert not later.query()
    latch.release()
    await later


async def test_recording_again_frees_earlier_waiters_at_the_old_point() -> None:
    """Waits bind to the record that was current when they were called; the event itself moves on."""
    stream, follower, event = Stream("cpu"), Stream("cpu"), Event()
    first = Latch(stream)
    event.record(stream)
    completion = event.wait(follower)
    followed = follower.call(int, 1)
    freed = anyio.Event()

    async def wait() -> None:
        await event
        freed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with Latch(stream):
            event.record(stream)
            first.release()
            await freed.wait()
            await completion
            assert await followed == 1
            assert not event.query()


async def test_an_event_of_a_dropped_stream_arrives() -> None:
    """The event needs the work, not the object."""
    stream = Stream("cpu")
    latch = Latch(stream)
    event = stream.record_event()
    del stream
    gc.collect()
    assert not event.query()
    latch.release()
    await event
    assert event.query()


async def test_a_blocking_event_can_be_awaited() -> None:
    """``blocking=True`` changes how one waits, not what for."""
    stream, event = Stream("cpu"), Event(blocking=True)
    with Latch(stream):
        stream.record_event(event)
        assert not event.query() and event.blocking
    await event
    event.synchronize_blocking(timeout=30)


def test_interprocess_events_are_refused() -> None:
    """No flag is silently ignored: what no backend offers yet raises."""
    with pytest.raises(ValueError):
        Event(interprocess=True)
    with pytest.raises(ValueError):
        Event().ipc_handle()
    with pytest.raises(ValueError):
        Event.from_ipc_handle("cpu", b"")


async def test_recording_counts() -> None:
    """Each record is counted, and enqueues nothing unless it measures time."""
    stream = Stream("cpu")
    with Latch(stream):
        before = totals.events_recorded
        stream.record_event()
        assert stream.qsize() == 1
        stream.record_event(Event(enable_timing=True))
        assert stream.qsize() == 2 and totals.events_recorded == before + 2


# Time


async def test_times_agree_with_the_wall_clock() -> None:
    """What lies between two events takes no longer than from before the first to after the second, in ms, and no less
    than what the host saw in between."""
    stream = Stream("cpu")
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    outer = time.perf_counter_ns()
    start.record(stream)
    await start
    inner = time.perf_counter_ns()
    await stream.call(sum, range(100_000))
    inner = time.perf_counter_ns() - inner
    end.record(stream)
    await end
    outer = time.perf_counter_ns() - outer
    assert inner <= start.elapsed_time(end) * 1e6 <= outer
    assert end.elapsed_time(start) == -start.elapsed_time(end)
    assert start.elapsed_time(start) == 0


async def test_times_of_different_streams_compare() -> None:
    """All streams of a device have one clock."""
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    Stream("cpu").record_event(start)
    await start
    Stream("cpu").record_event(end)
    await end
    assert start.elapsed_time(end) >= 0


async def test_an_undefined_time_raises() -> None:
    """Without timing or a record ValueError; not done RuntimeError."""
    stream, timed = Stream("cpu"), Event(enable_timing=True)
    timed.record(stream)
    await timed
    for one, other in ((timed, Event()), (Event(), timed)):
        with pytest.raises(ValueError, match="does not measure time"):
            one.elapsed_time(other)
    for one, other in ((timed, Event(enable_timing=True)), (Event(enable_timing=True), timed)):
        with pytest.raises(ValueError, match="never recorded"):
            one.elapsed_time(other)
    with Latch(stream):
        pending = stream.record_event(Event(enable_timing=True))
        for one, other in ((timed, pending), (pending, timed)):
            with pytest.raises(RuntimeError, match="is not done"):
                one.elapsed_time(other)
    await pending
    assert timed.elapsed_time(pending) > 0


async def test_the_time_of_what_did_not_run_raises() -> None:
    """An event behind a failure has no time; it raises why."""
    stream, start, end = Stream("cpu"), Event(enable_timing=True), Event(enable_timing=True)
    start.record(stream)
    with Latch(stream):
        stream.call(int, "x")
        end.record(stream)
    with pytest.raises(aiodev.DependencyError):
        await end
    with pytest.raises(aiodev.DependencyError):
        start.elapsed_time(end)


# Order between streams


@pytest.mark.parametrize("how", ["wait_event", "wait_stream", "wait", "event.wait"])
async def test_a_stream_follows_another(how: str) -> None:
    """However it is told to, it runs nothing later before that point, and the other stream's later work is no concern."""
    first, second, seen = Stream("cpu"), Stream("cpu"), list[str]()
    latch = Latch(first)
    done = first.call(seen.append, "first")
    event = first.record_event()
    ways = {
        "wait_event": lambda: second.wait_event(event),
        "wait_stream": lambda: second.wait_stream(first),
        "wait": lambda: second.wait(done),
        "event.wait": lambda: event.wait(second),
    }
    ways[how]()
    with Latch(first):
        later = second.call(seen.append, "second")
        assert not later.query()
        latch.release()
        await later
        assert seen == ["first", "second"]


@pytest.mark.skipif(aiodev.device_count("cpu") < 2, reason="needs AIODEV_CPU_DEVICES=2")
async def test_streams_of_different_devices_follow_each_other() -> None:
    """Order reaches across devices of one kind."""
    first, second, seen = Stream("cpu:0"), Stream("cpu:1"), list[int]()
    with Latch(first):
        first.call(seen.append, 1)
        second.wait_stream(first)
        second.call(seen.append, 2)
        first.wait_stream(second)
        later = first.call(seen.append, 3)
    await later
    assert seen == [1, 2, 3]


async def test_streams_of_different_kinds_follow_each_other(simulated: SimulatedBackend) -> None:
    """Order reaches across backends, before and after one has started, and so does failure."""
    for _ in range(2):
        first, second, seen = Stream("cpu"), Stream(simulated.name), list[int]()
        latch = Latch(first)
        first.call(seen.append, 1)
        second.wait_stream(first)
        second.call(seen.append, 2)
        first.wait_stream(second)
        later = first.call(seen.append, 3)
        latch.release()
        await later
        assert seen == [1, 2, 3]
    latch = Latch(first)
    second.wait_stream(first)
    later = second.call(int)
    latch.release(OSError("no"))
    with pytest.raises(aiodev.DependencyError) as caught:
        await later
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OSError):
        await first.synchronize()


async def test_a_wait_for_another_kind_without_a_thread_is_refused(simulated: SimulatedBackend) -> None:
    """Nothing is submitted then, and the same wait holds later."""
    first, second, seen = Stream("cpu"), Stream(simulated.name), list[int]()
    await first.synchronize()
    await second.synchronize()
    latch = Latch(first)
    first.call(seen.append, 1)
    with no_more_threads(with_watcher=False):
        with pytest.raises(aiodev.ThreadLimitError):
            second.wait_stream(first)
        assert second.empty()
    second.wait_stream(first)
    later = second.call(seen.append, 2)
    latch.release()
    await later
    assert seen == [1, 2]
