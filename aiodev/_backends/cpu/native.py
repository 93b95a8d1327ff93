"""The native executor's code: submission, scheduling, execution and wake-ups, with no GIL and no Python.

**Problem.** Streams are queues of operations that Python threads feed and a few workers run. Workers must never need the
GIL, submitters must never wait, an idle machine must sleep, and whoever makes work ready must wake exactly whom it takes.

**Invariants.**

1.  A queue's operations complete in order, one at a time; ``Q_COMPLETED`` is stored after everything that the operation
    wrote, its fault included.
2.  A queue is at any time in exactly one place: nowhere (``Q_PENDING`` is 0), on a ready list, in a worker's hands, held by
    one wait node or gate, or on the open list with a range. Moving it from place to place transfers the right to touch it.
3.  Whoever raises ``Q_PENDING`` from 0 puts the queue on the ready list; the worker that lowers it to 0 never touches
    the queue again. Hence an idle queue may be recycled.
4.  Waiters and completers shake hands: a waiter stores its target, then loads the counter; a completer stores the
    counter, then loads the target. All four are sequentially consistent, so that at least one of the two sees the other, and
    the node's target is taken back to ``NEVER`` by compare-exchange, so that exactly one acts.
5.  A worker sleeps only after it found, under the device's lock, no work; work is only added under that lock, and wakes a
    sleeper unless somebody is already looking. So no work waits while all sleep.
6.  A range is joined and left under the helpers' lock. The last to leave an exhausted range, and nobody else, completes it.

A device's lock is held for tens of nanoseconds, and never across a call of the system or of a kernel.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from aiodev._backends.cpu import codecache
from aiodev._backends.cpu.intrinsics import (
    bytes_address,
    bytes_length,
    bytes_type,
    c_write,
    call_entry,
    compare_exchange,
    copy_memory,
    exchange,
    fetch_add,
    fetch_min,
    free,
    get,
    load,
    load_fence,
    malloc,
    now,
    pause,
    put,
    sched_yield,
    sem_post,
    sem_wait,
    store,
    store_fence,
)
from aiodev._backends.cpu.layout import *  # noqa: F403  (every word's place, by name)

# ruff: noqa: F405
_i64 = types.int64
_inner = njit(error_model="numpy")
_KEY = codecache.native_key()


def exported(signature: Any, *, nogil: bool = False) -> Any:
    """Compile for ``signature``, or load from the disk cache, as a function that Python or a worker calls."""

    def compile(function: Any) -> Any:
        dispatcher = njit(nogil=nogil, error_model="numpy")(function)
        dispatcher._cache = codecache.function_cache(function, _KEY, codecache.native_directory())
        dispatcher.compile(signature)
        return dispatcher

    return compile

#: A kernel that is expected to take less than this (ps) runs in one call, on one worker.
SERIAL_BELOW = 20_000_000
#: A range is claimed in pieces of about this long (ps): long enough to hide the claim, short enough to be preempted.
PIECE = 50_000_000
#: A worker that is alone with a range lets waiting streams of the same priority go first after this long (ns).
TIME_SLICE = 2_000_000
#: Operations that one queue may run while others of its device are waiting.
QUOTA = 256
#: A spin loop that saw no clock for this long (ns) was not running: its core was taken.
PREEMPTED = 50_000
#: Idle periods without spinning after that.
PENALTY = 32


@_inner
def lock(address):
    turns = 0
    while exchange(address, 1) != 0:
        while load(address) != 0:
            turns += 1
            if turns & 63 == 0:
                sched_yield()
            else:
                pause()


@_inner
def unlock(address):
    store(address, 0)


# Ready lists and sleepers


@_inner
def announce(device, priority):
    """Count one more queue on a list (lock held); returns a sleeper to wake, or 0."""
    store(device + D_PENDING, get(device + D_PENDING) + 1)
    by_priority = device + D_PENDING_BY_PRIORITY + WORD * priority
    store(by_priority, get(by_priority) + 1)
    return pop_sleeper(device)


@_inner
def withdraw(device, priority):
    """Count one queue less on a list (lock held)."""
    store(device + D_PENDING, get(device + D_PENDING) - 1)
    by_priority = device + D_PENDING_BY_PRIORITY + WORD * priority
    store(by_priority, get(by_priority) - 1)


@_inner
def pop_sleeper(device):
    """A sleeper that should be woken for pending work (lock held), or 0: none asleep, or somebody is looking."""
    sleeper = get(device + D_SLEEPERS)
    if sleeper == 0 or get(device + D_SPINNERS) != 0:
        return 0
    put(device + D_SLEEPERS, get(sleeper + W_NEXT))
    return sleeper


@_inner
def wake_worker(sleeper):
    if sleeper != 0:
        sem_post(sleeper + W_SEMAPHORE)


@_inner
def make_ready(queue):
    """Put a queue that is in our hands on its device's ready list."""
    device = get(queue + Q_DEVICE)
    priority = get(queue + Q_PRIORITY)
    head = device + D_READY_HEAD + WORD * priority
    tail = device + D_READY_TAIL + WORD * priority
    lock(device + D_LOCK)
    put(queue + Q_NEXT, 0)
    last = get(tail)
    if last != 0:
        put(last + Q_NEXT, queue)
    else:
        put(head, queue)
    put(tail, queue)
    sleeper = announce(device, priority)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@_inner
