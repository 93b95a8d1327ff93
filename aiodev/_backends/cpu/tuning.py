"""Tuning of the CPU's executors and memory: the constants that trade one cost for another.

Times are in ns, of which a kernel's indices cost some thousandths each (``Entry.cost`` is in ps). Each constant says what a
larger and a smaller value costs. How long a worker looks for work before it sleeps is a setting,
``AIODEV_WORKER_SPIN_US``; how it learns that is below.
"""

from __future__ import annotations

from typing import Final

# Looking for work

#: A worker spins for twice the longest time that work took to come, and for this (ns) on top. Larger: it still spins when
#: nothing comes; smaller: it sleeps just before work that comes a little later than usual, and a wake-up takes tens of µs.
SPIN_MARGIN: Final = 5_000
#: A worker that would spin for no longer than this (ns) sleeps at once. Larger: it gives up sooner after work that comes
#: rarely; smaller: it takes more spins in vain, a quarter shorter each, until it gives up.
SHORTEST_SPIN: Final = 1_000
#: While spinning for work, ``sched_yield()`` this often (ns): the worker with a range's last chunk may need this core.
#: Larger: that worker waits for longer; smaller: more system calls.
OFFER: Final = 8_000

# Fair shares

#: How far (ns of virtual time) a queue gets ahead of a waiting one before that has its turn. Larger: a waiting queue waits
#: for longer, and short requests take unequal times; smaller: more switches, each of which costs what is in the caches.
SLICE: Final = 250_000
#: Estimated time (ns) of operations after which a worker reads the clock and charges the queue. Larger: less exact shares;
#: smaller: more reads of the clock, between operations of some tens of ns.
LOOK: Final = 20_000
#: While others wait the clock is read at every so many operations at least, since they may take longer than they did, and at
#: each one behind some that did. Larger: others wait for more such operations; smaller: as ``LOOK``.
TRUSTED: Final = 8
#: Least estimate (ns) of an operation: the clock is read at every 32nd of short ones. Larger and smaller: as ``LOOK``.
OPERATION: Final = LOOK // 32
#: For an interval longer than this (ns), the time that the thread had no core is subtracted. Larger: queues are charged for
#: what other processes took; smaller: more system calls, of a third of a µs.
SUSPICIOUS: Final = 200_000

# Offering a core

#: While it runs kernels a worker calls ``sched_yield()`` this often (ns). Larger: an event loop on the same core is later;
#: smaller: more system calls.
YIELD_EVERY: Final = 50_000
#: Where others have had the core for longer than this (ns), a slice of a process that computes, it is offered next after as
#: long again. Larger: beside such processes work of low priority nearly stands still; smaller: an event loop that uses its
#: core for as long is late the next time.
GIVEN: Final = 3_500_000

# Sharing a kernel

#: A kernel that is expected to take less than this (ns) runs in one call, on one worker. Larger: kernels that two cores would
#: halve run on one; smaller: opening the range costs more than it saves.
SERIAL_BELOW: Final = 8_000
#: Longest chunk of a range (ns). Larger: more urgent work, and the end of the range, wait for longer; smaller: more claims,
#: each of which takes a cache line from another core.
CHUNK: Final = 50_000
#: The smallest chunk is this part of the longest. Larger: more claims; smaller: workers end a range less evenly.
PARTS: Final = 16
#: Chunks begin at multiples of this many indices. Larger: less even partitions; smaller: a chunk begins within a vector or a
#: cache line, which two cores then write to.
GRAIN: Final = 64
#: How long (ns) the members of a range wait for help that is due before they wake a worker: from a helper that has left, or
#: from the worker that was woken for the queue. Larger: a core is idle for longer if nobody comes; smaller: a worker is woken
#: for nothing, and takes the helper's core. A loop runs Python for some 100 us between two steps of a small model.
ALONE: Final = 250_000

# Helping

