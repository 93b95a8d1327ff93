"""What becomes of a stream, its work and its queue when nobody holds the stream any more."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable

import anyio
import pytest
from thread_limit import no_more_threads

import aiodev
from aiodev._backends.cpu.executor.executor import _PENDING
from aiodev._core.timeline import faults, timeline
from aiodev._core.timeline.timeline import living
from aiodev._core.waiting.watcher import Watcher, watcher
from aiodev.testing import Latch


def let_the_watcher_catch_up() -> None:
    """Return when it has ended the timelines that are idle by now, and given back what was to be given back then."""
    for _ in range(2):
        caught_up = threading.Event()
        watcher.call(caught_up.set)
        assert caught_up.wait(30)


def let_dropped_timelines_end() -> None:
    """Return when the watcher has ended every dropped timeline, whose work must be done or about to be."""
    deadline = time.monotonic() + 30
    while living.dropped:
        assert time.monotonic() < deadline, f"never ended: {living.dropped}"
        let_the_watcher_catch_up()


@pytest.mark.anyio
async def test_a_stream_may_be_dropped_with_work_in_flight() -> None:
    """The stream is collected; its work goes on, in order, and can be awaited."""
    stream, seen = aiodev.Stream("cpu"), list[int]()
    gone = weakref.ref(stream)
    latch = Latch(stream)
    stream.call(seen.append, 1)
    done = stream.call(seen.append, 2)
    del stream
    gc.collect()
    assert gone() is None and not done.query()
    latch.release()
    await done
    assert seen == [1, 2]


@pytest.mark.anyio
async def test_what_dropped_work_needs_lives_until_it_is_done() -> None:
    """Neither the stream nor its completions are held: what an operation was given still is."""

    class Needed:
        pass

    needed = Needed()
    gone, finished = weakref.ref(needed), threading.Event()
    weakref.finalize(needed, finished.set)
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    stream.timeline.keep(stream.call(int).value, needed)
    del stream, needed
    gc.collect()
    assert gone() is not None
    latch.release()
    assert await anyio.to_thread.run_sync(finished.wait, 30)
    assert gone() is None


def test_a_stream_may_be_collected_at_any_moment() -> None:
    """The collector runs where it likes, even in a backend that holds its lock: nothing deadlocks."""
    streams = [aiodev.Stream("cpu")]
    streams[0].synchronize_blocking()
    executor = aiodev.get_backend("cpu").executor
    with executor._lock:
        dropping = threading.Thread(target=streams.clear, daemon=True)
        dropping.start()
        dropping.join(10)
        assert not dropping.is_alive()


def test_a_stream_may_be_collected_where_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised in the finalizer, and the watcher does what is to be done as soon as there is one."""
    raised = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    stream = aiodev.Stream("cpu")
    failed = stream.call(int, "no number")
    while not failed.query():
        pass
    gone = weakref.ref(stream.timeline)
    with no_more_threads(with_watcher=False):
        del stream, failed  # the failure is for the watcher to log
        gc.collect()
        assert gone() is not None
    let_dropped_timelines_end()
    assert gone() is None and not raised


@pytest.mark.parametrize("is_told", [True, False])
def test_a_stream_that_failed_may_be_collected_at_any_moment(is_told: bool) -> None:
    """Even where a failure is being collected, or logged: what is to be told is for the watcher to tell, later."""
    streams = [aiodev.Stream("cpu")]
    done = streams[0].call(int, "no number")
    while not done.query():
        pass
    if is_told:
        with pytest.raises(ValueError):
            done.synchronize_blocking()
    del done
    with timeline._reporting, faults._collecting:
        dropping = threading.Thread(target=streams.clear, daemon=True)
        dropping.start()
        dropping.join(10)
        assert not dropping.is_alive()
    let_dropped_timelines_end()


async def test_a_queue_that_somebody_waits_for_is_not_given_to_another_stream() -> None:
    """A device's ``synchronize`` waits for dropped streams; new ones meanwhile are not taken for them."""
    await aiodev.init("cpu")
    held, dropped = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    gate = held._gate()
    dropped.wait_stream(held)
    last, queue = dropped.stream_id, dropped.timeline.queue
    del dropped
    waiting = asyncio.ensure_future(aiodev.synchronize("cpu"))
    await asyncio.sleep(0)
    gate.open()
    let_dropped_timelines_end()
    others = [aiodev.Stream("cpu") for _ in range(3)]
    assert all(other.stream_id > last and other.timeline.queue != queue for other in others)
    await asyncio.wait_for(waiting, 30)


