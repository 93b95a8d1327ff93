"""Submission: what Python calls, with the GIL, to append operations; and gates."""

from __future__ import annotations

from aiodev._backends.cpu.executor.ready_queue import begin_queue, make_ready
from aiodev._backends.cpu.structs import (
    CHUNK_BYTES,
    OP_BUFFER,
    OP_CHUNK,
    OP_GATE,
    OP_KERNEL,
    OP_STAMP,
    OP_WAIT,
    RECORD_ALIGNMENT,
    BufferRecord,
    Chunk,
    CommandBuffer,
    Entry,
    GateRecord,
    KernelRecord,
    LinkRecord,
    Queue,
    Record,
    Schedule,
    StampRecord,
    WaitRecord,
)
from aiodev._backends.executor.gates import release_gate
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import GATE_FAILED, GATE_OPEN, NEVER, Gate, TraceLog
from aiodev._backends.executor.tracing import claim_slot, describe_trace, reserve_slots
from aiodev._backends.executor.wait_nodes import find_node
from aiodev._backends.executor.withdrawals import forget_withdrawals
from aiodev._core.backend.trace_log import OPERATION_MASK
from aiodev._native.compile import boolean, bytes_type, entry, exported, inner, int64, void
from aiodev._native.fields import WORD, sizeof
from aiodev._native.intrinsics import aligned_alloc, bytes_address, bytes_length, copy_memory, free, get


@inner
def append(queue: Queue, operation: int, nbytes: int) -> Record:
    """Room for a record of ``nbytes``, under the submit lock, which stays held unless memory is out."""
    nbytes = (nbytes + RECORD_ALIGNMENT - 1) // RECORD_ALIGNMENT * RECORD_ALIGNMENT
    lock(queue.submit_lock)
    chunk = queue.chunk
    offset = queue.offset
    link = RECORD_ALIGNMENT  # a link to the next chunk always fits behind the last record
    if offset + nbytes + link > chunk.nbytes:
        needed = sizeof(Chunk) + nbytes + link
        fresh = queue.spare.exchange(None)
        if fresh is not None and fresh.nbytes < needed:
            free(fresh)
            fresh = None
        if fresh is None:
            room = max(CHUNK_BYTES, needed)
            address = aligned_alloc(RECORD_ALIGNMENT, room)
            if address == 0:
                unlock(queue.submit_lock)
                raise MemoryError("no memory for the record of another operation")
            fresh = Chunk(address)
            fresh.nbytes = room
        end = LinkRecord(chunk.address + offset)
        end.mark = OP_CHUNK
        end.chunk = fresh
        chunk, offset = fresh, sizeof(Chunk)
        queue.chunk = chunk
    queue.offset = offset + nbytes
    record = Record(chunk.address + offset)
    log = queue.log
    record.mark = operation if log is None else claim_slot(queue, log, operation)
    record.nbytes = nbytes
    return record


@inner
def publish(queue: Queue) -> int:
    """Make the record that ``append`` made visible; returns its value."""
    value = queue.submitted.value + 1
    queue.submitted.store(value)
    idle = queue.pending.fetch_add(1) == 0
    unlock(queue.submit_lock)
    if idle:
        begin_queue(queue)
    return value


@exported(void(int64, int64, int64))
def recycle(queue: Queue, priority: int, log: TraceLog) -> None:
    """Make an idle queue as good as new. ``log`` may be 0.

    Helpers are expected as before: a service has a stream for each request, and what waits for one waits for the next.
    """
    forget_withdrawals(queue)
    queue.completed.store(0)
    queue.submitted.store(0)
    queue.faults.store(0)
    queue.failed = queue.spent = 0
    queue.time.store(0)
    queue.help_due.store(0)
    queue.target.store(NEVER)
    queue.forgiven.store(NEVER)
    queue.priority = priority
    queue.log = log


@inner
def add_launch(queue: Queue, entry: Entry, size: int, arguments: bytes, site: int) -> int:
    """Append a kernel; returns its value."""
    nbytes = bytes_length(arguments)
    record = KernelRecord(append(queue, OP_KERNEL, sizeof(KernelRecord) + nbytes))
    record.entry = entry
    record.size = size
    record.site = site
    describe_trace(record.mark, entry.address, size)
    copy_memory(record.arguments, bytes_address(arguments), nbytes)
    return publish(queue)


