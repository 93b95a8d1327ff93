"""The start of a backend: once, off the loop, with everything that waited for it. Numbers are the invariants of handle.py."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiodev
from aiodev import BackendUnavailableError
from aiodev._core.backend.handle import BackendHandle
from aiodev._core.backend.registry import registry
from aiodev.testing import SimulatedBackend

pytestmark = pytest.mark.anyio

AddBackend = Callable[..., Any]


def handle_of(backend: Any) -> BackendHandle:
    return registry.handle(backend.name)


def wait_for_end(handle: BackendHandle) -> None:
    """Wait until the attempt is over, callbacks and all."""
    starter = handle.starter
    if starter is not None:
        starter.join(30)


async def starting(backend: Any) -> None:
    """Wait until the backend is about to start."""
    await anyio.to_thread.run_sync(backend.starting.wait, 30)


async def test_the_loop_goes_on_while_a_backend_starts(add_backend: AddBackend) -> None:
    """``await init()`` starts in another thread; it is a task of the same loop that lets the start finish here."""
    backend = add_backend()
    backend.may_start.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(aiodev.init, "fake")
        await starting(backend)
        assert not aiodev.is_initialized("fake")
        backend.may_start.set()
    assert aiodev.is_initialized("fake")
    assert backend.start_threads != [threading.current_thread()]


async def test_many_who_ask_at_once_start_once(add_backend: AddBackend) -> None:
    """Tasks and threads that ask during the start wait for that one."""
    backend = add_backend()
    backend.may_start.clear()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(aiodev.init, "fake")
            tasks.start_soon(anyio.to_thread.run_sync, aiodev.init_blocking, "fake")
        await starting(backend)
        handle_of(backend).start_soon()
        backend.may_start.set()
    await aiodev.init("fake")
    await aiodev.init()
    assert len(backend.start_threads) == 1


async def test_cancelling_stops_the_waiting_not_the_start(add_backend: AddBackend) -> None:
    """A task that gives up leaves the start going, and the next who asks finds it done."""
    backend = add_backend()
    backend.may_start.clear()
    with anyio.move_on_after(0) as scope:
        await aiodev.init("fake")
    assert scope.cancelled_caught
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(aiodev.init, "fake")
            await starting(backend)
            scope.cancel()
    backend.may_start.set()
    await aiodev.init("fake")
    assert len(backend.start_threads) == 1


async def test_a_start_that_fails_reaches_everyone_and_is_tried_anew(add_backend: AddBackend) -> None:
    """(3) Whoever waited gets the failure with its cause; the next attempt is another one."""
    backend = add_backend()
    backend.error = OSError("out of threads")
    backend.may_start.clear()
    failures: list[BackendUnavailableError] = []

    async def ask() -> None:
        with pytest.raises(BackendUnavailableError, match="OSError: out of threads") as caught:
            await aiodev.init("fake")
        failures.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await starting(backend)
        backend.may_start.set()
    assert len(failures) == 2 and all(failure.__cause__ is backend.error for failure in failures)
    wait_for_end(handle_of(backend))
    assert not aiodev.is_initialized("fake")
    backend.error = None
    await aiodev.init("fake")
    assert aiodev.is_initialized("fake")


def test_a_failed_start_makes_a_new_instance(add_backend: AddBackend) -> None:
    """``Backend.start`` is called at most once on an instance."""
    made = []

    def make() -> Any:
        backend = add_backend("unused")
        backend.error = OSError("not yet") if not made else None
        made.append(backend)
        return backend

    registry.register("fake", make)
    with pytest.raises(BackendUnavailableError, match="not yet"):
        aiodev.init_blocking("fake")
    wait_for_end(registry.handle("fake"))
    aiodev.init_blocking("fake")
    assert [len(backend.start_threads) for backend in made] == [1, 1]


def test_an_unavailable_backend_is_not_started(add_backend: AddBackend) -> None:
    """The reason is given without a try."""
    backend = add_backend(reason="no driver")
    with pytest.raises(BackendUnavailableError, match="no driver"):
        aiodev.init_blocking("fake")
    assert not backend.start_threads


def test_a_start_for_which_there_is_no_thread(add_backend: AddBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with what to do, and is tried anew."""
    add_backend()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(BackendUnavailableError, match="ulimit -u"):
            aiodev.init_blocking("fake")
    aiodev.init_blocking("fake", timeout=30)


