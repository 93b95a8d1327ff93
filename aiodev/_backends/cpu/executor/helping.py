"""Work-helping: a thread that waits for a queue runs a part of the queue's work meanwhile, as a *helper*.

Where there are as many workers as cores, a thread that spins keeps a worker off its core. So the waiter takes that worker's
place. It joins the queue's range like any worker; and where the queue waits for a worker, which may have to wake up first, it
runs the queue itself. It takes nothing that seems to end after its time is over. So it helps with uniform kernels, and with
paced ones, whose loops go as far as arguments say, once an index has been timed with the very same arguments: in any other, the
cost of the indices so far says nothing about the next one. A thread that is blocked, which nobody else waits for, takes it for
a guess.

On a crowded machine a waiter that finds nothing to help with does not spin, and a helper wakes nobody to join in.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import send_away, send_member_away, this_core
from aiodev._backends.cpu.executor.core_time import without_core
from aiodev._backends.cpu.executor.crowding import alone_until, is_crowded, note_crowd
from aiodev._backends.cpu.executor.fairness import begin_turn, first, is_only_one, take_out
from aiodev._backends.cpu.executor.parallel_for import expected_cost, join_range, time_left
from aiodev._backends.cpu.executor.ready_queue import enter_range, outranked, send_for_worker, wake_for_range
from aiodev._backends.cpu.executor.worker import finish, hand_back, next_record, step, take_up, turn_is_over
from aiodev._backends.cpu.structs import OP_COMMAND, OP_KERNEL, Device, Helper, KernelRecord, Queue, Record
from aiodev._backends.cpu.tuning import (
    BRIEF,
    DRAINED,
    INDEX,
    LONGER,
    MOVED,
    OVERDUE,
    PATIENCE,
    ROOM,
    SERIAL_BELOW,
    SLICE,
    SPUN,
    TAKEN,
    YIELD_EVERY,
)
from aiodev._backends.executor.locking import lock, unlock
from aiodev._core.backend.trace_log import OPERATION_MASK
from aiodev._native.compile import boolean, exported, inner, int64
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import now, on_stack, pause

#: Outcome of an attempt to help: not allowed, or not within the helper's time; nothing to do; something done; all that is
#: waited for is done.
REFUSED, MISSED, HELPED, REACHED = -1, 0, 1, 2


@inner
def suits(helper: Helper, record: Record, left: int) -> bool:
    """Whether a helper with ``left`` ns may run an operation: a kernel only if it is likely to be over, or shared, by then."""
    operation = record.mark & OPERATION_MASK
    if operation != OP_KERNEL and operation != OP_COMMAND:
        return left > 0
    cost = expected_cost(helper, KernelRecord(record))
    if cost == 0 or cost > helper.longest * 1000:
        return False
    return max(cost, SERIAL_BELOW * 1000) <= left * 1000


@inner
def has_its_turn(device: Device, queue: Queue) -> bool:
    """Whether no waiting queue is further behind in virtual time by more than a slice (lock held)."""
    priority, ahead = queue.priority, queue.time.load() - SLICE  # and not the other side with one more, which may be NEVER
    return first(device, priority) == queue or ahead <= device.least[priority].value


@inner
def is_shared(queue: Queue) -> bool:
    """Whether there is a range to join: an open one; or one that has as many members as workers, if nothing else is to be done.

    Some of its workers may be on the same core, while this thread has one to itself. One more that looks for work then sleeps
    (``ready_queue.take``). Where there is other work it would not, and the members of the range would be without cores.
    """
    if queue.range_linked.load() != 0:
        return True
    device = queue.range_device
    if device.workers == 1 or queue.range_members.load() != device.workers or queue.range_left.load() <= 0:
        return False
    return is_only_one(device)


@inner
def help_with_range(helper: Helper, queue: Queue, value: int) -> int:
    """Join the queue's range, if an index seems to end in time. The last member to leave goes on with the queue."""
    range_device, outcome = queue.range_device, MISSED
    lock(range_device.lock)
    if is_shared(queue):  # so it is not completed before the lock is free
        cost = expected_cost(helper, KernelRecord(queue.cursor))
        if cost == 0 or cost > helper.longest * 1000:
            outcome = REFUSED
        elif (
            cost <= (helper.until - now()) * 1000
            and not outranked(range_device, queue)
            and has_its_turn(range_device, queue)
            and enter_range(range_device, queue)
        ):
            queue.help_due.store(0)
            outcome = HELPED
    unlock(range_device.lock)
    if outcome == HELPED and join_range(range_device, None, helper, queue):
        device = queue.device
        if finish(device, None, queue, queue.cursor, queue.completed.value + 1):
            go_on(device, helper, queue, value)
    return outcome


@inner
def begin(helper: Helper, queue: Queue, value: int) -> int:
    """Take a queue that waits for a worker, and run it. The worker that was woken for it finds what the helper has left."""
    device, priority, outcome = queue.device, queue.priority, MISSED
    left = time_left(helper, now())  # which may call the system: not with the lock
    lock(device.lock)
    if first(device, priority) == queue and queue.range_linked.value == 0:
        outcome = REFUSED
        if not outranked(device, queue) and suits(helper, queue.cursor, left):
            take_out(device, queue)
            outcome = HELPED
    unlock(device.lock)
    if outcome == HELPED:
        queue.help_due.store(alone_until(device.crowd, now()))
        go_on(device, helper, queue, value)
    return outcome


