"""Core time: for how long a thread of ours has had its core, and when it lets others have it.

A worker never waits, and a system's scheduler takes its core from it only at a tick of its clock, some ms later. So beside
workers an event loop that wakes up would be late by as much. Workers offer their core, between two operations or two chunks of
a range. Where other processes compute that costs a slice of theirs each time: there only work of low priority goes on offering,
and where others have taken the core for a slice it keeps that for as long. So it has about half of what other work has there.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.coalescing import ring_held
from aiodev._backends.cpu.executor.crowding import is_crowded, note_crowd
from aiodev._backends.cpu.structs import LOW, Helper, Queue, Worker
from aiodev._backends.cpu.tuning import GIVEN, SUSPICIOUS, TAKEN, YIELD_EVERY
from aiodev._native.compile import inner
from aiodev._native.intrinsics import now, sched_yield, thread_time


@inner
def without_core() -> int:
    """For how long (ns) this thread has had no core, counted from some time."""
    return now() - thread_time()


@inner
def watch_core(worker: Worker) -> None:
    """Begin to count how long this worker's thread has no core; what it slept does not count."""
    worker.off = without_core()
    worker.watched = now()


@inner
def watch_interval(queue: Queue, worker: Worker | None, helper: Helper | None, time: int) -> None:
    """Begin to count anew at ``time``, where a thread begins what it measures: what it lost before is no loss of that.

    A look that is not much older is good enough, and saves a system call.
    """
    if worker is not None and time - worker.watched > SUSPICIOUS:
        off = time - thread_time()
        if off - worker.off > TAKEN and queue.priority < LOW:
            note_crowd(queue.range_device.crowd, time)
        worker.off = off
        worker.watched = time
    elif helper is not None and time - helper.watched > SUSPICIOUS:
        lost_time(helper, time)


@inner
def note_offer(worker: Worker | None, helper: Helper | None, duration: int) -> None:
    """Note that this thread has let others have its core, in a call that took ``duration`` ns: that is in nobody's time."""
    if worker is not None:
        worker.off += duration
    elif helper is not None:
        helper.off += duration


@inner
def lost_time(helper: Helper, time: int) -> int:
    """For how long (ns) a helper has had no core since that was last looked at, up to ``time``, which is now.

    If nothing calls it away but the end of its time, it has that much more: what it has begun it goes on with. A worker that
    took it over would have to wait for a core as well, and then this thread once more, to be resumed.
    """
    off = time - thread_time()
    lost = max(0, off - helper.off)
    helper.off = off
    helper.watched = time
    if helper.descriptor == -1:
        helper.until += lost
    return lost


@inner
def on_core(queue: Queue, worker: Worker | None, helper: Helper | None, time: int, duration: int) -> int:
    """For how much of the ``duration`` ns up to ``time`` this thread had a core: what others took is not the queue's."""
    if duration < SUSPICIOUS:
        return duration
    lost = 0
    if worker is not None:
        off = time - thread_time()
        lost = off - worker.off
        worker.off = off
        worker.watched = time
    elif helper is not None:
        lost = lost_time(helper, time)
    if min(lost, duration) > TAKEN and queue.priority < LOW:
        note_crowd(queue.range_device.crowd, time)
    return max(0, duration - max(0, lost))


@inner
def on_core_in_turn(queue: Queue, worker: Worker | None, helper: Helper | None, begin: int, end: int) -> int:
    """For how much of the time (ns) from ``begin`` to ``end`` this thread, which serves the queue, had a core.

    What others took is subtracted once: the turn, which is charged by the clock later, begins later by as much.
    """
    spent = on_core(queue, worker, helper, end, end - begin)
    if queue.charged_at != 0:
        queue.charged_at += end - begin - spent
    return spent


@inner
def offer_core(worker: Worker | None, helper: Helper | None, queue: Queue, time: int) -> int:
    """Let others have this thread's core, if it has not done so lately; when it has it again, from ``time``, which is now.

    A helper whose loop may call it away is an event loop, and keeps its core.
    """
    crowd, low = queue.range_device.crowd, queue.priority == LOW
    if worker is not None:
        due = worker.next_offer
    elif helper is not None and helper.descriptor < 0:
        due = helper.next_offer
    else:
        return time
    if time < due or (not low and is_crowded(crowd, time)):
        return time
    ring_held(worker)
    sched_yield()
    after = now()
    taken = after - time
    next_offer = after + (taken if taken > GIVEN else YIELD_EVERY)
    if worker is not None:
        worker.next_offer = next_offer
    elif helper is not None:
        helper.next_offer = next_offer
    note_offer(worker, helper, taken)
    if taken > TAKEN and not low:
        note_crowd(crowd, after)
    return after


@inner
def offer_core_in_turn(worker: Worker | None, helper: Helper | None, queue: Queue, time: int) -> None:
    """Let others have the core of this thread, which serves the queue: what they take is subtracted from its turn."""
    after = offer_core(worker, helper, queue, time)
    if queue.charged_at != 0:
        queue.charged_at += after - time
