"""Workers: running a queue's operations in order (invariants 1 to 3), and a worker's life."""

from __future__ import annotations

from aiodev._backends.cpu.executor.coalescing import ring_ahead, ring_held, ring_in_time
from aiodev._backends.cpu.executor.core_time import offer_core_in_turn, watch_core
from aiodev._backends.cpu.executor.fairness import begin_turn, charge_spent, depart, is_ahead, others_wait, spend
from aiodev._backends.cpu.executor.parallel_for import average, join_range, known_cost, run_chunk, run_kernel, time_left
from aiodev._backends.cpu.executor.ready_queue import (
    find_work,
    has_place,
    look_around,
    outranked,
    pop_sleeper,
    put_back,
    send_another,
    wake_worker,
)
from aiodev._backends.cpu.executor.waiting import complete
from aiodev._backends.cpu.structs import (
    OP_BRANCH,
    OP_BUFFER,
    OP_CHUNK,
    OP_COMMAND,
    OP_GATE,
    OP_KERNEL,
    OP_SIGNAL,
    OP_WAIT,
    BranchRecord,
    BufferRecord,
    Chunk,
    CommandBuffer,
    Device,
    GateRecord,
    Helper,
    KernelRecord,
    LinkRecord,
    Queue,
    Record,
    SignalRecord,
    StampRecord,
    WaitRecord,
    Worker,
)
from aiodev._backends.cpu.tuning import COMMAND, LOOK, LOOK_EVERY, OPERATION, SHORT_COMMAND, SLICE, TRUSTED
from aiodev._backends.executor.faults import covering_fault, open_fault
from aiodev._backends.executor.gates import release_gate
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import GATE_FAILED, GATE_SHUT, KIND_DEPENDENCY, KIND_GATE, KIND_KERNEL, Gate
from aiodev._backends.executor.tracing import begin_command, begin_trace, end_trace
from aiodev._backends.executor.wait_nodes import arm_node, ring
from aiodev._backends.executor.withdrawals import fail_withdrawn
from aiodev._core.backend.trace_log import OPERATION_MASK
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import free, get, now, put


@inner
def finish(device: Device, worker: Worker | None, queue: Queue, record: Record, value: int) -> bool:
    """Complete the operation at the cursor; False when the queue went idle, and this thread holds it no more (invariant 3).

    A command is no operation: the next one is at the cursor then, but for the end, or where it failed, of a command buffer,
    which complete what executes that (invariant 9).

    ``worker`` is None for a helper. Sleeping waiters are woken last, or later still (``coalescing.py``): that may cost this
    thread its core, and if it still held the queue then, what is submitted next would wait with it.
    """
    status = queue.range_status.value
    if status != 0:
        queue.range_status.value = 0
        excinfo = queue.range_excinfo
        launch = KernelRecord(record)
        open_fault(queue, value, KIND_KERNEL, excinfo, launch.site, launch.entry.address, status)
    if record.mark & OPERATION_MASK >= OP_COMMAND:
        if queue.command != 0:
            end_command(queue, value)
        if status == 0 and record.mark == OP_COMMAND:  # a range that others were in
            queue.cursor = Record(record.address + record.nbytes)
            return True
        if status == 0:
            note_duration(queue.caller.buffer)
        record = queue.caller
    if record.mark > OPERATION_MASK:
        end_trace(queue, value, record.mark)
    queue.cursor = Record(record.address + record.nbytes)
    owed = queue.owed + 1
    queue.owed = owed
    spend(queue, OPERATION)
    more = owed < queue.known
    if more and not may_hold(queue):
        queue.begun.store(value + 1)  # the counter's fence, which comes next, is this one's, too (invariant 8)
    bell = complete(queue, value, worker)
    if more:
        ring_in_time(device, worker, bell, False)
        return True
    charge_spent(device, worker, queue)
    known = queue.pending.load()
    looks = known == owed and bell is None and has_place(device, device.asleep)
    if looks and worker is not None and look_around(device, worker, queue, owed):
        known = queue.pending.load()
        if known > owed:
            worker.idle = 0
            send_another(device)
    if known > owed:
        queue.known = known
        take_up(queue)
        ring_in_time(device, worker, bell, False)
        return True
    queue.owed = 0
    queue.known = 0
    home, priority = queue.device, queue.priority
    left = queue.pending.fetch_add(-owed) - owed
    if left == 0:
        depart(home, priority)
        ring_in_time(device, worker, bell, True)
        return False
    ring_in_time(device, worker, bell, False)
    queue.known = left
    take_up(queue)
    return True


