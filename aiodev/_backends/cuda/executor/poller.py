"""The thread that watches a device's queues, and how the host waits for them.

It polls page-locked counters: without a pause for a short while after something has happened, then with pauses that are a
fraction of the time that it has waited already, so that it is neither late nor busy. Where nothing is awaited it looks
every 20 ms whether the device still lives, and where nothing is in flight it sleeps. It hands on operations that are held
for a reason that passes by itself.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.waiting import arm_node, find_node
from aiodev._backends.cpu.layout import NEVER, Q_COMPLETED, Q_SUBMITTED, Q_TARGET
from aiodev._backends.cuda.executor.driver import allow_captures, call, enter, leave
from aiodev._backends.cuda.executor.event_waiters import attend, dismiss
from aiodev._backends.cuda.executor.gil import lock_or_let_go, take_again
from aiodev._backends.cuda.executor.progress import fire, is_sticky, progress, tell_followers, wake
from aiodev._backends.cuda.executor.submission import drain
from aiodev._backends.cuda.layout import (
    AWAKE,
    BY_CALLBACK,
    BY_EVENT,
    BY_POLL,
    D_ANNOUNCE,
    D_CONTEXT,
    D_FOLLOW_EVENT,
    D_LEFT,
    D_LOST,
    D_QUEUES,
    D_SCRATCH,
    D_SEMAPHORE,
    D_SLEEP,
    D_SPIN,
    D_STAGE_SEMAPHORE,
    D_STOP,
    D_WAIT_BY,
    F_CTX_SET,
    F_EVENT_QUERY,
    F_HOST,
    F_QUERY,
    HELD_DEVICE,
    NOT_READY,
    Q_DEVICE,
    Q_FOREIGN,
    Q_HEAD,
    Q_HELD,
    Q_ISSUED,
    Q_LAST_SHADOW,
    Q_LOCK,
    Q_NEXT,
    Q_STREAM,
    SLEEP_DEEP,
    SLEEP_SHORT,
)
from aiodev._backends.executor.compile import External, boolean, callback, exported, inner, int32, int64, void
from aiodev._backends.executor.intrinsics import (
    compare_exchange,
    exchange,
    fetch_add,
    get,
    load,
    load_fence,
    now,
    pause,
    put,
    sem_post,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import unlock

sem_clockwait = External("sem_clockwait", int32(int64, int32, int64))
prctl = External("prctl", int32(int32, int64, int64, int64, int64))
_MONOTONIC = 1
_TIMER_SLACK = 29  #: PR_SET_TIMERSLACK
WATCHDOG = 20_000_000  #: ns between two looks at whether the device lives
LONGEST_PAUSE = 200_000  #: ns, while something is awaited

#: What ``look`` found: nothing in flight, work in flight, somebody waits for it, something has happened.
IDLE, FLYING, AWAITED, HAPPENED = 0, 1, 2, 3


@inner
def announce_later(queue, device):
    """Have the driver wake the watching thread when what was handed on is done. Needs the lock and the context."""
    call(get(device + F_HOST), get(queue + Q_STREAM), get(device + D_ANNOUNCE), device)


@inner
def look_at(queue, device):
    """Do what there is to do for a queue; returns what was found."""
    submitted = load(queue + Q_SUBMITTED)
    completed = load(queue + Q_COMPLETED)
    target = load_fence(queue + Q_TARGET)
    if completed == submitted and target == NEVER:
        return IDLE
    found = FLYING if load(queue + Q_ISSUED) > completed else IDLE
    head = load(queue + Q_HEAD)
    if head != 0 or load(queue + Q_LAST_SHADOW) > completed or load(device + D_LOST) != 0:
        if exchange(queue + Q_LOCK, 1) != 0:
            return HAPPENED  # whoever has it is at work
        before = load(queue + Q_COMPLETED)
        progress(queue)
        handed = drain(queue, device, False)
        completed = load(queue + Q_COMPLETED)
        if handed > 0 and target != NEVER and get(device + D_WAIT_BY) == BY_CALLBACK:
            announce_later(queue, device)
        if handed > 0:
            tell_followers(queue)
        if handed > 0 or completed > before:
            found = HAPPENED
        elif get(queue + Q_HEAD) != 0 and get(queue + Q_HELD) == HELD_DEVICE or get(queue + Q_LAST_SHADOW) > completed:
            found = AWAITED
        unlock(queue + Q_LOCK)
    if target <= completed:
        fire(queue, completed)
        return HAPPENED
    if target != NEVER and found == FLYING:
        how = get(device + D_WAIT_BY)
        if how == BY_POLL or how == BY_EVENT and not attend(queue, device):
            return AWAITED
    return found


@inner
def look(device):
    """Look at every queue; returns the most that was found."""
    most = IDLE
    queue = load(device + D_QUEUES)
    while queue != 0:
        most = max(most, look_at(queue, device))
        queue = get(queue + Q_NEXT)
    return most


@inner
def check_device(device):
    """Ask the driver after a queue with work in flight; a status that means the end of the context is the device's loss."""
    queue = load(device + D_QUEUES)
    while queue != 0:
        if load(queue + Q_ISSUED) > load(queue + Q_COMPLETED):
            if get(queue + Q_FOREIGN) != 0:  # whose stream may be gone, or captured: any call tells of the context
                status = call(get(device + F_EVENT_QUERY), get(device + D_FOLLOW_EVENT))
            else:
                status = call(get(device + F_QUERY), get(queue + Q_STREAM))
            if status != 0 and status != NOT_READY and is_sticky(status):
                compare_exchange(device + D_LOST, 0, status)
            return
        queue = get(queue + Q_NEXT)


