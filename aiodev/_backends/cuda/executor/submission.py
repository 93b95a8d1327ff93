"""Submission: what Python calls, with the GIL, to append operations; and gates. What may block lets go of the GIL."""

from __future__ import annotations

from aiodev._backends.cuda.executor.buffers import give_back, is_prepared, may_be_stale
from aiodev._backends.cuda.executor.driver import allow_captures, call, enter, exchange_mode, leave
from aiodev._backends.cuda.executor.gil import begin_waiting, end_waiting, let_go, lock_or_let_go, take_again
from aiodev._backends.cuda.executor.issue import is_settled, issue
from aiodev._backends.cuda.executor.progress import is_captured, lose, tell_followers, tell_poller, wake
from aiodev._backends.cuda.structs import (
    BUSY_COPYING,
    BUSY_NOT,
    OP_COPY,
    OP_EVENT,
    OP_EXECUTE,
    OP_FILL,
    OP_GATE,
    OP_LAUNCH,
    OP_NATIVE,
    OP_STAMP,
    OP_WAIT,
    SLEEP_DEEP,
    Buffer,
    Device,
    Entry,
    Queue,
    Record,
)
from aiodev._backends.cuda.tuning import BATCH
from aiodev._backends.executor.gates import release_gate
from aiodev._backends.executor.locking import lock, try_lock, unlock
from aiodev._backends.executor.structs import GATE_FAILED, GATE_OPEN, NEVER, Gate
from aiodev._backends.executor.withdrawals import create_withdrawal, forget_withdrawals, withdraw_behind
from aiodev._native.compile import boolean, bytes_type, entry, exported, inner, int64, void
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import bytes_address, bytes_length, copy_memory, free, malloc


@inner
def append(queue: Queue, operation: int, a: int, b: int, c: int, arguments: int, nbytes: int) -> bool:
    """Keep an operation for later; whether there was memory for that."""
    address = malloc(sizeof(Record) + nbytes)
    if address == 0:
        return False
    record = Record(address)
    record.next = None
    record.operation = operation
    record.a = a
    record.b = b
    record.c = c
    record.nbytes = nbytes
    copy_memory(record.arguments, arguments, nbytes)
    if queue.head.value is None:
        queue.head.store(record)
    else:
        queue.tail.next = record
    queue.tail = record
    return True


@inner
def drop_records(queue: Queue, device: Device) -> None:
    """Complete what was kept, and all else, as lost; later, if the staging thread is just touching an operation's memory."""
    if queue.busy.load_fence() == BUSY_COPYING:
        return
    record = queue.head.value
    while record is not None:
        following = record.next
        if record.operation == OP_GATE:
            release_gate(Gate(record.a))
        free(record)
        record = following
    queue.head.store(None)
    submitted = queue.submitted.load()
    lose(queue, device, submitted)
    queue.issued.store(submitted)


@inner
def may_block(queue: Queue, device: Device, operation: int, a: int, nbytes: int) -> bool:
    """Whether handing an operation to the driver may take as long as work on the device does.

    That is: calls of other libraries, a kernel's first launch, a command buffer that is no graph yet, or is to be another one,
    whatever goes to another library's stream, or to one that has so much to do that its channel may be full; and everything
    while a call of ours that may take so long holds up all others. Needs the lock, and that we are counted as submitting.
    """
    if operation == OP_NATIVE or operation == OP_LAUNCH and Entry(a).launched >> device.index & 1 == 0:
        return True
    if operation == OP_EXECUTE and (not is_prepared(operation, a) or may_be_stale(queue, device, Buffer(a), nbytes != 0)):
        return True
    if queue.foreign != 0 or device.waiters.load_fence() != 0:
        return True
    return queue.issued.value - max(queue.completed.load(), queue.shadow.load()) > device.surely_room


@inner
def drain(queue: Queue, device: Device, at_once: bool) -> int:
    """Hand on what was kept, as far as it goes, at most a batch; how many. Needs the lock and the context.

    ``at_once``, with the GIL or on a loop's thread, only what does not block: the poller hands on the rest.
    """
    count = 0
    if at_once:
        device.submitting.fetch_add(1)
    while count < BATCH and device.lost.load() == 0:
        record = queue.head.value
        if record is None:
            break
        blocks = may_block(queue, device, record.operation, record.a, record.nbytes)
        if blocks:
            if at_once:
                break
            begin_waiting(device)
        operation, arguments = record.operation, record.arguments.address
        mode = allow_captures(device) if blocks else 0
        done = issue(queue, queue.window, operation, record.a, record.b, record.c, arguments, record.nbytes)
        if blocks:
            exchange_mode(device, mode)
            end_waiting(device)
        if not done:
            break
        queue.head.store(record.next)
        free(record)
        count += 1
    if not at_once:
        begin_waiting(device)
    if count > 0:
        tell_poller(queue, device)
    if at_once:
        device.submitting.fetch_add(-1)
    else:
        end_waiting(device)
    if device.lost.load() != 0:
        drop_records(queue, device)
    return count


