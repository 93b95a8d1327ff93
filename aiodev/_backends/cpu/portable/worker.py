"""Worker threads of the portable executor."""

from __future__ import annotations

import threading
from typing import Protocol

from aiodev._backends.cpu.portable.queues import PAUSED, Device, Function, PortableQueue, Shared
from aiodev._backends.cpu.tuning import PORTABLE_OVERHEAD

__all__ = ["Worker"]


class Owner(Protocol):
    """The interface of the executor that workers use, without the lock or with it."""

    def function(self, entry: int) -> Function:
        """Code of a kernel entry."""

    def before(self, queue: int) -> None:
        """Called before each copy, fill, stamp and kernel, without the lock; may raise."""

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The exception that a waiter gets for ``error``."""


class Worker:
    """One thread: takes what is most urgent on its device, again and again."""

    def __init__(self, name: str, device: Device, lock: threading.RLock, owner: Owner) -> None:
        self.lock = lock
        self.thread_count = device.thread_count
        self.stopping = False
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._device, self._owner = device, owner

    def function(self, entry: int) -> Function:
        """Code of a kernel entry."""
        return self._owner.function(entry)

    def before(self, queue: PortableQueue) -> None:
        """Take the time, or the failure, that a simulated device puts before an operation."""
        self._owner.before(queue.number)

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The exception that a waiter gets for ``error``, which a kernel raised."""
        return self._owner.explain(error, entry, site)

    def invite(self, queue: PortableQueue, work: Shared, helpers: int) -> None:
        """Let up to ``helpers`` idle workers join ``work``."""
        self._device.invite(queue, work, helpers)

    def _work(self) -> None:
        device = self._device
        with self.lock:
            while not self.stopping:
                if not device.ready:
                    device.arrived.wait()
                    continue
                what = device.pop()
                if isinstance(what, PortableQueue):
                    self._advance(what)
                else:
                    what.help()

    def _advance(self, queue: PortableQueue) -> None:
        """Run operations of ``queue`` until it is idle or held, or it is the turn of others."""
        device = self._device
        while True:
            if not queue.pending:
                queue.idle = True
                device.depart(queue)
                return
            operation, value = queue.pending[0], queue.completed + 1
            if queue.traces:
                queue.begin_trace(value)
            skipped = queue.skips(value) or (bool(queue.withdrawals) and queue.fails_withdrawn(value))
            if operation.holds(queue, skipped):
                device.depart(queue)
                return
            queue.begun = value
            failure = None if skipped else operation.run(queue, self)
            if failure is PAUSED:
                break
            queue.pending.popleft()
            device.charge(queue, PORTABLE_OVERHEAD)
            queue.complete(failure)
            if queue.pending and device.gives_way(queue):  # one that wants no more is not active
                break
        device.put_back(queue)
