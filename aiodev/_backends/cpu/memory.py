"""Device memory of the CPU backend: anonymous private mappings, one an allocation.

The caching allocator above asks for few, large blocks, so each is a mapping of its own: freshly zeroed by the system,
given back for good when freed. Large ones start at a multiple of a huge page and ask for huge pages, which saves most
of the page faults and TLB misses of streaming kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading

from aiodev._backends.cpu.properties import available_memory

__all__ = ["ALIGNMENT", "HostMemory"]

ALIGNMENT = 256
HUGE_PAGE = 2 << 20
#: Mappings below this do not gain from huge pages what aligning them would waste in address space.
HUGE_FROM = 2 * HUGE_PAGE
#: What an allocation must reach before the machine is asked whether it has that much; asking takes tens of µs.
CHECK_FROM = 16 << 20


class HostMemory:
    """Allocations of one device, at most ``total`` bytes together; thread-safe."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._allocated = 0
        self._lock = threading.Lock()
        self._mappings: dict[int, tuple[mmap.mmap, int]] = {}

    def allocate(self, nbytes: int) -> int:
        """Address of ``nbytes`` of zeroed memory.

        Refuses what the machine cannot back now: an overcommitted mapping would succeed, and the process would be
        killed when it is touched.
        """
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        size = max(nbytes, 1)
        with self._lock:
            if self._allocated + size > self.total or (size >= CHECK_FROM and size > available_memory()):
                raise MemoryError(f"{nbytes:,} bytes asked for, {self.free():,} of {self.total:,} free")
            self._allocated += size
        try:
            mapping, address = _map(size)
        except BaseException:
            with self._lock:
                self._allocated -= size
            raise
        with self._lock:
            self._mappings[address] = mapping, size
        return address

    def deallocate(self, address: int) -> None:
        """Unmap what ``allocate`` gave."""
        with self._lock:
            mapping, size = self._mappings.pop(address)
            self._allocated -= size
        mapping.close()

    def free(self) -> int:
        """Bytes that an allocation could have now."""
        return max(0, min(self.total - self._allocated, available_memory()))

    @property
    def allocated(self) -> int:
        """Bytes handed out."""
        return self._allocated


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
