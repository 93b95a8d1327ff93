"""What Python calls, with the GIL, to append operations; and gates. What may block lets go of the GIL."""

from __future__ import annotations

from aiodev._backends.cpu.executor.withdrawal import enter_withdrawal, forget_withdrawals, lowest_withdrawn
from aiodev._backends.cpu.executor.worker import release_gate
from aiodev._backends.cpu.layout import (
    G_STATE,
    G_WAITER,
    NEVER,
    Q_COMPLETED,
    Q_FAILED,
    Q_FAULTS,
    Q_FORGIVEN,
    Q_SUBMITTED,
    Q_TARGET,
    Q_WITHDRAWN,
    WITHDRAWAL_BYTES,
)
from aiodev._backends.cuda.executor.driver import call, enter, leave
from aiodev._backends.cuda.executor.gil import lock_or_let_go, take_again
from aiodev._backends.cuda.executor.issue import forgiven, is_settled, issue
from aiodev._backends.cuda.executor.progress import is_captured, lose, tell_followers, wake
from aiodev._backends.cuda.layout import (
    BUSY_COPYING,
    D_FOLLOW_EVENT,
    D_FOLLOW_LOCK,
    D_LOST,
    D_SLEEP,
    D_WAITERS,
    E_LAUNCHED,
    F_RECORD,
    F_WAIT_EVENT,
    OP_COPY,
    OP_EVENT,
    OP_FILL,
    OP_GATE,
    OP_LAUNCH,
    OP_NATIVE,
    OP_STAMP,
    OP_WAIT,
    Q_BUSY,
    Q_DEVICE,
    Q_FOREIGN,
    Q_HEAD,
    Q_HELD,
    Q_ISSUED,
    Q_LAST_FALLIBLE,
    Q_LAST_SHADOW,
    Q_LOCK,
    Q_SHADOW,
    Q_SHADOW_FROM,
    Q_STREAM,
    Q_TAIL,
    Q_WINDOW,
    R_A,
    R_ARGUMENTS,
    R_B,
    R_C,
    R_NBYTES,
    R_NEXT,
    R_OPERATION,
    SLEEP_DEEP,
    SURELY_ROOM,
)
from aiodev._backends.executor.compile import boolean, bytes_type, exported, inner, int64, void
from aiodev._backends.executor.intrinsics import (
    bytes_address,
    bytes_length,
    copy_memory,
    exchange,
    free,
    get,
    load,
    load_fence,
    malloc,
    put,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import lock, unlock

#: Records that are handed on before the lock is let go for a moment, so that submitters are not held up.
BATCH = 16


@inner
def append(queue, operation, a, b, c, arguments, nbytes):
    """Keep an operation for later; whether there was memory for that."""
    record = malloc(R_ARGUMENTS + nbytes)
    if record == 0:
        return False
    put(record + R_NEXT, 0)
    put(record + R_OPERATION, operation)
    put(record + R_A, a)
    put(record + R_B, b)
    put(record + R_C, c)
    put(record + R_NBYTES, nbytes)
    copy_memory(record + R_ARGUMENTS, arguments, nbytes)
    if get(queue + Q_HEAD) == 0:
        store(queue + Q_HEAD, record)
    else:
        put(get(queue + Q_TAIL) + R_NEXT, record)
    put(queue + Q_TAIL, record)
    return True


@inner
def drop_records(queue, device):
    """Complete what was kept, and all else, as lost; later, if the staging thread is just touching an operation's memory."""
    if load_fence(queue + Q_BUSY) == BUSY_COPYING:
        return
    record = get(queue + Q_HEAD)
    while record != 0:
        following = get(record + R_NEXT)
        if get(record + R_OPERATION) == OP_GATE:
            release_gate(get(record + R_A))
        free(record)
        record = following
    store(queue + Q_HEAD, 0)
    submitted = load(queue + Q_SUBMITTED)
    lose(queue, device, submitted)
    store(queue + Q_ISSUED, submitted)


@inner
def may_block(queue, device, operation, a):
    """Whether handing an operation to the driver may take as long as work on the device does.

    That is: calls of other libraries, a kernel's first launch, whatever goes to another library's stream, or to one that has so
    much to do that its channel may be full; and everything while a call of ours that waits for the device holds up all others.
    """
    if operation == OP_NATIVE or operation == OP_LAUNCH and get(a + E_LAUNCHED) == 0:
        return True
    if get(queue + Q_FOREIGN) != 0 or load(device + D_WAITERS) != 0:
        return True
    return get(queue + Q_ISSUED) - max(load(queue + Q_COMPLETED), load(queue + Q_SHADOW)) > SURELY_ROOM


@inner
def drain(queue, device, with_gil):
    """Hand on what was kept, as far as it goes, at most a batch; how many. Needs the lock and the context.

    With the GIL, only what does not block: the watching thread hands on the rest.
    """
    count = 0
    while count < BATCH and load(device + D_LOST) == 0:
        record = get(queue + Q_HEAD)
        if record == 0 or with_gil and may_block(queue, device, get(record + R_OPERATION), get(record + R_A)):
            break
        if not issue(
            queue,
            get(queue + Q_WINDOW),
            get(record + R_OPERATION),
            get(record + R_A),
            get(record + R_B),
            get(record + R_C),
            record + R_ARGUMENTS,
            get(record + R_NBYTES),
        ):
            break
        store(queue + Q_HEAD, get(record + R_NEXT))
        free(record)
        count += 1
    if load(device + D_LOST) != 0:
        drop_records(queue, device)
    return count


@inner
def submit(queue, operation, a, b, c, arguments, nbytes):
    """Append an operation, handed to the driver at once where nothing is in its way; returns its value.

    To another library's stream goes whatever can, however much it has to do: that library submits there as well, and not later.
    """
    device = get(queue + Q_DEVICE)
    saved = lock_or_let_go(queue + Q_LOCK, may_block(queue, device, operation, a))
    value = get(queue + Q_SUBMITTED) + 1
    store(queue + Q_SUBMITTED, value)
    done = False
    if get(queue + Q_HEAD) == 0 and load(device + D_LOST) == 0:
        before = enter(device)
        window = NEVER if get(queue + Q_FOREIGN) != 0 else get(queue + Q_WINDOW)
        done = issue(queue, window, operation, a, b, c, arguments, nbytes)
        leave(device, before)
    if not done and not append(queue, operation, a, b, c, arguments, nbytes):
        store(queue + Q_SUBMITTED, value - 1)
        unlock(queue + Q_LOCK)
        take_again(saved)
        raise MemoryError("no memory for the record of another operation")
    if load(device + D_LOST) != 0:
        drop_records(queue, device)
    unlock(queue + Q_LOCK)
    tell_followers(queue)
    if not done or load(device + D_SLEEP) == SLEEP_DEEP:
        wake(device)
    take_again(saved)
    return value


@exported(int64(int64, int64, int64, bytes_type, int64))
def launch(queue, entry, size, arguments, site):
    """Append a kernel; returns its value."""
    return submit(queue, OP_LAUNCH, entry, size, site, bytes_address(arguments), bytes_length(arguments))


@exported(int64(int64, int64, int64, int64))
def copy(queue, dst, src, nbytes):
    """Append a copy; returns its value."""
    return submit(queue, OP_COPY, dst, src, nbytes, 0, 0)


@exported(int64(int64, int64, int64, bytes_type, int64))
def fill(queue, dst, count, pattern, nbytes):
    """Append a fill with a pattern of ``nbytes``, which is given padded to 16; returns its value."""
    return submit(queue, OP_FILL, dst, count, nbytes, bytes_address(pattern), bytes_length(pattern))


@exported(int64(int64, int64, int64))
def wait(queue, other, value):
    """Append a wait for another queue; returns its value."""
    return submit(queue, OP_WAIT, other, value, 0, 0, 0)


@exported(int64(int64, int64))
def gate(queue, address):
    """Append a gate; returns its value."""
    put(address + G_WAITER, queue)
    return submit(queue, OP_GATE, address, 0, 0, 0, 0)


@exported(void(int64, boolean))
def open_gate(address, failed):
    """Open a gate, once, and hand on what it held."""
    queue = get(address + G_WAITER)
    store_fence(address + G_STATE, 2 if failed else 1)
    device = get(queue + Q_DEVICE)
    left = True
    if exchange(queue + Q_LOCK, 1) == 0:  # else whoever holds it, or the watching thread, finds the gate open
        before = enter(device)
        drain(queue, device, True)
        leave(device, before)
        left = get(queue + Q_HEAD) != 0
        unlock(queue + Q_LOCK)
        tell_followers(queue)
    if left or load(device + D_SLEEP) == SLEEP_DEEP:
        wake(device)
    release_gate(address)


@exported(int64(int64, int64))
def stamp(queue, cell):
    """Append the storing of the time; returns its value."""
    return submit(queue, OP_STAMP, cell, 0, 0, 0, 0)


@exported(int64(int64, bytes_type))
def call_native(queue, block):
    """Append calls of native functions; returns its value."""
    return submit(queue, OP_NATIVE, 0, 0, 0, bytes_address(block), bytes_length(block))


@exported(int64(int64, int64))
def wait_event(queue, event):
    """Append a wait for an event of the driver's, which may be recorded again once this is handed on; returns its value."""
    return submit(queue, OP_EVENT, event, 0, 0, 0, 0)


@exported(boolean(int64, int64, int64), nogil=True)
def foreign_wait(stream, queue, value):
    """Have another library's stream wait for ``value``; False where that could keep the device from getting there.

    False also for a stream that is being captured: it does nothing yet, and what waits now must not wait at each replay.

    By an event, not by the counter: that stream may come to it when the queue is somebody else's, who counts from 0.
    """
    device = get(queue + Q_DEVICE)
    reached = load(queue + Q_COMPLETED)
    if reached >= value:
        return True
    if not is_settled(queue, value, reached):
        return False
    before = enter(device)
    if is_captured(device, stream):
        leave(device, before)
        return False
    lock(device + D_FOLLOW_LOCK)
    status = call(get(device + F_RECORD), get(device + D_FOLLOW_EVENT), get(queue + Q_STREAM))
    if status == 0:
        status = call(get(device + F_WAIT_EVENT), stream, get(device + D_FOLLOW_EVENT), 0)
    unlock(device + D_FOLLOW_LOCK)
    leave(device, before)
    return status == 0


@exported(int64(int64, int64, int64, boolean))
def withdraw(queue, first, last, partly):
    """Withdraw what was not handed on, as :meth:`Backend.withdraw` says; returns the first of it, or 0."""
    node = malloc(WITHDRAWAL_BYTES)
    if node == 0:
        raise MemoryError("no memory for another withdrawal")
    saved = lock_or_let_go(queue + Q_LOCK, False)
    begun = get(queue + Q_ISSUED) + (1 if get(queue + Q_BUSY) != 0 else 0)
    start = max(first, begun + 1)
    if start > last or (start > first and not partly):
        start = 0
        free(node)
    else:
        enter_withdrawal(queue, start, last, node)
        store(queue + Q_WITHDRAWN, lowest_withdrawn(queue))
    unlock(queue + Q_LOCK)
    take_again(saved)
    return start


@exported(void(int64), nogil=True)
def recycle(queue):
    """Make an idle queue as good as new."""
    device = get(queue + Q_DEVICE)
    lock(queue + Q_LOCK)
    before = enter(device)
    forgiven(queue, device)
    leave(device, before)
    forget_withdrawals(queue)
    for word in (Q_ISSUED, Q_LAST_SHADOW, Q_SHADOW_FROM, Q_LAST_FALLIBLE, Q_SHADOW, Q_FAULTS, Q_FAILED, Q_HELD):
        put(queue + word, 0)
    put(queue + Q_FORGIVEN, NEVER)
    store(queue + Q_TARGET, NEVER)
    store(queue + Q_SUBMITTED, 0)
    store(queue + Q_COMPLETED, 0)
    unlock(queue + Q_LOCK)
