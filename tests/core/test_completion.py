"""Completions as values, and as what asyncio's functions take: done, results, failures, callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import operator
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest
from turns import Clock, Turns

import aiodev
from aiodev import Completion, DependencyError, Stream
from aiodev.testing import Latch, SimulatedBackend

WAIT = 30

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@aiodev.kernel
def nothing(i):
    pass


def fail() -> None:
    raise KeyError("no such row")


# A value


def test_completions_of_the_same_point_are_equal() -> None:
    """And have the same hash, whether or not they know the result; those of other points, and other things, differ."""
    stream, other = Stream("cpu"), Stream("cpu")
    call = stream.call(int)
    same = Completion(call.timeline, call.value)
    assert call == same and hash(call) == hash(same) and {call, same} == {call}
    assert call not in (Completion(call.timeline, call.value + 1), Completion(other.timeline, call.value), 1, None)
    assert call != (call.timeline, call.value)


def test_a_completion_does_not_change() -> None:
    """Its attributes cannot be set, and there are no others."""
    done = Stream("cpu").call(int)
    for name in ("timeline", "value", "other"):
        with pytest.raises(AttributeError):
            setattr(done, name, 1)


@pytest.mark.parametrize("misuse", [iter, len, lambda done: done[0], operator.itemgetter(1), lambda done: done < done])
def test_a_completion_is_no_tuple(misuse: Callable[[Any], object]) -> None:
    """It is neither unpacked nor indexed nor ordered."""
    with pytest.raises(TypeError):
        misuse(Stream("cpu").call(int))


def test_completions_take_weak_references() -> None:
    """Of every kind of submission."""
    stream, array = Stream("cpu"), aiodev.zeros(3, device="cpu")
    bound, ones = nothing.bind(1), np.ones(3)
    for submit in (lambda: stream.call(int), nothing[1, stream], bound, lambda: stream.copy(array, ones)):
        done = submit()
        reference = weakref.ref(done)
        assert reference() is done
        done.synchronize_blocking(WAIT)
        del done
        gc.collect()
        assert reference() is None


# What it came to


@pytest.mark.anyio
async def test_the_state_of_a_call() -> None:
    """``done``, ``result`` and ``exception`` go from pending to the result, as a future's."""
    stream = Stream("cpu")
    with Latch(stream):
        call, launch = stream.call(int, "7"), nothing[1, stream]()
        for done in (call, launch):
            assert not done.done() and not done.query() and not done.cancelled()
            for ask in (done.result, done.exception):
                with pytest.raises(asyncio.InvalidStateError, match="is not done; await it first"):
                    ask()
    assert await call == 7 and await launch is None
    assert call.done() and call.result() == 7 and call.exception() is None and not call.cancelled()
    assert launch.result() is None and launch.exception() is None


@pytest.mark.anyio
async def test_the_state_of_a_failure() -> None:
    """``result`` raises it and ``exception`` gives it; what is ordered after it has not run. Both tell: later work runs."""
    stream = Stream("cpu")
    for ask in (Completion.exception, lambda done: pytest.raises(KeyError, done.result).value):
        failed, behind = stream.call(fail), stream.call(int)
        with anyio.fail_after(WAIT):
            while not behind.done():
                await anyio.lowlevel.checkpoint()
        assert isinstance(ask(failed), KeyError) and not failed.cancelled()
        assert isinstance(behind.exception(), DependencyError)
        assert await stream.call(int, 1) == 1


def test_asking_for_a_failure_leaves_nothing_to_the_collector() -> None:
    """What the frames of ``result`` and ``exception`` held goes with them."""
    stream = Stream("cpu")
    failed = stream.call(fail)
    for ask in (failed.synchronize_blocking, failed.result):
        with pytest.raises(KeyError):
            ask()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(50):
            failed.exception()
            with contextlib.suppress(KeyError):
                failed.result()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


# asyncio's functions


async def test_wait_gives_the_completions_back() -> None:
    """``asyncio.wait`` returns them as it does tasks, and leaves nothing behind for those that are pending."""
    quick, slow = Stream("cpu"), Stream("cpu")
    latch = Latch(slow)
    first, second = quick.call(int, 1), slow.call(int, 2)
    done, pending = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    assert done == {first} and pending == {second}
    done, pending = await asyncio.wait([second], timeout=0.001)
    assert not done and pending == {second}
    latch.release()
    done, pending = await asyncio.wait([first, second])
    assert {completion.result() for completion in done} == {1, 2} and not pending


