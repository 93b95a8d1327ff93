"""A gate: an operation of a stream that the host completes."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Gate"]


class Gate:
    """Holds its stream until it is opened; opening it a second time does nothing.

    Any thread may open it.

    Attributes:
        value: its number on the stream's timeline.
        guards: the operation behind it that it is a part of: the failure of either is the failure of both.
    """

    __slots__ = ("_fail", "_lock", "_open", "guards", "value")

    def __init__(
        self, value: int, open_gate: Callable[[bool], None], fail: Callable[[int, int, BaseException], None]
    ) -> None:
        self.value = self.guards = value
        self._open: Callable[[bool], None] | None = open_gate
        self._fail: Callable[[int, int, BaseException], None] | None = fail
        self._lock = threading.Lock()

    def open(self, error: BaseException | None = None) -> None:
        """Let the stream go on; with an ``error`` the operation fails with it, and so does what is ordered after it."""
        with self._lock:
            open_gate, fail = self._open, self._fail
            self._open = self._fail = None  # which hold the timeline, and the gate's holder may live long
        if open_gate is None or fail is None:
            return
        if error is not None:
            fail(self.value, self.guards, error)
        open_gate(error is not None)
