"""Handing a queue's operations to the driver, in order, as far as they may go (see the invariants in the package)."""

from __future__ import annotations

from aiodev._backends.cpu.layout import (
    G_STATE,
    Q_COMPLETED,
    Q_FAILED,
    Q_FORGIVEN,
    Q_TARGET,
)
from aiodev._backends.cpu.native.faults import covering_fault, open_fault
from aiodev._backends.cpu.native.intrinsics import (
    compare_exchange,
    copy_memory,
    fetch_min,
    get,
    load,
    load_fence,
    put,
    store,
    store_fence,
)
from aiodev._backends.cpu.native.running import release_gate
from aiodev._backends.cuda.layout import (
    D_CONTEXT,
    D_INDEX,
    D_LOST,
    D_NEXT,
    D_STAMP,
    E_BLOCK,
    E_FALLIBLE,
    E_FUNCTIONS,
    E_GRID,
    E_NDIM,
    E_TEAM,
    F_COPY,
    F_COPY_PEER,
    F_EVENT_DESTROY,
    F_HOST,
    F_LAUNCH,
    F_POINTER,
    F_SET2D,
    F_SET8,
    F_SET16,
    F_SET32,
    F_WAIT,
    F_WAIT_EVENT,
    F_WRITE,
    HELD_DEVICE,
    HELD_GATE,
    HELD_NOT,
    HELD_WAIT,
    KIND_DEPENDENCY,
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
    Q_WINDOW,
    WINDOW,
)
from aiodev._backends.cuda.native.calling import call_functions
from aiodev._backends.cuda.native.compile import inner
from aiodev._backends.cuda.native.driver import call, word_here
from aiodev._backends.cuda.native.staging import stage
from aiodev._backends.cuda.native.state import complete, driver_failed, progress, wake

_MEMORY_TYPE, _ORDINAL = 2, 9  #: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_HOST = 1  #: CU_MEMORYTYPE_HOST; the device's are higher
_TAKEN_AT_ONCE = 64 << 10  #: bytes that the driver copies from ordinary memory into its own before the call returns


@inner
def hold(queue, reason):
    """Leave the operation for later."""
    put(queue + Q_HELD, reason)
    return False


@inner
def write_completion(queue, device, value, shadowed):
    """Have the stream say that operation ``value`` is done, once it is: to the timeline, or for the host to look at first."""
    stream = get(queue + Q_STREAM)
    completed = load(queue + Q_COMPLETED)
    last = get(queue + Q_LAST_SHADOW)
    place = queue + Q_COMPLETED
    if shadowed or completed < last:
        if completed >= last:
            store(queue + Q_SHADOW_FROM, value)  # in this order, for those who wait for us
        store(queue + Q_LAST_SHADOW, value)
        place = queue + Q_SHADOW
    status = call(get(device + F_WRITE), stream, place, value, 0)
    if status != 0:
        # Whatever the status: an operation whose completion nobody would learn of must not be waited for.
        compare_exchange(device + D_LOST, 0, status)


@inner
def pass_on(queue, device, value):
    """Complete operation ``value``, which needs nothing of the device, in its turn."""
    if load(queue + Q_COMPLETED) == value - 1:
        complete(queue, value)
    else:
        write_completion(queue, device, value, False)
    return True


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
    write_completion(queue, device, value, fallible)
    return True


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
def copy(queue, device, value, dst, src, nbytes):
    """Copy; ordinary host memory goes through page-locked memory: the driver's, or in a thread of its own."""
    if nbytes <= 0:
        return pass_on(queue, device, value)
    to, origin = kind_of(device, dst), kind_of(device, src)
    # The driver takes a small source at once, without waiting for the stream. That is our turn only if nothing is ahead.
    taken = origin == 0 and to > _HOST and nbytes <= _TAKEN_AT_ONCE and load(queue + Q_COMPLETED) == value - 1
    if (to == 0 or origin == 0) and not taken:
        put(queue + Q_BUSY, 1)
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
    write_completion(queue, device, value, False)
    return True


