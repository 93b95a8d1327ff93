"""A gate: an operation of a stream that the host completes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from aiodev._core.timeline.withdrawal import Withdrawals

__all__ = ["Gate", "opened_on_error"]


class Gate:
    """Holds its stream until it is opened; opening it a second time does nothing.

    Any thread may open it.

    Attributes:
        value: its number on the stream's timeline.
        guards: the operation behind it that it is a part of: the failure of either is the failure of both.
        when_withdrawn: called, if it is withdrawn, by whoever withdraws it.
    """

    __slots__ = ("_fail", "_lock", "_open", "_withdrawals", "guards", "value", "when_withdrawn")

    def __init__(
        self,
        value: int,
        open_gate: Callable[[bool], None],
        fail: Callable[[int, int, BaseException], None],
        withdrawals: Withdrawals,
    ) -> None:
        self.value = self.guards = value
        self.when_withdrawn: Callable[[], None] | None = None
        self._withdrawals = withdrawals
        withdrawals.gates[value] = self  # until it is opened
        self._open: Callable[[bool], None] | None = open_gate
        self._fail: Callable[[int, int, BaseException], None] | None = fail
        self._lock = threading.Lock()

    def open(self, error: BaseException | None = None) -> None:
        """Let the stream go on; with an ``error`` the operation fails with it, and so does what is ordered after it."""
        open_gate = fail = None
        try:
            with self._lock:
                open_gate, fail = self._open, self._fail
                self._open = self._fail = None  # which hold the timeline, and the gate's holder may live long
            self._withdrawals.gates.pop(self.value, None)
            self.when_withdrawn = None
            if error is not None and fail is not None:
                fail(self.value, self.guards, error)
        finally:  # whatever happened, as Ctrl-C: nobody else will
            if open_gate is not None:
                open_gate(error is not None)

    @property
    def shut(self) -> bool:
        """Whether nobody has opened it."""
        return self._open is not None

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
