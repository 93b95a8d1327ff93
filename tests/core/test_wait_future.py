"""The stream waits for the host: futures, tasks and coroutines, from any loop, however they end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import threading
import weakref
from typing import Any

import anyio
import pytest

from aiodev import DependencyError, Stream
from aiodev.testing import Latch

WAIT = 30

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def cancelled(done: Any) -> None:
    """Check that the operation and what follows it failed because the host gave up."""
    with pytest.raises(DependencyError) as caught:
        await done
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


# Coroutines


@pytest.mark.anyio
async def test_the_stream_waits_for_a_coroutine() -> None:
    """What is submitted later runs when it has returned; the completion gives its result."""
    stream, go = Stream("cpu"), anyio.Event()

    async def work() -> str:
        await go.wait()
        return "result"

    done = stream.wait_future(work())
    later = stream.call(int, 1)
    await anyio.wait_all_tasks_blocked()
    assert not done.query() and not later.query()
    go.set()
    assert await later == 1
    assert await done == "result"


@pytest.mark.anyio
async def test_a_coroutine_that_raises_fails_the_stream() -> None:
    """Its exception arrives unchanged, at first as a cause; what comes after it does not run; then the stream works again."""
    stream, seen, error = Stream("cpu"), list[int](), OSError("no network")

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    done = stream.wait_future(work())
    later = stream.call(seen.append, 1)
    with pytest.raises(DependencyError) as caught:
        await later
    assert caught.value.__cause__ is error and seen == []
    with pytest.raises(OSError) as first:
        await done
    assert first.value.args == error.args
    assert await stream.call(int, 2) == 2


@pytest.mark.anyio
async def test_a_coroutine_has_the_submitters_context() -> None:
    """Its context variables are those of the submission, on every loop."""

    async def look() -> str:
        await anyio.lowlevel.checkpoint()
        return variable.get()

    variable.set("mine")
    assert await Stream("cpu").wait_future(look()) == "mine"


@pytest.mark.anyio
async def test_a_coroutine_may_wait_for_device_work() -> None:
    """It may submit to other streams and await them."""
    stream, other = Stream("cpu"), Stream("cpu")

    async def work() -> int:
        return 1 + await other.call(int, 1)

    assert await stream.wait_future(work()) == 2


@pytest.mark.parametrize("imported", ["", "trio"])
def test_a_coroutine_needs_a_loop(imported: str) -> None:
    """Without a running loop it is refused, whichever libraries are there, and the stream is not held."""
    if imported:
        pytest.importorskip(imported)

    async def work() -> None:
        pass

    stream, coroutine = Stream("cpu"), work()
    with pytest.raises(RuntimeError, match="no running event loop"):
        stream.wait_future(coroutine)
    coroutine.close()
    assert stream.call(int, 1).synchronize_blocking(timeout=WAIT) == 1


# asyncio's futures and tasks


async def test_the_stream_waits_for_a_future_of_asyncio() -> None:
    """A future of the running loop."""
    stream, future = Stream("cpu"), asyncio.get_running_loop().create_future()
    done = stream.wait_future(future)
    assert not done.query()
    future.set_result(3)
    assert await done == 3


async def test_a_future_that_is_done_holds_nothing_up() -> None:
    """Done before it is given."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert await Stream("cpu").wait_future(future) == 3


async def test_a_future_with_an_exception_fails_the_stream() -> None:
    """The exception arrives unchanged."""
    stream, future = Stream("cpu"), asyncio.get_running_loop().create_future()
    done = stream.wait_future(future)
    future.set_exception(OSError("no"))
    with pytest.raises(OSError, match="no"):
        await done


async def test_a_cancelled_future_fails_the_stream() -> None:
    """The waiter sees a DependencyError, not a cancellation of its own."""
    stream, future = Stream("cpu"), asyncio.get_running_loop().create_future()
    done = stream.wait_future(future)
    future.cancel()
    await cancelled(done)
    assert await stream.call(int, 1) == 1


async def test_a_cancelled_task_fails_the_stream() -> None:
    """Likewise a task."""
    stream = Stream("cpu")
    task = asyncio.create_task(asyncio.sleep(3600))
    done = stream.wait_future(task)
    await asyncio.sleep(0)
    task.cancel()
    await cancelled(done)


async def test_a_task_gives_its_result() -> None:
    """A task may be awaited by others, too."""
    task = asyncio.create_task(asyncio.sleep(0, "result"))
    done = Stream("cpu").wait_future(task)
    assert (await task, await done) == ("result", "result")


async def test_a_future_that_is_dropped_fails_the_stream() -> None:
    """Nobody can finish it any more: the stream goes on with a failure instead of waiting for ever."""
    future = asyncio.get_running_loop().create_future()
    done = Stream("cpu").wait_future(future)
    del future
    gc.collect()
    await cancelled(done)


