"""Functions that run in stream order: off the loop, off the workers, with the submitter's context.

A call is a gate. When what is ahead of it on its stream is done, a thread runs the function and opens the gate. Native
workers never touch Python, so a function that blocks, or waits for the GIL, holds up its own stream and nothing else.

Calls of different streams run concurrently, up to ``AIODEV_CALL_THREADS`` of them; the others wait, first come, first served.
Idle threads end after a while.

Invariants:

1.  A function that waits in here for work of a stream does not count: that work may be a call that stands in line. So calls
    that wait for each other through streams always come to their end. Those that wait in other ways (a lock, a barrier, a loop
    of their own) can use up the threads.
2.  Every job is run or refused. It is refused when no thread can be had, and none is at work that would take it afterwards.
3.  Whatever goes wrong before a function runs is its failure: its gate is opened in any case.
"""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from aiodev._core.config import settings
from aiodev._core.errors import ThreadLimitError
from aiodev._core.streams import trace
from aiodev._core.streams.outcome import Outcome, to_await
from aiodev._core.timeline.gate import Gate, opened_on_error
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.tuning import IDLE_SECONDS
from aiodev._core.waiting.blocking import when_blocked
from aiodev._core.waiting.watcher import watcher


class _Job(NamedTuple):
    run: Callable[[], None]
    refuse: Callable[[BaseException], object]


class HostThreads:
    """Daemon threads for functions that run at once, ``limit`` of them at most; threads that wait for streams do not count."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Re-entrant: a finalizer or a signal's handler that comes here while this thread holds it. No statement that changes
        # what is counted calls anything, so each finds it whole.
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()  # each has a thread that is going to take it
        self._backlog: deque[_Job] = deque()
        self._idle = 0
        self._count = 0  # threads, but for those that wait for streams
        self._serials = itertools.count(1)

    def submit(self, run: Callable[[], None], refuse: Callable[[BaseException], object]) -> None:
        """Call ``run`` in a thread; or ``refuse``, with the error, if no thread can be had."""
        job = _Job(run, refuse)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                self._jobs.put(job)
                return
            self._backlog.append(job)
        self._advance()

    def _advance(self) -> None:
        """Start or wake a thread for the first call in line, if the limit allows another one."""
        refused: tuple[_Job, ...] = ()
        cause: Exception | None = None
        with self._lock:
            if not self._backlog or self._count >= self._limit:
                return
            self._count += 1
            try:
                name = f"aiodev-call-{next(self._serials)}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
            except (RuntimeError, MemoryError) as error:  # the process or the system has no more
                self._count -= 1
                if self._count > 0:
                    return  # one that is at work takes it afterwards
                cause = error
                refused = tuple(self._backlog)
                self._backlog.clear()
            else:
                self._jobs.put(self._backlog.popleft())
        for job in refused:
            refusal = ThreadLimitError()
            refusal.__cause__ = cause
            job.refuse(refusal)

    def _run(self) -> None:
        when_blocked(self._leave, self._come_back)
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle == 0:  # somebody has counted on us since
                        continue
                    self._idle -= 1
                    self._count -= 1
                return
            job.run()
            del job
            with self._lock:
                if self._count > self._limit:  # others were let in while it waited
                    self._count -= 1
                    return
                if self._backlog:
                    self._jobs.put(self._backlog.popleft())
                else:
                    self._idle += 1

    def _leave(self) -> None:
        """This thread is about to wait for a stream (invariant 1)."""
        with self._lock:
            self._count -= 1
        self._advance()

    def _come_back(self) -> None:
        with self._lock:
            self._count += 1

    def forget_after_fork(self) -> None:
        """In a forked child the threads are gone."""
        HostThreads.__init__(self, self._limit)


host_threads = HostThreads(settings.call_threads)


class _Running(threading.local):
    call: tuple[weakref.ref[Timeline], int] | None = None  #: whose function this thread runs, and the call's number


_running = _Running()


def running_call() -> tuple[Timeline, int] | None:
    """The call whose function this thread runs, if it does: all that is ahead of it is done, all behind it waits."""
    if _running.call is None:
        return None
    timeline = _running.call[0]()
    return None if timeline is None else (timeline, _running.call[1])


def _withdrawn(*args: object) -> NoReturn:
    raise AssertionError("a function that was withdrawn is not called")


class Call:
    """A function to run when its turn on ``timeline`` has come."""

    __slots__ = ("_arguments", "_context", "_function", "_gate", "_timeline", "outcome")

    def __init__(self, timeline: Timeline, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.outcome: Outcome[Any] = Outcome()
        self._context = contextvars.copy_context()
        self._function = function
        self._arguments = arguments
        self._timeline = timeline
        self._gate: Gate | None = None

    def submit(self, by_program: bool = True) -> int:
        """Append the call to its timeline; returns its number. ``by_program``: who knows what the function waits for."""
        gate = self._gate = self._timeline.gate(by_program)
        with opened_on_error(gate):
            gate.when_withdrawn = self._let_go
            if trace.active is not None:
                name = getattr(self._function, "__qualname__", repr(self._function))
                trace.label(self._timeline, gate.value, "call", name)
            watcher.watch(self._timeline, gate.value - 1, self._its_turn, gate.open)
        return gate.value

    def _let_go(self) -> None:
        """Drop the function and its arguments at once, since the call was withdrawn."""
        self._function, self._arguments, self._context = _withdrawn, (), contextvars.Context()

    def _its_turn(self) -> None:
        if self._gate is not None and self._gate.shut:
            host_threads.submit(self._run, self._gate.open)

    def _run(self) -> None:
        gate = self._gate
        assert gate is not None
        # The traceback of what the function raises holds this frame, and the timeline will hold the exception: nothing here
        # may hold the timeline, or a dropped stream would wait for the garbage collector.
        try:
            begun = self._begin(gate.value)
            error = self._call() if begun else None
        except BaseException as failure:  # of the backend, or of the host: its memory, its threads
            error = failure
        _running.call = None
        del self._function, self._arguments, self._context
        gate.open(None if error is None else to_await(error, "call"))
        del error  # its traceback's frames lead here: the two would hold each other

    def _begin(self, value: int) -> bool:
        """Whether the function is to run: it is not behind a failure, and was not withdrawn."""
        timeline = self._timeline
        del self._timeline, self._gate
        if timeline.failed(value) or not timeline.faults.withdrawals.begin(value):
            return False
        timeline.handle.backend.attach_thread(timeline.device.index)
        _running.call = weakref.ref(timeline), value
        return True

    def _call(self) -> BaseException | None:
        try:
            self.outcome.result = self._context.run(self._function, *self._arguments)
        except BaseException as error:  # it belongs to the waiter, not to this thread
            return error
        return None
