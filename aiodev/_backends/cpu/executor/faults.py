"""Failures of a timeline.

Its worker writes them to a ring, in which workers of other queues look for what these wait for. Failures are few, since each is
told before the next one comes. Withdrawals may be many: what the ring has no room for any more is kept elsewhere, and as
soon as that may be so both sides take the lock of the queue's withdrawals.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.ready_queue import lock, unlock
from aiodev._backends.cpu.layout import (
    F_A,
    F_B,
    F_C,
    F_D,
    F_FIRST,
    F_KIND,
    F_LAST,
    FAULT_BYTES,
    FAULT_SLOTS,
    KIND_WITHDRAWN,
    NEVER,
    P_COUNT,
    P_RING,
    PASSED_BYTES,
    PASSED_SLOTS,
    Q_FAILED,
    Q_FAULT_RING,
    Q_FAULTS,
    Q_FORGIVEN,
    Q_PASSED,
    Q_SUBMITTED,
    Q_WITHDRAW_LOCK,
    WORD,
)
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import get, load, malloc, put, store, store_fence


@inner
def open_fault(queue, value, kind, a, b, c, d):
    """Record that operation ``value`` failed; what follows it does not run until it is forgiven."""
    record_fault(queue, value, 0, kind, a, b, c, d)


@inner
def record_fault(queue, value, last, kind, a, b, c, d):
    """Record that operations ``value`` … ``last`` failed or do not run; 0: all that follow, until it is forgiven."""
    count = get(queue + Q_FAULTS)
    fault = queue + Q_FAULT_RING + (count % FAULT_SLOTS) * FAULT_BYTES
    crowded = count >= FAULT_SLOTS
    if crowded:
        lock(queue + Q_WITHDRAW_LOCK)
        if get(fault + F_KIND) == KIND_WITHDRAWN:
            keep_passed(queue, get(fault + F_FIRST), get(fault + F_LAST))
    put(fault + F_FIRST, value)
    put(fault + F_LAST, last)
    put(fault + F_KIND, kind)
    put(fault + F_A, a)
    put(fault + F_B, b)
    put(fault + F_C, c)
    put(fault + F_D, d)
    put(queue + Q_FAILED, value)
    store(queue + Q_FORGIVEN, NEVER if last == 0 else last)
    store(queue + Q_FAULTS, count + 1)
    if crowded:
        unlock(queue + Q_WITHDRAW_LOCK)


@inner
def keep_passed(queue, first, last):
    """Keep what the ring has of a withdrawal, which is about to be overwritten (lock held)."""
    passed = get(queue + Q_PASSED)
    if passed == 0:
        passed = malloc(PASSED_BYTES)
        if passed == 0:
            return
        put(passed + P_COUNT, 0)
        put(queue + Q_PASSED, passed)
    count = get(passed + P_COUNT)
    slot = passed + P_RING + 16 * (count % PASSED_SLOTS)
    put(slot, first)
    put(slot + WORD, last)
    put(passed + P_COUNT, count + 1)


@inner
def covering_fault(queue, value):
    """First failed operation of the fault that covers ``value``, or 0."""
    if load(queue + Q_FAULTS) < FAULT_SLOTS // 2:
        return covering_in_ring(queue, value)
    lock(queue + Q_WITHDRAW_LOCK)
    first = covering_in_ring(queue, value)
    if first == 0 and get(queue + Q_PASSED) != 0:
        first = covering_passed(get(queue + Q_PASSED), value)
    unlock(queue + Q_WITHDRAW_LOCK)
    return first


@inner
def covering_passed(passed, value):
    """The same, of the withdrawals that are kept."""
    for i in range(min(PASSED_SLOTS, get(passed + P_COUNT))):
        slot = passed + P_RING + 16 * i
        if get(slot) <= value <= get(slot + WORD):
            return get(slot)
    return 0


@inner
def covering_in_ring(queue, value):
    """The same, of the last faults."""
    count = load(queue + Q_FAULTS)
    for i in range(max(0, count - FAULT_SLOTS), count):
        fault = queue + Q_FAULT_RING + (i % FAULT_SLOTS) * FAULT_BYTES
        first, last = get(fault + F_FIRST), load(fault + F_LAST)
        if first <= value and (last == 0 or value <= last):
            return first
    return 0


@exported(void(int64))
def forgive(queue):
    """End an open fault with the operation submitted last."""
    count = load(queue + Q_FAULTS)
    if count == 0:
        return
    fault = queue + Q_FAULT_RING + ((count - 1) % FAULT_SLOTS) * FAULT_BYTES
    if get(fault + F_LAST) == 0:
        submitted = load(queue + Q_SUBMITTED)
        store(fault + F_LAST, submitted)
        store_fence(queue + Q_FORGIVEN, submitted)