#: A helper polls its descriptor this often (ns). Larger: it is called away later; smaller: more system calls.
LOOK_EVERY: Final = 50_000
#: What a command of a command buffer takes (ns) beside its kernel. Larger: a stream of graphs of very many empty nodes is
#: charged for more than it uses; smaller: for less.
COMMAND: Final = 20
#: A helper runs commands that are expected to take less than this (ns) one after the other without a look at the clock.
#: Larger: it is called away later, where a command takes longer than those before; smaller: it looks at the clock for more.
SHORT_COMMAND: Final = 8_000
#: How long (ns) a helper looks for work before it has helped. Larger: more spinning in vain; smaller: waiters park just
#: before there is work.
PATIENCE: Final = 3_000
#: For this long (ns) a thread that spins may help, however short the spin is. With a quota of one core an await of 60 µs takes
#: 88 µs so, and 106 where it is twice the spin; a small network 64 to 71, and 81. Larger: tasks that are ready wait for longer;
#: smaller: where spins are short, who waits for what it could do at once has a worker woken, and has a turn of the loop.
SPUN: Final = 100_000
#: How long (ns) it looks for work once it has helped, while others run their last chunks. Larger: a core is kept from them;
#: smaller: it parks just before the end.
LONGER: Final = 50_000
#: How long (ns) it looks for work where workers have begun a range without it: one of them sleeps in its favour when it looks
#: for work the next time. A step of 32 texts, of some 35 kernels, was done by two workers, often on one core, and the loop
#: parked, in 40 of 100 steps; with this in 3 or 4, and they take half the time (two virtual cores of an AMD EPYC).
#: Larger: a core is kept from workers that need it; smaller: the helper parks just before there is room.
ROOM: Final = 200_000
#: Longest index (ns) that a helper begins which its loop may call away: within an index it cannot be. Larger: the loop is
#: later; smaller: more kernels are left to workers, which have to wake up.
INDEX: Final = 200_000
#: Longest irregular kernel (ns, all its indices), by the average, that a blocked thread begins. Larger: signals wait for it;
#: smaller: more wake-ups, which cost the more the shorter kernels are.
SHORT: Final = 250_000
#: How long (ns) after the expected end of a kernel, or of a replay, a waiter still spins for it. A clock tick takes a core for
#: some 40 µs: of 11,000 replays of 50 µs 103 to 308 parked with 10 µs here, 6 to 25 with 50 (two virtual cores of an AMD EPYC).
#: Larger: more spinning in vain for what takes longer than it did; smaller: waiters park just before the end, and a wake-up
#: takes as long again.
OVERDUE: Final = 50_000

# Waking loops

#: Longest time (ns) for which a worker holds on to a wake-up, where the process has the time of one core. Ten kernels of 60 µs
#: on ten streams wake their loop three times instead of six, and take 745 µs instead of 785 on one core, 845 instead of 960
#: with a quota of one. Larger: who waits for the first of many is resumed later; smaller: more wake-ups.
HELD: Final = 200_000

# Cores

#: Least time (ns) to spin for a worker that was sent to another core. Larger: long spins; smaller: the move was for nothing.
MOVED: Final = 60_000
#: How long (ns) after all chunks of a range were claimed a spinning thread waits for the last member, before it sends that away
#: from its own core. Larger: such a member waits for longer; smaller: more looks at where it is.
DRAINED: Final = 10_000
#: Shortest time (ns) between two moves of a worker; it doubles where moves do not last. Larger: a worker shares a core with
#: its waiter for longer; smaller: more moves in vain, of some µs each.
SHORTEST: Final = 1_000_000
#: Longest time (ns) between two moves of a worker. Larger: it takes longer until a move is tried again; smaller: more moves
#: in vain.
LONGEST: Final = 256_000_000
#: A move has lasted if the next one comes after this many times the time between moves. Larger: fewer count as lasting;
#: smaller: more moves in vain.
LASTED: Final = 4
#: How long (ns) a worker counts as being on its last core: after a pause it wakes up there sooner than on a core that sleeps.
#: Larger: a worker that has gone elsewhere is sent away; smaller: one that is still here is left in the way.
RECENT: Final = 500_000
#: Niceness of all workers of a device but the prime one and the reserve. A worker never waits, so beside it an event loop,
#: which mostly does, would wake up late, by as much as the scheduler's slice (3.7 ms at the 99th percentile on two cores; 2 ms
#: with this). On an idle machine it changes nothing. Beside other processes a nice worker has a third of their share: a kernel
#: of 1 ms took twice as long as in a thread. So the worker that is woken first is not nice, nor is the reserve, which is woken
#: for a larger share. Larger: other processes have the cores; smaller: event loops are later.
NICE: Final = 5

# Crowded machines

