"""Rules about command buffers, for executors that have them."""

from __future__ import annotations

import struct

from aiodev._core.backend.interface import Command
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


RULES = (commands_run_in_order, fills_write_their_pattern, patches_are_written_first, a_withdrawn_execution_does_not_run)
