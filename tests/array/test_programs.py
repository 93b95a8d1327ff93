"""Programs over several streams against a model that runs them one operation after the other.

Streams write parts of arrays, fail, wait for each other in every way there is, and are held by latches meanwhile, so that what
is not waited for has surely not been done. A program orders what it has to: two uses of the same elements, one of which
writes. The model says what each read finds: the values, or which failures it may raise.

``pytest tests/array/test_programs.py --hypothesis-profile=thorough`` runs for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from selection import examples

import aiodev
from aiodev import kernels
from aiodev._core.streams.completion import Reached
from aiodev.testing.latch import Latch

STREAMS, SIZES = 4, (8, 6000)  # the larger arrays are not copied at once
WHICH = st.integers(0, STREAMS - 1)
BIG = st.integers(0, 1 << 16)


@aiodev.kernel
def put(i: int, x: Any, value: int, pause: int) -> None:
    """Write, each element after a while."""
    found = value
    for k in range(pause):
        found = found ^ k
    for k in range(pause):
        found = found ^ k
    x[i] = found


@aiodev.kernel
def add(i: int, x: Any, y: Any, value: int) -> None:
    """Read an array, and write another."""
    y[i] = x[i] + value


@aiodev.kernel
def refuse(i: int, x: Any, value: int) -> None:
    """Write something, and fail."""
    x[i] = -1
    if i == 0:
        raise ValueError(value)


def raise_key(number: int) -> None:
    """What is called on a stream to fail it."""
    raise KeyError(number)


async def reached(stream: aiodev.Stream) -> None:
    """Wait for all of a stream, and hear nothing."""
    await Reached(stream.timeline, stream.timeline.submitted)


def root_of(error: BaseException) -> int:
    """The number that the first failure was raised with."""
    while not isinstance(error, ValueError | KeyError):
        assert isinstance(error, aiodev.KernelError), repr(error)
        assert error.__cause__ is not None, repr(error)
        error = error.__cause__
    return int(error.args[0])


@dataclass(eq=False)
class Fault:
    """A failure of one stream, of its own or since it follows another."""

    root: int
    told: bool = False


@dataclass(eq=False)
class Operation:
    """A point of a stream, and what has run before: how many operations of each."""

    stream: int
    number: int
    before: dict[int, int]
    fault: Fault | None
    completion: aiodev.Completion | None = None

    def follows(self, stream: int, number: int) -> bool:
        """Whether it runs after another, or is that one."""
        return self.before.get(stream, 0) >= number or (self.stream == stream and self.number >= number)


@dataclass(eq=False)
class Line:
    """A stream of the program, and what the model knows of it."""

    index: int
    stream: aiodev.Stream
    count: int = 0
    before: dict[int, int] = field(default_factory=dict)
    open: Fault | None = None  #: what is submitted now does not run
    faults: list[Fault] = field(default_factory=list)
    latch: Callable[[], None] | None = None
    latched: int = 0  #: the latch's number
    by_program: bool = False  #: whether it is one of the program's, or of the library's own
    called: bool = False  #: whether a call may not be over

    def submit(self, fails: int = 0) -> Operation:
        """An operation at its end; one that fails for ``fails``, unless it does not run."""
        self.count += 1
        fault = self.open
        if fault is None and fails:
            self.fail(Fault(fails))
            fault = self.open
        return Operation(self.index, self.count, dict(self.before), fault)

    def fail(self, fault: Fault) -> None:
        """Nothing runs from now on."""
        if self.open is None:
            self.open = fault
            self.faults.append(fault)

    def follow(self, point: Operation) -> None:
        """Wait for a point, and fail if that has failed and nobody was told."""
        self.count += 1
        for stream, number in (*point.before.items(), (point.stream, point.number)):
            if stream != self.index:
                self.before[stream] = max(number, self.before.get(stream, 0))
        if point.fault is not None and not point.fault.told and point.stream != self.index:
            self.fail(Fault(point.fault.root))

    def tell(self) -> None:
        """Somebody was told of all that has failed."""
        for fault in self.faults:
            fault.told = True
        self.open = None
        self.called = False


@dataclass(eq=False)
class Use:
    """A use of some elements."""

    operation: Operation
    elements: slice
    writes: bool

    def conflicts(self, elements: slice, writes: bool) -> bool:
        """Whether the two have to be ordered."""
        common = self.elements.start < elements.stop and elements.start < self.elements.stop
        return common and (writes or self.writes)


@dataclass(eq=False)
class Held:
    """An array of the program, its values where they are known, its uses, and the failures that reading it may raise."""

    array: aiodev.Array
    values: np.ndarray[Any, Any]
    known: np.ndarray[Any, Any]
    uses: list[Use] = field(default_factory=list)
    writes: list[Operation] = field(default_factory=list)  #: the last of each stream
    failed: list[Operation] = field(default_factory=list)
    #: Those that a later write is ordered after, which has failed itself, or whose stream was told.
    followed: list[Operation] = field(default_factory=list)

    def write(self, operation: Operation) -> None:
        """Note a write: what failed, and was told, is over; what it follows it stands for."""
        self.failed = [known for known in self.failed if known.fault is None or not known.fault.told]
        self.followed = [known for known in self.followed if known.fault is None or not known.fault.told]
        self.followed += [known for known in self.failed if operation.follows(known.stream, known.number)]
        self.failed = [known for known in self.failed if known not in self.followed]
        if operation.fault is not None:
            self.failed.append(operation)
        self.writes = [known for known in self.writes if known.stream != operation.stream] + [operation]


@dataclass(eq=False)
class Read:
    """A read that is under way, and what it must give."""

    held: Held
    task: asyncio.Task[Any]
    elements: slice
    values: np.ndarray[Any, Any]
    known: np.ndarray[Any, Any]
    must: set[int]
    may: set[int]
    awaits: list[Operation]
    keeps_out: list[Operation]
    may_hold: set[int]  #: streams


class Programs(RuleBasedStateMachine):
    """Programs, as they are written and run."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.lines = [Line(index, aiodev.Stream("cpu")) for index in range(STREAMS)]
        self.arrays: list[Held] = []
        self.reads: list[Read] = []
        self.operations: list[Operation] = []
        self.roots = 0

    @initialize()
    def begin(self) -> None:
        """Two arrays to start with."""
        for which, size in enumerate(SIZES):
            self.make(which, size)

    def make(self, which: int, size: int) -> None:
        """An array for a stream."""
        line = self.lines[which]
        with line.stream:
            array = aiodev.empty(size, dtype="i8")
        held = Held(array, np.zeros(size, "i8"), np.zeros(size, bool))
        held.uses.append(Use(Operation(which, line.count, dict(line.before), None), slice(0, size), True))
        self.arrays.append(held)

    def part(self, held: Held, where: int) -> slice:
        """The whole array, or one of its quarters or halves."""
        size = len(held.values)
        parts = [slice(0, size)] + [slice(k * size // n, (k + 1) * size // n) for n in (2, 4) for k in range(n)]
        return parts[where % len(parts)]

    # Order

    def order(self, line: Line, held: Held, elements: slice, writes: bool, how: int) -> None:
        """Have a stream follow the uses that a new one conflicts with, and nothing else."""
        for read in list(self.reads):
            kept_out = line.index in {point.stream for point in read.keeps_out} or any(
                line.before.get(point.stream, 0) >= point.number for point in read.keeps_out
            )
            if writes and read.held is held and not kept_out:
                self.finish(read)
        for k, use in enumerate(held.uses):
            at = use.operation
            if at.stream != line.index and line.before.get(at.stream, 0) < at.number and use.conflicts(elements, writes):
                self.join(line, self.lines[at.stream], how + k, at)

    def join(self, line: Line, other: Line, how: int, at: Operation | None = None) -> None:
        """One way or another; ``at``: an operation that is to be followed."""
        end = Operation(other.index, other.count, dict(other.before), other.open)
        if at is not None and at.completion is not None and how % 4 == 0:
            line.stream.wait(at.completion)
            line.follow(at)
        elif how % 4 == 1:
            line.stream.wait_event(other.stream.record_event())
            line.follow(end)
        elif how % 4 == 2 and STREAMS > 2:
            between = next(each for each in self.lines if each not in (line, other))
            between.stream.wait_stream(other.stream)
            between.follow(end)
            line.stream.wait_stream(between.stream)
            line.follow(Operation(between.index, between.count, dict(between.before), between.open))
        else:
            line.stream.wait_stream(other.stream)
            line.follow(end)

    def note(self, operation: Operation, completion: aiodev.Completion) -> None:
        """Remember what may be waited for."""
        operation.completion = completion
        self.operations = [*self.operations[-20:], operation]

    # Work

    def submit(
        self, which: int, held: Held, elements: slice, how: int, work: Callable[[Any, Any], Any], fails: int = 0
    ) -> Operation:
        """Write some elements on a stream."""
        line = self.lines[which]
        self.order(line, held, elements, True, how)
        operation = line.submit(fails)
        self.note(operation, work(line.stream, held.array[elements]))
        held.uses.append(Use(operation, elements, True))
        held.write(operation)
        return operation

    @rule(which=WHICH, a=BIG, where=BIG, how=BIG, value=st.integers(1, 1 << 30), pause=st.sampled_from([0, 0, 20_000]))
    def put(self, which: int, a: int, where: int, how: int, value: int, pause: int) -> None:
        """A kernel writes a part, slowly or not."""
        held = self.arrays[a % len(self.arrays)]
        elements = self.part(held, where)
        count, pause = elements.stop - elements.start, pause // len(held.values)
        done = self.submit(which, held, elements, how, lambda stream, x: put[count, stream](x, value, pause))
        if done.fault is None:
            held.values[elements], held.known[elements] = value, True

    @rule(which=WHICH, a=BIG, where=BIG, how=BIG, value=st.integers(1, 1 << 30))
    def copy_from_host(self, which: int, a: int, where: int, how: int, value: int) -> None:
        """A copy from the host writes a part."""
        held = self.arrays[a % len(self.arrays)]
        elements = self.part(held, where)
        host = np.arange(value, value + elements.stop - elements.start)
        done = self.submit(which, held, elements, how, lambda stream, x: stream.copy(x, host))
        if done.fault is None:
            held.values[elements], held.known[elements] = host, True

    @rule(which=WHICH, a=BIG, b=BIG, where=BIG, how=BIG, kernel=st.booleans())
    def carry(self, which: int, a: int, b: int, where: int, how: int, kernel: bool) -> None:
        """A part of one array goes to another of the same size, by a kernel or by a copy."""
        held = self.arrays[a % len(self.arrays)]
        others = [other for other in self.arrays if other is not held and len(other.values) == len(held.values)]
        if not others:
            return
        source, elements = others[b % len(others)], self.part(held, where)
        line, count = self.lines[which], elements.stop - elements.start
        self.order(line, source, elements, False, how)

        def work(stream: Any, y: Any) -> Any:
            x = source.array[elements]
            return add[count, stream](x, y, 1) if kernel else stream.copy(y, x)

        done = self.submit(which, held, elements, how, work)
        source.uses.append(Use(done, elements, False))
        if done.fault is None:
            held.values[elements] = source.values[elements] + kernel
            held.known[elements] = source.known[elements]

    @rule(which=WHICH, a=BIG, where=BIG, how=BIG, value=st.integers(1, 1 << 30), way=st.sampled_from(["+", "+=", "[] ="]))
    def compute(self, which: int, a: int, where: int, how: int, value: int, way: str) -> None:
        """An operator of the library's computes a part, or from a part an array of its own."""
        held = self.arrays[a % len(self.arrays)]
        elements, line = self.part(held, where), self.lines[which]
        if way == "+" and len(self.arrays) > 4:
            return
        self.order(line, held, elements, way != "+", how)
        done, made = line.submit(), held
        with line.stream:
            x = held.array[elements]
            if way == "+":
                array, size = x + value, len(held.values)
                if x.size < size:  # arrays of the program have one of two sizes
                    array = kernels.concat([array, aiodev.full(size - x.size, value, dtype="i8")])
                made = Held(array, np.full(size, value), np.ones(size, bool))
            elif way == "+=":
                x += value
            else:
                held.array[elements] = value
        held.uses.append(Use(done, elements, way != "+"))
        if way == "+":
            self.arrays.append(made)
            made.uses.append(Use(done, slice(0, len(made.values)), True))
            count = elements.stop - elements.start
            made.values[:count], made.known[:count] = held.values[elements] + value, held.known[elements]
            made.known &= done.fault is None
        elif done.fault is None:
            held.values[elements] = value if way == "[] =" else held.values[elements] + value
            held.known[elements] |= way == "[] ="
        made.write(done)

    @rule(
        a=BIG, where=BIG, how=BIG, streams=st.integers(1, 3), value=st.integers(1, 1 << 30), fails=st.integers(0, 9),
        done=st.booleans(),
    )  # fmt: skip
    def group(self, a: int, where: int, how: int, streams: int, value: int, fails: int, done: bool) -> None:
        """A group's streams write a part each, which is done when the group is left: nothing has to be ordered after it."""
        held, first = self.arrays[a % len(self.arrays)], len(self.lines)
        elements = self.part(held, where)
        group = self.loop.run_until_complete(aiodev.StreamGroup("cpu").__aenter__())
        lines = [Line(first + k, group.stream()) for k in range(streams)]
        self.lines += lines
        size = len(held.values)
        for k, line in enumerate(lines):
            part = 3 + (elements.start * 4 // size + k) % 4  # a quarter
            self.put(line.index, a, part, how, value + k, 0)
            if k == fails:
                self.refuse(line.index, a, part, how, 0)
        ends = [Operation(line.index, line.count, dict(line.before), line.open) for line in lines]
        self.release_for(ends)
        if done:
            for line in lines:
                self.loop.run_until_complete(reached(line.stream))
        expected = {fault.root for line in lines for fault in line.faults if not fault.told}
        try:
            self.loop.run_until_complete(group.__aexit__(None, None, None))
        except ExceptionGroup as failures:
            assert {root_of(error) for error in failures.exceptions} == expected
        else:
            assert not expected
        for line in lines:
            line.tell()
        held.uses = [use for use in held.uses if use.operation.stream < first or use.operation.number == 0]
        if expected:
            self.handle_all()

    @rule(
        a=BIG, how=BIG, held=st.integers(0, 31), writers=st.sets(WHICH, min_size=1), failing=st.integers(0, 3 * STREAMS),
        joined=st.none() | WHICH, reads=st.booleans(), again=st.booleans(),
    )  # fmt: skip
    def tiles(
        self, a: int, how: int, held: int, writers: set[int], failing: int, joined: int | None, reads: bool, again: bool
    ) -> None:
        """Streams write a part each, held by latches or not; one may fail; somebody may read at once, and they write again."""
        for which in writers:
            if held >> which & 1:
                self.hold(which, held > 15)
            if which == failing:
                self.refuse(which, a, 3 + which, how, 0)
            else:
                self.put(which, a, 3 + which, how, 1 + how, 0)
                self.carry(which, a + 1, a + 3, 3 + which, how, True)
        if joined is not None:
            for which in writers - {joined}:
                self.join(self.lines[joined], self.lines[which], how)
        if reads:
            self.start_reading(a, 0, min(writers) if joined is None else joined)
        if again:
            for which in writers:
                self.put(which, a, 3 + which, how, 2 + how, 0)

    @rule(which=WHICH, a=BIG, where=BIG, how=BIG, rarely=st.integers(0, 3))
    def refuse(self, which: int, a: int, where: int, how: int, rarely: int) -> None:
        """A kernel that fails in the midst of it."""
        if rarely:
            return
        held = self.arrays[a % len(self.arrays)]
        elements = self.part(held, where)
        self.roots += 1
        root = self.roots
        count, before = elements.stop - elements.start, self.lines[which].open
        done = self.submit(which, held, elements, how, lambda stream, x: refuse[count, stream](x, root), root)
        if before is None and done.fault is not None and done.fault.root == root:
            held.known[elements] = False

    @rule(which=WHICH, rarely=st.integers(0, 7))
    def call(self, which: int, rarely: int) -> None:
        """A function that fails: what its stream was given after it does not run."""
        if rarely:
            return
        self.roots += 1
        line = self.lines[which]
        line.called = True
        self.note(line.submit(self.roots), line.stream.call(raise_key, self.roots))

    @rule(which=WHICH, whom=WHICH, how=BIG)
    def wait(self, which: int, whom: int, how: int) -> None:
        """Order that nobody needs yet."""
        if which != whom:
            self.join(self.lines[which], self.lines[whom], how)

    @precondition(lambda self: self.operations)
    @rule(which=WHICH, op=BIG)
    def wait_for_completion(self, which: int, op: int) -> None:
        """The same, after an operation in the midst of a stream."""
        at = self.operations[op % len(self.operations)]
        if at.stream != which and at.completion is not None:
            self.lines[which].stream.wait(at.completion)
            self.lines[which].follow(at)

    @rule(which=WHICH, by_program=st.booleans())
    def hold(self, which: int, by_program: bool) -> None:
        """What a stream is given from now on is not done before the latch is released."""
        line = self.lines[which]
        if line.latch is None and line.open is None:  # behind a failure it would hold nothing
            line.latched, line.by_program = line.submit().number, by_program
            line.latch = Latch(line.stream).release if by_program else line.stream._gate().open

    @rule(which=WHICH)
    def release(self, which: int) -> None:
        """Let a stream go on."""
        line = self.lines[which]
        if line.latch is not None:
            line.latch()
            line.latch = None

    def release_for(self, points: list[Operation]) -> None:
        """Release the latches that operations wait for, and no others."""
        points, reads = list(points), list(self.reads)
        while found := [read for read in reads if any(read.may_hold & {p.stream, *p.before} for p in points)]:
            points += [write for read in found for write in read.awaits]
            reads = [read for read in reads if read not in found]
        for line in self.lines:
            if any(point.follows(line.index, line.latched) for point in points):
                self.release(line.index)

    def release_all(self) -> None:
        """Release every latch."""
        for line in self.lines:
            self.release(line.index)

    @rule(a=BIG, which=WHICH)
    def replace(self, a: int, which: int) -> None:
        """Drop an array, whatever uses it, and make another, which may get its memory."""
        old = self.arrays.pop(a % len(self.arrays))
        self.make(which, len(old.values))

    @rule(which=WHICH, size=st.sampled_from(SIZES))
    def make_more(self, which: int, size: int) -> None:
        """Some more arrays."""
        if len(self.arrays) < 5:
            self.make(which, size)

    # Failures are told

    @rule(which=WHICH)
    def handle(self, which: int) -> None:
        """Somebody waits for a stream, until there is nothing more to hear; it works again."""
        self.release_all()
        self.tell(self.lines[which])

    def tell(self, line: Line) -> None:
        """Wait for all of a stream; what is raised is what failed on it."""
        expected = {fault.root for fault in line.faults if not fault.told}
        while True:
            try:
                self.loop.run_until_complete(line.stream.synchronize())
            except Exception as error:
                assert root_of(error) in expected, (line.index, line.faults, error, expected)
            else:
                break
        line.tell()

    @precondition(lambda self: self.operations)
    @rule(op=BIG)
    def wait_here(self, op: int) -> None:
        """Somebody waits for an operation; if that failed, its stream works again."""
        at = self.operations[op % len(self.operations)]
        self.release_all()
        self.loop.run_until_complete(reached(self.lines[at.stream].stream))  # what will not run is over, too, when it is told
        assert at.completion is not None
        try:
            at.completion.synchronize_blocking(30)
        except Exception as error:
            assert at.fault is not None and root_of(error) == at.fault.root, error
            at.fault.told = True
            line = self.lines[at.stream]
            if line.open is at.fault:
                line.open = None
        else:
            assert at.fault is None

    # Reads

    @rule(a=BIG, where=BIG, current=WHICH)
    def start_reading(self, a: int, where: int, current: int) -> None:
        """Begin to read a part, and go on with the program; what is submitted from here on is not seen."""
        held = self.arrays[a % len(self.arrays)]
        elements = self.part(held, where)
        line = self.lines[current]
        with line.stream:
            task = self.loop.create_task(held.array[elements].numpy())
        self.turn()
        last = [
            write for write in held.writes
            if not any(other is not write and other.follows(write.stream, write.number) for other in held.writes)
        ]  # fmt: skip
        before: dict[int, int] = {}
        for write in last:
            for stream, number in (*write.before.items(), (write.stream, write.number)):
                before[stream] = max(number, before.get(stream, 0))
        keeps_out = []
        # What waits for the program keeps nobody out: what is written later may be seen, so the read is finished first.
        free = any(line.called or (line.latch is not None and line.by_program) for line in self.lines)
        for write in [] if free else held.writes[-1:] + [write for write in last if self.is_held(write)]:
            writer = self.lines[write.stream]
            for stream, number in before.items():  # it may follow the read, and so what the read waits for
                if stream != writer.index:
                    writer.before[stream] = max(number, writer.before.get(stream, 0))
            keeps_out.append(writer.submit())
        self.reads.append(
            Read(
                held, task, elements, held.values[elements].copy(), held.known[elements].copy(),
                {op.fault.root for op in held.failed if op.fault}, {op.fault.root for op in held.followed if op.fault},
                last, keeps_out, {current, *(write.stream for write in held.writes)},
            )
        )  # fmt: skip
        self.failures_are_told_at_once()

    def is_held(self, operation: Operation) -> bool:
        """Whether an operation is surely not done."""
        return any(line.latch is not None and operation.follows(line.index, line.latched) for line in self.lines)

    def turn(self) -> None:
        """Let tasks run."""
        self.loop.run_until_complete(asyncio.sleep(0))

    @precondition(lambda self: self.reads)
    @rule(which=BIG)
    def finish_reading(self, which: int) -> None:
        """What writes the array is done, and nothing else need be."""
        self.finish(self.reads[which % len(self.reads)])

    @invariant()
    def failures_are_told_at_once(self) -> None:
        """A read that has failed has told somebody: what is submitted from then on runs again. So nothing comes in between."""
        while due := [read for read in self.reads if read.must | read.may and not any(map(self.is_held, read.awaits))]:
            self.finish(due[0])

    def finish(self, read: Read) -> None:
        """Wait for a read, and compare."""
        if read not in self.reads:  # another that failed has had it finished
            return
        if read.task.done():
            assert not any(self.is_held(write) for write in read.awaits)
        self.release_for(read.awaits)
        self.reads.remove(read)
        failed = self.compare(read, lambda: self.loop.run_until_complete(asyncio.wait_for(read.task, 30)))
        if failed:
            self.handle_all()
        self.failures_are_told_at_once()

    @rule(a=BIG, where=BIG, how=st.sampled_from(["numpy", "item", "blocking", "asarray", "dlpack"]), again=st.booleans())
    def read(self, a: int, where: int, how: str, again: bool) -> None:
        """Read now; a read that raises does so again, until somebody writes."""
        held = self.arrays[a % len(self.arrays)]
        elements = self.part(held, where)
        if how == "item":
            elements = slice(elements.start, elements.start + 1)
        if how in ("numpy", "item", "blocking"):
            self.release_for(held.writes)
        else:
            self.release_all()  # they wait for what reads the array, too
        array = held.array[elements]
        ways: dict[str, Callable[[], Any]] = {
            "numpy": lambda: self.loop.run_until_complete(array.numpy()),
            "item": lambda: np.array([self.loop.run_until_complete(array.item())]),
            "blocking": lambda: array.numpy_blocking(30),
            "asarray": lambda: np.asarray(array).copy(),
            "dlpack": lambda: np.from_dlpack(array).copy(),
        }
        must, may = ({op.fault.root for op in ops if op.fault} for ops in (held.failed, held.followed))
        expected = Read(held, None, elements, held.values[elements], held.known[elements], must, may, [], [], set())  # type: ignore[arg-type]
        failed = self.compare(expected, ways[how])
        if failed and again:
            assert self.compare(expected, ways["blocking"])
        if failed:
            self.handle_all()
        else:  # what wrote it is done: nothing has to be ordered after it
            held.uses = [use for use in held.uses if not use.writes or use.operation.number == 0]

    def compare(self, read: Read, way: Callable[[], Any]) -> bool:
        """Whether the read raises, as it may, or must."""
        try:
            found = way()
        except Exception as error:
            assert root_of(error) in read.must | read.may, (error, read.must, read.may)
            return True
        assert not read.must, read.must
        assert np.array_equal(found[read.known], read.values[read.known])
        return False

    def handle_all(self) -> None:
        """A program that hears of a failure deals with all of them."""
        self.release_all()
        for line in self.lines:
            self.tell(line)

    def teardown(self) -> None:
        """Finish what was begun."""
        self.release_all()
        while self.reads:
            self.finish(self.reads[0])
        for held in self.arrays:
            self.arrays = [held]
            self.read(0, 0, "numpy", again=True)
        self.handle_all()
        self.loop.close()


TestPrograms = Programs.TestCase
if settings.get_current_profile_name() != "thorough":
    TestPrograms.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