@inner
def may_hold(queue: Queue) -> bool:
    """Whether what is next may hold the queue, and so begins when it is passed (invariant 8)."""
    operation = next_record(queue).mark & OPERATION_MASK
    return OP_WAIT <= operation <= OP_GATE


@inner
def take_up(queue: Queue) -> None:
    """Announce that a queue that this thread has taken begins its next operation (invariant 8)."""
    if not may_hold(queue):
        queue.begun.store_fence(queue.completed.value + 1)


@inner
def hand_back(queue: Queue, waited_for: bool) -> None:
    """Make a queue that this thread holds ready again; its next operation has not begun, but for that of a command buffer."""
    within = queue.cursor.mark & OPERATION_MASK >= OP_COMMAND
    queue.begun.store(queue.completed.value + (1 if within else 0))
    put_back(queue, waited_for)


@inner
def next_record(queue: Queue) -> Record:
    """The record at the cursor. Where a chunk of records ends that is in the next one, and the submitter may reuse the old."""
    record = queue.cursor
    if record.mark != OP_CHUNK:
        return record
    chunk = LinkRecord(record).chunk
    first = Record(chunk.address + sizeof(Chunk))
    drained = queue.open_chunk
    queue.open_chunk = chunk
    queue.cursor = first
    surplus = queue.spare.exchange(drained)
    if surplus is not None:
        free(surplus)
    return first


@inner
def pass_wait(device: Device, worker: Worker | None, queue: Queue, record: WaitRecord, value: int, failed: int) -> bool:
    """Pass a wait for another queue; False when the queue is held, and this thread holds it no more.

    A wait holds even behind a failure: what is submitted once that is forgiven relies on the order that it sets up.
    """
    other = record.other
    target = record.value
    if other.completed.load() < target:
        charge_spent(device, worker, queue)
        priority = queue.priority
        queue.begun.store(value - 1)
        node = record.node
        other.visitors.fetch_add(1)  # both may be done with, and wait for each other anew, before this thread looks again
        is_held = arm_node(other, node, target)
        other.visitors.fetch_add(-1)
        if is_held:
            depart(device, priority)
            return False
    queue.begun.store_fence(value)
    if failed == 0:
        failed = fail_withdrawn(queue, value)
    first = covering_fault(other, target) if record.is_shared != 0 else 0
    if first != 0 and failed == 0:
        open_fault(queue, value, KIND_DEPENDENCY, other.address, first, 0, 0)
    return True


@inner
def pass_gate(device: Device, worker: Worker | None, queue: Queue, gate: Gate, value: int, failed: int) -> bool:
    """Pass a gate; False when the queue is held, and this thread holds it no more. Behind a failure it holds nothing."""
    state = gate.state.load()
    if failed == 0 and state == GATE_SHUT:
        charge_spent(device, worker, queue)
        priority = queue.priority
        queue.begun.store(value - 1)
        gate.references.fetch_add(1)  # it may be opened, passed by another worker and let go of before this one looks again
        gate.waiter.store_fence(queue)
        state = gate.state.load_fence()
        is_held = state == GATE_SHUT or gate.waiter.exchange(None) is None
        release_gate(gate)
        if is_held:
            depart(device, priority)
            return False
    queue.begun.store_fence(value)
    if failed == 0:
        failed = fail_withdrawn(queue, value)
    if state == GATE_FAILED and failed == 0:
        open_fault(queue, value, KIND_GATE, 0, 0, 0, 0)
    release_gate(gate)
    return True


@inner
def enter(queue: Queue, record: BufferRecord) -> None:
    """Begin with a command buffer: write its patches, and go to its first command."""
    queue.caller = record
    buffer, time = record.buffer, now()
    buffer.begun = time
    if buffer.duration != 0:  # who waits spins until then, if that is soon
        queue.ends.store(time + buffer.duration)
    place = record.patches
    for _ in range(record.count):
        put(place.value, place[1].value)
        place = place[2]
    queue.cursor = buffer.commands


@inner
def note_duration(buffer: CommandBuffer) -> None:
    """Note that an execution of a command buffer is over, whatever others took of its time."""
    buffer.duration = average(buffer.duration, now() - buffer.begun)


