"""Waiting: a ladder from one load to a parked task. Threads without a loop have one of their own, in ``blocking.py``.

1.  Load the counter. Done: no round trip through the loop (but see :mod:`aiodev._core.waiting.fairness`).
2.  Spin in native code, without the GIL, for some tens of µs, where that pays (:mod:`aiodev._core.waiting.spinning`).
3.  Help. Where this thread can do a part of the work itself (:meth:`Executor.help`), it does, for as long as the loop has
    nothing else to do: what becomes ready meanwhile, and timers that are due, are looked at between two pieces of the work.
4.  Park. The task is suspended; native code writes the loop's descriptor; every task whose operation is done then stands in
    the loop's line (:class:`ReadyQueue`), from which as many are resumed a turn as keep the turn short. The order is: enter the
    wait set, arm, and only then suspend, so no wake-up can be missed.

A reactor belongs to one loop and is used only in that loop's thread. The loop holds it, by what it calls when the descriptor
is readable, and nobody else does: it goes, and leaves its descriptor to the next one, when the loop is closed or collected.
What it waited for is not lost, only its wake-ups are.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiodev._core.backend.interface import COMPLETED, FAULTS
from aiodev._core.tuning import BLIND_TURN_NS, LOOKED_NS, MOST_TURNS, REST, TURN_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.fairness import ReadyQueue, budget
from aiodev._core.waiting.loop_view import LoopView
from aiodev._core.waiting.loops import running_loop
from aiodev._core.waiting.spinning import may_help, note_wait, spin
from aiodev._core.waiting.waitset import WaitSet, forget_after_fork

if TYPE_CHECKING:
    import asyncio

    import anyio

    from aiodev._core.backend.handle import BackendHandle
    from aiodev._core.timeline.points import Reachable
    from aiodev._core.timeline.timeline import Timeline

Wait = Generator[Any, Any, None]
Point = tuple["Timeline", int]

#: Awaiting something done: an exhausted iterator, which stays exhausted whoever shares it.
DONE = cast("Generator[Any, Any, Any]", iter(()))
next(DONE, None)


class DoneCallback(Protocol):
    """A function that is called when an operation is done (:mod:`aiodev._core.waiting.callbacks`)."""

    @property
    def context(self) -> contextvars.Context: ...

    def call(self) -> None: ...

    def call_in_turn(self) -> None: ...

    def call_in_context(self) -> None: ...

    # As who waits for the operation: a future of asyncio, or a task of trio.

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...

    def wake(self) -> None: ...

    def __hash__(self) -> int: ...


class _Line:
    """The turns of a reactor's tasks, alike for every kind of loop."""

    draining: weakref.WeakKeyDictionary[Any, anyio.Lock]  #: held by who waits for room in a stream; others stand behind
    ready: ReadyQueue[Any]
    helping: bool  #: whether a task helps, between two turns
    rests: int  #: until when no task helps, since it is not seen what others have to do
    taking_turns: bool  #: a batch is out, or about to be
    turned: int  #: when a task let others run last, by time.monotonic_ns

    if TYPE_CHECKING:

        def waiter(self) -> Any: ...

        def suspend(self, waiter: Any) -> Wait: ...

        def turn(self) -> Wait: ...

        def take_turns(self) -> None: ...

        def leisure(self) -> tuple[int, int]: ...

        def has_others(self) -> bool: ...

    def goes_on(self) -> bool:
        """Whether a task whose share is over begins another: the period is not over, and nobody else is ready."""
        if (self.taking_turns and self.ready) or self.has_others():
            return False
        return budget.begin_share(fairness.clock())

    def pause(self) -> Wait:
        """Let others run for one turn; or until this task's turn comes again, if its time is over or others stand in line."""
        if not self.taking_turns and not budget.late():
            yield from self.turn()
            if not self.taking_turns and budget.begin_share(fairness.clock()):
                return
        yield from self._stand(self._stand_at_the_end)
        if not self.ready.admits():
            yield from self.come_back()

    def help(self, timeline: Timeline, value: int) -> Generator[Any, Any, bool]:
        """Help with what ``value`` waits for, while there is something to do, and nothing else on the loop; whether it is done.

        Of a loop's tasks one helps at a time: the others would wait for several turns of it.
        """
        if timeline.parked or not may_help():
            return False
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
                    note_wait(timeline)
                    if not blind and ended - began > LOOKED_NS and began - self.turned < TURN_NS:
                        budget.renew(fairness.clock())  # a turn would have found nothing to do
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

    def come_back(self) -> Wait:
        """Resume, in a later turn, a task that was woken and not admitted."""
        while True:
            yield from self._stand(self.stand_again)
            if self.ready.admits():
                return

    def _stand_at_the_end(self, waiter: Any) -> None:
        self.ready.add(waiter)
        if not self.taking_turns:
            self.take_turns()

    def stand_again(self, waiter: Any) -> None:
        """Have ``waiter``, which was resumed and not admitted, resumed in a later turn."""
        self.ready.give_back(waiter)
        if not self.taking_turns:
            self.take_turns()

    def _stand(self, enter: Callable[[Any], None]) -> Wait:
        waiter = self.waiter()
        enter(waiter)
        yield from self.suspend(waiter)
        self.turned = time.monotonic_ns()


