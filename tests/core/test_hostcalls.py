"""Functions in stream order: their results, their failures, their context, their threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import gc
import threading
import time
import traceback
import weakref

import anyio
import pytest
import trio
from thread_limit import no_more_threads

import aiodev
from aiodev import DependencyError, Stream
from aiodev._core.streams import host_calls
from aiodev._core.streams.host_calls import HostThreads
from aiodev._core.waiting import callbacks, watcher
from aiodev._core.waiting.watcher import Watcher
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio

WAIT = 30  # seconds that no test takes

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def test_a_call_gives_its_result() -> None:
    """``await`` gives what the function returned, as often as it is asked."""
    result = object()
    done = Stream("cpu").call(lambda *args: (result, args), 1, 2)
    for _ in range(2):
        assert await done == (result, (1, 2))
    assert done.synchronize_blocking(timeout=WAIT) == (result, (1, 2))
    await done.synchronize()


async def test_a_call_raises_what_its_function_raised() -> None:
    """The exception arrives unchanged: the same object at the first waiter, one like it at the others."""
    error = KeyError("no such row")

    def fail() -> None:
        raise error

    done = Stream("cpu").call(fail)
    with pytest.raises(KeyError) as first:
        await done
    assert first.value is error
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            await done
        assert caught.value.args == error.args and caught.value is not error
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail"
    with pytest.raises(KeyError):
        await done.synchronize()
    with pytest.raises(KeyError):
        done.synchronize_blocking(timeout=WAIT)


async def test_exceptions_of_the_system_arrive_at_the_waiter() -> None:
    """A function that calls ``sys.exit`` ends no thread of ours: the waiter is told."""
    stream = Stream("cpu")
    failed = stream.call(exit, 3)
    error: BaseException | None = None
    try:
        await failed
    except SystemExit as caught:
        error = caught
    assert isinstance(error, SystemExit) and error.code == 3
    assert await stream.call(int, 1) == 1


async def test_a_call_runs_off_the_loop() -> None:
    """Another thread runs it, while the loop's tasks go on."""
    entered, leave = threading.Event(), threading.Event()

    def wait() -> threading.Thread:
        entered.set()
        assert leave.wait(WAIT)
        return threading.current_thread()

    done = Stream("cpu").call(wait)
    assert await anyio.to_thread.run_sync(entered.wait, WAIT)
    assert not done.query()
    leave.set()
    thread = await done
    assert thread is not threading.current_thread() and thread.daemon


async def test_calls_of_different_streams_run_at_once() -> None:
    """Functions that wait for each other, on as many streams, all come to an end."""
    meeting = threading.Barrier(20)
    for done in [Stream("cpu").call(meeting.wait, WAIT) for _ in range(20)]:
        await done
    assert not meeting.broken


async def test_calls_that_block_hold_no_worker() -> None:
    """While many functions block, native work of other streams goes on."""
    leave = threading.Event()
    blocked = [Stream("cpu").call(leave.wait, WAIT) for _ in range(20)]
    stream = Stream("cpu")
    stream._fill(0, 0, b"\0")
    await stream.synchronize()
    leave.set()
    for done in blocked:
        assert await done


async def test_a_call_has_the_submitters_context() -> None:
    """Context variables are those of the submission; what the function sets is seen by nobody else."""
    stream = Stream("cpu")

    def look() -> str:
        found = variable.get()
        variable.set("by the function")
        return found

    variable.set("first")
    with Latch(stream):
        first = stream.call(look)
        variable.set("second")
        second = stream.call(look)
    assert (await first, await second, variable.get()) == ("first", "second", "second")


async def test_a_call_has_the_submitters_stream() -> None:
    """The current stream and device are context, too."""
    stream, other = Stream("cpu"), Stream("cpu")
    with other:
        done = stream.call(aiodev.current_stream)
    assert await done is other


async def test_a_function_may_submit_and_wait_elsewhere() -> None:
    """Inside a function one may feed other streams, and its own, and block on others."""
    stream, other = Stream("cpu"), Stream("cpu")

    def work() -> tuple[int, aiodev.Completion]:
        return other.call(int, 5).synchronize_blocking(timeout=WAIT), stream.call(int, 6)

    result, later = await stream.call(work)
    assert (result, await later) == (5, 6)


