"""Tuning of the core: the constants that trade one cost for another.

Each says its unit, and what a larger and a smaller value costs. Backends have a ``tuning.py`` of their own. How long a wait
spins is a setting, ``AIODEV_SPIN_US``, and follows the usable cores (:mod:`aiodev._core.waiting.spinning`).
"""

from __future__ import annotations

from typing import Final

# Spinning

#: A wait that took no longer, with its wake-up, than this many times the longest spin would have been met by a spin. Larger:
#: spins in vain; smaller: waits park for what is soon done.
SOON: Final = 2
#: Where nobody spins a wait helps for this long (ns) at once; one that took no longer could have been over by that. Larger: the
#: loop's other tasks, and timers, wait for longer; smaller: for short work a wait has a turn of the loop, and may park.
AT_ONCE_NS: Final = 100_000
#: Most quick waits that it takes before a timeline's waits spin again. Larger: a stream whose operations have become short
#: parks for longer; smaller: more spins in vain where the cores are taken.
MOST_DOUBTS: Final = 15
#: Spins that were not in vain, one after the other, behind which one that is in vain is forgiven. Larger: after each of those
#: waits park; smaller: where long waits come in turns with short ones, each takes a spin in vain.
MOST_TRUST: Final = 8

# Helping

#: Longest help (ns) before the loop has a turn, or the thread handles signals. Larger: Ctrl-C, and what only a turn shows,
#: are later; smaller: more turns in which the loop has nothing to do.
TURN_NS: Final = 20_000_000
#: The same for a loop whose other work is not seen (ns). Larger: callbacks and timers of the loop are later; smaller: nearly
#: nothing of an operation is done in such a time.
BLIND_TURN_NS: Final = 200_000
#: Park after this many consecutive loop turns in which other callbacks were ready. Larger: a busy loop's wait keeps helping,
#: at the others' cost; smaller: a few callbacks end the help.
MOST_TURNS: Final = 4
#: After blind help, leave the loop this many times as long to its own work. Larger: less help; smaller: callbacks are later.
REST: Final = 4
#: Help of more than this (ns) has polled the loop's descriptor lately, so that the loop needs no turn to look. Larger: turns
#: that find nothing; smaller: a turn that is due is left out.
LOOKED_NS: Final = 100_000

# Fairness

#: Awaits that need no waiting, until a task yields; the number is tokio's. Larger: other tasks wait for longer; smaller: more
#: round trips.
AWAITS: Final = 128
#: A task that awaits yields once this time (ns) has gone by since the loop's last turn. A timer is to be late by no more than
#: a millisecond and the stretch in which the period ends; the turns of the loop in between take up to 0.1 ms of that. Larger:
#: later timers; smaller: more round trips.
PERIOD_NS: Final = 900_000
#: For this long (ns) a task that need not wait goes on while others of its loop are ready. Sixteen clients of a graphed
#: classifier, two cores: p99 16 to 18 ms with 900 µs here, 8.4 to 9.2 with 200, 8.1 to 8.6 with 100, 6.2 to 11.5 with 60;
#: an answer takes 0.17 to 0.19, 0.24, 0.20 to 0.24 and 0.26 to 0.32 ms. Larger: who is ready waits for longer; smaller: more
#: round trips. One that nobody waits for loses some 3 µs in as long.
SHARE_NS: Final = 60_000
#: Tasks of the line that the first batch resumes. Larger: that turn takes longer than a period; smaller: more turns until
#: batches are as large as they can be.
FIRST_BATCH: Final = 64
#: Tasks in the largest batch. Larger: a turn takes long where tasks that did little begin to do much; smaller: ten thousand
#: tasks take more turns.
LARGEST_BATCH: Final = 4096

# What finished operations hold