def take(device):
    """The most urgent work (lock held): a ready queue, a queue + 1 whose range was joined, or 0."""
    for priority in range(PRIORITIES):
        head = device + D_READY_HEAD + WORD * priority
        queue = get(head)
        if queue != 0:
            following = get(queue + Q_NEXT)
            put(head, following)
            if following == 0:
                put(device + D_READY_TAIL + WORD * priority, 0)
            withdraw(device, priority)
            return queue
        queue = get(device + D_OPEN + WORD * priority)
        while queue != 0:
            following = get(queue + Q_RANGE_LINK)
            if load(queue + Q_RANGE_NEXT) < get(queue + Q_RANGE_SIZE):
                put(queue + Q_RANGE_MEMBERS, get(queue + Q_RANGE_MEMBERS) + 1)
                return queue + 1
            unlink_range(device, queue)
            queue = following
    return 0


@_inner
def unlink_range(device, queue):
    """Take a queue off the open list (lock held)."""
    if get(queue + Q_RANGE_LINKED) == 0:
        return
    put(queue + Q_RANGE_LINKED, 0)
    priority = get(queue + Q_PRIORITY)
    link = device + D_OPEN + WORD * priority
    while get(link) != queue:
        link = get(link) + Q_RANGE_LINK
    put(link, get(queue + Q_RANGE_LINK))
    withdraw(device, priority)


@_inner
def find_work(device, worker):
    """Take work, looking for a while and then sleeping until there is some; 0 when the device stops."""
    idle_since = get(worker + W_IDLE)  # not 0 when we have already looked around in vain
    while True:
        lock(device + D_LOCK)
        if get(device + D_STOP) != 0:
            unlock(device + D_LOCK)
            return 0
        work = take(device)
        if work != 0:
            sleeper = 0
            if get(device + D_PENDING) > 0:
                sleeper = pop_sleeper(device)
            unlock(device + D_LOCK)
            wake_worker(sleeper)
            if idle_since != 0:
                put(worker + W_IDLE, 0)
                learn(worker, now() - idle_since)
            return work
        if idle_since == 0:
            unlock(device + D_LOCK)
            idle_since = now()
            look_around(device, worker, 0)
            continue
        put(worker + W_NEXT, get(device + D_SLEEPERS))
        put(device + D_SLEEPERS, worker)
        unlock(device + D_LOCK)
        while sem_wait(worker + W_SEMAPHORE) != 0:
            pass


@_inner
def look_around(device, worker, queue):
    """Spin for as long as this worker has learnt that it pays, one worker of a device at a time.

    ``queue`` is 0, or a queue in our hands whose last known operation is done: then True means that it got another one.
    Keeping hold of it saves its submitter and us the way over the ready list.
    """
    if get(worker + W_PENALTY) > 0:
        put(worker + W_PENALTY, get(worker + W_PENALTY) - 1)
        return False
    spin = get(worker + W_SPIN)
    if spin == 0:
        return False
    found = False
    if fetch_add(device + D_SPINNERS, 1) == 0:
        begin = now()
        seen = begin
        while True:
            if watch(device, queue):
                break
            time = now()
            if time - seen > PREEMPTED:
                put(worker + W_PENALTY, PENALTY)
                break
            if time - begin >= spin:
                break
            seen = time
        found = queue != 0 and load(queue + Q_PENDING) > 1
    fetch_add(device + D_SPINNERS, -1)
    return found


