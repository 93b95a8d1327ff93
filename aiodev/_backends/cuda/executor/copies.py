"""Copies and fills, by the driver, which is given no ordinary memory."""

from __future__ import annotations

from aiodev._backends.cpu.executor.ready_queue import lock, unlock
from aiodev._backends.cpu.layout import Q_COMPLETED, Q_SUBMITTED
from aiodev._backends.cuda.executor.driver import call, word_here
from aiodev._backends.cuda.executor.progress import driver_failed, pass_on, write_completion
from aiodev._backends.cuda.executor.staging import stage
from aiodev._backends.cuda.layout import (
    BUSY,
    D_CONTEXT,
    D_INDEX,
    D_NEXT,
    D_RING,
    D_RING_LOCK,
    D_RING_NEXT,
    D_RING_USERS,
    F_COPY,
    F_COPY_PEER,
    F_POINTER,
    F_SET2D,
    F_SET8,
    F_SET16,
    F_SET32,
    Q_BUSY,
    Q_STREAM,
    RING_BYTES,
    RING_SLOTS,
)
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import copy_memory, get, load, put

_MEMORY_TYPE, _ORDINAL = 2, 9  #: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_HOST = 1  #: CU_MEMORYTYPE_HOST; the device's are higher
_COLUMNS = 64 << 10  #: patterns that are written column by column, with gaps, which is slow; beyond, what is there is doubled


@inner
def kind_of(device, address):
    """The driver's kind of memory; 0 where it does not know the address: ordinary memory, which it would copy synchronously."""
    place = word_here()
    put(place, 0)
    status = call(get(device + F_POINTER), place, _MEMORY_TYPE, address)
    return 0 if status != 0 else get(place) & 0xFFFFFFFF


@inner
def home_of(device, address):
    """The device that has the memory at ``address``."""
    place = word_here()
    put(place, 0)
    if call(get(device + F_POINTER), place, _ORDINAL, address) != 0:
        return device
    home = device
    while get(home + D_INDEX) != get(place) & 0xFFFFFFFF:
        home = get(home + D_NEXT)
        if home == device:
            break
    return home


@inner
def take_slot(queue, device, value):
    """A slot of the device's ring for operation ``value`` to read; 0 where the next ones are all in use."""
    found = 0
    lock(device + D_RING_LOCK)
    for _ in range(RING_SLOTS // 4):
        number = get(device + D_RING_NEXT)
        put(device + D_RING_NEXT, (number + 1) % RING_SLOTS)
        user = get(device + D_RING_USERS) + 16 * number
        owner, reader = get(user), get(user + 8)
        # A queue's numbers begin anew when it is used again, which it is when all is done.
        if owner == 0 or load(owner + Q_COMPLETED) >= reader or load(owner + Q_SUBMITTED) < reader:
            put(user, queue)
            put(user + 8, value)
            found = get(device + D_RING) + RING_BYTES * number
            break
    unlock(device + D_RING_LOCK)
    return found


@inner
def copy(queue, device, value, dst, src, nbytes):
    """Copy; ordinary host memory goes through page-locked memory: a slot here, or in a thread of its own. False: not yet.

    The driver never has it: what it does about it may wait for the stream, in the call.
    """
    if nbytes <= 0:
        return pass_on(queue, device, value)
    to, origin = kind_of(device, dst), kind_of(device, src)
    ordinary = to == 0 or origin == 0
    if ordinary and load(queue + Q_COMPLETED) != value - 1:
        return False  # it is to be read when its turn comes, and the thread for such copies waits for nothing else
    slot = 0
    if origin == 0 and to > _HOST and nbytes <= RING_BYTES:
        slot = take_slot(queue, device, value)
    if slot != 0:
        copy_memory(slot, src, nbytes)
        src, origin = slot, _HOST
    elif ordinary:
        put(queue + Q_BUSY, BUSY)
        stage(queue, device, dst, src, nbytes, (1 if origin == 0 else 0) + (2 if to == 0 else 0))
        return True
    there, here = device, device
    if get(device + D_NEXT) != device and to > _HOST and origin > _HOST:
        there, here = home_of(device, dst), home_of(device, src)
    stream = get(queue + Q_STREAM)
    if there == here:
        status = call(get(device + F_COPY), dst, src, nbytes, stream)
    else:  # mapped memory belongs to one device, so both must be named
        status = call(
            get(device + F_COPY_PEER), dst, get(there + D_CONTEXT), src, get(here + D_CONTEXT), nbytes, stream
        )
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)


@inner
def fill(queue, device, value, dst, count, pattern, nbytes):
    """Write a pattern; what is wider than the driver's 4 bytes goes column by column, and is copied on where it is long."""
    if count <= 0:
        return pass_on(queue, device, value)
    stream = get(queue + Q_STREAM)
    low = get(pattern)
    status = 0
    if nbytes == 1:
        status = call(get(device + F_SET8), dst, low & 0xFF, count, stream)
    elif nbytes == 2:
        status = call(get(device + F_SET16), dst, low & 0xFFFF, count, stream)
    elif nbytes == 4:
        status = call(get(device + F_SET32), dst, low & 0xFFFFFFFF, count, stream)
    else:
        high = get(pattern + 8) if nbytes == 16 else low
        if low == high and low & 0xFFFFFFFF == (low >> 32) & 0xFFFFFFFF:
            status = call(get(device + F_SET32), dst, low & 0xFFFFFFFF, count * (nbytes // 4), stream)
        else:
            written = min(count, _COLUMNS)
            for column in range(nbytes // 4):
                word = (low if column < 2 else high) >> (32 * (column & 1)) & 0xFFFFFFFF
                found = call(get(device + F_SET2D), dst + 4 * column, nbytes, word, 1, written, stream)
                status = found if status == 0 else status
            while written < count and status == 0:
                part = min(written, count - written)
                status = call(get(device + F_COPY), dst + written * nbytes, dst, part * nbytes, stream)
                written += part
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)
