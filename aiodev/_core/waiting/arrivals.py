"""Arrivals: what one task takes as it is done, of many operations, and waits for while nothing is.

**Problem.** Who waits for the first of many points, then for the first of the rest, and so on, enters and leaves the wait set
for all of them every time: a thousand completions take half a million entries.

**Invariants.**

1.  What is expected enters the wait set once, and stays until it has arrived, also while the task does other things. So a step
    costs what arrives in it, however much is still expected.
2.  What has arrived is looked at by whoever takes it, and expected once more if it is not done: a wake-up may be spurious.
3.  The wait set refers to the arrivals and to what is expected, never to who takes it: a generator that was left is collected,
    and then nothing of it stays (:meth:`Arrivals.leave`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from aiodev._core.waiting.reactor import current_reactor

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._core.waiting.line import Line, Wait, Waiter

_Item = TypeVar("_Item")


class Arrivals(Generic[_Item]):
    """What has arrived, and what is expected.

    Attributes:
        arrived: what to take, from the left.
    """

    __slots__ = ("_expected", "_reactor", "_waiter", "arrived")

    def __init__(self) -> None:
        self.arrived: deque[_Item] = deque()
        self._expected: dict[_Entry[_Item], None] = {}
        self._reactor: Line | None = None  # in whose wait set the entries are
        self._waiter: Waiter | None = None  # of the task, while it is suspended

    def __bool__(self) -> bool:
        """Whether there is anything to take, or to wait for."""
        return bool(self.arrived or self._expected)

    def expect(self, timeline: Timeline, value: int, item: _Item) -> None:
        """Have ``item`` arrive when operation ``value`` of ``timeline`` is done; now, if it is."""
        reactor = self._move_here()
        entry = _Entry(self, reactor, timeline, value, item)
        self._expected[entry] = None
        if timeline.deferred:
            timeline.handle.start_soon(lambda error: reactor.call_threadsafe(entry.resume_soon))
            return
        if not timeline.parked:
            timeline.parked_at = time.monotonic_ns()
        if timeline.reached(value) or not reactor.waits.add(timeline, value, entry):
            self._arrive(entry)

    def __await__(self) -> Wait:
        """Wait until something has arrived."""
        reactor = self._move_here()
        while not self.arrived:
            self._waiter = waiter = reactor.waiter()
            try:
                yield from reactor.suspend(waiter)
            finally:
                self._waiter = None

    def leave(self) -> None:
        """Wait for nothing any more; in a thread where the loop does not run, have it do that."""
        reactor, expected = self._reactor, self._expected
        self._reactor, self._expected = None, {}
        if reactor is None or not expected or not reactor.waits.descriptor.is_ours:
            return
        waits = reactor.waits

        def discard() -> None:
            for entry in expected:
                waits.discard(entry.timeline, entry.value, entry)

        if reactor is _reactor_here():
            discard()
        else:
            reactor.call_threadsafe(discard)

    def _move_here(self) -> Line:
        """The reactor of the loop that runs here. Where another one ran before, all is looked at again."""
        reactor = current_reactor()
        if self._reactor is not reactor:
            self.arrived.extend(entry.item for entry in self._expected)
            self.leave()
            self._reactor = reactor
        return reactor

    def _arrive(self, entry: _Entry[_Item]) -> Waiter | None:
        """Note that it has arrived; who is to be resumed, again if that was interrupted."""
        if entry.reactor is not self._reactor:  # it was left, and stood in line
            return None
        if entry in self._expected:
            self.arrived.append(entry.item)
            del self._expected[entry]
        return self._waiter


class _Entry(Generic[_Item]):
    """What stands in the wait set, and then in line, for something that is expected."""

    __slots__ = ("_arrivals", "item", "reactor", "timeline", "value")

    def __init__(self, arrivals: Arrivals[_Item], reactor: Line, timeline: Timeline, value: int, item: _Item) -> None:
        self._arrivals, self.reactor = arrivals, reactor
        self.timeline, self.value, self.item = timeline, value, item

    def resume(self) -> None:
        """Called by the reactor: it has arrived, and its turn has come."""
        waiter = self._arrivals._arrive(self)
        if waiter is not None:
            waiter.resume()

    def resume_soon(self) -> None:
        """As ``resume``, in a turn of its own."""
        waiter = self._arrivals._arrive(self)
        if waiter is not None:
            waiter.resume_soon()


def _reactor_here() -> Line | None:
    try:
        return current_reactor()
    except RuntimeError:  # no loop runs here
        return None
