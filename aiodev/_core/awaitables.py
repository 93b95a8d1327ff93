"""Streams that wait for the host: a gate that opens when a future, a task or a coroutine is done."""

from __future__ import annotations

import concurrent.futures
import contextvars
import sys
import weakref
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from aiodev._core.errors import DependencyError
from aiodev._core.gate import Gate
from aiodev._core.loops import running_loop
from aiodev._core.outcome import Outcome

if TYPE_CHECKING:
    import asyncio


class Bridge:
    """Opens a gate when something of the host is done."""

    def __init__(self, gate: Gate, outcome: Outcome[Any]) -> None:
        self._gate = gate
        self._outcome = outcome

    def follow(self, awaitable: Any) -> None:
        """Open the gate when ``awaitable`` is done."""
        import asyncio  # which `import aiodev` alone does not need

        if isinstance(awaitable, concurrent.futures.Future):
            awaitable.add_done_callback(self._settle)
        elif asyncio.isfuture(awaitable):
            loop = awaitable.get_loop()
            if loop is running_loop():
                awaitable.add_done_callback(self._settle)
            else:
                loop.call_soon_threadsafe(awaitable.add_done_callback, self._settle)
        elif "trio" in sys.modules and running_loop() is None:
            run_with = contextvars.copy_context()  # a system task has trio's own by default
            sys.modules["trio"].lowlevel.spawn_system_task(self._run, awaitable, context=run_with)
            return
        else:
            task = asyncio.get_running_loop().create_task(_result_of(awaitable))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
            task.add_done_callback(self._settle)
            return
        weakref.finalize(awaitable, self._gate.open, _unfinished("was dropped before it was done")).atexit = False

    def _settle(self, future: Any) -> None:
        if future.cancelled():
            self._gate.open(_unfinished("was cancelled"))
        elif future.exception() is not None:
            self._gate.open(future.exception())
        else:
            self._outcome.result = future.result()
            self._gate.open()

    async def _run(self, awaitable: Awaitable[Any]) -> None:
        finished = False
        try:
            self._outcome.result = await awaitable
            finished = True
        except Exception as error:  # whatever the awaitable raises is the stream's failure
            self._gate.open(error)
        finally:
            self._gate.open(None if finished else _unfinished("was cancelled"))


_tasks: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly


def _unfinished(what: str) -> DependencyError:
    import asyncio

    error = DependencyError("wait_future")
    error.__cause__ = asyncio.CancelledError(f"the awaitable given to wait_future {what}")
    return error


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
