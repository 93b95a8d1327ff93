"""Withdrawals: operations that do not run, since somebody withdrew them in time.

A queue's withdrawals are a short ascending list, under a lock that nobody takes as long as nothing is withdrawn: a worker
compares the number of each operation with ``withdrawn``, a word on the line of the counter that it has just written.
"""

from __future__ import annotations

from aiodev._backends.executor.faults import record_fault
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import KIND_WITHDRAWN, NEVER, Queue, Withdrawal
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import free, malloc


@inner
def enter_withdrawal(queue: Queue, first: int, last: int, node: Withdrawal) -> None:
    """Have ``first`` … ``last`` not run, as ``node`` or, where they touch others, as one with them (lock held)."""
    link = queue.withdrawals
    other = link.value
    while other is not None and other.last < first - 1:
        link = other.next
        other = link.value
    while other is not None and other.first <= last + 1:
        first, last = min(first, other.first), max(last, other.last)
        following = other.next.value
        free(other)
        other = following
    node.first = first
    node.last = last
    node.next.value = other
    link.value = node


@inner
def lowest_withdrawn(queue: Queue) -> int:
    """The first operation that is withdrawn and not passed, or NEVER (lock held)."""
    node = queue.withdrawals.value
    return NEVER if node is None else node.first


@inner
def withdraw_behind(queue: Queue, begun: int, first: int, last: int, partly: bool, node: Withdrawal) -> int:
    """Withdraw those of ``first`` … ``last`` that are behind ``begun``, if all are or ``partly``; the first of them, or 0.

    Whatever lets operations begin waits meanwhile. ``node`` is used, or freed.
    """
    start = max(first, begun + 1)
    if start > last or (start > first and not partly):
        start = 0
        free(node)
    else:
        enter_withdrawal(queue, start, last, node)
    queue.withdrawn.store(lowest_withdrawn(queue))
    return start


@inner
def fail_withdrawn(queue: Queue, value: int) -> int:
    """Have operation ``value``, which is next, fail if it is withdrawn; then ``value``, else 0.

    The failure ends with the last operation that is withdrawn in a row: whoever withdrew knows of it.
    """
    if value < queue.withdrawn.load_fence():
        return 0
    last = 0
    lock(queue.withdraw_lock)
    node = queue.withdrawals.value
    while node is not None and node.first <= value:
        if node.last > value:
            last = node.last
            break
        last = value if node.last == value else last
        following = node.next.value
        free(node)
        node = following
    queue.withdrawals.value = node
    queue.withdrawn.store(lowest_withdrawn(queue))
    unlock(queue.withdraw_lock)
    if last == 0:
        return 0
    record_fault(queue, value, last, KIND_WITHDRAWN, 0, 0, 0, 0)
    return value


@inner
def create_withdrawal() -> Withdrawal:
    """Memory for a withdrawal."""
    address = malloc(sizeof(Withdrawal))
    if address == 0:
        raise MemoryError("no memory for another withdrawal")
    return Withdrawal(address)


@exported(void(int64))
def forget_withdrawals(queue: Queue) -> None:
    """Make an idle queue as good as new.

    Withdrawn operations behind another failure are passed without a look at the list. Who waited for a position of a signalled
    queue that nothing has come to has gone.
    """
    waiter = queue.waiters.load()
    while waiter is not None:
        waiter.target.store(NEVER)
        waiter = waiter.next
    node = queue.withdrawals.value
    while node is not None:
        following = node.next.value
        free(node)
        node = following
    queue.withdrawals.value = None
    passed = queue.passed
    if passed is not None:
        free(passed)
        queue.passed = None
    queue.withdrawn.store(NEVER)
    queue.begun.store(0)
