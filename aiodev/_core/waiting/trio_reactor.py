"""Parking and turns of the tasks of a trio run, whose scheduler runs all that are ready in one turn, in any order."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from aiodev._core.tuning import FIRST_BATCH, LARGEST_BATCH, PERIOD_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.line import DoneCallback, Line, Wait, Waiter

if TYPE_CHECKING:
    from aiodev._core.timeline.points import Starting

_Token = TypeVar("_Token")


class ReadyQueue(Generic[_Token]):
    """The line of a run's tasks that may go on, and how many of them do so in its next turn.

    A batch is as large as the last one, as far as that got, and twice as large when it took less than half of the time. So ten
    thousand tasks that do little each are resumed in a few turns, and such as compute for a millisecond one a turn.
    """

    def __init__(self) -> None:
        self._line: deque[_Token] = deque()
        self._returned: list[_Token] = []  # of the last batch, in order
        self._ahead: list[_Token] = []  # who stands ahead of the line, in order
        self._batch = FIRST_BATCH
        self._taken = 0  # how many the last batch had
        self._nobody_yet = True  # of the last batch has gone on
        self._began = self._last = 0  # when the first and the last of it did

    def __len__(self) -> int:
        return len(self._line) + len(self._returned) + len(self._ahead)

    def append(self, token: _Token, /) -> None:
        """Stand in line."""
        self._line.append(token)

    def stand_ahead(self, token: _Token) -> None:
        """Stand ahead of the line, behind others that did so since the last batch."""
        self._ahead.append(token)

    def extend(self, tokens: Iterable[_Token], /) -> None:
        """All of them stand in line."""
        self._line.extend(tokens)

    def give_back(self, token: _Token) -> None:
        """Stand at the head of the line, behind others of the same batch that came back before."""
        self._returned.append(token)

    def take(self) -> list[_Token]:
        """The next batch, each of which asks ``admits`` when it is resumed."""
        line = self._line
        if self._ahead:
            line.extendleft(reversed(self._ahead))
            self._ahead.clear()
        if self._returned:
            self._batch = max(1, self._taken - len(self._returned))
            line.extendleft(reversed(self._returned))
            self._returned.clear()
        elif self._taken == self._batch and self._last - self._began < PERIOD_NS // 2:
            self._batch = min(2 * self._batch, LARGEST_BATCH)
        self._nobody_yet = True
        if len(line) <= self._batch:
            taken = list(line)
            line.clear()
        else:
            taken = [line.popleft() for _ in range(self._batch)]
        self._taken = len(taken)
        return taken

    def admits(self) -> bool:
        """Whether a task that was just resumed goes on; if not, it gives itself back."""
        now = fairness.clock()
        if self._nobody_yet:
            self._nobody_yet = False
            self._began = self._last = now
            budget.renew(now)
            return True
        if not budget.begin_share(now):
            return False
        self._last = now
        return True


@final
class TrioWaiter:
    """A suspended trio task, which may be rescheduled once."""

    __slots__ = ("_lowlevel", "_task", "_woken")

    def __init__(self, lowlevel: Any) -> None:
        self._lowlevel = lowlevel
        self._task = lowlevel.current_task()
        self._woken = False

    def resume(self) -> None:
        """Have trio run the task in its next turn."""
        if not self._woken:
            self._woken = True
            self._lowlevel.reschedule(self._task)

    resume_soon = resume

    def __await__(self) -> Wait:
        """Suspend the task until it is resumed."""
        suspension: Wait = self._lowlevel.wait_task_rescheduled(self._abort).__await__()
        return suspension

    def _abort(self, raise_cancel: object) -> Any:
        self._woken = True
        return self._lowlevel.Abort.SUCCEEDED


@final
class TrioReactor(Line):
    """Parks the tasks of one trio run; one system task watches the descriptor, another has tasks take turns."""

    closed = False

    def __init__(self, trio: Any) -> None:
        super().__init__()
        self._lowlevel = trio.lowlevel
        self._finished: type[BaseException] = trio.RunFinishedError
        self.loop = trio.lowlevel.current_trio_token()
        self.line: ReadyQueue[Waiter] = ReadyQueue()
        self._out = False  # a batch was released, by another than the task that has others take turns
        self._idle: TrioWaiter | None = None  # the task that has others take turns
        trio.lowlevel.spawn_system_task(self._run, name="aiodev reactor")
        trio.lowlevel.spawn_system_task(self._take_turns, name="aiodev turns")

    async def _run(self) -> None:
        try:
            while True:
                await self._lowlevel.wait_readable(self.waits.descriptor.read_end)
                self.waits.collect_into(self.line)
                if self.line and not self.taking_turns:
                    self._release()
                    self.take_turns()
        finally:
            self.closed = True

    def take_turns(self) -> None:
        """Begin to resume those in line in the next turn, in which timers that are due run, too."""
        self.taking_turns = True
        if self._idle is not None:
            self._idle.resume()
            self._idle = None

    def _release(self) -> None:
        self._out = True
        for waiter in self.line.take():
            waiter.resume()

    async def _take_turns(self) -> None:
        checkpoint = self._lowlevel.checkpoint
        while True:
            if not self.taking_turns:
                self._idle = waiter = self.waiter()
                await waiter
            while self._out or self.line:
                if self._out:  # in this turn, before us or after us
                    self._out = False
                    await checkpoint()
                else:
                    budget.end()  # in this turn others may have worked, for which timers are late
                    await checkpoint()
                    self._release()
                    await checkpoint()
            self.taking_turns = False

    def _give_back(self, waiter: Waiter) -> None:
        """Have ``waiter``, which was resumed and not admitted, resumed in a later turn."""
        self.line.give_back(waiter)
        if not self.taking_turns:
            self.take_turns()

    def call_soon(self, callback: DoneCallback) -> None:
        self.loop.run_sync_soon(callback.call_in_context)

    def call_in_turn(self, callback: DoneCallback) -> None:
        """Call a callback: this turn is as good as the next, if it has had less than its time."""
        if callback.is_over or self.line.admits():
            callback.call_in_context()
        else:
            self._give_back(callback)

    def call_threadsafe(self, fn: Callable[[], object]) -> None:
        with contextlib.suppress(self._finished):
            self.loop.run_sync_soon(fn)

    def waiter(self) -> TrioWaiter:
        return TrioWaiter(self._lowlevel)

    def suspend(self, waiter: TrioWaiter) -> Wait:
        """Until it is resumed in a batch that has not had its time yet."""
        yield from waiter.__await__()
        while not self.line.admits():
            waiter = self.waiter()
            self._give_back(waiter)
            yield from waiter.__await__()

    def start(self, handle: Starting) -> Generator[Any, Any, BaseException | None]:
        waiter = self.waiter()
        errors: list[BaseException | None] = []

        def started(error: BaseException | None) -> None:
            errors.append(error)
            self.call_threadsafe(waiter.resume)

        handle.start_soon(started)
        yield from waiter.__await__()
        return errors[0]

    def stand_ahead(self, waiter: TrioWaiter) -> None:
        self.line.stand_ahead(waiter)

    def turn(self) -> Wait:
        yield from self._lowlevel.checkpoint().__await__()
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        """Trio's loop cannot be looked into."""
        return self.leisure_unseen()

    def has_others(self) -> bool:
        return True
