"""What the core weighs against each other: one constant for each cost that is traded for another.

Each says its unit, and what more and what less of it costs. What backends weigh is in a ``tuning.py`` of their own. How long a
wait spins is a setting, ``AIODEV_SPIN_US``.
"""

from __future__ import annotations

from typing import Final

# Spinning

#: A spin would have met a wait that took, with its wake-up, no longer than this many times the longest spin. More: spins in
#: vain; less: parking for what is soon done.
SOON: Final = 2
#: Quick waits that it takes at most, before spinning is tried again. More: a stream whose operations have become short parks
#: as often; less: where the cores are taken, more spins in vain.
MOST_DOUBTS: Final = 15

# Helping

#: For so long (ns) a thread helps at most before its loop has a turn, or it looks whether it was interrupted. More: Ctrl-C,
#: and what only a turn shows, are as late; less: turns of the loop while there is nothing for it to do.
TURN_NS: Final = 20_000_000
#: The same for a loop that does not show what it has to do (ns). More: its tasks and timers are as late; less: nearly nothing
#: of an operation is done in such a time.
BLIND_TURN_NS: Final = 200_000
#: Park after this many consecutive loop turns in which other callbacks were ready. More: turns that cost the others time;
#: less: a wait beside a task that does little parks instead of helping.
MOST_TURNS: Final = 4
#: This many times as long as a thread has helped blindly, it leaves to its loop. More: less help; less: its tasks and timers
#: are late.
REST: Final = 4
#: A thread that has helped for longer (ns) has looked not long ago for what its loop has to do. More: turns that find
#: nothing; less: a turn that is due is left out.
LOOKED_NS: Final = 100_000

# Fairness

#: Awaits that need no waiting, until a task yields; the number is tokio's. More: others wait for longer; less: more round
#: trips.
AWAITS: Final = 128
#: A task that awaits yields once this time (ns) has gone by since the loop's last turn. A timer is to be late by no more than
#: a millisecond and the stretch in which the period ends; the turns in between take up to 0.1 ms of that. More: timers are as
#: late; less: more round trips.
PERIOD_NS: Final = 900_000
#: How many tasks of the line the first batch resumes. More: that turn takes longer than a period; less: more turns until
#: batches are as large as they can be.
FIRST_BATCH: Final = 64
#: And the largest. More: a turn takes long where tasks that did little begin to do much; less: ten thousand tasks take more
#: turns.
LARGEST_BATCH: Final = 4096

# What finished operations hold

#: Host memory (bytes) that operations of a stream may need, done or not, until the watcher tends it. More: finished streams
#: that nobody waits for hold more; less: the watcher wakes up, ten times a second, for streams that make do with little.
TENDED_BYTES: Final = 1 << 20
#: Milliseconds between two looks of the watcher at such streams. More: memory is held as much longer; less: more wake-ups.
TEND_EVERY: Final = 100
#: Every so many waits between streams, what finished ones hold is let go of. More: streams are held for longer; less: each
#: wait takes longer.
RELEASE_EVERY: Final = 16

# Threads

#: Seconds after which a thread for called functions that has nothing to do ends. More: threads that nobody needs; less: every
#: burst of calls starts threads anew.
IDLE_SECONDS: Final = 5.0
