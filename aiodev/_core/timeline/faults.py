"""Faults of a timeline, as the host knows them."""

from __future__ import annotations

import bisect
import operator
import threading
from collections.abc import Sequence
from typing import Protocol

from aiodev._core.backend.interface import FAULTS, SUBMITTED, Executor, Fault
from aiodev._core.errors import DependencyError, WithdrawnError
from aiodev._core.timeline.kept_error import KeptError
from aiodev._core.timeline.withdrawal import Withdrawals
from aiodev._core.tuning import FAULTS_KEPT

__all__ = ["FaultLog", "KnownFault", "dependency_error", "collect_faults", "note_withdrawal", "root_cause", "tell"]

_collecting = threading.RLock()  # re-entrant, for a fault's cause is on another timeline

#: How often somebody was told of a fault, or withdrew something: while it is what it was, nothing untold has been told.
tellings = 0


class Failing(Protocol):
    """A timeline, as far as failure is concerned."""

    @property
    def counters(self) -> Sequence[int]: ...

    @property
    def faults(self) -> FaultLog: ...

    @property
    def label(self) -> str: ...

    @property
    def lost(self) -> BaseException | None: ...

    @property
    def owned(self) -> bool: ...

    @property
    def queue(self) -> int: ...

    def open_queue(self) -> tuple[Executor, int]: ...

    def kept_timeline(self, queue: int) -> Failing | None: ...

    def distrust(self, first: int, last: int) -> None: ...


class KnownFault:
    """A fault as the host knows it; ``cause`` is the fault of another timeline that it comes from, ``origin`` the first one.

    ``first`` and ``guarded`` are the operations that failed themselves, mostly one; the others did not run.
    ``told``: a waiter of this timeline was told, so that the fault has ended. ``retrieved``: some waiter knows of it, if only
    through a timeline that depends on this one, so that it need not be reported. ``inner``: it comes from a timeline that this
    one stands for, such as that of a graph's branch, so that the failure is one of its own.
    """

    __slots__ = ("_error", "cause", "first", "guarded", "inner", "last", "origin", "retrieved", "told", "withdrawn")

    def __init__(self, fault: Fault, error: KeptError, guarded: int) -> None:
        self.first = fault.first
        self.guarded = guarded
        self.last = fault.last
        self.cause: KnownFault | None = None
        self.origin: KnownFault | None = None  # None: itself
        self._error = error
        self.withdrawn = fault.withdrawn
        self.inner = False
        self.told = False
        self.retrieved = False

    def explain(self) -> None:
        """Find the origin, for every fault on the way there."""
        chain: list[KnownFault] = []
        fault = self
        while fault.cause is not None and fault.origin is None:
            chain.append(fault)
            fault = fault.cause
        origin = fault.origin or fault
        for explained in chain:
            explained.origin = origin

    def to_raise(self) -> BaseException:
        """The failure, for a waiter that is told. The first waiter gets the very exception that a called function raised."""
        if self.inner:
            return self.root()
        error = self._error.take()
        if self.origin is not None:
            error.__cause__ = self.root()
        return error

    def root(self) -> BaseException:
        """The failure at the origin, for a waiter of an operation that did not run because of it."""
        return root_cause((self.origin or self)._error.take())

    def copy(self) -> BaseException:
        """The failure, for a timeline that is to fail with it: nobody is told."""
        if self.inner and self.origin is not None:
            return root_cause(self.origin._error.copy())
        error = self._error.copy()
        if self.origin is not None:
            error.__cause__ = root_cause(self.origin._error.copy())
        return error

    def covers(self, value: int) -> bool:
        """Whether operation ``value`` failed or did not run because of this."""
        return self.first <= value and (self.last is None or value <= self.last)


_first = operator.attrgetter("first")