@inner
def rest(device, duration, depth, expected):
    """Sleep until woken, at most ``duration`` ns; not if more than ``expected`` is found now. Returns what was found."""
    store_fence(device + D_SLEEP, depth)
    found = look(device)
    if found > expected and exchange(device + D_SLEEP, AWAKE) != 0:
        return found
    until = now() + duration
    put(device + D_SCRATCH, until // 1_000_000_000)
    put(device + D_SCRATCH + 8, until % 1_000_000_000)
    woken = sem_clockwait(device + D_SEMAPHORE, _MONOTONIC, device + D_SCRATCH) == 0
    exchange(device + D_SLEEP, AWAKE)
    return HAPPENED if woken else found


@exported(void(int64), nogil=True)
def watch(device):
    """The watching thread's life, until the device's stop. Runs without the GIL throughout."""
    call(get(device + F_CTX_SET), get(device + D_CONTEXT))
    allow_captures(device)
    prctl(_TIMER_SLACK, 1, 0, 0, 0)  # else the system adds 50 µs to each pause
    began = checked = now()
    while load(device + D_STOP) == 0:
        found = look(device)
        time = now()
        if found == HAPPENED:
            began = time
        elif found == IDLE:
            rest(device, WATCHDOG * 100_000, SLEEP_DEEP, IDLE)
            began = checked = now()
            continue
        if time - checked >= WATCHDOG:
            check_device(device)
            checked = time
        if found == FLYING:
            if rest(device, WATCHDOG, SLEEP_SHORT, FLYING) == HAPPENED:
                began = now()
        elif found == AWAITED:
            waited = time - began
            if waited >= get(device + D_SPIN):
                rest(device, min(max(waited // 32, 5_000), LONGEST_PAUSE), SLEEP_SHORT, AWAITED)
            else:
                for _ in range(16):
                    pause()
    fetch_add(device + D_LEFT, 1)


@inner
def help_on(queue, device):
    """Do what the watching thread would do for a queue, unless somebody does."""
    due = load(queue + Q_HEAD) != 0 or load(queue + Q_LAST_SHADOW) > load(queue + Q_COMPLETED)
    if due and exchange(queue + Q_LOCK, 1) == 0:
        before = enter(device)
        progress(queue)
        drain(queue, device, False)
        leave(device, before)
        unlock(queue + Q_LOCK)
        tell_followers(queue)


@exported(boolean(int64, int64, int64), nogil=True)
def spin(queue, value, duration):
    """Wait for ``value`` for at most ``duration`` ns, without the GIL; whether it was reached."""
    device = get(queue + Q_DEVICE)
    until = now() + duration
    while True:
        for _ in range(16):
            if load(queue + Q_COMPLETED) >= value:
                return True
            pause()
        help_on(queue, device)
        if now() >= until:
            return load(queue + Q_COMPLETED) >= value


@exported(boolean(int64, int64, int64))
def arm(queue, value, waker):
    """Have ``waker`` fire when ``queue`` reaches ``value``; False when it has already."""
    if not arm_node(queue, find_node(queue, waker + 1), value):
        return False
    device = get(queue + Q_DEVICE)
    if get(device + D_WAIT_BY) == BY_CALLBACK:
        saved = lock_or_let_go(queue + Q_LOCK, True)
        before = enter(device)
        announce_later(queue, device)
        leave(device, before)
        unlock(queue + Q_LOCK)
        take_again(saved)
    else:
        wake(device)
    return True


@exported(void(int64))
def stop(device):
    """Ask the device's threads to return, and wake them."""
    store(device + D_STOP, 1)
    exchange(device + D_SLEEP, AWAKE)
    sem_post(device + D_SEMAPHORE)
    sem_post(device + D_STAGE_SEMAPHORE)
    dismiss(device)


@callback
def announce(device):
    """What the driver calls when work that is awaited is done."""
    wake(device)


@callback
def stamp_now(cell):
    """What the driver calls to take the time."""
    store(cell, now())