async def test_a_stream_in_a_cycle_ends_when_its_work_does() -> None:
    """The collector, which finalizes all of a cycle at once, does not take the queue from work in flight."""
    await aiodev.init("cpu")
    held, dropped = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    gate = held._gate()
    dropped.wait_stream(held)
    cycle: list[object] = [dropped]
    cycle.append(cycle)
    del cycle, dropped
    gc.collect()
    let_the_watcher_catch_up()
    (line,) = living.dropped
    waiting = asyncio.ensure_future(aiodev.Completion(line, 1).synchronize())
    await asyncio.sleep(0)
    gate.open()
    await asyncio.wait_for(waiting, 30)
    let_dropped_timelines_end()


async def test_the_queue_of_a_dropped_stream_is_used_again() -> None:
    """Thousands of streams, one after the other, take the room of few."""
    await aiodev.init("cpu")
    if aiodev.get_backend("cpu").executor_kind == "python":
        pytest.skip("the portable executor gives every queue a number of its own")
    left: set[int] = set(aiodev.get_backend("cpu").executor._free[0])  # by earlier tests; those take turns
    queues = set()
    for _ in range(2000):
        stream = aiodev.Stream("cpu")
        queues.add(stream.timeline.queue)
        await stream.call(abs, -1)
        del stream
        let_the_watcher_catch_up()
    assert len(queues - left) < 200


async def _succeed(stream: aiodev.Stream) -> None:
    await stream.call(abs, -1)


async def _fail(stream: aiodev.Stream) -> None:
    with pytest.raises(ValueError):
        await stream.call(int, "no number")


async def _fail_and_go_on(stream: aiodev.Stream) -> None:
    await _fail(stream)
    await _succeed(stream)


async def _fail_for_another(stream: aiodev.Stream) -> None:
    """Who waits for the other stream is told."""
    stream.call(int, "no number")
    other = aiodev.Stream("cpu")
    other.wait_stream(stream)
    with pytest.raises(aiodev.DependencyError):
        await other.call(abs, -1)


async def _withdraw(stream: aiodev.Stream) -> None:
    gate = stream._gate()
    done = stream.call(abs, -1)
    stream.cancel()
    gate.open()
    with pytest.raises(aiodev.WithdrawnError):
        await done


