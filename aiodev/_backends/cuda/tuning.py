"""What the CUDA backend weighs against each other: one constant for each cost that is traded for another.

Each says its unit, and what more and what less of it costs. How long a device's watching thread polls without a pause is a
setting, ``AIODEV_CUDA_SPIN_US``; the pauses after that are below. Nothing here is the CPU's: a worker that spins there takes a
core from kernels, and a thread that spins here takes one from the program.
"""

from __future__ import annotations

from typing import Final

# Watching

#: Pauses between two looks are this part of what was waited for already. More: the thread is busier; less: a wait is told of
#: its end later, by so much of what it took.
PAUSE_PART: Final = 32
#: The shortest pause (ns). More: as much later; less: the thread looks all the time, since a pause takes tens of µs anyhow.
SHORTEST_PAUSE: Final = 5_000
#: The longest pause while something is awaited (ns). More: long operations are noticed as much later; less: the thread wakes
#: up more often while it waits for them.
LONGEST_PAUSE: Final = 200_000
#: Between two looks at whether the device lives (ns). More: its loss is noticed as much later; less: calls of the driver,
#: which hold up others that wait for its lock.
WATCHDOG: Final = 20_000_000

# Submission

#: Operations of a queue in the driver's hands, at most. More: memory of each queue; less: a device that runs short operations
#: waits for the host.
WINDOW: Final = 128
#: Those with which a submission surely finds room; beyond, it lets go of the GIL. More: a submission may block with the GIL;
#: less: submissions take the GIL anew, for which another thread may let them wait.
SURELY_ROOM: Final = 32
#: Those of all queues of a CUstream. More: the driver, whose own limit is somewhat higher, blocks in a call; less: queues
#: that share a stream wait for the host.
STREAM_WINDOW: Final = 256
#: CUstreams of each device and priority, which queues share. More: the device's 32 channels are shared, too, and streams wait
#: for each other there; less: queues do, in one stream.
STREAM_SLOTS: Final = 32
#: Records that are handed on before the lock is let go for a moment. More: submitters of that queue wait; less: the lock
#: moves between cores more often.
BATCH: Final = 16
#: How often a thread that has the GIL tries a lock before it lets go: whoever has the lock may be blocked in the driver.
#: More: other threads of Python wait; less: the GIL, which may take 5 ms to come back, is let go of for a lock that is held
#: for 100 ns.
LOCK_TRIES: Final = 200
#: Threads of a device that wait in the driver (``AIODEV_CUDA_WAIT=event``). More: threads, with an event each; less: what is
#: beyond is polled.
EVENT_WAITERS: Final = 8

# Copies

#: Small copies from ordinary memory that are under way at once. More: page-locked memory, ``RING_BYTES`` for each; less:
#: copies in a row wait for the device.
RING_SLOTS: Final = 32
#: Bytes of each, at most. More: page-locked memory, and time in the submission's call; less: more copies go through the
#: staging thread, which costs a wake-up.
RING_BYTES: Final = 64 << 10
#: Parts of a staged copy that are under way at once. More: page-locked memory, ``STAGE_BYTES`` for each; less than two: the
#: host and the device take turns.
STAGE_SLOTS: Final = 2
#: Bytes of each. More: page-locked memory, and the first part begins later; less: a wake-up for fewer bytes.
STAGE_BYTES: Final = 4 << 20
#: After so many bytes of a copy it is the next queue's turn. More: others' copies wait as long; less: more switches.
STAGE_TURN: Final = 256 << 20
#: Patterns that are written column by column, with gaps, which is slow; beyond, what is there is doubled. More: slow writes;
#: less: copies of little, a launch each.
COLUMNS: Final = 64 << 10

# Kernels

#: Threads of a block, at most, unless a kernel says. More gain nothing where every element is read once; less hide too little
#: latency.
BLOCK_THREADS: Final = 256
#: Rounds of blocks that a grid has at most; what is beyond strides. More: blocks that begin cost more than what they do;
#: less: the multiprocessors end at different times.
ROUNDS: Final = 8

# Memory

#: Granules that a device's memory is divided into, at least. More: more calls of the driver to map as much; less: more memory
#: that is mapped and not used.
LEAST_GRANULES: Final = 4096
