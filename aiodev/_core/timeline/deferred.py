"""Deferred operations: what a timeline submits to while its backend starts, and when the timeline is lost.

Starting a backend imports compilers and drivers, for half a second or more, in a thread. Submitting must not wait for
that, so operations are numbered here as the executor would number them, and handed on when it is there. Once handed on,
a straggler that still holds a reference to this object is passed straight through.
"""

from __future__ import annotations

import functools
import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from aiodev._core.backend.interface import COUNTER_WORDS, SUBMITTED, Executor
from aiodev._core.errors import fresh

__all__ = ["Deferred", "Lost"]

Operation = Callable[[Executor, int], int]  #: submits to a queue of an executor, and returns the number


class _Refusing(Executor):
    """An executor that has no queues."""

    @abstractmethod
    def _refusal(self) -> BaseException:
        """What every call raises."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refusal()

    create_queue = destroy_queue = adopt_stream = handle_of = _refuse
    launch = copy = fill = wait = wait_over = create_gate = gate = open_gate = stamp = withdraw = call_native = trace = _refuse
    create_buffer = destroy_buffer = buffer_obstacle = execute = _refuse
    create_schedule = destroy_schedule = execute_schedule = _refuse
    foreign_wait = wait_foreign = spin = is_crowded = help = create_waker = collect = arm = faults = forgive = _refuse


class Lost(_Refusing):
    """What a lost timeline submits to: everything raises the loss."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def _refusal(self) -> BaseException:
        return fresh(self._error)


class DeferredGate:
    """A gate that the backend does not have yet."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: Callable[[bool], None] | None = None
        self._opened: bool | None = None  # None: shut; else whether it was opened as failed

    def bind(self, open_gate: Callable[[bool], None]) -> None:
        """Take the executor's gate; open it if it was opened meanwhile."""
        with self._lock:
            self._open, opened = open_gate, self._opened
        if opened is not None:
            open_gate(opened)

    def open(self, failed: bool) -> None:
        """Open the gate, now or as soon as the executor has it."""
        with self._lock:
            self._opened, open_gate = failed, self._open
        if open_gate is not None:
            open_gate(failed)


class Deferred(_Refusing):
    """Operations of one timeline, kept until its backend has started.

    Args:
        open_queue: gives the timeline's executor and queue, once the backend has started; raises what a lost timeline does.
        bind: has the timeline submit to the executor itself from now on.
        lose: has every wait of the timeline raise an error.
    """

    def __init__(
        self,
        open_queue: Callable[[], tuple[Executor, int]],
        bind: Callable[[], None],
        lose: Callable[[BaseException], None],
    ) -> None:
        self._open_queue, self._bind, self._lose = open_queue, bind, lose
        # Re-entrant: a finalizer, or a signal's handler, may submit while this thread holds it. Numbers are given, and the end
        # is reached, by statements that call nothing, so that nobody comes between.
        self._lock = threading.RLock()
        self._count = 0
        self._pending: dict[int, Operation] = {}
        self._withdrawn: list[tuple[int, int]] = []
        self._gates: dict[int, DeferredGate] = {}
        self._begun = self._done = self._failed = False
        self.counters: memoryview[int] = memoryview(bytearray(8 * COUNTER_WORDS)).cast("q")

    def _refusal(self) -> BaseException:
        return RuntimeError("the backend has not started: it can be submitted to, and not be asked")

    def defer(self, operation: Operation) -> int:
        """Number ``operation(executor, queue)`` and keep it, or run it when the backend has started meanwhile."""
        with self._lock:
            if not self._done:
                number = self._count = self._count + 1
                self._pending[number] = operation
                self.counters[SUBMITTED] = self._count
                return number
        return operation(*self._open_queue())

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        return self.defer(lambda executor, queue: executor.launch(queue, entry, size, arguments, site))

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        return self.defer(lambda executor, queue: executor.copy(queue, dst, src, nbytes))

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        return self.defer(lambda executor, queue: executor.fill(queue, dst, count, pattern))

    def stamp(self, queue: int, cell: int) -> int:
        return self.defer(lambda executor, queue: executor.stamp(queue, cell))

    def call_native(self, queue: int, block: bytes) -> int:
        return self.defer(lambda executor, queue: executor.call_native(queue, block))

    def wait(self, queue: int, other: int, value: int) -> int:
        return self.defer(lambda executor, queue: executor.wait(queue, other, value))

    def create_gate(self) -> int:
        handle = next(_gates)
        self._gates[handle] = DeferredGate()
        return handle

    def gate(self, queue: int, gate: int) -> int:
        deferred = self._gates[gate]

        def make(executor: Executor, queue: int) -> int:
            made = executor.create_gate()
            deferred.bind(functools.partial(executor.open_gate, made))
            return executor.gate(queue, made)

        return self.defer(make)

    def open_gate(self, gate: int, failed: bool) -> None:
        self._gates.pop(gate).open(failed)

    def foreign_wait(self, stream: int, queue: int, value: int) -> bool:
        return False

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        """Withdraw operations, none of which has begun; the executor is told before it is given them."""
        with self._lock:
            if not self._begun:
                self._withdrawn.append((first, last))
                return first
        if self._failed:
            return 0
        executor, queue = self._open_queue()
        return executor.withdraw(queue, first, last, partly)

    def started(self, error: BaseException | None) -> None:
        """Hand on what is pending, since the backend has started; or, if it could not, fail every operation with ``error``."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
            if error is not None:
                self._fail(error)
                return
            try:
                self._hand_on()
            except BaseException as failure:  # no memory, as a rule: what cannot be handed on must not be waited for
                self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        self._done = self._failed = True
        self._lose(error)
        self._pending.clear()

    def _hand_on(self) -> None:
        executor, queue = self._open_queue()
        for first, last in self._withdrawn:
            executor.withdraw(queue, first, last, False)
        number = 0
        while True:
            if not self._pending:
                self._done = True
                break
            number += 1
            self._pending.pop(number)(executor, queue)
        self._bind()


_gates = itertools.count(1)
