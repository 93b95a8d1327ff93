"""Handing a queue's operations to the driver, in order, as far as they may go (see the invariants in the package)."""

from __future__ import annotations

from aiodev._backends.cpu.executor.faults import covering_fault, open_fault
from aiodev._backends.cpu.executor.withdrawal import fail_withdrawn
from aiodev._backends.cpu.executor.worker import release_gate
from aiodev._backends.cpu.layout import (
    G_STATE,
    Q_COMPLETED,
    Q_FAILED,
    Q_FORGIVEN,
    Q_TARGET,
    Q_WITHDRAWN,
)
from aiodev._backends.cuda.executor.copies import copy, fill
from aiodev._backends.cuda.executor.driver import call
from aiodev._backends.cuda.executor.foreign_calls import call_functions
from aiodev._backends.cuda.executor.progress import (
    complete,
    driver_failed,
    is_captured,
    pass_on,
    progress,
    wake,
    write_completion,
)
from aiodev._backends.cuda.layout import (
    CAPTURED,
    D_INDEX,
    D_STAMP,
    E_BLOCK,
    E_FALLIBLE,
    E_FUNCTIONS,
    E_GRID,
    E_LAUNCHED,
    E_NDIM,
    E_TEAM,
    F_HOST,
    F_LAUNCH,
    F_SET32,
    F_WAIT,
    F_WAIT_EVENT,
    HELD_DEVICE,
    HELD_GATE,
    HELD_NOT,
    HELD_WAIT,
    KIND_DEPENDENCY,
    KIND_DRIVER,
    KIND_GATE,
    OP_COPY,
    OP_EVENT,
    OP_FILL,
    OP_GATE,
    OP_LAUNCH,
    OP_NATIVE,
    OP_WAIT,
    Q_BUSY,
    Q_DEVICE,
    Q_DIRTY,
    Q_EXTRA,
    Q_FOLLOWED,
    Q_FOREIGN,
    Q_HELD,
    Q_ISSUED,
    Q_LAST_FALLIBLE,
    Q_LAST_SHADOW,
    Q_LAUNCHES,
    Q_PARAMETER_BYTES,
    Q_PARAMETERS,
    Q_RECORD,
    Q_SHADOW,
    Q_SHADOW_FROM,
    Q_STATUS,
    Q_STREAM,
    WINDOW,
)
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import (
    copy_memory,
    fetch_min,
    get,
    load,
    load_fence,
    put,
    store,
    store_fence,
)


@inner
def hold(queue, reason):
    """Leave the operation for later."""
    put(queue + Q_HELD, reason)
    return False


