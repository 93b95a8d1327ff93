"""Faults of a queue.

Its worker writes them to a ring, in which workers of other queues look for what these wait for. Failures are few, since each is
told before the next one comes. Withdrawals may be many: what the ring has no room for any more is kept elsewhere, and as
soon as that may be so both sides take the lock of the queue's withdrawals.
"""

from __future__ import annotations

from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import FAULT_SLOTS, KIND_WITHDRAWN, NEVER, PASSED_SLOTS, Passed, Queue
from aiodev._core.backend.trace_log import FATE_DONE, FATE_FAILED, FATE_SKIPPED, FATE_WITHDRAWN
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import malloc


@inner
def open_fault(queue: Queue, value: int, kind: int, a: int, b: int, c: int, d: int) -> None:
    """Record that operation ``value`` failed; what follows it does not run until it is forgiven."""
    record_fault(queue, value, 0, kind, a, b, c, d)


@inner
def record_fault(queue: Queue, value: int, last: int, kind: int, a: int, b: int, c: int, d: int) -> None:
    """Record that operations ``value`` … ``last`` failed or do not run; 0: all that follow, until it is forgiven."""
    count = queue.faults.value
    fault = queue.ring[count % FAULT_SLOTS]
    crowded = count >= FAULT_SLOTS
    if crowded:
        lock(queue.withdraw_lock)
        if fault.kind == KIND_WITHDRAWN:
            keep_passed(queue, fault.first, fault.last.value)
    fault.first = value
    fault.last.value = last
    fault.kind = kind
    fault.a = a
    fault.b = b
    fault.c = c
    fault.d = d
    queue.failed = value
    queue.forgiven.store(NEVER if last == 0 else last)
    queue.faults.store(count + 1)
    if crowded:
        unlock(queue.withdraw_lock)


@inner
def fate_of(queue: Queue, value: int) -> int:
    """How the operation came out that the queue's worker is about to complete, as one of ``FATE_…``."""
    first = queue.failed
    if first == 0 or value > queue.forgiven.load():
        return FATE_DONE
    if queue.ring[(queue.faults.value - 1) % FAULT_SLOTS].kind == KIND_WITHDRAWN:
        return FATE_WITHDRAWN
    return FATE_FAILED if value == first else FATE_SKIPPED


@inner
def keep_passed(queue: Queue, first: int, last: int) -> None:
    """Keep what the ring has of a withdrawal, which is about to be overwritten (lock held)."""
    passed = queue.passed
    if passed is None:
        address = malloc(sizeof(Passed))
        if address == 0:
            return
        passed = Passed(address)
        passed.count = 0
        queue.passed = passed
    count = passed.count
    slot = passed.ring[count % PASSED_SLOTS]
    slot.first = first
    slot.last = last
    passed.count = count + 1


@inner
def covering_fault(queue: Queue, value: int) -> int:
    """First failed operation of the fault that covers ``value``, or 0."""
    if queue.faults.load() < FAULT_SLOTS // 2:
        return covering_in_ring(queue, value)
    lock(queue.withdraw_lock)
    first = covering_in_ring(queue, value)
    if first == 0:
        passed = queue.passed
        if passed is not None:
            first = covering_passed(passed, value)
    unlock(queue.withdraw_lock)
    return first


@inner
def covering_passed(passed: Passed, value: int) -> int:
    """First operation of the withdrawal among ``passed`` that covers ``value``, or 0."""
    for i in range(min(PASSED_SLOTS, passed.count)):
        slot = passed.ring[i]
        if slot.first <= value <= slot.last:
            return slot.first
    return 0


@inner
def covering_in_ring(queue: Queue, value: int) -> int:
    """First failed operation of the fault among the last ones that covers ``value``, or 0."""
    count = queue.faults.load()
    for i in range(max(0, count - FAULT_SLOTS), count):
        fault = queue.ring[i % FAULT_SLOTS]
        first, last = fault.first, fault.last.load()
        if first <= value and (last == 0 or value <= last):
            return first
    return 0


@exported(void(int64))
def forgive(queue: Queue) -> None:
    """End an open fault with the operation submitted last."""
    count = queue.faults.load()
    if count == 0:
        return
    fault = queue.ring[(count - 1) % FAULT_SLOTS]
    if fault.last.value == 0:
        submitted = queue.submitted.load()
        fault.last.store(submitted)
        queue.forgiven.store_fence(submitted)
