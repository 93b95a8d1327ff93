"""Kernels: alone on one worker, or shared by all as a range (invariant 6).

A range is cut into as many shares as there are workers. A worker begins with the share of the core that it runs on, the same
part of every range, and claims pieces of it; once it is through it takes what others have left of theirs. So where one kernel
after the other works on the same arrays, each core finds its part in its own cache, and where memory has several nodes, on its
own node.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import note_core, this_core
from aiodev._backends.cpu.executor.fairness import (
    OPERATION,
    SLICE,
    arrive,
    charge,
    depart,
    is_ahead,
    move,
    on_core,
    settle,
    spend,
)
from aiodev._backends.cpu.executor.ready_queue import (
    link_range,
    outranked,
    pop_sleeper,
    unlink_range,
    wake_helper,
    wake_worker,
)
from aiodev._backends.cpu.layout import (
    D_LOCK,
    D_STOP,
    D_WORKERS,
    E_CODE,
    E_COST,
    E_UNIFORM,
    E_USES,
    Q_AWAITED,
    Q_CURSOR,
    Q_DEVICE,
    Q_EXPECTED,
    Q_GUESTS,
    Q_HELPERS,
    Q_PRIORITY,
    Q_RANGE_CHUNK,
    Q_RANGE_EXCINFO,
    Q_RANGE_LEFT,
    Q_RANGE_LINKED,
    Q_RANGE_MEMBERS,
    Q_RANGE_STATUS,
    Q_SETTLED,
    Q_SHARES,
    R_A,
    R_ARGUMENTS,
    R_B,
    S_END,
    S_MIRROR,
    S_NEXT,
    SHARE_BYTES,
    V_DESCRIPTOR,
    V_LOOKED,
    V_POLLED,
    V_UNTIL,
    WORD,
)
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import (
    c_poll,
    call_entry,
    compare_exchange,
    fetch_add,
    get,
    load,
    load_fence,
    now,
    on_stack,
    put,
    sched_yield,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import lock, unlock

#: A kernel that is expected to take less than this (ps) runs in one call, on one worker.
SERIAL_BELOW = 8_000_000
#: No piece of a range takes much longer than this (ps), so that more urgent work need not wait.
PIECE = 50_000_000
#: No piece is smaller than this part of that: a claim takes a cache line from another core.
PARTS = 16
#: Pieces begin at multiples of this many indices, for whole vectors and cache lines.
GRAIN = 64
#: A worker offers its core to others this often (ns).
YIELD_EVERY = 50_000
#: How long (ns) a guest that has left is expected back, and a worker that was woken for a queue whose range a guest has opened.
BACK, ARRIVAL = 100_000, 150_000
#: A guest looks this often (ns) whether it is called away, and at this: ``struct pollfd``.
LOOK_EVERY, POLLIN = 50_000, 1
#: Bytes of what an entry leaves: its result, and numba's excinfo.
OUTCOME = 16


@inner
def run_kernel(device, worker, guest, queue, record):
    """Run a kernel, alone or with helpers; False when the range was left to others.

    A guest relies on no cost that was learnt: other arguments may have made the same indices cheaper than they are now.
    """
    entry = get(record + R_A)
    size = get(record + R_B)
    if size <= 0:
        return True
    uses = get(entry + E_USES) + 1
    put(entry + E_USES, uses)
    cost = get(entry + E_COST)
    if cost != 0 and cost <= SERIAL_BELOW // size and uses & 63 != 0 and guest == 0:
        run_piece(queue, record, 0, size)
        if cost * size > OPERATION * 1000:
            spend(queue, cost * size // 1000)
        return True
    start = 0
    if cost == 0 or cost <= SERIAL_BELOW // size:
        start = measure(queue, record, size)
    if start == size or get(queue + Q_RANGE_STATUS) != 0:
        return True
    most = max(1, PIECE // max(1, get(entry + E_COST)))
    if size - start <= max(1, most // PARTS):  # nothing to share: a helper could only take it, and its data, from our core
        begin = now()
        run_piece(queue, record, start, size)
        elapsed = now() - begin
        note_cost(entry, elapsed * 1000 // (size - start))
        spend(queue, elapsed)
        return True
    settle(device, worker, queue)
    put(queue + Q_SETTLED, 0)  # from here on its members count
    open_range(queue, worker, start, size, most)
    return join_range(device, worker, guest, queue)


@inner
def measure(queue, record, size):
    """Run growing pieces until enough time was seen to know what an index costs; returns where it stopped."""
    entry = get(record + R_A)
    begin = now()
    lo, elapsed = 0, 0
    while lo < size and elapsed * 1000 < SERIAL_BELOW and get(queue + Q_RANGE_STATUS) == 0:
        hi = min(size, max(1, 4 * lo))
        run_piece(queue, record, lo, hi)
        elapsed = now() - begin
        lo = hi
    note_cost(entry, elapsed * 1000 // lo)
    spend(queue, elapsed)
    return lo


@inner
def note_cost(entry, seen):
    """Take what an index was seen to cost (ps) into the entry's average."""
    known = get(entry + E_COST)
    put(entry + E_COST, max(1, seen if known == 0 else (3 * known + seen) // 4))


@inner
def run_piece(queue, record, lo, hi):
    """Run indices [lo, hi); the first failure is kept in the queue's range words."""
    outcome = on_stack(OUTCOME)
    code = load(get(record + R_A) + E_CODE)
    status = call_entry(code, outcome, record + R_ARGUMENTS, lo, hi)
    if status != 0 and compare_exchange(queue + Q_RANGE_STATUS, 0, status):
        put(queue + Q_RANGE_EXCINFO, get(outcome + WORD))


@inner
def open_range(queue, worker, start, size, piece):
    """Let helpers join: put the shares of [start, size) on the open list, with ourselves inside.

    A worker is woken to help, unless guests are there in its place, or have helped lately and are awaited: one that was woken
    for nothing would keep somebody off a core. So is the worker that was woken for a queue that a guest (no worker: 0) runs.
    """
    device = get(queue + Q_HELPERS)
    put(queue + Q_RANGE_CHUNK, piece)
    workers = get(device + D_WORKERS)
    store(queue + Q_RANGE_LEFT, deal(queue, start, size, workers, piece))
    put(queue + Q_RANGE_MEMBERS, 1)
    if workers == 1:
        return
    note_core(queue, worker)
    lock(device + D_LOCK)
    if get(queue + Q_DEVICE) != device:
        arrive(device, queue)  # a reserved queue wants no time of this device but for its ranges
    link_range(device, queue)
    unlock(device + D_LOCK)
    if worker == 0:
        if load(queue + Q_AWAITED) == 0:
            store(queue + Q_AWAITED, now() + BACK)
        return
    if get(get(get(queue + Q_CURSOR) + R_A) + E_UNIFORM) != 0:
        if load_fence(queue + Q_GUESTS) >= workers - 1:
            return
        if load(queue + Q_EXPECTED) >= workers - 1:
            if load(queue + Q_AWAITED) == 0:
                store(queue + Q_AWAITED, now() + BACK)
            return
    wake_helper(device, queue)


@inner
def deal(queue, start, size, workers, piece):
    """Cut [start, size) into shares; returns how many there are.

    What a kernel read or wrote last is what a core's cache still has: short shares are run through to and fro. Long ones are
    not: each change of direction between their pieces would cost more than is left of the last range.
    """
    length = max(1, piece // PARTS, (size - start + workers - 1) // workers)
    length += -length % GRAIN if length > GRAIN else 0
    share, lo, count = get(queue + Q_SHARES), start, 0
    for _ in range(workers):
        hi = min(size, lo + length)
        backwards = get(share + S_MIRROR) == 0 and lo < hi and length <= 2 * piece
        end = lo + length if backwards and length > GRAIN else hi  # whole pieces, counted from there
        put(share + S_NEXT, lo)
        put(share + S_END, end)
        put(share + S_MIRROR, lo + end if backwards else 0)
        count += 1 if lo < hi else 0
        share, lo = share + SHARE_BYTES, hi
    return count


@inner
def join_range(device, worker, guest, queue):
    """Run pieces of a range that we are a member of, as a guest (if not 0) as many as seem to end in its time, then leave.

    Whoever sees that somebody who is awaited has not come wakes a worker. True when our leaving ended the range (invariant 6).
    """
    record = get(queue + Q_CURSOR)
    entry, size = get(record + R_A), get(record + R_B)
    workers = get(get(queue + Q_HELPERS) + D_WORKERS)
    own = this_core()
    turn = 0  # that many of the shares, ours first, are through
    begin = now()
    before = begin
    yielded = begin
    while turn < workers:
        share = get(queue + Q_SHARES) + (own + turn) % workers * SHARE_BYTES
        end, most = get(share + S_END), load(queue + Q_RANGE_CHUNK)
        piece = whole(max(most // PARTS, min(most, (end - load(share + S_NEXT)) // 8)))
        if guest != 0:
            cost = get(entry + E_COST)
            left = time_left(guest, before) * 1000 // cost
            if left == 0:
                break
            piece = whole(min(most // PARTS if before == begin else piece, left, max(1, PIECE // cost)))
        lo = end if load(share + S_NEXT) >= end else fetch_add(share + S_NEXT, piece)
        hi = min(end, lo + piece)
        if lo >= hi:
            turn += 1
            continue
        if hi == end:
            fetch_add(queue + Q_RANGE_LEFT, -1)
        mirror = get(share + S_MIRROR)
        if mirror != 0:
            lo, hi = mirror - hi, min(mirror - lo, size)
            if lo >= hi:
                continue
        run_piece(queue, record, lo, hi)
        if load(queue + Q_RANGE_STATUS) != 0:
            store_fence(queue + Q_RANGE_LEFT, 0)
            break
        after = now()
        awaited = load(queue + Q_AWAITED)
        if awaited != 0 and after > awaited:
            store(queue + Q_AWAITED, 0)
            store(queue + Q_EXPECTED, 0)
            wake_helper(get(queue + Q_HELPERS), queue)
        charge(device, queue, on_core(worker, after, after - before))
        elapsed, before = (after - before) * 1000, after
        note_cost(entry, elapsed // (hi - lo))
        if piece == whole(most) and elapsed < PIECE // 2:
            store(queue + Q_RANGE_CHUNK, 2 * most)
        elif elapsed > 4 * PIECE and most > 1:
            store(queue + Q_RANGE_CHUNK, most // 2)
        if after - yielded > YIELD_EVERY:
            sched_yield()  # an event loop whose timer is due may be waiting for this core
            yielded = after
        if should_leave(device, queue):
            break
    return leave_range(guest, queue)


@inner
def time_left(guest, time):
    """For how long (ns) a guest may help still; it is ``time``."""
    descriptor = get(guest + V_DESCRIPTOR)
    if descriptor >= 0 and time - get(guest + V_LOOKED) > LOOK_EVERY:
        put(guest + V_LOOKED, time)
        put(guest + V_POLLED, descriptor | POLLIN << 32)
        if c_poll(guest + V_POLLED, 1, 0) != 0:
            put(guest + V_UNTIL, 0)
    return max(0, get(guest + V_UNTIL) - time)


@inner
def whole(piece):
    """``piece`` indices, or somewhat fewer, so that pieces begin where vectors and cache lines do."""
    return piece - piece % GRAIN if piece > GRAIN else max(1, piece)


@inner
def should_leave(device, queue):
    """Whether more urgent work waits, or a queue that has had less; by a slice, where nobody else would go on here."""
    if outranked(device, queue) or load(device + D_STOP) != 0:
        return True
    return is_ahead(device, queue, 0 if load(queue + Q_RANGE_MEMBERS) > 1 else SLICE)


@inner
def leave_range(guest, queue):
    """Leave a range; True when that ended it. A guest leaves its place open until it should be back, if others are inside."""
    device, sleeper = get(queue + Q_HELPERS), 0
    lock(device + D_LOCK)
    members = get(queue + Q_RANGE_MEMBERS) - 1
    put(queue + Q_RANGE_MEMBERS, members)
    over = members == 0 and load(queue + Q_RANGE_LEFT) <= 0
    if over:
        unlink_range(device, queue)
        if get(queue + Q_DEVICE) != device and get(device + D_WORKERS) > 1:
            depart(device, get(queue + Q_PRIORITY))
    elif load(queue + Q_RANGE_LEFT) > 0:
        linked = get(queue + Q_RANGE_LINKED) != 0
        if linked:
            move(device, queue)
        else:
            link_range(device, queue)
        if guest != 0 and members == 0:
            sleeper = pop_sleeper(device)  # who opened it woke nobody, and we look for no work as a worker does
        elif not linked and guest == 0:
            sleeper = pop_sleeper(device)
        elif not linked:
            store(queue + Q_AWAITED, now() + BACK)
    unlock(device + D_LOCK)
    wake_worker(sleeper)
    return over
