"""Waiting awake: a thread that waits for a queue does a part of the queue's work meanwhile, as a guest.

Where there are as many workers as cores, a thread that spins keeps a worker off its core. So it takes that one's place: it is a
member of the queue's range like any worker, and where the queue waits for a worker, which may have to wake up first, it runs
the queue itself. It takes nothing that seems to end after its time is over. So that is for kernels whose indices all take about
as long: what an index was seen to cost says nothing about the next one of others.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import send_away
from aiodev._backends.cpu.executor.fairness import SLICE, begin_turn, first, take_out
from aiodev._backends.cpu.executor.parallel_for import ARRIVAL, BACK, PIECE, SERIAL_BELOW, join_range, time_left
from aiodev._backends.cpu.executor.ready_queue import enter_range, outranked, wake_helper
from aiodev._backends.cpu.executor.worker import finish, hand_back, next_record, step, take_up, turn_is_over
from aiodev._backends.cpu.layout import (
    D_FIRST,
    D_LEAST,
    D_LOCK,
    E_COST,
    E_UNIFORM,
    GUEST_BYTES,
    OP_KERNEL,
    Q_AWAITED,
    Q_COMPLETED,
    Q_CURSOR,
    Q_DEVICE,
    Q_EXPECTED,
    Q_GUESTS,
    Q_HELPERS,
    Q_PRIORITY,
    Q_RANGE_LINKED,
    Q_TIME,
    R_A,
    R_OPERATION,
    V_DESCRIPTOR,
    V_LONGEST,
    V_LOOKED,
    V_UNTIL,
    WORD,
)
from aiodev._backends.executor.compile import boolean, exported, inner, int64
from aiodev._backends.executor.intrinsics import fetch_add, get, load, load_fence, now, on_stack, pause, put, store
from aiodev._backends.executor.locking import lock, unlock

#: How long (ns) to wait at least for a worker that has been sent to another core.
MOVED = 60_000
#: How long (ns) a guest looks for something to help with, before it has helped and after: others are at their last pieces.
PATIENCE, LONGER = 3_000, 50_000
#: What came of an attempt to help: guests may not, or not in the time that they have; there was nothing; something was done; or
#: all that is waited for.
REFUSED, MISSED, HELPED, REACHED = -1, 0, 1, 2


@inner
def suits(guest, record, left):
    """Whether a guest may run an operation in ``left`` ns: a kernel that is likely to be over, or shared, by then, or none."""
    if get(record + R_OPERATION) != OP_KERNEL:
        return left > 0
    entry = get(record + R_A)
    cost = get(entry + E_COST)
    if get(entry + E_UNIFORM) == 0 or cost == 0 or cost > get(guest + V_LONGEST) * 1000:
        return False
    return max(cost, SERIAL_BELOW) <= left * 1000


@inner
def has_its_turn(device, queue):
    """Whether no other queue that waits has had much less (lock held)."""
    priority = get(queue + Q_PRIORITY)
    return first(device, priority) == queue or load(queue + Q_TIME) <= get(device + D_LEAST + WORD * priority) + SLICE


@inner
def help_with_range(guest, queue, value):
    """Join the queue's open range, if an index seems to end in time; if we are the last to leave, go on with the queue."""
    helpers, outcome = get(queue + Q_HELPERS), MISSED
    lock(helpers + D_LOCK)
    if get(queue + Q_RANGE_LINKED) != 0:  # so it is not completed before the lock is free
        entry = get(get(queue + Q_CURSOR) + R_A)
        if get(entry + E_UNIFORM) == 0 or get(entry + E_COST) > get(guest + V_LONGEST) * 1000:
            outcome = REFUSED
        elif (
            get(entry + E_COST) <= (get(guest + V_UNTIL) - now()) * 1000
            and has_its_turn(helpers, queue)
            and enter_range(helpers, queue)
        ):
            store(queue + Q_AWAITED, 0)
            outcome = HELPED
    unlock(helpers + D_LOCK)
    if outcome == HELPED and join_range(helpers, 0, guest, queue):
        device = get(queue + Q_DEVICE)
        if finish(device, 0, queue, get(queue + Q_CURSOR), get(queue + Q_COMPLETED) + 1):
            go_on(device, guest, queue, value)
    return outcome