class AsyncioReactor(_Line):
    """Parks the tasks of one asyncio (or uvloop) loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waits: WaitSet[asyncio.Future[None] | DoneCallback] = WaitSet()
        self.ready: ReadyQueue[asyncio.Future[None] | DoneCallback] = ReadyQueue()
        self.draining = weakref.WeakKeyDictionary()
        self.taking_turns = False
        self.helping = False
        self.turned = 0
        self.rests = 0
        self._view = LoopView.of(loop)
        loop.add_reader(self.waits.descriptor.read_end, self._wake)

    @property
    def closed(self) -> bool:
        """Whether the loop can run no more."""
        return self.loop.is_closed()

    def _wake(self) -> None:
        woken = self.waits.collect()
        self.ready.extend(woken)
        if woken and not self.taking_turns:  # else a batch may have run in this very turn
            self._release()

    def take_turns(self) -> None:
        """Begin to resume the waiters in line, after two turns in which none of them runs.

        In the first a timer that is due sets a future's result, and in the second the task that sleeps on that runs.
        """
        self.taking_turns = True
        self.loop.call_soon(self._turn_between)

    def _turn_between(self) -> None:
        self.loop.call_soon(self._release)

    def _release(self) -> None:
        self.taking_turns = True
        for future in self.ready.take():
            if not future.done():  # its task was cancelled
                future.set_result(None)  # which resumes it in the next turn
        self.loop.call_soon(self._released)

    def _released(self) -> None:
        """End the batch, which has run in this turn."""
        if self.ready:
            budget.end()
            self.take_turns()
        else:
            self.taking_turns = False

    def call_soon(self, callback: DoneCallback, in_turn: bool = False) -> None:
        """Call a callback in the next turn of the loop; with ``in_turn``, when its turn in the line comes."""
        self.loop.call_soon(callback.call_in_turn if in_turn else callback.call, context=callback.context)

    def call_threadsafe(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` in the loop's thread, from any other."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(fn)

    def waiter(self) -> asyncio.Future[None]:
        """What enters the wait set for the running task."""
        return self.loop.create_future()

    def suspend(self, waiter: asyncio.Future[None]) -> Wait:
        """Suspend the task until ``waiter`` is woken."""
        return waiter.__await__()

    def start(self, handle: BackendHandle) -> Generator[Any, Any, BaseException | None]:
        """Suspend the task until a backend has started, or failed to; returns the failure."""
        future = self.loop.create_future()

        def resume(error: BaseException | None) -> None:
            if not future.done():
                future.set_result(error)

        handle.start_soon(lambda error: self.call_threadsafe(lambda: resume(error)))
        error: BaseException | None = yield from future
        return error

    def turn(self) -> Wait:
        """Let what is ready run once."""
        yield
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        """For how many ns this loop has nothing to do unless a descriptor becomes readable; and that descriptor, or -1.

        """
        view = self._view
        if view is None:
            return (0 if self.ready else _blind_turn(self.rests)), -1
        if self.ready or view.is_ready(self.taking_turns):  # `_released` has nothing to do where nobody is in line
            return 0, view.descriptor
        return min(TURN_NS, view.time_to_timer()), view.descriptor

    def has_others(self) -> bool:
        """Whether a turn of the loop would find something to do; where that is not seen, it might."""
        view = self._view
        return view is None or view.has_work(self.taking_turns)  # `_released` has nothing to do where nobody is in line


def _blind_turn(rests: int) -> int:
    """For how many ns a task helps where the loop's other work is not seen: each turn of other tasks would wait for that."""
    return 0 if time.monotonic_ns() < rests else BLIND_TURN_NS


class _TrioWaiter:
    """A suspended trio task, which may be rescheduled once."""

    def __init__(self, lowlevel: Any) -> None:
        self._lowlevel = lowlevel
        self._task = lowlevel.current_task()
        self._woken = False

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._lowlevel.reschedule(self._task)

    def abort(self, raise_cancel: object) -> Any:
        self._woken = True
        return self._lowlevel.Abort.SUCCEEDED