async def test_a_function_behind_a_failure_does_not_run() -> None:
    """What is ordered after a failure is told so, with the failure as cause."""
    stream, seen = Stream("cpu"), list[int]()
    with Latch(stream):
        stream.call(int, "x")
        skipped = stream.call(seen.append, 1)
    with pytest.raises(DependencyError) as caught:
        await skipped
    assert isinstance(caught.value.__cause__, ValueError) and seen == []


async def test_a_function_that_makes_a_coroutine_is_refused() -> None:
    """Nobody would run the coroutine; the message says what does."""

    async def work() -> int:
        return 3

    class Work:
        async def __call__(self) -> int:
            return 3

    stream = Stream("cpu")
    for made in (work, functools.partial(work), Work(), Work().__call__):
        with pytest.raises(TypeError, match="wait_future"):
            stream.call(made)
    assert stream.empty()


async def test_a_call_lets_go_of_what_it_used() -> None:
    """Function and arguments are free once it has run, though its completion is still held."""

    class Argument:
        pass

    argument = Argument()
    gone, finished = weakref.ref(argument), threading.Event()
    weakref.finalize(argument, finished.set)
    stream = Stream("cpu")
    done = stream.call(id, argument)
    await done
    del argument
    gc.collect()
    assert await anyio.to_thread.run_sync(finished.wait, WAIT) and gone() is None


async def test_threads_are_used_again() -> None:
    """A hundred calls, one after another, make no more than a few threads."""
    stream, before = Stream("cpu"), set(threading.enumerate())
    threads = {await stream.call(threading.current_thread) for _ in range(100)}
    assert len(threads - before) < 10


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> HostThreads:
    """Two threads, for calls and callbacks of this test."""
    threads = HostThreads(2)
    for module in (host_calls, callbacks):
        monkeypatch.setattr(module, "host_threads", threads)
    return threads


async def test_no_more_functions_run_at_once_than_there_may_be_threads(few: HostThreads) -> None:
    """Others wait in line."""
    leave, lock = threading.Event(), threading.Lock()
    running = most = 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert leave.wait(WAIT)
        with lock:
            running -= 1

    calls = [Stream("cpu").call(work) for _ in range(8)]
    assert len(few._backlog) == 6
    leave.set()
    for call in calls:
        await call
    assert most <= 2


def test_functions_wait_in_order_of_their_turns() -> None:
    """First come, first served."""
    threads, leave, last = HostThreads(1), threading.Event(), threading.Event()
    order = list[int]()
    threads.submit(lambda: leave.wait(WAIT), pytest.fail)  # type: ignore[arg-type]
    for number in range(10):
        threads.submit(functools.partial(order.append, number), pytest.fail)
    threads.submit(last.set, pytest.fail)
    assert order == []
    leave.set()
    assert last.wait(WAIT) and order == list(range(10))


async def test_calls_that_wait_for_calls_in_line_come_to_their_end(few: HostThreads) -> None:
    """A function that waits for a stream leaves its place to others, however deep that goes."""

    def work(depth: int) -> int:
        return depth and 1 + Stream("cpu").call(work, depth - 1).synchronize_blocking(timeout=WAIT)

    calls = [Stream("cpu").call(work, 5) for _ in range(4)]
    for call in calls:
        assert await call == 5
    with anyio.fail_after(WAIT):  # for those that stood in to leave
        while few._count > 2:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
    assert not few._backlog


async def test_a_call_without_a_thread_fails(few: HostThreads) -> None:
    """Its waiter is told, and the stream goes on."""
    stream = Stream("cpu")
    await stream.synchronize()
    with no_more_threads():
        failed = stream.call(int, 1)
        with pytest.raises(aiodev.ThreadLimitError) as caught:
            await failed
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert await stream.call(int, 2) == 2