@inner
def fill(queue, device, value, dst, count, pattern, nbytes):
    """Write a pattern; what is wider than the driver's 4 bytes goes column by column."""
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
            for column in range(nbytes // 4):
                word = (low if column < 2 else high) >> (32 * (column & 1)) & 0xFFFFFFFF
                found = call(get(device + F_SET2D), dst + 4 * column, nbytes, word, 1, count, stream)
                status = found if status == 0 else status
    if status != 0:
        driver_failed(queue, device, value, status)
    write_completion(queue, device, value, False)
    return True


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
            write_completion(queue, device, value, False)
            return True
    if not share_fault(queue, value, other, target, failed):
        return hold(queue, HELD_DEVICE)
    return pass_on(queue, device, value)


@inner
def wait_for_event(queue, device, value, event):
    """Wait for what another library's stream had been given when the event was recorded on it; the event is used up."""
    status = call(get(device + F_WAIT_EVENT), get(queue + Q_STREAM), event, 0)
    call(get(device + F_EVENT_DESTROY), event)
    if status != 0:
        driver_failed(queue, device, value, status)
    write_completion(queue, device, value, False)
    return True


@inner
def pass_gate(queue, device, value, gate):
    """Pass a gate that the host has opened."""
    state = load(gate + G_STATE)
    if state == 0:
        return hold(queue, HELD_GATE)
    if state == 2:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    release_gate(gate)
    return pass_on(queue, device, value)


@inner
def forgiven(queue, device):
    """Begin anew after a failure that is over: the records of it are cleared in stream order."""
    put(queue + Q_FAILED, 0)
    if get(queue + Q_DIRTY) != 0:
        store(queue + Q_STATUS, 0)
        put(queue + Q_DIRTY, 0)
        call(get(device + F_SET32), get(queue + Q_RECORD), 0, 2, get(queue + Q_STREAM))


@inner
def issue(queue, operation, a, b, c, arguments, nbytes):
    """Hand the next operation on; False when it must wait, with the reason in Q_HELD."""
    device = get(queue + Q_DEVICE)
    value = get(queue + Q_ISSUED) + 1
    if get(queue + Q_BUSY) != 0:
        return hold(queue, HELD_DEVICE)
    completed = progress(queue)
    if value - max(completed, load(queue + Q_SHADOW)) > get(queue + Q_WINDOW):
        return hold(queue, HELD_DEVICE)
    failed = get(queue + Q_FAILED)
    suspect = get(queue + Q_LAST_FALLIBLE) > completed
    if failed != 0 and value > load(queue + Q_FORGIVEN):
        if suspect:
            return hold(queue, HELD_DEVICE)
        forgiven(queue, device)
        failed = 0
    if suspect and operation != OP_LAUNCH and operation != OP_WAIT and operation != OP_EVENT:
        return hold(queue, HELD_DEVICE)
    if operation == OP_WAIT:
        done = wait(queue, device, value, a, b, failed)
    elif operation == OP_EVENT:
        done = wait_for_event(queue, device, value, a)
    elif failed != 0:
        if operation == OP_GATE:
            release_gate(a)
        done = pass_on(queue, device, value)
    elif operation == OP_LAUNCH:
        done = launch(queue, device, value, a, b, c, arguments, nbytes, suspect)
    elif operation == OP_COPY:
        done = copy(queue, device, value, a, b, c)
    elif operation == OP_FILL:
        done = fill(queue, device, value, a, b, arguments, c)
    elif operation == OP_GATE:
        done = pass_gate(queue, device, value, a)
    elif operation == OP_NATIVE:
        call_functions(queue, value, arguments)
        write_completion(queue, device, value, False)
        done = True
    else:
        status = call(get(device + F_HOST), get(queue + Q_STREAM), get(device + D_STAMP), a)
        if status != 0:
            driver_failed(queue, device, value, status)
        write_completion(queue, device, value, False)
        done = True
    if done:
        put(queue + Q_HELD, HELD_NOT)
        if get(queue + Q_BUSY) == 0:
            store(queue + Q_ISSUED, value)
    return done
