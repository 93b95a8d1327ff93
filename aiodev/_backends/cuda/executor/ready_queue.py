"""Queues whose next operation a thread of ours carries out, first come first served."""

from __future__ import annotations

from aiodev._backends.cuda.structs import Queue, ReadyQueue
from aiodev._backends.executor.locking import lock, unlock
from aiodev._native.compile import inner
from aiodev._native.intrinsics import sem_post, sem_wait


@inner
def enqueue(ready: ReadyQueue, queue: Queue) -> None:
    """Have a thread see to a queue, which is in no ready queue, after the others."""
    lock(ready.lock)
    queue.next_ready.value = None
    place = ready.head
    ahead = place.value
    while ahead is not None:  # it is short
        place = ahead.next_ready
        ahead = place.value
    place.value = queue
    unlock(ready.lock)
    sem_post(ready.semaphore)


@inner
def dequeue(ready: ReadyQueue) -> Queue | None:
    """Wait for a queue to see to; None if the thread was woken for something else."""
    sem_wait(ready.semaphore)
    lock(ready.lock)
    queue = ready.head.value
    if queue is not None:
        ready.head.value = queue.next_ready.value
    unlock(ready.lock)
    return queue