def test_waiting_for_a_start_can_time_out(add_backend: AddBackend) -> None:
    """``init_blocking(timeout=…)`` gives up; the start does not."""
    backend = add_backend()
    backend.may_start.clear()
    with pytest.raises(TimeoutError, match="it goes on starting"):
        aiodev.init_blocking("fake", timeout=0)
    backend.may_start.set()
    aiodev.init_blocking("fake", timeout=30)
    assert len(backend.start_threads) == 1


def test_a_start_that_times_out_itself_is_a_failed_start(add_backend: AddBackend) -> None:
    """The backend's own TimeoutError is not taken for the waiter's."""
    backend = add_backend()
    backend.error = TimeoutError("the driver did not answer")
    with pytest.raises(BackendUnavailableError, match="the driver did not answer"):
        aiodev.init_blocking("fake", timeout=30)


# Queued calls


def test_calls_wait_for_the_start_in_order(add_backend: AddBackend) -> None:
    """(1) What is asked for before the start runs after it, in order, and before anyone sees it as started."""
    backend = add_backend()
    handle = handle_of(backend)
    seen: list[tuple[int, bool, bool]] = []
    for i in range(3):
        handle.call_when_started(lambda i=i: seen.append((i, bool(backend.start_threads), handle.started)))
    assert not seen and not backend.start_threads
    aiodev.init_blocking("fake")
    assert seen == [(0, True, False), (1, True, False), (2, True, False)]
    handle.call_when_started(lambda: seen.append((3, True, handle.started)))
    assert seen[-1] == (3, True, True)


def test_a_queued_call_may_ask_for_more(add_backend: AddBackend) -> None:
    """A queued call that wants the backend started, or queues a call itself, finds it running and does not hang."""
    handle = handle_of(add_backend())
    order: list[str] = []

    def outer() -> None:
        handle.ensure_started()
        handle.call_when_started(lambda: order.append("inner"))
        order.append("outer")

    handle.call_when_started(outer)
    handle.ensure_started(timeout=30)
    assert order == ["inner", "outer"]


