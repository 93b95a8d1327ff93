"""Withdrawing operations that no worker has begun (invariant 8)."""

from __future__ import annotations

from aiodev._backends.cpu.structs import Queue
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.withdrawals import create_withdrawal, lowest_withdrawn, withdraw_behind
from aiodev._native.compile import boolean, exported, int64


@exported(int64(int64, int64, int64, boolean))
def withdraw(queue: Queue, first: int, last: int, partly: bool) -> int:
    """Withdraw what has not begun, as :meth:`Backend.withdraw` says; returns the first of it, or 0."""
    node = create_withdrawal()
    lock(queue.withdraw_lock)
    queue.withdrawn.store_fence(min(first, lowest_withdrawn(queue)))  # from here on a worker waits for the lock
    start = withdraw_behind(queue, queue.begun.load_fence(), first, last, partly, node)
    unlock(queue.withdraw_lock)
    return start
