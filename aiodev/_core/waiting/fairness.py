"""Whoever awaits yields in time, and whoever was woken goes on in turn: so no loop is held for longer than a millisecond.

**Problem.** An ``await`` of something done makes no round trip through the event loop, so a task that meets only such awaits
holds its loop for ever. And a loop runs *everything* that is ready in one turn, and looks at its timers between two turns:
eight tasks that each compute for 1.5 ms and then yield hold it for 12 ms a turn, and so do eight whose operations one wake-up
of the loop finds done.

**Invariants.**

1.  A task that awaits yields once ``PERIOD_NS`` have gone by since the loop's last turn, whatever it did in between, or once it
    has met ``AWAITS`` awaits that need no waiting. The idea and the second number are tokio's ("Reducing tail latencies with
    automatic cooperative task yielding", 2020). Where others are ready it yields after ``SHARE_NS`` already: of sixteen that
    need not wait the last would else come after sixteen periods. Where nobody is, only the period ends its turn.
2.  Tasks that yield for the time, and tasks whose operation is done, stand in one line, first in, first out. They are resumed
    in batches, and before each batch there is a turn of the loop in which no task of the line runs, but timers that are due do.
    Nor does one then that awaits for the first time: it finds the period over, and stands in line. Who yields within the period
    waits for a turn of the loop only; if that was the last of the period he stands in line, ahead of those who came meanwhile.
    Trio runs what it resumes in one turn in any order: there the line says in which turn, no more.
3.  A batch ends when it has had its time; who has not gone on by then stays, or is again, at the head of the line. The first of
    a batch always goes on, so the line always moves.

So a timer is late by no more than one stretch of work between two awaits, and ``PERIOD_NS``.

The budget is kept for each thread, not for each task: a task that yields early because another has spent the budget pays
one round trip, and no look-up of the current task is needed where a nanosecond counts.
"""

from __future__ import annotations

import threading
from itertools import repeat, starmap, takewhile
from time import perf_counter_ns

from aiodev._core.tuning import AWAITS, PERIOD_NS, SHARE_NS

#: The clock of budgets, in ns. A test may replace it; the new one counts from the next renewal of a budget on.
clock = perf_counter_ns


class Budget(threading.local):
    """What this thread's tasks may still do before one of them has to yield."""

    def __init__(self) -> None:
        self.renew(clock())

    def renew(self, now: int) -> None:
        """Start afresh: the loop has just had a turn."""
        self.until = now + PERIOD_NS
        self.begin_share(now)

    def begin_share(self, now: int) -> bool:
        """Allow a task as many awaits that need no waiting as ever, and its share of the period; False if that is over."""
        until = self.until
        if now >= until:
            return False
        #: Counts one such await, and looks at the clock; raises StopIteration when it is time to look at who else is there, and
        #: from then on. It is one look-up in a thread's storage and one native call: to count and to compare in Python takes a
        #: fifth more.
        self.tick = takewhile(min(until, now + SHARE_NS).__gt__, starmap(clock, repeat((), AWAITS))).__next__
        return True

    def end(self) -> None:
        """Have whoever awaits yield, until the next renewal: what is left of the period is not for newcomers."""
        self.until = 0
        self.tick = repeat(0, 0).__next__

    def over(self) -> bool:
        """Count one await that needs no waiting; whether the task has to yield now, to whoever else is ready."""
        try:
            self.tick()
        except StopIteration:
            return True
        return False

    def late(self) -> bool:
        """Whether it is the time that is over."""
        return clock() >= self.until


budget = Budget()