@inner
def submit(queue: Queue, operation: int, a: int, b: int, c: int, arguments: int, nbytes: int) -> int:
    """Append an operation, handed to the driver at once where nothing is in its way; returns its value.

    To another library's stream goes whatever can, however much it has to do: that library submits there as well, and not later.
    """
    device = queue.device
    saved = lock_or_let_go(queue.lock)
    value = queue.submitted.value + 1
    queue.submitted.store(value)
    done = False
    if queue.head.value is None and device.lost.load() == 0 and (queue.foreign != 0 or is_prepared(operation, a)):
        device.submitting.fetch_add(1)
        blocks = may_block(queue, device, operation, a, nbytes)
        if blocks:
            device.submitting.fetch_add(-1)
            if saved == 0:
                saved = let_go()
            begin_waiting(device)
        before = enter(device)
        window = NEVER if queue.foreign != 0 else queue.window
        mode = allow_captures(device) if blocks else 0
        done = issue(queue, window, operation, a, b, c, arguments, nbytes)
        if blocks:
            exchange_mode(device, mode)
            end_waiting(device)
        else:
            device.submitting.fetch_add(-1)
        leave(device, before)
    if not done and not append(queue, operation, a, b, c, arguments, nbytes):
        queue.submitted.store(value - 1)
        unlock(queue.lock)
        take_again(saved)
        raise MemoryError("no memory for the record of another operation")
    if device.lost.load() != 0:
        drop_records(queue, device)
    unlock(queue.lock)
    tell_followers(queue)
    if not done or device.sleep.load() == SLEEP_DEEP:
        wake(device)
    take_again(saved)
    return value


@exported(int64(int64, int64, int64, bytes_type, int64))
def launch(queue: Queue, entry: Entry, size: int, arguments: bytes, site: int) -> int:
    """Append a kernel; returns its value."""
    return submit(queue, OP_LAUNCH, entry.address, size, site, bytes_address(arguments), bytes_length(arguments))


@entry
def launch_at_once(queue: Queue, entry: Entry, size: int, arguments: bytes, site: int) -> int:
    """The same for native code, which has words, and ``arguments`` as the address of a ``bytes``: see ``launch_codes``."""
    return submit(queue, OP_LAUNCH, entry.address, size, site, bytes_address(arguments), bytes_length(arguments))


@exported(int64(int64, int64, int64, int64))
def copy(queue: Queue, dst: int, src: int, nbytes: int) -> int:
    """Append a copy; returns its value."""
    return submit(queue, OP_COPY, dst, src, nbytes, 0, 0)


@exported(int64(int64, int64, int64, bytes_type, int64))
def fill(queue: Queue, dst: int, count: int, pattern: bytes, nbytes: int) -> int:
    """Append a fill with a pattern of ``nbytes``, which is given padded to 16; returns its value."""
    return submit(queue, OP_FILL, dst, count, nbytes, bytes_address(pattern), bytes_length(pattern))


@exported(int64(int64, int64, int64))
def wait(queue: Queue, other: Queue, value: int) -> int:
    """Append a wait for another queue; returns its value."""
    return submit(queue, OP_WAIT, other.address, value, 1, 0, 0)


@exported(int64(int64, int64, int64))
def wait_over(queue: Queue, other: Queue, value: int) -> int:
    """Append a wait for another queue, however that comes out; returns its value."""
    return submit(queue, OP_WAIT, other.address, value, 0, 0, 0)


@exported(int64(int64, int64))
def gate(queue: Queue, gate: Gate) -> int:
    """Append a gate; returns its value."""
    gate.waiter.value = queue
    return submit(queue, OP_GATE, gate.address, 0, 0, 0, 0)


@exported(void(int64, boolean))
def open_gate(gate: Gate, failed: bool) -> None:
    """Open a gate, once, and hand on what it held."""
    if gate.waiter.value is None:  # it was not submitted
        gate.state.store(GATE_FAILED if failed else GATE_OPEN)
        release_gate(gate)
        return
    queue = Queue(gate.waiter.value)
    gate.state.store_fence(GATE_FAILED if failed else GATE_OPEN)
    device = queue.device
    left = True
    if try_lock(queue.lock):  # else whoever holds it, or the poller, finds the gate open
        before = enter(device)
        drain(queue, device, True)
        leave(device, before)
        left = queue.head.value is not None
        unlock(queue.lock)
        tell_followers(queue)
    if left or device.sleep.load() == SLEEP_DEEP:
        wake(device)
    release_gate(gate)


