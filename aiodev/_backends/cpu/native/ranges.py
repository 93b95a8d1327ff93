"""Kernels: alone on one worker, or shared by all as a range (invariant 6)."""

from __future__ import annotations

from aiodev._backends.cpu.layout import (
    D_LOCK,
    D_OPEN,
    D_READY_HEAD,
    D_STOP,
    D_WORKERS,
    E_CODE,
    E_COST,
    E_USES,
    Q_CURSOR,
    Q_HELPERS,
    Q_PRIORITY,
    Q_RANGE_CHUNK,
    Q_RANGE_EXCINFO,
    Q_RANGE_LINK,
    Q_RANGE_LINKED,
    Q_RANGE_MEMBERS,
    Q_RANGE_NEXT,
    Q_RANGE_SIZE,
    Q_RANGE_STATUS,
    R_A,
    R_ARGUMENTS,
    R_B,
    W_SCRATCH,
    WORD,
)
from aiodev._backends.cpu.native.compile import inner
from aiodev._backends.cpu.native.cores import note_core
from aiodev._backends.cpu.native.intrinsics import (
    call_entry,
    compare_exchange,
    fetch_add,
    get,
    load,
    now,
    put,
    sched_yield,
    store,
    store_fence,
)
from aiodev._backends.cpu.native.scheduling import announce, lock, outranked, unlink_range, unlock, wake_worker

#: A kernel that is expected to take less than this (ps) runs in one call, on one worker.
SERIAL_BELOW = 8_000_000
#: No piece of a range takes much longer than this (ps), so that more urgent work need not wait.
PIECE = 50_000_000
#: No piece is smaller than this part of that: a claim takes a cache line from another core.
PARTS = 16
#: Pieces begin at multiples of this many indices, for whole vectors and cache lines.
GRAIN = 64
#: A worker that is alone with a range lets waiting streams of the same priority go first after this long (ns).
TIME_SLICE = 2_000_000
#: A worker offers its core to others this often (ns).
YIELD_EVERY = 50_000


@inner
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
    if start == size or get(queue + Q_RANGE_STATUS) != 0:
        return True
    most = max(1, PIECE // max(1, get(entry + E_COST)))
    if size - start <= max(1, most // PARTS):  # nothing to share: a helper could only take it, and its data, from our core
        begin = now()
        run_piece(worker, queue, record, start, size)
        note_cost(entry, (now() - begin) * 1000 // (size - start))
        return True
    open_range(queue, worker, start, size, most)
    return join_range(device, worker, queue)


@inner
def measure(worker, queue, record, size):
    """Run growing pieces until enough time was seen to know what an index costs; returns where it stopped."""
    entry = get(record + R_A)
    begin = now()
    lo, elapsed = 0, 0
    while lo < size and elapsed * 1000 < SERIAL_BELOW and get(queue + Q_RANGE_STATUS) == 0:
        hi = min(size, max(1, 4 * lo))
        run_piece(worker, queue, record, lo, hi)
        elapsed = now() - begin
        lo = hi
    note_cost(entry, elapsed * 1000 // lo)
    return lo


@inner
def note_cost(entry, seen):
    """Take what an index was seen to cost (ps) into the entry's average."""
    known = get(entry + E_COST)
    put(entry + E_COST, max(1, seen if known == 0 else (3 * known + seen) // 4))


@inner
def run_piece(worker, queue, record, lo, hi):
    """Run indices [lo, hi); the first failure is kept in the queue's range words."""
    scratch = worker + W_SCRATCH
    code = load(get(record + R_A) + E_CODE)
    status = call_entry(code, scratch, record + R_ARGUMENTS, lo, hi)
    if status != 0 and compare_exchange(queue + Q_RANGE_STATUS, 0, status):
        put(queue + Q_RANGE_EXCINFO, get(scratch + WORD))


@inner
def open_range(queue, worker, start, size, piece):
    """Let helpers join: put [start, size) on the open list, with ourselves inside."""
    device = get(queue + Q_HELPERS)
    priority = get(queue + Q_PRIORITY)
    put(queue + Q_RANGE_SIZE, size)
    put(queue + Q_RANGE_CHUNK, piece)
    store(queue + Q_RANGE_NEXT, start)
    note_core(queue, worker)
    lock(device + D_LOCK)
    put(queue + Q_RANGE_MEMBERS, 1)
    put(queue + Q_RANGE_LINKED, 1)
    put(queue + Q_RANGE_LINK, get(device + D_OPEN + WORD * priority))
    put(device + D_OPEN + WORD * priority, queue)
    sleeper = announce(device, priority)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@inner
def join_range(device, worker, queue):
    """Run pieces of a range that we are a member of, then leave; True when that ended the range (invariant 6)."""
    record = get(queue + Q_CURSOR)
    entry = get(record + R_A)
    size = get(queue + Q_RANGE_SIZE)
    shares = 2 * get(get(queue + Q_HELPERS) + D_WORKERS)
    begin = now()
    before = begin
    yielded = begin
    while True:
        most = load(queue + Q_RANGE_CHUNK)
        piece = whole(max(most // PARTS, min(most, (size - load(queue + Q_RANGE_NEXT)) // shares)))
        lo = fetch_add(queue + Q_RANGE_NEXT, piece)
        if lo >= size:
            break
        hi = min(size, lo + piece)
        run_piece(worker, queue, record, lo, hi)
        if load(queue + Q_RANGE_STATUS) != 0:
            store_fence(queue + Q_RANGE_NEXT, size)
            break
        after = now()
        elapsed, before = (after - before) * 1000, after
        note_cost(entry, elapsed // (hi - lo))
        if piece == whole(most) and elapsed < PIECE // 2:
            store(queue + Q_RANGE_CHUNK, 2 * most)
        elif elapsed > 4 * PIECE and most > 1:
            store(queue + Q_RANGE_CHUNK, most // 2)
        if after - yielded > YIELD_EVERY:
            sched_yield()  # an event loop whose timer is due may be waiting for this core
            yielded = after
        if should_leave(device, queue, after - begin):
            break
    return leave_range(queue)


@inner
def whole(piece):
    """``piece`` indices, or somewhat fewer, so that pieces begin where vectors and cache lines do."""
    return piece - piece % GRAIN if piece > GRAIN else max(1, piece)


@inner
def should_leave(device, queue, elapsed):
    """Whether more urgent work waits, or equally urgent work that has waited long enough."""
    if outranked(device, queue):
        return True
    priority = get(queue + Q_PRIORITY)
    if load(device + D_READY_HEAD + WORD * priority) == 0 and load(device + D_STOP) == 0:
        return False
    return load(queue + Q_RANGE_MEMBERS) > 1 or elapsed > TIME_SLICE or load(device + D_STOP) != 0


@inner
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
