"""Issue: handing a queue's operations to the driver, in order, as far as they may go (see the package's invariants)."""

from __future__ import annotations

from aiodev._backends.cuda.executor.buffers import execute
from aiodev._backends.cuda.executor.copies import copy, fill
from aiodev._backends.cuda.executor.driver import call
from aiodev._backends.cuda.executor.foreign_calls import call_functions, leave_to_caller
from aiodev._backends.cuda.executor.grids import lay_out
from aiodev._backends.cuda.executor.progress import (
    complete,
    driver_failed,
    is_captured,
    pass_on,
    progress,
    wake,
    write_completion,
)
from aiodev._backends.cuda.structs import (
    CAPTURED,
    HELD_DEVICE,
    HELD_GATE,
    HELD_NOT,
    HELD_WAIT,
    OP_COPY,
    OP_EVENT,
    OP_EXECUTE,
    OP_FILL,
    OP_GATE,
    OP_LAUNCH,
    OP_NATIVE,
    OP_WAIT,
    Buffer,
    Device,
    Entry,
    ForeignCalls,
    Grid,
    Parameters,
    Queue,
)
from aiodev._backends.cuda.tuning import WINDOW
from aiodev._backends.executor.faults import covering_fault, open_fault
from aiodev._backends.executor.gates import release_gate
from aiodev._backends.executor.structs import GATE_FAILED, GATE_SHUT, KIND_DEPENDENCY, KIND_DRIVER, KIND_GATE, Gate
from aiodev._backends.executor.withdrawals import fail_withdrawn
from aiodev._native.compile import inner
from aiodev._native.fields import Atomic, Cell, sizeof
from aiodev._native.intrinsics import copy_memory


@inner
def hold(queue: Queue, reason: int) -> bool:
    """Leave the operation for later."""
    queue.held = reason
    return False


@inner
def launch(
    queue: Queue, device: Device, value: int, entry: Entry, size: int, site: int, arguments: int, nbytes: int, suspect: bool
) -> bool:
    """Launch a kernel; one that can fail, or follows such a one, gets the fault record."""
    if size <= 0:
        return pass_on(queue, device, value)
    function = entry.functions[device.index].value
    if function == 0:
        driver_failed(queue, device, value, 500)
        return pass_on(queue, device, value)
    fallible = entry.fallible != 0
    # Each in flight has a place of its own in ``launches``; none is older than the present row of what the host looks at.
    if fallible and value - max(queue.completed.load(), queue.shadow.load(), queue.shadow_from.value - 1) > WINDOW:
        return hold(queue, HELD_DEVICE)
    parameters = queue.parameters
    parameters.record = queue.record if fallible or suspect else 0
    parameters.value = value
    copy_memory(parameters.arguments, arguments, nbytes)
    queue.parameter_bytes.value = sizeof(Parameters) + nbytes
    if fallible:
        launched = queue.launches[value % WINDOW]
        launched.entry = entry.address
        launched.site = site
        queue.last_fallible.value = value
    grid = Grid(parameters.address + sizeof(Parameters) + nbytes)
    lay_out(entry, Cell(arguments), grid)
    status = call(
        device.driver.cuLaunchKernel, function, grid.columns, grid.rows, grid.planes, grid.wide, grid.high, 1, 0,
        queue.stream, 0, queue.extra,
    )  # fmt: skip
    if status != 0:
        driver_failed(queue, device, value, status)
    entry.launched |= 1 << device.index
    return write_completion(queue, device, value, fallible)


@inner
def is_settled(other: Queue, target: int, reached: int) -> bool:
    """Whether a queue has handed an operation on, and it cannot fail any more."""
    return other.issued.load_fence() >= target and other.last_fallible.load() <= reached


@inner
def place_of(other: Queue, target: int) -> Atomic[int]:
    """Where the device writes that ``target``, which a queue has handed on, is done.

    To the shadow, what is in the present row; what was in an earlier one is completed, what is behind it goes to the timeline.
    The queue may go on meanwhile, and begin a new row, whose first number is stored before its last one.
    """
    last = other.last_shadow.load()
    return other.shadow if other.shadow_from.load() <= target <= last else other.completed


@inner
def share_fault(queue: Queue, value: int, other: Queue, target: int, failed: int) -> bool:
    """Fail with what is waited for, if that failed or did not run; False while our own failure may still come first.

    Also when the device is to wait: an operation that is behind a failure is settled before it is completed.
    """
    first = covering_fault(other, target)
    if first != 0 and failed == 0:
        if queue.last_fallible.value > queue.completed.load():
            return False
        open_fault(queue, value, KIND_DEPENDENCY, other.address, first, 0, 0)
    return True


@inner
def wait(queue: Queue, device: Device, value: int, other: Queue, target: int, is_shared: bool, failed: int) -> bool:
    """Wait for another queue: on the device once that has handed its operation to the driver and it cannot fail any more.

    If ``is_shared``, its failure is ours. A wait holds even behind a failure: what is submitted once that is forgiven relies on
    the order that it sets up.
    """
    reached = other.completed.load()
    if reached < target:
        if not is_settled(other, target, reached):
            other.target.fetch_min(target)  # for its watching thread to look at, though nobody is parked there
            other.followed.store_fence(1)
            if other.device != device:
                wake(other.device)  # which looks but now and then at what nobody awaits
            if is_settled(other, target, reached):
                wake(device)
            if other.completed.load_fence() < target:
                return hold(queue, HELD_WAIT)
        else:
            if is_shared and not share_fault(queue, value, other, target, failed):
                return hold(queue, HELD_DEVICE)
            status = call(device.driver.cuStreamWaitValue64, queue.stream, place_of(other, target), target, 0)
            if status != 0:
                driver_failed(queue, device, value, status)
            return write_completion(queue, device, value, False)
    if is_shared and not share_fault(queue, value, other, target, failed):
        return hold(queue, HELD_DEVICE)
    return pass_on(queue, device, value)


