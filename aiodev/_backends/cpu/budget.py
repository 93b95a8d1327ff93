"""How much memory may still be handed out, so that all of it can be touched.

**Problem.** A mapping succeeds whatever there is, and the system counts its pages when they are touched. So what it says is
available does not know of memory that was handed out and not touched yet: several requests, each of which fits, are too much
together. Where there is no more, a page fault ends the process, and no error can be raised.

**How.** What is left is what the system says is available, less what was handed out and is not resident. Both are looked up at
once: ``mincore`` tells which pages are resident. To touch a page moves it from one to the other; to hand out memory, or to
take it back, changes what is left by just that. So from one look to the next a subtraction does, as far as nobody else takes
memory; and it is looked up anew once an eighth of what was left has been handed out, or a look has become old.

**Invariants.**

1.  What is left at a look is not more than what is available, less what of the memory handed out is not resident. Resident
    pages are counted before what is available is read: what is touched in between counts twice, and never not at all.
2.  A piece of memory that is not known to be resident is in the list, or in the log of changes since the last look. The log is
    appended to without a lock by finalizers, in the midst of a look too; only a look reads it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from time import monotonic_ns

from aiodev._backends.cpu.properties import anonymous_memory, available_memory
from aiodev._backends.cpu.tuning import LOOK_COST, LOOK_OLD, LOOK_PART
from aiodev._core.at_fork import first_in_child

__all__ = ["Budget", "budget"]

_PAGE = mmap.PAGESIZE
_GRANULE = 2 << 20  # what is resident is forgotten in pieces of this size
_CHUNK = 64 << 20  # bytes that one call of mincore looks at


class Budget:
    """What this process may still hand out; thread-safe, and for finalizers too.

    Args:
        available: bytes that the system has left for this process.
        anonymous: bytes of this process that are resident and no file's; None where that is not known.
    """

    def __init__(
        self, available: Callable[[], int] = available_memory, anonymous: Callable[[], int | None] = anonymous_memory
    ) -> None:
        self._available = available
        self._anonymous = anonymous
        self.forget()

    def forget(self) -> None:
        """Start anew: in a forked child what was handed out is the parent's."""
        self._lock = threading.RLock()  # re-entrant: a finalizer may allocate while this thread holds it
        self._looking = False
        self._granted = 0
        self._left = 0
        self._trusted = 0  # what may be handed out before the next look
        self._old_at = 0
        self._untouched: list[tuple[int, int]] = []  # first address and end of what is not known to be resident, ascending
        self._log: deque[tuple[int, int, bool]] = deque()

    def take(self, address: int, nbytes: int) -> bool:
        """Hand out memory that is mapped at an address, or will be; False if it could not all be touched."""
        nbytes = _whole(nbytes)
        with self._lock:
            if not self._looking and (nbytes > self._trusted or monotonic_ns() >= self._old_at):
                self._look()
            if nbytes > self._left:
                return False
            self._log.append((address, address + nbytes, True))
            self._granted += nbytes
            self._left -= nbytes
            self._trusted -= nbytes
            return True

    def give(self, address: int, nbytes: int) -> None:
        """Take memory back that was handed out."""
        nbytes = _whole(nbytes)
        with self._lock:
            self._log.append((address, address + nbytes, False))
            self._granted -= nbytes
            self._left += nbytes

    def left(self) -> int:
        """Bytes that could be handed out now."""
        with self._lock:
            if not self._looking:
                self._look()
            return max(0, self._left)

    def _look(self) -> None:
        self._looking = True
        try:
            began = monotonic_ns()
            resident = max(0, self._granted - self._count_untouched())
            anonymous = self._anonymous()
            if anonymous is not None:  # pages that were only read are resident, and no memory yet
                resident = min(resident, anonymous)
            available = self._available()
            self._left = available - (self._granted - resident)
            self._trusted = self._left // LOOK_PART
            ended = monotonic_ns()
            self._old_at = ended + max(LOOK_OLD, LOOK_COST * (ended - began))
        finally:
            self._looking = False

    def _count_untouched(self) -> int:
        """Bytes that were handed out and are not resident; forgets pieces that are."""
        while self._log:
            first, end, is_granted = self._log.popleft()
            if is_granted:
                insort(self._untouched, (first, end))
            else:
                self._remove(first, end)
        untouched, left = 0, list[tuple[int, int]]()
        for first, end in _joined(self._untouched):
            for start in range(first, end, _CHUNK):
                untouched += _look_at(start, min(end, start + _CHUNK), left)
        self._untouched = _joined(left)
        return untouched

    def _remove(self, first: int, end: int) -> None:
        pieces = self._untouched
        begin = bisect_left(pieces, (first, first))
        if begin and pieces[begin - 1][1] > first:
            begin -= 1
        after, kept = begin, list[tuple[int, int]]()
        while after < len(pieces) and pieces[after][0] < end:
            start, stop = pieces[after]
            kept += [piece for piece in ((start, first), (end, stop)) if piece[0] < piece[1]]
            after += 1
        pieces[begin:after] = kept


def _whole(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, end in pieces:
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return joined


def _look_at(first: int, end: int, left: list[tuple[int, int]]) -> int:
    """Bytes of a piece that are not resident; appends what of it is to be looked at again, in granules."""
    pages = _resident_pages(first, end - first)
    if pages is None:  # nobody knows: all that can be said is that it is not more than what is resident of the process
        left.append((first, end))
        return 0 if sys.platform == "linux" else end - first
    absent = pages.count(0)
    if absent == len(pages):
        left.append((first, end))
    elif absent:
        for start in range(first, end, _GRANULE):
            stop = min(end, start + _GRANULE)
            if 0 in pages[(start - first) // _PAGE : (stop - first) // _PAGE]:
                left.append((start, stop))
    return absent * _PAGE


def _resident_pages(address: int, nbytes: int) -> bytes | None:
    """A byte for each page, 0 where it is not resident; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    pages = ctypes.create_string_buffer(nbytes // _PAGE)
    if _mincore(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), pages) != 0:
        return None
    return pages.raw


if sys.platform == "linux":
    _mincore = ctypes.CDLL(None).mincore

#: Of all devices together: they share the machine's memory.
budget = Budget()
first_in_child(budget.forget)
