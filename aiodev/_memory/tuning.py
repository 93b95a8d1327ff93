"""What allocators weigh against each other: one constant for each cost that is traded for another, and in bytes unless it says.

How much may be reserved before cached memory is given back is a setting, ``AIODEV_MEMORY_GC_THRESHOLD``.
"""

from __future__ import annotations

from typing import Final

# Sizes

#: Sizes of blocks are multiples of this. More: small buffers waste it; less: more sizes, so that a freed block serves fewer
#: requests, and copies begin where their vectors do not.
GRANULE: Final = 512
#: Requests up to this are small, and have segments of their own. More: they lie between large ones, which cannot be joined
#: then; less: what is nearly as large has a part of a large segment to itself.
SMALL: Final = 1 << 20
#: Of segments of small blocks, where there are no ranges; as in PyTorch, like the next two. More: memory that nobody needs;
#: less: the backend is asked more often, which may wait for the device.
SMALL_SEGMENT: Final = 2 << 20
#: Of segments of large blocks. More and less: as ``SMALL_SEGMENT``.
LARGE_SEGMENT: Final = 20 << 20
#: Larger requests have a segment of their own. More: a large segment serves two of them and wastes the rest; less: it cannot
#: be given back while a small part of it is in use.
OWN_SEGMENT_FROM: Final = 10 << 20
#: The least allocation of page-locked memory. More: small ones waste it; less: more sizes, each with memory of its own.
SMALLEST_PINNED: Final = 4096

# Looking for memory

#: How many blocks of a list, and how many lists, are looked at, at most, for one that no other timeline's work uses. More: an
#: allocation takes longer; less: streams wait for each other's work.
SEARCH: Final = 64
#: So many blocks of a list of a timeline that is not known to come first. More: it takes longer for what is seldom there;
#: less: new memory is taken where some was free.
GLANCE: Final = 2
#: Bins are emptied before memory is taken if they hold this part of what there is. In ranges, what is missing is put beside
#: what is free, and can be moved. More: more is reserved than is needed; less: blocks that are about to be asked for are
#: joined and cut again.
WORTHWHILE: Final = 1 / 8
#: The same where there are segments: they stay as they are, and what is in them already must not be taken anew. More and
#: less: as ``WORTHWHILE``.
WORTHWHILE_IN_SEGMENTS: Final = SMALL_SEGMENT // 8
#: How much more than the most that was in use may be reserved before cached memory is moved, as a part of that. More: memory
#: that other programs lack; less: calls that map memory.
SLACK: Final = 1 / 16

# Bookkeeping

#: Requests whose bins are remembered. More: memory for programs of many sizes; less: their bins are found out again.
REQUESTS_KEPT: Final = 4096
#: Uses of a buffer by other timelines that are noted, at least, before it is found out which are done. More: lists of what is
#: over; less: each use takes longer.
CREDIT: Final = 16
