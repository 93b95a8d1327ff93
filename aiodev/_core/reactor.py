"""Waiting: a ladder from one load to a parked task. Threads without a loop have one of their own, in ``blocking.py``.

1.  Load the counter. Done: no round trip through the loop (but see :mod:`aiodev._core.fairness`).
2.  Spin in native code, without the GIL, for some tens of µs, where that pays (:mod:`aiodev._core.spinning`).
3.  Help. Where this thread can do a part of the work itself (:meth:`Backend.help`), it does, for as long as the loop has
    nothing else to do: what becomes ready meanwhile, and timers that are due, are looked at between two pieces of the work.
4.  Park. The task is suspended; native code writes the loop's descriptor; the loop wakes every task whose operation is
    done. The order is: enter the wait set, arm, and only then suspend, so no wake-up can be missed.

A reactor belongs to one loop and is used only in that loop's thread. The loop holds it, by what it calls when the descriptor
is readable, and nobody else does: it goes, and leaves its descriptor to the next one, when the loop is closed or collected.
What it waited for is not lost, only its wake-ups are.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.fairness import budget
from aiodev._core.loops import running_loop
from aiodev._core.spinning import learn, may_wait_awake, spin
from aiodev._core.waitset import WaitSet, forget_after_fork

if TYPE_CHECKING:
    import asyncio

    from aiodev._core.registry import BackendEntry
    from aiodev._core.timeline import Timeline

Wait = Generator[Any, Any, None]
Point = tuple["Timeline", int]

_TURN_NS = 20_000_000  # for so long a thread helps at most before its loop has a turn, if it sees what the loop has to do
_BLIND_TURN_NS = 200_000  # and if it does not
_MOST_TURNS = 4  # that others take one after the other, until who has helped parks
_REST = 4  # times as long as it has helped blindly, it leaves to what its loop has to do
_LOOKED_NS = 100_000  # a thread that has helped for longer has looked for that not long ago


class AsyncioReactor:
    """Parks the tasks of one asyncio (or uvloop) loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waits: WaitSet[asyncio.Future[None]] = WaitSet()
        self.helping = False  #: whether a task helps, between two turns
        self.turned = 0  #: when a task let others run last, by time.monotonic_ns
        self.rests = 0  #: until when no task helps, since it is not seen what others have to do
        loop.add_reader(self.waits.descriptor.read_end, self._wake)

    @property
    def closed(self) -> bool:
        """Whether the loop can run no more."""
        return self.loop.is_closed()

    def _wake(self) -> None:
        for future in self.waits.collect():
            if not future.done():
                future.set_result(None)

    def waiter(self) -> asyncio.Future[None]:
        """What enters the wait set for the running task."""
        return self.loop.create_future()

    def suspend(self, waiter: asyncio.Future[None]) -> Wait:
        """Suspend the task until ``waiter`` is woken."""
        return waiter.__await__()

    def start(self, entry: BackendEntry) -> Generator[Any, Any, BaseException | None]:
        """Suspend the task until a backend has started, or failed to; returns the failure."""
        future = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if not future.done():
                future.set_result(error)

        def started(error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self.loop.call_soon_threadsafe(settle, error)

        entry.start_soon(started)
        error: BaseException | None = yield from future
        return error

    def pause(self) -> Wait:
        """Let other tasks run once."""
        yield
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        """For how many ns this loop has nothing to do unless a descriptor becomes readable, and that, or -1.

        The loops of asyncio itself can be looked into; they have had these attributes since Python 3.4.
        """
        loop: Any = self.loop
        try:
            ready, timers, descriptor = loop._ready or loop._stopping, loop._scheduled, loop._selector.fileno()
        except AttributeError:
            return _blind_turn(self.rests), -1
        if ready:
            return 0, descriptor
        if not timers:
            return _TURN_NS, descriptor
        return max(0, min(_TURN_NS, int((timers[0].when() - loop.time()) * 1e9))), descriptor


def _blind_turn(rests: int) -> int:
    """For how many ns a task helps where it is not seen what others have to do: each turn of theirs would wait for that."""
    return 0 if time.monotonic_ns() < rests else _BLIND_TURN_NS


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


class TrioReactor:
    """Parks the tasks of one trio run; a system task watches the descriptor."""

    def __init__(self, trio: Any) -> None:
        self._lowlevel = trio.lowlevel
        self._finished: type[BaseException] = trio.RunFinishedError
        self.loop = trio.lowlevel.current_trio_token()
        self.waits: WaitSet[_TrioWaiter] = WaitSet()
        self.closed = self.helping = False
        self.turned = self.rests = 0
        trio.lowlevel.spawn_system_task(self._run, name="aiodev reactor")

    async def _run(self) -> None:
        try:
            while True:
                await self._lowlevel.wait_readable(self.waits.descriptor.read_end)
                for waiter in self.waits.collect():
                    waiter.wake()
        finally:
            self.closed = True

    def waiter(self) -> _TrioWaiter:
        """What enters the wait set for the running task."""
        return _TrioWaiter(self._lowlevel)

    def suspend(self, waiter: _TrioWaiter) -> Wait:
        """Suspend the task until ``waiter`` is woken."""
        suspension: Wait = self._lowlevel.wait_task_rescheduled(waiter.abort).__await__()
        return suspension

    def start(self, entry: BackendEntry) -> Generator[Any, Any, BaseException | None]:
        """Suspend the task until a backend has started, or failed to; returns the failure."""
        waiter = _TrioWaiter(self._lowlevel)
        errors: list[BaseException | None] = []

        def started(error: BaseException | None) -> None:
            errors.append(error)
            with contextlib.suppress(self._finished):
                self.loop.run_sync_soon(waiter.wake)

        entry.start_soon(started)
        yield from self._lowlevel.wait_task_rescheduled(waiter.abort).__await__()
        return errors[0]

    def pause(self) -> Wait:
        """Let other tasks run once."""
        yield from self._lowlevel.checkpoint().__await__()
        self.turned = time.monotonic_ns()

    def leisure(self) -> tuple[int, int]:
        """See :class:`AsyncioReactor`; trio cannot be looked into."""
        return _blind_turn(self.rests), -1


Reactor = Any  # AsyncioReactor or TrioReactor, which are the same to `wait`


def _no_reactor() -> None:
    """What a reference to a reactor that is gone gives."""


class _Thread(threading.local):
    """The reactors of this thread's loops, the one used last first at hand."""

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


def wait(timeline: Timeline, value: int, *, check: bool = False, spun: bool = False) -> Wait:
    """Wait in a coroutine until ``timeline`` reaches ``value``; then, with ``check``, raise if that failed.

    One generator does it all: ten thousand parked tasks hold ten thousand of it.
    """
    if timeline.deferred:
        yield from current_reactor().start(timeline.entry)
    if timeline.reached(value) or (not spun and spin(timeline, value)) or (yield from help(timeline, value)):
        if budget.over():
            yield from current_reactor().pause()
            budget.renew()
    else:
        reactor = current_reactor()
        if not timeline.parked:
            timeline.parked_at = time.monotonic_ns()
        while not timeline.reached(value):
            waiter = reactor.waiter()
            try:
                if reactor.waits.add(timeline, value, waiter):
                    yield from reactor.suspend(waiter)
            finally:
                reactor.waits.discard(timeline, value, waiter)
        learn(timeline)
        budget.renew()
    if timeline.needed:
        timeline.let_go()
    if check and timeline.counters[FAULTS]:
        timeline.check(value)


def wait_any(points: Sequence[Point]) -> Wait:
    """Wait in a coroutine until one of ``points``, (timeline, value), is reached."""
    for timeline, _ in points:
        if timeline.deferred:
            yield from current_reactor().start(timeline.entry)
    reactor = current_reactor()
    while not any(timeline.reached(value) for timeline, value in points):
        waiter = reactor.waiter()
        try:
            if all(reactor.waits.add(timeline, value, waiter) for timeline, value in points):
                yield from reactor.suspend(waiter)
        finally:
            for timeline, value in points:
                reactor.waits.discard(timeline, value, waiter)
    budget.renew()


class starting:
    """Start a backend off the loop, and wait for that; cancellation stops the waiting, not the start.

    Raises:
        BackendUnavailableError: it cannot start here.
    """

    def __init__(self, entry: BackendEntry) -> None:
        self._entry = entry

    def __await__(self) -> Wait:
        if not self._entry.started:
            error = yield from current_reactor().start(self._entry)
            if error is not None:
                raise error


def at_hand(timeline: Timeline, value: int) -> bool:
    """Whether a task that awaits operation ``value`` goes on at once: that is reached, if need be after a spin.

    False, too, when it is the turn of others (:mod:`aiodev._core.fairness`). What is at hand needs no generator and no loop.
    """
    if timeline.counters[COMPLETED] < value and (timeline.deferred or not spin(timeline, value)):
        return False
    if timeline.needed:
        timeline.let_go()
    try:
        budget.tick()
    except StopIteration:
        if budget.over():
            budget.left = 0
            return False
    return True


def help(timeline: Timeline, value: int) -> Generator[Any, Any, bool]:
    """Help with what ``value`` waits for, while there is something to do here and nothing else on the loop; whether it is done.

    Of a loop's tasks one helps at a time: the others would wait for several turns of it.
    """
    if timeline.parked or not may_wait_awake():
        return False
    reactor, turns = current_reactor(), 0  # that others may still take until we park
    timeline.parked_at = time.monotonic_ns()
    while not reactor.helping:
        duration, descriptor = reactor.leisure()
        if not duration:
            if not turns:
                break
            turns -= 1
        else:
            began, turns = time.monotonic_ns(), _MOST_TURNS
            if not timeline.operations.help(timeline.queue, value, duration, descriptor):
                break
            ended, blind = time.monotonic_ns(), descriptor < 0
            if blind:
                reactor.rests = ended + _REST * (ended - began)
            if timeline.reached(value):
                learn(timeline)
                if not blind and ended - began > _LOOKED_NS and began - reactor.turned < _TURN_NS:
                    budget.renew()  # a turn would have found nothing to do
                break
            if blind:
                break
        reactor.helping = True
        try:
            yield from reactor.pause()
        finally:
            reactor.helping = False
        budget.renew()
    return timeline.reached(value)


def forget_reactors_after_fork() -> None:
    """In a forked child: no loop of the parent runs here, and its descriptors are not ours."""
    abandoned = [reactor.waits for reactor in _thread.all]
    _thread.all.clear()
    _thread.last = _no_reactor
    for waits in abandoned:
        waits.recycle()
    forget_after_fork()
