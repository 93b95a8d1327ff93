"""A gate: an operation of a stream that the host completes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

from aiodev._core.errors import KernelError
from aiodev._core.finalizing import until_exit
from aiodev._core.timeline.withdrawal import Withdrawals
from aiodev._core.waiting.watcher import watcher

__all__ = ["Gate", "fails_on_error", "opened_on_error"]


@until_exit
class Gate:
    """Holds its stream until it is opened; opening it a second time does nothing.

    Any thread may open it. Only who is to open it holds it: if he is interrupted before he is known, it is dropped, and open.

    Attributes:
        value: its number on the stream's timeline; 0 until it is submitted.
        guards: the operation behind it that it is a part of: the failure of either is the failure of both.
        opens: opens it in the backend; None before there is anything to open, and from then on.
        when_withdrawn: called, if it is withdrawn, by whoever withdraws it.
    """

    __slots__ = ("__weakref__", "_fail", "_lock", "_withdrawals", "guards", "opens", "value", "when_withdrawn")

    def __init__(self, fail: Callable[[int, int, BaseException], None], withdrawals: Withdrawals) -> None:
        self.opens: Callable[[bool], None] | None = None
        self._lock = threading.Lock()
        self.value = self.guards = 0
        self.when_withdrawn: Callable[[], None] | None = None
        self._withdrawals = withdrawals
        self._fail: Callable[[int, int, BaseException], None] | None = fail

    def hold(self, value: int) -> None:
        """Take the number of its operation, which has been submitted."""
        self.value = self.guards = value
        self._withdrawals.gates[value] = weakref.ref(self)  # until it is opened

    def __del__(self) -> None:
        opens = getattr(self, "opens", None)  # who made it may have been interrupted
        if opens is not None:
            self._withdrawals.gates.pop(self.value, None)
            # By the watcher: the collector may have called us while the executor holds its lock.
            watcher.call(partial(opens, self.guards != self.value))

    def open(self, error: BaseException | None = None) -> None:
        """Let the stream go on; with an ``error`` the operation fails with it, and so does what is ordered after it."""
        open_gate = fail = None
        try:
            with self._lock:
                open_gate, fail = self.opens, self._fail
                self.opens = self._fail = None  # which hold the timeline, and the gate's holder may live long
            self._withdrawals.gates.pop(self.value, None)
            self.when_withdrawn = None
            if error is not None and fail is not None:
                fail(self.value, self.guards, error)
        finally:  # whatever happened, as Ctrl-C: nobody else will
            if open_gate is not None:
                open_gate(error is not None)

    def lose(self) -> None:
        """In a forked child: it is the parent's, so that nobody opens it here; another thread there may have held the lock."""
        self._lock = threading.Lock()
        self.opens = self._fail = None

    @property
    def shut(self) -> bool:
        """Whether nobody has opened it."""
        return self.opens is not None

    def withdraw(self) -> None:
        """Open it, since it was withdrawn: nothing is held any more, and whoever was to open it need not."""
        callback = self.when_withdrawn
        self.open()
        if callback is not None:
            callback()


class opened_on_error:
    """Open ``gate`` if the block raises, which is to have somebody open it: else its stream would hang. Ctrl-C counts, too."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._gate.open()


class fails_on_error:
    """As ``opened_on_error``, where what the block submits behind the gate must not run without it: that fails.

    Of what was not submitted, nothing is left to fail.
    """

    __slots__ = ("_gate", "_operation", "_submitted")

    def __init__(self, gate: Gate, submitted: Callable[[], int], operation: str) -> None:
        self._gate, self._submitted, self._operation = gate, submitted, operation

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if kind is None:
            return
        failure = None
        if self._submitted() > self._gate.value:
            failure = KernelError(self._operation, "its submission was interrupted")
            failure.__cause__ = error
        self._gate.open(failure)