class TrioReactor(_Line):
    """Parks the tasks of one trio run; one system task watches the descriptor, another has tasks take turns."""

    def __init__(self, trio: Any) -> None:
        self._lowlevel = trio.lowlevel
        self._finished: type[BaseException] = trio.RunFinishedError
        self.loop = trio.lowlevel.current_trio_token()
        self.waits: WaitSet[_TrioWaiter | DoneCallback] = WaitSet()
        self.ready: ReadyQueue[_TrioWaiter | DoneCallback] = ReadyQueue()
        self.draining = weakref.WeakKeyDictionary()
        self.closed = self.helping = self.taking_turns = False
        self.turned = self.rests = 0
        self._out = False  # a batch was released, by another than the task that has others take turns
        self._idle: _TrioWaiter | None = None  # the task that has others take turns
        trio.lowlevel.spawn_system_task(self._run, name="aiodev reactor")
        trio.lowlevel.spawn_system_task(self._take_turns, name="aiodev turns")

    async def _run(self) -> None:
        try:
            while True:
                await self._lowlevel.wait_readable(self.waits.descriptor.read_end)
                self.ready.extend(self.waits.collect())
                if self.ready and not self.taking_turns:
                    self._release()
                    self.take_turns()
        finally:
            self.closed = True

    def take_turns(self) -> None:
        """Begin to resume the waiters in line in the next turn, in which timers that are due run, too."""
        self.taking_turns = True
        if self._idle is not None:
            self._idle.wake()
            self._idle = None

    def _release(self) -> None:
        self._out = True
        for waiter in self.ready.take():
            waiter.wake()

    async def _take_turns(self) -> None:
        checkpoint = self._lowlevel.checkpoint
        while True:
            if not self.taking_turns:
                self._idle = waiter = self.waiter()
                await self._lowlevel.wait_task_rescheduled(waiter.abort)
            while self._out or self.ready:
                if self._out:  # in this turn, before us or after us
                    self._out = False
                    await checkpoint()
                else:
                    budget.end()  # in this turn others may have worked, for which timers are late
                    await checkpoint()
                    self._release()
                    await checkpoint()
            self.taking_turns = False

    def call_soon(self, callback: DoneCallback) -> None:
        """Call a callback in the next turn of the loop."""
        self.loop.run_sync_soon(callback.call_in_context)

    def call_threadsafe(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` in trio's thread, from any other."""
        with contextlib.suppress(self._finished):
            self.loop.run_sync_soon(fn)

    def waiter(self) -> _TrioWaiter:
        """What enters the wait set for the running task."""
        return _TrioWaiter(self._lowlevel)

    def suspend(self, waiter: _TrioWaiter) -> Wait:
        """Suspend the task until ``waiter`` is woken."""
        suspension: Wait = self._lowlevel.wait_task_rescheduled(waiter.abort).__await__()
        return suspension

    def start(self, handle: BackendHandle) -> Generator[Any, Any, BaseException | None]:
        """Suspend the task until a backend has started, or failed to; returns the failure."""
        waiter = _TrioWaiter(self._lowlevel)
        errors: list[BaseException | None] = []

        def started(error: BaseException | None) -> None:
            errors.append(error)
            self.call_threadsafe(waiter.wake)

        handle.start_soon(started)
        yield from self._lowlevel.wait_task_rescheduled(waiter.abort).__await__()
        return errors[0]

    def turn(self) -> Wait:
        """Let what is ready run once."""
        yield from self._lowlevel.checkpoint().__await__()
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        """The time for which a task may help blindly, and -1: trio's loop cannot be looked into."""
        return (0 if self.ready else _blind_turn(self.rests)), -1

    def has_others(self) -> bool:
        """Whether a turn of the loop would find something to do: it might."""
        return True


Reactor = Any  # AsyncioReactor or TrioReactor, which are the same to `wait`


def _no_reactor() -> None:
    """What a weak reference to a collected reactor gives."""


class _Thread(threading.local):
    """The reactors of this thread's loops; the one used last is at hand."""

    def __init__(self) -> None:
        self.last: Callable[[], Reactor | None] = _no_reactor
        self.all: weakref.WeakSet[Reactor] = weakref.WeakSet()


_thread = _Thread()


def current_reactor() -> Reactor:
    """The reactor of the running loop, made on first need."""
    last = _thread.last()
    loop: Any = running_loop()
    if last is not None and last.loop is loop and loop is not None:
        return last
    trio = None
    if loop is None:
        trio = sys.modules.get("trio")
        if trio is None:
            raise RuntimeError("no running event loop; use the method whose name ends in _blocking")
        loop = trio.lowlevel.current_trio_token()
    for reactor in _thread.all:
        if reactor.loop is loop and not reactor.closed:
            break
    else:
        for closed in [reactor for reactor in _thread.all if reactor.closed]:  # whoever still holds them
            _thread.all.remove(closed)
            closed.waits.recycle()
        reactor = AsyncioReactor(loop) if trio is None else TrioReactor(trio)
        _thread.all.add(reactor)
    _thread.last = weakref.ref(reactor)
    return reactor


def let_others_run() -> Wait:
    """Let other tasks run, if any are ready or the time is over.

    A coroutine that a fork took along into the child goes on there with no loop, and with no others.
    """
    return DONE if goes_on() else cast("Wait", current_reactor().pause())


def goes_on() -> bool:
    """Whether a task whose share is over goes on without a turn of the loop (:meth:`_Line.goes_on`)."""
    try:
        reactor = current_reactor()
    except RuntimeError:
        return True
    began: bool = reactor.goes_on()
    return began


def wait(
    timeline: Timeline, value: int, *, check: bool = False, spun: bool = False, first: int = 0, yields: bool = False
) -> Wait:
    """Wait in a coroutine until ``timeline`` reaches ``value``; then, with ``check``, raise if that failed (see ``failure``).

    With ``spun`` a spin was in vain. With ``yields`` the value is reached, and others have been found to be ready.
    One generator does it all: ten thousand parked tasks hold ten thousand of it.
    """
    if timeline.deferred:
        yield from current_reactor().start(timeline.handle)
    parked = False
    if not (timeline.reached(value) or (not spun and spin(timeline, value))):
        reactor = current_reactor()
        if not (yield from reactor.help(timeline, value)):
            if not timeline.parked:
                timeline.parked_at = time.monotonic_ns()
            while not timeline.reached(value):
                waiter = reactor.waiter()
                try:
                    if reactor.waits.add(timeline, value, waiter):
                        parked = True
                        yield from reactor.suspend(waiter)
                finally:
                    reactor.waits.discard(timeline, value, waiter)
            note_wait(timeline)
    if parked:
        if not reactor.ready.admits():
            yield from reactor.come_back()
    elif yields:
        yield from current_reactor().pause()
    elif budget.over():
        yield from let_others_run()
    if timeline.needed:
        timeline.let_go()
    if check and timeline.counters[FAULTS]:
        timeline.check(value, first)


def wait_any(points: Sequence[tuple[Reachable, int]]) -> Wait:
    """Wait in a coroutine until one of ``points``, (timeline, value), is reached."""
    for timeline, _ in points:
        if timeline.deferred:
            yield from current_reactor().start(timeline.handle)
    reactor, parked = current_reactor(), False
    while not any(timeline.reached(value) for timeline, value in points):
        waiter = reactor.waiter()
        try:
            if all(reactor.waits.add(timeline, value, waiter) for timeline, value in points):
                parked = True
                yield from reactor.suspend(waiter)
        finally:
            for timeline, value in points:
                reactor.waits.discard(timeline, value, waiter)
    if parked:
        if not reactor.ready.admits():
            yield from reactor.come_back()
    elif budget.over():
        yield from let_others_run()


class starting:
    """Start a backend off the loop, and wait for that; cancellation stops the waiting, not the start.

    Raises:
        BackendUnavailableError: it cannot start here.
    """

    def __init__(self, handle: BackendHandle) -> None:
        self._handle = handle

    def __await__(self) -> Wait:
        return others_first.__await__() if self._handle.started else self._start()

    def _start(self) -> Wait:
        error = yield from current_reactor().start(self._handle)
        if error is not None:
            raise error


class _OthersFirst:
    """Let others run, if it is their turn (:mod:`aiodev._core.waiting.fairness`); for awaits that need no waiting."""

    def __await__(self) -> Wait:
        try:  # as `over`, whose call takes a quarter of such an await
            budget.tick()
        except StopIteration:
            return let_others_run()
        return DONE


others_first = _OthersFirst()


def at_hand(timeline: Timeline, value: int) -> bool:
    """Whether a task that awaits operation ``value`` goes on at once: that is reached, if need be after a spin.

    False, too, when it is the turn of others (:mod:`aiodev._core.waiting.fairness`). What is at hand needs no generator and
    no loop.
    """
    if timeline.counters[COMPLETED] < value and (timeline.deferred or not spin(timeline, value)):
        return False
    if timeline.needed:
        timeline.let_go()
    try:
        budget.tick()
    except StopIteration:
        return goes_on()
    return True


def forget_reactors_after_fork() -> None:
    """In a forked child: no loop of the parent runs here, and its descriptors are not ours."""
    abandoned = [reactor.waits for reactor in _thread.all]
    _thread.all.clear()
    _thread.last = _no_reactor
    for waits in abandoned:
        waits.recycle()
    forget_after_fork()
