"""Streams: identity, order, and waiting for them. What is submitted is held by latches, never by time."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from parking import when_parked

import aiodev
from aiodev import Stream
from aiodev._core.waiting import blocking
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio

AllocateBlock = Callable[[int], Any]


# Identity


def test_a_stream_says_what_it_is() -> None:
    """Device, type, index, priority and bound are those that were asked for."""
    stream = Stream("cpu:0", -1, maxsize=3)
    assert (stream.device, stream.device_type, stream.device_index) == (aiodev.Device("cpu"), "cpu", 0)
    assert (stream.priority, stream.maxsize) == (-1, 3)
    assert repr(stream) == f"<aiodev.Stream {stream.stream_id} on cpu:0>"


async def test_a_stream_that_is_set_is_current_to_the_end_of_the_guard() -> None:
    """Of the innermost one; the device stays what it was."""
    around, made = Stream("cpu"), Stream("cpu")
    before = aiodev.current_stream("cpu")
    async with around:
        aiodev.set_stream(made)
        assert aiodev.current_stream() is made and aiodev.current_device() == made.device
    assert aiodev.current_stream("cpu") is before


@pytest.mark.parametrize(("asked", "given"), [(-7, -1), (-1, -1), (0, 0), (1, 1), (9, 1)])
def test_priorities_clamp(asked: int, given: int) -> None:
    """A priority out of range becomes the nearest one."""
    assert Stream("cpu", asked).priority == given


def test_a_negative_bound_is_refused() -> None:
    """``maxsize`` is a number of operations."""
    with pytest.raises(ValueError, match="maxsize=-1"):
        Stream("cpu", maxsize=-1)


def test_what_is_called_is_a_function() -> None:
    """It is said at the call, not to whoever waits."""
    with pytest.raises(TypeError, match="call: expected a function, got 3"):
        Stream("cpu").call(3)


def test_numbers_are_whole() -> None:
    """A bound and a priority are not cut."""
    for wrong in ({"maxsize": 1.5}, {"priority": 0.5}):
        with pytest.raises(TypeError, match="float"):
            Stream("cpu", **wrong)


def test_what_a_stream_can_wait_for_is_not_mixed_up() -> None:
    """The method names what it expected and what there is."""
    stream, other = Stream("cpu"), Stream("cpu")
    event = other.record_event()
    for wait, wrong, name in (
        (stream.wait, event, "a Completion"),
        (stream.wait_event, other, "an Event"),
        (stream.wait_stream, event, "a Stream"),
    ):
        with pytest.raises(TypeError, match=rf"expected {name}, got <aiodev\."):
            wait(wrong)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_belongs_to_this_process_has_no_copies(duplicate: Callable[[object], object]) -> None:
    """Streams, events and completions: two objects of one queue would close it, and move its marks, for each other."""
    stream = Stream("cpu")
    for one in (stream, stream.record_event(), aiodev.Event(), stream.call(int)):
        with pytest.raises(TypeError, match="are not pickled or copied"):
            duplicate(one)


def test_streams_are_found_by_their_id() -> None:
    """``from_id`` gives the same object, for as long as it lives, on the device that is named."""
    stream = Stream("cpu")
    assert Stream.from_id(stream.stream_id) is stream
    assert Stream.from_id(stream.stream_id, "cpu") is stream


def test_an_unknown_id_is_told() -> None:
    """An id that never was, or whose stream is gone, raises LookupError."""
    stream = Stream("cpu")
    number = stream.stream_id
    del stream
    gc.collect()
    for unknown in (number, -1):
        with pytest.raises(LookupError, match=str(unknown)):
            Stream.from_id(unknown, "cpu")


@pytest.mark.skipif(aiodev.device_count("cpu") < 2, reason="needs AIODEV_CPU_DEVICES=2")
def test_an_id_belongs_to_one_device() -> None:
    """Asking for it on another device raises."""
    stream = Stream("cpu:1")
    with pytest.raises(LookupError, match="is on cpu:1, not on cpu:0"):
        Stream.from_id(stream.stream_id, "cpu:0")


def test_many_streams_differ() -> None:
    """More streams than slots, of every priority, have ids and timelines of their own."""
    streams = [Stream("cpu", priority) for priority in (-1, 0, 1) for _ in range(40)]
    assert len({stream.stream_id for stream in streams}) == len({stream.timeline for stream in streams}) == 120


# Order


async def test_operations_run_in_order() -> None:
    """Calls of one stream run one after another, in the order of submission."""
    stream, seen = Stream("cpu"), list[int]()
    for i in range(100):
        stream.call(seen.append, i)
    await stream.synchronize()
    assert seen == list(range(100))


async def test_fills_copies_and_calls_are_one_sequence(block: AllocateBlock) -> None:
    """Work of workers and of threads keeps its order on one stream."""
    stream, first, second = Stream("cpu"), block(4096), block(4096)
    seen: list[bytes] = []
    for i in range(20):
        stream._fill(first.address, 4096, bytes([i]))
        stream._copy(second.address, first.address, 4096)
        stream.call(lambda: seen.append(second.read()))
    await stream.synchronize()
    assert seen == [bytes([i]) * 4096 for i in range(20)]


async def test_streams_are_concurrent() -> None:
    """One stream goes on while another is held."""
    held, free = Stream("cpu"), Stream("cpu")
    with Latch(held):
        waiting = held.call(int)
        assert await free.call(int, 7) == 7
        assert not waiting.query()
    assert await waiting == 0


async def test_work_submitted_from_many_threads_keeps_each_threads_order() -> None:
    """Eight threads feed one stream: nothing is lost, and each thread's operations run in its order."""
    stream, seen = Stream("cpu"), list[tuple[int, int]]()
    ready = threading.Barrier(8)

    def feed(thread: int) -> None:
        ready.wait(30)
        for i in range(200):
            stream.call(seen.append, (thread, i))

    threads = [threading.Thread(target=feed, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    await stream.synchronize()
    assert [[i for other, i in seen if other == thread] for thread in range(8)] == [list(range(200))] * 8


@pytest.mark.parametrize("priority", [-1, 0, 1])
@pytest.mark.parametrize("reserve", [False, True])
async def test_every_priority_runs(priority: int, reserve: bool) -> None:
    """A stream of any priority, with a slot of its own or shared, runs what it is given."""
    assert await Stream("cpu", priority, reserve=reserve).call(sum, [1, 2]) == 3


# Waiting


async def test_an_empty_stream_is_done() -> None:
    """Nothing was submitted: query is true, and synchronizing returns."""
    stream = Stream("cpu")
    assert stream.query() and stream.empty() and not stream.full() and stream.qsize() == 0
    await stream.synchronize()
    stream.synchronize_blocking()


async def test_query_tells_progress() -> None:
    """A stream and its completions are pending until the latch is released, and done afterwards."""
    stream = Stream("cpu")
    with Latch(stream):
        done = stream.call(int)
        assert not stream.query() and not done.query()
        assert repr(done).endswith("pending>")
    await done
    assert stream.query() and done.query() and repr(done).endswith("done>")


async def test_synchronize_covers_what_came_before() -> None:
    """It returns when all earlier operations are done, while a later one is still held."""
    stream, synchronized = Stream("cpu"), anyio.Event()

    async def synchronize() -> None:
        await stream.synchronize()
        synchronized.set()

    first = Latch(stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(synchronize)
        await anyio.wait_all_tasks_blocked()
        with Latch(stream):
            later = stream.call(int)
            assert not synchronized.is_set()
            first.release()
            await synchronized.wait()
            assert not later.query()
    await later


async def test_synchronize_returns_while_others_keep_submitting() -> None:
    """A task that submits for ever does not keep another from synchronizing."""
    stream = Stream("cpu")
    running = True

    async def feed() -> None:
        while running:
            while stream.qsize() < 8:
                stream.call(int)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
            await stream.synchronize()
        running = False
    await stream.synchronize()


def test_blocking_twins_time_out() -> None:
    """``timeout`` seconds later TimeoutError is raised; the work goes on, and can be waited for again."""
    stream = Stream("cpu")
    with Latch(stream):
        done = stream.call(int, 5)
        for wait in (
            stream.synchronize_blocking,
            done.synchronize_blocking,
            stream.record_event().synchronize_blocking,
        ):
            for timeout in (0, 0.01):
                with pytest.raises(TimeoutError):
                    wait(timeout=timeout)
    assert done.synchronize_blocking(timeout=30) == 5
    stream.synchronize_blocking(timeout=30)


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, 30])
def test_a_timeout_may_be_as_long_as_one_likes(timeout: float) -> None:
    """Also where something has to be waited for."""
    stream = Stream("cpu")
    latch = Latch(stream)
    done = stream.call(int, 5)
    when_parked(stream, 2, latch.release)
    assert done.synchronize_blocking(timeout=timeout) == 5
    aiodev.synchronize_blocking("cpu", timeout=timeout)


def test_a_timeout_is_a_number() -> None:
    """NaN would be neither short nor long."""
    stream = Stream("cpu")
    with Latch(stream), pytest.raises(ValueError, match="timeout: .* got float nan"):
        stream.call(int).synchronize_blocking(timeout=float("nan"))


@pytest.mark.parametrize(("timeout", "error"), [("a", TypeError), (float("nan"), ValueError)])
def test_a_timeout_is_a_number_where_nothing_is_waited_for(timeout: Any, error: type[Exception]) -> None:
    """A mistake shows at the first call, and not in the one in a thousand that has to wait."""
    stream = Stream("cpu")
    done = stream.call(int)
    done.synchronize_blocking()
    event = stream.record_event()
    for wait in (stream, done, event, aiodev.Event()):
        with pytest.raises(error, match="timeout: expected a number of seconds"):
            wait.synchronize_blocking(timeout)
        wait.synchronize_blocking(0)
    with pytest.raises(error, match="timeout: expected a number of seconds"):
        aiodev.zeros(3, device="cpu").numpy_blocking(timeout)


def test_a_timeout_is_for_all_streams_of_a_device_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and not for each again."""
    streams = [Stream("cpu") for _ in range(5)]
    deadlines: list[float] = []
    monkeypatch.setattr(blocking, "_wait_until", lambda deadline, timeline, value: deadlines.append(deadline))
    aiodev.synchronize_blocking("cpu", timeout=10)
    assert len(deadlines) >= len(streams) and len(set(deadlines)) == 1


async def test_a_devices_synchronize_covers_all_its_streams() -> None:
    """``aiodev.synchronize`` waits for every stream of the device."""
    streams = [Stream("cpu") for _ in range(5)]
    seen: list[int] = []
    latches = [Latch(stream) for stream in streams]
    for i, stream in enumerate(streams):
        stream.call(seen.append, i)
    with anyio.move_on_after(0) as scope:
        await aiodev.synchronize("cpu")
    assert scope.cancelled_caught
    for latch in latches:
        latch.release()
    await aiodev.synchronize("cpu")
    assert sorted(seen) == list(range(5))


async def test_a_devices_synchronize_covers_streams_that_were_dropped() -> None:
    """Work of a stream that nobody holds any more is work of the device all the same."""
    gate = Stream("cpu")
    latch = Latch(gate)
    dropped, seen = Stream("cpu"), list[int]()
    dropped.wait_stream(gate)
    dropped.call(seen.append, 1)
    del dropped
    gc.collect()
    await gate_opened(latch)
    await aiodev.synchronize("cpu")
    assert seen == [1]


async def gate_opened(latch: Latch) -> None:
    """Open it from a thread, so that the work is still in flight when the caller starts to wait."""
    await anyio.lowlevel.checkpoint()
    threading.Thread(target=latch.release).start()