def test_a_queued_call_that_fails_names_its_place(add_backend: AddBackend) -> None:
    """Its exception reaches whoever waits for the start, unchanged, with a note of where it was queued."""
    handle = handle_of(add_backend())
    handle.call_when_started(lambda: 1 // 0)
    line = test_a_queued_call_that_fails_names_its_place.__code__.co_firstlineno + 3
    with pytest.raises(ZeroDivisionError) as caught:
        aiodev.init_blocking("fake")
    (note,) = caught.value.__notes__
    assert f"queued at {__file__}:{line}," in note


def test_a_queued_call_that_fails_is_dropped_and_the_rest_kept(add_backend: AddBackend) -> None:
    """(3) The attempt fails with it; the next goes on behind it, with the backend that is already running."""
    backend = add_backend()
    handle = handle_of(backend)
    seen: list[str] = []
    handle.call_when_started(lambda: seen.append("before"))
    handle.call_when_started(lambda: 1 // 0)
    handle.call_when_started(lambda: seen.append("behind"))
    with pytest.raises(ZeroDivisionError):
        handle.ensure_started()
    wait_for_end(handle)
    assert seen == ["before"] and not handle.started
    handle.ensure_started()
    assert seen == ["before", "behind"] and handle.started
    assert len(backend.start_threads) == 1


# Callbacks


def test_callbacks_run_in_order_after_the_start(add_backend: AddBackend) -> None:
    """(2) They run in the starting thread, in order; with nothing left to start, at once and in the caller's."""
    backend = add_backend()
    handle = handle_of(backend)
    backend.may_start.clear()
    seen: list[tuple[str, bool, threading.Thread]] = []

    def note(name: str) -> Callable[[BaseException | None], None]:
        return lambda error: seen.append((name, handle.started and error is None, threading.current_thread()))

    handle.start_soon(note("first"))
    handle.start_soon(note("second"))
    assert not seen
    backend.may_start.set()
    wait_for_end(handle)
    handle.start_soon(note("late"))
    (starter,) = backend.start_threads
    assert seen == [("first", True, starter), ("second", True, starter), ("late", True, threading.current_thread())]


def test_a_late_callback_does_not_overtake(add_backend: AddBackend) -> None:
    """(2) While earlier callbacks still run, a new one goes behind them, although the backend has started."""
    handle = handle_of(add_backend())
    running, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(error: BaseException | None) -> None:
        running.set()
        assert may_end.wait(30)
        order.append("earlier")

    handle.start_soon(slow)
    assert running.wait(30) and handle.started
    handle.start_soon(lambda error: order.append("later"))
    assert not order
    may_end.set()
    wait_for_end(handle)
    assert order == ["earlier", "later"]


def test_callbacks_hear_of_a_failure(add_backend: AddBackend, caplog: pytest.LogCaptureFixture) -> None:
    """A failed start is handed to every callback; one that raises is reported and does not silence the others."""
    backend = add_backend()
    backend.error = OSError("no")
    handle = handle_of(backend)
    heard: list[BaseException | None] = []
    backend.may_start.clear()
    handle.start_soon(lambda error: 1 // 0)
    handle.start_soon(heard.append)
    backend.may_start.set()
    wait_for_end(handle)
    (error,) = heard
    assert isinstance(error, BackendUnavailableError) and error.reason == "OSError: no"
    assert "ZeroDivisionError" in caplog.text


def test_a_finalizer_may_ask_while_the_entry_is_locked(add_backend: AddBackend) -> None:
    """The collector may run a finalizer in the middle of the handle's own work, in the same thread."""
    handle = handle_of(add_backend())
    heard: list[BaseException | None] = []

    class Dying:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            handle.start_soon(heard.append)

    Dying()
    with handle._lock:
        gc.collect()
    wait_for_end(handle)
    assert heard == [None]


def test_who_learns_of_a_failed_start_makes_a_new_attempt(add_backend: AddBackend) -> None:
    """Invariant 3: though callbacks of the failed one are still to come, and they come first."""
    backend = add_backend()
    backend.error = OSError("no driver")
    handle, told, go_on = handle_of(backend), list[tuple[int, type[BaseException] | None]](), threading.Event()
    backend.may_start.clear()
    handle.start_soon(lambda error: go_on.wait(30))
    handle.start_soon(lambda error: told.append((1, type(error))))
    threading.Timer(0.5, backend.may_start.set).start()  # when the next line waits for it
    with pytest.raises(BackendUnavailableError):
        handle.ensure_started(30)
    failing = handle.starter
    backend.error = None
    handle.start_soon(lambda error: told.append((2, error)))
    handle.ensure_started(30)
    assert told == [] and failing is not None and failing.is_alive()
    go_on.set()
    wait_for_end(handle)
    assert told == [(1, BackendUnavailableError), (2, None)] and len(backend.start_threads) == 2


async def test_a_stream_made_right_after_a_failed_start_is_well(simulated: SimulatedBackend) -> None:
    """Docs promise a new attempt; the failed one still has callbacks to call when its waiters learn of it."""
    handle, go_on, start = registry.handle(simulated.name), threading.Event(), simulated.start

    def fail() -> None:
        simulated.start = start  # type: ignore[method-assign]
        raise OSError("no driver")

    simulated.start = fail  # type: ignore[method-assign]
    with handle._lock:  # which keeps the attempt from ending before all have joined it
        lost = aiodev.Stream(simulated.name)
        handle.start_soon(lambda error: go_on.wait(30))
        attempt = handle._attempt
    assert attempt is not None and isinstance(await anyio.to_thread.run_sync(attempt.exception, 30), BackendUnavailableError)
    stream = aiodev.Stream(simulated.name)
    done = stream.call(int, "3")
    go_on.set()
    assert await done == 3
    with pytest.raises(BackendUnavailableError):
        await lost.synchronize()


def test_a_callback_of_a_failed_start_may_start_again(add_backend: AddBackend) -> None:
    """And wait for that: nothing waits for it in turn."""
    backend, told = add_backend(), threading.Event()
    backend.error = OSError("no driver")

    def again(error: BaseException | None) -> None:
        backend.error = None
        handle.ensure_started(30)
        told.set()

    handle = handle_of(backend)
    handle.start_soon(again)
    assert told.wait(30) and handle.started
    wait_for_end(handle)
