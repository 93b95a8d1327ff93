"""Threads that wait in the driver for what is awaited, one of the ways to notice the end of work (``AIODEV_CUDA_WAIT=event``).

Each has an event of its own, made beforehand, which sleeps instead of spinning. The watching thread gives it a queue: the event
is recorded behind what that queue has handed on, and when the driver says that it is reached, the watching thread is woken and
looks. While all of them are busy the watching thread polls. A wait in the driver ends with an error when the context is lost.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call
from aiodev._backends.cuda.executor.progress import is_sticky, wake
from aiodev._backends.cuda.layout import (
    ATTENDANTS,
    D_ATTENDANTS,
    D_CONTEXT,
    D_LOST,
    D_STOP,
    F_CTX_SET,
    F_EVENT_WAIT,
    F_RECORD,
    Q_ATTENDED,
    Q_STREAM,
    T_BYTES,
    T_DEVICE,
    T_EVENT,
    T_QUEUE,
    T_SEMAPHORE,
)
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import compare_exchange, get, load, put, sem_post, sem_wait, store_fence


@inner
def attend(queue, device):
    """Have a thread wait for what a queue has handed on; whether one does. For the watching thread alone."""
    if load(queue + Q_ATTENDED) != 0:
        return True
    for index in range(ATTENDANTS):
        attendant = get(device + D_ATTENDANTS) + T_BYTES * index
        if load(attendant + T_QUEUE) == 0:
            if call(get(device + F_RECORD), get(attendant + T_EVENT), get(queue + Q_STREAM)) != 0:
                return False
            put(queue + Q_ATTENDED, 1)
            store_fence(attendant + T_QUEUE, queue)
            sem_post(attendant + T_SEMAPHORE)
            return True
    return False


@exported(void(int64), nogil=True)
def attend_for_ever(attendant):
    """The thread's life, until the device's stop."""
    device = get(attendant + T_DEVICE)
    call(get(device + F_CTX_SET), get(device + D_CONTEXT))
    allow_captures(device)
    while True:
        sem_wait(attendant + T_SEMAPHORE)
        if load(device + D_STOP) != 0:
            break
        status = call(get(device + F_EVENT_WAIT), get(attendant + T_EVENT))
        if is_sticky(status):
            compare_exchange(device + D_LOST, 0, status)
        store_fence(get(attendant + T_QUEUE) + Q_ATTENDED, 0)
        store_fence(attendant + T_QUEUE, 0)
        wake(device)


@inner
def dismiss(device):
    """Wake the threads for the device's stop."""
    if get(device + D_ATTENDANTS) != 0:
        for index in range(ATTENDANTS):
            sem_post(get(device + D_ATTENDANTS) + T_BYTES * index + T_SEMAPHORE)