@pytest.mark.parametrize("request_to", [_succeed, _fail, _fail_and_go_on])
async def test_streams_that_come_and_go_wake_up_nobody(
    request_to: Callable[[aiodev.Stream], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream for each request, whose work is done, and who waited was told if it failed: its queue is there for the next."""
    await aiodev.init("cpu")
    executor = aiodev.get_backend("cpu").executor
    if not executor.destroys_anywhere:
        pytest.skip("the portable executor has its queues destroyed by the watcher")
    let_dropped_timelines_end()
    monkeypatch.setattr(Watcher, "_wake", lambda self: pytest.fail("somebody was woken up"))
    queues = set()
    for reserve in (False, True):
        for _ in range(100):
            stream = aiodev.Stream("cpu", reserve=reserve)
            queues.add(stream.timeline.queue)
            await request_to(stream)
            del stream
            assert not living.dropped
    assert len(queues) <= 20  # a worker may not have left one yet


@pytest.mark.parametrize("request_to", [_fail_for_another, _withdraw])
async def test_a_failure_that_needs_no_telling_is_not_the_watchers(
    request_to: Callable[[aiodev.Stream], Awaitable[None]],
) -> None:
    """Whoever waits for another stream has heard of it, or somebody asked for it."""
    await aiodev.init("cpu")
    if not aiodev.get_backend("cpu").executor.destroys_anywhere:
        pytest.skip("the portable executor has its queues destroyed by the watcher")
    let_dropped_timelines_end()
    stream = aiodev.Stream("cpu")
    await request_to(stream)
    del stream
    assert not living.dropped


async def test_streams_that_come_and_go_do_not_go_through_all_queues() -> None:
    """Where a worker still holds the queue that was used last, another one is taken, and that again from then on."""
    await aiodev.init("cpu")
    executor = aiodev.get_backend("cpu").executor
    if aiodev.get_backend("cpu").executor_kind == "python":
        pytest.skip("the portable executor gives every queue a number of its own")
    for queue in [executor.create_queue(0, 0, False)[0] for _ in range(30)]:
        executor.destroy_queue(queue)
    queues = set()
    for _ in range(100):
        queue, _ = executor.create_queue(0, 0, False)
        queues.add(queue)
        executor.destroy_queue(queue)
        executor._words[queue][_PENDING] = 1
        other, _ = executor.create_queue(0, 0, False)
        queues.add(other)
        executor._words[queue][_PENDING] = 0
        executor.destroy_queue(other)
    assert len(queues) == 2


async def test_a_chain_of_dropped_streams_ends_at_once() -> None:
    """Each holds the one that it waited for, which ends when it does: that is not put off again and again."""
    await aiodev.init("cpu")
    before, ends = aiodev.Stream("cpu"), list[weakref.ref[object]]()
    gate = before._gate()
    for _ in range(300):
        stream = aiodev.Stream("cpu")
        stream.wait_stream(before)
        ends.append(weakref.ref(before.timeline))
        before = stream
    gate.open()
    await before.synchronize()
    began = time.monotonic()
    del stream, before, gate
    while any(end() is not None for end in ends):
        assert time.monotonic() < began + 20  # a tick for each would take thirty seconds
        await anyio.sleep(0.01)


@pytest.mark.parametrize("is_over", [True, False])
async def test_streams_that_waited_for_each_other_go_without_the_collector(is_over: bool) -> None:
    """Dropped when their work is done, or before; as that of a read goes which was cancelled."""
    await aiodev.init("cpu")
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    ends = [weakref.ref(stream.timeline) for stream in (first, second)]
    gate = second._gate()
    first.wait_stream(second)
    second.wait_stream(first)
    last = [first.call(abs, 1), second.call(abs, 1)]
    assert all(stream.timeline._kept for stream in (first, second))
    gc.collect()
    gc.disable()
    try:
        if not is_over:
            del first, second
        gate.open()
        await last[0]
        await last[1]
        del last, gate
        if is_over:
            del first, second
        began = time.monotonic()
        while any(end() is not None for end in ends):
            assert time.monotonic() < began + 20
            await anyio.sleep(0.01)
    finally:
        gc.enable()


def test_the_watcher_starts_though_its_own_thread_drops_a_stream() -> None:
    """Whoever starts it waits for its thread; and that, at its first allocation, may be the one that collects a stream."""
    started = Watcher()
    called = threading.Event()

    class Collected:
        def __del__(self) -> None:
            started.call(called.set)

    run = started._run
    started._run = lambda waits: (Collected(), run(waits))  # type: ignore[method-assign, return-value, func-returns-value]
    reentered = list[Collected]()
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        reentered.append(Collected())
        reentered.clear()  # a finalizer in the thread that starts it
        start(thread)

    first = threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", starting)
        started.call(first.set)
    assert first.wait(30) and called.wait(30)


async def test_what_ended_streams_have_done_is_counted() -> None:
    """By whoever asks: they only leave word of it."""
    await aiodev.init("cpu")
    device = aiodev.Device("cpu:0")
    let_dropped_timelines_end()
    before = living.totals()[device]
    for _ in range(30):
        stream = aiodev.Stream("cpu")
        for _ in range(3):
            last = stream.call(abs, -1)
        await last
        del stream, last
    let_dropped_timelines_end()
    streams, submitted, completed, faults = living.totals()[device]
    done = submitted - before[1]
    assert (streams, faults) == (before[0], before[3]) and done == completed - before[2] >= 30 * 3


def test_a_dropped_timeline_is_known_until_it_has_reported() -> None:
    """At exit, failures are looked for among the known ones: one that is about to be logged must not be missed."""
    aiodev.init_blocking("cpu")
    known = list[bool]()
    logged = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            known.append(any(record.args[0] == line.label for line in living.all()))  # type: ignore[index]
            logged.set()

    handler, logger = Handler(), logging.getLogger("aiodev")
    logger.addHandler(handler)
    try:
        stream = aiodev.Stream("cpu")
        done = stream.call(int, "no number")
        while not done.query():
            pass
        cycle = [stream]
        cycle.append(cycle)  # type: ignore[arg-type]  # whose members lose their weak references before they are finalized
        del stream, done, cycle
        gc.collect()
        assert logged.wait(30)
    finally:
        logger.removeHandler(handler)
    assert known == [True]
