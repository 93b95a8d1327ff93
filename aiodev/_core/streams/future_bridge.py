"""Future bridge: a stream waits for the host by a gate that opens when a future, a task or a coroutine is done."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import sys
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiodev._core.errors import DependencyError
from aiodev._core.streams.outcome import Outcome, to_await
from aiodev._core.timeline.gate import Gate
from aiodev._core.waiting.loops import running_loop, trio_token
from aiodev._core.waiting.reactor import current_reactor

if TYPE_CHECKING:
    import asyncio


class Bridge:
    """Opens a gate when a future, a task or a coroutine is done."""

    def __init__(self, gate: Gate, outcome: Outcome[Any]) -> None:
        self._gate = gate
        self._outcome = outcome
        self._scope: Any = None  # of a trio task

    def follow(self, awaitable: Any) -> None:
        """Open the gate when ``awaitable`` is done."""
        import asyncio  # which `import aiodev` alone does not need

        if isinstance(awaitable, concurrent.futures.Future):
            awaitable.add_done_callback(self._open_gate)
        elif asyncio.isfuture(awaitable):
            loop = awaitable.get_loop()
            if loop is running_loop():
                awaitable.add_done_callback(self._open_gate)
            else:
                try:
                    loop.call_soon_threadsafe(awaitable.add_done_callback, self._open_gate)
                except RuntimeError as error:
                    raise RuntimeError(f"wait_future: the event loop of the future is closed: {awaitable!r}") from error
        elif running_loop() is None and (token := trio_token()) is not None:
            run_with = contextvars.copy_context()  # a system task has trio's own by default
            trio = sys.modules["trio"]
            self._scope = trio.CancelScope()
            self._gate.when_withdrawn = partial(_cancel_in_trio, trio, token, self._scope)
            trio.lowlevel.spawn_system_task(self._run, awaitable, context=run_with)
            return
        else:
            awaitable = self._start(awaitable)
        weakref.finalize(awaitable, self._gate.open, _unfinished("was dropped before it was done")).atexit = False

    def _start(self, awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
        """Have the running loop run a coroutine, in a task that nobody else knows of and that goes with the loop."""
        import asyncio

        try:
            running = asyncio.get_running_loop()
        except RuntimeError as error:
            raise RuntimeError(f"wait_future: no running event loop, which a coroutine needs: {awaitable!r}") from error
        tasks = current_reactor().tasks
        task = running.create_task(_result_of(awaitable))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._open_gate)
        self._gate.when_withdrawn = partial(_cancel_task, weakref.ref(task))  # weak, for the task's finalizer holds the gate
        return task

    def _open_gate(self, future: Any) -> None:
        if future.cancelled():
            self._gate.open(_unfinished("was cancelled"))
        elif future.exception() is not None:
            self._gate.open(to_await(future.exception(), "wait_future"))
        else:
            self._outcome.result = future.result()
            self._gate.open()

    async def _run(self, awaitable: Awaitable[Any]) -> None:
        finished = False
        try:
            with self._scope:
                self._outcome.result = await awaitable
                finished = True
        except Exception as error:  # whatever the awaitable raises is the stream's failure
            self._gate.open(to_await(error, "wait_future"))
        finally:
            self._gate.open(None if finished else _unfinished("was cancelled"))


def _cancel_task(reference: Callable[[], asyncio.Task[Any] | None]) -> None:
    task = reference()
    if task is not None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: it ends no more
            task.get_loop().call_soon_threadsafe(task.cancel)


def _cancel_in_trio(trio: Any, token: Any, scope: Any) -> None:
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(scope.cancel)


def _unfinished(what: str) -> DependencyError:
    import asyncio

    error = DependencyError("wait_future")
    error.__cause__ = asyncio.CancelledError(f"the awaitable given to wait_future {what}")
    return error


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