@inner
def run_commands(device: Device, worker: Worker | None, helper: Helper | None, queue: Queue, value: int) -> bool:
    """Run commands from the cursor on, all of them unless the queue gives way to others or one is shared; as for ``step``.

    A helper runs the first one, which it has looked at, and short ones behind it.
    """
    record = queue.cursor
    if record.mark == OP_COMMAND:
        if not run_kernel(device, worker, helper, queue, KernelRecord(record)):
            return False
        record = pass_command(queue, record)
    while record.mark <= OP_SIGNAL and queue.range_status.value == 0:
        if turn_is_over(device, worker, queue):
            hand_back(queue, helper is not None and helper.descriptor == -1)
            return False
        if record.mark != OP_COMMAND:
            if helper is not None and helper.left < COMMAND:
                helper.left = min(time_left(helper, now()), LOOK_EVERY)
                if helper.left < COMMAND:
                    return True
            if helper is not None:
                helper.left -= COMMAND
            if record.mark == OP_BRANCH:
                record = pass_branch(queue, BranchRecord(record))
            else:
                record = pass_signal(worker, queue, SignalRecord(record))
            continue
        if helper is not None:
            if not run_short(helper, queue, KernelRecord(record)):
                return True
        elif not run_kernel(device, worker, helper, queue, KernelRecord(record)):
            return False
        record = pass_command(queue, record)
    return finish(device, worker, queue, record, value)


@inner
def run_traced(device: Device, worker: Worker | None, helper: Helper | None, queue: Queue, value: int) -> bool:
    """Run the command at the cursor, of an execution that is traced, and note when; as for ``step``.

    It is a function of its own since a look at whether to note anything would cost a tenth of an empty command.
    """
    record = queue.cursor
    if record.mark == OP_COMMAND:
        launch = KernelRecord(record)
        queue.command = begin_command(queue, queue.caller.mark, launch.site, launch.size)
        if not run_kernel(device, worker, helper, queue, launch):
            return False
        if queue.range_status.value == 0:
            if queue.command != 0:
                end_command(queue, value)
            pass_command(queue, record)
            return True
    elif record.mark == OP_BRANCH:
        pass_branch(queue, BranchRecord(record))
        return True
    elif record.mark == OP_SIGNAL:
        pass_signal(worker, queue, SignalRecord(record))
        return True
    return finish(device, worker, queue, record, value)


@inner
def end_command(queue: Queue, value: int) -> None:
    """Note that a command that has a slot is done, and how it came out."""
    end_trace(queue, value, queue.command)
    queue.command = 0


@inner
def pass_command(queue: Queue, record: Record) -> Record:
    """Move the cursor on behind a command, unless that has failed; gives what is at the cursor."""
    if queue.range_status.value != 0:
        return record
    following = Record(record.address + record.nbytes)
    queue.cursor = following
    spend(queue, COMMAND)
    return following


@inner
def pass_branch(queue: Queue, branch: BranchRecord) -> Record:
    """Move the cursor to where a branch goes; gives what is there."""
    mask = branch.mask
    goes_on = mask != 0 and get(branch.condition) & mask != 0
    following = Record(branch.address + (branch.nbytes if goes_on else branch.target))
    queue.cursor = following
    spend(queue, COMMAND)
    return following


@inner
def pass_signal(worker: Worker | None, queue: Queue, signal: SignalRecord) -> Record:
    """Complete the next position of the signalled queue, and wake who waits for that; gives what is at the cursor."""
    following = Record(signal.address + signal.nbytes)
    queue.cursor = following
    spend(queue, COMMAND)
    signalled = signal.queue
    value = signalled.completed.value + 1
    if value <= signal.bound:
        ring(complete(signalled, value, worker))
    return following


@inner
def run_short(helper: Helper, queue: Queue, record: KernelRecord) -> bool:
    """Run a command that is known to be short, in a helper; False for another, and when the helper's time is over."""
    cost, size = known_cost(record), record.size
    duration = COMMAND + cost * size // 1000
    if cost == 0 or duration > SHORT_COMMAND:
        return False
    if helper.left < duration:
        helper.left = min(time_left(helper, now()), LOOK_EVERY)
        if helper.left < duration:
            return False
    helper.left -= duration
    run_chunk(queue, record, 0, size)
    return True


