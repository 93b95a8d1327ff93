"""Crowding: where other processes want the cores as well, no thread of ours spins or moves, and few offer their core.

A system's scheduler gives each thread its share of a core. A thread that sleeps more than others is served at once on waking.
One that spins uses up its share, and waits for the others' whole slices, of several ms, whenever it is switched out or has
slept. So what saves microseconds on an idle machine costs milliseconds on one that is not. A thread that offers its core, too,
has it back when the others have had a slice.

No thread can tell beforehand. So all threads of an executor tell each other what they see: one that looks for work and finds
that the clock has jumped had no core meanwhile, nor had one that was woken and came late; unless all workers are awake, when
there are more threads of ours than cores. From then on the machine counts as *crowded*, for a time that doubles for as long as
the next attempt ends in the same way. So attempts take about a hundredth of the time where the others stay, and little is lost
where they are gone, or where it was none of them.

Where a process has a single core it is always crowded, by its own threads.

Where others crowd, each thread has the share of one. A pool of threads, of which more are at work than there are cores, gets
more of the cores than as many workers do. So a few more workers are in *reserve*, which are woken then, for queues that wait;
and on a single core, which nobody can tell to be free of others.
"""

from __future__ import annotations

from aiodev._backends.cpu.structs import Crowd
from aiodev._backends.cpu.tuning import ALONE, ALONE_IN_A_CROWD, CALM, DOUBTED, FORGOTTEN, LONGEST_CROWD, SHORTEST_CROWD
from aiodev._native.compile import inner

#: In place of a time: it stays crowded. Times are added to it, so it is not the last one that there is.
ALWAYS = 1 << 62


@inner
def is_crowded(crowd: Crowd, time: int) -> bool:
    """Whether the machine counts as crowded at ``time``, which is now."""
    return time < crowd.until.load()


@inner
def is_shared(crowd: Crowd) -> bool:
    """Whether all threads of this process have one core together."""
    return crowd.until.load() == ALWAYS


@inner
def note_crowd(crowd: Crowd, time: int) -> None:
    """Note that a thread was kept from its core, as seen at ``time``, which is now; in a crowded time that is nothing new."""
    until, span = crowd.until.load(), crowd.span
    if time < until or span < 0:
        return
    again = span != 0 and time - until < FORGOTTEN and crowd.calm.load() < CALM
    crowd.span = min(2 * span, LONGEST_CROWD) if again else SHORTEST_CROWD
    crowd.calm.store(0)
    crowd.until.compare_exchange(until, time + crowd.span)


@inner
def note_calm(crowd: Crowd, time: int, duration: int) -> None:
    """Note that a thread has kept its core for so many ns up to ``time``, which is now, while others ran the same kernel."""
    if time >= crowd.until.load():
        crowd.calm.fetch_add(duration)


@inner
def alone_until(crowd: Crowd, time: int) -> int:
    """Until when one thread runs a range that is opened at ``time``, which is now, before others are woken to help."""
    return time + (ALONE_IN_A_CROWD if time < crowd.until.load() + DOUBTED else ALONE)
