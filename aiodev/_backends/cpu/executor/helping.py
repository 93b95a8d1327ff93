"""Waiting awake: a thread that waits for a queue does a part of the queue's work meanwhile, as a guest.

Where there are as many workers as cores, a thread that spins keeps a worker off its core. So it takes that one's place: it is a
member of the queue's range like any worker, and where the queue waits for a worker, which may have to wake up first, it runs
the queue itself. It takes nothing that seems to end after its time is over. So that is for kernels whose indices all take about
as long, and for those whose loops go as far as arguments say, once an index has been timed with the very same: what an index
was seen to cost says nothing about the next one of others.

Where the machine is crowded, a thread that finds nothing to help with does not wait awake, and who helps takes what is short,
and wakes nobody to join in.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import send_away
from aiodev._backends.cpu.executor.crowding import TAKEN, alone_until, is_crowded, note_crowd
from aiodev._backends.cpu.executor.fairness import SLICE, begin_turn, first, take_out, without_core
from aiodev._backends.cpu.executor.parallel_for import SERIAL_BELOW, join_range, known_cost, time_left
from aiodev._backends.cpu.executor.ready_queue import enter_range, outranked, send_for_worker, wake_helper
from aiodev._backends.cpu.executor.worker import finish, hand_back, next_record, step, take_up, turn_is_over
from aiodev._backends.cpu.structs import OP_KERNEL, Crowd, Device, Guest, KernelRecord, Queue, Record
from aiodev._backends.executor.compile import boolean, exported, inner, int64
from aiodev._backends.executor.fields import sizeof
from aiodev._backends.executor.intrinsics import now, on_stack, pause
from aiodev._backends.executor.locking import lock, unlock

#: How long (ns) to wait at least for a worker that has been sent to another core.
MOVED = 60_000
#: How long (ns) a guest looks for something to help with, before it has helped and after: others are at their last pieces.
PATIENCE, LONGER = 3_000, 50_000
#: How long (ns) a single index may take of a guest that may be called away: it cannot be, meanwhile.
INDEX = 200_000
#: How long (ns) after the time at which a kernel seems to end a guest still waits awake for that.
OVERDUE = 10_000
#: On a crowded machine a guest takes kernels that seem to take no longer than this in all (ps). To wake a worker costs the more
#: the shorter they are; and it wakes up on whichever core is free, while a thread that goes on stays where it is.
SHORT = 250_000_000
#: Who is to wait awake for longer than this (ns) does so on a crowded machine, too: it is a wait, and no attempt to save one.
BRIEF = 1_000_000
#: What came of an attempt to help: guests may not, or not in the time that they have; there was nothing; something was done; or
#: all that is waited for.
REFUSED, MISSED, HELPED, REACHED = -1, 0, 1, 2


@inner
def suits(crowd: Crowd, guest: Guest, record: Record, left: int) -> bool:
    """Whether a guest may run an operation in ``left`` ns: a kernel that is likely to be over, or shared, by then, or none."""
    if record.operation != OP_KERNEL:
        return left > 0
    cost = known_cost(KernelRecord(record))
    if cost == 0 or cost > guest.longest * 1000:
        return False
    if is_crowded(crowd, now()) and cost * KernelRecord(record).size > SHORT:
        return False
    return max(cost, SERIAL_BELOW) <= left * 1000


@inner
def has_its_turn(device: Device, queue: Queue) -> bool:
    """Whether no other queue that waits has had much less (lock held)."""
    priority = queue.priority
    return first(device, priority) == queue or queue.time.load() <= device.least[priority].value + SLICE


@inner
def help_with_range(guest: Guest, queue: Queue, value: int) -> int:
    """Join the queue's open range, if an index seems to end in time; if we are the last to leave, go on with the queue."""
    helpers, outcome = queue.helpers, MISSED
    lock(helpers.lock)
    if queue.range_linked.value != 0:  # so it is not completed before the lock is free
        cost = known_cost(KernelRecord(queue.cursor))
        if cost == 0 or cost > guest.longest * 1000:
            outcome = REFUSED
        elif (
            cost <= (guest.until - now()) * 1000
            and has_its_turn(helpers, queue)
            and enter_range(helpers, queue)
        ):
            queue.awaited.store(0)
            outcome = HELPED
    unlock(helpers.lock)
    if outcome == HELPED and join_range(helpers, None, guest, queue):
        device = queue.device
        if finish(device, None, queue, queue.cursor, queue.completed.value + 1):
            go_on(device, guest, queue, value)
    return outcome


