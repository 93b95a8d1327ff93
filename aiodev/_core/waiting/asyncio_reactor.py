"""Parking and turns of the tasks of an asyncio loop, uvloop's included."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast, final

from aiodev._core.tuning import TURN_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.line import DoneCallback, Line, Wait, Waiter
from aiodev._core.waiting.loop_view import LoopView

if TYPE_CHECKING:
    import asyncio

    from aiodev._core.timeline.points import Starting


@final
class AsyncioWaiter:
    """A task that is suspended until the reactor resumes it, in the reactor's own turn.

    To asyncio it is a future, by the protocol that ``asyncio.isfuture`` documents. A future of asyncio's own has its tasks
    resumed in the next turn of the loop, whatever time that has left.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_loop", "_message", "_state")

    _callback: Callable[[AsyncioWaiter], object]
    _context: contextvars.Context | None
    _message: object  #: of who cancelled it

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._state = "pending"
        self._asyncio_future_blocking = True  # as a future is while it is yielded, which this is once

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its task, which asks."""
        return self._loop

    def add_done_callback(
        self, fn: Callable[[AsyncioWaiter], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Note how its task is resumed."""
        self._callback, self._context = fn, context

    def resume(self) -> None:
        """Run the task, up to where it is suspended again; nothing, if it was cancelled."""
        if self._state == "pending":
            self._state = "resumed"
            if self._context is None:
                self._callback(self)
            else:
                self._context.run(self._callback, self)

    def resume_soon(self) -> None:
        """Have the loop run the task in its next turn."""
        if self._state == "pending":
            self._state = "resumed"
            self._loop.call_soon(self._callback, self, context=self._context)

    def cancel(self, msg: object = None) -> bool:
        """Have ``CancelledError`` raised where the task waits; False if it has been resumed."""
        if self._state != "pending":
            return False
        self._state, self._message = "cancelled", msg
        self._loop.call_soon(self._callback, self, context=self._context)
        return True

    def result(self) -> None:
        """What the task goes on with."""
        if self._state == "cancelled":
            import asyncio

            raise asyncio.CancelledError(*(() if self._message is None else (self._message,)))

    def done(self) -> bool:
        """Whether the task has been resumed, or is cancelled."""
        return self._state != "pending"

    def cancelled(self) -> bool:
        """Whether it is cancelled."""
        return self._state == "cancelled"

    def __repr__(self) -> str:
        return f"<aiodev waiter {self._state}>"


class AsyncioReactor(Line):
    """Parks the tasks of one asyncio (or uvloop) loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.line: deque[Waiter] = deque()
        self._ahead = 0  # of those in line, who have stood ahead since the last batch began
        self._callbacks = 0  # of ours that are ready, and have nothing to do where nobody is in line
        self._view = LoopView.of(loop)
        loop.add_reader(self.waits.descriptor.read_end, self._wake)

    @property
    def closed(self) -> bool:
        return bool(self.loop.is_closed())

    def _wake(self) -> None:
        try:
            self.waits.collect_into(self.line)
            if self.line and not self.taking_turns:
                self._resume_batch()
        except BaseException:
            self._begin_anew()
            raise

    def take_turns(self) -> None:
        """Begin to resume those in line, behind two turns in which none of them runs.

        In the first a timer that is due sets a future's result, and in the second the task that sleeps on that runs.
        """
        self.taking_turns = True
        self._callbacks = 1
        self.loop.call_soon(self._first_turn)

    def _first_turn(self) -> None:
        self.loop.call_soon(self._second_turn)

    def _second_turn(self) -> None:
        self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        try:
            self._resume_batch()
        except BaseException:
            self._begin_anew()
            raise

    def _begin_anew(self) -> None:
        """Have those in line go on when the loop runs again, after what ends it, or arrives at any moment, as Ctrl-C does."""
        self._callbacks = 0
        self.taking_turns = False
        self.waits.descriptor.wake()

    def _resume_batch(self) -> None:
        """Resume those who stand in line now, one after the other, until the time is over."""
        self._callbacks = self._ahead = 0
        self.taking_turns = True
        line, debug = self.line, self.loop.get_debug()
        budget.renew(fairness.clock())
        for _ in range(len(line)):
            waiter = line[0]
            try:
                line.popleft()  # who runs sees who else stands in line
                if debug:  # asyncio then names who has held the loop for long
                    waiter.resume_soon()
                    break
                waiter.resume()
            except BaseException:
                if not line or line[0] is not waiter:
                    line.appendleft(waiter)  # it may not have been resumed; else this is nothing to it
                raise
            if line and not budget.begin_share(fairness.clock()):
                break
        if line:
            budget.end()
            self.take_turns()
        else:
            self.taking_turns = False

    def call_soon(self, callback: DoneCallback) -> None:
        self.loop.call_soon(callback.call, context=callback.context)

    def call_in_turn(self, callback: DoneCallback) -> None:
        if callback.is_over:
            return
        try:
            callback.context.run(callback.call)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # as asyncio does with a callback
            self.loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def call_threadsafe(self, fn: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(fn)

    def waiter(self) -> AsyncioWaiter:
        return AsyncioWaiter(self.loop)

    def suspend(self, waiter: AsyncioWaiter) -> Wait:
        return cast("Wait", iter((waiter,)))

    def start(self, handle: Starting) -> Generator[Any, Any, BaseException | None]:
        future = self.loop.create_future()

        def resume(error: BaseException | None) -> None:
            if not future.done():
                future.set_result(error)

        handle.start_soon(lambda error: self.call_threadsafe(lambda: resume(error)))
        error: BaseException | None = yield from future
        return error

    def stand_ahead(self, waiter: AsyncioWaiter) -> None:
        self.line.insert(self._ahead, waiter)
        self._ahead += 1

    def turn(self) -> Wait:
        yield
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        view = self._view
        if view is None:
            return self.leisure_unseen()
        if self.line or view.is_ready(self._callbacks):
            return 0, view.descriptor
        return min(TURN_NS, view.time_to_timer()), view.descriptor

    def has_others(self) -> bool:
        view = self._view
        return view is None or view.has_work(self._callbacks)
