"""Staging: copies from and to ordinary host memory, through page-locked slots, in a thread that may block in the driver.

The driver would carry them out synchronously, and hold up whoever submits. Up to 64 KiB from the host do not come here either:
whoever hands them on copies them to page-locked memory (:mod:`aiodev._backends.cuda.executor.copies`). A copy comes here when
nothing of its queue is ahead of it, so that the thread waits for copies only, and long ones take turns. While one is under way
its queue is busy: what is submitted meanwhile waits on the host. Once the device is lost, an operation is not completed while
its memory is touched here: ``BUSY_COPYING`` is stored before ``lost`` is loaded, by whoever loses the device the other way
round.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call, record_event
from aiodev._backends.cuda.executor.gil import begin_waiting, end_waiting
from aiodev._backends.cuda.executor.progress import complete, driver_failed, tell_followers, wake
from aiodev._backends.cuda.executor.ready_queue import dequeue, enqueue
from aiodev._backends.cuda.structs import (
    BUSY,
    BUSY_COPYING,
    BUSY_NOT,
    Device,
    Queue,
)
from aiodev._backends.cuda.tuning import STAGE_BYTES, STAGE_SLOTS, STAGE_TURN
from aiodev._backends.executor.locking import lock, unlock
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.intrinsics import copy_memory


@inner
def stage(queue: Queue, device: Device, dst: int, src: int, nbytes: int, kind: int) -> None:
    """Leave a copy to the staging thread; bit 0 of ``kind``: from the host, bit 1: to the host."""
    queue.stage_dst = dst
    queue.stage_src = src
    queue.stage_bytes = nbytes
    queue.stage_kind = kind
    enqueue(device.staging, queue)


@inner
def touch(queue: Queue, device: Device, dst: int, src: int, nbytes: int) -> int:
    """Copy by the host, unless the device is lost and nobody keeps the memory any more; 0, or why not."""
    queue.busy.store_fence(BUSY_COPYING)
    status = device.lost.load_fence()
    if status == 0:
        copy_memory(dst, src, nbytes)
    queue.busy.store_fence(BUSY)
    return status


@inner
def move(device: Device, dst: int, src: int, nbytes: int, stream: int) -> int:
    """Have the driver copy, on a stream that may have no room; its status."""
    begin_waiting(device)
    status = call(device.driver.cuMemcpyAsync, dst, src, nbytes, stream)
    end_waiting(device)
    return status


@inner
def copy_through(queue: Queue, device: Device, nbytes: int) -> int:
    """Carry out so much of a queue's staged copy; returns the driver's status."""
    dst, src, kind = queue.stage_dst, queue.stage_src, queue.stage_kind
    stream, slots = queue.stream, device.stage_buffers
    if kind == 3:
        status = record_event(device, device.stage_events.value, stream)
        if status == 0:
            status = call(device.driver.cuEventSynchronize, device.stage_events.value)
        if status == 0:
            status = touch(queue, device, dst, src, nbytes)
        return status
    pieces = (nbytes + STAGE_BYTES - 1) // STAGE_BYTES
    # A piece goes through its slot in two steps, and is finished STAGE_SLOTS pieces after it was begun.
    for piece in range(pieces + STAGE_SLOTS):
        slot = slots + STAGE_BYTES * (piece % STAGE_SLOTS)
        event = device.stage_events[piece % STAGE_SLOTS].value
        if piece >= STAGE_SLOTS:
            status = call(device.driver.cuEventSynchronize, event)
            begin = STAGE_BYTES * (piece - STAGE_SLOTS)
            if status == 0 and kind == 2 and begin < nbytes:
                status = touch(queue, device, dst + begin, slot, min(STAGE_BYTES, nbytes - begin))
            if status != 0:
                return status
        begin = STAGE_BYTES * piece
        if begin < nbytes:
            part = min(STAGE_BYTES, nbytes - begin)
            if kind == 1:
                status = touch(queue, device, slot, src + begin, part)
                if status == 0:
                    status = move(device, dst + begin, slot, part, stream)
            else:
                status = move(device, slot, src + begin, part, stream)
            if status == 0:
                status = record_event(device, event, stream)
            if status != 0:
                return status
    return 0


@exported(void(int64), nogil=True)
def run_stager(device: Device) -> None:
    """The staging thread's life, until the device's stop."""
    call(device.driver.cuCtxSetCurrent, device.context)
    allow_captures(device)
    while True:
        queue = dequeue(device.staging)
        if device.stop.load() != 0:
            break
        if queue is None:
            continue
        part = min(queue.stage_bytes, STAGE_TURN)
        status = copy_through(queue, device, part)
        if status == 0 and part < queue.stage_bytes:
            queue.stage_dst += part
            queue.stage_src += part
            queue.stage_bytes -= part
            enqueue(device.staging, queue)
            continue
        if status != 0:  # what is ahead must be done all the same before this is
            record_event(device, device.stage_events.value, queue.stream)
            call(device.driver.cuEventSynchronize, device.stage_events.value)
        lock(queue.lock)
        value = queue.issued.value + 1
        if status != 0:
            driver_failed(queue, device, value, status)
        queue.busy.value = BUSY_NOT
        if device.lost.load() == 0:  # else all that was submitted is dropped, or has been
            queue.issued.store(value)
            complete(queue, value)
        unlock(queue.lock)
        tell_followers(queue)
        wake(device)
    device.left.fetch_add(1)
