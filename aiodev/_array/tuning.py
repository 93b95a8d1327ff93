"""Tuning of arrays: the constants that trade one cost for another, in bytes unless they say otherwise."""

from __future__ import annotations

from typing import Final

# Reading

#: Most bytes that the host copies itself, in the time of a submission. Larger: holds the loop for longer; smaller: more
#: operations that are submitted and waited for.
DIRECT: Final = 32 << 10
#: Gaps are copied along if that makes the copy at most this many times as large. Larger: more bytes are moved; smaller: more
#: strided copies, by a kernel and its launch.
WASTE: Final = 4
#: Gaps are copied along if that makes the copy at most this large. Larger and smaller: as ``WASTE``.
SMALL: Final = 1 << 20
#: Most bytes that are read by way of page-locked memory. Larger: locking pages holds up the loop; smaller: more waits for a
#: thread.
READ_LOCKED: Final = 64 << 10
#: How often a read begins anew because some thread has submitted something and has yet to note which memory it uses. What was
#: under way at first is noted by then: it is waited for. Larger: with many threads that submit, reads are submitted in vain;
#: smaller: one that was missed by the first look may write what is read.
READ_AGAIN: Final = 8
#: Streams that are kept for reading, of each device. Larger: queues that nobody needs; smaller: concurrent reads make streams
#: anew.
READERS_KEPT: Final = 4

# Taking and making

#: Most bytes that are taken from the host by way of page-locked memory. Larger: locking pages holds up the loop for longer
#: the first time; smaller: the backend's thread copies more, as it does beyond this limit, at the same speed.
TAKEN_LOCKED: Final = 1 << 20
#: Most bytes of a range that the caller computes at once; a larger one is computed in a thread, in stream order. Larger:
#: holds the loop for longer; smaller: more operations, which wait for a thread to start.
HERE: Final = 64 << 10
#: Most pieces with gaps between that are copied one by one; so many cost about as much as a kernel's launch. Larger: slower
#: than a strided kernel; smaller: kernels are launched, and compiled, for little.
PIECES: Final = 16

# What is remembered

#: Dimensions of arrays: the limit of NumPy. Larger: arrays that cannot be read, and more words on the stack of native
#: code; smaller: programs of NumPy's that cannot be written.
MOST_DIMENSIONS: Final = 64
#: Forms in the table; when it is full, the oldest are forgotten. Larger: more memory for programs of many shapes, half a
#: kilobyte each; smaller: forms are made again, and kernels of their arrays looked up anew. Attention over a cache that grows
#: to 4,000 rows, a row at a time, has some 30,000, and a second sequence took ten times as long with a table of 4,096.
MOST_FORMS: Final = 1 << 15
#: Copies whose layouts are remembered: as one piece, and as several. Larger: more memory; smaller: the layouts are compared
#: again.
MOST_KNOWN: Final = 1024
