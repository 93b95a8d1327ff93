"""Admission: who may allocate how much at once.

Ten tasks that each need 30 % of a device cannot all run at once, and none of them can tell. A lease is a promise that
others will not take that much: leases of a device never sum up to more than it has. They are granted first come, first
served, so that a large one is not starved by small ones.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio

from aiodev._core.loops import running_loop
from aiodev._core.reactor import others_first
from aiodev._core.registry import DeviceLike, registry
from aiodev._memory.pools import pool_for

__all__ = ["Admission", "Lease", "lease"]


class _Waiter:
    """A task that waits for a lease, in any loop of any thread."""

    __slots__ = ("event", "granted", "nbytes", "wake")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.event = anyio.Event()
        self.granted = False
        self.wake: Callable[[Callable[[], object]], object]
        loop = running_loop()
        self.wake = loop.call_soon_threadsafe if loop is not None else _trio_waker()


def _trio_waker() -> Callable[[Callable[[], object]], object]:
    waker: Callable[[Callable[[], object]], object] = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon
    return waker


class Admission:
    """The leases of one device."""

    def __init__(self) -> None:
        self.leased = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def acquire(self, nbytes: int, capacity: int) -> None:
        """Wait until ``nbytes`` are there beside all other leases and every earlier request."""
        await others_first
        with self._lock:
            if not self._waiting and self.leased + nbytes <= capacity:
                self.leased += nbytes
                return
            waiter = _Waiter(nbytes)
            self._waiting.append(waiter)
        try:
            await waiter.event.wait()
        except BaseException:  # a cancellation, as a rule
            with self._lock:
                if not waiter.granted:
                    self._waiting.remove(waiter)
            # Whether it was granted meanwhile or stood before others: those may go on.
            self.release(nbytes if waiter.granted else 0, capacity)
            raise

    def release(self, nbytes: int, capacity: int) -> None:
        """Give ``nbytes`` back, and grant what can be granted."""
        with self._lock:
            self.leased -= nbytes
            while self._waiting and self.leased + self._waiting[0].nbytes <= capacity:
                waiter = self._waiting.popleft()
                waiter.granted = True
                try:
                    waiter.wake(waiter.event.set)
                except RuntimeError:  # its loop was closed while it waited
                    continue
                self.leased += waiter.nbytes


_admissions: dict[str, Admission] = {}
registry.after_fork.append(_admissions.clear)


class Lease:
    """``async with`` it to have memory set aside; see :func:`aiodev.memory.lease`.

    Attributes:
        nbytes: how much.
        device: of which device.

    Example:
        >>> import aiodev
        >>> aiodev.memory.Lease(1 << 20, "cpu")
        <aiodev lease of 1,048,576 bytes on cpu:0>
    """

    def __init__(self, nbytes: int, device: DeviceLike | None = None) -> None:
        if nbytes < 0:
            raise ValueError(f"a lease of {nbytes} bytes")
        self.nbytes = nbytes
        self._pool = pool_for(device)
        self.device = self._pool.device
        self._admission = _admissions.setdefault(str(self.device), Admission())

    async def __aenter__(self) -> Lease:
        capacity = self._capacity()
        if self.nbytes > capacity:
            raise self._pool.out_of_memory(self.nbytes)
        await self._admission.acquire(self.nbytes, capacity)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._admission.release(self.nbytes, self._capacity())

    def _capacity(self) -> int:
        return self._pool.info()[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """What it asks for; what has been granted to this one is not granted to another."""
        return Lease, (self.nbytes, self.device)

    def __repr__(self) -> str:
        return f"<aiodev lease of {self.nbytes:,} bytes on {self.device}>"


def lease(nbytes: int, device: DeviceLike | None = None) -> Lease:
    """Set memory aside: ``async with memory.lease(nbytes):`` waits until that much can be had.

    Leases of one device never sum up to more than its memory, or than this process's fraction of it, and are granted first
    come, first served. A lease allocates nothing, and arrays are not held to it: it is admission among those who ask.
    Cancellation gives the place back.

    Raises:
        OutOfMemoryError: on entering, when the device could never have that much.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     async with aiodev.memory.lease(1 << 20, "cpu"):
        ...         return aiodev.empty(1 << 17, device="cpu").nbytes
        >>> import asyncio; asyncio.run(main())
        1048576
    """
    return Lease(nbytes, device)
