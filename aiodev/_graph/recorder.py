"""The recorder: the executor that captured streams submit to, and their timelines."""

from __future__ import annotations

import functools
import math
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from aiodev._array.array import Array, make_array
from aiodev._core import callsites
from aiodev._core.backend.interface import COUNTER_WORDS, SUBMITTED, Command, Executor
from aiodev._core.backend.kernel_arguments import address_offsets
from aiodev._core.config import settings
from aiodev._core.errors import CaptureError, refused
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.native_calls import address_places
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import NO_WAIT, Effect
from aiodev._core.timeline.timeline import Timeline
from aiodev._generator.generator import Generator
from aiodev._generator.recording import Recording as Draws, move_on
from aiodev._graph.memory import Memory
from aiodev._kernel.compile.service import PendingKernel, by_entry
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.states import RecordedLaunch
from aiodev._memory.buffer import Buffer
from aiodev._memory.pool import MemoryPool

if TYPE_CHECKING:
    from aiodev._array.dtypes import DType
    from aiodev._array.layout import Shape
    from aiodev._core.streams.completion import Completion
    from aiodev._core.timeline.vector_clock import Clock
    from aiodev._memory.races import OrderedBuffer

__all__ = ["BEGIN", "Branch", "Call", "Item", "Node", "RecordedTimeline", "RecordedUse", "Recorder", "Round", "Wait"]

#: What a recorded timeline begins with: no operation, but a point that others can wait for.
BEGIN = 1
_pair = struct.Struct("<2q").pack
_one = struct.Struct("<q").pack
_unsigned = struct.Struct("<Q").pack
_WORD = 8
_at_the_beginning = [BEGIN if word == SUBMITTED else 0 for word in range(COUNTER_WORDS)]


class Node:
    """A captured launch, copy or fill; or the beginning or the end of a block that is run as often as a condition says.

    Attributes:
        lane: the stream's number in the capture; the first one is 0.
        value: its number on the recorded timeline.
        kind: ``launch``, ``copy``, ``fill``, ``native`` (calls of native functions) or ``branch``.
        entry: of a launch.
        size: indices, bytes or elements.
        block: its arguments, as :class:`aiodev.Command` has them; another one when the graph is updated.
        site: where it was captured.
        kernel: what a launch is of, which keeps its code.
        is_inside: it is in a block, and not the last of it: what follows belongs to the same run.
    """

    __slots__ = ("block", "entry", "is_inside", "kernel", "kind", "lane", "site", "size", "value")

    def __init__(
        self, lane: int, value: int, kind: str, entry: int, size: int, block: bytes, site: int,
        kernel: PendingKernel | None, is_inside: bool = False,
    ) -> None:  # fmt: skip
        self.lane, self.value, self.kind, self.entry, self.size = lane, value, kind, entry, size
        self.block, self.site, self.kernel, self.is_inside = block, site, kernel, is_inside

    @property
    def name(self) -> str:
        """The kernel's, or what else it is."""
        return self.kind if self.kernel is None else self.kernel.spec.name

    def command(self, site: int) -> Command:
        """What an executor is given for it."""
        return Command(self.kind, self.entry, self.size, self.block, site)

    def address_places(self) -> Iterator[int]:
        """Where addresses are in its arguments, in bytes."""
        if self.kind == "native":
            yield from address_places(self.block)
        elif self.kernel is None:
            yield 0
            if self.kind == "copy":
                yield _WORD
        else:
            spec = self.kernel.spec
            yield from address_offsets(spec.ndim, spec.arguments)


class Branch(Node):
    """The beginning of a block, or its end; ``target`` and ``distance`` say where it goes if the condition is zero.

    Attributes:
        label: what it is called.
        target: another node of the run; ``distance`` nodes behind it is the one to go to.
    """

    __slots__ = ("distance", "label", "target")

    def __init__(self, lane: int, label: str, condition: bytes, site: int) -> None:
        super().__init__(lane, 0, "branch", 0, 0, condition, site, None)
        self.label = label
        self.target: Node = self
        self.distance = 0

    @property
    def name(self) -> str:
        """What it is called."""
        return self.label


