"""The arena: memory for structs that native code reads, zeroed, and never unmapped."""

from __future__ import annotations

import ctypes
import mmap
import threading

from aiodev._core.at_fork import first_in_child

_PAGE = 1 << 20


class Arena:
    """Zeroed memory that is never unmapped; workers may read it for as long as the process lives."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._next = self._end = 0

    def renew_lock(self) -> None:
        """Have a lock that nobody holds."""
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> int:
        """Address of ``nbytes``, on a cache line of its own."""
        nbytes = (nbytes + 63) // 64 * 64
        with self._lock:
            if self._next + nbytes > self._end:
                # Private: Python's default is shared, and a forked child would write into its parent's queues.
                page = mmap.mmap(-1, max(_PAGE, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                view = (ctypes.c_char * len(page)).from_buffer(page)
                # The exported buffer forbids closing the map, and the extra reference forbids collecting it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(view))
                self._next = ctypes.addressof(view)
                self._end = self._next + len(page)
            address = self._next
            self._next += nbytes
            return address


def words_at(address: int, count: int) -> memoryview[int]:
    """``count`` int64 words of memory that stays mapped."""
    return memoryview((ctypes.c_int64 * count).from_address(address)).cast("B").cast("q")


#: The process's arena. Workers may read it for as long as the process lives.
arena = Arena()
# A forked child goes on with the same arena; another thread of the parent may have held the lock.
first_in_child(arena.renew_lock)
