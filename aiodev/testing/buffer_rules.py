"""Rules about command buffers, for executors that have them."""

from __future__ import annotations

import struct

from aiodev._core.backend.interface import COMPLETED, Command, ScheduleStep
from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Cells, Lane, Workbench

__all__ = ["RULES"]

_PAIR = struct.Struct("<2q")


def _copies(bench: Workbench, cells: Cells) -> tuple[int, list[int]]:
    """A buffer that copies each cell to the next."""
    if not bench.executor.has_buffers:
        raise NotApplicable("there are no command buffers")
    commands = [Command("copy", 0, 8, _PAIR.pack(cells[i + 1], cells[i])) for i in range(len(cells) - 1)]
    return bench.executor.create_buffer(0, commands)


def _execute(bench: Workbench, lane: Lane, buffer: int, *patches: tuple[int, int]) -> int:
    return bench.executor.execute(lane.number, buffer, b"".join(_PAIR.pack(*patch) for patch in patches))


@rule
def commands_run_in_order(bench: Workbench) -> None:
    """The commands of a buffer run one after the other, as one operation of the queue, each time that it is executed."""
    lane, chain, seeds = bench.lane(), bench.chain(3, 200), bench.cells([5, 7])
    buffer, _ = _copies(bench, chain)
    for seed in range(2):
        lane.copy_word(chain[0], seeds[seed])
        before = lane.submitted
        value = _execute(bench, lane, buffer)
        assert value == before + 1, f"the execution of a buffer is operation {value}, after {before}"
        lane.reach(value)
        assert bench.last(chain) == (5, 7)[seed]
    bench.executor.destroy_buffer(buffer)


@rule
def fills_write_their_pattern(bench: Workbench) -> None:
    """A command that fills writes its pattern, of any size, as often as it says."""
    lane, cells = bench.lane(), bench.cells([0] * 4)
    if not bench.executor.has_buffers:
        raise NotApplicable("there are no command buffers")
    address = struct.pack("<q", cells.address)
    commands = [Command("fill", 0, 32, address + b"\x01"), Command("fill", 0, 1, address + _PAIR.pack(8, 9))]
    buffer, _ = bench.executor.create_buffer(0, commands)
    lane.reach(_execute(bench, lane, buffer))
    assert bench.values(cells) == [8, 9, 0x0101010101010101, 0x0101010101010101]
    bench.executor.destroy_buffer(buffer)


@rule
def patches_are_written_first(bench: Workbench) -> None:
    """What an execution patches, in memory of the device or in arguments of a command, its commands find, and later ones."""
    lane, chain, other = bench.lane(), bench.chain(3, 3), bench.cells([11])
    buffer, places = _copies(bench, chain)
    begin, gate = lane.gate()
    _execute(bench, lane, buffer, (chain[0], 4))
    kept = bench.cells([0])
    lane.copy_word(kept.address, chain[2])
    _execute(bench, lane, buffer, (places[0] + 8, other.address))
    last = _execute(bench, lane, buffer)
    assert lane.submitted > begin
    bench.open(gate)
    lane.reach(last)
    assert bench.last(kept) == 4 and bench.last(chain) == 11
    bench.executor.destroy_buffer(buffer)


@rule
def a_withdrawn_execution_does_not_run(bench: Workbench) -> None:
    """An execution that was withdrawn before it began runs none of its commands, and writes no patch; later ones do."""
    lane, chain = bench.lane(), bench.chain(3, 3)
    buffer, _ = _copies(bench, chain)
    _, gate = lane.gate()
    value = _execute(bench, lane, buffer, (chain[0], 4))
    assert lane.withdraw(value, value) == value
    bench.open(gate)
    lane.finish()
    assert bench.values(chain) == [3, 0, 0]
    lane.reach(_execute(bench, lane, buffer))
    assert bench.last(chain) == 3
    bench.executor.destroy_buffer(buffer)


