"""Rules about tracing: what an executor notes of its operations while it is asked to."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiodev._core.backend.interface import Command
from aiodev._core.backend.trace_log import (
    BEGUN,
    BUFFER,
    COMMAND,
    ENDED,
    FATE_DONE,
    FATE_FAILED,
    FATE_SHIFT,
    FATE_SKIPPED,
    FATE_WITHDRAWN,
    FATES,
    FIRST,
    GATE,
    KERNEL,
    OPERATION_MASK,
    QUEUE,
    SECOND,
    SLOT_WORDS,
    STAMP,
    SUBMITTED,
    VALUE,
    WAIT,
    WHAT,
    TraceLog,
)
from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Workbench

__all__ = ["RULES"]

_FATE_MASK = len(FATES) - 1
_PAIR = struct.Struct("<2q")


@contextmanager
def _traced(bench: Workbench, room: int = 1000) -> Iterator[TraceLog]:
    if not bench.backend.capabilities.tracing:
        raise NotApplicable("capabilities.tracing is false")
    log = TraceLog(room)
    bench.executor.trace(log)
    try:
        yield log
    finally:
        bench.executor.trace(None)


def _slots(log: TraceLog) -> list[list[int]]:
    words = log.slots(0, log.claimed)
    return [words[place : place + SLOT_WORDS].tolist() for place in range(0, len(words), SLOT_WORDS)]


@rule
def traces_each_operation_once(bench: Workbench) -> None:
    """While a log is given, each operation is noted once: what it is, when it was submitted, begun and ended, in order."""
    with _traced(bench) as log:
        one, two = bench.lanes(2)
        cells, cell, began = bench.chain(7, 2), bench.host(8), time.perf_counter_ns()
        before = log.claimed
        value = one.copy_word(cells[1], cells[0])
        two.wait(one, value)
        _, gate = two.gate()
        bench.executor.stamp(two.number, ctypes.addressof(cell))
        bench.open(gate)
        two.finish()
        ended = time.perf_counter_ns()
    slots = _slots(log)[before:]
    seen = sorted((slot[QUEUE], slot[VALUE], slot[WHAT] & OPERATION_MASK) for slot in slots)
    expected = [(one.number, value, KERNEL), (two.number, 1, WAIT), (two.number, 2, GATE), (two.number, 3, STAMP)]
    assert seen == sorted(expected), f"noted are {seen}, not {sorted(expected)}"
    wait = next(slot for slot in slots if slot[WHAT] & OPERATION_MASK == WAIT)
    assert (wait[FIRST], wait[SECOND]) == (one.number, value), f"the wait is for {wait[FIRST]}, {wait[SECOND]}"
    for slot in slots:
        times = [began, slot[SUBMITTED], slot[BEGUN], slot[ENDED], ended]
        assert times == sorted(times), f"times of operation {slot[VALUE]} are not in order: {times}"
        assert slot[WHAT] >> FATE_SHIFT & _FATE_MASK == FATE_DONE, f"operation {slot[VALUE]} is not noted as done"


@rule
def traces_operations_of_a_queue_apart(bench: Workbench) -> None:
    """The times of a queue's operations do not overlap, and what is awaited has ended in the log."""
    with _traced(bench, 3000) as log:
        lane, chain = bench.lane(), bench.chain(3, 1000)
        before = log.claimed
        lane.reach(lane.copy_chain(chain))
        slots = [slot for slot in _slots(log)[before:] if slot[QUEUE] == lane.number]
    assert [slot[VALUE] for slot in slots] == list(range(1, 1000)), "not every operation is noted, in order"
    for slot, following in zip(slots, slots[1:], strict=False):
        assert 0 < slot[BEGUN] <= slot[ENDED] <= following[BEGUN], f"{slot} and {following} overlap"


@rule
def traces_how_operations_come_out(bench: Workbench) -> None:
    """A failure, what does not run behind it, and what was withdrawn are noted as such; what runs afterwards as done."""
    with _traced(bench) as log:
        lane, cells = bench.lane(), bench.chain(7, 2)
        before = log.claimed
        lane.fail()
        lane.copy_word(cells[1], cells[0])
        lane.finish()
        lane.forgive()
        _, gate = lane.gate()
        withdrawn = lane.copy_word(cells[1], cells[0])
        assert lane.withdraw(withdrawn, withdrawn) == withdrawn, "what is behind a shut gate is not withdrawn"
        lane.copy_word(cells[1], cells[0])
        bench.open(gate)
        lane.finish()
    fates = [slot[WHAT] >> FATE_SHIFT & _FATE_MASK for slot in _slots(log)[before:] if slot[QUEUE] == lane.number]
    expected = [FATE_FAILED, FATE_SKIPPED, FATE_DONE, FATE_WITHDRAWN, FATE_DONE]
    assert fates == expected, f"noted are {fates}, not {expected}"


