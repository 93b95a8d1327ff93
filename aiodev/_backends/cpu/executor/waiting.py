"""Completion of a queue's operations, and the waiters that it releases (invariant 4)."""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import note_core
from aiodev._backends.cpu.executor.ready_queue import make_ready, send_for_worker
from aiodev._backends.cpu.structs import Queue, Worker
from aiodev._backends.executor.structs import NEVER, Waker
from aiodev._backends.executor.wait_nodes import arm_node, find_node, notify, ring
from aiodev._native.compile import boolean, exported, inner, int64


@inner
def fire(queue: Queue, completed: int, worker: Worker | None) -> Waker | None:
    """Release every waiter whose target is reached; returns a waker to ring, if any."""
    bell: Waker | None = None
    queue.target.store_fence(NEVER)
    node = queue.waiters.load()
    while node is not None:
        following = node.next
        target = node.target.load_fence()
        if target > completed:
            if target != NEVER:
                queue.target.fetch_min(target)
        elif node.target.compare_exchange(target, NEVER):
            owner = node.owner
            if owner & 1:
                note_core(queue, worker)
                waker = Waker(owner - 1)
                if notify(waker, node):
                    ring(bell)
                    bell = waker
            else:
                make_ready(Queue(owner))
        else:
            continue  # it was lowered meanwhile: look again
        node = following
    return bell


@inner
def complete(queue: Queue, value: int, worker: Worker | None) -> Waker | None:
    """Store the counter and release its waiters; returns a waker to ring, if any."""
    queue.completed.store_fence(value)
    return fire(queue, value, worker) if queue.target.load_fence() <= value else None


@exported(boolean(int64, int64, int64))
def arm(queue: Queue, value: int, waker: Waker) -> bool:
    """Have ``waker`` fire when ``queue`` reaches ``value``; False when it has already."""
    armed = arm_node(queue, find_node(queue, waker.address + 1), value)
    if armed:
        send_for_worker(queue.device)
    return armed
