"""Threads that wait in the driver for what is awaited, one of the ways to notice the end of work (``AIODEV_CUDA_WAIT=event``).

Each has an event of its own, made beforehand, which sleeps instead of spinning. The watching thread gives it a queue: the event
is recorded behind what that queue has handed on, and when the driver says that it is reached, the watching thread is woken and
looks. While all of them are busy the watching thread polls. A wait in the driver ends with an error when the context is lost.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call
from aiodev._backends.cuda.executor.progress import is_sticky, wake
from aiodev._backends.cuda.structs import Attendant, Device, Queue
from aiodev._backends.cuda.tuning import ATTENDANTS
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import sem_post, sem_wait


@inner
def attend(queue: Queue, device: Device) -> bool:
    """Have a thread wait for what a queue has handed on; whether one does. For the watching thread alone."""
    if queue.attended.load() != 0:
        return True
    for index in range(ATTENDANTS):
        attendant = device.attendants[index]
        if attendant.queue.load() is None:
            if call(device.driver.cuEventRecord, attendant.event, queue.stream) != 0:
                return False
            queue.attended.value = 1
            attendant.queue.store_fence(queue)
            sem_post(attendant.semaphore)
            return True
    return False


@exported(void(int64), nogil=True)
def attend_for_ever(attendant: Attendant) -> None:
    """The thread's life, until the device's stop."""
    device = attendant.device
    call(device.driver.cuCtxSetCurrent, device.context)
    allow_captures(device)
    while True:
        sem_wait(attendant.semaphore)
        if device.stop.load() != 0:
            break
        status = call(device.driver.cuEventSynchronize, attendant.event)
        if is_sticky(status):
            device.lost.compare_exchange(0, status)
        Queue(attendant.queue.value).attended.store_fence(0)
        attendant.queue.store_fence(None)
        wake(device)


@inner
def dismiss(device: Device) -> None:
    """Wake the threads for the device's stop."""
    if device.attendants.address != 0:
        for index in range(ATTENDANTS):
            sem_post(device.attendants[index].semaphore)
