"""What the reactors of all kinds of loops have in common: tasks that let others run, and tasks that help."""

from __future__ import annotations

import contextvars
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiodev._core.time_slice import shorten_time_slice
from aiodev._core.tuning import BLIND_TURN_NS, LOOKED_NS, MOST_TURNS, REST, TURN_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.spinning import may_help, note_wait
from aiodev._core.waiting.waitset import WaitSet

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aiodev._core.timeline.points import Starting
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._core.waiting.ticket import Tickets

Wait = Generator[Any, Any, None]

#: Awaiting something done: an exhausted iterator, which stays exhausted whoever shares it.
DONE = cast("Generator[Any, Any, Any]", iter(()))
next(DONE, None)


class DoneCallback(Protocol):
    """A function that is called when an operation is done (:mod:`aiodev._core.waiting.callbacks`)."""

    @property
    def context(self) -> contextvars.Context: ...

    @property
    def is_over(self) -> bool: ...

    def call(self) -> None: ...

    def call_in_context(self) -> None: ...

    # As who waits for the operation, and then in line:

    def resume(self) -> None: ...

    def resume_soon(self) -> None: ...

    def __hash__(self) -> int: ...


class Waiter(Protocol):
    """Who stands in line: a suspended task, or a :class:`DoneCallback`."""

    def resume(self) -> None: ...

    def resume_soon(self) -> None: ...

    def __hash__(self) -> int: ...


class Standing(Protocol):
    """Those who may go on, in order."""

    def __len__(self) -> int: ...

    def append(self, waiter: Waiter, /) -> None: ...


class Line(ABC):
    """The turns of a reactor's tasks, alike for every kind of loop.

    Attributes:
        loop: what stands for the loop.
        waits: who waits for which operation.
        line: who may go on, in order.
        draining: the tickets of those who ask for room in a stream.
        tasks: those that nobody else holds, as a loop holds its tasks weakly.
        helping: whether a task helps, between two turns.
        rests: until when no task helps, since it is not seen what others have to do.
        taking_turns: whether a batch of the line is being resumed, or about to be.
        turned: when a task let others run last, by ``time.monotonic_ns``.
    """

    loop: Any
    line: Standing

    def __init__(self) -> None:
        self.waits: WaitSet[Waiter] = WaitSet()
        self.draining: weakref.WeakKeyDictionary[Any, Tickets] = weakref.WeakKeyDictionary()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.helping = self.taking_turns = False
        self.rests = self.turned = 0
        shorten_time_slice()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the loop can run no more."""

    @abstractmethod
    def waiter(self) -> Waiter:
        """What enters the wait set, or the line, for the running task."""

    @abstractmethod
    def suspend(self, waiter: Any) -> Wait:
        """Suspend the task until its turn has come, once ``waiter`` was woken, or stands in line."""

    @abstractmethod
    def stand_ahead(self, waiter: Any) -> None:
        """Stand in line ahead of those who came while this task let others run, and behind whoever has done the same before."""

    @abstractmethod
    def turn(self) -> Wait:
        """Let what is ready run once."""

    @abstractmethod
    def take_turns(self) -> None:
        """Begin to resume those in line, behind a turn in which none of them runs, but timers that are due."""

    @abstractmethod
    def leisure(self) -> tuple[int, int]:
        """For how many ns this loop has nothing to do unless a descriptor becomes readable; and that descriptor, or -1."""

    @abstractmethod
    def has_others(self) -> bool:
        """Whether a turn of the loop would find something to do; where that is not seen, it might."""

    @abstractmethod
    def call_soon(self, callback: DoneCallback) -> None:
        """Call a callback in the next turn of the loop."""

    @abstractmethod
    def call_in_turn(self, callback: DoneCallback) -> None:
        """Call a callback whose turn has come."""

    @abstractmethod
    def call_threadsafe(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` in the loop's thread, from any other; not at all once the loop is closed."""

    @abstractmethod
    def start(self, handle: Starting) -> Generator[Any, Any, BaseException | None]:
        """Suspend the task until a backend has started, or failed to; returns the failure."""

    def goes_on(self) -> bool:
        """Whether a task whose share is over begins another: the period is not over, and nobody else is ready."""
        if (self.taking_turns and self.line) or self.has_others():
            return False
        return budget.begin_share(fairness.clock())

    def pause(self) -> Wait:
        """Let others run for one turn; or until this task's turn comes again, if its time is over or others stand in line."""
        if not self.taking_turns and not budget.late():
            yield from self.turn()
            if not self.taking_turns and budget.begin_share(fairness.clock()):
                return
            waiter = self.waiter()
            self.stand_ahead(waiter)  # who came in that turn, and found the time over, stands in line already
        else:
            waiter = self.waiter()
            self.line.append(waiter)
        if not self.taking_turns:
            self.take_turns()
        yield from self.suspend(waiter)
        self.turned = time.monotonic_ns()

    def help(self, timeline: Timeline, value: int) -> Generator[Any, Any, bool]:
        """Help with what ``value`` waits for, while there is something to do, and nothing else on the loop; whether it is done.

        Of a loop's tasks one helps at a time: the others would wait for several turns of it.
        """
        if timeline.parked or self.helping or not may_help():
            return DONE
        return self._help(timeline, value)

    def _help(self, timeline: Timeline, value: int) -> Generator[Any, Any, bool]:
        turns = MOST_TURNS  # that others may still take until we park
        timeline.parked_at = time.monotonic_ns()
        while not self.helping:
            duration, descriptor = self.leisure()
            if not duration:
                if not turns or descriptor < 0:  # where it is not seen what others have to do, nor is when that is over
                    break
                turns -= 1
            else:
                began, turns = time.monotonic_ns(), MOST_TURNS
                if not timeline.operations.help(timeline.queue, value, duration, descriptor):
                    break
                ended, blind = time.monotonic_ns(), descriptor < 0
                if blind:
                    self.rests = ended + REST * (ended - began)
                if timeline.reached(value):
                    self._note_help(timeline, began, ended, blind)
                    break
                if blind:
                    break
            self.helping = True
            try:
                yield from self.turn()
            finally:
                self.helping = False
            if timeline.reached(value):
                note_wait(timeline)
                break
        return timeline.reached(value)

    def help_at_once(self, timeline: Timeline, value: int) -> bool:
        """Help as above, but where the loop is seen to have nothing to do, and without a turn of it; whether it is done.

        So no other task runs meanwhile.
        """
        if timeline.parked or self.helping or not may_help():
            return False
        duration, descriptor = self.leisure()
        if not duration or descriptor < 0:
            return False
        timeline.parked_at = began = time.monotonic_ns()
        timeline.operations.help(timeline.queue, value, duration, descriptor)
        if not timeline.reached(value):
            return False
        self._note_help(timeline, began, time.monotonic_ns(), blind=False)
        return True

    def _note_help(self, timeline: Timeline, began: int, ended: int, blind: bool) -> None:
        """Note that a wait was over within help."""
        note_wait(timeline)
        if not blind and ended - began > LOOKED_NS and began - self.turned < TURN_NS:
            budget.renew(fairness.clock())  # a turn would have found nothing to do

    def leisure_unseen(self) -> tuple[int, int]:
        """As ``leisure``, where the loop's other work is not seen: each turn of other tasks would wait for who helps."""
        return (0 if self.line or time.monotonic_ns() < self.rests else BLIND_TURN_NS), -1
