"""Parallel for: a kernel runs alone on one worker, or as a *range* whose indices all workers share (invariant 6).

A range is cut into one partition for each worker. A worker begins with the partition of the core that it runs on, which is the
same part of every range, and claims chunks of it. Then it takes chunks of the others' partitions. So where several kernels
work on the same arrays, each core finds its part in its own cache, and where memory has several nodes on its own node.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import note_core, this_core
from aiodev._backends.cpu.executor.coalescing import ring_held
from aiodev._backends.cpu.executor.core_time import (
    lost_time,
    offer_core,
    offer_core_in_turn,
    on_core,
    on_core_in_turn,
    watch_interval,
)
from aiodev._backends.cpu.executor.crowding import alone_until, note_calm
from aiodev._backends.cpu.executor.fairness import arrive, charge, charge_spent, depart, is_ahead, move, spend
from aiodev._backends.cpu.executor.ready_queue import (
    has_place,
    link_range,
    outranked,
    pop_sleeper,
    unlink_range,
    wake_for_range,
    wake_worker,
)
from aiodev._backends.cpu.structs import PACE_SETS, PACES, Device, Entry, Helper, KernelRecord, Outcome, Queue, Worker
from aiodev._backends.cpu.tuning import (
    ALONE,
    CHUNK,
    GRAIN,
    LOOK_EVERY,
    OPERATION,
    PARTS,
    SERIAL_BELOW,
    SHORT,
    SLICE,
    SUSPICIOUS,
    TAKEN,
)
from aiodev._backends.executor.locking import lock, unlock
from aiodev._core.backend.interface import BLOCKED
from aiodev._native.compile import inner
from aiodev._native.fields import Atomic, sizeof
from aiodev._native.intrinsics import c_poll, call_entry, now, on_stack

#: The event in ``struct pollfd``: there is something to read.
POLLIN = 1
#: Bits of a pace that are a cost (ps), up to a second; the others are a digest.
PACE_BITS = 40
PACE, DIGEST = (1 << PACE_BITS) - 1, (1 << (62 - PACE_BITS)) - 1


@inner
def run_kernel(device: Device, worker: Worker | None, helper: Helper | None, queue: Queue, record: KernelRecord) -> bool:
    """Run a kernel, alone or as a range; False when the range was left to others.

    A helper relies on no earlier cost of a uniform kernel: other arguments may have made the same indices cheaper than they are
    now.
    """
    entry = record.entry
    size = record.size
    if size <= 0:
        return True
    uses = entry.uses + 1
    entry.uses = uses
    cost, trusted = entry.cost, helper is None
    if helper is not None:
        cost, trusted = expected_cost(helper, record), entry.pacing != 0
    if cost != 0 and cost <= SERIAL_BELOW * 1000 // size and uses & 63 != 0 and trusted and queue.trusted >= 0:
        run_chunk(queue, record, 0, size)
        if cost * size > OPERATION * 1000:
            spend(queue, cost * size // 1000)
        return True
    start = 0
    if cost == 0 or cost <= SERIAL_BELOW * 1000 // size:
        start = measure(queue, worker, helper, record, size)
    if start == size or queue.range_status.value != 0:
        return True
    cost = entry.cost if helper is None else expected_cost(helper, record)
    most = 1 if cost == 0 or (helper is not None and entry.irregular != 0) else max(1, CHUNK * 1000 // cost)
    if size - start <= max(1, most // PARTS):  # too little to share: a helper could only move it, and its data, off this core
        begin = now()
        watch_interval(queue, worker, helper, begin)
        if helper is None:
            queue.ends.store(begin + cost * (size - start) // 1000)
        run_chunk(queue, record, start, size)
        end = now()
        elapsed = on_core_in_turn(queue, worker, helper, begin, end)
        note_measured(record, size - start, elapsed, end - begin)
        spend(queue, elapsed)
        offer_core_in_turn(worker, helper, queue, end)
        return True
    charge_spent(device, worker, queue)
    queue.charged_at = 0  # from here on its members count
    open_range(queue, worker, start, size, most)
    return join_range(device, worker, helper, queue)


@inner
def measure(queue: Queue, worker: Worker | None, helper: Helper | None, record: KernelRecord, size: int) -> int:
    """Run growing chunks until they took long enough to know the cost of an index; returns where it stopped."""
    begin = now()
    watch_interval(queue, worker, helper, begin)
    lo, duration = 0, 0
    while lo < size and duration < SERIAL_BELOW and queue.range_status.value == 0:
        hi = min(size, max(1, 4 * lo))
        run_chunk(queue, record, lo, hi)
        duration = now() - begin
        lo = hi
    elapsed = on_core_in_turn(queue, worker, helper, begin, begin + duration)
    note_measured(record, lo, elapsed, duration)
    spend(queue, elapsed)
    return lo


@inner
def note_measured(record: KernelRecord, count: int, elapsed: int, duration: int) -> None:
    """Note what ``count`` indices of a launch took: ``elapsed`` ns, which are what this thread had a core for of ``duration``.

    Where it had none for most of that, and as much as is left may have been lost just before, the next launch is to tell.
    """
    if elapsed < min(duration // 2, SUSPICIOUS):
        record.entry.uses |= 63
    else:
        note_cost(record, elapsed * 1000 // count)


@inner
def note_cost(record: KernelRecord, seen: int) -> None:
    """Take a launch's measured cost of an index (ps) into the moving averages of its entry."""
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
    """The moving average of a cost, 0 while there is none, with one more measurement."""
    return max(1, seen if known == 0 else (3 * known + seen) // 4)


@inner
def known_cost(record: KernelRecord) -> int:
    """The cost of an index of this launch (ps), if a helper, who cannot stop it, may rely on that; else 0."""
    entry = record.entry
    if entry.uniform != 0:
        return entry.cost
    if entry.pacing == 0:
        return 0
    digest = pace_digest(record)
    pace = pace_place(entry, digest).load()
    return pace & PACE if pace >> PACE_BITS == digest else 0


@inner
def expected_cost(helper: Helper, record: KernelRecord) -> int:
    """The cost of an index of this launch (ps) by which a helper goes; 0 if it leaves the kernel to workers.

    Of an irregular kernel the average is known, and says little about the next launch. A thread that is blocked goes by it
    where the whole launch is short: nobody else waits for the thread, and the worst is that it handles a signal later.
    """
    cost = known_cost(record)
    if cost != 0 or helper.descriptor != BLOCKED or record.entry.irregular == 0:
        return cost
    average_cost = record.entry.cost
    return average_cost if average_cost * record.size <= SHORT * 1000 else 0


@inner
def pace_place(entry: Entry, digest: int) -> Atomic[int]:
    """The word that has, or will have, the cost of an index with arguments of this digest."""
    paces = entry.paces[PACES * (digest % PACE_SETS)]
    place = paces[digest // PACE_SETS % PACES]
    for number in range(PACES):
        pace = paces[number].load()
        if pace >> PACE_BITS == digest:
            return paces[number]
        if pace == 0:
            place = paces[number]
    return place


@inner
def pace_digest(record: KernelRecord) -> int:
    """A digest of those words of a launch's arguments that say how long an index takes."""
    pacing, argument, digest = record.entry.pacing, record.arguments, 0x51ED270B
    while pacing != 0:
        if pacing & 1 != 0:
            digest = (digest ^ argument.value) * 0x2545F4914F6CDD1D
            digest ^= digest >> 29
        argument, pacing = argument[1], pacing >> 1
    return digest & DIGEST


@inner
def run_chunk(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
    """Run indices [lo, hi); the queue's ``range_status`` and ``range_excinfo`` keep the first failure."""
    outcome = Outcome(on_stack(sizeof(Outcome)))
    code = record.entry.code.load()
    status = call_entry(code, outcome, record.arguments, lo, hi)
    if status != 0 and queue.range_status.compare_exchange(0, status):
        queue.range_excinfo = outcome.excinfo


@inner
def open_range(queue: Queue, worker: Worker | None, start: int, size: int, chunk: int) -> None:
    """Open [start, size) as a range that others may join; the caller is its first member.

    A worker is woken to join, unless waiting threads help in its place, or have helped lately and are due: a worker woken for
    nothing keeps a thread off a core. A helper (``worker`` is None) wakes nobody: the worker woken for its queue is due.
    """
    device = queue.range_device
    queue.range_chunk.value = chunk
    workers = device.workers
    queue.range_left.store(cut_partitions(queue, start, size, workers, chunk))
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
        if queue.help_due.load() == 0:
            queue.help_due.store(alone_until(device.crowd, now()))
        return
    if known_cost(KernelRecord(queue.cursor)) != 0:
        if queue.helpers.load_fence() >= workers - 1:
            return
        if queue.expected_helpers.load() >= workers - 1:
            if queue.help_due.load() == 0:
                queue.help_due.store(alone_until(device.crowd, now()))
            return
    time = now()
    until = alone_until(device.crowd, time)
    if until > time + max(ALONE, KernelRecord(queue.cursor).entry.cost // 1000):  # within an index, nobody looks
        queue.help_due.store(until)
        return
    wake_for_range(device, queue)


@inner
def cut_partitions(queue: Queue, start: int, size: int, workers: int, chunk: int) -> int:
    """Cut [start, size) into partitions; returns how many are not empty.

    A core's cache still holds what the last kernel touched last, so short partitions are run forwards and backwards by turns.
    Long ones are not: each change of direction between chunks would cost more than the cache still holds of the last range.
    """
    length = max(1, chunk // PARTS, (size - start + workers - 1) // workers)
    length += -length % GRAIN if length > GRAIN else 0
    partition, lo, count = queue.partitions, start, 0
    for _ in range(workers):
        hi = min(size, lo + length)
        backwards = partition.mirror == 0 and lo < hi and length <= 2 * chunk
        end = lo + length if backwards and length > GRAIN else hi  # whole chunks, counted from there
        partition.next.value = lo
        partition.end = end
        partition.mirror = lo + end if backwards else 0
        count += 1 if lo < hi else 0
        partition, lo = partition[1], hi
    return count


@inner
def join_range(device: Device, worker: Worker | None, helper: Helper | None, queue: Queue) -> bool:
    """Run chunks of a range as a member of it, then leave; a helper runs as many as seem to end in its time.

    A member that finds help overdue wakes a worker. True when leaving ended the range (invariant 6).
    """
    record = KernelRecord(queue.cursor)
    size = record.size
    workers = queue.range_device.workers
    own = this_core()
    if worker is not None:
        queue.joined_core = own
        queue.joined = worker
    turn = 0  # partitions that have no chunks left, counted from our own
    begin = now()
    watch_interval(queue, worker, helper, begin)
    before = begin
    while turn < workers:
        partition = queue.partitions[(own + turn) % workers]
        end, most = partition.end, queue.range_chunk.load()
        chunk = whole(max(most // PARTS, min(most, (end - partition.next.load()) // 8)))
        if helper is not None:
            cost = expected_cost(helper, record)
            left = time_left(helper, before) * 1000 // cost  # 0, too, where that is not known any more
            if left == 0:
                break
            if before == begin:
                chunk = 1 if record.entry.irregular != 0 else most // PARTS
            chunk = whole(min(chunk, left, max(1, CHUNK * 1000 // cost)))
        lo = end if partition.next.load() >= end else partition.next.fetch_add(chunk)
        hi = min(end, lo + chunk)
        if lo >= hi:
            turn += 1
            continue
        if hi == end:
            queue.range_left.fetch_add(-1)
        mirror = partition.mirror
        if mirror != 0:
            lo, hi = mirror - hi, min(mirror - lo, size)
            if lo >= hi:
                continue
        run_chunk(queue, record, lo, hi)
        if queue.range_status.load() != 0:
            queue.range_left.store_fence(0)
            break
        after = now()
        if worker is not None and after > worker.bell_due:  # it takes longer than it did
            ring_held(worker)
        due = queue.help_due.load()
        if due != 0 and after > due:
            if queue.helpers.load() == 0:
                queue.help_due.store(0)
                queue.expected_helpers.store(0)
            else:  # which may be called away
                queue.help_due.store(alone_until(queue.range_device.crowd, after))
            wake_for_range(queue.range_device, queue)
        elapsed = on_core(queue, worker, helper, after, after - before)
        charge(device, queue, elapsed)
        note_measured(record, hi - lo, elapsed, after - before)
        if chunk == whole(most) and elapsed < CHUNK // 2:
            queue.range_chunk.store(2 * most)
        elif elapsed > 4 * CHUNK and most > 1:
            queue.range_chunk.store(most // 2)
        if queue.range_members.load() > 1:
            note_calm(queue.range_device.crowd, after, elapsed)
        before = offer_core(worker, helper, queue, after)
        if should_leave(device, worker, queue):
            break
    if turn == workers and queue.range_left.load() > 0:
        queue.range_left.store(0)  # whoever has the last chunk has not said so: until then one would join again and again
    return leave_range(device, helper, queue)


@inner
def time_left(helper: Helper, time: int) -> int:
    """For how long (ns) from ``time`` on, which is now, a helper may go on."""
    descriptor, looked = helper.descriptor, helper.looked
    if descriptor == -1:
        helper.looked = time
        if time - looked > TAKEN:
            lost_time(helper, time)
    elif descriptor >= 0 and time - looked > LOOK_EVERY:
        helper.looked = time
        helper.polled.value = descriptor | POLLIN << 32
        if c_poll(helper.polled, 1, 0) != 0:
            helper.until = 0
    return max(0, helper.until - time)


@inner
def whole(chunk: int) -> int:
    """Round a number of indices down to a multiple of ``GRAIN``; 1 at least."""
    return chunk - chunk % GRAIN if chunk > GRAIN else max(1, chunk)


@inner
def should_leave(device: Device, worker: Worker | None, queue: Queue) -> bool:
    """Whether more urgent work waits, or a queue that is behind in virtual time; by a slice, if this is the only member.

    Or whether its worker is beyond the limit.
    """
    if outranked(device, queue) or device.stop.load() != 0:
        return True
    if worker is not None and not has_place(device, device.asleep):
        return True
    return is_ahead(device, queue, 0 if queue.range_members.load() > 1 else SLICE)


@inner
def leave_range(home: Device, helper: Helper | None, queue: Queue) -> bool:
    """Leave a range; True when that ended it. If others are inside, a helper is due back, and no worker is woken for it.

    ``home`` is the worker's device, which for that of a reserved queue is not the range's.
    """
    device = queue.range_device
    looks = helper is None and home == device  # whether this thread looks for the device's work next
    sleeper: Worker | None = None
    lock(device.lock)
    members = queue.range_members.value - 1
    queue.range_members.value = members
    over = members == 0 and queue.range_left.load() <= 0
    if over:
        unlink_range(device, queue)
        if queue.device != device and device.workers > 1:
            depart(device, queue.priority)
    elif queue.range_left.load() > 0 and members < device.workers:
        linked = queue.range_linked.value != 0
        if linked:
            move(device, queue)
        else:
            link_range(device, queue)
        if helper is not None and members == 0:
            if device.lookout.value is None:
                sleeper = pop_sleeper(device)  # who opened it woke nobody, and we look for no work as a worker does
        elif not linked and helper is None:
            sleeper = pop_sleeper(device)
        elif not linked:
            queue.help_due.store(alone_until(device.crowd, now()))
    if queue.range_full != 0 and members < device.workers:
        queue.range_full = 0
        full = device.full[queue.priority]
        full.store(full.value - 1)
        if sleeper is None and (over or not looks) and device.pending.value > queue.range_linked.value:
            sleeper = pop_sleeper(device)  # what was outranked is so no longer, and we look for no work
    unlock(device.lock)
    wake_worker(sleeper)
    return over
