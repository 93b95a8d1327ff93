"""The process's allocators, one for each device, made when first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aiodev._core.device import Device
from aiodev._core.registry import BackendEntry, DeviceLike, registry
from aiodev._memory.caching import CachingAllocator

if TYPE_CHECKING:
    from aiodev._core.backend import Backend
    from aiodev._core.timeline import Timeline

__all__ = ["BackendMemory", "known_pool", "pool_for", "pool_of"]

_pools: dict[Device, CachingAllocator] = {}
_making = threading.RLock()


class BackendMemory:
    """A backend's memory on one device, as the allocator wants it."""

    def __init__(self, entry: BackendEntry, index: int) -> None:
        self._entry = entry
        self._index = index

    def allocate(self, nbytes: int) -> int:
        """Fresh memory.

        Host memory can be had before its backend has started; any other start is waited for, as for a driver's first call.
        """
        return self._started().allocate(self._index, nbytes)

    def _started(self) -> Backend:
        if not self._entry.started and not self._entry.backend.capabilities.host_accessible:
            self._entry.ensure_started()
        return self._entry.backend

    def deallocate(self, address: int, nbytes: int) -> None:
        """Give it back."""
        self._entry.backend.deallocate(self._index, address, nbytes)

    def info(self) -> tuple[int, int]:
        """Bytes free and in total."""
        return self._entry.backend.memory_info(self._index)

    def granularity(self) -> int:
        """What ranges are mapped in; 0 when there are none."""
        return self._started().granularity(self._index)

    def reserve_range(self, nbytes: int) -> int:
        """First address of a range without memory."""
        return self._entry.backend.reserve_range(self._index, nbytes)

    def map_range(self, address: int, nbytes: int) -> None:
        """Put memory there."""
        self._entry.backend.map_range(self._index, address, nbytes)

    def unmap_range(self, address: int, nbytes: int) -> None:
        """Give it back."""
        self._entry.backend.unmap_range(self._index, address, nbytes)


def pool_of(timeline: Timeline) -> CachingAllocator:
    """The allocator of a timeline's device."""
    return _pools.get(timeline.device) or _make(timeline.entry, timeline.device)


def pool_for(device: DeviceLike | None) -> CachingAllocator:
    """The allocator of a device; None is the current one."""
    entry, resolved = registry.resolve(device)
    return _pools.get(resolved) or _make(entry, resolved)


def known_pool(device: DeviceLike | None) -> CachingAllocator | None:
    """The same, if it has been needed so far."""
    return _pools.get(registry.resolve(device)[1])


def _make(entry: BackendEntry, device: Device) -> CachingAllocator:
    with _making:
        found = _pools.get(device)
        if found is None:
            memory = BackendMemory(entry, device.index)
            found = CachingAllocator(device, memory, entry.backend.capabilities.host_accessible)
            _pools[device] = found
        return found


# In a forked child the backend is another one: what the parent had allocated stays readable and is never reused.
registry.after_fork.append(_pools.clear)