#: Bytes of host memory that operations of a stream, done or not, may need before the watcher tends the stream. Larger:
#: finished streams without waiters hold more; smaller: the watcher wakes up, ten times a second, for streams that need
#: little.
TENDED_BYTES: Final = 1 << 20
#: Milliseconds between two looks of the watcher at the timelines that are tended. Larger: memory of finished copies is held
#: for longer; smaller: more wake-ups of an idle process.
TEND_EVERY: Final = 100
#: Waits between two releases of the streams that finished waits hold. Larger: streams live for longer; smaller: slower waits.
RELEASE_EVERY: Final = 16

# Failures

#: Faults of a timeline that are kept, and withdrawals. Larger: more memory of a stream that fails all the time; smaller: who
#: waits later for an older one finds nothing, though each was told or reported.
FAULTS_KEPT: Final = 1024

# Forks

#: Seconds that a fork waits for a backend's start in progress. Larger: a driver that hangs delays the fork; smaller: the child
#: inherits a half-started backend.
HOLD_SECONDS: Final = 10.0
#: Seconds that a fork waits for others to be done with what is held whole. Larger: who compiles delays a fork for longer;
#: smaller: more children that inherit a lock inside a library for good.
FORK_PATIENCE: Final = 10.0
#: Seconds that the end of the program waits for a thread that looks for a module. Larger: a slow file system delays it for
#: longer; smaller: more programs that hang when something is imported afterwards.
IMPORT_PATIENCE: Final = 1.0

# Usable cores

#: Seconds between two looks at the process's CPU quota; an orchestrator takes longer to decide, a look costs some 0.2 ms.
#: Larger: threads spin for too long, or too little, for as long; smaller: more looks.
WATCH_SECONDS: Final = 1.0
#: Seconds for which threads spin shortly after the group was throttled for the first time. Larger: waits park for longer
#: after one throttling; smaller: more spins that use the quota up.
FIRST_REST: Final = 2.0
#: The most such seconds where that comes again and again; each time it is twice as long. Larger: a quota that suffices again
#: is used later; smaller: more spins that use the quota up.
LONGEST_REST: Final = 128.0

# Threads

#: Seconds after which an idle thread for called functions ends. Larger: threads that nobody needs; smaller: every burst of
#: calls starts threads anew.
IDLE_SECONDS: Final = 5.0
#: Seconds that who needs the watcher waits for a thread that starts it, and may be refused. Larger: a signal's handler that
#: interrupts just that takes as long; smaller: on a busy machine, where that thread has no core for milliseconds, work waits
#: for a watcher that was refused, until somebody else asks for it.
STARTING_PATIENCE: Final = 0.1

# Told, noted and kept

#: Seconds after which a compilation is reported, and between two reports. Larger: a silent program looks hung; smaller: noise.
LONG_COMPILATION: Final = 1.0
#: Operations of a timeline that are remembered in debug mode. Larger: more memory; smaller: older uses have no name.
OPERATIONS_REMEMBERED: Final = 1 << 16
#: Seconds that a read waits for a thread that has submitted something and has yet to note which memory it uses. Larger: a read
#: in a signal's handler that interrupts just that takes as long; smaller: on a busy machine, where that thread has no core for
#: milliseconds, an array may be read while it is written.
NOTING_PATIENCE: Final = 0.1
#: Streams that a recorder knows, at most; of others nothing is noted. Larger: a recorder holds more, 300 bytes each;
#: smaller: a program with many streams is shown in part.
STREAMS_TRACED: Final = 1_000_000
#: Executing slots that the streams of one device and priority share, round robin; 32 at most, since a stream's id has five bits
#: for them. Larger: more queues in memory; smaller: more streams wait behind one another.
EXECUTING_SLOTS: Final = 32
#: Places of a kept error's traceback, the innermost. Larger: a failure that is kept takes more memory; smaller: the outer calls
#: are not told.
PLACES_KEPT: Final = 64
#: Causes of causes of a kept error. Larger: it takes more memory; smaller: the first cause is not told.
CAUSES_KEPT: Final = 16
