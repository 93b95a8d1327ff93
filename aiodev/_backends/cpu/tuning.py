"""What the CPU's executors and memory weigh against each other: one constant for each cost that is traded for another.

Times are in ns, of which a kernel's indices cost some thousandths each (``Entry.cost`` is in ps). Each constant says what more
and what less of it costs. How long a worker looks for work before it sleeps is a setting, ``AIODEV_WORKER_SPIN_US``; what it
learns about that is below.
"""

from __future__ import annotations

from typing import Final

# Looking for work

#: Of the longest time that work took to come, a worker looks for twice as long, and for so much (ns) on top. More: it still
#: looks when nothing comes; less: it sleeps just before work that comes a little later than usual, and a wake-up takes tens
#: of µs.
SPIN_MARGIN: Final = 5_000
#: A worker that would look for no longer than this (ns) sleeps at once. More: it gives up sooner after work that comes
#: rarely; less: it takes more rounds of looking in vain, a quarter less each, until it gives up.
SHORTEST_SPIN: Final = 1_000
#: A spin loop that saw no clock for this long (ns) was not running: its core was taken. More: a taken core is noticed late,
#: and whoever has it waits for a thread that does nothing; less: an interrupt is taken for that.
PREEMPTED: Final = 50_000
#: Idle periods without spinning after that. More: work waits for wake-ups though the core is free again; less: the worker
#: keeps taking a core that others need.
PENALTY: Final = 8
#: While spinning for work, ``sched_yield`` this often (ns): the worker with a range's last chunk may need this core. More:
#: that one waits as long; less: work that comes meanwhile waits for a call of the system.
OFFER: Final = 8_000

# Fair shares

#: How far (ns) a queue gets ahead of another one that waits before that has its turn. More: a short request waits longer
#: behind others; less: switching, which costs what is in the caches, comes more often, and requests take several turns.
SLICE: Final = 250_000
#: What operations are thought to have taken (ns) when it is time to look at the clock, and to count it. More: shares are less
#: fair, by so much for each worker; less: short operations, of some tens of ns, pay for the look.
LOOK: Final = 20_000
#: What an operation is thought to take at least (ns): of short ones it is time to look at every 32nd. More and less: as
#: ``LOOK``.
OPERATION: Final = LOOK // 32
#: An interval that is longer than this (ns) is looked at more closely: the thread may have had no core meanwhile. More: a
#: queue pays for what other processes took; less: a call of the system, of a third of a µs, for more of the intervals.
SUSPICIOUS: Final = 200_000

# Sharing a kernel

#: A kernel that is expected to take less than this (ns) runs in one call, on one worker. More: kernels that a second worker
#: would have made faster have one; less: waking that one, and moving what it writes between caches, costs more than it saves.
SERIAL_BELOW: Final = 8_000
#: No chunk of a range takes much longer than this (ns). More: more urgent work, and the end of the range, wait for it; less:
#: more claims, each of which takes a cache line from another core.
CHUNK: Final = 50_000
#: No chunk is smaller than this part of that. More: the members of a range end at the same time; less: fewer claims.
PARTS: Final = 16
#: Chunks begin at multiples of this many indices. More: shares of short ranges differ by more; less: a chunk begins within a
#: vector or a cache line, which two cores then write to.
GRAIN: Final = 64
#: A worker in a range offers its core to others this often (ns). More: an event loop whose timer is due waits for its core;
#: less: a call of the system for shorter chunks.
YIELD_EVERY: Final = 50_000

# Helping

#: How long (ns) a helper that has left is expected back. More: what it has left waits for it that long if it does not come;
#: less: a worker is woken that then takes the helper's core.
BACK: Final = 100_000
#: The same of a worker that was woken for a queue whose range a helper has opened; a wake-up takes most of that. More and
#: less: as ``BACK``.
ARRIVAL: Final = 150_000
#: A helper looks this often (ns) whether its loop has something to do. More: the loop is as late; less: a call of the system
#: for shorter chunks.
LOOK_EVERY: Final = 50_000
#: How long (ns) a helper looks for something to help with before it has helped. More: a wait that nobody can help with parks
#: as much later; less: it misses what is about to begin.
PATIENCE: Final = 3_000
#: And after it has helped (ns): others are at their last chunks. More: a core is kept from them; less: it parks just before
#: the end.
LONGER: Final = 50_000

# Cores

#: How long (ns) to wait at least for a worker that has been sent to another core. More: the waiter spins for one that is not
#: served there; less: it parks while the worker is on its way.
MOVED: Final = 60_000
#: Moves of a worker are at least this long apart (ns). More: it shares a core with who waits for it for longer; less: moves,
#: of some µs each, where the others are taken and it comes back.
SHORTEST: Final = 1_000_000
#: And at most this long (ns), where they come again and again. More: it takes as long until it is tried again; less: moves in
#: vain.
LONGEST: Final = 256_000_000
#: A move that lasted: this many times as long as moves were apart. More: it is seldom taken for a success; less: moves in
#: vain.
LASTED: Final = 4
#: How long it counts that a worker was on this core (ns): after a pause it wakes up there sooner than on a core that sleeps.
#: More: a worker that has gone elsewhere is sent away; less: one that is still here is left in the way.
RECENT: Final = 500_000
#: Niceness of workers. A worker never waits, so beside it an event loop, which mostly does, would wake up late, by as much as
#: the scheduler's slice (3.7 ms at the 99th percentile on two cores; 2 ms with this). On an idle machine it changes nothing.
#: More: other processes have the cores; less: event loops are later.
NICE: Final = 5

# The portable executor, whose steps cost a microsecond

#: Indices below which a range is not shared. More: cores idle; less: sharing costs more than it saves.
PORTABLE_GRAIN: Final = 1 << 14
#: A chunk that takes longer than this (ns) is followed by shorter ones. More: more urgent work waits as long; less: more
#: steps.
PORTABLE_CHUNK: Final = 100_000
#: What an operation takes besides its work (ns). More: queues of short operations count as having had more than they had;
#: less: as having had less.
PORTABLE_OVERHEAD: Final = 1_000

# Memory

#: Allocations from this many bytes on are aligned to, and made of, huge pages. More: more translations of addresses where
#: memory is read at random; less: the address space that aligning wastes, and whole huge pages that are touched in part.
HUGE_FROM: Final = 4 << 20
#: What an allocation must reach before the machine is asked whether it has that many bytes. More: more memory may be promised
#: than there is; less: asking, which takes tens of µs, comes more often.
CHECK_FROM: Final = 16 << 20
