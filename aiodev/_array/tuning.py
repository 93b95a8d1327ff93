"""What arrays weigh against each other: one constant for each cost that is traded for another, and in bytes unless it says."""

from __future__ import annotations

from typing import Final

# Reading

#: Copies of finished contents up to this are made by the host itself, at once. More: the loop is held for the copy; less: it
#: is submitted and waited for, which takes longer.
DIRECT: Final = 32 << 10
#: Gaps are copied along if the copy becomes at most so many times larger. More: bytes that nobody asked for; less: a kernel
#: that gathers the elements, and its launch.
WASTE: Final = 4
#: Or at most this large. More and less: as ``WASTE``.
SMALL: Final = 1 << 20
#: What is read by way of page-locked memory. More: more of it is kept; less: the backend copies in pieces, through its own.
READ_LOCKED: Final = 64 << 10
#: Streams that are kept for reading, of each device. More: queues that nobody needs; less: reads at once make streams anew.
READERS_KEPT: Final = 4

# Taking and making

#: What is taken from the host by way of page-locked memory. More: locking pages takes long, and holds up the loop the first
#: time; less: the backend copies ordinary memory in pieces, at the same speed, but later.
TAKEN_LOCKED: Final = 1 << 20
#: A range of numbers up to this is computed here and now, a larger one in a thread, in stream order. More: the loop is held
#: for as long; less: it waits for a thread to start.
HERE: Final = 64 << 10
#: Up to so many pieces with gaps between are copied one by one. More: a submission for each; less: a kernel's launch for few
#: pieces.
PIECES: Final = 16
