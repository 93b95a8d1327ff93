"""A cooperative budget: awaits that need no waiting must still let other tasks run now and then.

An ``await`` of something done makes no round trip through the event loop. A task that meets only such awaits, or short
spins, would hold its loop for ever, so it yields once it has met 128 of them or 1 ms has gone by, whichever is first. The
idea and the number are tokio's ("Reducing tail latencies with automatic cooperative task yielding", 2020).

The budget is kept for each thread, not for each task: a task that yields early because another has spent the budget pays
one round trip, and no look-up of the current task is needed where a nanosecond counts.
"""

from __future__ import annotations

import itertools
import threading
from time import perf_counter_ns

AWAITS = 128
PERIOD_NS = 1_000_000
_CLOCK_EVERY = 8


class Budget(threading.local):
    """What this thread's tasks may still do before one of them has to yield."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start afresh: the task has just been resumed by the loop."""
        self.left = AWAITS
        self.since = perf_counter_ns()
        #: Counts one await that needs no waiting; raises StopIteration when it is time to ask ``over``. A C function,
        #: since a Python one would double the cost of such an await.
        self.tick = itertools.repeat(None, _CLOCK_EVERY).__next__

    def over(self) -> bool:
        """Whether the task has to yield now."""
        self.left -= _CLOCK_EVERY
        self.tick = itertools.repeat(None, _CLOCK_EVERY).__next__
        return self.left <= 0 or perf_counter_ns() - self.since > PERIOD_NS


budget = Budget()