@inner
def wait_for_event(queue: Queue, device: Device, value: int, event: int) -> bool:
    """Wait for what another library's stream had been given when the event was recorded on it."""
    status = call(device.driver.cuStreamWaitEvent, queue.stream, event, 0)
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)


@inner
def pass_gate(queue: Queue, device: Device, value: int, gate: Gate) -> bool:
    """Pass a gate that the host has opened."""
    state = gate.state.load()
    if state == GATE_SHUT:
        return hold(queue, HELD_GATE)
    if state == GATE_FAILED:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    if not pass_on(queue, device, value):
        return False
    release_gate(gate)
    return True


@inner
def forgiven(queue: Queue, device: Device, value: int) -> int:
    """Begin anew with operation ``value`` after a failure that is over: the records of it are cleared in stream order.

    Returns ``value`` if they cannot be, since kernels would pass themselves over without a word: it fails, else 0.
    """
    queue.failed = 0
    if queue.dirty != 0:
        status = call(device.driver.cuMemsetD32Async, queue.record, 0, 2, queue.stream)
        if status != 0:
            driver_failed(queue, device, value, status)
        else:
            queue.status.store(0)
            queue.dirty = 0
    return queue.failed


@inner
def refuse(queue: Queue, operation: int, a: int, value: int, completed: int, failed: bool) -> bool:
    """Have an operation fail, in its turn, whose stream is being captured: the stream can complete nothing."""
    if completed != value - 1:
        return hold(queue, HELD_DEVICE)
    if not failed:
        open_fault(queue, value, KIND_DRIVER, CAPTURED, 0, 0, 0)
    if operation == OP_GATE:
        release_gate(Gate(a))
    complete(queue, value)
    queue.held = HELD_NOT
    queue.issued.store(value)
    return True


@inner
def call_foreign(queue: Queue, device: Device, value: int, block: ForeignCalls, nbytes: int) -> bool:
    """Make the calls of a block; if they may wait, in a thread, when nothing is ahead of them."""
    if block.waits != 0:
        if queue.completed.load() != value - 1 or not leave_to_caller(queue, device, block, nbytes):
            return hold(queue, HELD_DEVICE)
        return True
    call_functions(queue, value, block)
    return write_completion(queue, device, value, False)


@inner
def issue(queue: Queue, window: int, operation: int, a: int, b: int, c: int, arguments: int, nbytes: int) -> bool:
    """Hand the next operation on, if ``window`` has room for it in the driver's hands; False when it waits, for ``held``."""
    device = queue.device
    value = queue.issued.value + 1
    if queue.busy.value != 0:
        return hold(queue, HELD_DEVICE)
    completed = progress(queue)
    if value - max(completed, queue.shadow.load()) > window:
        return hold(queue, HELD_DEVICE)
    failed = queue.failed
    suspect = queue.last_fallible.value > completed
    if queue.foreign != 0 and is_captured(device, queue.stream):
        return refuse(queue, operation, a, value, completed, failed != 0 and value <= queue.forgiven.load())
    if failed != 0 and value > queue.forgiven.load():
        if suspect:
            return hold(queue, HELD_DEVICE)
        failed = forgiven(queue, device, value)
    if failed == 0 and value >= queue.withdrawn.value:
        if completed < value - 1:  # what is ahead may fail, or be lost, still, and then this is behind that
            return hold(queue, HELD_DEVICE)
        failed = fail_withdrawn(queue, value)
    if suspect and operation != OP_LAUNCH and operation != OP_WAIT and operation != OP_EVENT:
        return hold(queue, HELD_DEVICE)
    if operation == OP_WAIT:
        done = wait(queue, device, value, Queue(a), b, c != 0, failed)
    elif operation == OP_EVENT:
        done = wait_for_event(queue, device, value, a)
    elif failed != 0:
        done = pass_on(queue, device, value)
        if done and operation == OP_GATE:
            release_gate(Gate(a))
    elif operation == OP_LAUNCH:
        done = launch(queue, device, value, Entry(a), b, c, arguments, nbytes, suspect)
    elif operation == OP_COPY:
        done = copy(queue, device, value, a, b, c) or hold(queue, HELD_DEVICE)
    elif operation == OP_FILL:
        done = fill(queue, device, value, a, b, arguments, c)
    elif operation == OP_GATE:
        done = pass_gate(queue, device, value, Gate(a))
    elif operation == OP_NATIVE:
        done = call_foreign(queue, device, value, ForeignCalls(arguments), nbytes)
    elif operation == OP_EXECUTE:
        done = execute(queue, device, value, Buffer(a), arguments, nbytes) or hold(queue, HELD_DEVICE)
    else:
        status = call(device.driver.cuLaunchHostFunc, queue.stream, device.stamp, a)
        if status != 0:
            driver_failed(queue, device, value, status)
        done = write_completion(queue, device, value, False)
    if done:
        queue.held = HELD_NOT
        if queue.busy.value == 0:
            queue.issued.store(value)
    return done
