"""Other processes: where they want the cores as well, nobody here spins, offers its core or moves.

A system's scheduler gives each thread its share of a core. Who sleeps more than others is served at once on waking; who spins
uses up its share, and waits for the others' whole slices, of several ms, whenever it is switched out or has slept. So what
saves microseconds on an idle machine costs milliseconds on one that is not. Who offers its core, too, has it back when the
others have had a slice.

Nobody can tell beforehand. So all threads of an executor tell each other what they see: one that looks for work and finds that
the clock has jumped had no core meanwhile, nor had one that was woken and came late. From then on the machine is *crowded*, for
a while that doubles for as long as the next attempt ends in the same way. So trying costs about a hundredth of the time where
others stay, and nothing is lost for long where they are gone, or where it was none of them.
"""

from __future__ import annotations

from aiodev._backends.cpu.structs import Crowd
from aiodev._backends.executor.compile import inner

#: A thread that saw no clock for this long (ns), though it did nothing else, was not running: its core was taken. Our own
#: threads that meet on a core let go of it sooner, between two pieces of a kernel; processes that compute take whole slices.
TAKEN = 1_000_000
#: A thread that runs so long (ns) after it was woken has waited for a core. Cores that sleep take up to 0.2 ms to wake.
LATE = 1_000_000
#: The machine is taken to be crowded for so long (ns) at first, and at most where it is so again and again.
SHORTEST, LONGEST = 20_000_000, 1_280_000_000
#: Nothing was seen for so long (ns): the next time is a first one.
FORGOTTEN = 2_000_000_000
#: For so long (ns) after that time threads only look whether they are kept from their cores, before they share kernels again.
DOUBTED = 20_000_000
#: How long (ns) a range is run by one thread until others are woken to help; and on a crowded machine, where one of them that
#: has a piece and no core is waited for, for as long as several slices of others.
ALONE, ALONE_IN_A_CROWD = 100_000, 10_000_000


@inner
def is_crowded(crowd: Crowd, time: int) -> bool:
    """Whether the machine is taken to be crowded; it is ``time``."""
    return time < crowd.until.load()


@inner
def note_crowd(crowd: Crowd, time: int) -> None:
    """Note that a thread was kept from running, as seen now, which is ``time``. What is known already counts for nothing."""
    until, span = crowd.until.load(), crowd.span
    if time < until:
        return
    crowd.span = min(2 * span, LONGEST) if span != 0 and time - until < FORGOTTEN else SHORTEST
    crowd.until.compare_exchange(until, time + crowd.span)


@inner
def alone_until(crowd: Crowd, time: int) -> int:
    """Until when a range that is opened now, which is ``time``, is run by one thread."""
    return time + (ALONE_IN_A_CROWD if time < crowd.until.load() + DOUBTED else ALONE)
