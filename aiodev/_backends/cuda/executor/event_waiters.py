"""Event waiters: threads that wait in the driver, one of the ways to notice the end of work (``AIODEV_CUDA_WAIT=event``).

Each has an event of its own, made beforehand, which sleeps instead of spinning. The poller gives it a queue: the event
is recorded behind what that queue has handed on, and when the driver says that it is reached, the poller is woken and
looks. While all of them are busy the poller polls. A wait in the driver ends with an error when the context is lost.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call, record_event
from aiodev._backends.cuda.executor.progress import is_sticky, wake
from aiodev._backends.cuda.structs import Device, EventWaiter, Queue
from aiodev._backends.cuda.tuning import EVENT_WAITERS
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.intrinsics import sem_post, sem_wait


@inner
def wait_by_event(queue: Queue, device: Device) -> bool:
    """Have a thread wait for what a queue has handed on; whether one does. For the poller alone."""
    if queue.has_event_waiter.load() != 0:
        return True
    for index in range(EVENT_WAITERS):
        waiter = device.event_waiters[index]
        if waiter.queue.load() is None:
            if record_event(device, waiter.event, queue.stream) != 0:
                return False
            queue.has_event_waiter.value = 1
            waiter.queue.store_fence(queue)
            sem_post(waiter.semaphore)
            return True
    return False


@exported(void(int64), nogil=True)
def run_event_waiter(waiter: EventWaiter) -> None:
    """The thread's life, until the device's stop."""
    device = waiter.device
    call(device.driver.cuCtxSetCurrent, device.context)
    allow_captures(device)
    while True:
        sem_wait(waiter.semaphore)
        if device.stop.load() != 0:
            break
        status = call(device.driver.cuEventSynchronize, waiter.event)
        if is_sticky(status):
            device.lost.compare_exchange(0, status)
        Queue(waiter.queue.value).has_event_waiter.store_fence(0)
        waiter.queue.store_fence(None)
        wake(device)


@inner
def stop_event_waiters(device: Device) -> None:
    """Wake the threads for the device's stop."""
    if device.event_waiters.address != 0:
        for index in range(EVENT_WAITERS):
            sem_post(device.event_waiters[index].semaphore)
