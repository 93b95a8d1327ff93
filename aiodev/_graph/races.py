"""Finding operations of one graph that use the same array unordered: ``AIODEV_DEBUG=1``.

To the rest of the program a replay is one operation, and is looked at as such (:mod:`aiodev._memory.races`). What the
operations of the graph use is noted while it is captured, and looked at once, when the capture is over: only then the order is
known, since the graph adds waits of its own, as where several streams draw in blocks. It is that of the schedule, by which
replays go: a wait for a point inside of a block, say, is one for the block's end.

A use that nothing orders after the last one of another stream is a race, unless both only read. A line that submits again and
again is told of once, for each array and each line that it races with.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiodev._core import callsites
from aiodev._graph.recorder import Call, Item, Node, RecordedUse, Wait
from aiodev._graph.schedule import START, Run, Step, WaitStep, make_schedule
from aiodev._memory.races import tell

if TYPE_CHECKING:
    from aiodev._memory.races import OrderedBuffer

__all__ = ["tell_races"]

Operation = Node | Call


class _Place(NamedTuple):
    """Where an operation is in a schedule: its stream, its step, and of each stream the last step that is over before that."""

    lane: int
    step: int
    clock: dict[int, int]

    def follows(self, other: _Place) -> bool:
        """Whether that is over before this begins, or is ahead of it on the same stream."""
        return self.clock.get(other.lane, -1) >= other.step


class _Uses:
    """What an operation does to a buffer.

    Attributes:
        reads: it reads it, at least, and what orders it is looked for.
        writes: it may write it, and what orders it is looked for.
        is_written: it may write it, perhaps in an order of its own.
    """

    __slots__ = ("is_written", "reads", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = self.is_written = False


def tell_races(uses: Sequence[RecordedUse], items: Sequence[Item], streams: Sequence[str]) -> None:
    """Log the races of a recording, whose streams show themselves as ``streams``."""
    steps, nodes = make_schedule(items)
    numbers = {node: number for number, node in enumerate(nodes)}
    told: set[tuple[OrderedBuffer, int, int, int, int]] = set()

    def name_of(one: Operation) -> str:
        return f"a call of {one.name}" if isinstance(one, Call) else f"operation {numbers[one]} ({one.name})"

    def place_of(one: Operation) -> str:
        return f"on {streams[one.lane]} at {callsites.describe_site(one.site)}"

    for buffer, writes, one, other in _races(_by_operation(uses, items), _places(steps)):
        key = buffer, one.lane, one.site, other.lane, other.site
        if key not in told:
            told.add(key)
            known = f"{name_of(other)} of the graph, {place_of(other)},"
            tell(buffer, writes, f"{place_of(one)}, by {name_of(one)} of a graph", known)


def _by_operation(uses: Sequence[RecordedUse], items: Sequence[Item]) -> dict[tuple[Operation, OrderedBuffer], _Uses]:
    """What each operation does to each buffer, in order of submission."""
    numbers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # of each stream, those of its operations, and where
    for place, item in enumerate(items):
        if not isinstance(item, Wait):
            numbers[item.lane].append((item.value, place))
    for known in numbers.values():
        known.sort()  # what was taken out of a block is ahead of it
    placed: list[tuple[int, RecordedUse]] = []
    for use in uses:
        known = numbers[use.lane]
        at = bisect.bisect_right(known, (use.value, len(items))) - 1
        if at < 0:  # nothing was submitted there yet
            continue
        value, place = known[at]
        if value < use.value:  # it is that of an operation ahead of a wait: the program has not said of which
            use = use._replace(is_looked_at=False)
        placed.append((place, use))
    found: dict[tuple[Operation, OrderedBuffer], _Uses] = {}
    for place, use in sorted(placed, key=lambda one: one[0]):
        operation = items[place]
        assert not isinstance(operation, Wait)
        one = found.setdefault((operation, use.buffer), _Uses())
        one.is_written |= use.writes
        one.writes |= use.writes and use.is_looked_at
        one.reads |= use.is_looked_at
    return found


def _places(steps: Sequence[Step]) -> dict[Operation, _Place]:
    """Where each operation is."""
    places: dict[Operation, _Place] = {}
    present: dict[int, dict[int, int]] = {}  # of each stream, what its next step follows
    after: list[dict[int, int]] = []  # of each step, what is over with it
    for number, step in enumerate(steps):
        clock = dict(present.get(step.lane, ()))
        if isinstance(step, WaitStep) and step.step != START:
            for lane, last in after[step.step].items():
                clock[lane] = max(last, clock.get(lane, -1))
        clock[step.lane] = number
        present[step.lane] = clock
        after.append(clock)
        if not isinstance(step, WaitStep):
            place = _Place(step.lane, number, clock)
            places.update(dict.fromkeys(step.nodes if isinstance(step, Run) else (step.call,), place))
    return places


def _races(
    uses: dict[tuple[Operation, OrderedBuffer], _Uses], places: dict[Operation, _Place]
) -> Iterator[tuple[OrderedBuffer, bool, Operation, Operation]]:
    """Each buffer, whether it may be written, and the operation that uses it beside another, which is the second one."""
    writers: defaultdict[OrderedBuffer, dict[int, Operation]] = defaultdict(dict)  # of each stream, the last one
    users: defaultdict[OrderedBuffer, dict[int, Operation]] = defaultdict(dict)
    for (one, buffer), use in uses.items():
        earlier = users[buffer] if use.writes else writers[buffer] if use.reads else {}
        for other in earlier.values():
            if not places[one].follows(places[other]):
                yield buffer, use.writes, one, other
        users[buffer][one.lane] = one
        if use.is_written:
            writers[buffer][one.lane] = one
