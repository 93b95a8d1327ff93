"""Schedules: a recording as runs of commands, waits between streams, and calls of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiodev._core.backend.interface import Executor
from aiodev._graph.recorder import BEGIN, Branch, Call, Item, Node, Wait

__all__ = ["START", "CallStep", "Run", "Step", "WaitStep", "make_schedule"]

#: In place of a step: the point at which a replay begins.
START = -1


@dataclass(slots=True, eq=False)
class Run:
    """Commands of one stream without a wait between them.

    Attributes:
        lane: the stream's number.
        nodes: the commands.
        first: the number of the first one in the graph.
        buffer: the executor's, once it has one.
        places: where it has the arguments of each command.
        obstacle: why there is none.
    """

    lane: int
    nodes: list[Node]
    first: int
    buffer: int = 0
    places: list[int] = field(default_factory=list)
    obstacle: str | None = None
    is_refused: bool = False

    def make_buffer(self, executor: Executor, index: int, sites: Sequence[int]) -> int:
        """Have the executor make its buffer, if there is none; 0 if it does not take the commands."""
        if not self.buffer and not self.is_refused:
            commands = [node.command(site) for node, site in zip(self.nodes, sites[self.first :], strict=False)]
            numbers = {node: k for k, node in enumerate(self.nodes)}
            for k, node in enumerate(self.nodes):
                if isinstance(node, Branch):
                    commands[k] = commands[k]._replace(size=numbers[node.target] + node.distance)
            try:
                self.buffer, self.places = executor.create_buffer(index, commands)
                self.obstacle = None
            except NotImplementedError as error:
                self.obstacle = str(error)
                self.is_refused = all(node.kernel is None or node.kernel.ready for node in self.nodes)
        return self.buffer


@dataclass(slots=True, eq=False)
class WaitStep:
    """A stream goes on after a step, or ``START``."""

    lane: int
    other: int
    step: int


@dataclass(slots=True, eq=False)
class CallStep:
    """A function of the host."""

    lane: int
    call: Call


Step = Run | WaitStep | CallStep


def make_schedule(items: Sequence[Item]) -> tuple[list[Step], list[Node]]:
    """The steps, in an order in which none comes before what it waits for; and all nodes, in the order of the steps."""
    awaited = {(item.other, item.point) for item in items if isinstance(item, Wait)}
    steps: list[Step] = []
    nodes: list[Node] = []
    open_runs: dict[int, list[Node]] = {}
    reached: dict[tuple[int, int], int] = {}
    inside: list[tuple[int, int]] = []  # points within a block, which are reached with its end

    def close(lane: int) -> None:
        run = open_runs.pop(lane, None)
        if run:
            steps.append(Run(lane, run, len(nodes)))
            nodes.extend(run)

    for item in items:
        lane = item.lane
        if isinstance(item, Node):
            open_runs.setdefault(lane, []).append(item)
        else:
            close(lane)
            if isinstance(item, Wait):
                step = START if item.point == BEGIN else reached[item.other, item.point]
                steps.append(WaitStep(lane, item.other, step))
            else:
                steps.append(CallStep(lane, item))
        if (lane, item.value) in awaited:
            inside.append((lane, item.value))
        if inside and not (isinstance(item, Node) and item.is_inside):
            close(lane)
            reached.update(dict.fromkeys(inside, len(steps) - 1))
            inside.clear()
    for lane in sorted(open_runs, reverse=True):
        close(lane)
    return steps, nodes
