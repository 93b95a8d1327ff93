"""Failure: who is told, what does not run, what goes on, and what is reported when nobody asked."""

from __future__ import annotations

import gc
import logging
import threading
import traceback
import weakref
from collections.abc import Iterator

import anyio
import pytest

import aiodev
from aiodev import DependencyError, Event, Stream
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio


def fail(text: str = "failed") -> None:
    raise OSError(text)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Whoever waits for the whole device later would be told of failures that nobody here asked for."""
    yield
    gc.collect()


class Reports(logging.Handler):
    """What the ``aiodev`` logger was given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.arrived = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.arrived.set()

    @property
    def errors(self) -> list[str]:
        return [str(record.exc_info[1]) for record in self.records if record.exc_info]


@pytest.fixture
def reports() -> Iterator[Reports]:
    gc.collect()  # what earlier tests left behind is reported before, not to us
    Stream("cpu").call(int).synchronize_blocking(30)
    handler, logger = Reports(), logging.getLogger("aiodev")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


# On one stream


async def test_what_is_ordered_after_a_failure_does_not_run() -> None:
    """Calls, copies, fills and waits behind it fail with the first failure as cause."""
    stream, seen = Stream("cpu"), list[int]()
    with Latch(stream):
        failed = stream.call(fail)
        skipped = [stream.call(seen.append, 1), stream.wait_future(_never()), stream.call(seen.append, 2)]
    with pytest.raises(OSError):
        await failed
    for done in skipped:
        with pytest.raises(DependencyError) as caught:
            await done
        assert isinstance(caught.value.__cause__, OSError)
    assert seen == []


async def _never() -> None:
    await anyio.sleep_forever()


async def test_synchronize_says_nothing_of_what_came_later() -> None:
    """A failure of work that was submitted after the call is for whoever waits for that."""
    stream = Stream("cpu")
    latch = Latch(stream)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.synchronize)
        await anyio.wait_all_tasks_blocked()
        failed = stream.call(fail)
        latch.release()
        while not failed.query():  # so that the task goes on when both are done
            pass
    with pytest.raises(OSError):
        await failed