@exported(int64(int64, int64, int64, bytes_type, int64))
def launch(queue: Queue, entry: Entry, size: int, arguments: bytes, site: int) -> int:
    """Append a kernel; returns its value."""
    return add_launch(queue, entry, size, arguments, site)


@entry
def launch_at_once(queue: Queue, entry: Entry, size: int, arguments: bytes, site: int) -> int:
    """The same for native code, which has words, and ``arguments`` as the address of a ``bytes``: see ``launch_codes``."""
    return add_launch(queue, entry, size, arguments, site)


@inner
def add_execution(queue: Queue, buffer: CommandBuffer, patches: int, nbytes: int) -> int:
    """Append the execution of a command buffer, behind the writing of patches, (address, word) each; returns its value."""
    record = BufferRecord(append(queue, OP_BUFFER, sizeof(BufferRecord) + nbytes))
    record.buffer = buffer
    record.count = nbytes // (2 * WORD)
    log = queue.log
    if log is not None and record.mark > OPERATION_MASK and buffer.length > 0:
        reserve_slots(record.mark, log, buffer.length)
    copy_memory(record.patches, patches, nbytes)
    return publish(queue)


@inner
def add_wait(queue: Queue, other: Queue, value: int, is_shared: int) -> int:
    """Append a wait for another queue, whose failure is shared or not; returns its value."""
    node = find_node(other, queue.address)
    record = WaitRecord(append(queue, OP_WAIT, sizeof(WaitRecord)))
    record.other = other
    record.value = value
    record.node = node
    record.is_shared = is_shared
    describe_trace(record.mark, other.address, value)
    return publish(queue)


@exported(int64(int64, int64, bytes_type))
def execute(queue: Queue, buffer: CommandBuffer, patches: bytes) -> int:
    """Append the execution of a command buffer, behind the writing of patches, (address, word) each; returns its value."""
    return add_execution(queue, buffer, bytes_address(patches), bytes_length(patches))


@exported(void(int64, bytes_type, int64))
def execute_schedule(schedule: Schedule, queues: bytes, start: int) -> None:
    """Append the steps of a schedule to queues, which ``queues`` has one behind the other, behind ``start`` of the first.

    What a step waits for was appended before it, and has left its number there.
    """
    lanes = bytes_address(queues)
    for number in range(schedule.count):
        step = schedule.steps[number]
        queue, buffer = Queue(get(lanes + WORD * step.lane)), step.buffer
        if buffer is not None:
            step.value = add_execution(queue, buffer, lanes, 0)
        else:
            awaited = step.awaited
            point = start if awaited is None else awaited.value
            step.value = add_wait(queue, Queue(get(lanes + WORD * step.other)), point, 1)


@exported(int64(int64, int64, int64))
def wait(queue: Queue, other: Queue, value: int) -> int:
    """Append a wait for another queue; returns its value."""
    return add_wait(queue, other, value, 1)


@exported(int64(int64, int64, int64))
def wait_over(queue: Queue, other: Queue, value: int) -> int:
    """Append a wait for another queue, however that comes out; returns its value."""
    return add_wait(queue, other, value, 0)


@exported(int64(int64, int64))
def gate(queue: Queue, gate: Gate) -> int:
    """Append a gate; returns its value."""
    record = GateRecord(append(queue, OP_GATE, sizeof(GateRecord)))
    record.gate = gate
    return publish(queue)


@exported(void(int64, boolean))
def open_gate(gate: Gate, failed: bool) -> None:
    """Open a gate, once."""
    gate.state.store_fence(GATE_FAILED if failed else GATE_OPEN)
    queue = gate.waiter.exchange(None)
    if queue is not None:
        make_ready(Queue(queue))
    release_gate(gate)


@exported(int64(int64, int64))
def stamp(queue: Queue, cell: int) -> int:
    """Append the storing of the time; returns its value."""
    record = StampRecord(append(queue, OP_STAMP, sizeof(StampRecord)))
    record.cell = cell
    return publish(queue)
