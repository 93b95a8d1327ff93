"""What may be done to a queue's state, and to whom it is told. All but ``fire`` and ``wake`` need the queue's lock."""

from __future__ import annotations

from aiodev._backends.cpu.executor.faults import open_fault
from aiodev._backends.cpu.executor.waiting import notify, ring
from aiodev._backends.cpu.layout import (
    N_NEXT,
    N_OWNER,
    N_TARGET,
    NEVER,
    Q_COMPLETED,
    Q_FAILED,
    Q_FORGIVEN,
    Q_TARGET,
    Q_WAITERS,
)
from aiodev._backends.cuda.executor.driver import call, word_here
from aiodev._backends.cuda.layout import (
    D_LOST,
    D_NEXT,
    D_SEMAPHORE,
    D_SLEEP,
    F_CAPTURING,
    F_WRITE,
    HELD_DEVICE,
    KIND_DRIVER,
    KIND_KERNEL,
    KIND_LOST,
    Q_DEVICE,
    Q_DIRTY,
    Q_FAILED_VALUE,
    Q_FOLLOWED,
    Q_HELD,
    Q_LAST_FALLIBLE,
    Q_LAST_SHADOW,
    Q_LAUNCHES,
    Q_SHADOW,
    Q_SHADOW_FROM,
    Q_STATUS,
    Q_STREAM,
    WINDOW,
)
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import (
    compare_exchange,
    exchange,
    fetch_min,
    get,
    load,
    load_fence,
    put,
    sem_post,
    store,
    store_fence,
)


@inner
def wake(device):
    """Wake the device's watching thread if it sleeps."""
    if load_fence(device + D_SLEEP) != 0 and exchange(device + D_SLEEP, 0) != 0:
        sem_post(device + D_SEMAPHORE)


@inner
def tell_followers(queue):
    """Wake the watching threads if a queue is held until this one gets on."""
    if load_fence(queue + Q_FOLLOWED) != 0 and exchange(queue + Q_FOLLOWED, 0) != 0:
        first = get(queue + Q_DEVICE)
        device = first
        while True:
            wake(device)
            device = get(device + D_NEXT)
            if device == first:
                break


@inner
def fire(queue, completed):
    """Tell every waiter whose target is reached."""
    store_fence(queue + Q_TARGET, NEVER)
    node = load(queue + Q_WAITERS)
    while node != 0:
        following = get(node + N_NEXT)
        target = load_fence(node + N_TARGET)
        if target > completed:
            if target != NEVER:
                fetch_min(queue + Q_TARGET, target)
        elif compare_exchange(node + N_TARGET, target, NEVER):
            waker = get(node + N_OWNER) - 1
            if notify(waker, node):
                ring(waker)
        else:
            continue  # it was lowered meanwhile: look again
        node = following
    tell_followers(queue)


@inner
def complete(queue, value):
    """Say that operations up to ``value`` are done."""
    store_fence(queue + Q_COMPLETED, value)
    if load_fence(queue + Q_TARGET) <= value:
        fire(queue, value)


@inner
def is_sticky(status):
    """Whether a status of the driver means that the context is lost: by cuda.h the process must start again then.

    Beside kernels' errors: the driver is unloaded, the device gone or in error (46, 214, 220, 226, 911), MPS ended (806, 810).
    """
    if 700 <= status < 800:
        return not (status == 701 or 703 <= status <= 708 or 711 <= status <= 713 or status == 720)
    if status == 4 or status == 46 or status == 214 or status == 220 or status == 226:
        return True
    return status == 806 or status == 810 or status == 911 or status == 999


@inner
def is_refused(status):
    """Whether the driver refuses a stream: its handle is none, or the stream is being captured into a graph."""
    return status == 400 or 900 <= status <= 908


@inner
def is_captured(device, stream):
    """Whether another library captures a stream: what goes to it becomes a part of a graph, and completes nothing."""
    place = word_here()
    put(place, 0)
    status = call(get(device + F_CAPTURING), stream, place)
    return is_refused(status) or status == 0 and get(place) & 0xFFFFFFFF != 0


@inner
def driver_failed(queue, device, value, status):
    """Have operation ``value`` fail because the driver refused it, or the device lost, when that is what it means."""
    if is_sticky(status):
        compare_exchange(device + D_LOST, 0, status)
    elif get(queue + Q_FAILED) == 0:
        open_fault(queue, value, KIND_DRIVER, status, 0, 0, 0)


@inner
def progress(queue):
    """Take over what the device has completed under the host's eyes; returns the number of completed operations."""
    completed = load(queue + Q_COMPLETED)
    if completed >= get(queue + Q_LAST_SHADOW):
        return completed
    reached = load(queue + Q_SHADOW)
    if reached <= completed:
        return completed
    status = load(queue + Q_STATUS)
    if status != 0 and get(queue + Q_DIRTY) == 0 and get(queue + Q_FAILED_VALUE) <= reached:
        put(queue + Q_DIRTY, 1)
        value = get(queue + Q_FAILED_VALUE)
        launch = queue + Q_LAUNCHES + 16 * (value % WINDOW)
        if get(queue + Q_FAILED) == 0:
            open_fault(queue, value, KIND_KERNEL, status, get(launch + 8), get(launch), 0)
    complete(queue, reached)
    return reached


@inner
def lose(queue, device, submitted):
    """Complete every operation of a queue whose device is lost, as failed."""
    completed = load(queue + Q_COMPLETED)
    if completed >= submitted:
        return
    first = completed + 1
    if get(queue + Q_FAILED) != 0:
        first = max(first, load(queue + Q_FORGIVEN) + 1) if load(queue + Q_FORGIVEN) != NEVER else NEVER
    if first <= submitted:
        open_fault(queue, first, KIND_LOST, get(device + D_LOST), 0, 0, 0)
    complete(queue, submitted)


@inner
def write_completion(queue, device, value, shadowed):
    """Have the stream say that operation ``value`` is done, once it is: to the timeline, or for the host to look at first.

    False if it refuses. Then the operation has failed, alone, and is held until the host can complete it in its turn.
    """
    stream = get(queue + Q_STREAM)
    completed = load(queue + Q_COMPLETED)
    last = get(queue + Q_LAST_SHADOW)
    place = queue + Q_COMPLETED
    if shadowed or completed < last:
        if completed >= last:
            store(queue + Q_SHADOW_FROM, value)  # in this order, for those who wait for us
        store(queue + Q_LAST_SHADOW, value)
        place = queue + Q_SHADOW
    status = call(get(device + F_WRITE), stream, place, value, 0)
    if is_refused(status):
        store(queue + Q_LAST_SHADOW, last)
        if get(queue + Q_LAST_FALLIBLE) == value:
            store(queue + Q_LAST_FALLIBLE, value - 1)
        if get(queue + Q_FAILED) == 0:
            open_fault(queue, value, KIND_DRIVER, status, 0, 0, 0)
        put(queue + Q_HELD, HELD_DEVICE)
        return False
    if status != 0:
        # Whatever the status: an operation whose completion nobody would learn of must not be waited for.
        compare_exchange(device + D_LOST, 0, status)
    return True


@inner
def pass_on(queue, device, value):
    """Complete operation ``value``, which needs nothing of the device, in its turn; False: later."""
    if load(queue + Q_COMPLETED) == value - 1:
        complete(queue, value)
        return True
    return write_completion(queue, device, value, False)
