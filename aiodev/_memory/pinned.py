"""Page-locked host memory, cached: what devices copy from and to at full speed.

Locking pages is slow, and may wait for the device, so what was freed is kept, in sizes that are powers of two. A block goes
back to its bin when the last array over it is dropped. A copy holds its arrays until it is done, so no block is handed out
while the device uses it, and there are no events to wait for.
"""

from __future__ import annotations

import threading
from typing import Any

from aiodev._core.at_fork import in_child
from aiodev._core.backend.registry import BackendHandle, DeviceLike, registry
from aiodev._core.finalizing import until_exit
from aiodev._memory.tuning import SMALLEST_PINNED

__all__ = ["PinnedCache", "empty_pinned_cache", "host_memory_stats", "pinned_cache"]


class PinnedCache:
    """The page-locked memory of one backend; any of its devices may copy from and to it."""

    def __init__(self, handle: BackendHandle) -> None:
        self.handle = handle
        self.bins: dict[int, list[tuple[int, int]]] = {}  # by size: (device index, address)
        self.allocated = self.reserved = 0  # bytes
        self._lock = threading.Lock()

    def allocate(self, index: int, nbytes: int) -> _Block:
        """A block of at least ``nbytes``; the first ones of a size come from the backend."""
        size = max(SMALLEST_PINNED, 1 << (nbytes - 1).bit_length())
        try:
            index, address = self.bins.setdefault(size, []).pop()
        except IndexError:
            address = self._lock_pages(index, size)
            self.reserved += size
        self.allocated += size
        return _Block(self, index, address, size)

    def _lock_pages(self, index: int, size: int) -> int:
        self.handle.ensure_started()
        try:
            return self.handle.backend.allocate_pinned(index, size)
        except MemoryError:
            self.empty()
            return self.handle.backend.allocate_pinned(index, size)

    def empty(self) -> None:
        """Give back blocks that nobody uses."""
        with self._lock:
            for size, cached in tuple(self.bins.items()):
                while cached:
                    try:
                        index, address = cached.pop()
                    except IndexError:  # another thread was faster
                        break
                    self.handle.backend.deallocate_pinned(index, address)
                    self.reserved -= size


@until_exit
class _Block:
    """Page-locked memory that NumPy arrays are made over; the last of them gives it back."""

    __slots__ = ("__weakref__", "address", "cache", "index", "size")

    def __init__(self, cache: PinnedCache, index: int, address: int, size: int) -> None:
        self.cache = cache
        self.index = index
        self.address = address
        self.size = size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        self.cache.allocated -= self.size
        self.cache.bins[self.size].append((self.index, self.address))


_caches: dict[str, PinnedCache] = {}
in_child(_caches.clear)


def host_memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Bytes of page-locked memory in use and held, rounded to powers of two, for all devices of a backend.

    Example:
        >>> import aiodev
        >>> sorted(aiodev.memory.host_memory_stats("cpu"))
        ['allocated_bytes.current', 'reserved_bytes.current']
    """
    cache = _caches.get(registry.resolve(device)[0].name)
    return {
        "allocated_bytes.current": 0 if cache is None else cache.allocated,
        "reserved_bytes.current": 0 if cache is None else cache.reserved,
    }


def pinned_cache(handle: BackendHandle) -> PinnedCache:
    """The cache of page-locked memory of one backend."""
    return _caches.get(handle.name) or _caches.setdefault(handle.name, PinnedCache(handle))


def empty_pinned_cache(handle: BackendHandle) -> None:
    """Give back page-locked memory that nobody uses."""
    cache = _caches.get(handle.name)
    if cache is not None:
        cache.empty()