@inner
def go_on(device: Device, helper: Helper, queue: Queue, value: int) -> None:
    """Run a queue that this helper holds up to ``value``, as far as a helper may; workers do the rest."""
    begin_turn(device, None, queue)
    take_up(queue)
    while queue.completed.value < value and not turn_is_over(device, None, queue):
        if not suits(helper, next_record(queue), time_left(helper, now())):
            break
        if not step(device, None, helper, queue):
            return
    hand_back(queue, helper.descriptor == -1 and queue.completed.value < value)


@inner
def wait_helping(queue: Queue, value: int, patience: int, longest: int, descriptor: int) -> int:
    """Spin for ``value`` and help meanwhile; returns the last outcome.

    The wait ends when there was nothing to help with for ``patience`` ns, for ``LONGER`` once the thread has helped, or for
    ``ROOM`` where workers on other cores have begun a range, one of whom makes room for a helper; after ``longest`` ns in any
    case; and once ``descriptor`` is readable. Where the end of what runs is expected within twice the patience, it ends
    ``OVERDUE`` ns behind that: without a descriptor, later than after ``longest``, too.
    """
    helper = Helper(on_stack(sizeof(Helper)))
    began = now()
    helper.until = began + longest
    helper.descriptor = descriptor
    helper.looked = began
    helper.longest = longest if descriptor < 0 else min(longest, INDEX)
    helper.off = 0
    helper.next_offer = began + YIELD_EVERY
    helper.left = 0
    head, crowd = queue.device.first[queue.priority], queue.range_device.crowd
    brief = patience < BRIEF
    crowded = brief and is_crowded(crowd, began)
    queue.helpers.fetch_add(1)
    helping, ending, until, latest, seen, drained = True, MISSED, began + patience, began + 2 * patience, began, began
    if queue.range_members.load() > 0 and this_core() != queue.core and is_only_one(queue.range_device):
        until = max(until, began + ROOM)
    progress = queue.completed.load()
    while ending != REACHED:
        for _ in range(16):
            if queue.completed.load() >= value:
                ending = REACHED
                break
            outcome = MISSED
            shared = helping and is_shared(queue)
            if shared or (helping and head.load() == queue):
                if helper.off == 0:
                    helper.off = without_core()
                    helper.watched = now()
                outcome = help_with_range(helper, queue, value) if shared else begin(helper, queue, value)
                seen = now()
            if outcome == HELPED:
                helpers = queue.helpers.load()
                if queue.expected_helpers.load() != helpers:
                    queue.expected_helpers.store(helpers)
                ending, until = HELPED, seen
                crowded = brief and is_crowded(crowd, seen)
                if not crowded:
                    until += max(patience, LONGER)
            elif outcome == REFUSED:
                helping = False
                queue.helpers.fetch_add(-1)
                wake_for_range(queue.range_device, queue)
                if descriptor != -1:  # else this thread goes on to help in another way, or to park, and sends for one then
                    send_for_worker(queue.device)
            pause()
        time = now()
        if time - seen > TAKEN:
            note_crowd(crowd, time)
            crowded = brief
        seen = time
        if queue.range_members.load() == 0 or queue.range_left.load() > 0:
            drained = time
        elif time - drained > DRAINED and not is_crowded(crowd, time):
            if is_only_one(queue.range_device):
                send_member_away(queue)
            drained = time
        if queue.completed.load() != progress:  # what is before it is short, and so may it be
            progress = queue.completed.load()
            until = max(until, min(latest, time + patience))
        ends = queue.ends.load()
        overdue = ends + OVERDUE if ends <= latest else 0
        if crowded or time >= max(until, overdue) or time >= (max(helper.until, overdue) if descriptor < 0 else helper.until):
            break
    if helping:
        queue.helpers.fetch_add(-1)
        if queue.range_linked.load_fence() != 0:
            queue.help_due.store(alone_until(crowd, now()))
    return REACHED if queue.completed.load() >= value else ending


@exported(boolean(int64, int64, int64), nogil=True)
def spin(queue: Queue, value: int, duration: int) -> bool:
    """Spin for ``value`` without the GIL, for ``duration`` ns; whether reached.

    Where the thread helps that may take twice as long, or ``SPUN`` ns; where what runs seems to end by then, ``OVERDUE`` more.
    """
    if queue.completed.load() >= value:
        return True
    if duration == 0:
        return False
    if send_away(queue):
        duration = max(duration, MOVED)
    return wait_helping(queue, value, duration, max(SPUN, 2 * duration), -1) == REACHED


@exported(boolean(int64, int64, int64, int64), nogil=True)
def help(queue: Queue, value: int, duration: int, descriptor: int) -> bool:
    """Help with what ``value`` waits for, as :meth:`Backend.help` says; whether there was anything to help with."""
    return wait_helping(queue, value, PATIENCE, duration, descriptor) != MISSED
