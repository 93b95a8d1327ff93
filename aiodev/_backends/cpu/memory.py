"""Device memory of the CPU backend: anonymous private mappings, and ranges of addresses that memory is mapped into.

The caching allocator above asks for few, large pieces, so each is a mapping of its own, or a part of a range: freshly zeroed by
the system, given back for good when freed. Large ones start at a multiple of a huge page and ask for huge pages, which saves
most of the page faults and TLB misses of streaming kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading

from aiodev._backends.cpu.budget import Budget, budget
from aiodev._backends.cpu.tuning import HUGE_FROM

__all__ = ["ALIGNMENT", "GRANULARITY", "HostMemory"]

ALIGNMENT = 256
HUGE_PAGE = 2 << 20
#: Granularity of ranges in bytes; 0 where the system calls that they need, and the values of their flags, are not known.
GRANULARITY = HUGE_PAGE if sys.platform == "linux" else 0

#: No address space has more.
_MOST = sys.maxsize - HUGE_PAGE
_PROT_NONE, _MAP_FIXED, _MAP_NORESERVE = 0, 0x10, 0x4000  # Linux; the module mmap has no names for these


class HostMemory:
    """Memory of one device, at most ``total`` bytes in all; thread-safe.

    What the machine, or the process's control group, cannot back now is refused: an overcommitted mapping would succeed, and
    the process would be killed when it is touched.

    Args:
        total: bytes.
        shared: what all devices may have together.
    """

    def __init__(self, total: int, shared: Budget = budget) -> None:
        self.total = total
        self._budget = shared
        self._allocated = 0
        self._lock = threading.RLock()  # re-entrant: a finalizer may allocate while this thread holds it
        self._mappings: dict[int, tuple[mmap.mmap, int]] = {}

    def allocate(self, nbytes: int) -> int:
        """Address of ``nbytes`` of zeroed memory."""
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        size = max(nbytes, 1)
        if size > self.total:  # which may be more than can be mapped at all
            raise self._refused(size)
        mapping, address = _map(size)
        try:
            self._take(address, size)
        except BaseException:
            mapping.close()
            raise
        with self._lock:
            self._mappings[address] = mapping, size
        return address

    def deallocate(self, address: int) -> None:
        """Unmap what ``allocate`` gave."""
        with self._lock:
            mapping, size = self._mappings.pop(address)
        self._give(address, size)
        mapping.close()

    # Ranges

    def reserve(self, nbytes: int) -> int:
        """First of ``nbytes`` addresses, aligned to a huge page, that are nobody else's; they cannot be touched."""
        if not 0 < nbytes <= _MOST:  # what does not fit a size_t would become another size
            raise MemoryError(f"there is no range of {nbytes:,} addresses")
        address = _system_map(0, nbytes + HUGE_PAGE, 0)
        start = -(-address // HUGE_PAGE) * HUGE_PAGE
        if start > address:
            _system("munmap", address, start - address)
        if (rest := address + HUGE_PAGE - start) > 0:
            _system("munmap", start + nbytes, rest)
        return start

    def map(self, address: int, nbytes: int) -> None:
        """Let a part of a range be memory, zeroed; refuses what ``allocate`` would."""
        self._take(address, nbytes)
        try:
            _system("mprotect", address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        except BaseException:  # Ctrl-C too: what was not mapped must not count
            self._give(address, nbytes)
            raise
        with contextlib.suppress(MemoryError):  # built without huge pages: the memory is as good, only slower
            _system("madvise", address, nbytes, mmap.MADV_HUGEPAGE)

    def unmap(self, address: int, nbytes: int) -> None:
        """Give the memory back; the addresses stay reserved."""
        _system_map(address, nbytes, _MAP_FIXED)
        self._give(address, nbytes)

    def release(self, address: int, nbytes: int) -> None:
        """Give a range back."""
        _system("munmap", address, nbytes)

    # Accounts

    def free(self) -> int:
        """Bytes that an allocation could have now."""
        return max(0, min(self.total - self._allocated, self._budget.left()))

    @property
    def allocated(self) -> int:
        """Bytes handed out."""
        return self._allocated

    def _refused(self, size: int) -> MemoryError:
        return MemoryError(f"{size:,} bytes asked for, {self.free():,} of {self.total:,} free")

    def _take(self, address: int, size: int) -> None:
        with self._lock:
            if self._allocated + size > self.total or not self._budget.take(address, size):
                raise self._refused(size)
            self._allocated += size

    def _give(self, address: int, size: int) -> None:
        with self._lock:
            self._allocated -= size
            self._budget.give(address, size)


def _map(size: int) -> tuple[mmap.mmap, int]:
    """A new mapping with room for ``size`` bytes from a well-aligned address on, and that address."""
    huge = size >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE")
    length = size + HUGE_PAGE if huge else size
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            # Not the module's default MAP_SHARED: a forked child must get a copy, and shared memory gets no huge pages.
            mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            mapping = mmap.mmap(-1, length)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"the system refused a mapping of {length:,} bytes: {error}") from error
    # The export that finds the address must be gone before anyone can close the mapping, hence no variable for it.
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    if not huge:
        return mapping, start
    address = -(-start // HUGE_PAGE) * HUGE_PAGE
    with contextlib.suppress(OSError):  # built without huge pages: the memory is as good, only slower
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping, address


def _system(name: str, address: int, nbytes: int, *flags: int) -> None:
    """A system call on a part of the address space; MemoryError when the system refuses."""
    function = getattr(_libc, name)
    if function(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), *map(ctypes.c_int, flags)) != 0:
        raise _refused(name, nbytes)


def _system_map(address: int, nbytes: int, flags: int) -> int:
    """Addresses without memory: anywhere, or, with MAP_FIXED, in place of what is there."""
    flags |= mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    mapped = _libc.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(nbytes), ctypes.c_int(_PROT_NONE), ctypes.c_int(flags),
        ctypes.c_int(-1), ctypes.c_long(0),
    )  # fmt: skip
    if mapped in (None, ctypes.c_void_p(-1).value):
        raise _refused("mmap", nbytes)
    return int(mapped)


def _refused(name: str, nbytes: int) -> MemoryError:
    return MemoryError(f"the system refused {name} of {nbytes:,} bytes: {os.strerror(ctypes.get_errno())}")


if GRANULARITY:
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