@exported(int64(int64, int64))
def stamp(queue: Queue, cell: int) -> int:
    """Append the storing of the time; returns its value."""
    return submit(queue, OP_STAMP, cell, 0, 0, 0, 0)


@exported(int64(int64, bytes_type))
def call_native(queue: Queue, block: bytes) -> int:
    """Append calls of native functions; returns its value."""
    return submit(queue, OP_NATIVE, 0, 0, 0, bytes_address(block), bytes_length(block))


@exported(int64(int64, int64, bytes_type))
def execute(queue: Queue, buffer: int, patches: bytes) -> int:
    """Append the execution of a command buffer; returns its value."""
    return submit(queue, OP_EXECUTE, buffer, 0, 0, bytes_address(patches), bytes_length(patches))


@exported(void(int64, int64), nogil=True)
def destroy_buffer(device: Device, buffer: Buffer) -> None:
    """Destroy the graphs of a buffer that nobody executes any more."""
    if buffer.executable == 0:
        return
    begin_waiting(device)
    before = enter(device)
    mode = allow_captures(device)
    give_back(device, buffer)
    exchange_mode(device, mode)
    leave(device, before)
    end_waiting(device)


@exported(int64(int64, int64))
def wait_event(queue: Queue, event: int) -> int:
    """Append a wait for an event of the driver's, which may be recorded again once this is handed on; returns its value."""
    return submit(queue, OP_EVENT, event, 0, 0, 0, 0)


@exported(boolean(int64, int64, int64), nogil=True)
def foreign_wait(stream: int, queue: Queue, value: int) -> bool:
    """Have another library's stream wait for ``value``; False where that could keep the device from getting there.

    False also for a stream that is being captured: it does nothing yet, and what waits now must not wait at each replay.

    By an event, not by the counter: that stream may come to it when the queue is somebody else's, who counts from 0.
    """
    device = queue.device
    reached = queue.completed.load()
    if reached >= value:
        return True
    if not is_settled(queue, value, reached):
        return False
    before = enter(device)
    if is_captured(device, stream):
        leave(device, before)
        return False
    begin_waiting(device)
    lock(device.follow_lock)
    status = call(device.driver.cuEventRecord, device.follow_event, queue.stream)
    if status == 0:
        status = call(device.driver.cuStreamWaitEvent, stream, device.follow_event, 0)
    unlock(device.follow_lock)
    end_waiting(device)
    leave(device, before)
    return status == 0


@exported(void(int64, int64))
def count_waiters(device: Device, change: int) -> None:
    """Note, with the GIL, that so many calls more are under way that may wait for the device."""
    device.waiters.fetch_add(change)


@exported(int64(int64, int64, int64), nogil=True)
def record_context(device: Device, function: int, event: int) -> int:
    """Record an event of all that the device's context, which is current, was given; returns the driver's status.

    The driver refuses while a stream of the context is captured, as ours is while graphs are made: so none is meanwhile.
    """
    lock(device.capture_lock)
    status = call(function, device.context, event)
    unlock(device.capture_lock)
    return status


@exported(int64(int64, int64, int64, boolean))
def withdraw(queue: Queue, first: int, last: int, partly: bool) -> int:
    """Withdraw what was not handed on, as :meth:`Backend.withdraw` says; returns the first of it, or 0."""
    node = create_withdrawal()
    saved = lock_or_let_go(queue.lock)
    begun = queue.issued.value + (1 if queue.busy.value != BUSY_NOT else 0)
    start = withdraw_behind(queue, begun, first, last, partly, node)
    unlock(queue.lock)
    take_again(saved)
    return start


@exported(void(int64), nogil=True)
def recycle(queue: Queue) -> None:
    """Make an idle queue as good as new. What a failure has left on the device, the first operation has cleared."""
    lock(queue.lock)
    forget_withdrawals(queue)
    queue.issued.value = queue.last_shadow.value = queue.shadow_from.value = queue.last_fallible.value = queue.shadow.value = 0
    queue.faults.value = queue.held = 0
    queue.failed = queue.dirty
    queue.forgiven.value = 0 if queue.dirty != 0 else NEVER
    queue.target.store(NEVER)
    queue.submitted.store(0)
    queue.completed.store(0)
    unlock(queue.lock)
