"""Running a queue's operations in order (invariants 1 to 3), and a worker's life."""

from __future__ import annotations

from aiodev._backends.cpu.executor.fairness import (
    LOOK,
    OPERATION,
    SLICE,
    begin_turn,
    depart,
    is_ahead,
    settle,
    spend,
    watch_core,
)
from aiodev._backends.cpu.executor.faults import covering_fault, open_fault
from aiodev._backends.cpu.executor.parallel_for import join_range, run_kernel
from aiodev._backends.cpu.executor.ready_queue import find_work, look_around, outranked, put_back, wake_worker
from aiodev._backends.cpu.executor.waiting import arm_node, complete, ring
from aiodev._backends.cpu.executor.withdrawal import fail_withdrawn
from aiodev._backends.cpu.layout import (
    C_FIRST,
    D_LEFT,
    D_LOCK,
    D_SLEEPERS,
    D_STOP,
    G_REFERENCES,
    G_STATE,
    G_WAITER,
    KIND_DEPENDENCY,
    KIND_GATE,
    KIND_KERNEL,
    OP_CHUNK,
    OP_GATE,
    OP_KERNEL,
    OP_WAIT,
    Q_BEGUN,
    Q_COMPLETED,
    Q_CURSOR,
    Q_DEVICE,
    Q_FAILED,
    Q_FORGIVEN,
    Q_KNOWN,
    Q_OPEN_CHUNK,
    Q_OWED,
    Q_PENDING,
    Q_PRIORITY,
    Q_RANGE_EXCINFO,
    Q_RANGE_STATUS,
    Q_SETTLED,
    Q_SPARE,
    Q_SPENT,
    Q_WITHDRAWN,
    R_A,
    R_B,
    R_BYTES,
    R_C,
    R_OPERATION,
    W_IDLE,
    W_NEXT,
)
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import (
    exchange,
    fetch_add,
    free,
    get,
    load,
    load_fence,
    now,
    put,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import lock, unlock


@inner
def finish(device, worker, queue, record, value):
    """Complete the operation at the cursor; False when the queue went idle and is no longer ours (invariant 3).

    ``worker`` is 0 for a guest. Who waits is woken last: that may cost us our core, and if the queue were still
    in our hands then, what is submitted next would wait with us.
    """
    status = get(queue + Q_RANGE_STATUS)
    if status != 0:
        put(queue + Q_RANGE_STATUS, 0)
        excinfo = get(queue + Q_RANGE_EXCINFO)
        open_fault(queue, value, KIND_KERNEL, excinfo, get(record + R_C), get(record + R_A), status)
    put(queue + Q_CURSOR, record + get(record + R_BYTES))
    owed = get(queue + Q_OWED) + 1
    put(queue + Q_OWED, owed)
    spend(queue, OPERATION)
    more = owed < get(queue + Q_KNOWN)
    if more:
        store(queue + Q_BEGUN, value + 1)  # the counter's fence, which comes next, is this one's, too (invariant 8)
    bell = complete(queue, value, worker)
    if more:
        ring(bell)
        return True
    settle(device, worker, queue)
    known = load(queue + Q_PENDING)
    if known == owed and bell == 0 and worker != 0 and look_around(device, worker, queue, owed):
        known = load(queue + Q_PENDING)
        if known > owed:
            put(worker + W_IDLE, 0)
    if known > owed:
        put(queue + Q_KNOWN, known)
        store_fence(queue + Q_BEGUN, value + 1)
        ring(bell)
        return True
    put(queue + Q_OWED, 0)
    put(queue + Q_KNOWN, 0)
    home, priority = get(queue + Q_DEVICE), get(queue + Q_PRIORITY)
    left = fetch_add(queue + Q_PENDING, -owed) - owed
    if left == 0:
        depart(home, priority)
        ring(bell)
        return False
    ring(bell)
    put(queue + Q_KNOWN, left)
    store_fence(queue + Q_BEGUN, value + 1)
    return True


@inner
def take_up(queue):
    """Say that the queue, which has come into our hands, is about to begin its next operation (invariant 8)."""
    store_fence(queue + Q_BEGUN, get(queue + Q_COMPLETED) + 1)


@inner
def hand_back(queue):
    """Have a queue that is in our hands wait for a worker again; its next operation has not begun."""
    store(queue + Q_BEGUN, get(queue + Q_COMPLETED))
    put_back(queue)


@inner
def next_record(queue):
    """The record at the cursor. Where a chunk of records ends that is in the next one, and the submitter may reuse the old."""
    record = get(queue + Q_CURSOR)
    if get(record + R_OPERATION) != OP_CHUNK:
        return record
    chunk = get(record + R_A)
    drained = get(queue + Q_OPEN_CHUNK)
    put(queue + Q_OPEN_CHUNK, chunk)
    put(queue + Q_CURSOR, chunk + C_FIRST)
    surplus = exchange(queue + Q_SPARE, drained)
    if surplus != 0:
        free(surplus)
    return chunk + C_FIRST


@inner
def release_gate(gate):
    if fetch_add(gate + G_REFERENCES, -1) == 1:
        free(gate)


@inner
def pass_wait(device, worker, queue, record, value, failed):
    """Pass a wait for another queue; False when we are held (and the queue is no longer ours).

    A wait holds even behind a failure: what is submitted once that is forgiven relies on the order that it sets up.
    """
    other = get(record + R_A)
    target = get(record + R_B)
    if load(other + Q_COMPLETED) < target:
        settle(device, worker, queue)
        priority = get(queue + Q_PRIORITY)
        store(queue + Q_BEGUN, value - 1)
        if arm_node(other, get(record + R_C), target):
            depart(device, priority)
            return False
        store_fence(queue + Q_BEGUN, value)
        if failed == 0:
            failed = fail_withdrawn(queue, value)
    first = covering_fault(other, target)
    if first != 0 and failed == 0:
        open_fault(queue, value, KIND_DEPENDENCY, other, first, 0, 0)
    return True


@inner
def pass_gate(device, worker, queue, record, value):
    """Pass a gate; False when we are held (and the queue is no longer ours)."""
    gate = get(record + R_A)
    state = load(gate + G_STATE)
    withdrawn = 0
    if state == 0:
        settle(device, worker, queue)
        priority = get(queue + Q_PRIORITY)
        store(queue + Q_BEGUN, value - 1)
        store_fence(gate + G_WAITER, queue)
        state = load_fence(gate + G_STATE)
        if state == 0 or exchange(gate + G_WAITER, 0) == 0:
            depart(device, priority)
            return False
        store_fence(queue + Q_BEGUN, value)
        withdrawn = fail_withdrawn(queue, value)
    if state == 2 and withdrawn == 0:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    release_gate(gate)
    return True


@inner
def step(device, worker, guest, queue):
    """Run the operation at the cursor, as a worker or a guest; False when the queue is idle, held or shared, and not ours."""
    record = next_record(queue)
    operation = get(record + R_OPERATION)
    value = get(queue + Q_COMPLETED) + 1
    failed = get(queue + Q_FAILED)
    if failed != 0 and value > load(queue + Q_FORGIVEN):
        put(queue + Q_FAILED, 0)
        failed = 0
    if failed == 0 and value >= load_fence(queue + Q_WITHDRAWN):
        failed = fail_withdrawn(queue, value)
    if operation == OP_WAIT:
        if not pass_wait(device, worker, queue, record, value, failed):
            return False
    elif failed != 0:
        if operation == OP_GATE:
            release_gate(get(record + R_A))
    elif operation == OP_KERNEL:
        if not run_kernel(device, worker, guest, queue, record):
            return False
    elif operation == OP_GATE:
        if not pass_gate(device, worker, queue, record, value):
            return False
    else:
        put(get(record + R_A), now())
    return finish(device, worker, queue, record, value)


@inner
def turn_is_over(device, worker, queue):
    """Whether the queue in our hands is to give way to another one."""
    if outranked(device, queue):
        return True
    if get(queue + Q_SPENT) < LOOK:
        return False
    settle(device, worker, queue)
    if is_ahead(device, queue, SLICE):
        return True
    if get(queue + Q_SETTLED) == 0:
        begin_turn(device, queue)
    return False


@inner
def drain(device, worker, queue):
    """Run a queue's operations until it is idle, held, shared with helpers, or it is the turn of others."""
    begin_turn(device, queue)
    take_up(queue)
    while not turn_is_over(device, worker, queue):
        if not step(device, worker, 0, queue):
            return
    hand_back(queue)


@exported(void(int64, int64), nogil=True)
def work(device, worker):
    """A worker's life, from its thread's start to the device's stop. Runs without the GIL throughout."""
    watch_core(worker)
    while True:
        found = find_work(device, worker)
        if found == 0:
            break
        queue = found & ~1
        if found & 1:
            if not join_range(device, worker, 0, queue):
                continue
            if not finish(device, worker, queue, get(queue + Q_CURSOR), get(queue + Q_COMPLETED) + 1):
                continue
            if get(queue + Q_DEVICE) != device:
                hand_back(queue)
                continue
        drain(device, worker, queue)
    fetch_add(device + D_LEFT, 1)


@exported(void(int64))
def stop(device):
    """Ask the workers to return, and wake all that sleep."""
    lock(device + D_LOCK)
    put(device + D_STOP, 1)
    sleeper = get(device + D_SLEEPERS)
    put(device + D_SLEEPERS, 0)
    unlock(device + D_LOCK)
    while sleeper != 0:
        following = get(sleeper + W_NEXT)
        wake_worker(sleeper)
        sleeper = following
