"""Copies from and to ordinary host memory, through page-locked slots, in a thread that may block in the driver.

The driver would carry them out synchronously, and hold up whoever submits. Up to 64 KiB from the host do not come here either:
whoever hands them on copies them to page-locked memory (:mod:`aiodev._backends.cuda.executor.copies`). A copy comes here when
nothing of its queue is ahead of it, so that the thread waits for copies only, and long ones take turns. While one is under way
its queue is busy: what is submitted meanwhile waits on the host. Once the device is lost, an operation is not completed while
its memory is touched here: ``BUSY_COPYING`` is stored before ``D_LOST`` is loaded, by whoever loses the device the other way
round.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import allow_captures, call
from aiodev._backends.cuda.executor.progress import complete, driver_failed, tell_followers, wake
from aiodev._backends.cuda.layout import (
    BUSY,
    BUSY_COPYING,
    BUSY_NOT,
    D_CONTEXT,
    D_LEFT,
    D_LOST,
    D_STAGE_BUFFERS,
    D_STAGE_EVENTS,
    D_STAGE_HEAD,
    D_STAGE_LOCK,
    D_STAGE_SEMAPHORE,
    D_STOP,
    F_COPY,
    F_CTX_SET,
    F_EVENT_WAIT,
    F_RECORD,
    Q_BUSY,
    Q_ISSUED,
    Q_LOCK,
    Q_STAGE_BYTES,
    Q_STAGE_DST,
    Q_STAGE_KIND,
    Q_STAGE_NEXT,
    Q_STAGE_SRC,
    Q_STREAM,
    STAGE_BYTES,
    STAGE_SLOTS,
    STAGE_TURN,
)
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import (
    copy_memory,
    fetch_add,
    get,
    load,
    load_fence,
    put,
    sem_post,
    sem_wait,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import lock, unlock


@inner
def stage(queue, device, dst, src, nbytes, kind):
    """Leave a copy to the staging thread; bit 0 of ``kind``: from the host, bit 1: to the host."""
    put(queue + Q_STAGE_DST, dst)
    put(queue + Q_STAGE_SRC, src)
    put(queue + Q_STAGE_BYTES, nbytes)
    put(queue + Q_STAGE_KIND, kind)
    enlist(queue, device)


@inner
def enlist(queue, device):
    """Have the staging thread see to a queue's copy, after the others'."""
    lock(device + D_STAGE_LOCK)
    put(queue + Q_STAGE_NEXT, 0)
    place = device + D_STAGE_HEAD
    while get(place) != 0:  # it is short
        place = get(place) + Q_STAGE_NEXT
    put(place, queue)
    unlock(device + D_STAGE_LOCK)
    sem_post(device + D_STAGE_SEMAPHORE)


@inner
def touch(queue, device, dst, src, nbytes):
    """Copy by the host, unless the device is lost and nobody keeps the memory any more; 0, or why not."""
    store_fence(queue + Q_BUSY, BUSY_COPYING)
    status = load_fence(device + D_LOST)
    if status == 0:
        copy_memory(dst, src, nbytes)
    store_fence(queue + Q_BUSY, BUSY)
    return status


@inner
def copy_through(queue, device, nbytes):
    """Carry out so much of a queue's staged copy; returns the driver's status."""
    dst, src, kind = get(queue + Q_STAGE_DST), get(queue + Q_STAGE_SRC), get(queue + Q_STAGE_KIND)
    stream, slots = get(queue + Q_STREAM), get(device + D_STAGE_BUFFERS)
    if kind == 3:
        status = call(get(device + F_RECORD), get(device + D_STAGE_EVENTS), stream)
        if status == 0:
            status = call(get(device + F_EVENT_WAIT), get(device + D_STAGE_EVENTS))
        if status == 0:
            status = touch(queue, device, dst, src, nbytes)
        return status
    pieces = (nbytes + STAGE_BYTES - 1) // STAGE_BYTES
    # A piece goes through its slot in two steps, and is finished STAGE_SLOTS pieces after it was begun.
    for piece in range(pieces + STAGE_SLOTS):
        slot = slots + STAGE_BYTES * (piece % STAGE_SLOTS)
        event = get(device + D_STAGE_EVENTS + 8 * (piece % STAGE_SLOTS))
        if piece >= STAGE_SLOTS:
            status = call(get(device + F_EVENT_WAIT), event)
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
                    status = call(get(device + F_COPY), dst + begin, slot, part, stream)
            else:
                status = call(get(device + F_COPY), slot, src + begin, part, stream)
            if status == 0:
                status = call(get(device + F_RECORD), event, stream)
            if status != 0:
                return status
    return 0


@exported(void(int64), nogil=True)
def carry(device):
    """The staging thread's life, until the device's stop."""
    call(get(device + F_CTX_SET), get(device + D_CONTEXT))
    allow_captures(device)
    while True:
        sem_wait(device + D_STAGE_SEMAPHORE)
        if load(device + D_STOP) != 0:
            break
        lock(device + D_STAGE_LOCK)
        queue = get(device + D_STAGE_HEAD)
        if queue != 0:
            put(device + D_STAGE_HEAD, get(queue + Q_STAGE_NEXT))
        unlock(device + D_STAGE_LOCK)
        if queue == 0:
            continue
        part = min(get(queue + Q_STAGE_BYTES), STAGE_TURN)
        status = copy_through(queue, device, part)
        if status == 0 and part < get(queue + Q_STAGE_BYTES):
            put(queue + Q_STAGE_DST, get(queue + Q_STAGE_DST) + part)
            put(queue + Q_STAGE_SRC, get(queue + Q_STAGE_SRC) + part)
            put(queue + Q_STAGE_BYTES, get(queue + Q_STAGE_BYTES) - part)
            enlist(queue, device)
            continue
        if status != 0:  # what is ahead must be done all the same before this is
            call(get(device + F_RECORD), get(device + D_STAGE_EVENTS), get(queue + Q_STREAM))
            call(get(device + F_EVENT_WAIT), get(device + D_STAGE_EVENTS))
        lock(queue + Q_LOCK)
        value = get(queue + Q_ISSUED) + 1
        if status != 0:
            driver_failed(queue, device, value, status)
        put(queue + Q_BUSY, BUSY_NOT)
        if load(device + D_LOST) == 0:  # else all that was submitted is dropped, or has been
            store(queue + Q_ISSUED, value)
            complete(queue, value)
        unlock(queue + Q_LOCK)
        tell_followers(queue)
        wake(device)
    fetch_add(device + D_LEFT, 1)