@_inner
def watch(device, queue):
    """Look some times; whether there is anything to do."""
    for _ in range(32):
        if load(device + D_PENDING) != 0 or load(device + D_STOP) != 0:
            return True
        if queue != 0 and load(queue + Q_PENDING) > 1:
            return True
        pause()
    return False


@_inner
def learn(worker, idle):
    """Adapt the spin to how long work took to come: spin for what tends to come soon, sleep through the rest."""
    cap = get(worker + W_SPIN_CAP)
    spin = get(worker + W_SPIN)
    if idle <= cap:
        wanted = min(cap, 2 * idle + 5_000)
        if wanted > spin:
            put(worker + W_SPIN, wanted)
    elif spin > 1_000:
        put(worker + W_SPIN, spin - spin // 4)
    else:
        put(worker + W_SPIN, 0)


# Waiters


@_inner
def find_node(queue, owner):
    """The wait node of ``owner`` on ``queue``, made on first need and kept."""
    first = load(queue + Q_WAITERS)
    node = first
    while node != 0:
        if get(node + N_OWNER) == owner:
            return node
        node = get(node + N_NEXT)
    node = malloc(NODE_BYTES)
    if node == 0:
        raise MemoryError("no memory for another waiter")
    put(node + N_TARGET, NEVER)
    put(node + N_OWNER, owner)
    put(node + N_QUEUE, queue)
    put(node + N_FIRED_NEXT, 0)
    put(node + N_FIRED, 0)
    while True:
        first = load(queue + Q_WAITERS)
        put(node + N_NEXT, first)
        if compare_exchange(queue + Q_WAITERS, first, node):
            return node


@_inner
def arm_node(queue, node, value):
    """Have ``node`` fire at ``value``; False, and it will not fire, when that is reached already (invariant 4)."""
    fetch_min(node + N_TARGET, value)
    fetch_min(queue + Q_TARGET, value)
    if load_fence(queue + Q_COMPLETED) < value:
        return True
    return not compare_exchange(node + N_TARGET, value, NEVER)


@_inner
def fire(queue, completed):
    """Release every waiter whose target is reached."""
    store_fence(queue + Q_TARGET, NEVER)
    node = load(queue + Q_WAITERS)
    while node != 0:
        following = get(node + N_NEXT)
        target = load_fence(node + N_TARGET)
        if target > completed:
            if target != NEVER:
                fetch_min(queue + Q_TARGET, target)
        elif compare_exchange(node + N_TARGET, target, NEVER):
            owner = get(node + N_OWNER)
            if owner & 1:
                notify(owner - 1, node)
            else:
                make_ready(owner)
        else:
            continue  # it was lowered meanwhile: look again
        node = following


@_inner
def notify(waker, node):
    """Put ``node`` on its waker's fired list and write the descriptor, unless that is done already."""
    if exchange(node + N_FIRED, 1) == 0:
        while True:
            first = load(waker + K_FIRED)
            put(node + N_FIRED_NEXT, first)
            if compare_exchange(waker + K_FIRED, first, node):
                break
    if exchange(waker + K_PENDING, 1) == 0:
        c_write(types.int32(get(waker + K_DESCRIPTOR)), waker + K_ONE, WORD)


@_inner
def complete(queue, value):
    store_fence(queue + Q_COMPLETED, value)
    if load_fence(queue + Q_TARGET) <= value:
        fire(queue, value)


# Failure


@_inner
def open_fault(queue, value, kind, a, b, c, d):
    """Record that operation ``value`` failed; what follows it does not run until it is forgiven."""
    count = get(queue + Q_FAULTS)
    fault = queue + Q_FAULT_RING + (count % FAULT_SLOTS) * FAULT_BYTES
    put(fault + F_FIRST, value)
    put(fault + F_LAST, 0)
    put(fault + F_KIND, kind)
    put(fault + F_A, a)
    put(fault + F_B, b)
    put(fault + F_C, c)
    put(fault + F_D, d)
    put(queue + Q_FAILED, value)
    store(queue + Q_FORGIVEN, NEVER)
    store(queue + Q_FAULTS, count + 1)


@_inner
def covering_fault(queue, value):
    """First failed operation of the fault that covers ``value``, or 0."""
    count = load(queue + Q_FAULTS)
    for i in range(max(0, count - FAULT_SLOTS), count):
        fault = queue + Q_FAULT_RING + (i % FAULT_SLOTS) * FAULT_BYTES
        first, last = get(fault + F_FIRST), load(fault + F_LAST)
        if first <= value and (last == 0 or value <= last):
            return first
    return 0


# Kernels and ranges


@_inner
def run_kernel(device, worker, queue, record):
    """Run a kernel, alone or with helpers; False when the range was left to others."""
    entry = get(record + R_A)
    size = get(record + R_B)
    if size <= 0:
        return True
    uses = get(entry + E_USES) + 1
    put(entry + E_USES, uses)
    cost = get(entry + E_COST)
    if cost != 0 and cost <= SERIAL_BELOW // size and uses & 63 != 0:
        run_piece(worker, queue, record, 0, size)
        return True
    start = 0
    if cost == 0 or cost <= SERIAL_BELOW // size:
        start = measure(worker, queue, record, size)
    remaining = size - start
    cost = max(1, get(entry + E_COST))
    if remaining > 0 and cost <= 2 * SERIAL_BELOW // remaining:
        run_piece(worker, queue, record, start, size)
        remaining = 0
    if remaining <= 0 or get(queue + Q_RANGE_STATUS) != 0:
        return True
    open_range(queue, start, size, max(1, min(PIECE // cost, remaining)))
    return join_range(device, worker, queue)


@_inner
def measure(worker, queue, record, size):
    """Run growing pieces until enough time was seen to know what an index costs; returns where it stopped."""
    entry = get(record + R_A)
    begin = now()
    lo, piece, elapsed = 0, 1, 0
    while lo < size and elapsed * 1000 < SERIAL_BELOW and get(queue + Q_RANGE_STATUS) == 0:
        hi = min(size, lo + piece)
        run_piece(worker, queue, record, lo, hi)
        elapsed = now() - begin
        lo, piece = hi, 4 * piece
    seen = max(1, elapsed * 1000 // lo)
    known = get(entry + E_COST)
    put(entry + E_COST, seen if known == 0 else (3 * known + seen) // 4)
    return lo


@_inner
def run_piece(worker, queue, record, lo, hi):
    """Run indices [lo, hi); the first failure is kept in the queue's range words."""
    scratch = worker + W_SCRATCH
    code = load(get(record + R_A) + E_CODE)
    status = call_entry(code, scratch, record + R_ARGUMENTS, lo, hi)
    if status != 0 and compare_exchange(queue + Q_RANGE_STATUS, 0, status):
        put(queue + Q_RANGE_EXCINFO, get(scratch + WORD))


@_inner
def open_range(queue, start, size, piece):
    """Let helpers join: put [start, size) on the open list, with ourselves inside."""
    device = get(queue + Q_HELPERS)
    priority = get(queue + Q_PRIORITY)
    put(queue + Q_RANGE_SIZE, size)
    put(queue + Q_RANGE_CHUNK, piece)
    store(queue + Q_RANGE_NEXT, start)
    lock(device + D_LOCK)
    put(queue + Q_RANGE_MEMBERS, 1)
    put(queue + Q_RANGE_LINKED, 1)
    put(queue + Q_RANGE_LINK, get(device + D_OPEN + WORD * priority))
    put(device + D_OPEN + WORD * priority, queue)
    sleeper = announce(device, priority)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@_inner
def join_range(device, worker, queue):
    """Run pieces of a range that we are a member of, then leave; True when that ended the range (invariant 6)."""
    record = get(queue + Q_CURSOR)
    entry = get(record + R_A)
    size = get(queue + Q_RANGE_SIZE)
    begin = now()
    before = begin
    while True:
        piece = load(queue + Q_RANGE_CHUNK)
        lo = fetch_add(queue + Q_RANGE_NEXT, piece)
        if lo >= size:
            break
        run_piece(worker, queue, record, lo, min(size, lo + piece))
        if load(queue + Q_RANGE_STATUS) != 0:
            store_fence(queue + Q_RANGE_NEXT, size)
            break
        after = now()
        elapsed, before = (after - before) * 1000, after
        put(entry + E_COST, max(1, (3 * get(entry + E_COST) + elapsed // piece) // 4))
        if elapsed < PIECE // 2:
            store(queue + Q_RANGE_CHUNK, 2 * piece)
        elif elapsed > 4 * PIECE and piece > 1:
            store(queue + Q_RANGE_CHUNK, piece // 2)
        if should_leave(device, queue, after - begin):
            break
    return leave_range(queue)


@_inner
def outranked(device, queue):
    """Whether more urgent work than ``queue`` waits."""
    for higher in range(get(queue + Q_PRIORITY)):
        if load(device + D_PENDING_BY_PRIORITY + WORD * higher) != 0:
            return True
    return False


@_inner
def should_leave(device, queue, elapsed):
    """Whether more urgent work waits, or equally urgent work that has waited long enough."""
    if outranked(device, queue):
        return True
    priority = get(queue + Q_PRIORITY)
    if load(device + D_READY_HEAD + WORD * priority) == 0 and load(device + D_STOP) == 0:
        return False
    return load(queue + Q_RANGE_MEMBERS) > 1 or elapsed > TIME_SLICE or load(device + D_STOP) != 0


@_inner
def leave_range(queue):
    device = get(queue + Q_HELPERS)
    lock(device + D_LOCK)
    members = get(queue + Q_RANGE_MEMBERS) - 1
    put(queue + Q_RANGE_MEMBERS, members)
    over = members == 0 and load(queue + Q_RANGE_NEXT) >= get(queue + Q_RANGE_SIZE)
    if over:
        unlink_range(device, queue)
    unlock(device + D_LOCK)
    return over


# Running a queue


@_inner
def finish(device, worker, queue, record, value):
    """Complete the operation at the cursor; False when the queue went idle and is no longer ours (invariant 3)."""
    status = get(queue + Q_RANGE_STATUS)
    if status != 0:
        put(queue + Q_RANGE_STATUS, 0)
        excinfo = get(queue + Q_RANGE_EXCINFO)
        open_fault(queue, value, KIND_KERNEL, excinfo, get(record + R_C), get(record + R_A), status)
    put(queue + Q_CURSOR, record + get(record + R_BYTES))
    complete(queue, value)
    if load(queue + Q_PENDING) == 1:
        begin = now()
        if not look_around(device, worker, queue):
            put(worker + W_IDLE, begin)
    if fetch_add(queue + Q_PENDING, -1) == 1:
        return False
    put(worker + W_IDLE, 0)
    return True


@_inner
def next_chunk(queue, record):
    """Go on to the next chunk of records and leave the drained one to the submitter."""
    chunk = get(record + R_A)
    drained = get(queue + Q_OPEN_CHUNK)
    put(queue + Q_OPEN_CHUNK, chunk)
    put(queue + Q_CURSOR, chunk + C_FIRST)
    surplus = exchange(queue + Q_SPARE, drained)
    if surplus != 0:
        free(surplus)


@_inner
def release_gate(gate):
    if fetch_add(gate + G_REFERENCES, -1) == 1:
        free(gate)


@_inner
def pass_wait(queue, record, value, failed):
    """Pass a wait for another queue; False when we are held (and the queue is no longer ours).

    A wait holds even behind a failure: what is submitted once that is forgiven relies on the order that it sets up.
    """
    other = get(record + R_A)
    target = get(record + R_B)
    if load(other + Q_COMPLETED) < target and arm_node(other, get(record + R_C), target):
        return False
    first = covering_fault(other, target)
    if first != 0 and failed == 0:
        open_fault(queue, value, KIND_DEPENDENCY, other, first, 0, 0)
    return True


@_inner
def pass_gate(queue, record, value):
    """Pass a gate; False when we are held (and the queue is no longer ours)."""
    gate = get(record + R_A)
    state = load(gate + G_STATE)
    if state == 0:
        store_fence(gate + G_WAITER, queue)
        state = load_fence(gate + G_STATE)
        if state == 0 or exchange(gate + G_WAITER, 0) == 0:
            return False
    if state == 2:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    release_gate(gate)
    return True


@_inner
def drain(device, worker, queue):
    """Run a queue's operations until it is idle, held, shared with helpers, or it is the turn of others."""
    quota = QUOTA
    while True:
        record = get(queue + Q_CURSOR)
        operation = get(record + R_OPERATION)
        if operation == OP_CHUNK:
            next_chunk(queue, record)
            continue
        if (quota == 0 and load(device + D_PENDING) != 0) or outranked(device, queue):
            make_ready(queue)
            return
        quota = max(0, quota - 1)
        value = get(queue + Q_COMPLETED) + 1
        failed = get(queue + Q_FAILED)
        if failed != 0 and value > load(queue + Q_FORGIVEN):
            put(queue + Q_FAILED, 0)
            failed = 0
        if operation == OP_WAIT:
            if not pass_wait(queue, record, value, failed):
                return
        elif failed != 0:
            if operation == OP_GATE:
                release_gate(get(record + R_A))
        elif operation == OP_KERNEL:
            if not run_kernel(device, worker, queue, record):
                return
        elif operation == OP_GATE:
            if not pass_gate(queue, record, value):
                return
        else:
            put(get(record + R_A), now())
        if not finish(device, worker, queue, record, value):
            return


@exported(types.void(_i64, _i64), nogil=True)
def work(device, worker):
    """A worker's life, from its thread's start to the device's stop. Runs without the GIL throughout."""
    while True:
        found = find_work(device, worker)
        if found == 0:
            break
        queue = found & ~1
        if found & 1:
            if not join_range(device, worker, queue):
                continue
            if not finish(device, worker, queue, get(queue + Q_CURSOR), get(queue + Q_COMPLETED) + 1):
                continue
            if get(queue + Q_DEVICE) != device:
                make_ready(queue)
                continue
        drain(device, worker, queue)
    fetch_add(device + D_LEFT, 1)


# Called from Python, with the GIL


@_inner
def append(queue, operation, nbytes):
    """Room for a record of ``nbytes``, under the submit lock, which stays held unless memory is out."""
    lock(queue + Q_SUBMIT_LOCK)
    chunk = get(queue + Q_CHUNK)
    offset = get(queue + Q_OFFSET)
    link = R_B  # a link to the next chunk always fits behind the last record
    if offset + nbytes + link > get(chunk + C_BYTES):
        needed = C_FIRST + nbytes + link
        fresh = exchange(queue + Q_SPARE, 0)
        if fresh != 0 and get(fresh + C_BYTES) < needed:
            free(fresh)
            fresh = 0
        if fresh == 0:
            room = max(CHUNK_BYTES, needed)
            fresh = malloc(room)
            if fresh == 0:
                unlock(queue + Q_SUBMIT_LOCK)
                raise MemoryError("no memory for the record of another operation")
            put(fresh + C_BYTES, room)
        record = chunk + offset
        put(record + R_OPERATION, OP_CHUNK)
        put(record + R_A, fresh)
        chunk, offset = fresh, C_FIRST
        put(queue + Q_CHUNK, chunk)
    put(queue + Q_OFFSET, offset + nbytes)
    record = chunk + offset
    put(record + R_OPERATION, operation)
    put(record + R_BYTES, nbytes)
    return record


@_inner
def publish(queue):
    """Make the record that ``append`` made visible; returns its value."""
    value = get(queue + Q_SUBMITTED) + 1
    store(queue + Q_SUBMITTED, value)
    idle = fetch_add(queue + Q_PENDING, 1) == 0
    unlock(queue + Q_SUBMIT_LOCK)
    if idle:
        make_ready(queue)
    return value


@exported(_i64(_i64, _i64, _i64, bytes_type, _i64))
def launch(queue, entry, size, arguments, site):
    """Append a kernel; returns its value."""
    nbytes = bytes_length(arguments)
    record = append(queue, OP_KERNEL, R_ARGUMENTS + (nbytes + 7) // WORD * WORD)
    put(record + R_A, entry)
    put(record + R_B, size)
    put(record + R_C, site)
    copy_memory(record + R_ARGUMENTS, bytes_address(arguments), nbytes)
    return publish(queue)


@exported(_i64(_i64, _i64, _i64))
def wait(queue, other, value):
    """Append a wait for another queue; returns its value."""
    node = find_node(other, queue)
    record = append(queue, OP_WAIT, R_ARGUMENTS)
    put(record + R_A, other)
    put(record + R_B, value)
    put(record + R_C, node)
    return publish(queue)


@exported(_i64(_i64, _i64))
def gate(queue, address):
    """Append a gate; returns its value."""
    record = append(queue, OP_GATE, R_ARGUMENTS)
    put(record + R_A, address)
    return publish(queue)


@exported(_i64())
def create_gate():
    """A shut gate, referred to by its queue and by the host."""
    address = malloc(GATE_BYTES)
    if address == 0:
        raise MemoryError("no memory for another gate")
    put(address + G_STATE, 0)
    put(address + G_WAITER, 0)
    put(address + G_REFERENCES, 2)
    return address


@exported(types.void(_i64, types.boolean))
def open_gate(address, failed):
    """Open a gate, once."""
    store_fence(address + G_STATE, 2 if failed else 1)
    queue = exchange(address + G_WAITER, 0)
    if queue != 0:
        make_ready(queue)
    release_gate(address)


@exported(_i64(_i64, _i64))
def stamp(queue, cell):
    """Append the storing of the time; returns its value."""
    record = append(queue, OP_STAMP, R_ARGUMENTS)
    put(record + R_A, cell)
    return publish(queue)


@exported(types.boolean(_i64, _i64, _i64), nogil=True)
def spin(queue, value, duration):
    """Wait for ``value`` for at most ``duration`` ns, without the GIL; whether it was reached."""
    until = now() + duration
    while True:
        for _ in range(16):
            if load(queue + Q_COMPLETED) >= value:
                return True
            pause()
        if now() >= until:
            return False


@exported(types.boolean(_i64, _i64, _i64))
def arm(queue, value, waker):
    """Have ``waker`` fire when ``queue`` reaches ``value``; False when it has already."""
    return arm_node(queue, find_node(queue, waker + 1), value)


@exported(types.void(_i64))
def rearm_waker(waker):
    """Allow the waker to write its descriptor again."""
    exchange(waker + K_PENDING, 0)


@exported(_i64(_i64))
def next_fired(waker):
    """A queue that reached its armed value, or 0. One thread at a time."""
    while True:
        node = load(waker + K_FIRED)
        if node == 0:
            return 0
        if compare_exchange(waker + K_FIRED, node, get(node + N_FIRED_NEXT)):
            exchange(node + N_FIRED, 0)
            return get(node + N_QUEUE)


@exported(types.void(_i64))
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


@exported(types.void(_i64))
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


# Built-in entries


@exported(_i64(_i64, _i64, _i64), nogil=True)
def copy_entry(arguments, lo, hi):
    """Copy bytes [lo, hi); arguments: destination, source."""
    copy_memory(get(arguments) + lo, get(arguments + WORD) + lo, hi - lo)
    return 0


@exported(_i64(_i64, _i64, _i64), nogil=True)
def fill_entry(arguments, lo, hi):
    """Write items [lo, hi) of a pattern; arguments: destination, bytes an item (a divisor of 16), two words of pattern."""
    destination = get(arguments)
    nbytes = get(arguments + WORD)
    pattern = arguments + 2 * WORD
    if nbytes == 16:
        for i in range(lo, hi):
            put(destination + 16 * i, get(pattern))
            put(destination + 16 * i + WORD, get(pattern + WORD))
        return 0
    # The pattern's first word repeats every 8 bytes; whole words in the middle, single items at both ends.
    begin, end = destination + nbytes * lo, destination + nbytes * hi
    while begin < end and begin & 7 != 0:
        copy_memory(begin, pattern, nbytes)
        begin += nbytes
    words = (end - begin) // WORD
    word = get(pattern)
    for i in range(words):
        put(begin + WORD * i, word)
    begin += WORD * words
    while begin < end:
        copy_memory(begin, pattern, nbytes)
        begin += nbytes
    return 0
