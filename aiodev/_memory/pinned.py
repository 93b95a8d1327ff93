"""Page-locked host memory, cached: what devices copy from and to at full speed.

Locking pages is slow, and may wait for the device, so what was freed is kept, in sizes that are powers of two. A block goes
back to its bin when the last array over it is dropped. A copy holds its arrays until it is done, so no block is handed out
while the device uses it, and there are no events to wait for.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array.dtypes import parse_dtype
from aiodev._array.layout import parse_shape
from aiodev._core.finalizing import until_exit
from aiodev._core.registry import BackendEntry, DeviceLike, registry

if TYPE_CHECKING:
    from aiodev._core.stream import Stream

__all__ = ["empty_pinned", "empty_pinned_cache", "host_memory_stats", "pin", "record_stream"]

HostArray = np.ndarray[Any, np.dtype[Any]]
_SMALLEST = 4096


class PinnedCache:
    """The page-locked memory of one backend; any of its devices may copy from and to it."""

    def __init__(self, entry: BackendEntry) -> None:
        self.entry = entry
        self.bins: dict[int, list[tuple[int, int]]] = {}  # by size: (device index, address)
        self.allocated = self.reserved = 0  # bytes
        self._lock = threading.Lock()

    def allocate(self, index: int, nbytes: int) -> _Block:
        """A block of at least ``nbytes``; the first ones of a size come from the backend."""
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length())
        try:
            index, address = self.bins.setdefault(size, []).pop()
        except IndexError:
            address = self._lock_pages(index, size)
            self.reserved += size
        self.allocated += size
        return _Block(self, index, address, size)

    def _lock_pages(self, index: int, size: int) -> int:
        self.entry.ensure_started()
        try:
            return self.entry.backend.allocate_pinned(index, size)
        except MemoryError:
            self.empty()
            return self.entry.backend.allocate_pinned(index, size)

    def empty(self) -> None:
        """Give back what nobody uses."""
        with self._lock:
            for size, cached in self.bins.items():
                while cached:
                    index, address = cached.pop()
                    self.entry.backend.deallocate_pinned(index, address)
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
registry.after_fork.append(_caches.clear)


def empty_pinned(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> HostArray:
    """A NumPy array in page-locked memory, its elements not defined: for copies to and from a device that overlap with work.

    On the CPU, whose memory is the host's, it is ordinary memory. The first arrays of a size take long; dropped ones are kept.

    Args:
        shape: a length, or a tuple of lengths.
        dtype: float64 by default.
        device: whose backend the memory is for; the current device by default. That is started if need be, which blocks.

    Raises:
        MemoryError: the system has no more that it can lock.
        NotImplementedError: the backend has none.

    Example:
        >>> import aiodev
        >>> staging = aiodev.memory.empty_pinned((2, 3), "float32", "cpu")
        >>> staging.shape, staging.dtype
        ((2, 3), dtype('float32'))
    """
    found, lengths = parse_dtype(dtype), parse_shape(shape)
    entry, resolved = registry.resolve(device)
    nbytes = math.prod(lengths) * found.itemsize
    cache = _caches.setdefault(entry.name, PinnedCache(entry))
    made: HostArray = np.asarray(cache.allocate(resolved.index, nbytes))[:nbytes].view(found).reshape(lengths)
    return made


def pin(array: Any, device: DeviceLike | None = None) -> HostArray:
    """A copy of a host array in page-locked memory; arguments and errors as for :func:`empty_pinned`. Copies here and now.

    Example:
        >>> import aiodev
        >>> aiodev.memory.pin([1, 2, 3], "cpu")
        array([1, 2, 3])
    """
    host = np.asarray(array)
    made = empty_pinned(host.shape, host.dtype, device)
    made[...] = host
    return made


def record_stream(array: HostArray, stream: Stream) -> None:
    """Keep a host array for what ``stream`` was given so far: for copies that other libraries submit.

    Copies of aiodev keep theirs by themselves.

    Example:
        >>> import aiodev
        >>> staging = aiodev.memory.empty_pinned(8, device="cpu")
        >>> aiodev.memory.record_stream(staging, aiodev.default_stream("cpu"))
    """
    stream.timeline.keep(stream.timeline.submitted, array)


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


def empty_pinned_cache(entry: BackendEntry) -> None:
    """Give back what nobody uses."""
    cache = _caches.get(entry.name)
    if cache is not None:
        cache.empty()
