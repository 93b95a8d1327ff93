"""Kernels: alone on one worker, or shared by all as a range (invariant 6).

A range is cut into as many shares as there are workers. A worker begins with the share of the core that it runs on, the same
part of every range, and claims pieces of it; once it is through it takes what others have left of theirs. So where one kernel
after the other works on the same arrays, each core finds its part in its own cache, and where memory has several nodes, on its
own node.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import note_core, this_core
from aiodev._backends.cpu.executor.crowding import ALONE, TAKEN, alone_until, is_crowded, note_crowd
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
from aiodev._backends.cpu.structs import PACES, Device, Entry, Guest, KernelRecord, Outcome, Queue, Worker
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.fields import Atomic, sizeof
from aiodev._backends.executor.intrinsics import c_poll, call_entry, now, on_stack, sched_yield
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
#: A guest looks this often (ns) whether it is called away, and at this: ``struct pollfd``.
LOOK_EVERY, POLLIN = 50_000, 1
#: Of a pace the bits that are a cost (ps), up to a second; the others are a digest.
PACE_BITS = 40
PACE, DIGEST = (1 << PACE_BITS) - 1, (1 << (62 - PACE_BITS)) - 1


@inner
def run_kernel(device: Device, worker: Worker | None, guest: Guest | None, queue: Queue, record: KernelRecord) -> bool:
    """Run a kernel, alone or with helpers; False when the range was left to others.

    A guest relies on no cost that was learnt of a uniform kernel: other arguments may have made the same indices cheaper than
    they are now.
    """
    entry = record.entry
    size = record.size
    if size <= 0:
        return True
    uses = entry.uses + 1
    entry.uses = uses
    cost, trusted = entry.cost, guest is None
    if guest is not None:
        cost, trusted = known_cost(record), entry.uniform == 0
    if cost != 0 and cost <= SERIAL_BELOW // size and uses & 63 != 0 and trusted:
        run_piece(queue, record, 0, size)
        if cost * size > OPERATION * 1000:
            spend(queue, cost * size // 1000)
        return True
    start = 0
    if cost == 0 or cost <= SERIAL_BELOW // size:
        start = measure(queue, worker, guest, record, size)
    if start == size or queue.range_status.value != 0:
        return True
    cost = entry.cost if guest is None else known_cost(record)
    most = 1 if cost == 0 else max(1, PIECE // cost)
    if size - start <= max(1, most // PARTS):  # nothing to share: a helper could only take it, and its data, from our core
        begin = now()
        if guest is None:
            queue.ends.store(begin + cost * (size - start) // 1000)
        run_piece(queue, record, start, size)
        ended = now()
        elapsed = on_core(device.crowd, worker, guest, ended, ended - begin)
        note_cost(record, elapsed * 1000 // (size - start))
        spend(queue, elapsed)
        return True
    settle(device, worker, queue)
    queue.settled = 0  # from here on its members count
    open_range(queue, worker, start, size, most)
    return join_range(device, worker, guest, queue)


@inner
def measure(queue: Queue, worker: Worker | None, guest: Guest | None, record: KernelRecord, size: int) -> int:
    """Run growing pieces until enough time was seen to know what an index costs; returns where it stopped."""
    begin = now()
    lo, elapsed = 0, 0
    while lo < size and elapsed * 1000 < SERIAL_BELOW and queue.range_status.value == 0:
        hi = min(size, max(1, 4 * lo))
        run_piece(queue, record, lo, hi)
        elapsed = now() - begin
        lo = hi
    elapsed = on_core(queue.device.crowd, worker, guest, begin + elapsed, elapsed)
    note_cost(record, elapsed * 1000 // lo)
    spend(queue, elapsed)
    return lo


@inner
def note_cost(record: KernelRecord, seen: int) -> None:
    """Take what an index of a launch was seen to cost (ps) into the averages of its entry."""
    entry = record.entry
    entry.cost = average(entry.cost, seen)
    if entry.pacing != 0:
        digest = pace_digest(record)
        place = pace_place(entry, digest)
        pace = place.load()
        known = pace & PACE if pace >> PACE_BITS == digest else 0
        place.store(digest << PACE_BITS | min(PACE, average(known, seen)))


@inner
def average(known: int, seen: int) -> int:
    """What is known of a cost, 0 for nothing, with what was seen of it."""
    return max(1, seen if known == 0 else (3 * known + seen) // 4)


@inner
def known_cost(record: KernelRecord) -> int:
    """What an index of this very launch costs (ps), as far as a guest may rely on that, who cannot stop it; 0 if it may not."""
    entry = record.entry
    if entry.uniform != 0:
        return entry.cost
    if entry.pacing == 0:
        return 0
    digest = pace_digest(record)
    pace = pace_place(entry, digest).load()
    return pace & PACE if pace >> PACE_BITS == digest else 0


@inner
def pace_place(entry: Entry, digest: int) -> Atomic[int]:
    """Where it is noted what an index costs with such arguments, or may be."""
    place = entry.paces[digest & (PACES - 1)]
    for number in range(PACES):
        pace = entry.paces[number].load()
        if pace >> PACE_BITS == digest:
            return entry.paces[number]
        if pace == 0:
            place = entry.paces[number]
    return place


@inner
def pace_digest(record: KernelRecord) -> int:
    """A digest of the words among a launch's arguments that say how long an index takes."""
    pacing, argument, digest = record.entry.pacing, record.arguments, 0x51ED270B
    while pacing != 0:
        if pacing & 1 != 0:
            digest = (digest ^ argument.value) * 0x2545F4914F6CDD1D
            digest ^= digest >> 29
        argument, pacing = argument[1], pacing >> 1
    return digest & DIGEST