async def test_a_call_fails_whose_turn_nobody_can_wait_for() -> None:
    """What is submitted behind it does not run until a waiter was told; then the stream goes on, and nothing is left over."""
    stream, ran = Stream("cpu"), list[int]()
    await stream.synchronize()
    latch = Latch(stream)
    with no_more_threads(with_watcher=False):
        refused = [stream.call(ran.append, number) for number in range(2)]
        assert stream.qsize() == 3
    behind = stream.call(ran.append, 2)
    latch.release()
    with pytest.raises(aiodev.ThreadLimitError) as caught:
        await refused[0]
    assert isinstance(caught.value.__cause__, RuntimeError)
    for done in (refused[1], behind):
        with pytest.raises(DependencyError) as told:
            await done
        assert isinstance(told.value.__cause__, aiodev.ThreadLimitError)
    await stream.call(ran.append, 3)
    assert ran == [3] and stream.empty()


def test_who_needs_the_watcher_hears_of_a_refusal_that_another_thread_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts on a thread that is just being started."""
    fresh, starting, refused = Watcher(), threading.Event(), list[object]()
    first = threading.Thread(target=lambda: refused.append(fresh.refusal()))
    start = first.start

    def refuse(thread: threading.Thread) -> None:
        starting.set()
        time.sleep(0.02)  # meanwhile the other one comes
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watcher, "STARTING_PATIENCE", WAIT)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    start()
    assert starting.wait(WAIT)
    refused.append(fresh.refusal())
    first.join(WAIT)
    assert [type(error) for error in refused] == [aiodev.ThreadLimitError] * 2


async def test_a_call_without_a_thread_of_its_own_waits_for_those_at_work(few: HostThreads) -> None:
    """As if there may be no more of them."""
    entered, leave = threading.Event(), threading.Event()

    def work() -> bool:
        entered.set()
        return leave.wait(WAIT)

    first = Stream("cpu").call(work)
    assert await anyio.to_thread.run_sync(entered.wait, WAIT)
    with no_more_threads():
        second = Stream("cpu").call(int, 2)
        assert len(few._backlog) == 1
    leave.set()
    assert await first and await second == 2


async def test_a_call_whose_backend_refuses_the_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong before the function runs is its failure."""
    stream = Stream("cpu")
    await stream.synchronize()
    refusal = OSError("no context for this thread")

    def refuse(index: int) -> None:
        raise refusal

    monkeypatch.setattr(stream.timeline.handle.backend, "attach_thread", refuse)
    with pytest.raises(OSError, match="no context"):
        await stream.call(int, 1)
    monkeypatch.undo()
    assert await stream.call(int, 2) == 2


async def test_a_call_that_cannot_be_watched_for_is_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The submission raises, and the stream goes on."""
    stream = Stream("cpu")
    await stream.synchronize()
    refusal = RuntimeError("can't start new thread")

    def refuse(*_: object) -> None:
        raise refusal

    with monkeypatch.context() as patched:
        patched.setattr(host_calls.watcher, "watch", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            stream.call(int, 1)
    assert await stream.call(int, 2) == 2


@pytest.mark.parametrize("kind", [asyncio.CancelledError, trio.Cancelled, StopIteration, StopAsyncIteration, GeneratorExit])
@pytest.mark.parametrize("source", ["call", "wait_future"])
async def test_what_would_end_the_waiting_task_arrives_as_a_cause(kind: type[BaseException], source: str) -> None:
    """Nobody has cancelled the task that waits; at every waiter the same."""
    error = kind._create() if kind is trio.Cancelled else kind("of the function")

    def fail() -> None:
        raise error

    stream = Stream("cpu")
    if source == "call":
        failed = stream.call(fail)
    else:
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        failed = stream.wait_future(future)
        future.set_exception(error)
    for _ in range(2):
        with pytest.raises(aiodev.CallError, match=f"{source}: .*{kind.__name__}") as caught:
            await failed
        assert isinstance(caught.value.__cause__, kind)
    with pytest.raises(aiodev.CallError):
        failed.synchronize_blocking(timeout=WAIT)
    assert not failed.cancelled()