class FaultLog:
    """The faults of a timeline, oldest first, as far as they have been learnt.

    It does not know its timeline, which would keep the two of them from going as soon as nobody holds the timeline.

    Attributes:
        known: those that have been learnt.
        untold: those of them that no waiter of the timeline was told of: what ``synchronize`` looks at.
        seen: the timeline's counter of faults as it was then.
        withdrawals: what was withdrawn.
    """

    __slots__ = ("_gates", "known", "seen", "untold", "withdrawals")

    def __init__(self) -> None:
        self.known: list[KnownFault] = []
        self.untold: list[KnownFault] = []
        self.seen = 0
        self.withdrawals = Withdrawals()
        self._gates: dict[int, tuple[int, BaseException]] = {}

    def gate_fails(self, gate: int, guards: int, error: BaseException) -> None:
        """Note why a gate is about to be opened as failed, and which operation it is a part of."""
        # Else it is behind a failure, or a withdrawal, and holds nothing: nobody asks why it fails, too.
        if self.at(gate) is None and self.withdrawals.ahead_of(gate) == gate:
            self._gates[gate] = guards, error

    def end(self, fault: KnownFault, last: int) -> None:
        """Note the last operation that did not run because of a fault; the reasons of gates among them are dropped."""
        fault.last = last
        for gate in [gate for gate in self._gates if fault.first < gate <= last]:
            del self._gates[gate]

    def at(self, value: int) -> KnownFault | None:
        """The known fault that covers a finished operation, or None."""
        known = self.known
        place = len(known)
        if place and value < known[-1].first:  # else it is new, as mostly
            place = bisect.bisect_right(known, value, key=_first)
        return known[place - 1] if place and known[place - 1].covers(value) else None

    def take_new(self, timeline: Failing) -> list[tuple[KnownFault, Failing | None, int]]:
        """Take new faults into the list; returns those that come from another timeline, with it and its fault's number."""
        dependent: list[tuple[KnownFault, Failing | None, int]] = []
        newest = self.known[-1].first if self.known else 0
        for fault in timeline.open_queue()[0].faults(timeline.queue):
            if fault.first <= newest:
                continue
            guarded, own = self._gates.pop(fault.first, (fault.first, None))
            if fault.withdrawn:
                own = self.withdrawals.error(fault.first, timeline.label)
            what = timeline.label if fault.dependency is None else f"an operation of {timeline.label}"
            error = own or fault.error or dependency_error(what, None)
            known = KnownFault(fault, KeptError(error, ours=own is not None), guarded)
            if fault.withdrawn:  # who withdrew knows, but not who submitted what is behind
                known.retrieved = True
                known.told = not self.withdrawals.takes_along(fault.first, fault.last or fault.first)
            self.known.append(known)
            if not known.told:
                self.untold.append(known)
            if fault.dependency is not None:
                queue, first = fault.dependency
                dependent.append((known, timeline.kept_timeline(queue), first))
        return dependent


def collect_faults(timeline: Failing) -> None:
    """Collect new faults, here and on every timeline that they come from, and then what caused each.

    The search is not recursive: streams that wait for each other in turn have faults that come from each other, and a chain
    of dependent streams may be longer than the stack.
    """
    with _collecting:
        seen: dict[Failing, int] = {}
        dependent: list[tuple[KnownFault, Failing | None, int]] = []
        ahead: list[Failing] = [timeline]
        while ahead:
            line = ahead.pop()
            if line.queue == 0 or line.lost is not None:  # a lost queue is the parent's, or not there any more
                continue
            count = line.counters[FAULTS]
            if count == seen.get(line, line.faults.seen):
                continue
            seen[line] = count
            for known, source, first in line.faults.take_new(line):
                dependent.append((known, source, first))
                if source is not None:
                    ahead.append(source)
        for known, source, first in dependent:
            known.cause = source.faults.at(first) if source is not None else None
            if known.cause is None and source is not None:  # of many withdrawals a backend keeps the last ones
                error = source.faults.withdrawals.error(first, source.label)
                known.cause = None if error is None else _forgotten(first, error)
        for known, source, _ in dependent:
            known.explain()
            known.inner = source is not None and source.owned and not (known.origin is None or known.origin.withdrawn)
        for line, count in seen.items():
            del line.faults.known[:-FAULTS_KEPT]
            line.faults.seen = count  # last: who finds it up to date relies on the list


def _forgotten(first: int, error: WithdrawnError) -> KnownFault:
    """A withdrawal that its backend does not keep any more."""
    return KnownFault(Fault(first, first, error, withdrawn=True), KeptError(error, ours=True), first)


def tell(timeline: Failing, fault: KnownFault) -> bool:
    """Note that a waiter is being told; that ends the fault, and what is submitted from now on runs again.

    Returns whether this waiter is the first one.
    """
    global tellings
    with _collecting:
        if fault.told:
            return False
        fault.told = fault.retrieved = True
        tellings += 1
        timeline.faults.untold.remove(fault)
        if fault.last is None:
            executor, queue = timeline.open_queue()
            executor.forgive(queue)
            # Where it ended, by the executor's word: others may be submitting.
            ends = (ended.last for ended in executor.faults(queue) if ended.first == fault.first)
            last = next(ends, None) or timeline.counters[SUBMITTED]
            timeline.faults.end(fault, last)
            timeline.distrust(fault.first, last)
    if fault.cause is not None:
        fault.cause.retrieved = True
    return True


def note_withdrawal() -> None:
    """Note that operations do not run, and that somebody knows of it."""
    global tellings
    with _collecting:
        tellings += 1


def forget_collecting_after_fork() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global _collecting
    _collecting = threading.RLock()


def root_cause(error: BaseException) -> BaseException:
    """The failure at the origin of a chain of dependencies."""
    while isinstance(error, DependencyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def dependency_error(operation: str, cause: BaseException | None) -> DependencyError:
    error = DependencyError(operation)
    error.__cause__ = cause
    return error
