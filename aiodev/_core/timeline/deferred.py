"""What a timeline submits to instead of its backend: while that starts, and when the timeline is lost.

Starting a backend imports compilers and drivers, for half a second or more, in a thread. Submitting must not wait for
that, so operations are numbered here as the backend would number them, and handed on when it has started. Once handed on,
a straggler that still holds a reference to this object is passed straight through.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._core.backend.interface import COUNTER_WORDS, SUBMITTED, Backend
from aiodev._core.errors import fresh

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline


class DeferredGate:
    """A gate that the backend does not have yet."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: Callable[[bool], None] | None = None
        self._opened: bool | None = None  # None: shut; else whether it was opened as failed

    def bind(self, open_gate: Callable[[bool], None]) -> None:
        """The backend has it now."""
        with self._lock:
            self._open, opened = open_gate, self._opened
        if opened is not None:
            open_gate(opened)

    def open(self, failed: bool) -> None:
        """Open it, now or as soon as the backend has it."""
        with self._lock:
            self._opened, open_gate = failed, self._open
        if open_gate is not None:
            open_gate(failed)


class Deferred:
    """Operations of one timeline, kept until its backend has started."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        # Re-entrant: a finalizer, or a signal's handler, may submit while this thread holds it. Numbers are given, and the end
        # is reached, by statements that call nothing, so that nobody comes between.
        self._lock = threading.RLock()
        self._count = 0
        self._pending: dict[int, Callable[[Backend, int], int]] = {}
        self._withdrawn: list[tuple[int, int]] = []
        self._begun = self._done = False
        self.counters: memoryview[int] = memoryview(bytearray(8 * COUNTER_WORDS)).cast("q")

    def _defer(self, operation: Callable[[Backend, int], int]) -> int:
        """Number ``operation(backend, queue)`` and keep it, or run it when the backend has started meanwhile."""
        with self._lock:
            if not self._done:
                number = self._count = self._count + 1
                self._pending[number] = operation
                self.counters[SUBMITTED] = self._count
                return number
        timeline = self._timeline
        if timeline.lost is not None:
            raise fresh(timeline.lost)
        return operation(timeline.entry.backend, timeline.queue)

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        """As :meth:`Backend.launch`; likewise the others."""
        return self._defer(lambda backend, queue: backend.launch(queue, entry, size, arguments, site))

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        return self._defer(lambda backend, queue: backend.copy(queue, dst, src, nbytes))

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        return self._defer(lambda backend, queue: backend.fill(queue, dst, count, pattern))

    def stamp(self, queue: int, cell: int) -> int:
        return self._defer(lambda backend, queue: backend.stamp(queue, cell))

    def call_native(self, queue: int, block: bytes) -> int:
        return self._defer(lambda backend, queue: backend.call_native(queue, block))

    def wait_timeline(self, other: Timeline, value: int) -> int:
        """Wait for a timeline that may be deferred itself."""

        def wait(backend: Backend, queue: int) -> int:
            other.open_queue()
            return backend.wait(queue, other.queue, value)

        return self._defer(wait)

    def gate(self, queue: int) -> tuple[int, DeferredGate]:
        gate = DeferredGate()

        def make(backend: Backend, queue: int) -> int:
            value, handle = backend.gate(queue)
            gate.bind(functools.partial(backend.open_gate, handle))
            return value

        return self._defer(make), gate

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        """Nothing has begun yet; the backend is told before it is given the operations."""
        with self._lock:
            if not self._begun:
                self._withdrawn.append((first, last))
                return first
        timeline = self._timeline
        return 0 if timeline.lost is not None else timeline.entry.backend.withdraw(timeline.queue, first, last, partly)

    def started(self, error: BaseException | None) -> None:
        """The backend has started: hand on what is pending. It could not: every operation fails with ``error``."""
        timeline = self._timeline
        with self._lock:
            if self._begun:
                return
            self._begun = True
            if error is not None:
                self._done = True
                timeline.lose(error)
                self._pending.clear()
                return
            try:
                self._hand_on(timeline)
            except BaseException as failure:  # no memory, as a rule: what cannot be handed on must not be waited for
                self._done = True
                timeline.lose(failure)
                self._pending.clear()

    def _hand_on(self, timeline: Timeline) -> None:
        backend = timeline.entry.backend
        timeline.open_queue()
        for first, last in self._withdrawn:
            backend.withdraw(timeline.queue, first, last, False)
        number = 0
        while True:
            if not self._pending:
                self._done = True
                break
            number += 1
            self._pending.pop(number)(backend, timeline.queue)
        timeline.bind()


class Lost:
    """What a lost timeline submits to: everything raises the loss."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*args: object) -> Any:
            raise fresh(self._error)

        return refuse
