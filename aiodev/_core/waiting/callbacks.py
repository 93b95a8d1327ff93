"""Done callbacks: functions that are called when an operation is done, as those of an asyncio future are."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core.streams.host_calls import host_threads
from aiodev._core.waiting.reactor import current_reactor
from aiodev._core.waiting.watcher import watcher

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._core.waiting.line import Line

logger = logging.getLogger("aiodev")

#: Held while a completion gets the first of its callbacks.
adding = threading.RLock()


class CalledBack(Protocol):
    """What a function is called back for: an operation of a timeline, and who has its callbacks."""

    _callbacks: list[DoneCallback]

    @property
    def timeline(self) -> Timeline: ...

    @property
    def value(self) -> int: ...


class DoneCallback:
    """A function to call when a completion is done.

    In a loop it waits as a task does: in the loop's wait set, and then in its line, so that many functions hold the loop for no
    longer than many tasks. It is its own waiter, with the methods that the reactors call of theirs.
    """

    __slots__ = ("_completion", "_is_next", "_over", "_reactor", "context", "function")

    def __init__(
        self, completion: CalledBack, function: Callable[[Any], object], context: contextvars.Context
    ) -> None:
        self._completion = completion
        self.function = function
        self.context = context
        self._is_next = False  # the loop was told to call it in its next turn
        self._over = False  # it was called, or is not to be
        try:
            self._reactor: Line | None = current_reactor()
        except RuntimeError:  # no loop runs here
            self._reactor = None

    def arrange(self) -> None:
        """Have the function called once the operation is done; soon if it is done already."""
        timeline, value = self._completion.timeline, self._completion.value
        reactor = self._reactor
        if reactor is None:
            refused = self._refused
            watcher.watch(timeline, value, lambda: host_threads.submit(self.call_in_context, refused), refused)
        elif timeline.deferred:
            timeline.handle.start_soon(lambda error: reactor.call_threadsafe(self.arrange))
        elif timeline.reached(value) or not reactor.waits.add(timeline, value, self):
            self._call_soon(reactor)

    def _call_soon(self, reactor: Line) -> None:
        """Have the loop call it in its next turn, behind those that came before and may still be in the wait set."""
        waiting = []
        for callback in reversed(self._completion._callbacks):
            if callback._reactor is reactor and not callback._over:
                if callback._is_next:
                    break
                waiting.append(callback)
        for callback in reversed(waiting):
            callback._is_next = True
            reactor.call_soon(callback)

    def cancel(self) -> None:
        """Do not call the function."""
        self._end()
        reactor = self._reactor
        if reactor is not None:
            with contextlib.suppress(RuntimeError):  # no loop runs here: it goes when the operation is done
                if current_reactor() is reactor:
                    self._leave(reactor)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self._over

    def resume(self) -> None:
        """Called by the reactor: the callback's turn has come."""
        assert self._reactor is not None
        self._reactor.call_in_turn(self)

    def resume_soon(self) -> None:
        """As ``resume``, in a turn of its own."""
        assert self._reactor is not None
        self._reactor.call_soon(self)

    def call(self) -> None:
        """Call the function."""
        if not self._over:
            self._end()
            if self._is_next and self._reactor is not None:
                self._leave(self._reactor)
            self.function(self._completion)

    def call_in_context(self) -> None:
        """Call the function in its context, and log what it raises: in a thread nobody else does either."""
        try:
            self.context.run(self.call)
        except Exception:
            logger.exception("a callback of %r failed", self._completion)

    def _refused(self, error: BaseException) -> None:
        logger.error("a callback of %r was not called", self._completion, exc_info=error)
        self._end()

    def _leave(self, reactor: Line) -> None:
        """Wait no longer, if it still does: the loop may be over before it is told that the operation is done."""
        reactor.waits.discard(self._completion.timeline, self._completion.value, self)

    def _end(self) -> None:
        self._over = True
        with contextlib.suppress(ValueError):
            self._completion._callbacks.remove(self)


def forget_adding_after_fork() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global adding
    adding = threading.RLock()