#: A thread that saw no clock for this long (ns), though it did nothing else, was preempted. Our own threads that meet on a
#: core let go of it sooner, between two chunks of a kernel; processes that compute take whole slices. Larger: a crowd goes
#: unnoticed, and spins cost slices; smaller: interrupts, and our own threads, count as a crowd.
TAKEN: Final = 1_000_000
#: A worker that runs this long (ns) after it was woken has waited for a core. Cores that sleep take up to 0.2 ms to wake.
#: Larger and smaller: as ``TAKEN``.
LATE: Final = 1_000_000
#: Workers of a device beyond those that it has cores for, woken in a crowd; as many more as Python's pools of threads have. Ten
#: kernels of 60 µs on ten streams take 1.42, 1.83 and 2.5 times as long as in such a pool beside 1, 2 and 4 busy processes on
#: a single core without the reserve, 1.04, 1.03 and 1.15 with it. Larger: more threads that mostly sleep; smaller: a smaller
#: share of a crowded machine for programs of several streams.
RESERVE: Final = 4
#: How long (ns) the machine counts as crowded the first time; that doubles where it is so again. Larger: work waits for
#: wake-ups for longer after a single preemption; smaller: more attempts, of a slice or two each, where others stay.
SHORTEST_CROWD: Final = 2_000_000
#: The longest time (ns) for which it does. Larger: a machine that is free again is used later; smaller: attempts take more
#: than a hundredth of the time where others stay.
LONGEST_CROWD: Final = 1_024_000_000
#: After this long (ns) without a preemption the next one counts as the first. Larger: unrelated ones add up to long times;
#: smaller: others that come and go are tried anew each time.
FORGOTTEN: Final = 2_000_000_000
#: The next preemption counts as the first, too, once threads have shared kernels for this long (ns, of all of them together),
#: and have kept their cores. Larger: one that has another reason, such as the loop that runs Python, ends the sharing for long;
#: smaller: where others stay, attempts are repeated sooner.
CALM: Final = 5_000_000
#: For this long (ns) after a crowded time threads spin, which shows whether they keep their cores, before they share kernels
#: again. Larger: kernels run on one core for longer; smaller: members of a range wait for one that has no core.
DOUBTED: Final = 2_000_000
#: As ``ALONE``, on a crowded machine (ns): several slices of others, for one of whom a member with a chunk and no core may
#: have to wait. Larger: long kernels run on one core for longer; smaller: a range waits for such a member.
ALONE_IN_A_CROWD: Final = 10_000_000
#: Waiters that are to spin for longer than this (ns) do so on a crowded machine, too: that is a wait, and no attempt to save
#: one. Larger: they give up at once; smaller: attempts to save a wake-up cost slices.
BRIEF: Final = 1_000_000
#: How often (ns) the lookout looks whether a queue waits that nobody serves. Larger: such a queue waits for longer; smaller:
#: more wake-ups.
LOOKOUT: Final = 4_000_000
#: How long (ns) after that it looks whether the queue still waits: a slice of others, which may have its submitter's core.
#: Larger: the queue waits for longer; smaller: the lookout takes what its submitter is about to run.
DOUBT: Final = 4_000_000

# The portable executor, whose steps cost a microsecond

#: A range of fewer indices runs on one worker. Larger: less sharing; smaller: it costs more than it saves.
PORTABLE_GRAIN: Final = 1 << 14
#: A chunk that takes longer than this (ns) is followed by shorter ones. Larger: more urgent work waits for longer; smaller:
#: more steps.
PORTABLE_CHUNK: Final = 100_000
#: Time (ns) that an operation takes besides its work, which its queue is charged for. Larger: queues of short operations
#: count as having had more than they had; smaller: as having had less.
PORTABLE_OVERHEAD: Final = 1_000

# Memory

#: Mappings of fewer bytes are not aligned to huge pages. Larger: more translations of addresses where memory is read at
#: random; smaller: mappings gain less than the alignment wastes in address space, and whole huge pages are touched in part.
HUGE_FROM: Final = 4 << 20
#: Part of what is left, one in so many, that is handed out before it is looked up anew what the system has. Larger: more looks,
#: of some 100 µs each; smaller: where others take memory meanwhile, more is promised than there is.
LOOK_PART: Final = 8
#: Such a look is old after this long (ns). Larger: others have more time to take what is promised; smaller: more looks.
LOOK_OLD: Final = 10_000_000
#: A look is old after so many times what it took, if that is longer. Larger: as ``LOOK_OLD``; smaller: looks take more of the
#: time of a program that has much memory which it has not touched yet.
LOOK_COST: Final = 50
#: Part of a control group's limit, one in so many, that stays for what is not the device's memory: objects of Python, results
#: that are read, stacks, code, a process that compiles. Larger: the system kills a process whose arrays leave it no room;
#: smaller: arrays have less.
SPARED_PART: Final = 8
#: That is no more than this. Larger and smaller: the other way round as ``SPARED_PART``, where limits are large.
SPARED: Final = 256 << 20
#: Tables of pages take one byte for so many of memory, if it is mapped by small pages, and as much again is spared.
#: Larger: as ``SPARED_PART``, where limits are large; smaller: arrays have less.
TABLES: Final = 256

# Kept, and waited for

#: Failures that the portable executor keeps for each queue; the interface asks for 32. Larger: more memory; smaller: less
#: is told of what failed long ago.
PORTABLE_FAULTS: Final = 64
#: Withdrawals that it keeps for each queue, for queues that wait for it. Larger: more memory; smaller: who waits late for one
#: that was withdrawn is not told.
PORTABLE_WITHDRAWALS: Final = 1024
#: Seconds that its ``stop`` waits for the threads. Larger: a kernel that hangs delays the exit; smaller: threads are left
#: behind.
PORTABLE_STOP: Final = 0.25
#: Waiting queues of each priority that a device's heaps have room for at first; they grow. Larger: more memory; smaller: more
#: growing.
FIRST_ROOM: Final = 64