@inner
def run_piece(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
    """Run indices [lo, hi); the first failure is kept in the queue's range words."""
    outcome = Outcome(on_stack(sizeof(Outcome)))
    code = record.entry.code.load()
    status = call_entry(code, outcome, record.arguments, lo, hi)
    if status != 0 and queue.range_status.compare_exchange(0, status):
        queue.range_excinfo = outcome.excinfo


@inner
def open_range(queue: Queue, worker: Worker | None, start: int, size: int, piece: int) -> None:
    """Let helpers join: put the shares of [start, size) on the open list, with ourselves inside.

    A worker is woken to help, unless guests are there in its place, or have helped lately and are awaited: one that was woken
    for nothing would keep somebody off a core. So is the worker that was woken for a queue that a guest (no worker: None) runs.
    """
    device = queue.helpers
    queue.range_chunk.value = piece
    workers = device.workers
    queue.range_left.store(deal(queue, start, size, workers, piece))
    queue.range_members.value = 1
    if workers == 1:
        return
    note_core(queue, worker)
    lock(device.lock)
    if queue.device != device:
        arrive(device, queue)  # a reserved queue wants no time of this device but for its ranges
    link_range(device, queue)
    unlock(device.lock)
    if worker is None:
        if queue.awaited.load() == 0:
            queue.awaited.store(alone_until(device.crowd, now()))
        return
    if known_cost(KernelRecord(queue.cursor)) != 0:
        if queue.guests.load_fence() >= workers - 1:
            return
        if queue.expected.load() >= workers - 1:
            if queue.awaited.load() == 0:
                queue.awaited.store(alone_until(device.crowd, now()))
            return
    time = now()
    if alone_until(device.crowd, time) > time + ALONE:
        queue.awaited.store(alone_until(device.crowd, time))
        return
    wake_helper(device, queue)


@inner
def deal(queue: Queue, start: int, size: int, workers: int, piece: int) -> int:
    """Cut [start, size) into shares; returns how many there are.

    What a kernel read or wrote last is what a core's cache still has: short shares are run through to and fro. Long ones are
    not: each change of direction between their pieces would cost more than is left of the last range.
    """
    length = max(1, piece // PARTS, (size - start + workers - 1) // workers)
    length += -length % GRAIN if length > GRAIN else 0
    share, lo, count = queue.shares, start, 0
    for _ in range(workers):
        hi = min(size, lo + length)
        backwards = share.mirror == 0 and lo < hi and length <= 2 * piece
        end = lo + length if backwards and length > GRAIN else hi  # whole pieces, counted from there
        share.next.value = lo
        share.end = end
        share.mirror = lo + end if backwards else 0
        count += 1 if lo < hi else 0
        share, lo = share[1], hi
    return count


@inner
def join_range(device: Device, worker: Worker | None, guest: Guest | None, queue: Queue) -> bool:
    """Run pieces of a range that we are a member of, as a guest (if not None) as many as seem to end in its time, then leave.

    Whoever sees that somebody who is awaited has not come wakes a worker. True when our leaving ended the range (invariant 6).
    """
    record = KernelRecord(queue.cursor)
    size = record.size
    workers, crowd = queue.helpers.workers, queue.helpers.crowd
    own = this_core()
    turn = 0  # that many of the shares, ours first, are through
    begin = now()
    before = begin
    yielded = begin
    while turn < workers:
        share = queue.shares[(own + turn) % workers]
        end, most = share.end, queue.range_chunk.load()
        piece = whole(max(most // PARTS, min(most, (end - share.next.load()) // 8)))
        if guest is not None:
            cost = known_cost(record)
            left = time_left(guest, before) * 1000 // cost
            if left == 0:
                break
            piece = whole(min(most // PARTS if before == begin else piece, left, max(1, PIECE // cost)))
        lo = end if share.next.load() >= end else share.next.fetch_add(piece)
        hi = min(end, lo + piece)
        if lo >= hi:
            turn += 1
            continue
        if hi == end:
            queue.range_left.fetch_add(-1)
        mirror = share.mirror
        if mirror != 0:
            lo, hi = mirror - hi, min(mirror - lo, size)
            if lo >= hi:
                continue
        run_piece(queue, record, lo, hi)
        if queue.range_status.load() != 0:
            queue.range_left.store_fence(0)
            break
        after = now()
        awaited = queue.awaited.load()
        if awaited != 0 and after > awaited:
            queue.awaited.store(0)
            queue.expected.store(0)
            wake_helper(queue.helpers, queue)
        spent = on_core(crowd, worker, guest, after, after - before)
        charge(device, queue, spent)
        elapsed, before = spent * 1000, after
        note_cost(record, elapsed // (hi - lo))
        if piece == whole(most) and elapsed < PIECE // 2:
            queue.range_chunk.store(2 * most)
        elif elapsed > 4 * PIECE and most > 1:
            queue.range_chunk.store(most // 2)
        if after - yielded > YIELD_EVERY and not is_crowded(crowd, after):
            sched_yield()  # an event loop whose timer is due may be waiting for this core
            before = yielded = now()
            if yielded - after > TAKEN:
                note_crowd(crowd, yielded)
        if should_leave(device, queue):
            break
    return leave_range(guest, queue)


@inner
def time_left(guest: Guest, time: int) -> int:
    """For how long (ns) a guest may help still; it is ``time``."""
    descriptor = guest.descriptor
    if descriptor >= 0 and time - guest.looked > LOOK_EVERY:
        guest.looked = time
        guest.polled.value = descriptor | POLLIN << 32
        if c_poll(guest.polled, 1, 0) != 0:
            guest.until = 0
    return max(0, guest.until - time)


@inner
def whole(piece: int) -> int:
    """``piece`` indices, or somewhat fewer, so that pieces begin where vectors and cache lines do."""
    return piece - piece % GRAIN if piece > GRAIN else max(1, piece)


@inner
def should_leave(device: Device, queue: Queue) -> bool:
    """Whether more urgent work waits, or a queue that has had less; by a slice, where nobody else would go on here."""
    if outranked(device, queue) or device.stop.load() != 0:
        return True
    return is_ahead(device, queue, 0 if queue.range_members.load() > 1 else SLICE)


@inner
def leave_range(guest: Guest | None, queue: Queue) -> bool:
    """Leave a range; True when that ended it. A guest leaves its place open until it should be back, if others are inside."""
    device = queue.helpers
    sleeper: Worker | None = None
    lock(device.lock)
    members = queue.range_members.value - 1
    queue.range_members.value = members
    over = members == 0 and queue.range_left.load() <= 0
    if over:
        unlink_range(device, queue)
        if queue.device != device and device.workers > 1:
            depart(device, queue.priority)
    elif queue.range_left.load() > 0:
        linked = queue.range_linked.value != 0
        if linked:
            move(device, queue)
        else:
            link_range(device, queue)
        if guest is not None and members == 0:
            if device.lookout.value is None:
                sleeper = pop_sleeper(device)  # who opened it woke nobody, and we look for no work as a worker does
        elif not linked and guest is None:
            sleeper = pop_sleeper(device)
        elif not linked:
            queue.awaited.store(alone_until(device.crowd, now()))
    unlock(device.lock)
    wake_worker(sleeper)
    return over
