"""What the host knows of failures on a timeline."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aiodev._core.backend import FAULTS, SUBMITTED, Fault
from aiodev._core.errors import DependencyError, fresh
from aiodev._core.withdrawal import Withdrawals

if TYPE_CHECKING:
    from aiodev._core.timeline import Timeline

__all__ = ["FaultLog", "KnownFault", "dependency_error", "learn", "root_cause", "tell"]

_KEPT = 1024  # whoever waits for an older one finds nothing; each was told or reported
_learning = threading.RLock()  # re-entrant, for a fault's cause is on another timeline


class KnownFault:
    """A fault as the host knows it; ``cause`` is the fault of another timeline that it comes from.

    ``first`` and ``guarded`` are the operations that failed themselves, mostly one; the others did not run.
    ``told``: a waiter of this timeline was told, so that it has ended. ``retrieved``: somebody knows of it, if only through
    a timeline that depends on this one, so that it need not be reported.
    """

    __slots__ = ("_traceback", "cause", "error", "first", "guarded", "last", "retrieved", "told")

    def __init__(self, fault: Fault, error: BaseException, guarded: int) -> None:
        self.first = fault.first
        self.guarded = guarded
        self.last = fault.last
        self.cause: KnownFault | None = None
        self.error = error
        self._traceback = error.__traceback__
        self.told = False
        self.retrieved = False

    def explain(self) -> None:
        """Put the failure at the origin of ``cause`` into ``error``, which says that an operation did not run."""
        chain: list[KnownFault] = []
        fault = self
        while fault.cause is not None and fault.error.__cause__ is None:
            chain.append(fault)
            fault = fault.cause
        origin = root_cause(fault.error)
        for explained in chain:
            explained.error.__cause__ = origin

    def to_raise(self) -> BaseException:
        """The failure for a waiter. What a called function raised is raised itself, without the frames of earlier waiters."""
        return fresh(self.error).with_traceback(self._traceback)

    def covers(self, value: int) -> bool:
        """Whether operation ``value`` failed or did not run because of this."""
        return self.first <= value and (self.last is None or value <= self.last)


class FaultLog:
    """The faults of a timeline, oldest first, as far as they have been learnt.

    It does not know its timeline, which would keep the two of them from going as soon as nobody holds the timeline.

    Attributes:
        known: those that have been learnt.
        seen: the timeline's counter of faults as it was then.
        withdrawals: what was withdrawn.
    """

    __slots__ = ("_gates", "known", "seen", "withdrawals")

    def __init__(self) -> None:
        self.known: list[KnownFault] = []
        self.seen = 0
        self.withdrawals = Withdrawals()
        self._gates: dict[int, tuple[int, BaseException]] = {}

    def gate_fails(self, gate: int, guards: int, error: BaseException) -> None:
        """Note why a gate is about to be opened as failed, and which operation it is a part of."""
        if self.withdrawals.ahead_of(gate) != gate:
            return  # nobody will ask
        self._gates[gate] = guards, error

    def at(self, value: int) -> KnownFault | None:
        """The known fault that covers a finished operation, or None."""
        for fault in reversed(self.known):
            if fault.covers(value):
                return fault
            if fault.first < value:  # faults are in order: the older ones ended earlier still
                return None
        return None

    def take_new(self, timeline: Timeline) -> list[tuple[KnownFault, Timeline | None, int]]:
        """Take new faults into the list; returns those that come from another timeline, with it and its fault's number."""
        dependent: list[tuple[KnownFault, Timeline | None, int]] = []
        known = {fault.first for fault in self.known}
        for fault in timeline.entry.backend.faults(timeline.queue):
            if fault.first in known:
                continue
            guarded, error = self._gates.pop(fault.first, (fault.first, fault.error))
            if fault.withdrawn:
                error = self.withdrawals.error(fault.first, timeline.label)
            what = timeline.label if fault.dependency is None else f"an operation of {timeline.label}"
            found = KnownFault(fault, error or dependency_error(what, None), guarded)
            if fault.withdrawn:  # who withdrew knows, but not who submitted what is behind
                found.retrieved = True
                found.told = not self.withdrawals.takes_along(fault.first, fault.last or fault.first)
            self.known.append(found)
            if fault.dependency is not None:
                queue, first = fault.dependency
                dependent.append((found, timeline.kept_timeline(queue), first))
        return dependent


def learn(timeline: Timeline) -> None:
    """Learn of new faults, here and on every timeline that they come from, and then what caused each.

    Not by recursion: streams that wait for each other in turn have faults that come from each other in turn, and a chain
    of dependent streams may be longer than the stack.
    """
    with _learning:
        seen: dict[Timeline, int] = {}
        dependent: list[tuple[KnownFault, Timeline | None, int]] = []
        ahead: list[Timeline] = [timeline]
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
                known.error.__cause__ = source.faults.withdrawals.error(first, source.label)
        for known, _, _ in dependent:
            known.explain()
        for line, count in seen.items():
            del line.faults.known[:-_KEPT]
            line.faults.seen = count  # last: who finds it up to date relies on the list


def tell(timeline: Timeline, fault: KnownFault) -> None:
    """Note that a waiter is being told; that ends the fault, and what is submitted from now on runs again."""
    with _learning:
        if fault.told:
            return
        fault.told = fault.retrieved = True
        if fault.last is None:
            backend, queue = timeline.entry.backend, timeline.queue
            backend.forgive(queue)
            # Where it ended, by the backend's word: others may be submitting.
            ends = (ended.last for ended in backend.faults(queue) if ended.first == fault.first)
            fault.last = next(ends, None) or timeline.counters[SUBMITTED]
            timeline.distrust(fault.first, fault.last)
    if fault.cause is not None:
        fault.cause.retrieved = True


def forget_learning_after_fork() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global _learning
    _learning = threading.RLock()


def root_cause(error: BaseException) -> BaseException:
    """The failure at the origin of a chain of dependencies."""
    while isinstance(error, DependencyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def dependency_error(operation: str, cause: BaseException | None) -> DependencyError:
    error = DependencyError(operation)
    error.__cause__ = cause
    return error
