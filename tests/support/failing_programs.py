"""Random programs that fail, whose failures are told, and that wait for what failed, against a sequential model of them.

Nothing is held: how far the device has come when something is submitted is a matter of luck, and nothing may depend on it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import aiodev

STREAMS = 4
PATIENCE = 60
#: Operations that a failure of may be remembered by who waits, beside as many told ones; the executors keep 32.
REMEMBERED = 25


class Planned(Exception):
    """What functions fail with."""


@dataclass(eq=False)
class Operation:
    """A call, or an event of a stream, and what is to become of it."""

    line: int
    number: int  #: of the calls of its line, or the last one ahead of an event
    runs: bool
    fails: bool = False
    follows: dict[int, int] = field(default_factory=dict)  #: how many calls of other lines are over when it runs
    point: Any = None  #: its completion, or the event
    begun: int = 0  #: when it ran


@dataclass(eq=False)
class Line:
    """A stream, and what the model knows of it."""

    stream: aiodev.Stream
    is_failed: bool = False  #: what is submitted does not run, until somebody is told
    follows: dict[int, int] = field(default_factory=dict)
    calls: list[Operation] = field(default_factory=list)
    points: list[Operation] = field(default_factory=list)  #: the last ones to be waited for
    bad: list[Operation] = field(default_factory=list)  #: those that do not run, since somebody was told last


class Program:
    """Streams of a device, what was submitted to them, and the model of that."""

    def __init__(self, device: str, seed: int) -> None:
        self.choose = random.Random(seed)
        self.lines = [Line(aiodev.Stream(device)) for _ in range(STREAMS)]
        self.log: list[Operation] = []
        self.steps: list[str] = []

    def run(self, steps: int) -> None:
        """Submit and wait at random, and compare what came of it."""
        for _ in range(steps):
            which = self.choose.randrange(STREAMS)
            name = self.choose.choice(["submit"] * 3 + ["fail"] + ["tell"] * 2 + ["wait_stream"] * 2 + ["wait_event"] * 2)
            if name == "tell" and self.choose.random() < 0.5:  # a failure is told soon, while what is behind it is passed
                which = next((n for n, line in enumerate(self.lines) if line.is_failed), which)
            self.steps.append(f"{name} {which}")
            getattr(self, name)(which)
        for which in range(STREAMS):
            self.tell(which)
        for line in self.lines:
            for operation in line.calls:
                self.compare(operation)

    def submit(self, which: int, fails: bool = False) -> None:
        """A call; or some, behind one that fails."""
        line = self.lines[which]
        for _ in range(self.choose.randint(1, 20) if fails else 1):
            runs = not line.is_failed
            operation = Operation(which, len(line.calls) + 1, runs, fails, dict(line.follows))
            operation.point = line.stream.call(self.call, operation)
            line.calls.append(operation)
            self.note(line, operation)
            line.is_failed |= fails
            fails = False

    def fail(self, which: int) -> None:
        """A call that fails, and some behind it."""
        self.submit(which, fails=True)

    def note(self, line: Line, operation: Operation) -> None:
        """Something to be waited for."""
        line.points.append(operation)
        if operation.fails or not operation.runs:
            line.bad.append(operation)
        del line.points[:-REMEMBERED]

    def call(self, operation: Operation) -> int:
        """What is called."""
        self.log.append(operation)
        operation.begun = len(self.log)
        if operation.fails:
            raise Planned(operation.number)
        return operation.number

    def tell(self, which: int) -> None:
        """Wait for a stream, or for something of it that has failed."""
        line = self.lines[which]
        bad = self.choose.choice(line.bad) if line.bad else None
        how = self.choose.choice(["stream", "point", "exception"])
        try:
            if how == "stream" or bad is None:
                line.stream.synchronize_blocking(PATIENCE)
                raised = False
            elif how == "exception" and isinstance(bad.point, aiodev.Completion):
                while not bad.point.query():
                    pass
                raised = bad.point.exception() is not None
            else:
                bad.point.synchronize_blocking(PATIENCE)
                raised = False
        except (Planned, aiodev.DependencyError):
            raised = True
        assert raised == line.is_failed, (which, self.steps)
        line.is_failed = False
        line.bad.clear()

    def wait_stream(self, which: int) -> None:
        """For all that another stream was given: its failure is over once somebody was told."""
        line, other = self.lines[which], self.choose.randrange(STREAMS)
        line.stream.wait_stream(self.lines[other].stream)
        self.follow(which, other, len(self.lines[other].calls), self.lines[other].follows)
        line.is_failed |= self.lines[other].is_failed

    def wait_event(self, which: int) -> None:
        """For an event that is recorded now, or a point of another stream, or of this one."""
        line, other = self.lines[which], self.choose.randrange(STREAMS)
        source = self.lines[other]
        if self.choose.random() < 0.5 or not source.points:
            point = Operation(other, len(source.calls), not source.is_failed, follows=dict(source.follows))
            point.point = source.stream.record_event()
            self.note(source, point)
        else:
            point = self.choose.choice(source.points)
        if isinstance(point.point, aiodev.Completion):
            line.stream.wait(point.point)
        else:
            line.stream.wait_event(point.point)
        self.follow(which, other, point.number, point.follows)
        if other != which:
            line.is_failed |= point in source.bad  # what was told of is over

    def follow(self, which: int, other: int, number: int, before: dict[int, int]) -> None:
        """Note an order."""
        known = self.lines[which].follows
        for one, count in (*before.items(), (other, number)):
            if one != which:
                known[one] = max(known.get(one, 0), count)

    def compare(self, operation: Operation) -> None:
        """What became of a call, and what had run before it."""
        try:
            result: object = operation.point.synchronize_blocking(PATIENCE)
        except (Planned, aiodev.DependencyError) as error:
            result = type(error)
        expected = Planned if operation.fails else operation.number
        assert result == (expected if operation.runs else aiodev.DependencyError), (operation, result, self.steps)
        assert (operation.begun > 0) == operation.runs, (operation, self.steps)
        if operation.runs:
            before = {operation.line: operation.number - 1, **operation.follows}
            for one, count in before.items():
                late = [known for known in self.lines[one].calls[:count] if known.begun > operation.begun]
                assert not late, (operation, late, self.steps)