async def test_wait_for_the_first_failure() -> None:
    """It ends the wait, and is told."""
    good, bad = Stream("cpu"), Stream("cpu")
    latch = Latch(good)
    held, failed = good.call(int), bad.call(fail)
    done, pending = await asyncio.wait([held, failed], return_when=asyncio.FIRST_EXCEPTION)
    assert done == {failed} and pending == {held}
    latch.release()
    await held


async def test_gather_wait_for_and_ensure_future() -> None:
    """They await completions, and give their results; a cancelled wait leaves the work alone."""
    stream = Stream("cpu")
    calls = [stream.call(int, n) for n in range(5)]
    assert await asyncio.gather(*calls) == list(range(5))
    assert await asyncio.wait_for(calls[1], WAIT) == 1
    assert await asyncio.shield(calls[2]) == 2
    task = asyncio.ensure_future(calls[3])
    assert isinstance(task, asyncio.Task) and await task == 3
    assert [await each for each in asyncio.as_completed(calls[:2])] in ([0, 1], [1, 0])
    latch = Latch(stream)
    late = stream.call(int, 9)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late, 0.001)
    latch.release()
    async with asyncio.timeout(WAIT):
        assert await late == 9


async def test_gather_returns_failures() -> None:
    """As of any awaitable."""
    failed = Stream("cpu").call(fail)
    (error,) = await asyncio.gather(failed, return_exceptions=True)
    assert isinstance(error, KeyError)


async def test_create_task_takes_coroutines_only() -> None:
    """A completion is an awaitable, as a future is: asyncio says what it expects."""
    with pytest.raises(TypeError, match="a coroutine was expected, got <Completion 1 of"):
        asyncio.create_task(Stream("cpu").call(int))  # type: ignore[arg-type]


# Callbacks


@pytest.mark.anyio
@pytest.mark.parametrize("already", [False, True])
async def test_a_callback_is_called_once_with_the_completion(already: bool) -> None:
    """In the loop's thread, with the context of who added it, and not from within ``add_done_callback``."""
    stream, seen, told = Stream("cpu"), list[object](), anyio.Event()
    latch = Latch(stream)
    call = stream.call(int, 3)
    if already:
        latch.release()
        await call

    def callback(done: Completion[int]) -> None:
        seen.append((done is call, done.result(), variable.get(), threading.current_thread()))
        told.set()

    variable.set("mine")
    call.add_done_callback(callback)
    variable.set("changed")
    assert seen == []
    latch.release()
    await told.wait()
    await anyio.lowlevel.checkpoint()
    assert seen == [(True, 3, "mine", threading.current_thread())]


@pytest.mark.anyio
async def test_a_callback_has_the_context_that_is_given() -> None:
    """Not that of the task."""
    stream, seen, told = Stream("cpu"), list[str](), anyio.Event()
    context = contextvars.copy_context()
    context.run(variable.set, "given")
    stream.call(int).add_done_callback(lambda done: (seen.append(variable.get()), told.set()), context=context)
    await told.wait()
    assert seen == ["given"]


@pytest.mark.anyio
@pytest.mark.parametrize("before", range(6))
async def test_callbacks_are_called_in_order(before: int) -> None:
    """All of one completion, in the order in which they were added, also the same function twice, whenever it is done."""
    stream, seen, told = Stream("cpu"), list[object](), anyio.Event()
    latch = Latch(stream)
    call = stream.call(int)

    def add(function: Callable[[Completion[int]], object], place: int) -> None:
        if place == before:
            latch.release()
            while not call.query():
                pass
        call.add_done_callback(function)

    for place, number in enumerate((1, 2, 2, 3)):
        add(lambda done, number=number: seen.append(number), place)
    add(lambda done: told.set(), 4)
    latch.release()
    await told.wait()
    assert stream.timeline.parked == 0  # whoever was called waits no longer, also if the device has not told the loop yet
    await anyio.lowlevel.checkpoint()
    assert seen == [1, 2, 2, 3]


