"""Failures of a timeline."""

from __future__ import annotations

from numba import types

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
    NEVER,
    Q_FAILED,
    Q_FAULT_RING,
    Q_FAULTS,
    Q_FORGIVEN,
    Q_SUBMITTED,
)
from aiodev._backends.cpu.native.compile import exported, inner, int64
from aiodev._backends.cpu.native.intrinsics import get, load, put, store, store_fence


@inner
def open_fault(queue, value, kind, a, b, c, d):
    """Record that operation ``value`` failed; what follows it does not run until it is forgiven."""
    record_fault(queue, value, 0, kind, a, b, c, d)


@inner
def record_fault(queue, value, last, kind, a, b, c, d):
    """Record that operations ``value`` … ``last`` failed or do not run; 0: all that follow, until it is forgiven."""
    count = get(queue + Q_FAULTS)
    fault = queue + Q_FAULT_RING + (count % FAULT_SLOTS) * FAULT_BYTES
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


@inner
def covering_fault(queue, value):
    """First failed operation of the fault that covers ``value``, or 0."""
    count = load(queue + Q_FAULTS)
    for i in range(max(0, count - FAULT_SLOTS), count):
        fault = queue + Q_FAULT_RING + (i % FAULT_SLOTS) * FAULT_BYTES
        first, last = get(fault + F_FIRST), load(fault + F_LAST)
        if first <= value and (last == 0 or value <= last):
            return first
    return 0


@exported(types.void(int64))
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
