"""Operations that do not run, since somebody withdrew them in time (invariant 8).

A queue's withdrawals are a short ascending list, under a lock that nobody takes as long as nothing is withdrawn: a worker
compares the number of each operation with ``Q_WITHDRAWN``, a word on the line of the counter that it has just written.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.faults import record_fault
from aiodev._backends.cpu.layout import (
    I_FIRST,
    I_LAST,
    I_NEXT,
    KIND_WITHDRAWN,
    NEVER,
    Q_BEGUN,
    Q_PASSED,
    Q_WITHDRAW_LOCK,
    Q_WITHDRAWALS,
    Q_WITHDRAWN,
    WITHDRAWAL_BYTES,
)
from aiodev._backends.executor.compile import boolean, exported, inner, int64, void
from aiodev._backends.executor.intrinsics import free, get, load_fence, malloc, put, store, store_fence
from aiodev._backends.executor.locking import lock, unlock


@inner
def enter_withdrawal(queue, first, last, node):
    """Have ``first`` … ``last`` not run, as ``node`` or, where they touch others, as one with them (lock held)."""
    link = queue + Q_WITHDRAWALS
    other = get(link)
    while other != 0 and get(other + I_LAST) < first - 1:
        link = other + I_NEXT
        other = get(link)
    while other != 0 and get(other + I_FIRST) <= last + 1:
        first, last = min(first, get(other + I_FIRST)), max(last, get(other + I_LAST))
        following = get(other + I_NEXT)
        free(other)
        other = following
    put(node + I_FIRST, first)
    put(node + I_LAST, last)
    put(node + I_NEXT, other)
    put(link, node)


@inner
def lowest_withdrawn(queue):
    """The first operation that is withdrawn and not passed, or NEVER (lock held)."""
    node = get(queue + Q_WITHDRAWALS)
    return NEVER if node == 0 else get(node + I_FIRST)


@inner
def fail_withdrawn(queue, value):
    """Have operation ``value``, which is next, fail if it is withdrawn; then ``value``, else 0.

    The failure ends with the last operation that is withdrawn in a row: whoever withdrew knows of it.
    """
    if value < load_fence(queue + Q_WITHDRAWN):
        return 0
    last = 0
    lock(queue + Q_WITHDRAW_LOCK)
    node = get(queue + Q_WITHDRAWALS)
    while node != 0 and get(node + I_FIRST) <= value:
        if get(node + I_LAST) > value:
            last = get(node + I_LAST)
            break
        last = value if get(node + I_LAST) == value else last
        following = get(node + I_NEXT)
        free(node)
        node = following
    put(queue + Q_WITHDRAWALS, node)
    store(queue + Q_WITHDRAWN, lowest_withdrawn(queue))
    unlock(queue + Q_WITHDRAW_LOCK)
    if last == 0:
        return 0
    record_fault(queue, value, last, KIND_WITHDRAWN, 0, 0, 0, 0)
    return value


@exported(int64(int64, int64, int64, boolean))
def withdraw(queue, first, last, partly):
    """Withdraw what has not begun, as :meth:`Backend.withdraw` says; returns the first of it, or 0."""
    node = malloc(WITHDRAWAL_BYTES)
    if node == 0:
        raise MemoryError("no memory for another withdrawal")
    lock(queue + Q_WITHDRAW_LOCK)
    store_fence(queue + Q_WITHDRAWN, min(first, lowest_withdrawn(queue)))  # from here on a worker waits for the lock
    start = max(first, load_fence(queue + Q_BEGUN) + 1)
    if start > last or (start > first and not partly):
        start = 0
        free(node)
    else:
        enter_withdrawal(queue, start, last, node)
    store(queue + Q_WITHDRAWN, lowest_withdrawn(queue))
    unlock(queue + Q_WITHDRAW_LOCK)
    return start


@exported(void(int64))
def forget_withdrawals(queue):
    """Make an idle queue as good as new: withdrawn operations behind another failure are passed without a look at the list."""
    node = get(queue + Q_WITHDRAWALS)
    while node != 0:
        following = get(node + I_NEXT)
        free(node)
        node = following
    put(queue + Q_WITHDRAWALS, 0)
    passed = get(queue + Q_PASSED)
    if passed != 0:
        free(passed)
        put(queue + Q_PASSED, 0)
    store(queue + Q_WITHDRAWN, NEVER)
    store(queue + Q_BEGUN, 0)
