"""Waiting awake: a thread that spins for a queue helps with the queue's ranges meanwhile.

Where there are as many workers as cores, a thread that spins keeps a worker off its core. So it takes that one's place, as a
guest: it is a member of the range like any worker, but takes no piece that seems to end after it stops waiting, which is twice
as late as if it only spun. That is so for kernels whose indices all take about as long: what an index was seen to cost says
nothing about the next one of others.
"""

from __future__ import annotations

from numba import types

from aiodev._backends.cpu.layout import (
    D_LOCK,
    E_COST,
    E_UNIFORM,
    Q_COMPLETED,
    Q_CURSOR,
    Q_DEVICE,
    Q_GUESTS,
    Q_HELPERS,
    Q_RANGE_GUESTS,
    Q_RANGE_LINKED,
    R_A,
    WORKER_BYTES,
)
from aiodev._backends.cpu.native.compile import exported, inner, int64
from aiodev._backends.cpu.native.cores import send_away
from aiodev._backends.cpu.native.intrinsics import fetch_add, get, load, now, on_stack, pause, put
from aiodev._backends.cpu.native.ranges import join_range
from aiodev._backends.cpu.native.running import finish
from aiodev._backends.cpu.native.scheduling import enter_range, lock, make_ready, unlock, wake_helper

#: How long (ns) to wait at least for a worker that has been sent to another core.
ARRIVAL = 60_000
#: What came of an attempt to help: guests may not, or not in the time that is left; it was over before; something was done.
REFUSED, MISSED, HELPED = -1, 0, 1


@inner
def help_with_range(queue, until):
    """Join the queue's open range, if an index seems to end by ``until``; if we are the last to leave, complete it."""
    helpers, outcome = get(queue + Q_HELPERS), MISSED
    lock(helpers + D_LOCK)
    if get(queue + Q_RANGE_LINKED) != 0:  # so it is not completed before the lock is free
        entry = get(get(queue + Q_CURSOR) + R_A)
        if get(entry + E_UNIFORM) == 0 or get(entry + E_COST) > (until - now()) * 1000:
            outcome = REFUSED
        elif enter_range(helpers, queue):
            put(queue + Q_RANGE_GUESTS, get(queue + Q_RANGE_GUESTS) + 1)
            outcome = HELPED
    unlock(helpers + D_LOCK)
    if outcome != HELPED or not join_range(helpers, on_stack(WORKER_BYTES), queue, until, False):
        return outcome
    if finish(get(queue + Q_DEVICE), 0, queue, get(queue + Q_CURSOR), get(queue + Q_COMPLETED) + 1):
        make_ready(queue)
    return outcome


@inner
def stop_helping(queue):
    """Be no guest any more: a worker is woken for a range that was opened while we were one."""
    fetch_add(queue + Q_GUESTS, -1)
    wake_helper(get(queue + Q_HELPERS), queue)


@exported(types.boolean(int64, int64, int64), nogil=True)
def spin(queue, value, duration):
    """Wait for ``value`` for at most ``duration`` ns, without the GIL, or twice that as a guest; whether it was reached."""
    if load(queue + Q_COMPLETED) >= value:
        return True
    if send_away(queue):
        duration = max(duration, ARRIVAL)
    until = now() + duration
    longest = until + duration
    fetch_add(queue + Q_GUESTS, 1)
    helping, reached = True, False
    while not reached:
        for _ in range(16):
            if load(queue + Q_COMPLETED) >= value:
                reached = True
                break
            if helping and load(queue + Q_RANGE_LINKED) != 0:
                outcome = help_with_range(queue, longest)
                if outcome == HELPED:
                    until = longest
                elif outcome == REFUSED:
                    stop_helping(queue)
                    helping = False
            pause()
        if now() >= until:
            break
    if helping:
        stop_helping(queue)
    return reached