@inner
def step(device: Device, worker: Worker | None, helper: Helper | None, queue: Queue) -> bool:
    """Run the operation at the cursor; False when the queue is idle, held or a range, and this thread holds it no more."""
    record = next_record(queue)
    operation = record.mark & OPERATION_MASK
    if record.mark != operation:
        begin_trace(record.mark)
    value = queue.completed.value + 1
    failed = queue.failed
    if failed != 0 and value > queue.forgiven.load():
        queue.failed = 0
        failed = 0
    if failed == 0 and value >= queue.withdrawn.load_fence():
        failed = fail_withdrawn(queue, value)
    if operation == OP_WAIT:
        if not pass_wait(device, worker, queue, WaitRecord(record), value, failed):
            return False
    elif operation == OP_GATE:
        if not pass_gate(device, worker, queue, GateRecord(record).gate, value, failed):
            return False
    elif failed != 0:
        pass  # it does not run
    elif operation == OP_KERNEL:
        launch = KernelRecord(record)
        if worker is not None and worker.bell is not None:
            ring_ahead(worker, (known_cost(launch) * launch.size + 999) // 1000)
        if not run_kernel(device, worker, helper, queue, launch):
            return False
    elif operation >= OP_BUFFER:
        ring_held(worker)
        if operation == OP_BUFFER:
            enter(queue, BufferRecord(record))
            if helper is not None:  # it looks whether the first command suits it
                return True
        if queue.caller.mark > OPERATION_MASK:
            return run_traced(device, worker, helper, queue, value)
        return run_commands(device, worker, helper, queue, value)
    else:
        put(StampRecord(record).cell, now())
    return finish(device, worker, queue, record, value)


@inner
def has_taken_longer(device: Device, queue: Queue) -> bool:
    """Whether the served queue may have taken longer than is thought, and somebody waits for that."""
    if not others_wait(device, queue):
        return False
    begun, trusted = queue.charged_at, queue.trusted
    if begun == 0:
        return True
    if trusted <= 0:
        if now() - begun > LOOK:
            return True
        trusted = TRUSTED
    queue.trusted = trusted - 1
    return False


@inner
def turn_is_over(device: Device, worker: Worker | None, queue: Queue) -> bool:
    """Whether the served queue gives way to another one, or to nothing: its worker is beyond the limit, and is to sleep."""
    if outranked(device, queue):
        return True
    if queue.spent < LOOK and not has_taken_longer(device, queue):
        return False
    charge_spent(device, worker, queue)
    if worker is not None and not has_place(device, device.asleep):
        return True
    offer_core_in_turn(worker, None, queue, now())
    if is_ahead(device, queue, SLICE):
        return True
    if queue.charged_at == 0:
        begin_turn(device, worker, queue)
    return False


@inner
def drain(device: Device, worker: Worker | None, queue: Queue) -> None:
    """Run a queue's operations until it is idle, held or open as a range, or gives way to others."""
    begin_turn(device, worker, queue)
    take_up(queue)
    while not turn_is_over(device, worker, queue):
        if not step(device, worker, None, queue):
            return
    hand_back(queue, False)


@exported(void(int64, int64), nogil=True)
def work(device: Device, worker: Worker) -> None:
    """A worker's life, from its thread's start to the device's stop. Runs without the GIL throughout."""
    watch_core(worker)
    while True:
        work = find_work(device, worker)
        if work == 0:
            break
        queue = Queue(work & ~1)
        if work & 1:
            ring_held(worker)
            if not join_range(device, worker, None, queue):
                continue
            if not finish(device, worker, queue, queue.cursor, queue.completed.value + 1):
                continue
            if queue.device != device:
                hand_back(queue, False)
                continue
        drain(device, worker, queue)
    device.left.fetch_add(1)


@exported(void(int64, int64, int64))
def limit_workers(device: Device, surplus: int, reserve: int) -> None:
    """Have so many workers sleep, and the reserve; a sleeper is woken if work waits for one that may be awake now.

    It wakes the next, as whoever takes work does while more waits.
    """
    lock(device.lock)
    device.surplus, device.reserve = surplus, reserve
    sleeper: Worker | None = None
    if device.pending.value != 0:
        sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@exported(void(int64))
def stop(device: Device) -> None:
    """Ask the workers to return, and wake all that sleep."""
    lock(device.lock)
    device.stop.value = 1
    sleeper = device.sleepers
    device.sleepers = None
    device.lookout.store(None)
    unlock(device.lock)
    while sleeper is not None:
        following = sleeper.next
        wake_worker(sleeper)
        sleeper = following
