"""What Python calls, with the GIL, to append operations; and gates."""

from __future__ import annotations

from aiodev._backends.cpu.executor.ready_queue import make_ready
from aiodev._backends.cpu.executor.waiting import find_node
from aiodev._backends.cpu.executor.worker import release_gate
from aiodev._backends.cpu.layout import (
    C_BYTES,
    C_FIRST,
    CHUNK_BYTES,
    G_REFERENCES,
    G_STATE,
    G_WAITER,
    GATE_BYTES,
    OP_CHUNK,
    OP_GATE,
    OP_KERNEL,
    OP_STAMP,
    OP_WAIT,
    Q_CHUNK,
    Q_OFFSET,
    Q_PENDING,
    Q_SPARE,
    Q_SUBMIT_LOCK,
    Q_SUBMITTED,
    R_A,
    R_ARGUMENTS,
    R_B,
    R_BYTES,
    R_C,
    R_OPERATION,
    RECORD_ALIGNMENT,
)
from aiodev._backends.executor.compile import boolean, bytes_type, exported, inner, int64, void
from aiodev._backends.executor.intrinsics import (
    aligned_alloc,
    bytes_address,
    bytes_length,
    copy_memory,
    exchange,
    fetch_add,
    free,
    get,
    malloc,
    put,
    store,
    store_fence,
)
from aiodev._backends.executor.locking import lock, unlock


@inner
def append(queue, operation, nbytes):
    """Room for a record of ``nbytes``, under the submit lock, which stays held unless memory is out."""
    nbytes = (nbytes + RECORD_ALIGNMENT - 1) // RECORD_ALIGNMENT * RECORD_ALIGNMENT
    lock(queue + Q_SUBMIT_LOCK)
    chunk = get(queue + Q_CHUNK)
    offset = get(queue + Q_OFFSET)
    link = RECORD_ALIGNMENT  # a link to the next chunk always fits behind the last record
    if offset + nbytes + link > get(chunk + C_BYTES):
        needed = C_FIRST + nbytes + link
        fresh = exchange(queue + Q_SPARE, 0)
        if fresh != 0 and get(fresh + C_BYTES) < needed:
            free(fresh)
            fresh = 0
        if fresh == 0:
            room = max(CHUNK_BYTES, needed)
            fresh = aligned_alloc(RECORD_ALIGNMENT, room)
            if fresh == 0:
                unlock(queue + Q_SUBMIT_LOCK)
                raise MemoryError("no memory for the record of another operation")
            put(fresh + C_BYTES, room)
        record = chunk + offset
        put(record + R_OPERATION, OP_CHUNK)
        put(record + R_A, fresh)
        chunk, offset = fresh, C_FIRST
        put(queue + Q_CHUNK, chunk)
    put(queue + Q_OFFSET, offset + nbytes)
    record = chunk + offset
    put(record + R_OPERATION, operation)
    put(record + R_BYTES, nbytes)
    return record


@inner
def publish(queue):
    """Make the record that ``append`` made visible; returns its value."""
    value = get(queue + Q_SUBMITTED) + 1
    store(queue + Q_SUBMITTED, value)
    idle = fetch_add(queue + Q_PENDING, 1) == 0
    unlock(queue + Q_SUBMIT_LOCK)
    if idle:
        make_ready(queue)
    return value


@exported(int64(int64, int64, int64, bytes_type, int64))
def launch(queue, entry, size, arguments, site):
    """Append a kernel; returns its value."""
    nbytes = bytes_length(arguments)
    record = append(queue, OP_KERNEL, R_ARGUMENTS + nbytes)
    put(record + R_A, entry)
    put(record + R_B, size)
    put(record + R_C, site)
    copy_memory(record + R_ARGUMENTS, bytes_address(arguments), nbytes)
    return publish(queue)


@exported(int64(int64, int64, int64))
def wait(queue, other, value):
    """Append a wait for another queue; returns its value."""
    node = find_node(other, queue)
    record = append(queue, OP_WAIT, R_ARGUMENTS)
    put(record + R_A, other)
    put(record + R_B, value)
    put(record + R_C, node)
    return publish(queue)


@exported(int64(int64, int64))
def gate(queue, address):
    """Append a gate; returns its value."""
    record = append(queue, OP_GATE, R_ARGUMENTS)
    put(record + R_A, address)
    return publish(queue)


@exported(int64())
def create_gate():
    """A shut gate, referred to by its queue and by the host."""
    address = malloc(GATE_BYTES)
    if address == 0:
        raise MemoryError("no memory for another gate")
    put(address + G_STATE, 0)
    put(address + G_WAITER, 0)
    put(address + G_REFERENCES, 2)
    return address


@exported(void(int64, boolean))
def open_gate(address, failed):
    """Open a gate, once."""
    store_fence(address + G_STATE, 2 if failed else 1)
    queue = exchange(address + G_WAITER, 0)
    if queue != 0:
        make_ready(queue)
    release_gate(address)


@exported(int64(int64, int64))
def stamp(queue, cell):
    """Append the storing of the time; returns its value."""
    record = append(queue, OP_STAMP, R_ARGUMENTS)
    put(record + R_A, cell)
    return publish(queue)
