"""The poller: the thread that watches a device's queues; and how the host waits for them.

It polls page-locked counters: without a pause for a short while after something has happened, then with pauses that are a
fraction of the time that it has waited already, so that it is neither late nor busy. Where nothing is awaited it looks
every 20 ms whether the device still lives, and where nothing is in flight it sleeps. It hands on operations that are held
for a reason that passes by itself.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call, enter, leave
from aiodev._backends.cuda.executor.event_waiters import stop_event_waiters, wait_by_event
from aiodev._backends.cuda.executor.gil import begin_waiting, end_waiting, let_go, take_again
from aiodev._backends.cuda.executor.progress import announce_later, fire, is_sticky, progress, tell_followers, wake
from aiodev._backends.cuda.executor.submission import drain
from aiodev._backends.cuda.structs import (
    AWAKE,
    BY_CALLBACK,
    BY_EVENT,
    BY_POLL,
    HELD_DEVICE,
    NOT_READY,
    SLEEP_DEEP,
    SLEEP_SHORT,
    Device,
    Queue,
)
from aiodev._backends.cuda.tuning import CALLERS, LONGEST_PAUSE, PAUSE_PART, SHORTEST_PAUSE, WATCHDOG
from aiodev._backends.executor.locking import lock, try_lock, unlock
from aiodev._backends.executor.structs import NEVER, Waker
from aiodev._backends.executor.wait_nodes import arm_node, find_node
from aiodev._native.compile import External, boolean, callback, exported, inner, int32, int64, void
from aiodev._native.fields import Atomic
from aiodev._native.intrinsics import now, pause, sem_post

sem_clockwait = External("sem_clockwait", int32(int64, int32, int64))
prctl = External("prctl", int32(int32, int64, int64, int64, int64))
_MONOTONIC = 1
_TIMER_SLACK = 29  #: PR_SET_TIMERSLACK

#: Outcome of ``look``: nothing in flight; work in flight; a waiter of it; something has happened.
IDLE, FLYING, AWAITED, HAPPENED = 0, 1, 2, 3


@inner
def look_at(queue: Queue, device: Device) -> int:
    """Do what there is to do for a queue; returns what was found."""
    submitted = queue.submitted.load()
    completed = queue.completed.load()
    target = queue.target.load_fence()
    if completed == submitted and target == NEVER:
        return IDLE
    activity = FLYING if queue.issued.load() > completed else IDLE
    head = queue.head.load()
    if head is not None or queue.last_shadow.load() > completed or device.lost.load() != 0:
        if try_lock(queue.lock):
            before = queue.completed.load()
            progress(queue)
            handed = drain(queue, device, False)
            completed = queue.completed.load()
            if handed > 0:
                tell_followers(queue)
            if handed > 0 or completed > before:
                activity = HAPPENED
            elif queue.head.value is not None and queue.held == HELD_DEVICE or queue.last_shadow.value > completed:
                activity = AWAITED
            unlock(queue.lock)
        else:
            activity = AWAITED  # whoever has it is at work, or blocked in the driver
    if target <= completed:
        fire(queue, completed)
        return HAPPENED
    if target != NEVER and activity == FLYING:
        how = device.wait_by
        if how == BY_POLL or how == BY_EVENT and not wait_by_event(queue, device):
            return AWAITED
    return activity


@inner
def look(device: Device) -> int:
    """Look at every queue; returns the most that was found.

    Who waits for a position that was not submitted awaits a signal of whatever is in flight.
    """
    most, signals = IDLE, False
    queue = device.queues.load()
    while queue is not None:
        most = max(most, look_at(queue, device))
        target = queue.target.load()
        signals = signals or (target != NEVER and target > queue.submitted.load())
        queue = queue.next
    return AWAITED if signals and most == FLYING else most


@inner
def check_device(device: Device) -> None:
    """Ask the driver after a queue with work in flight; a status that means the end of the context is the device's loss."""
    queue = device.queues.load()
    while queue is not None:
        if queue.issued.load() > queue.completed.load():
            if queue.foreign != 0:  # whose stream may be gone, or captured: any call tells of the context
                status = call(device.driver.cuEventQuery, device.follow_event)
            else:
                status = call(device.driver.cuStreamQuery, queue.stream)
            if status != 0 and status != NOT_READY and is_sticky(status):
                device.lost.compare_exchange(0, status)
            return
        queue = queue.next