@rule
def traces_what_was_submitted_meanwhile(bench: Workbench) -> None:
    """What was submitted before or after is not noted; what was submitted meanwhile is, though it ends later."""
    lane, cells = bench.lane(), bench.chain(7, 2)
    _, gate = lane.gate()
    with _traced(bench) as log:
        value = lane.copy_word(cells[1], cells[0])
    lane.copy_word(cells[1], cells[0])
    assert [slot[ENDED] for slot in _slots(log)] == [0], "an operation behind a shut gate is noted as over"
    bench.open(gate)
    lane.finish()
    (slot,) = _slots(log)
    assert slot[VALUE] == value and slot[ENDED] > 0, f"noted is {slot}"


@rule
def traces_no_more_than_there_is_room_for(bench: Workbench) -> None:
    """A log that is full is not written beyond its end, and counts what it has no room for."""
    with _traced(bench, 2) as log:
        lane, cells = bench.lane(), bench.chain(7, 2)
        claimed = log.claimed
        for _ in range(5):
            lane.copy_word(cells[1], cells[0])
        lane.finish()
        assert log.claimed - claimed == 5, f"{log.claimed - claimed} of 5 operations were counted"
    assert len(_slots(log)) == 2


@rule
def traces_commands_as_they_run(bench: Workbench) -> None:
    """Each command of an execution is noted each time that it runs, within the time of that, with its site."""
    if not bench.executor.has_buffers:
        raise NotApplicable("there are no command buffers")
    if not bench.backend.capabilities.tracing:
        raise NotApplicable("capabilities.tracing is false")
    lane, cells, left = bench.lane(), bench.chain(7, 2), bench.cells([1, 1])
    commands = [
        Command("copy", 0, 8, _PAIR.pack(cells[1], cells[0]), -11),
        Command("branch", 0, 5, struct.pack("<qQ", left[0], (1 << 64) - 1)),
        Command("fill", 0, 1, struct.pack("<qq", cells[1], 3), -12),
        Command("copy", 0, 8, _PAIR.pack(left[0], left[1]), -13),
        Command("branch", 0, 1, struct.pack("<qq", 0, 0)),
    ]
    buffer, _ = bench.executor.create_buffer(0, commands)
    _, gate = lane.gate()
    bench.executor.execute(lane.number, buffer, _PAIR.pack(left[1], 0))
    with _traced(bench) as log:
        before = log.claimed
        value = bench.executor.execute(lane.number, buffer, b"".join(_PAIR.pack(left[i], 1 - i) for i in range(2)))
        bench.open(gate)
        lane.reach(value)
        slots = [slot for slot in _slots(log)[before:] if slot[QUEUE] == lane.number]
    execution, *own = slots
    assert execution[WHAT] & OPERATION_MASK == BUFFER and execution[VALUE] == value, f"the execution is noted as {execution}"
    seen = [(slot[WHAT] & OPERATION_MASK, slot[VALUE], slot[FIRST], slot[SECOND]) for slot in own]
    expected = [(COMMAND, value, site, size) for site, size in ((-11, 8), (-12, 1), (-13, 8))]
    assert seen == expected, f"noted are {seen}, not {expected}"
    times = [execution[SUBMITTED], execution[BEGUN], *(slot[at] for slot in own for at in (BEGUN, ENDED)), execution[ENDED]]
    assert times == sorted(times) and times[0] > 0, f"times are not in order: {times}"
    assert all(slot[WHAT] >> FATE_SHIFT & _FATE_MASK == FATE_DONE for slot in slots), "not all are noted as done"
    bench.executor.destroy_buffer(buffer)


@rule
def traces_commands_of_each_execution(bench: Workbench) -> None:
    """Commands are noted with their own execution, as far as there is room; those of one that was withdrawn are not."""
    if not bench.executor.has_buffers:
        raise NotApplicable("there are no command buffers")
    lane, cells = bench.lane(), bench.chain(7, 4)
    copies = [Command("copy", 0, 8, _PAIR.pack(cells[k + 1], cells[k]), -11 - k) for k in range(3)]
    buffer, _ = bench.executor.create_buffer(0, copies)
    for room, is_withdrawn, expected in ((6, False, (3, 0)), (20, False, (3, 3)), (20, True, (0, 3))):
        with _traced(bench, room) as log:
            _, gate = lane.gate()
            executions = [bench.executor.execute(lane.number, buffer, b"") for _ in range(2)]
            if is_withdrawn:
                assert lane.withdraw(executions[0], executions[0]) == executions[0]
            bench.open(gate)
            lane.finish()
            slots = _slots(log)
        sites = [
            [slot[FIRST] for slot in slots if slot[WHAT] & OPERATION_MASK == COMMAND and slot[VALUE] == value]
            for value in executions
        ]
        assert sites == [[-11, -12, -13][:count] for count in expected], f"with room for {room} the commands {sites} are noted"
        whole = [slot[VALUE] for slot in slots if slot[WHAT] & OPERATION_MASK == BUFFER]
        assert whole == executions, f"with room for {room} the executions {whole} are noted, not {executions}"
    bench.executor.destroy_buffer(buffer)


RULES = (
    traces_each_operation_once,
    traces_operations_of_a_queue_apart,
    traces_how_operations_come_out,
    traces_what_was_submitted_meanwhile,
    traces_no_more_than_there_is_room_for,
    traces_commands_as_they_run,
    traces_commands_of_each_execution,
)