@pytest.mark.anyio
async def test_a_callback_that_is_removed_is_not_called() -> None:
    """However often it was added; others are."""
    stream, seen, told = Stream("cpu"), list[object](), anyio.Event()
    latch = Latch(stream)
    call = stream.call(int)
    assert call.remove_done_callback(seen.append) == 0
    call.add_done_callback(seen.append)
    call.add_done_callback(seen.append)
    call.add_done_callback(lambda done: told.set())
    assert call.remove_done_callback(seen.append) == 2
    assert call.remove_done_callback(seen.append) == 0
    latch.release()
    await told.wait()
    assert seen == []
    call.add_done_callback(seen.append)  # done: it is to be called soon, and can still be removed
    assert call.remove_done_callback(seen.append) == 1
    await anyio.lowlevel.checkpoint()
    assert seen == []


def test_without_a_loop_a_thread_calls() -> None:
    """One of ours, with the context of who added it; it may block there, and what it raises is logged."""
    stream, seen, told = Stream("cpu"), list[object](), threading.Event()
    call = stream.call(int, 5)
    variable.set("thread")

    def callback(done: Completion[int]) -> None:
        stream.call(int).synchronize_blocking(WAIT)
        seen.append((done.result(), variable.get(), threading.current_thread() is threading.main_thread()))
        told.set()

    call.add_done_callback(callback)
    assert told.wait(WAIT)
    assert seen == [(5, "thread", False)]


def test_what_a_callback_raises_in_a_thread_is_logged() -> None:
    """With the completion's name."""
    stream, told, logged = Stream("cpu"), threading.Event(), list[str]()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(self.format(record))
            told.set()

    handler = Told()
    logging.getLogger("aiodev").addHandler(handler)
    try:
        stream.call(int).add_done_callback(lambda done: 1 / 0)
        assert told.wait(WAIT)
    finally:
        logging.getLogger("aiodev").removeHandler(handler)
    assert logged[0].startswith("a callback of <Completion 1 of") and "ZeroDivisionError" in logged[0]


async def test_what_a_callback_raises_goes_to_the_loops_handler() -> None:
    """And the next callback is called."""
    loop, seen, told = asyncio.get_running_loop(), list[Any](), asyncio.Event()
    loop.set_exception_handler(lambda loop, context: seen.append(context["exception"]))
    stream = Stream("cpu")
    with Latch(stream):  # done between the two, it would have the second called first
        call = stream.call(int)
        call.add_done_callback(lambda done: 1 / 0)
        call.add_done_callback(lambda done: told.set())
    await told.wait()
    assert [type(error) for error in seen] == [ZeroDivisionError]


@pytest.mark.anyio
async def test_a_callback_of_work_whose_backend_has_not_started(simulated: SimulatedBackend) -> None:
    """It is called when the backend has started and done the work."""
    told = anyio.Event()
    Stream(simulated.name).call(int, 1).add_done_callback(lambda done: told.set())
    await told.wait()


@pytest.mark.anyio
async def test_callbacks_take_turns(clock: Clock) -> None:
    """Of functions that work for longer than a period one is called a turn."""
    stream, worked = Stream("cpu"), list[int]()
    latch = Latch(stream)
    call = stream.call(int)

    def work(done: Completion[int]) -> None:
        clock.work()
        worked.append(turns.count)

    async with Turns() as turns:
        for _ in range(16):
            call.add_done_callback(work)
        latch.release()
        with anyio.fail_after(WAIT):
            while len(worked) < 16:
                await anyio.lowlevel.checkpoint()
    assert len(set(worked)) == 16


@pytest.mark.parametrize("take", [
    lambda called: aiodev.Stream("cpu").call(int).add_done_callback(called),
    lambda called: aiodev.memory.on_out_of_memory(called, "cpu"),
    lambda called: aiodev.profiler.detect_blocking(report=called),
    lambda called: aiodev.in_child(called),
], ids=["done", "memory", "blocking", "fork"])  # fmt: skip
def test_what_is_called_is_no_coroutine_function(take: Callable[[Any], Any]) -> None:
    """Nobody would await what it makes; nor is it, where it is an object with such a method."""

    async def called(*given: Any) -> None:
        raise AssertionError

    class Called:
        __call__ = called

    for each in (called, Called()):
        with pytest.raises(TypeError, match="makes coroutines, which nobody awaits"):
            take(each)
