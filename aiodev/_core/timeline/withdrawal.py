"""Withdrawal: operations of a timeline that do not run because somebody withdrew them before they began.

**Problem.** A caller who goes away leaves operations behind, which hold up everybody else for nobody's sake. What a device
has begun cannot be called back; the rest can be.

**Invariants.**

1.  An operation is withdrawn before it begins or not at all. For what runs on the device the backend sees to that
    (:meth:`Executor.withdraw`), for a function that is called :meth:`Withdrawals.begin`, under the lock that withdrawing takes.
2.  What was submitted behind a withdrawn operation, before it was withdrawn, does not run either. What is submitted later
    does: whoever withdraws knows, as a waiter does who was told of a failure.
3.  ``spans`` says all of that from the moment of withdrawing on, wherever the backend has got to. It is replaced as a whole.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, Protocol

from aiodev._core import callsites
from aiodev._core.errors import WithdrawnError
from aiodev._core.tuning import FAULTS_KEPT

__all__ = ["Withdrawals"]

_first = attrgetter("first")


class Withdrawable(Protocol):
    """A gate that is told when it is withdrawn."""

    @property
    def value(self) -> int: ...

    def withdraw(self) -> None: ...

    def lose(self) -> None: ...


class _Span(NamedTuple):
    """Operations that do not run: withdrawn themselves (``cause`` is 0), or behind ``cause``, which was."""

    first: int
    last: int
    cause: int
    site: int


class Withdrawals:
    """The operations of one timeline that do not run because somebody withdrew them.

    Attributes:
        spans: which those are, ascending and apart from each other.
        gates: weak references to the gates that are shut, by number: whoever withdraws one opens it.
    """

    __slots__ = ("_begun", "_lock", "gates", "spans")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a finalizer may withdraw, too
        self._begun = 0  # the last operation that the host has begun
        self.spans: tuple[_Span, ...] = ()
        self.gates: dict[int, Callable[[], Withdrawable | None]] = {}

    def lose_gates(self) -> None:
        """In a forked child: have nobody open a gate of the parent."""
        for reference in list(self.gates.values()):
            gate = reference()
            if gate is not None:
                gate.lose()

    def begin(self, value: int) -> bool:
        """Note that the host begins operation ``value``; False when it must not, since it was withdrawn or is behind one."""
        with self._lock:
            if self._at(value) is not None:
                return False
            self._begun = max(self._begun, value)
            return True

    def withdraw(
        self, span: tuple[int, int, int], partly: bool, site: int, completed: int, tell: Callable[[int, int, bool], int]
    ) -> tuple[int, int]:
        """Withdraw operations ``first`` … ``last`` of ``span``; those behind them, up to its ``end``, do not run.

        Nothing happens if the first has begun; with ``partly``, those that have not begun are withdrawn. ``tell`` tells the
        backend. Returns the first operation that does not run, or 0; and how many this call withdrew.
        """
        first, last, end = span
        with self._lock:
            start = max(first, self._begun + 1)
            if start > last or (start > first and not partly):
                return 0, 0
            if self._all_withdrawn(start, last):
                return start, 0
            start = tell(start, end, partly)
            if start == 0 or start > last:
                return 0, 0
            count = self._enter(start, last, end, site, completed)
            gates, values = self.gates, range(start, last + 1)
            shut = [gates.get(value) for value in (values if len(values) < len(gates) else gates.copy())]
        for reference in shut:
            gate = None if reference is None else reference()
            if gate is not None and gate.value in values:
                gate.withdraw()
        return start, count

    def _all_withdrawn(self, first: int, last: int) -> bool:
        while first <= last and (span := self._at(first)) is not None and span.cause == 0:
            first = span.last + 1
        return first > last

    def _enter(self, start: int, last: int, end: int, site: int, completed: int) -> int:
        """Note ``start`` … ``last`` as withdrawn, new operations up to ``end`` as behind; how many are withdrawn now."""
        spans = self.spans
        low, high = max(0, bisect_right(spans, start - 1, key=_first) - 1), bisect_right(spans, end + 1, key=_first)
        edges = {start, last + 1, end + 1}.union(*((span.first, span.last + 1) for span in spans[low:high]))
        joined: list[_Span] = []
        count = 0
        for begin, following in pairwise(sorted(edges)):
            piece = self._at(begin)
            if piece is not None and not (piece.cause and start <= begin <= last):
                piece = piece._replace(first=begin, last=following - 1)
            elif start <= begin <= end:
                count += following - begin if begin <= last else 0
                piece = _Span(begin, following - 1, 0 if begin <= last else start, site)
            else:
                continue
            before = joined[-1] if joined else None
            if before is not None and before.last + 1 == begin and before[2:] == piece[2:]:
                joined[-1] = before._replace(last=piece.last)
            else:
                joined.append(piece)
        spans = (*spans[:low], *joined, *spans[high:])
        past = bisect_right(spans, completed, key=_first) - 1
        self.spans = spans[max(0, min(len(spans) - FAULTS_KEPT, past)) :]
        return count

    def _at(self, value: int) -> _Span | None:
        spans = self.spans
        place = bisect_right(spans, value, key=_first)
        if place and spans[place - 1].last >= value:
            return spans[place - 1]
        return None

    def withdrawn(self, value: int) -> bool:
        """Whether operation ``value`` itself was withdrawn."""
        span = self._at(value)
        return span is not None and span.cause == 0

    def ahead_of(self, value: int) -> int:
        """``value`` if it is to run, else the last operation ahead of it that is."""
        while (span := self._at(value)) is not None:
            value = span.first - 1
        return value

    def takes_along(self, first: int, last: int) -> bool:
        """Whether one of the operations ``first`` … ``last`` does not run without having been withdrawn itself."""
        return any(span.cause and span.first <= last and first <= span.last for span in self.spans)

    def error(self, value: int, stream: str) -> WithdrawnError | None:
        """Why operation ``value`` does not run: that it was withdrawn, or the one that it is behind."""
        span = self._at(value)
        if span is None:
            return None
        return WithdrawnError(stream, span.cause or value, withdrawn_at=callsites.describe_site(span.site))
