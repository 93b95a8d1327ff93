"""Tuning of the CUDA backend: the constants that trade one cost for another.

Each says its unit, and what a larger and a smaller value costs. How long a device's poller looks without a pause is a setting,
``AIODEV_CUDA_SPIN_US``; the pauses after that are below. None is shared with the CPU's backend: a worker that spins there takes
a core from kernels, and a thread that spins here takes one from the program.
"""

from __future__ import annotations

from typing import Final

# Polling

#: A pause between two looks is the time that was waited already, divided by this. Larger: the thread is busier; smaller:
#: waiters hear of a completion later, by so much of what it took.
PAUSE_PART: Final = 32
#: Shortest pause (ns). Larger: later wake-ups; smaller: the thread looks all the time, since a pause takes tens of µs anyhow.
SHORTEST_PAUSE: Final = 5_000
#: Longest pause (ns) between two looks while work is awaited. Larger: later wake-ups; smaller: more of a core.
LONGEST_PAUSE: Final = 200_000
#: Time (ns) between two checks that the device is not lost. Larger: waiters of a lost device learn later; smaller: more calls
#: of the driver, which hold up others that wait for its lock.
WATCHDOG: Final = 20_000_000

# Submission

#: Most operations of a queue that are in the driver's hands. Larger: more memory for each queue; smaller: a device that runs
#: short operations waits for the host.
WINDOW: Final = 128
#: Operations of a queue in the driver's hands with which a submission surely finds room; beyond, it lets go of the GIL. Fewer
#: where so many queues share a channel that all of theirs together might fill it. Larger: a submission may block with the
#: GIL; smaller: submissions take the GIL anew, and may wait for another thread.
SURELY_ROOM: Final = 32
#: Channels of the device that a context asks for, unless ``CUDA_DEVICE_MAX_CONNECTIONS`` says how many. Larger: fewer processes
#: can use a device at once (an H100 has room for 11 contexts of 32 channels, 25 of 16, and more than 32 of 8); smaller: more
#: streams share one, and wait for each other there.
CHANNELS: Final = 16
#: Most operations in the driver's hands of all queues whose CUstreams share a channel. Larger: the driver blocks in a call, on
#: an H100 at the 511th launch with its number behind it; smaller: queues that share a channel wait for the host.
CHANNEL_WINDOW: Final = 480
#: CUstreams of each device and priority, which queues share. Larger: more streams share a channel; smaller: queues wait for
#: each other in one stream.
STREAM_SLOTS: Final = 32
#: Records that are issued before the lock is let go for a moment. Larger: submitters wait for longer; smaller: slower issue.
BATCH: Final = 16
#: How often a thread that has the GIL tries a lock before it lets go: the lock's holder may be blocked in the driver. Larger:
#: the GIL is held for longer; smaller: the GIL, which may take 5 ms to come back, is let go of for a lock that is held for
#: 100 ns.
LOCK_TRIES: Final = 200
#: Threads of a device that wait in the driver (``AIODEV_CUDA_WAIT=event``). Larger: more threads, with an event each;
#: smaller: more is polled.
EVENT_WAITERS: Final = 8

# Command buffers

#: Most commands of a buffer that are submitted one by one the first time. Larger: a longer first execution, with other queues'
#: waiting; smaller: longer buffers load their kernels' code while they are captured.
WARMED: Final = 512

# Calls

#: Threads of a device that make calls which may wait for it (:meth:`aiodev.Stream.call_native`). Larger: more threads; smaller:
#: one such call more often waits for another.
CALLERS: Final = 2

# Copies

#: Small copies from ordinary memory that are under way at once. Larger: more page-locked memory, ``RING_BYTES`` for each;
#: smaller: copies in a row wait for the device.
RING_SLOTS: Final = 32
#: Most bytes of such a copy. Larger: more page-locked memory, and time in the submission's call; smaller: more copies go
#: through the staging thread, which costs a wake-up.
RING_BYTES: Final = 64 << 10
#: Pieces of a staged copy that are under way at once. Larger: more page-locked memory, ``STAGE_BYTES`` for each; smaller,
#: with one: the host and the device take turns.
STAGE_SLOTS: Final = 2
#: Bytes of such a piece. Larger: more page-locked memory, and the first piece begins later; smaller: a wake-up for fewer
#: bytes.
STAGE_BYTES: Final = 4 << 20
#: After this many bytes of a copy it is the next queue's turn. Larger: other queues' copies wait for longer; smaller: more
#: switches.
STAGE_TURN: Final = 256 << 20
#: Most repetitions of a pattern that are written column by column, with gaps, which is slow; beyond, what is there is
#: doubled. Larger: slow writes; smaller: copies of little, a launch each.
COLUMNS: Final = 64 << 10

# Kernels

#: Most threads of a block, unless a kernel says. Larger: gains nothing where every element is read once; smaller: hides too
#: little latency.
BLOCK_THREADS: Final = 256
#: Most rounds of blocks that a grid has; indices beyond are strided over. Larger: more blocks to start; smaller: uneven ends.
ROUNDS: Final = 8

# Memory

#: Least granules that a device's memory is divided into. Larger: more mappings of the driver's; smaller: more memory is
#: wasted.
LEAST_GRANULES: Final = 4096