class Round(Node):
    """The end of a round that has written a row; a replay puts the queue that it signals in the first word of ``block``.

    Attributes:
        rows: the array that rounds write to.
    """

    __slots__ = ("rows",)

    def __init__(self, lane: int, rows: Array, site: int) -> None:
        super().__init__(lane, 0, "signal", 0, 0, _pair(0, rows.shape[0]), site, None)
        self.rows = rows

    @property
    def name(self) -> str:
        """That it hands on a row."""
        return "row"

    def address_places(self) -> Iterator[int]:
        """None: what is there is not memory."""
        return iter(())


class Wait:
    """A captured wait: ``lane`` goes on after ``other`` has come to ``point``."""

    __slots__ = ("lane", "other", "point", "value")

    def __init__(self, lane: int, value: int, other: int, point: int) -> None:
        self.lane, self.value, self.other, self.point = lane, value, other, point


class Call:
    """A captured call of a function of the host."""

    __slots__ = ("arguments", "function", "lane", "site", "value")

    def __init__(self, lane: int, value: int, function: Callable[..., Any], arguments: tuple[Any, ...], site: int) -> None:
        self.lane, self.value, self.function, self.arguments, self.site = lane, value, function, arguments, site

    def noting(self) -> Callable[..., Any]:
        """The function; what it raises has a note of where it was captured, since no line of the program is above the call."""
        function, place = self.function, callsites.describe_site(self.site)
        note = f"{self.name}: a call of a graph" + (f", captured at {callsites.show(place)}" if place else "")

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:
                if note not in getattr(error, "__notes__", ()):  # it may be one that was raised before
                    error.add_note(note)
                raise

        call.__qualname__ = self.name  # by which a profile has it
        return call

    @property
    def name(self) -> str:
        """What is called."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)


Item = Node | Wait | Call


class RecordedTimeline(Timeline):
    """The timeline of a stream while it is captured: it numbers operations, none of which runs."""

    __slots__ = ("_lane", "_recorder")

    def __init__(self, recorder: Recorder, base: Timeline, lane: int, counters: list[int]) -> None:
        self._recorder, self._lane = recorder, lane
        self.counters = counters
        super().__init__(base.handle, base.device, base.priority, False, base.stream_id)
        self.noted = None if settings.debug else recorder.held  # in debug mode each use is noted

    def _connect(self) -> None:
        self.operations, self.queue = self._recorder, self._lane + 1
        self.recording = self._recorder

    def __del__(self) -> None:
        """It has no queue to give back."""

    def join(self, other: Timeline, value: int, clock: Clock) -> int | None:
        """Order later operations after one that is captured, too."""
        if other.recording is not self._recorder:
            self._recorder.refuse("a captured stream cannot wait for work that is not captured with it")
        return super().join(other, value, clock)

    def keep(self, value: int, needed: object, nbytes: int = 0) -> None:
        """Hold what an operation needs for as long as there are replays."""
        self._recorder.kept.append(needed)

    def submit_with(self, needed: object, nbytes: int, submit: Callable[..., int], *args: Any) -> int:
        """Hold what an operation needs for as long as there are replays, and submit it."""
        self._recorder.kept.append(needed)
        return submit(*args)

    def let_go(self) -> None:
        """Refuse, once the capture is over: who comes here, of all that ask whether it is done, takes it for done."""
        if self.lost is not None:
            raise refused(str(self.lost))

    def gate(self, by_program: bool = False) -> NoReturn:
        """Refuse: what opens it is the host."""
        self._recorder.refuse("a captured stream cannot wait for the host")

    def withdraw(self, first: int, last: int, site: int, partly: bool = False) -> NoReturn:
        """Refuse: it was not submitted."""
        self._recorder.refuse("captured work cannot be withdrawn; the completion of a replay can")


class RecordedUse(NamedTuple):
    """The use of a buffer by an operation; for debugging.

    Attributes:
        lane: the stream's number.
        value: the operation's on the recorded timeline, or a later one.
        buffer: the memory.
        writes: it may be written.
        is_looked_at: whether it is looked for what orders it; else its order is another library's business.
    """

    lane: int
    value: int
    buffer: OrderedBuffer
    writes: bool
    is_looked_at: bool


class _Open(NamedTuple):
    """A block that is being captured.

    Attributes:
        begin: its first node.
        kept: memory that it must not use anew.
        rows: what its rounds write.
        counts: where it draws, how many words were drawn before, counted from where the draws of the outermost block begin.
    """

    begin: Branch
    kept: list[Buffer]
    rows: Array | None
    counts: dict[Draws, int]


class Recorder(Executor):
    """Takes what captured streams submit.

    Attributes:
        streams: those that are captured, in the order in which they came; each has a recorded timeline.
        stream_ids: theirs, once they have their own timelines again.
        held: memory of before the capture, and whether it is written to.
        inputs: memory that others may take the place of.
        followed: memory of before the capture whose uses, by whomever, each replay is ordered after.
        stationary: memory of the capture that no other takes the place of.
        kept: whatever else operations need.
        uses: of memory, in debug mode.
        draws: of each generator, what was drawn.
        awaited: completions of work that is not captured and that replays are ordered after.
        effects: what replays change on the host, from the end of the capture on.
        failure: the first block that an exception has left, and that; the capture fails then.
    """

    def __init__(self, stream: Stream, pool: MemoryPool | None) -> None:
        self._lock = threading.RLock()  # re-entrant, as all that finalizers may come to
        self._submitted: list[Any] = []  # launches that are in no block as what `items` makes nodes of, if anybody asks
        self._kernels: dict[int, PendingKernel] = {}
        self.streams: list[Stream] = []
        self.stream_ids: list[int] = []
        self.held: dict[Buffer, bool] = {}
        self.inputs: set[Buffer] = set()
        self.followed: set[Buffer] = set()
        self.stationary: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self.kept: list[object] = []
        self.uses: list[RecordedUse] = []
        self.draws: dict[Generator, Draws] = {}
        self.awaited: list[Completion[Any]] = []
        self.effects: list[Effect] = []
        self._effects: list[Callable[[], Effect]] = []
        self.device = stream.device
        self.memory = Memory(stream.device, pool)
        self._blocks: list[_Open] = []
        self.failure: tuple[Branch, BaseException] | None = None
        self._drawn_behind: dict[Draws, tuple[RecordedTimeline, int]] = {}  # the end of the last block with draws
        self._bases: list[Timeline] = []
        self._counters: list[list[int]] = [[]]  # a queue is a lane's number + 1
        self._timelines: list[RecordedTimeline] = []
        self._add(stream)

    # Streams

    def _add(self, stream: Stream) -> RecordedTimeline:
        base = stream.timeline
        if base.recording is not None:
            self.refuse(f"{stream!r} is being captured already")
        counters = _at_the_beginning.copy()
        timeline = RecordedTimeline(self, base, len(self.streams), counters)
        self.streams.append(stream)
        self._bases.append(base)
        self._timelines.append(timeline)
        self._counters.append(counters)
        stream.timeline = timeline
        stream._bind()
        return timeline

    def take_in(self, timeline: Timeline, other: Timeline, value: int, clock: Clock) -> None:
        """Capture the stream of ``timeline``, too: it waits for a captured one."""
        if self._blocks:
            self.refuse("in a block whose condition is on the device, no stream is captured that was not before")
        stream = timeline.stream
        if not isinstance(stream, Stream) or timeline.recording is not None or stream.device is not self.device:
            self.refuse("work that is not captured, or is on another device, cannot wait for a captured stream")
        with self._lock:
            self._add(stream).join(other, value, clock)

    def release(self, reason: str) -> None:
        """Give the streams their own timelines again; whoever waits for captured work gets ``reason``."""
        with self._lock:
            for stream, base, timeline in zip(self.streams, self._bases, self._timelines, strict=True):
                if stream.timeline is timeline:
                    stream.timeline = base
                    stream._bind()
            for buffer in list(self.memory.made) if self.memory.made else ():
                others = [(line, value) for line, value in buffer.uses() if line not in self._timelines]
                buffer._writer = buffer._reader = self._bases[0]
                buffer._written = buffer._read = 0
                buffer._readers = None
                for line, value in others:
                    buffer._record_write(line, value)
            for timeline in self._timelines:
                timeline.recording = timeline.noted = None
                timeline.lose(CaptureError(reason))
                timeline.needed.append([0, None])  # so that nobody finds it done without asking `let_go`
                del timeline._recorder  # the two would hold each other, and the memory of the graph
            self._timelines.clear()
            self._blocks.clear()
            self.failure = None  # whose frames may hold us
            self.stream_ids = [stream.stream_id for stream in self.streams]
            self.streams.clear()

    def broken_block(self) -> tuple[str, BaseException | None] | None:
        """Why a block makes the recording useless, and what has left that block; None if all blocks are whole."""
        begin, error = self.failure or (self._blocks[0].begin if self._blocks else None, None)
        if begin is None:
            return None
        place = callsites.describe_site(begin.site)
        block = f"the block of {begin.label}_" + (f" at {callsites.show(place)}" if place else "")
        if error is None:
            return f"{block} was not left before the capture was", None
        left = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{block} was left by an exception, and is captured in part: {left}; catch that in the block", error

    def loose_ends(self) -> list[Stream]:
        """Streams that nothing waits for to the end, but for the first."""
        if len(self.streams) == 1:
            return []
        reached, rows = [0] * len(self.streams), [BEGIN] * len(self.streams)
        reached[0] = self._counters[1][SUBMITTED]
        items = self.items()
        for item in items:
            rows[item.lane] = item.value
        for item in reversed(items):  # a wait counts where its own stream's end, or what is awaited, comes after it
            if isinstance(item, Wait) and item.value <= reached[item.lane]:
                reached[item.other] = max(reached[item.other], item.point)
        return [stream for stream, row, point in zip(self.streams, rows, reached, strict=True) if point < row]

    # Memory

    def hold(self, buffer: Buffer, writes: bool) -> bool:
        """Keep memory of before the capture that an operation uses; False for memory that the capture has made."""
        known = self.held.get(buffer)
        if known is None and buffer in self.memory.made:
            return False
        if known is None or (writes and not known):
            self.held[buffer] = writes
        return True

    def note_use(
        self, buffer: OrderedBuffer, timeline: Timeline, value: int, writes: bool, is_looked_at: bool = True
    ) -> None:  # fmt: skip
        """Note the use of memory, for debugging."""
        if value:  # else nothing was submitted
            self.uses.append(RecordedUse(timeline.queue - 1, value, buffer, writes, is_looked_at))

    def depends_on_replay(self, buffer: Buffer) -> bool:
        """Whether what a buffer holds is another thing at each replay: a captured operation writes to it, or it is an input."""
        return buffer in self.memory.made or self.held.get(buffer, False) or buffer in self.inputs

    def follow(self, timeline: Timeline, buffer: Buffer) -> None:
        """Order a captured stream after whatever uses memory: captured work, and at each replay what others do.

        Which captured operations use memory of before the capture is not noted, so the stream follows all that there are.
        """
        points = buffer.uses()
        if any(other.recording not in (None, self) for other, _ in points):
            self.refuse("another capture, which is under way, uses the same memory")
        if self.hold(buffer, False):
            self.followed.add(buffer)
            points = [(other, other.submitted) for other in self._timelines]
        for other, value in points:
            if other.recording is self:
                timeline.join(other, value, other.clock_at(value))

    def progress(self) -> tuple[int, ...]:
        """How many operations each stream was given so far."""
        return tuple([counters[SUBMITTED] for counters in self._counters[1:]])

    def made(self, buffer: Buffer) -> bool:
        """Whether the capture has made memory."""
        return buffer in self.memory.made

    def keep_in_place(self, buffer: Buffer) -> None:
        """Have memory that the capture has made stay where it is, since somebody keeps an array of it."""
        if buffer in self.memory.made:
            self.stationary.add(buffer)

    def at_replays(self, make: Callable[[], Effect]) -> None:
        """See the protocol of recordings."""
        self._effects.append(make)

    def seal(self) -> None:
        """The recording is whole: what has been changed on the host by now is what replays change."""
        self.effects = [make() for make in self._effects]
        self._effects.clear()

    def draws_of(self, generator: Generator) -> Draws | None:
        """What is drawn from a generator, by what is about to be submitted; None if that is not captured."""
        timeline = current_stream(self.device).timeline
        if timeline.recording is not self:
            return None
        with self._lock:
            draws = self.draws.get(generator)
            if draws is None:
                draws = self.draws[generator] = Draws(generator, self._make_words())
            if self._blocks:
                self._check_block(timeline.queue - 1)
                self._draw_in_block(draws)
            elif draws in self._drawn_behind:  # where the block ends is where its draws begin
                other, value = self._drawn_behind[draws]
                timeline.join(other, value, other.clock_at(value))
        return draws

    def _make_words(self) -> Array:
        return self.make_fresh((2,), np.dtype(np.uint64))

    def _draw_in_block(self, draws: Draws) -> None:
        """Have the open blocks count what is drawn in each of their rounds."""
        begin = self._blocks[0].begin
        if draws not in self._blocks[0].counts:
            before, count, draws.last, draws.count = draws.last, draws.count, self._make_words(), 0
            done = move_on[1, self.streams[begin.lane]](before, np.uint64(count), draws.last)
            ahead: list[Item] = [self._take_out(begin.lane, done.value)]
            other, value = self._drawn_behind.get(draws, (self._timelines[begin.lane], BEGIN))
            if other.queue - 1 != begin.lane:
                ahead.insert(0, Wait(begin.lane, 0, other.queue - 1, value))
            at = self._place_of(begin)
            self._submitted[at:at] = ahead
        for block in self._blocks:
            block.counts.setdefault(draws, draws.count)

    def _take_out(self, lane: int, value: int) -> Node:
        """Take out of the open block what was submitted in it."""
        submitted = self._submitted  # others only append to it
        at = len(submitted) - 1
        while not (isinstance(submitted[at], Node) and (submitted[at].lane, submitted[at].value) == (lane, value)):
            at -= 1
        node: Node = submitted.pop(at)
        node.is_inside = False
        return node

    def _place_of(self, node: Node) -> int:
        """Where it is among what was submitted, not long ago."""
        at = len(self._submitted) - 1
        while self._submitted[at] is not node:
            at -= 1
        return at

    def make_fresh(self, shape: Shape, dtype: DType) -> Array:
        """An array for what replays write when they begin."""
        timeline = self.streams[0].timeline
        buffer = self.memory.allocate_fresh(math.prod(shape) * dtype.itemsize, timeline)
        array = make_array(buffer, buffer.address, shape, dtype, None, True)
        self.kept.append(array)
        return array

    # Submission

    def items(self) -> list[Item]:
        """What was submitted, in order."""
        last = [BEGIN] * len(self._counters)
        items: list[Item] = []
        for one in self._submitted:
            item = one
            if one.__class__ is tuple:  # the next of its stream
                lane, entry, size, arguments, site = one
                item = Node(lane, last[lane] + 1, "launch", entry, size, arguments, site, self._kernels[entry])
            last[item.lane] = max(last[item.lane], item.value)
            items.append(item)
        return items

    def launcher(self, queue: int) -> Callable[[int, int, bytes, int], int]:
        """What launches on a captured stream go through: capturing them is to cost what launching does."""
        launch = functools.partial(self.launch, queue)
        own = RecordedLaunch(queue - 1, self._counters[queue], self._submitted, self._kernels, self._blocks, launch)
        return native_function("record_launch", own) or launch

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        lane, counters, kernels = queue - 1, self._counters[queue], self._kernels
        if entry not in kernels:
            kernels[entry] = by_entry[entry]
        if self._blocks:
            return self._append(Node(lane, 0, "launch", entry, size, arguments, site, kernels[entry]))
        append, one = self._submitted.append, (lane, entry, size, arguments, site)
        value = counters[SUBMITTED] = counters[SUBMITTED] + 1
        append(one)  # no other call since the tuple was made: no thread, finalizer or signal has come in between
        return value

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        return self._append(Node(queue - 1, 0, "copy", 0, nbytes, _pair(dst, src), _site(), None))

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        return self._append(Node(queue - 1, 0, "fill", 0, count, _one(dst) + pattern, _site(), None))

    def call_native(self, queue: int, block: bytes) -> int:
        return self._append(Node(queue - 1, 0, "native", 0, 0, block, _site(), None))

    def wait(self, queue: int, other: int, value: int) -> int:
        return self._append(Wait(queue - 1, 0, other - 1, value))

    def call(self, timeline: Timeline, function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        """Capture the call of a function of the host."""
        return self._append(Call(timeline.queue - 1, 0, function, arguments, _site()))

    def wait_for(self, done: Completion[Any]) -> None:
        """Order replays after a completion of work that is not captured."""
        self.awaited.append(done)

    def _append(self, item: Item) -> int:
        counters = self._counters[item.lane + 1]
        if self._blocks:
            self._check_block(item.lane)
            if not isinstance(item, Node):
                self.refuse("in a block whose condition is on the device, streams do not wait, and the host is not called")
            item.is_inside = True
        submitted = self._submitted
        item.value = counters[SUBMITTED] = counters[SUBMITTED] + 1
        submitted.append(item)  # nothing comes in between, as in `launch`
        return item.value

    # Blocks

    def _check_block(self, lane: int) -> None:
        if lane != self._blocks[0].begin.lane:
            self.refuse("in a block whose condition is on the device, there is one stream, the one that it began on")

    def open_block(self, timeline: Timeline, label: str, condition: Array, rows: Array | None) -> None:
        """Begin a block that runs if, or while, an element is not zero; each round of it writes the next of ``rows``."""
        word = condition._address & -_WORD
        mask = (1 << 8 * condition.itemsize) - 1 << 8 * (condition._address - word)
        begin = Branch(timeline.queue - 1, label, _one(word) + _unsigned(mask), _site())
        self._append(begin)
        begin.is_inside = True
        condition._buffer._record_read(timeline, begin.value)
        self._blocks.append(_Open(begin, list(self.memory.made), rows, {}))
        if rows is not None:
            self.kept.append(rows)

    def nodes_of_block(self) -> Iterator[Node]:
        """What the block that was begun last has so far, from its last operation back to its beginning."""
        begin = self._blocks[-1].begin if self._blocks else None
        for item in reversed(self._submitted) if begin is not None else ():
            if item is begin:
                return
            if isinstance(item, Node):  # as all is that the block has
                yield item

    def close_block(self, error: BaseException | None) -> None:
        """End the block that was begun last; by an exception, and then the capture fails.

        What is recorded of such a block cannot be taken back: events, memory and draws of what follows may stand on it.
        A block whose end is not recorded, for whatever reason, fails the capture, too: it is still open when that ends.
        """
        if not self._blocks:  # the capture was left before the block, and has failed by that
            return
        begin, _, rows, counts = self._blocks[-1]
        if error is not None:
            self.failure = self.failure or (begin, error)
            self._blocks.pop()
            return
        for draws, count in counts.items():
            if draws.count > count:
                move_on[1, self.streams[begin.lane]](draws.last, np.uint64(draws.count - count), draws.last)
                draws.count = count
        if rows is not None:
            self._append(Round(begin.lane, rows, begin.site))
        end = Branch(begin.lane, "end", _pair(0, 0), begin.site)
        self._append(end)
        self._blocks.pop()
        end.is_inside = bool(self._blocks)
        begin.target, begin.distance = end, 1
        end.target, end.distance = (begin, 0) if begin.label == "while" else (end, 1)
        if not self._blocks:
            self._drawn_behind.update(dict.fromkeys(counts, (self._timelines[begin.lane], end.value)))

    # What a recording does not do

    def refuse(self, reason: str) -> NoReturn:
        """Raise CaptureError, which names what the program called, and where."""
        raise refused(reason)

    def _refuse_wait(self, *args: Any, **named: Any) -> Any:
        self.refuse(NO_WAIT)

    def _refuse_gate(self, *args: Any, **named: Any) -> Any:
        self.refuse("a captured stream cannot wait for the host")

    def _refuse_stamp(self, *args: Any, **named: Any) -> Any:
        self.refuse("times cannot be captured; a profile of the replay has when each node began and ended")

    def _refuse_stream(self, *args: Any, **named: Any) -> Any:
        self.refuse("a captured stream is no stream of a driver's, and no queue")

    spin = help = arm = collect = create_waker = faults = forgive = _refuse_wait
    create_gate = gate = open_gate = _refuse_gate
    stamp = _refuse_stamp
    withdraw = wait_over = create_queue = destroy_queue = foreign_wait = wait_foreign = adopt_stream = _refuse_stream
    handle_of = _refuse_stream


def _site() -> int:
    return callsites.outside(sys._getframe(2))
