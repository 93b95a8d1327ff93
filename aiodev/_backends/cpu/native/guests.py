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
    E_UNIFORM,
    Q_COMPLETED,
    Q_CURSOR,
    Q_DEVICE,
    Q_GUESTS,
    Q_HELPERS,
    Q_RANGE_LINKED,
    R_A,
    WORKER_BYTES,
)
from aiodev._backends.cpu.native.compile import exported, inner, int64
from aiodev._backends.cpu.native.cores import send_away
from aiodev._backends.cpu.native.intrinsics import fetch_add, get, load, load_fence, now, on_stack, pause
from aiodev._backends.cpu.native.ranges import join_range
from aiodev._backends.cpu.native.running import finish
from aiodev._backends.cpu.native.scheduling import enter_range, lock, make_ready, pop_sleeper, unlock, wake_worker

#: How long (ns) to wait at least for a worker that has been sent to another core.
ARRIVAL = 60_000


@inner
def watch_and_help(queue, value, duration):
    """Wait for ``value`` for so long, or twice as long if that is used to help; whether it was reached."""
    may_help = True
    until = now() + duration
    longest = until + duration
    while True:
        for _ in range(16):
            if load(queue + Q_COMPLETED) >= value:
                return True
            if may_help and load(queue + Q_RANGE_LINKED) != 0:
                may_help = help_with_range(queue, longest)
                until = longest if may_help else until
            pause()
        if now() >= until:
            return False


@inner
def help_with_range(queue, until):
    """Join the range that the queue has open and, if we are the last to leave, complete it; False if guests may not."""
    helpers, may, joined = get(queue + Q_HELPERS), True, False
    lock(helpers + D_LOCK)
    if get(queue + Q_RANGE_LINKED) != 0:  # so it is not completed before the lock is free
        may = get(get(get(queue + Q_CURSOR) + R_A) + E_UNIFORM) != 0
        joined = may and enter_range(helpers, queue)
    unlock(helpers + D_LOCK)
    if not joined:
        return may
    guest = on_stack(WORKER_BYTES)
    if join_range(helpers, guest, queue, until):
        if finish(get(queue + Q_DEVICE), 0, queue, get(queue + Q_CURSOR), get(queue + Q_COMPLETED) + 1):
            make_ready(queue)
        return True
    return now() < until


@inner
def send_for_another(device):
    """Wake a worker, who takes our place in a range."""
    lock(device + D_LOCK)
    sleeper = pop_sleeper(device)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@exported(types.boolean(int64, int64, int64), nogil=True)
def spin(queue, value, duration):
    """Wait for ``value`` for at most ``duration`` ns, without the GIL, or twice that as a guest; whether it was reached."""
    if load(queue + Q_COMPLETED) >= value:
        return True
    if send_away(queue):
        duration = max(duration, ARRIVAL)
    fetch_add(queue + Q_GUESTS, 1)
    reached = watch_and_help(queue, value, duration)
    fetch_add(queue + Q_GUESTS, -1)
    if load_fence(queue + Q_RANGE_LINKED) != 0:
        send_for_another(get(queue + Q_HELPERS))
    return reached
