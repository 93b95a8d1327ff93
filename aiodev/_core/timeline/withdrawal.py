"""Withdrawal: operations of a timeline that do not run because somebody withdrew them before they began.

**Problem.** A caller who goes away leaves operations behind, which hold up everybody else for nobody's sake. What a device
has begun cannot be called back; the rest can be.

**Invariants.**

1.  An operation is withdrawn before it begins or not at all. For what runs on the device the backend sees to that
    (:meth:`Executor.withdraw`), for a function that is called :meth:`Withdrawals.begin`, under the lock that withdrawing takes.
2.  What was submitted behind a withdrawn operation, before it was withdrawn, does not run either. What is submitted later
    does: whoever withdraws knows, as a waiter does who was told of a failure. So where one is withdrawn that is behind another,
    what was submitted in between is not behind it, and runs. Who withdraws all takes that along.
3.  ``known`` says all of that from the moment of withdrawing on, wherever the backend has got to. It is replaced as a whole,
    by who has seen that nobody else did so meanwhile.
4.  To withdraw costs about the same however many were withdrawn before, in whichever order. What does not run is known as spans
    that are joined where they meet, and why it does not, for what is new in them alone: so no call goes through what others
    have noted behind it. What is withdrawn from among what is behind is noted in spans of its own, and cuts nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from aiodev._core import callsites
from aiodev._core.errors import WithdrawnError
from aiodev._core.timeline.spans import Spans
from aiodev._core.tuning import FAULTS_KEPT

__all__ = ["Withdrawals"]


class Withdrawable(Protocol):
    """A gate that is told when it is withdrawn."""

    @property
    def value(self) -> int: ...

    def withdraw(self) -> None: ...

    def lose(self) -> None: ...


class Known(NamedTuple):
    """What is known of the operations that do not run.

    Attributes:
        skipped: all of them.
        withdrawn: those that were withdrawn themselves.
        sites: where that was done.
        behind: of others, the one that was withdrawn ahead of them, and where. Some of ``withdrawn`` are in it, too.
    """

    skipped: Spans[None] = Spans()
    withdrawn: Spans[None] = Spans()
    sites: Spans[int] = Spans()
    behind: Spans[tuple[int, int]] = Spans()

    def including(self, start: int, last: int, end: int, site: int) -> tuple[Known, int]:
        """This, and that ``start`` … ``last`` were withdrawn, with others up to ``end`` behind; how many had not been."""
        skipped, new = self.skipped.filled(start, end, None)
        withdrawn, own = self.withdrawn.filled(start, last, None)
        sites, behind = self.sites, self.behind
        for first, final in own:
            sites, _ = sites.filled(first, final, site)
        for first, final in new:
            if final > last:
                behind, _ = behind.filled(first, final, (start, site))
        return Known(skipped, withdrawn, sites, behind), sum(final - first + 1 for first, final in own)

    def without_passed(self, completed: int) -> Known:
        """This, without the oldest of what is completed, if there is more than is to be kept."""
        first = max(spans.first_of_newest(FAULTS_KEPT, completed) for spans in self)
        if not first:
            return self
        skipped, withdrawn, sites, behind = self
        return Known(skipped.since(first), withdrawn.since(first), sites.since(first), behind.since(first))


#: What is known where nothing was withdrawn.
NOTHING: Final = Known()


class Withdrawals:
    """The operations of one timeline that do not run because somebody withdrew them.

    Attributes:
        known: which those are, and why.
        gates: weak references to the gates that are shut, by number: whoever withdraws one opens it.
    """

    __slots__ = ("_begun", "_lock", "gates", "known")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a finalizer may withdraw, too
        self._begun = 0  # the last operation that the host has begun
        self.known = NOTHING
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
            if self.known.skipped.at(value) is not None:
                return False
            self._begun = max(self._begun, value)
            return True

    def withdraw(
        self, span: tuple[int, int, int], partly: bool, site: int, completed: int, tell: Callable[[int, int, bool], int]
    ) -> tuple[int, int]:
        """Withdraw operations ``first`` … ``last`` of ``span``; those behind them, up to its ``end``, do not run.

        Nothing happens if the first has begun; with ``partly``, those that have not begun are withdrawn. Where none of them is
        to run, being behind another, nothing else is behind them. ``tell`` tells the backend. Returns the first operation that
        does not run, or 0; and how many this call withdrew.
        """
        first, last, end = span
        with self._lock:
            start = max(first, self._begun + 1)
            if start > last or (start > first and not partly):
                return 0, 0
            known = self.known
            if not known.withdrawn.gaps(start, last):
                return start, 0
            if partly or known.skipped.gaps(start, last):
                start = tell(start, end, partly)
                if start == 0 or start > last:
                    return 0, 0
            else:
                end = last
            count = self._enter(start, last, end, site, completed)
            gates, values = self.gates, range(start, last + 1)
            shut = [gates.get(value) for value in (values if len(values) < len(gates) else gates.copy())]
        for reference in shut:
            gate = None if reference is None else reference()
            if gate is not None and gate.value in values:
                gate.withdraw()
        return start, count

    def _enter(self, start: int, last: int, end: int, site: int, completed: int) -> int:
        """Note ``start`` … ``last`` as withdrawn, new operations up to ``end`` as behind; how many are withdrawn now."""
        while True:
            before = self.known
            after, count = before.including(start, last, end, site)
            after = after.without_passed(completed)
            if self.known is before:  # else a finalizer came, and withdrew, too
                self.known = after
                return count

    def withdrawn(self, value: int) -> bool:
        """Whether operation ``value`` itself was withdrawn."""
        return self.known.withdrawn.at(value) is not None

    def ahead_of(self, value: int) -> int:
        """``value`` if it is to run, else the last operation ahead of it that is."""
        row = self.known.skipped.at(value)
        return value if row is None else row.first - 1

    def takes_along(self, first: int, last: int) -> bool:
        """Whether one of the operations ``first`` … ``last`` does not run without having been withdrawn itself."""
        known = self.known
        return known.withdrawn.gaps(first, last) != known.skipped.gaps(first, last)

    def error(self, value: int, stream: str) -> WithdrawnError | None:
        """Why operation ``value`` does not run: that it was withdrawn, or the one that it is behind."""
        known = self.known
        if known.withdrawn.at(value) is not None:
            own = known.sites.at(value)
            why = None if own is None else (value, own.mark)
        else:
            other = known.behind.at(value)
            why = None if other is None else other.mark
        return None if why is None else WithdrawnError(stream, why[0], withdrawn_at=callsites.describe_site(why[1]))
