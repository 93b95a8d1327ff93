"""Withdrawing operations that no worker has begun (invariant 8)."""

from __future__ import annotations

from aiodev._backends.cpu.structs import Queue
from aiodev._backends.executor.compile import boolean, exported, int64
from aiodev._backends.executor.fields import sizeof
from aiodev._backends.executor.intrinsics import free, malloc
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import Withdrawal
from aiodev._backends.executor.withdrawals import enter_withdrawal, lowest_withdrawn


@exported(int64(int64, int64, int64, boolean))
def withdraw(queue: Queue, first: int, last: int, partly: bool) -> int:
    """Withdraw what has not begun, as :meth:`Backend.withdraw` says; returns the first of it, or 0."""
    found = malloc(sizeof(Withdrawal))
    if found == 0:
        raise MemoryError("no memory for another withdrawal")
    node = Withdrawal(found)
    lock(queue.withdraw_lock)
    queue.withdrawn.store_fence(min(first, lowest_withdrawn(queue)))  # from here on a worker waits for the lock
    start = max(first, queue.begun.load_fence() + 1)
    if start > last or (start > first and not partly):
        start = 0
        free(node)
    else:
        enter_withdrawal(queue, start, last, node)
    queue.withdrawn.store(lowest_withdrawn(queue))
    unlock(queue.withdraw_lock)
    return start
