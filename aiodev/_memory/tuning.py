"""Tuning of the allocators: the constants that trade one cost for another, in bytes unless they say otherwise.

How much may be reserved before cached memory is given back is a setting, ``AIODEV_MEMORY_GC_THRESHOLD``.
"""

from __future__ import annotations

from typing import Final

# Sizes

#: Sizes of blocks are multiples of this. Larger: small arrays waste more; smaller: more bins, each hit less often, and copies
#: that begin where their vectors do not.
GRANULE: Final = 512
#: Requests of up to this are small, and have segments of their own. Larger: small arrays that live long split more, so that
#: large blocks cannot be joined; smaller: what is nearly as large has a part of a large segment to itself.
SMALL: Final = 1 << 20
#: Size of a segment of small blocks where there are no ranges; as in PyTorch, like the next two. Larger: more is reserved for
#: little; smaller: more calls of the backend, which may wait for the device.
SMALL_SEGMENT: Final = 2 << 20
#: Size of a segment of large blocks. Larger and smaller: as ``SMALL_SEGMENT``.
LARGE_SEGMENT: Final = 20 << 20
#: A larger request has a segment of its own, in multiples of ``SMALL_SEGMENT``. Larger: a large segment serves two requests
#: and wastes the rest; smaller: it cannot be given back while a small part of it is in use.
OWN_SEGMENT_FROM: Final = 10 << 20
#: The first segment that is taken for a timeline is everybody's, where the request is no more than this part of it, one in so
#: many; the next one, or one for a larger request, is the timeline's own while that is at work. Larger: streams with little
#: memory reserve a segment each; smaller: streams with much memory cut up each other's.
COMMON: Final = 8
#: Least allocation of page-locked memory. Larger: small ones waste it; smaller: more sizes, each with memory of its own.
SMALLEST_PINNED: Final = 4096

# Looking for memory

#: Most blocks of a list, and most lists, that a search for a block without other timelines' work looks at. Larger: slower
#: allocations with many timelines; smaller: more memory is reserved, or streams wait for each other's work.
SEARCH: Final = 64
#: Timelines that are asked, by turns, at each search whether their work is done that keeps free blocks apart. Larger: slower
#: allocations; smaller: larger blocks are cut where what was freed would do by now.
TURNS: Final = 4
#: In segments: most blocks that a search looks at in the list of a timeline that the requesting one is not known to follow.
#: Larger: slower allocations, for what is seldom there; smaller: new memory is taken where some was free.
GLANCE: Final = 2
#: Before memory is taken, one more timeline for so many bytes is asked whether its work is done that keeps free blocks apart.
#: Larger: memory is taken where some had become free; smaller: slower allocations with thousands of timelines.
BYTES_PER_LOOK: Final = 4096
#: In ranges: bins are emptied before memory is taken if they hold this fraction of what is reserved. Memory that is taken is
#: mapped beside what is free. Larger: more memory is reserved; smaller: blocks are joined and cut anew more often.
WORTHWHILE: Final = 1 / 8
#: In ranges: up to this, what is reserved may be more than was ever in use, and small blocks stay in their bins. Larger: small
#: programs reserve more than they need; smaller: they join and cut blocks anew where sizes differ from call to call.
LITTLE: Final = 32 << 20
#: In segments: as ``WORTHWHILE``, in bytes. It is low, since a segment stays as it is, and memory in it must not be taken anew.
#: Larger and smaller: as ``WORTHWHILE``.
WORTHWHILE_IN_SEGMENTS: Final = SMALL_SEGMENT // 8
#: Part of the most that was ever in use, one in so many, by which reserved memory may exceed it before the allocator moves
#: cached memory between addresses. Larger: more is unmapped and mapped again; smaller: more is reserved, which others lack.
SLACK: Final = 16

# Bookkeeping

#: A :class:`~aiodev._memory.buffer.Uses` takes at least this many uses before it drops those that are done. Larger: longer
#: lists; smaller: more passes.
CREDIT: Final = 16

# Debugging

#: Bytes of the guard before and after a buffer; a multiple of the alignment. Larger: each buffer takes more memory; smaller:
#: writes farther out are not found.
GUARD: Final = 256
#: Seconds that work has to finish at exit before guards are checked. Larger: a hung kernel delays the exit; smaller: the guards
#: of buffers in use are not checked.
LAST_WAIT: Final = 1.0
