"""Copies and fills by the driver, which is given no ordinary memory."""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import call, word_here
from aiodev._backends.cuda.executor.progress import driver_failed, pass_on, write_completion
from aiodev._backends.cuda.executor.staging import stage
from aiodev._backends.cuda.structs import BUSY, Device, Queue
from aiodev._backends.cuda.tuning import COLUMNS, RING_BYTES, RING_SLOTS
from aiodev._backends.executor.locking import lock, unlock
from aiodev._native.compile import inner
from aiodev._native.fields import Cell
from aiodev._native.intrinsics import copy_memory, get

_MEMORY_TYPE, _ORDINAL = 2, 9  #: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_HOST = 1  #: CU_MEMORYTYPE_HOST; the device's are higher


@inner
def kind_of(device: Device, address: int) -> int:
    """The driver's kind of memory; 0 where it does not know the address: ordinary memory, which it would copy synchronously."""
    place: Cell[int] = Cell(word_here())
    place.value = 0
    status = call(device.driver.cuPointerGetAttribute, place, _MEMORY_TYPE, address)
    return 0 if status != 0 else place.value & 0xFFFFFFFF


@inner
def home_of(device: Device, address: int) -> Device:
    """The device that has the memory at ``address``."""
    place: Cell[int] = Cell(word_here())
    place.value = 0
    if call(device.driver.cuPointerGetAttribute, place, _ORDINAL, address) != 0:
        return device
    home = device
    while home.index != place.value & 0xFFFFFFFF:
        home = home.next
        if home == device:
            break
    return home


@inner
def take_slot(queue: Queue, device: Device, value: int) -> int:
    """A slot of the device's ring for operation ``value`` to read; 0 where the next ones are all in use."""
    slot = 0
    lock(device.ring_lock)
    for _ in range(RING_SLOTS // 4):
        number = device.ring_next
        device.ring_next = (number + 1) % RING_SLOTS
        user = device.ring_users[number]
        owner, reader = user.queue, user.value
        # A queue's numbers begin anew when it is used again, which it is when all is done.
        if owner is None or owner.completed.load() >= reader or owner.submitted.load() < reader:
            user.queue = queue
            user.value = value
            slot = device.ring + RING_BYTES * number
            break
    unlock(device.ring_lock)
    return slot


@inner
def copy(queue: Queue, device: Device, value: int, dst: int, src: int, nbytes: int) -> bool:
    """Copy; ordinary host memory goes through page-locked memory: a slot here, or in a thread of its own. False: not yet.

    The driver never has it: what it does about it may wait for the stream, in the call.
    """
    if nbytes <= 0:
        return pass_on(queue, device, value)
    to, origin = kind_of(device, dst), kind_of(device, src)
    ordinary = to == 0 or origin == 0
    if ordinary and queue.completed.load() != value - 1:
        return False  # it is to be read when its turn comes, and the thread for such copies waits for nothing else
    slot = 0
    if origin == 0 and to > _HOST and nbytes <= RING_BYTES:
        slot = take_slot(queue, device, value)
    if slot != 0:
        copy_memory(slot, src, nbytes)
        src, origin = slot, _HOST
    elif ordinary:
        queue.busy.value = BUSY
        stage(queue, device, dst, src, nbytes, (1 if origin == 0 else 0) + (2 if to == 0 else 0))
        return True
    there, here = device, device
    if device.next != device and to > _HOST and origin > _HOST:
        there, here = home_of(device, dst), home_of(device, src)
    stream = queue.stream
    if there == here:
        status = call(device.driver.cuMemcpyAsync, dst, src, nbytes, stream)
    else:  # mapped memory belongs to one device, so both must be named
        status = call(device.driver.cuMemcpyPeerAsync, dst, there.context, src, here.context, nbytes, stream)
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)


@inner
def write_pattern(device: Device, stream: int, dst: int, count: int, pattern: int, nbytes: int) -> int:
    """Write a pattern; what is wider than the driver's 4 bytes goes column by column, and is copied on where it is long."""
    low = get(pattern)
    status = 0
    if nbytes == 1:
        status = call(device.driver.cuMemsetD8Async, dst, low & 0xFF, count, stream)
    elif nbytes == 2:
        status = call(device.driver.cuMemsetD16Async, dst, low & 0xFFFF, count, stream)
    elif nbytes == 4:
        status = call(device.driver.cuMemsetD32Async, dst, low & 0xFFFFFFFF, count, stream)
    else:
        high = get(pattern + 8) if nbytes == 16 else low
        if low == high and low & 0xFFFFFFFF == (low >> 32) & 0xFFFFFFFF:
            status = call(device.driver.cuMemsetD32Async, dst, low & 0xFFFFFFFF, count * (nbytes // 4), stream)
        else:
            written = min(count, COLUMNS)
            for column in range(nbytes // 4):
                word = (low if column < 2 else high) >> (32 * (column & 1)) & 0xFFFFFFFF
                outcome = call(device.driver.cuMemsetD2D32Async, dst + 4 * column, nbytes, word, 1, written, stream)
                status = outcome if status == 0 else status
            while written < count and status == 0:
                part = min(written, count - written)
                status = call(device.driver.cuMemcpyAsync, dst + written * nbytes, dst, part * nbytes, stream)
                written += part
    return status


@inner
def fill(queue: Queue, device: Device, value: int, dst: int, count: int, pattern: int, nbytes: int) -> bool:
    """Write a pattern, so often."""
    if count <= 0:
        return pass_on(queue, device, value)
    status = write_pattern(device, queue.stream, dst, count, pattern, nbytes)
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)
