"""Vector clocks between timelines: which operations an operation follows, and counts of what ordering took."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.config import settings

__all__ = ["NO_CLOCK", "Clock", "PartialClock", "follows", "merged", "totals"]


class Ordered(Protocol):
    """A timeline, as far as order is concerned."""

    @property
    def counters(self) -> Sequence[int]: ...

    held: int  #: gates that are shut and that only the program opens

    def reached(self, value: int) -> bool: ...

    def clocks_at(self, value: int) -> Sequence[Clock]: ...


#: A vector clock: what has run before, as the number of an operation of each timeline.
Clock = Mapping[Ordered, int]
NO_CLOCK: Clock = {}


#: Timelines in a clock. Smaller: more waits are enqueued that are implied. Larger: a chain of streams that wait for each other
#: in turn takes that many times as much memory and time as it has links. In debug mode clocks are whole.
MOST_KNOWN = sys.maxsize if settings.debug else 64


class PartialClock(dict[Ordered, int]):
    """A clock that leaves out points: what it says is true, and there is more.

    Once the operation that it is of is done, so is all that it leaves out.
    """

    __slots__ = ()


def merged(known: Clock, clock: Clock, own: Ordered, other: Ordered, value: int) -> Clock:
    """The later points of both, without those that are reached, and without those of ``own``; and ``value`` of ``other``.

    Of more than :data:`MOST_KNOWN` the newest, which are more likely to be waited for again.
    """
    later = {t: v for t, v in known.items() if t.counters[COMPLETED] < v}
    for t, v in clock.items():
        if t is not own and later.get(t, 0) < v and t.counters[COMPLETED] < v:
            later[t] = v
    later.pop(other, None)
    later[other] = value
    if len(later) > MOST_KNOWN:
        return PartialClock(itertools.islice(later.items(), len(later) - MOST_KNOWN, None))
    return PartialClock(later) if type(known) is PartialClock or type(clock) is PartialClock else later


def follows(timeline: Ordered, value: int, other: Ordered, last: int) -> bool:
    """Whether operation ``value`` of ``timeline`` runs after ``last`` of ``other``, which is not done, through whatever others.

    Exact where timelines know their past clocks (:attr:`Timeline.past`), which takes time and memory: for debugging.
    """
    seen = {timeline: value}
    ahead = [(timeline, value)]
    while ahead:
        line, point = ahead.pop()
        if line is other and point >= last:
            return True
        for clock in line.clocks_at(point):
            for t, v in clock.items():
                if seen.get(t, 0) < v and not t.reached(v):
                    seen[t] = v
                    ahead.append((t, v))
    return False


class Counters:
    """Counts of what the runtime did, for :func:`aiodev.profiler.counters`; plain integers, exact under the GIL."""

    __slots__ = ("events_recorded", "waits_elided", "waits_enqueued")

    def __init__(self) -> None:
        self.events_recorded = 0
        self.waits_enqueued = 0
        self.waits_elided = 0


totals = Counters()
