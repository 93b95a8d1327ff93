"""Admission: who may allocate how much at once.

Ten tasks that each need 30 % of a device cannot all run at once, and none of them can tell. A lease is a promise that
others will not take that much: leases of a device never sum up to more than it has. They are granted first come, first
served, so that a large one is not starved by small ones.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import anyio

from aiodev._core.arguments import message, refusal
from aiodev._core.at_fork import first_in_child, in_child
from aiodev._core.backend.registry import DeviceLike
from aiodev._core.finalizing import until_exit
from aiodev._core.sigint import sigint_held
from aiodev._core.waiting.loops import running_loop
from aiodev._core.waiting.reactor import others_first
from aiodev._core.waiting.watcher import watcher
from aiodev._memory.allocators import allocator_for, known_allocator

__all__ = ["Admission", "Lease", "lease", "look_again"]


class _Waiter:
    """A task that waits for a lease, in any loop of any thread.

    Attributes:
        granted: whether it has been; None until that is known. False: the device could never have that much.
    """

    __slots__ = ("event", "granted", "nbytes", "wake")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.event = anyio.Event()
        self.granted: bool | None = None
        self.wake: Callable[[Callable[[], object]], object]
        loop = running_loop()
        self.wake = loop.call_soon_threadsafe if loop is not None else _trio_waker()


def _trio_waker() -> Callable[[Callable[[], object]], object]:
    waker: Callable[[Callable[[], object]], object] = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon
    return waker


class Admission:
    """The leases of one device.

    Args:
        capacity: how many bytes they may sum up to; whenever it changes, :meth:`look_again`.
    """

    def __init__(self, capacity: Callable[[], int]) -> None:
        self.leased = 0
        self._capacity = capacity
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.RLock()
        self.is_parents = False  #: this is a forked child

    def __len__(self) -> int:
        """How many tasks wait for a lease."""
        return len(self._waiting)

    async def acquire(self, nbytes: int) -> bool:
        """Wait until ``nbytes`` are there beside all other leases and every earlier request; False if they can never be."""
        waiter = _Waiter(nbytes)
        try:
            with sigint_held, self._lock:  # before others run, who may ask, too
                capacity = self._capacity()
                if nbytes > capacity:
                    waiter.granted = False
                elif not self._waiting and self.leased + nbytes <= capacity:
                    self.leased += nbytes
                    waiter.granted = True
                else:
                    self._waiting.append(waiter)
            if waiter.granted is None:
                await waiter.event.wait()
            else:
                await others_first
        except BaseException:  # a cancellation, as a rule
            if sys.is_finalizing():  # a thread that has ended may have had the lock
                raise
            with sigint_held, self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                # Whether it was granted meanwhile or stood before others: those may go on.
                self.release(nbytes if waiter.granted else 0)
            raise
        return waiter.granted is True  # nothing is called from here until who asked has noted it

    def release(self, nbytes: int) -> None:
        """Give ``nbytes`` back, and grant what can be granted."""
        with sigint_held, self._lock:
            self.leased -= nbytes
            self._grant()

    def look_again(self) -> None:
        """Grant what can be granted, and refuse what never can, after the capacity has changed."""
        with sigint_held, self._lock:
            self._grant()

    def leave_to_parent(self) -> None:
        """In a forked child: grant nothing to the parent's tasks, whose loops do not run here."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._waiting.clear()
        self.is_parents = True

    def _grant(self) -> None:
        capacity = self._capacity()
        for waiter in [waiter for waiter in self._waiting if waiter.nbytes > capacity]:
            self._waiting.remove(waiter)
            self._tell(waiter, granted=False)
        while self._waiting and self.leased + self._waiting[0].nbytes <= capacity:
            waiter = self._waiting.popleft()
            if self._tell(waiter, granted=True):
                self.leased += waiter.nbytes

    def _tell(self, waiter: _Waiter, granted: bool) -> bool:
        """Have the task go on; False when its loop was closed while it waited."""
        waiter.granted = granted
        try:
            waiter.wake(waiter.event.set)
        except RuntimeError:
            waiter.granted = None  # it has nothing to give back, when it is collected
            return False
        return True


_admissions: dict[str, Admission] = {}


def _leave_to_parent() -> None:
    for admission in _admissions.values():
        admission.leave_to_parent()


first_in_child(_leave_to_parent)
in_child(_admissions.clear)


@until_exit
class Lease:
    """``async with`` it to have memory set aside; see :func:`aiodev.memory.lease`.

    Attributes:
        nbytes: how much.
        device: of which device.

    Raises:
        RuntimeError: when it is left without having been entered.

    Example:
        >>> import aiodev
        >>> aiodev.memory.Lease(1 << 20, "cpu")
        <aiodev lease of 1,048,576 bytes on cpu:0>
    """

    def __init__(self, nbytes: int, device: DeviceLike | None = None) -> None:
        try:
            self.nbytes = operator.index(nbytes)
        except TypeError:
            raise refusal("lease", "nbytes", "an integer", nbytes) from None
        if self.nbytes < 0:
            raise ValueError(message("lease", "nbytes", "0 or more", nbytes))
        self._pool = pool = allocator_for(device)
        self.device = pool.device
        self._admission = _admissions.setdefault(str(self.device), Admission(pool.slow_path.segments.capacity))
        self._entered = 0

    async def __aenter__(self) -> Lease:
        if not await self._admission.acquire(self.nbytes):
            raise self._pool.slow_path.out_of_memory(self.nbytes)
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._entered == 0:
            raise RuntimeError(f"{self!r} was left without having been entered; use `async with`")
        self._leave()

    def _leave(self) -> None:
        """Give back what was granted; in any thread, and waiting for nothing."""
        with sigint_held:
            self._entered -= 1
            self._admission.release(self.nbytes)

    def __del__(self) -> None:
        """Give back what was granted, if Ctrl-C came before it could be left."""
        entered = getattr(self, "_entered", 0)
        if entered and not self._admission.is_parents:
            watcher.call(partial(self._admission.release, entered * self.nbytes))

    def __reduce__(self) -> tuple[Any, ...]:
        """What it asks for; what has been granted to this one is not granted to another."""
        return Lease, (self.nbytes, self.device)

    def __repr__(self) -> str:
        return f"<aiodev lease of {self.nbytes:,} bytes on {self.device}>"


def lease(nbytes: int, device: DeviceLike | None = None) -> Lease:
    """Set memory aside: ``async with memory.lease(nbytes):`` waits until that much can be had.

    Leases of one device never sum up to more than its memory, or than this process's fraction of it, and are granted first
    come, first served, in the order in which they are entered. A lease allocates nothing, and arrays are not held to it: it is
    admission among those who ask.
    Cancellation gives the place back.

    Raises:
        OutOfMemoryError: on entering, when the device could never have that much; while waiting, when
            :func:`set_per_process_memory_fraction` has left less.
        TypeError: ``nbytes`` is no integer.
        ValueError: it is negative.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     async with aiodev.memory.lease(1 << 20, "cpu"):
        ...         return aiodev.empty(1 << 17, device="cpu").nbytes
        >>> import asyncio; asyncio.run(main())
        1048576
    """
    return Lease(nbytes, device)


def look_again(device: DeviceLike | None) -> None:
    """Grant or refuse leases that wait, after a device's limit has changed."""
    pool = known_allocator(device)
    admission = None if pool is None else _admissions.get(str(pool.device))
    if admission is not None:
        admission.look_again()
