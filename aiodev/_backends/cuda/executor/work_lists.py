"""Queues whose next operation a thread of ours carries out, first come first served."""

from __future__ import annotations

from aiodev._backends.cuda.structs import Queue, WorkList
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import sem_post, sem_wait
from aiodev._backends.executor.locking import lock, unlock


@inner
def enlist(work: WorkList, queue: Queue) -> None:
    """Have a thread see to a queue, which is on no list, after the others."""
    lock(work.lock)
    queue.next_listed.value = None
    place = work.head
    ahead = place.value
    while ahead is not None:  # it is short
        place = ahead.next_listed
        ahead = place.value
    place.value = queue
    unlock(work.lock)
    sem_post(work.semaphore)


@inner
def next_listed(work: WorkList) -> Queue | None:
    """Wait for a queue to see to; None if the thread was woken for something else."""
    sem_wait(work.semaphore)
    lock(work.lock)
    queue = work.head.value
    if queue is not None:
        work.head.value = queue.next_listed.value
    unlock(work.lock)
    return queue