@inner
def grid(entry, shape, place):
    """Blocks and threads of a launch along x, y and z, as six words at ``place``."""
    ndim = get(entry + E_NDIM)
    threads = get(entry + E_BLOCK)
    most = get(entry + E_GRID)
    along = get(shape + 8 * (ndim - 1))
    team = get(entry + E_TEAM) != 0
    wide = 32
    while wide < threads and wide < along:
        wide *= 2
    if ndim == 1 or team:
        wide = threads
    wide = min(wide, threads)
    high = max(1, threads // wide) if ndim > 1 else 1
    covered = 1 if team else wide
    columns = min(most, (along + covered - 1) // covered)
    rows = 1
    planes = 1
    if ndim > 1:
        rows = min((get(shape + 8 * (ndim - 2)) + high - 1) // high, max(1, most // columns), 65535)
    if ndim > 2:
        planes = min(get(shape), max(1, most // (columns * rows)), 65535)
    put(place, columns)
    put(place + 8, rows)
    put(place + 16, planes)
    put(place + 24, wide)
    put(place + 32, high)


@inner
def launch(queue, device, value, entry, size, site, arguments, nbytes, suspect):
    """Launch a kernel; one that can fail, or follows such a one, gets the fault record."""
    if size <= 0:
        return pass_on(queue, device, value)
    function = get(entry + E_FUNCTIONS + 8 * get(device + D_INDEX))
    if function == 0:
        driver_failed(queue, device, value, 500)
        return pass_on(queue, device, value)
    fallible = get(entry + E_FALLIBLE) != 0
    # Each in flight has a place of its own in Q_LAUNCHES; none is older than the present row of what the host looks at.
    if fallible and value - max(load(queue + Q_COMPLETED), load(queue + Q_SHADOW), get(queue + Q_SHADOW_FROM) - 1) > WINDOW:
        return hold(queue, HELD_DEVICE)
    parameters = get(queue + Q_PARAMETERS)
    put(parameters, get(queue + Q_RECORD) if fallible or suspect else 0)
    put(parameters + 8, value)
    copy_memory(parameters + 16, arguments, nbytes)
    put(queue + Q_PARAMETER_BYTES, 16 + nbytes)
    if fallible:
        launched = queue + Q_LAUNCHES + 16 * (value % WINDOW)
        put(launched, entry)
        put(launched + 8, site)
        put(queue + Q_LAST_FALLIBLE, value)
    g = parameters + 16 + nbytes
    grid(entry, arguments, g)
    status = call(
        get(device + F_LAUNCH), function, get(g), get(g + 8), get(g + 16), get(g + 24), get(g + 32), 1, 0,
        get(queue + Q_STREAM), 0, queue + Q_EXTRA,
    )  # fmt: skip
    if status != 0:
        driver_failed(queue, device, value, status)
    put(entry + E_LAUNCHED, 1)
    return write_completion(queue, device, value, fallible)


@inner
def is_settled(other, target, reached):
    """Whether a queue has handed an operation on, and it cannot fail any more."""
    return load_fence(other + Q_ISSUED) >= target and load(other + Q_LAST_FALLIBLE) <= reached


@inner
def place_of(other, target, reached):
    """Where the device writes that ``target``, which a queue has handed on, is done."""
    shadowed = reached < load(other + Q_LAST_SHADOW) and target >= load(other + Q_SHADOW_FROM)
    return other + (Q_SHADOW if shadowed else Q_COMPLETED)


@inner
def share_fault(queue, value, other, target, failed):
    """Fail with what is waited for, if that failed or did not run; False while our own failure may still come first.

    Also when the device is to wait: an operation that is behind a failure is settled before it is completed.
    """
    first = covering_fault(other, target)
    if first != 0 and failed == 0:
        if get(queue + Q_LAST_FALLIBLE) > load(queue + Q_COMPLETED):
            return False
        open_fault(queue, value, KIND_DEPENDENCY, other, first, 0, 0)
    return True


@inner
def wait(queue, device, value, other, target, failed):
    """Wait for another queue: on the device once that has handed its operation to the driver and it cannot fail any more.

    A wait holds even behind a failure: what is submitted once that is forgiven relies on the order that it sets up.
    """
    reached = load(other + Q_COMPLETED)
    if reached < target:
        if not is_settled(other, target, reached):
            fetch_min(other + Q_TARGET, target)  # for its watching thread to look at, though nobody is parked there
            store_fence(other + Q_FOLLOWED, 1)
            if is_settled(other, target, reached):
                wake(device)
            if load_fence(other + Q_COMPLETED) < target:
                return hold(queue, HELD_WAIT)
        else:
            if not share_fault(queue, value, other, target, failed):
                return hold(queue, HELD_DEVICE)
            status = call(get(device + F_WAIT), get(queue + Q_STREAM), place_of(other, target, reached), target, 0)
            if status != 0:
                driver_failed(queue, device, value, status)
            return write_completion(queue, device, value, False)
    if not share_fault(queue, value, other, target, failed):
        return hold(queue, HELD_DEVICE)
    return pass_on(queue, device, value)


@inner
def wait_for_event(queue, device, value, event):
    """Wait for what another library's stream had been given when the event was recorded on it."""
    status = call(get(device + F_WAIT_EVENT), get(queue + Q_STREAM), event, 0)
    if status != 0:
        driver_failed(queue, device, value, status)
    return write_completion(queue, device, value, False)


@inner
def pass_gate(queue, device, value, gate):
    """Pass a gate that the host has opened."""
    state = load(gate + G_STATE)
    if state == 0:
        return hold(queue, HELD_GATE)
    if state == 2:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    if not pass_on(queue, device, value):
        return False
    release_gate(gate)
    return True


@inner
def forgiven(queue, device):
    """Begin anew after a failure that is over: the records of it are cleared in stream order."""
    put(queue + Q_FAILED, 0)
    if get(queue + Q_DIRTY) != 0:
        store(queue + Q_STATUS, 0)
        put(queue + Q_DIRTY, 0)
        call(get(device + F_SET32), get(queue + Q_RECORD), 0, 2, get(queue + Q_STREAM))


@inner
def refuse(queue, operation, a, value, completed, failed):
    """Have an operation fail, in its turn, whose stream is being captured: the stream can complete nothing."""
    if completed != value - 1:
        return hold(queue, HELD_DEVICE)
    if not failed:
        open_fault(queue, value, KIND_DRIVER, CAPTURED, 0, 0, 0)
    if operation == OP_GATE:
        release_gate(a)
    complete(queue, value)
    put(queue + Q_HELD, HELD_NOT)
    store(queue + Q_ISSUED, value)
    return True


@inner
def issue(queue, window, operation, a, b, c, arguments, nbytes):
    """Hand the next operation on, if ``window`` has room for it in the driver's hands; False when it must wait, for Q_HELD."""
    device = get(queue + Q_DEVICE)
    value = get(queue + Q_ISSUED) + 1
    if get(queue + Q_BUSY) != 0:
        return hold(queue, HELD_DEVICE)
    completed = progress(queue)
    if value - max(completed, load(queue + Q_SHADOW)) > window:
        return hold(queue, HELD_DEVICE)
    failed = get(queue + Q_FAILED)
    suspect = get(queue + Q_LAST_FALLIBLE) > completed
    if get(queue + Q_FOREIGN) != 0 and is_captured(device, get(queue + Q_STREAM)):
        return refuse(queue, operation, a, value, completed, failed != 0 and value <= load(queue + Q_FORGIVEN))
    if failed != 0 and value > load(queue + Q_FORGIVEN):
        if suspect:
            return hold(queue, HELD_DEVICE)
        forgiven(queue, device)
        failed = 0
    if failed == 0 and value >= get(queue + Q_WITHDRAWN):
        if completed < value - 1:  # what is ahead may fail, or be lost, still, and then this is behind that
            return hold(queue, HELD_DEVICE)
        failed = fail_withdrawn(queue, value)
    if suspect and operation != OP_LAUNCH and operation != OP_WAIT and operation != OP_EVENT:
        return hold(queue, HELD_DEVICE)
    if operation == OP_WAIT:
        done = wait(queue, device, value, a, b, failed)
    elif operation == OP_EVENT:
        done = wait_for_event(queue, device, value, a)
    elif failed != 0:
        done = pass_on(queue, device, value)
        if done and operation == OP_GATE:
            release_gate(a)
    elif operation == OP_LAUNCH:
        done = launch(queue, device, value, a, b, c, arguments, nbytes, suspect)
    elif operation == OP_COPY:
        done = copy(queue, device, value, a, b, c) or hold(queue, HELD_DEVICE)
    elif operation == OP_FILL:
        done = fill(queue, device, value, a, b, arguments, c)
    elif operation == OP_GATE:
        done = pass_gate(queue, device, value, a)
    elif operation == OP_NATIVE:
        call_functions(queue, value, arguments)
        done = write_completion(queue, device, value, False)
    else:
        status = call(get(device + F_HOST), get(queue + Q_STREAM), get(device + D_STAMP), a)
        if status != 0:
            driver_failed(queue, device, value, status)
        done = write_completion(queue, device, value, False)
    if done:
        put(queue + Q_HELD, HELD_NOT)
        if get(queue + Q_BUSY) == 0:
            store(queue + Q_ISSUED, value)
    return done