@inner
def rest(device: Device, duration: int, depth: int, expected: int) -> int:
    """Sleep until woken, at most ``duration`` ns; not if more than ``expected`` is found now. Returns what was found."""
    device.sleep.store_fence(depth)
    activity = look(device)
    if activity > expected and device.sleep.exchange(AWAKE) != 0:
        return activity
    until = now() + duration
    device.until[0].value = until // 1_000_000_000
    device.until[1].value = until % 1_000_000_000
    woken = sem_clockwait(device.semaphore, _MONOTONIC, device.until) == 0
    device.sleep.exchange(AWAKE)
    return HAPPENED if woken else activity


@exported(void(int64), nogil=True)
def run_poller(device: Device) -> None:
    """The poller's life, until the device's stop. Runs without the GIL throughout."""
    call(device.driver.cuCtxSetCurrent, device.context)
    allow_captures(device)
    prctl(_TIMER_SLACK, 1, 0, 0, 0)  # else the system adds 50 µs to each pause
    began = checked = now()
    while device.stop.load() == 0:
        activity = look(device)
        time = now()
        if activity == HAPPENED:
            began = time
        elif activity == IDLE:
            rest(device, WATCHDOG * 100_000, SLEEP_DEEP, IDLE)
            began = checked = now()
            continue
        if time - checked >= WATCHDOG:
            check_device(device)
            checked = time
        if activity == FLYING:
            if rest(device, WATCHDOG, SLEEP_SHORT, FLYING) == HAPPENED:
                began = now()
        elif activity == AWAITED:
            waited = time - began
            if waited >= device.spin:
                rest(device, min(max(waited // PAUSE_PART, SHORTEST_PAUSE), LONGEST_PAUSE), SLEEP_SHORT, AWAITED)
            else:
                for _ in range(16):
                    pause()
    device.left.fetch_add(1)


@inner
def help_on(queue: Queue, device: Device) -> None:
    """Do what the poller would do for a queue, unless somebody does, or it may block: this thread may be a loop's."""
    due = queue.head.load() is not None or queue.last_shadow.load() > queue.completed.load()
    if due and try_lock(queue.lock):
        before = enter(device)
        progress(queue)
        drain(queue, device, True)
        leave(device, before)
        unlock(queue.lock)
        tell_followers(queue)


@exported(boolean(int64, int64, int64), nogil=True)
def spin(queue: Queue, value: int, duration: int) -> bool:
    """Wait for ``value`` for at most ``duration`` ns, without the GIL; whether it was reached."""
    device = queue.device
    until = now() + duration
    while True:
        for _ in range(16):
            if queue.completed.load() >= value:
                return True
            pause()
        help_on(queue, device)
        if now() >= until:
            return queue.completed.load() >= value


@exported(boolean(int64, int64, int64))
def arm(queue: Queue, value: int, waker: Waker) -> bool:
    """Have ``waker`` fire when ``queue`` reaches ``value``; False when it has already."""
    if not arm_node(queue, find_node(queue, waker.address + 1), value):
        return False
    device = queue.device
    if device.wait_by == BY_CALLBACK and value <= queue.submitted.load():
        saved = let_go()
        lock(queue.lock)
        begin_waiting(device)
        before = enter(device)
        announce_later(queue, device)
        leave(device, before)
        end_waiting(device)
        unlock(queue.lock)
        take_again(saved)
    else:
        wake(device)
    return True


@exported(void(int64))
def stop(device: Device) -> None:
    """Ask the device's threads to return, and wake them."""
    device.stop.store(1)
    device.sleep.exchange(AWAKE)
    sem_post(device.semaphore)
    sem_post(device.staging.semaphore)
    for _ in range(CALLERS):
        sem_post(device.calling.semaphore)
    stop_event_waiters(device)


@callback
def announce(device: Device) -> None:
    """The host function that the driver calls when awaited work is done: wake the poller."""
    wake(device)


@callback
def stamp_now(cell: Atomic[int]) -> None:
    """The host function that the driver calls to store the time."""
    cell.store(now())
