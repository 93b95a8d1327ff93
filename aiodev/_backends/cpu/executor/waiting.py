"""Waiters of a timeline and their wake-ups (invariant 4)."""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import note_core
from aiodev._backends.cpu.executor.ready_queue import make_ready
from aiodev._backends.cpu.layout import (
    K_DESCRIPTOR,
    K_FIRED,
    K_ONE,
    K_PENDING,
    N_FIRED,
    N_FIRED_NEXT,
    N_NEXT,
    N_OWNER,
    N_QUEUE,
    N_TARGET,
    NEVER,
    NODE_BYTES,
    Q_COMPLETED,
    Q_TARGET,
    Q_WAITERS,
    WORD,
)
from aiodev._backends.executor.compile import boolean, exported, inner, int64, void
from aiodev._backends.executor.intrinsics import (
    c_write,
    compare_exchange,
    exchange,
    fetch_min,
    get,
    load,
    load_fence,
    malloc,
    put,
    store_fence,
)


@inner
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


@inner
def arm_node(queue, node, value):
    """Have ``node`` fire at ``value``; False, and it will not fire, when that is reached already (invariant 4)."""
    fetch_min(node + N_TARGET, value)
    fetch_min(queue + Q_TARGET, value)
    if load_fence(queue + Q_COMPLETED) < value:
        return True
    return not compare_exchange(node + N_TARGET, value, NEVER)


@inner
def fire(queue, completed, worker):
    """Release every waiter whose target is reached; returns a waker that is to be rung, or 0."""
    bell = 0
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
                note_core(queue, worker)
                if notify(owner - 1, node):
                    ring(bell)
                    bell = owner - 1
            else:
                make_ready(owner)
        else:
            continue  # it was lowered meanwhile: look again
        node = following
    return bell


@inner
def notify(waker, node):
    """Put ``node`` on its waker's fired list, unless that is done already; whether the waker is to be rung."""
    if exchange(node + N_FIRED, 1) == 0:
        while True:
            first = load(waker + K_FIRED)
            put(node + N_FIRED_NEXT, first)
            if compare_exchange(waker + K_FIRED, first, node):
                break
    return exchange(waker + K_PENDING, 1) == 0


@inner
def ring(waker):
    """Write the descriptor of a waker, if it is not 0. That wakes a thread, which may take this thread's core at once."""
    if waker != 0:
        c_write(get(waker + K_DESCRIPTOR), waker + K_ONE, WORD)


@inner
def complete(queue, value, worker):
    """Store the counter and release who waits for it; returns a waker that is to be rung, or 0."""
    store_fence(queue + Q_COMPLETED, value)
    return fire(queue, value, worker) if load_fence(queue + Q_TARGET) <= value else 0


@exported(boolean(int64, int64, int64))
def arm(queue, value, waker):
    """Have ``waker`` fire when ``queue`` reaches ``value``; False when it has already."""
    return arm_node(queue, find_node(queue, waker + 1), value)


@exported(void(int64))
def rearm_waker(waker):
    """Allow the waker to write its descriptor again."""
    exchange(waker + K_PENDING, 0)


@exported(int64(int64))
def next_fired(waker):
    """A queue that reached its armed value, or 0. One thread at a time."""
    while True:
        node = load(waker + K_FIRED)
        if node == 0:
            return 0
        if compare_exchange(waker + K_FIRED, node, get(node + N_FIRED_NEXT)):
            exchange(node + N_FIRED, 0)
            return get(node + N_QUEUE)
