"""Pools: memory of a device that serves only those who ask for it."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import NoReturn

from aiodev._core.backend.registry import DeviceLike
from aiodev._core.waiting.reactor import others_first
from aiodev._memory import allocators
from aiodev._memory.allocator import CachingAllocator

__all__ = ["MemoryPool"]


class MemoryPool:
    """Memory of one device, apart from the rest: ``with pool:`` has arrays of this task come from it.

    What was freed into the pool serves only the pool again, and nothing else moves into it: a graph that is replayed finds its
    memory where it was captured, and a burst of odd sizes leaves the common cache as it is. Tasks that are created inside of
    the block inherit it. Arrays may outlive the block, and the pool. What the pool has cached goes back when it is dropped. The
    rest follows once its arrays are dropped too, and the work that uses them is done: at the latest when a pool is made or
    dropped then, or the device's allocator looks for memory, or has some freed.

    Args:
        device: whose memory; the current device by default.

    Raises:
        RuntimeError: when it is left, and it is not what this task entered last; when it is entered, and is a graph's.

    Example:
        >>> import aiodev
        >>> pool = aiodev.memory.MemoryPool("cpu")
        >>> with pool:
        ...     x = aiodev.empty(1000, "uint8", "cpu")
        >>> pool.memory_reserved() > 0
        True
    """

    def __init__(self, device: DeviceLike | None = None) -> None:
        self._allocator = allocators.allocator_for(device).make_private()
        self.device = self._allocator.device
        self._entered: list[None] = []  # one entry, once it was
        weakref.finalize(self, _drop, self._allocator, self._entered).atexit = False

    def memory_reserved(self) -> int:
        """Bytes that the pool holds, in use or not."""
        return sum(segment.mapped() for segment in self._allocator.slow_path.segments.all())

    def __enter__(self) -> MemoryPool:
        if self._allocator.slow_path.segments.pins:
            raise RuntimeError(f"{self!r} is a graph's: what is free there is used by replays; capture(pool=…) shares it")
        if not self._entered:
            self._entered.append(None)
            allocators.pool_count += 1
        outer = allocators.chosen.get()
        allocators.chosen.set(allocators.Chosen({**outer.allocators, self.device: self._allocator}, outer, self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        allocators.chosen.leave(self)

    async def __aenter__(self) -> MemoryPool:
        await others_first
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __reduce__(self) -> NoReturn:
        """A pool's memory is given back when the pool is dropped, so there is one of it, in its own process."""
        raise TypeError("memory pools are not pickled or copied: they belong to their process; make another one")

    def __repr__(self) -> str:
        return f"<aiodev memory pool {self._allocator.number} of {self.device}: {self.memory_reserved():,} bytes>"


def _drop(allocator: CachingAllocator, entered: list[None]) -> None:
    allocators.pool_count -= len(entered)
    allocator.abandon()
