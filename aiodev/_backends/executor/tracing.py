"""Tracing: a queue's operations, noted in a log by those who submit and run them, without the GIL.

The submitter claims a slot and leaves its address in the record of the operation, beside what operation it is. So an operation
that nobody profiles costs the worker a comparison, and a log outlives the profile for as long as operations may write to it.
"""

from __future__ import annotations

from aiodev._backends.executor.faults import fate_of
from aiodev._backends.executor.structs import Queue, TraceLog, TraceSlot
from aiodev._core.backend.trace_log import COMMAND, FATE_SHIFT, OPERATION_MASK
from aiodev._native.compile import inner
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import now

__all__ = ["begin_command", "begin_trace", "claim_slot", "describe_trace", "end_trace", "reserve_slots"]


@inner
def claim_slot(queue: Queue, log: TraceLog, operation: int) -> int:
    """Note that ``queue`` is given an operation (submit lock held); gives what its record is to have: it, and its slot."""
    number = log.claimed.fetch_add(1)
    if number >= log.room:
        return operation
    slot = log.slots[number]
    slot.queue = queue
    slot.value = queue.submitted.value + 1
    slot.what = operation
    slot.submitted = now()
    return slot.address | operation


@inner
def describe_trace(mark: int, first: int, second: int) -> None:
    """Note what the operation is about, if it has a slot."""
    if mark > OPERATION_MASK:
        slot = TraceSlot(mark & ~OPERATION_MASK)
        slot.first = first
        slot.second = second


@inner
def reserve_slots(execution: int, log: TraceLog, count: int) -> None:
    """Claim the slots of an execution's commands together (submit lock held): the worker need not ask for them one by one.

    Until all of them have begun, ``first`` of the execution's slot is the next of them, and ``second`` where they end.
    """
    number = log.claimed.fetch_add(count)
    whole = TraceSlot(execution & ~OPERATION_MASK)
    whole.first = log.slots[min(number, log.room)].address
    whole.second = log.slots[min(number + count, log.room)].address


@inner
def begin_trace(mark: int) -> None:
    """Note that the queue has come to an operation that has a slot; a wait that held it is come to again."""
    slot = TraceSlot(mark & ~OPERATION_MASK)
    if slot.begun == 0:
        slot.begun = now()


@inner
def next_slot(queue: Queue, whole: TraceSlot) -> TraceSlot | None:
    """The slot for the next command of an execution that has the slot ``whole``; None where there is no room."""
    if whole.second != 0:
        if whole.first == whole.second:
            return None
        slot = TraceSlot(whole.first)
        whole.first += sizeof(TraceSlot)
        return slot
    log = queue.log
    if log is None:  # the profile is over
        return None
    number = log.claimed.fetch_add(1)
    return log.slots[number] if number < log.room else None


@inner
def begin_command(queue: Queue, execution: int, site: int, size: int) -> int:
    """Note that the queue has come to a command of an execution that has a slot; gives the address of its own, or 0.

    A loop runs a command any number of times, so where there are branches a slot is claimed for each when it begins.
    """
    whole = TraceSlot(execution & ~OPERATION_MASK)
    slot = next_slot(queue, whole)
    if slot is None:
        return 0
    slot.queue = queue
    slot.value = whole.value
    slot.first = site
    slot.second = size
    slot.submitted = whole.submitted
    slot.begun = now()
    slot.what = COMMAND
    return slot.address


@inner
def end_trace(queue: Queue, value: int, mark: int) -> None:
    """Note that an operation that has a slot is done, and how it came out."""
    slot = TraceSlot(mark & ~OPERATION_MASK)
    slot.what |= fate_of(queue, value) << FATE_SHIFT
    slot.ended.store(now())
