"""Calls of other libraries' native functions, which submit to the queue's stream (:meth:`aiodev.Stream.call_native`).

All are called with as many words as any may have: a C function takes those that it knows and leaves the others, which its
caller removes. That holds for x86-64 and 64-bit Arm on Linux, where every integer and address is passed in a word.

Calls are made by whoever hands the operation on. Those that may wait for the device come here, when nothing of their queue is
ahead of them, to threads that wait for that: what they are given is copied, and the queue is busy until the device has done
what they have submitted, as for a staged copy. So the place that such calls hold among several, of a library's handles say, is
theirs until then, and no handle is ever used on two streams at once.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call, record_event
from aiodev._backends.cuda.executor.gil import begin_waiting, end_waiting
from aiodev._backends.cuda.executor.progress import complete, driver_failed, is_sticky, tell_followers, wake
from aiodev._backends.cuda.executor.ready_queue import dequeue, enqueue
from aiodev._backends.cuda.structs import (
    BUSY,
    BUSY_COPYING,
    BUSY_NOT,
    Caller,
    Device,
    ForeignCall,
    ForeignCalls,
    Item,
    Queue,
)
from aiodev._backends.executor.faults import open_fault
from aiodev._backends.executor.locking import lock, try_lock, unlock
from aiodev._backends.executor.structs import KIND_NATIVE
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import copy_memory, free, get, malloc

_HANDLE, _CELL, _RANGE, _PLACE, _ARGUMENTS = 1, 2, 3, 4, 24  # as in aiodev._core.streams.native_calls


@inner
def word(stream: int, item: Item, place: int, turn: int) -> int:
    """The word that an item of a call stands for: see :mod:`aiodev._core.streams.native_calls`."""
    kind, content = item.kind & 0xFF, item.content
    if kind == _HANDLE:
        return stream
    if kind == _CELL:
        return get(content)
    if kind == _PLACE:
        return get(content + WORD * place)
    return content + turn * (item.kind >> 8) if kind == _RANGE else content


@inner
def take_place(block: ForeignCalls) -> int:
    """Hold one of the places that calls share, a free one if there is any; which one."""
    first = block.lock
    if first is None:
        return 0
    count = block.places
    for number in range(count):
        if try_lock(first[number]):
            return number
    lock(first)
    return 0


@inner
def leave_place(block: ForeignCalls, place: int) -> None:
    """Let others have it."""
    first = block.lock
    if first is not None:
        unlock(first[place])


@inner
def make_calls(queue: Queue, stream: int, block: ForeignCalls, place: int) -> int:
    """Make the calls of a block, in order, until one fails; 0, or its number, from 1 on, above the 32 bits of its status.

    They submit to ``stream``; ``queue`` is whose turn it is.
    """
    called = block.calls
    for number in range(block.count):
        count = called.count & 0xFFFFFFFF
        for turn in range(called.count >> 32):
            function = word(stream, called.function, place, turn)
            words: Cell[int] = Cell(queue.parameters.address)
            for i in range(_ARGUMENTS):
                words[i].value = word(stream, called.arguments[i], place, turn) if i < count else 0
            status = 0xFFFFFFFF
            if function != 0:
                status = call(
                    function, words[0].value, words[1].value, words[2].value, words[3].value, words[4].value,
                    words[5].value, words[6].value, words[7].value, words[8].value, words[9].value, words[10].value,
                    words[11].value, words[12].value, words[13].value, words[14].value, words[15].value, words[16].value,
                    words[17].value, words[18].value, words[19].value, words[20].value, words[21].value, words[22].value,
                    words[23].value,
                )  # fmt: skip
            if status != 0:
                return (number + 1) << 32 | status
        called = ForeignCall(called.arguments[count].address)
    return 0


@inner
def note_outcome(queue: Queue, value: int, outcome: int) -> None:
    """Have operation ``value`` fail if one of its calls has. Needs the lock."""
    if outcome != 0 and queue.failed == 0:
        open_fault(queue, value, KIND_NATIVE, (outcome << 32) >> 32, (outcome >> 32) - 1, 0, 0)


@inner
def call_here(queue: Queue, stream: int, block: ForeignCalls) -> int:
    """Make the calls of a block; what :func:`make_calls` gives. Needs the lock and the context."""
    place = take_place(block)
    outcome = make_calls(queue, stream, block, place)
    leave_place(block, place)
    return outcome


@inner
def call_functions(queue: Queue, value: int, block: ForeignCalls) -> None:
    """Make the calls of a block as operation ``value``. Needs the lock and the context."""
    note_outcome(queue, value, call_here(queue, queue.stream, block))


@inner
def leave_to_caller(queue: Queue, device: Device, block: ForeignCalls, nbytes: int) -> bool:
    """Have a thread make the calls, after those of other queues; False if there is no memory for them. Needs the lock."""
    copied = malloc(nbytes)
    if copied == 0:
        return False
    copy_memory(copied, block.address, nbytes)
    queue.call_block = ForeignCalls(copied)
    queue.busy.value = BUSY
    enqueue(device.calling, queue)
    return True


@inner
def call_and_wait(queue: Queue, device: Device, event: int) -> int:
    """Make the calls that a queue has left, and wait for what they have submitted; what :func:`make_calls` gives.

    The memory that they use is kept meanwhile, as for a staged copy, also when the device is lost.
    """
    block, outcome = queue.call_block, 0
    queue.busy.store_fence(BUSY_COPYING)
    if device.lost.load_fence() == 0:
        place = take_place(block)
        begin_waiting(device)
        outcome = make_calls(queue, queue.stream, block, place)
        end_waiting(device)
        status = record_event(device, event, queue.stream)
        if status == 0:
            status = call(device.driver.cuEventSynchronize, event)
        leave_place(block, place)
        if outcome == 0 or is_sticky(status):  # of which the library may have said but that something went wrong
            outcome = status
    queue.busy.store_fence(BUSY)
    free(block)
    return outcome


@exported(void(int64), nogil=True)
def run_caller(caller: Caller) -> None:
    """The life of a thread whose calls may wait for the device, until the device's stop."""
    device = caller.device
    call(device.driver.cuCtxSetCurrent, device.context)
    allow_captures(device)
    while True:
        queue = dequeue(device.calling)
        if device.stop.load() != 0:
            break
        if queue is None:
            continue
        outcome = call_and_wait(queue, device, caller.event)
        lock(queue.lock)
        value = queue.issued.value + 1
        if outcome >> 32 != 0:
            note_outcome(queue, value, outcome)
        elif outcome != 0:
            driver_failed(queue, device, value, outcome)
        queue.busy.value = BUSY_NOT
        if device.lost.load() == 0:  # else all that was submitted is dropped, or has been
            queue.issued.store(value)
            complete(queue, value)
        unlock(queue.lock)
        tell_followers(queue)
        wake(device)
