"""Waiting: a ladder from one load to a parked task. Threads without a loop have one of their own, in ``blocking.py``.

1.  Load the counter. Done: no round trip through the loop (but see :mod:`aiodev._core.waiting.fairness`).
2.  Spin in native code, without the GIL, for some tens of µs, where that pays (:mod:`aiodev._core.waiting.spinning`).
3.  Help. Where this thread can do a part of the work itself (:meth:`Executor.help`), it does, for as long as the loop has
    nothing else to do: what becomes ready meanwhile, and timers that are due, are looked at between two pieces of the work.
4.  Park. The task is suspended; native code writes the loop's descriptor; every task whose operation is done then stands in
    the loop's line (:mod:`aiodev._core.waiting.line`), from which as many are resumed a turn as keep the turn short. The order
    is: enter the wait set, arm, and only then suspend, so no wake-up can be missed.

A reactor belongs to one loop and is used only in that loop's thread. The loop holds it, by what it calls when the descriptor
is readable, and nobody else does: it goes, and leaves its descriptor to the next one, when the loop is closed or collected.
What it waited for is not lost, only its wake-ups are.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core.backend.interface import COMPLETED, FAULTS
from aiodev._core.waiting.asyncio_reactor import AsyncioReactor
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.line import DONE, Line, Wait
from aiodev._core.waiting.loops import running_loop
from aiodev._core.waiting.spinning import note_wait, spin
from aiodev._core.waiting.waitset import forget_after_fork

if TYPE_CHECKING:
    from aiodev._core.backend.handle import BackendHandle
    from aiodev._core.timeline.points import Reachable
    from aiodev._core.timeline.timeline import Timeline

Point = tuple["Timeline", int]


def _no_reactor() -> None:
    """What a weak reference to a collected reactor gives."""


class _Thread(threading.local):
    """The reactors of this thread's loops; the one used last is at hand."""

    def __init__(self) -> None:
        self.last: Callable[[], Line | None] = _no_reactor
        self.all: weakref.WeakSet[Line] = weakref.WeakSet()


_thread = _Thread()


def current_reactor() -> Line:
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
        reactor = AsyncioReactor(loop) if trio is None else _trio_reactor(trio)
        _thread.all.add(reactor)
    _thread.last = weakref.ref(reactor)
    return reactor


def _trio_reactor(trio: Any) -> Line:
    from aiodev._core.waiting.trio_reactor import TrioReactor  # which few programs need

    return TrioReactor(trio)


def let_others_run() -> Wait:
    """Let other tasks run, if any are ready or the time is over.

    A coroutine that a fork took along into the child goes on there with no loop, and with no others.
    """
    return DONE if goes_on() else current_reactor().pause()


def goes_on() -> bool:
    """Whether a task whose share is over goes on without a turn of the loop (:meth:`_Line.goes_on`)."""
    try:
        reactor = current_reactor()
    except RuntimeError:
        return True
    return reactor.goes_on()


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
    if yields:
        yield from current_reactor().pause()
    elif not parked and budget.over():
        yield from let_others_run()
    if timeline.needed:
        timeline.let_go()
    if check and timeline.counters[FAULTS]:
        timeline.check(value, first)


def help_at_once(timeline: Timeline, value: int) -> bool:
    """Help with what ``value`` waits for while no other task has anything to do, and none runs; whether it is reached."""
    try:
        reactor = current_reactor()
    except RuntimeError:  # a coroutine that a fork took along
        return False
    return reactor.help_at_once(timeline, value)


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
    if not parked and budget.over():
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
