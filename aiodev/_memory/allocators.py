"""The registry of allocators: one for each device, made when first needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiodev._core.at_fork import first_in_child, in_child
from aiodev._core.backend.device import Device
from aiodev._core.backend.registry import BackendHandle, DeviceLike, registry
from aiodev._core.config import settings
from aiodev._core.scopes import Scoped
from aiodev._memory.allocator import CachingAllocator
from aiodev._memory.events import WatchedAllocator, observing

if TYPE_CHECKING:
    from aiodev._core.backend.interface import Backend
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["BackendMemory", "Chosen", "known_allocator", "allocator_for", "allocator_of"]

#: Of each device that has one.
pools: dict[Device, CachingAllocator] = {}
_making = threading.RLock()


class Chosen:
    """The pools that the running task allocates from; see :class:`aiodev.memory.MemoryPool`.

    Attributes:
        allocators: by device.
        outer: what to go back to; None for the outermost.
        owner: the pool that was entered.
    """

    __slots__ = ("allocators", "outer", "owner")

    def __init__(self, allocators: Mapping[Device, CachingAllocator], outer: Chosen | None, owner: object) -> None:
        self.allocators = allocators
        self.outer = outer
        self.owner = owner


chosen = Scoped("aiodev.memory", Chosen({}, None, None))
#: How many memory pools were entered, and captures are under way. Mostly none, and an allocation then looks no further.
pool_count = 0


class BackendMemory:
    """A backend's memory on one device, as the allocator wants it."""

    def __init__(self, handle: BackendHandle, index: int) -> None:
        self._handle = handle
        self._index = index

    def allocate(self, nbytes: int) -> int:
        """Fresh memory.

        Host memory can be had before its backend has started; any other start is waited for, as for a driver's first call.
        """
        return self._started().allocate(self._index, nbytes)

    def _started(self) -> Backend:
        if not self._handle.started and not self._handle.backend.capabilities.host_accessible:
            self._handle.ensure_started()
        return self._handle.backend

    def deallocate(self, address: int, nbytes: int) -> None:
        """Give it back."""
        self._handle.backend.deallocate(self._index, address, nbytes)

    def info(self) -> tuple[int, int]:
        """Bytes free and in total."""
        return self._handle.backend.memory_info(self._index)

    def granularity(self) -> int:
        """Ranges are mapped in multiples of so many bytes; 0 when there are no ranges."""
        return self._started().granularity(self._index)

    def reserve_range(self, nbytes: int) -> int:
        """First address of a new range, without memory."""
        return self._handle.backend.reserve_range(self._index, nbytes)

    def map_range(self, address: int, nbytes: int) -> None:
        """Map memory into a part of a range."""
        self._handle.backend.map_range(self._index, address, nbytes)

    def unmap_range(self, address: int, nbytes: int) -> None:
        """Give it back."""
        self._handle.backend.unmap_range(self._index, address, nbytes)

    def release_range(self, address: int, nbytes: int) -> None:
        """Give back the addresses of a range that has no memory."""
        self._handle.backend.release_range(self._index, address, nbytes)


def allocator_of(timeline: Timeline) -> CachingAllocator:
    """The allocator, or the pool, that serves the running task on a timeline's device."""
    if pool_count:
        if timeline.recording is not None:
            return timeline.recording.memory  # type: ignore[no-any-return]
        allocator = chosen.get().allocators.get(timeline.device)
        if allocator is not None:
            return allocator
    return pools.get(timeline.device) or _make(timeline.handle, timeline.device)


def allocator_for(device: DeviceLike | None) -> CachingAllocator:
    """The allocator of a device; None is the current one."""
    handle, resolved = registry.resolve(device)
    return pools.get(resolved) or _make(handle, resolved)


def known_allocator(device: DeviceLike | None) -> CachingAllocator | None:
    """The allocator of a device, or None if nothing was allocated there yet."""
    return pools.get(registry.resolve(device)[1])


def _make(handle: BackendHandle, device: Device) -> CachingAllocator:
    with _making:
        allocator = pools.get(device)
        if allocator is None:
            accessible = handle.backend.capabilities.host_accessible
            kind: type[CachingAllocator] = WatchedAllocator if observing() else CachingAllocator
            if settings.debug:
                if accessible:
                    from aiodev._memory.debug import DebugAllocator as kind
                else:
                    from aiodev._memory.races import RaceAllocator as kind
            allocator = pools[device] = kind(device, BackendMemory(handle, device.index), accessible)
        return allocator


def _renew_after_fork() -> None:
    global _making
    _making = threading.RLock()  # another thread of the parent may have held it
    for allocator in list(pools.values()):
        allocator.leave_to_parent()


# In a forked child the backend is another one: what the parent had allocated stays readable and is never reused.
first_in_child(_renew_after_fork)
in_child(pools.clear)
