"""Functions in stream order: their results, their failures, their context, their threads."""

from __future__ import annotations

import contextvars
import gc
import threading
import traceback
import weakref

import anyio
import pytest

import aiodev
from aiodev import DependencyError, Stream
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

    stream = Stream("cpu")
    with pytest.raises(TypeError, match="wait_future"):
        stream.call(work)
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
