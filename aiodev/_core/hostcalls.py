"""Functions that run in stream order: off the loop, off the workers, with the submitter's context.

A call is a gate. When what is ahead of it on its stream is done, a thread runs the function and opens the gate. Native
workers never touch Python, so a function that blocks, or waits for the GIL, holds up its own stream and nothing else.

Threads lead and follow: a thread that takes a call makes sure that another is free to take the next, so calls of
different streams run concurrently, however many they are. Idle threads end after a while.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from aiodev._core.gate import Gate
from aiodev._core.outcome import Outcome
from aiodev._core.timeline import Timeline
from aiodev._core.watcher import watcher

_IDLE_SECONDS = 5.0


class HostThreads:
    """As many daemon threads as there are calls that run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job`` in a thread of its own for as long as it lasts."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._run, name=f"aiodev-call-{self._count}", daemon=True).start()
            self._jobs.put(job)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle == 0:  # somebody has counted on us since
                        continue
                    self._idle -= 1
                return
            job()
            del job
            with self._lock:
                self._idle += 1

    def forget_after_fork(self) -> None:
        """In a forked child the threads are gone."""
        HostThreads.__init__(self)


host_threads = HostThreads()


def _withdrawn(*args: object) -> NoReturn:
    raise AssertionError("a function that was withdrawn is not called")


class Call:
    """One function to run when its turn on ``timeline`` has come."""

    __slots__ = ("_arguments", "_context", "_function", "_gate", "_timeline", "outcome")

    def __init__(self, timeline: Timeline, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.outcome: Outcome[Any] = Outcome()
        self._context = contextvars.copy_context()
        self._function = function
        self._arguments = arguments
        self._timeline = timeline
        self._gate: Gate | None = None

    def submit(self) -> int:
        """Append it; returns its number on the timeline."""
        gate = self._gate = self._timeline.gate(by_program=True)
        gate.when_withdrawn = self._let_go
        watcher.watch(self._timeline, gate.value - 1, self._its_turn)
        return gate.value

    def _let_go(self) -> None:
        """It was withdrawn: it will not run, and need not wait for its turn to let go of what it would have run with."""
        self._function, self._arguments, self._context = _withdrawn, (), contextvars.Context()

    def _its_turn(self) -> None:
        if self._gate is not None and self._gate.shut:
            host_threads.submit(self._run)

    def _run(self) -> None:
        gate = self._gate
        assert gate is not None
        timeline = self._timeline
        passed_over = timeline.failed(gate.value) or not timeline.faults.withdrawals.begin(gate.value)
        timeline.entry.backend.attach_thread(timeline.device.index)
        # The traceback of what the function raises holds this frame, and the timeline will hold the exception: nothing here
        # may hold the timeline, or a dropped stream would wait for the garbage collector.
        del timeline, self._timeline, self._gate
        error = None if passed_over else self._call()
        del self._function, self._arguments, self._context
        gate.open(error)
        del error  # its traceback's frames lead here: the two would hold each other

    def _call(self) -> BaseException | None:
        try:
            self.outcome.result = self._context.run(self._function, *self._arguments)
        except BaseException as error:  # it belongs to the waiter, not to this thread
            return error
        return None
