"""Progress: changes of a queue's state, and who is told of them. All but ``fire`` and ``wake`` need the queue's lock."""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import call, word_here
from aiodev._backends.cuda.structs import AWAKE, BY_CALLBACK, HELD_DEVICE, Buffer, Device, Queue, Step
from aiodev._backends.cuda.tuning import WINDOW
from aiodev._backends.executor.faults import open_fault
from aiodev._backends.executor.structs import KIND_DRIVER, KIND_KERNEL, KIND_LOST, NEVER, Waker
from aiodev._backends.executor.wait_nodes import notify, ring
from aiodev._native.compile import inner
from aiodev._native.fields import Cell
from aiodev._native.intrinsics import sem_post


@inner
def wake(device: Device) -> None:
    """Wake the device's watching thread if it sleeps."""
    if device.sleep.load_fence() != AWAKE and device.sleep.exchange(AWAKE) != AWAKE:
        sem_post(device.semaphore)


@inner
def announce_later(queue: Queue, device: Device) -> None:
    """Have the driver wake the poller when what was handed on is done. Needs the context."""
    call(device.driver.cuLaunchHostFunc, queue.stream, device.announce, device)


@inner
def tell_poller(queue: Queue, device: Device) -> None:
    """Have the poller learn of the end of what was just handed on, if it is awaited. Needs the context.

    Whoever awaits it has told the poller when it was not under way yet.
    """
    if queue.target.load_fence() != NEVER:
        if device.wait_by == BY_CALLBACK:
            announce_later(queue, device)
        else:
            wake(device)


@inner
def tell_followers(queue: Queue) -> None:
    """Wake the pollers if a queue is held until this one gets on."""
    if queue.followed.load_fence() != 0 and queue.followed.exchange(0) != 0:
        first = queue.device
        device = first
        while True:
            wake(device)
            device = device.next
            if device == first:
                break


@inner
def fire(queue: Queue, completed: int) -> None:
    """Tell every waiter whose target is reached."""
    queue.target.store_fence(NEVER)
    node = queue.waiters.load()
    while node is not None:
        following = node.next
        target = node.target.load_fence()
        if target > completed:
            if target != NEVER:
                queue.target.fetch_min(target)
        elif node.target.compare_exchange(target, NEVER):
            waker = Waker(node.owner - 1)
            if notify(waker, node):
                ring(waker)
        else:
            continue  # it was lowered meanwhile: look again
        node = following
    tell_followers(queue)


@inner
def complete(queue: Queue, value: int) -> None:
    """Say that operations up to ``value`` are done."""
    queue.completed.store_fence(value)
    if queue.target.load_fence() <= value:
        fire(queue, value)


@inner
def is_sticky(status: int) -> bool:
    """Whether a status of the driver means that the context is lost: by cuda.h the process must start again then.

    Beside kernels' errors: the driver is unloaded, the device gone or in error (46, 214, 220, 226, 911), MPS ended (806, 810).
    """
    if 700 <= status < 800:
        return not (status == 701 or 703 <= status <= 708 or 711 <= status <= 713 or status == 720)
    if status == 4 or status == 46 or status == 214 or status == 220 or status == 226:
        return True
    return status == 806 or status == 810 or status == 911 or status == 999


@inner
def is_refused(status: int) -> bool:
    """Whether the driver refuses a stream: its handle is none, or the stream is being captured into a graph."""
    return status == 400 or 900 <= status <= 908


@inner
def is_captured(device: Device, stream: int) -> bool:
    """Whether another library captures a stream: what goes to it becomes a part of a graph, and completes nothing."""
    place: Cell[int] = Cell(word_here())
    place.value = 0
    status = call(device.driver.cuStreamIsCapturing, stream, place)
    return is_refused(status) or status == 0 and place.value & 0xFFFFFFFF != 0


@inner
def driver_failed(queue: Queue, device: Device, value: int, status: int) -> None:
    """Have operation ``value`` fail because the driver refused it, or the device lost, when that is what it means."""
    if is_sticky(status):
        device.lost.compare_exchange(0, status)
    elif queue.failed == 0:
        open_fault(queue, value, KIND_DRIVER, status, 0, 0, 0)


@inner
def step_of(buffer: Buffer, number: int) -> Step:
    """A command of a buffer, by its number."""
    step = buffer.first
    for _ in range(number):
        step = Step(step.parameters.arguments.address + 2 * step.nbytes)
    return step


@inner
def progress(queue: Queue) -> int:
    """Take over what the device has completed under the host's eyes; returns the number of completed operations."""
    completed = queue.completed.load()
    if completed >= queue.last_shadow.value:
        return completed
    reached = queue.shadow.load()
    if reached <= completed:
        return completed
    status = queue.status.load()
    if status != 0 and queue.dirty == 0:
        number = queue.failed_value
        value = number if number > 0 else queue.executing
        if value <= reached:
            queue.dirty = 1
            if queue.failed == 0:
                if number > 0:
                    launch = queue.launches[value % WINDOW]
                    open_fault(queue, value, KIND_KERNEL, status, launch.site, launch.entry, 0)
                else:
                    step = step_of(queue.executing_buffer, -1 - number)
                    open_fault(queue, value, KIND_KERNEL, status, step.site, step.entry, 0)
    complete(queue, reached)
    return reached


@inner
def lose(queue: Queue, device: Device, submitted: int) -> None:
    """Complete every operation of a queue whose device is lost, as failed."""
    completed = queue.completed.load()
    if completed >= submitted:
        return
    first = completed + 1
    if queue.failed != 0:
        first = max(first, queue.forgiven.load() + 1) if queue.forgiven.load() != NEVER else NEVER
    if first <= submitted:
        open_fault(queue, first, KIND_LOST, device.lost.value, 0, 0, 0)
    queue.shadow.store(submitted)  # another device may wait for it
    complete(queue, submitted)


@inner
def write_completion(queue: Queue, device: Device, value: int, shadowed: bool) -> bool:
    """Have the stream say that operation ``value`` is done, once it is: to the timeline, or for the host to look at first.

    False if it refuses. Then the operation has failed, alone, and is held until the host can complete it in its turn. Also
    once the device is lost: that operation may not have been taken, and is completed with all others, as lost.
    """
    if device.lost.load() != 0:
        return False
    stream = queue.stream
    completed = queue.completed.load()
    last = queue.last_shadow.value
    place = queue.completed
    if shadowed or completed < last:
        if completed >= last:
            queue.shadow_from.store(value)  # in this order, for those who wait for us
        queue.last_shadow.store(value)
        place = queue.shadow
    status = call(device.driver.cuStreamWriteValue64, stream, place, value, 0)
    if is_refused(status):
        queue.last_shadow.store(last)
        if queue.last_fallible.value == value:
            queue.last_fallible.store(value - 1)
        if queue.failed == 0:
            open_fault(queue, value, KIND_DRIVER, status, 0, 0, 0)
        queue.held = HELD_DEVICE
        return False
    if status != 0:
        # Whatever the status: an operation whose completion nobody would learn of must not be waited for.
        device.lost.compare_exchange(0, status)
    return True


@inner
def pass_on(queue: Queue, device: Device, value: int) -> bool:
    """Complete operation ``value``, which needs nothing of the device, in its turn; False: later."""
    if queue.completed.load() == value - 1:
        complete(queue, value)
        return True
    return write_completion(queue, device, value, False)