def test_a_failure_ends_where_the_backend_forgave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread submits while a waiter is being told runs, and is not taken for what did not."""
    stream, later = Stream("cpu"), []
    failed = stream.call(fail)
    while not failed.query():
        pass
    backend = aiodev.get_backend("cpu")
    forgive = backend.executor.forgive

    def forgive_and_submit(queue: int) -> None:
        forgive(queue)
        later.append(stream.call(int, 3))

    monkeypatch.setattr(backend.executor, "forgive", forgive_and_submit)
    with pytest.raises(OSError):
        failed.synchronize_blocking(30)
    (done,) = later
    assert done.synchronize_blocking(30) == 3


async def test_what_came_before_a_failure_stays_done() -> None:
    """Its result is not touched."""
    stream = Stream("cpu")
    with Latch(stream):
        before, failed = stream.call(int, 1), stream.call(fail)
    with pytest.raises(OSError):
        await failed
    assert await before == 1


@pytest.mark.parametrize("how", ["await", "synchronize", "blocking", "skipped", "event", "device"])
async def test_a_stream_works_again_once_a_waiter_was_told(how: str) -> None:
    """Whoever was told, and however; and the failed operation still raises for those who ask later."""
    stream = Stream("cpu")
    with Latch(stream):
        failed, skipped = stream.call(fail), stream.call(int)
        event = stream.record_event()
    with pytest.raises((OSError, DependencyError)):
        match how:
            case "await":
                await failed
            case "synchronize":
                await stream.synchronize()
            case "blocking":
                stream.synchronize_blocking(timeout=30)
            case "skipped":
                await skipped
            case "event":
                await event
            case "device":
                await aiodev.synchronize("cpu")
    assert await stream.call(int, 7) == 7
    await stream.synchronize()
    with pytest.raises(OSError):
        await failed
    with pytest.raises(DependencyError):
        await skipped


async def test_a_stream_does_not_work_again_before() -> None:
    """Submitted after the failure, but before anyone was told: it does not run."""
    stream = Stream("cpu")
    failed = stream.call(fail)
    while not failed.query():
        await anyio.lowlevel.checkpoint()
    with pytest.raises(DependencyError):
        await stream.call(int, 1)
    assert await stream.call(int, 2) == 2


async def test_synchronize_raises_each_failure_once() -> None:
    """The second time there is nothing new to tell."""
    stream = Stream("cpu")
    stream.call(fail)
    with pytest.raises(OSError):
        await stream.synchronize()
    await stream.synchronize()


async def test_an_event_recorded_after_a_told_failure_is_clean() -> None:
    """What a waiter was told of is over: a later event of the stream does not raise it again."""
    stream, other = Stream("cpu"), Stream("cpu")
    stream.call(fail)
    with pytest.raises(OSError):
        await stream.synchronize()
    event = stream.record_event()
    await event
    await event.wait(other)
    assert await other.call(int, 1) == 1


async def test_failures_in_a_row_are_told_apart() -> None:
    """Each operation raises its own failure, also much later."""
    stream, failed = Stream("cpu"), list[aiodev.Completion]()
    for i in range(50):
        failed.append(stream.call(fail, str(i)))
        with pytest.raises(OSError, match=str(i)):
            await stream.synchronize()
    for i, done in reversed(list(enumerate(failed))):
        with pytest.raises(OSError, match=f"^{i}$"):
            await done


async def test_every_waiter_is_told() -> None:
    """Ten tasks that wait for one operation all get its exception."""
    stream, told = Stream("cpu"), list[str]()
    latch = Latch(stream)
    failed = stream.call(fail, "one")

    async def wait() -> None:
        with pytest.raises(OSError, match="one"):
            await failed
        told.append("one")

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        latch.release()
    assert len(told) == 10


# Across streams


@pytest.mark.parametrize("in_flight", [True, False])
async def test_failure_crosses_streams(in_flight: bool) -> None:
    """A stream that waits for a failed point, before it fails or after, fails with that cause and runs nothing."""
    first, second, third, seen = Stream("cpu"), Stream("cpu"), Stream("cpu"), list[int]()
    latch = Latch(first)
    failed = first.call(fail)
    if not in_flight:
        latch.release()
        while not failed.query():
            await anyio.lowlevel.checkpoint()
    second.wait(failed)
    third.wait_stream(second)
    skipped = third.call(seen.append, 1)
    latch.release()
    with pytest.raises(DependencyError) as caught:
        await skipped
    assert isinstance(caught.value.__cause__, OSError) and seen == []


async def test_telling_frees_the_stream_that_was_told() -> None:
    """The others stay as they are until their own waiters are told."""
    first, second = Stream("cpu"), Stream("cpu")
    with Latch(first):
        first.call(fail)
        second.wait_stream(first)
    with pytest.raises(DependencyError):
        await second.synchronize()
    assert await second.call(int, 1) == 1
    with pytest.raises(DependencyError):
        await first.call(int)
    assert await first.call(int, 2) == 2


async def test_waiting_for_a_failure_again_fails_again() -> None:
    """A point that failed fails whoever waits for it, each time, until somebody was told."""
    first, second = Stream("cpu"), Stream("cpu")
    latch = Latch(first)
    failed = first.call(fail)
    second.wait(failed)
    latch.release()
    for _ in range(2):
        with pytest.raises(DependencyError):
            await second.call(int)
        second.wait(failed)
    with pytest.raises(DependencyError):
        await second.synchronize()
    with pytest.raises(OSError):
        await first.synchronize()
    second.wait(failed)
    assert await second.call(int, 1) == 1


async def test_independent_streams_never_notice() -> None:
    """A failure stays with what is ordered after it."""
    first, second = Stream("cpu"), Stream("cpu")
    failed = first.call(fail)
    assert await second.call(int, 1) == 1
    await second.synchronize()
    with pytest.raises(OSError):
        await failed


async def test_an_event_recorded_before_a_failure_is_not_touched() -> None:
    """Waiting for it orders after what came before."""
    first, second = Stream("cpu"), Stream("cpu")
    latch = Latch(first)
    event = first.record_event(Event())
    first.call(fail)
    second.wait_event(event)
    done = second.call(int, 1)
    latch.release()
    assert await done == 1
    await event
    with pytest.raises(OSError):
        await first.synchronize()


# What nobody asked for


async def test_a_failure_that_nobody_waited_for_is_reported_at_close(reports: Reports) -> None:
    """Once, with the exception."""
    stream = Stream("cpu")
    stream.call(fail, "unheard")
    await stream.aclose()
    assert reports.errors.count("unheard") == 1
    del stream
    gc.collect()
    await Stream("cpu").call(int)
    assert reports.errors.count("unheard") == 1


@pytest.mark.parametrize("in_flight", [True, False])
async def test_a_failure_that_nobody_waited_for_is_reported_at_collection(reports: Reports, in_flight: bool) -> None:
    """Also when the stream was dropped before it failed."""
    stream = Stream("cpu")
    latch = Latch(stream)
    stream.call(fail, "unheard")
    if not in_flight:
        latch.release()
        while not stream.query():
            await anyio.lowlevel.checkpoint()
    del stream
    gc.collect()
    latch.release()
    assert await anyio.to_thread.run_sync(reports.arrived.wait, 30)
    assert reports.errors.count("unheard") == 1 and "never retrieved" in reports.records[0].getMessage()


async def test_a_failure_that_somebody_knows_of_is_not_reported(reports: Reports) -> None:
    """Neither one that a waiter was told of, nor one that a dependent stream's waiter was."""
    first, second, third = Stream("cpu"), Stream("cpu"), Stream("cpu")
    with pytest.raises(OSError):
        await first.call(fail)
    second.call(fail)
    third.wait_stream(second)
    with pytest.raises(DependencyError):
        await third.synchronize()
    for stream in (first, second, third):
        await stream.aclose()
    assert reports.errors == []



# What is kept of failures


async def _wait_with_a_variable(stream: Stream) -> weakref.ref[Latch]:
    """Wait for what failed; what comes back is to something that only a variable here held."""
    variable = Latch(stream)
    with pytest.raises(DependencyError) as caught:
        await stream.call(int)
    assert caught.value.__traceback__ is not None and isinstance(caught.value.__cause__, OSError)
    return weakref.ref(variable)


async def test_a_failure_that_is_kept_holds_nothing_of_its_waiters() -> None:
    """A stream remembers its failures for other waiters, and not what was raised to one, whose traceback holds its frames."""
    one, other = Stream("cpu"), Stream("cpu")
    failed = one.call(fail)
    other.wait(failed)
    references = [await _wait_with_a_variable(stream) for stream in (other, one)]
    gc.collect()
    assert [reference() for reference in references] == [None, None]


async def test_tracebacks_do_not_grow() -> None:
    """What a called function raised is raised itself at each waiter, and does not gather the frames of all."""
    failed = Stream("cpu").call(fail)
    lengths = []
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            await failed
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1