@inner
def begin(guest: Guest, queue: Queue, value: int) -> int:
    """Take a queue that waits for a worker, and run it; the worker that was woken for it finds what we have left."""
    device, priority, outcome = queue.device, queue.priority, MISSED
    left = time_left(guest, now())  # which may call the system: not with the lock
    lock(device.lock)
    if first(device, priority) == queue and queue.range_linked.value == 0:
        outcome = REFUSED
        if not outranked(device, queue) and suits(device.crowd, guest, queue.cursor, left):
            take_out(device, queue)
            outcome = HELPED
    unlock(device.lock)
    if outcome == HELPED:
        queue.awaited.store(alone_until(device.crowd, now()))
        go_on(device, guest, queue, value)
    return outcome


@inner
def go_on(device: Device, guest: Guest, queue: Queue, value: int) -> None:
    """Run a queue that is in our hands up to ``value``, as far as a guest may; workers do the rest."""
    begin_turn(device, queue)
    take_up(queue)
    while queue.completed.value < value and not turn_is_over(device, None, queue):
        if not suits(device.crowd, guest, next_record(queue), time_left(guest, now())):
            break
        if not step(device, None, guest, queue):
            return
    hand_back(queue)


@inner
def attend(queue: Queue, value: int, patience: int, longest: int, descriptor: int) -> int:
    """Wait awake for ``value``, and help meanwhile; how that ended.

    It ends once there was nothing to help with for ``patience`` ns, or ``LONGER`` after we have helped; after ``longest`` in
    any case; and once ``descriptor`` is readable.
    """
    guest = Guest(on_stack(sizeof(Guest)))
    began = now()
    guest.until = began + longest
    guest.descriptor = descriptor
    guest.looked = began
    guest.longest = longest if descriptor < 0 else min(longest, INDEX)
    guest.off = 0
    head, crowd = queue.device.first[queue.priority], queue.helpers.crowd
    brief = patience < BRIEF
    crowded = brief and is_crowded(crowd, began)
    queue.guests.fetch_add(1)
    helping, ending, until, latest, seen = True, MISSED, began + patience, began + 2 * patience, began
    progress = queue.completed.load()
    while ending != REACHED:
        for _ in range(16):
            if queue.completed.load() >= value:
                ending = REACHED
                break
            outcome = MISSED
            if helping and (queue.range_linked.load() != 0 or head.load() == queue):
                if guest.off == 0:
                    guest.off = without_core()
                shared = queue.range_linked.load() != 0
                outcome = help_with_range(guest, queue, value) if shared else begin(guest, queue, value)
                seen = now()
            if outcome == HELPED:
                guests = queue.guests.load()
                if queue.expected.load() != guests:
                    queue.expected.store(guests)
                ending, until = HELPED, seen
                crowded = brief and is_crowded(crowd, seen)
                if not crowded:
                    until += max(patience, LONGER)
            elif outcome == REFUSED:
                helping = False
                queue.guests.fetch_add(-1)
                wake_helper(queue.helpers, queue)
                send_for_worker(queue.device)
            pause()
        time = now()
        if time - seen > TAKEN:
            note_crowd(crowd, time)
            crowded = brief
        seen = time
        if queue.completed.load() != progress:  # what is before it is short, and so may it be
            progress = queue.completed.load()
            until = max(until, min(latest, time + patience))
        ends = queue.ends.load() + OVERDUE
        if crowded or time >= guest.until or time >= (ends if until < ends <= latest else until):
            break
    if helping:
        queue.guests.fetch_add(-1)
        if queue.range_linked.load_fence() != 0:
            queue.awaited.store(alone_until(crowd, now()))
    return REACHED if queue.completed.load() >= value else ending


@exported(boolean(int64, int64, int64), nogil=True)
def spin(queue: Queue, value: int, duration: int) -> bool:
    """Wait for ``value`` for at most ``duration`` ns, without the GIL, or twice that where we help; whether it was reached."""
    if queue.completed.load() >= value:
        return True
    if send_away(queue):
        duration = max(duration, MOVED)
    return attend(queue, value, duration, 2 * duration, -1) == REACHED


@exported(boolean(int64, int64, int64, int64), nogil=True)
def help(queue: Queue, value: int, duration: int, descriptor: int) -> bool:
    """Help with what ``value`` waits for, as :meth:`Backend.help` says; whether there was anything to help with."""
    return attend(queue, value, PATIENCE, duration, descriptor) != MISSED