@rule
def branches_go_where_a_word_says(bench: Workbench) -> None:
    """Blocks of a buffer are run, passed over or run again as words of memory say when they are come to, also within blocks."""
    if not bench.executor.has_branches:
        raise NotApplicable("command buffers do not branch")
    lane, left, flags, seen = bench.lane(), bench.cells([0] * 3), bench.cells([0, 0]), bench.cells([0] * 5)

    def branch(target: int, word: int, mask: int) -> Command:
        return Command("branch", 0, target, struct.pack("<qQ", word, mask))

    def copy(dst: int, src: int) -> Command:
        return Command("copy", 0, 8, _PAIR.pack(dst, src))

    commands = [
        branch(8, left[0], (1 << 64) - 1),  # while there is one left
        branch(5, flags[0], 0xFF),  # and if the flag is set
        copy(seen[2], seen[1]),
        copy(seen[1], seen[0]),
        branch(5, 0, 0),
        copy(left[0], left[1]),
        copy(left[1], left[2]),
        branch(0, 0, 0),
        branch(11, flags[1], (1 << 64) - 1),
        copy(seen[3], seen[0]),
        branch(11, 0, 0),
        copy(seen[4], seen[0]),
    ]
    buffer, _ = bench.executor.create_buffer(0, commands)
    for rounds, flag in ((0, 1), (2, 1), (2, 0), (1, 0x100), (1, 0x101)):
        patches = [(left[i], 1 if i < rounds else 0) for i in range(3)] + [(flags[0], flag), (seen[0], 7)]
        lane.reach(_execute(bench, lane, buffer, *patches, *((seen[i], 0) for i in range(1, 5))))
        often = rounds if flag & 0xFF else 0
        expected = [7, 7 if often else 0, 7 if often > 1 else 0, 0, 7]
        assert bench.values(seen) == expected, f"{rounds} rounds with the flag {flag:#x}: {bench.values(seen)}, not {expected}"
    bench.executor.destroy_buffer(buffer)


@rule
def signals_complete_positions(bench: Workbench) -> None:
    """A signal completes the next position of a queue without operations, up to its bound, behind the commands ahead of it.

    Whoever waits there is told while later commands run, and the queue is as good as new for its next owner.
    """
    lane, chain, reading = bench.lane(), bench.chain(3, 3), bench.pipe()
    if not bench.executor.has_signals:
        raise NotApplicable("command buffers take no signals")
    for _ in range(2):
        queue, counters = bench.executor.create_queue(0, 0, False)
        waker = bench.executor.create_waker(reading[1])
        signal = Command("signal", 0, 0, _PAIR.pack(0, 2))
        copies = [Command("copy", 0, 8, _PAIR.pack(chain[i + 1], chain[i])) for i in range(2)]
        buffer, places = bench.executor.create_buffer(0, [copies[0], signal, copies[1], signal, signal])
        patches = [(places[at], queue) for at in (1, 3, 4)]
        _, gate = lane.gate()
        value = _execute(bench, lane, buffer, *patches)
        assert counters[COMPLETED] == 0 and bench.executor.arm(queue, 1, waker)
        bench.open(gate)
        bench.until(lambda: queue in bench.executor.collect(waker), "who waits for a position is not told")  # noqa: B023
        lane.reach(value)
        assert counters[COMPLETED] == 2, f"two positions were to be completed, not {counters[COMPLETED]}"
        assert bench.executor.spin(queue, 2, 0) and not bench.executor.arm(queue, 2, waker)
        assert bench.executor.arm(queue, 3, waker)
        bench.executor.destroy_queue(queue)
        bench.executor.destroy_buffer(buffer)


@rule
def schedules_are_submitted_as_steps_would_be(bench: Workbench) -> None:
    """A schedule's executions and waits go to the queues that it is given, behind what it is to begin behind, each time."""
    executor = bench.executor
    if not executor.has_schedules:
        raise NotApplicable("there are no schedules")
    lanes, cells, seeds = [bench.lane() for _ in range(3)], bench.cells([0] * 4), bench.cells([5, 7])

    def copies(dst: int, src: int) -> int:
        return executor.create_buffer(0, [Command("copy", 0, 8, _PAIR.pack(cells[dst], cells[src]))])[0]

    buffers = [copies(1, 0), copies(2, 1), copies(3, 2)]  # each on a queue of its own, behind the one before
    steps = [
        ScheduleStep(1, 0, 0, -1),
        ScheduleStep(1, buffers[0]),
        ScheduleStep(2, 0, 1, 1),
        ScheduleStep(2, buffers[1]),
        ScheduleStep(0, 0, 2, 3),
        ScheduleStep(0, buffers[2]),
    ]
    schedule = executor.create_schedule(steps)
    for order, seed in (((0, 1, 2), 0), ((2, 0, 1), 1)):
        queues = struct.pack("<3q", *[lanes[k].number for k in order])
        own = lanes[order[0]]
        before = [lane.submitted for lane in lanes]
        _, gate = own.gate()
        start = own.copy_word(cells[0], seeds[seed])
        executor.execute_schedule(schedule, queues, start)
        assert [lanes[k].submitted - before[k] for k in order] == [4, 2, 2], "steps went elsewhere, or are missing"
        bench.open(gate)
        own.finish()
        assert bench.values(cells) == [(5, 7)[seed]] * 4
    executor.destroy_schedule(schedule)
    for buffer in buffers:
        executor.destroy_buffer(buffer)


RULES = (
    commands_run_in_order,
    fills_write_their_pattern,
    patches_are_written_first,
    a_withdrawn_execution_does_not_run,
    branches_go_where_a_word_says,
    signals_complete_positions,
    schedules_are_submitted_as_steps_would_be,
)