async def test_a_future_of_another_loop() -> None:
    """A stream fed here may wait for a future that belongs to a loop of another thread."""
    future: asyncio.Future[int] | None = None
    ready, go = threading.Event(), threading.Event()

    async def other() -> None:
        nonlocal future
        future = asyncio.get_running_loop().create_future()
        ready.set()
        await asyncio.to_thread(go.wait, WAIT)
        future.set_result(4)
        await asyncio.sleep(0)

    thread = threading.Thread(target=asyncio.run, args=(other(),))
    thread.start()
    assert await asyncio.to_thread(ready.wait, WAIT)
    assert future is not None
    done = Stream("cpu").wait_future(future)
    go.set()
    assert await done == 4
    await asyncio.to_thread(thread.join, WAIT)


def test_a_future_of_a_closed_loop_is_refused() -> None:
    """It can never be done; the stream is not held."""
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    stream = Stream("cpu")
    with pytest.raises(RuntimeError):
        stream.wait_future(future)
    assert stream.call(int, 1).synchronize_blocking(timeout=WAIT) == 1


def test_a_coroutine_whose_loop_ends_fails_the_stream() -> None:
    """``asyncio.run`` cancels it at the end; a waiter of another loop is told."""
    stream = Stream("cpu")

    async def main() -> Any:
        return stream.wait_future(asyncio.sleep(3600))

    async def wait(done: Any) -> None:
        await cancelled(done)
        assert await stream.call(int, 1) == 1

    asyncio.run(wait(asyncio.run(main())))


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
@pytest.mark.parametrize("bare", [False, True], ids=["coroutine", "future"])
def test_a_loop_that_is_closed_with_its_tasks_fails_the_stream(library: str, bare: bool) -> None:
    """Nobody cancels them, and nobody goes on with them: whoever waits is told when they are collected."""
    stream, loop = Stream("cpu"), pytest.importorskip(library).new_event_loop()

    async def submit() -> Any:
        stream.wait_future(asyncio.get_running_loop().create_future() if bare else asyncio.sleep(3600))
        return stream.call(int, 1)

    done = loop.run_until_complete(submit())
    loop.close()
    del loop
    gc.collect()
    with pytest.raises(DependencyError) as caught:
        done.synchronize_blocking(timeout=WAIT)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert stream.call(int, 1).synchronize_blocking(timeout=WAIT) == 1


async def test_a_coroutine_that_nobody_else_holds_is_not_collected() -> None:
    """What it waits for is known to it alone, and asyncio holds its tasks weakly."""
    futures = list[weakref.ref[asyncio.Future[int]]]()

    async def work() -> int:
        future = asyncio.get_running_loop().create_future()
        futures.append(weakref.ref(future))
        return await future

    done = Stream("cpu").wait_future(work())
    await asyncio.sleep(0)
    gc.collect()
    future = futures[0]()
    assert future is not None
    future.set_result(3)
    del future
    assert await done == 3


# Futures of threads


@pytest.mark.anyio
async def test_the_stream_waits_for_a_future_of_a_thread() -> None:
    """``concurrent.futures``, on every loop."""
    stream = Stream("cpu")
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    done = stream.wait_future(future)
    later = stream.call(int, 1)
    assert not done.query()
    threading.Thread(target=future.set_result, args=(5,)).start()
    assert (await later, await done) == (1, 5)


@pytest.mark.anyio
async def test_a_future_of_a_thread_that_fails_or_is_cancelled() -> None:
    """As any other future."""
    stream = Stream("cpu")
    for settle in (lambda future: future.set_exception(OSError("no")), lambda future: future.cancel()):
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        done = stream.wait_future(future)
        settle(future)
        with pytest.raises((OSError, DependencyError)):
            await done
    assert await stream.call(int, 1) == 1


@pytest.mark.anyio
async def test_a_future_behind_a_failure() -> None:
    """The stream does not wait for it, and its own failure is nobody's concern any more."""
    stream = Stream("cpu")
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    latch = Latch(stream)
    done = stream.wait_future(future)
    latch.release(OSError("before"))
    with pytest.raises(DependencyError) as caught:
        await done
    assert isinstance(caught.value.__cause__, OSError)
    future.set_exception(KeyError())
    assert await stream.call(int, 1) == 1


def test_what_is_no_awaitable_is_refused() -> None:
    """A mistake of the program raises where it is made, and does not hold the stream."""
    stream = Stream("cpu")

    async def main() -> None:
        with pytest.raises(TypeError):
            stream.wait_future(42)
        assert await stream.call(int, 1) == 1

    asyncio.run(main())