@inner
def begin(guest, queue, value):
    """Take a queue that waits for a worker, and run it; the worker that was woken for it finds what we have left."""
    device, priority, outcome = get(queue + Q_DEVICE), get(queue + Q_PRIORITY), MISSED
    left = time_left(guest, now())  # which may call the system: not with the lock
    lock(device + D_LOCK)
    if first(device, priority) == queue and get(queue + Q_RANGE_LINKED) == 0:
        outcome = REFUSED
        if not outranked(device, queue) and suits(guest, get(queue + Q_CURSOR), left):
            take_out(device, queue)
            outcome = HELPED
    unlock(device + D_LOCK)
    if outcome == HELPED:
        store(queue + Q_AWAITED, now() + ARRIVAL)
        go_on(device, guest, queue, value)
    return outcome


@inner
def go_on(device, guest, queue, value):
    """Run a queue that is in our hands up to ``value``, as far as a guest may; workers do the rest."""
    begin_turn(device, queue)
    take_up(queue)
    while get(queue + Q_COMPLETED) < value and not turn_is_over(device, 0, queue):
        if not suits(guest, next_record(queue), time_left(guest, now())):
            break
        if not step(device, 0, guest, queue):
            return
    hand_back(queue)


@inner
def attend(queue, value, patience, longest, descriptor):
    """Wait awake for ``value``, and help meanwhile; how that ended.

    It ends once there was nothing to help with for ``patience`` ns, or ``LONGER`` after we have helped; after ``longest`` in
    any case; and once ``descriptor`` is readable.
    """
    guest = on_stack(GUEST_BYTES)
    began = now()
    put(guest + V_UNTIL, began + longest)
    put(guest + V_DESCRIPTOR, descriptor)
    put(guest + V_LOOKED, began)
    put(guest + V_LONGEST, longest if descriptor < 0 else min(longest, PIECE // 1000))
    head = get(queue + Q_DEVICE) + D_FIRST + WORD * get(queue + Q_PRIORITY)
    fetch_add(queue + Q_GUESTS, 1)
    helping, ending, until = True, MISSED, began + patience
    while ending != REACHED:
        for _ in range(16):
            if load(queue + Q_COMPLETED) >= value:
                ending = REACHED
                break
            outcome = MISSED
            if helping and load(queue + Q_RANGE_LINKED) != 0:
                outcome = help_with_range(guest, queue, value)
            elif helping and load(head) == queue:
                outcome = begin(guest, queue, value)
            if outcome == HELPED:
                guests = load(queue + Q_GUESTS)
                if load(queue + Q_EXPECTED) != guests:
                    store(queue + Q_EXPECTED, guests)
                ending, until = HELPED, now() + max(patience, LONGER)
            elif outcome == REFUSED:
                helping = False
                fetch_add(queue + Q_GUESTS, -1)
                wake_helper(get(queue + Q_HELPERS), queue)
            pause()
        if now() >= min(until, get(guest + V_UNTIL)):
            break
    if helping:
        fetch_add(queue + Q_GUESTS, -1)
        if load_fence(queue + Q_RANGE_LINKED) != 0:
            store(queue + Q_AWAITED, now() + BACK)
    return ending


@exported(boolean(int64, int64, int64), nogil=True)
def spin(queue, value, duration):
    """Wait for ``value`` for at most ``duration`` ns, without the GIL, or twice that where we help; whether it was reached."""
    if load(queue + Q_COMPLETED) >= value:
        return True
    if send_away(queue):
        duration = max(duration, MOVED)
    return attend(queue, value, duration, 2 * duration, -1) == REACHED


@exported(boolean(int64, int64, int64, int64), nogil=True)
def help(queue, value, duration, descriptor):
    """Help with what ``value`` waits for, as :meth:`Backend.help` says; whether there was anything to help with."""
    return attend(queue, value, PATIENCE, duration, descriptor) != MISSED
