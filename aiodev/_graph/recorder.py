"""The recorder: the executor that captured streams submit to, and their timelines."""

from __future__ import annotations

import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from aiodev._core import callsites
from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS, SUBMITTED, Command, Executor
from aiodev._core.config import settings
from aiodev._core.errors import CaptureError
from aiodev._core.streams.native_calls import VALUE
from aiodev._core.streams.stream import Stream, streams_of
from aiodev._core.timeline.timeline import Timeline
from aiodev._generator.generator import Generator
from aiodev._generator.recording import Recording as Draws
from aiodev._kernel.compile.service import PendingKernel, by_entry
from aiodev._memory.buffer import Buffer
from aiodev._memory.pool import MemoryPool

if TYPE_CHECKING:
    from aiodev._array.array import Array
    from aiodev._core.backend.device import Device
    from aiodev._core.streams.completion import Completion
    from aiodev._core.timeline.vector_clock import Clock
    from aiodev._memory.allocator import CachingAllocator

__all__ = ["BEGIN", "Branch", "Call", "Item", "Memory", "Node", "RecordedTimeline", "Recorder", "Wait"]

#: What a recorded timeline begins with: no operation, but a point that others can wait for.
BEGIN = 1
_pair = struct.Struct("<2q").pack
_one = struct.Struct("<q").pack
_unsigned = struct.Struct("<Q").pack
_WORD = 8


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
            yield from _value_places(self.block)
        elif self.kernel is None:
            yield 0
            if self.kind == "copy":
                yield _WORD
        else:
            for argument in self.kernel.spec.parse_arguments():
                if argument.is_array:
                    yield argument.offset


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

    @property
    def name(self) -> str:
        """What is called."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)


Item = Node | Wait | Call


class RecordedTimeline(Timeline):
    """The timeline of a stream while it is captured: it numbers operations, none of which runs."""

    __slots__ = ("_lane", "_recorder")

    def __init__(self, recorder: Recorder, base: Timeline, lane: int) -> None:
        self._recorder, self._lane = recorder, lane
        super().__init__(base.handle, base.device, base.priority, False, base.label)

    def _connect(self) -> None:
        self.counters = memoryview(bytearray(8 * COUNTER_WORDS)).cast("q")
        self.counters[SUBMITTED] = BEGIN
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

    def gate(self, by_program: bool = False) -> NoReturn:
        """Refuse: what opens it is the host."""
        self._recorder.refuse("a captured stream cannot wait for the host")

    def withdraw(self, first: int, last: int, site: int, partly: bool = False) -> NoReturn:
        """Refuse: it was not submitted."""
        self._recorder.refuse("captured work cannot be withdrawn; the completion of a replay can")


class Replays:
    """The last replay of the graphs that share a pool (invariant 5)."""

    __slots__ = ("stream", "timeline", "value")

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.value = 0
        self.stream = ""

    def check(self, stream: Stream) -> None:
        """Refuse a replay that would run beside the last one.

        Raises:
            RuntimeError: the stream is not ordered after it.
        """
        timeline, last = stream.timeline, self.timeline
        if last is timeline or last is None or last.counters[COMPLETED] >= self.value:
            return
        if timeline.frontier[1].get(last, 0) < self.value:
            raise RuntimeError(
                f"replay on {stream!r}: the graph, or another one with its memory, still runs on {self.stream}; "
                f"replay it there, or have the stream wait for that first"
            )


class Memory:
    """The memory of a graph: a pool, which is made when something is first allocated, and whose buffers are listed.

    Attributes:
        made: memory that the capture has made and that is not free again, and how many bytes were asked for.
        replays: of the graphs that share it.
    """

    def __init__(self, device: Device, pool: MemoryPool | None) -> None:
        self.made: weakref.WeakKeyDictionary[Buffer, int] = weakref.WeakKeyDictionary()
        self._all: list[Buffer] = []  # in debug mode, which takes what is written to after it was freed for a fault
        self.replays = Replays() if pool is None else _replays.setdefault(pool, Replays())
        self._device = device
        self._pool: MemoryPool | None = None
        if pool is not None:
            self._take(pool)

    @property
    def pool(self) -> MemoryPool:
        """The pool."""
        pool = self._pool
        if pool is None:
            pool = MemoryPool(self._device)
            _replays[pool] = self.replays
            self._take(pool)
        return pool

    def _take(self, pool: MemoryPool) -> None:
        """Keep the memory of a pool where it is, the free part as well, for as long as this object lives."""
        self._pool = pool
        pool._allocator.pin()
        weakref.finalize(self, _unpin, pool._allocator, self.made).atexit = False

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """See :meth:`CachingAllocator.allocate`."""
        buffer = self.pool._allocator.allocate(nbytes, timeline)
        self.made[buffer] = nbytes
        if settings.debug:
            self._all.append(buffer)
        return buffer


def _unpin(allocator: CachingAllocator, made: weakref.WeakKeyDictionary[Buffer, int]) -> None:
    """The graph is gone: its memory may go back, that of arrays which outlive it when they are dropped."""
    for buffer in list(made):
        weakref.finalize(buffer, allocator.return_abandoned).atexit = False
    allocator.unpin()


_replays: weakref.WeakKeyDictionary[MemoryPool, Replays] = weakref.WeakKeyDictionary()


class Recorder(Executor):
    """Takes what captured streams submit.

    Attributes:
        streams: those that are captured, in the order in which they came; each has a recorded timeline.
        stream_ids: theirs, once they have their own timelines again.
        held: memory of before the capture, and whether it is written to.
        inputs: memory that others may take the place of.
        kept: whatever else operations need.
        draws: of each generator, what was drawn.
        awaited: completions of work that is not captured and that replays are ordered after.
    """

    def __init__(self, stream: Stream, pool: MemoryPool | None) -> None:
        self._lock = threading.RLock()  # re-entrant, as all that finalizers may come to
        self._submitted: list[Any] = []  # launches as what nodes are made of: capturing them is to cost what launching does
        self._kernels: dict[int, PendingKernel] = {}
        self.streams: list[Stream] = []
        self.stream_ids: list[int] = []
        self.held: dict[Buffer, bool] = {}
        self.inputs: set[Buffer] = set()
        self.kept: list[object] = []
        self.draws: dict[Generator, Draws] = {}
        self.awaited: list[Completion[Any]] = []
        self.device = stream.device
        self.memory = Memory(stream.device, pool)
        self._blocks: list[tuple[Branch, list[Buffer]]] = []  # those that are open, and memory that they must not use anew
        self._bases: list[Timeline] = []
        self._counters: list[memoryview[int]] = [memoryview(b"").cast("B").cast("q")]  # a queue is a lane's number + 1
        self._timelines: list[RecordedTimeline] = []
        self._add(stream)

    # Streams

    def _add(self, stream: Stream) -> RecordedTimeline:
        base = stream.timeline
        if base.recording is not None:
            self.refuse(f"{stream!r} is being captured already")
        timeline = RecordedTimeline(self, base, len(self.streams))
        self.streams.append(stream)
        self._bases.append(base)
        self._timelines.append(timeline)
        self._counters.append(timeline.counters)
        stream.timeline = timeline
        stream._bind()
        return timeline

    def take_in(self, timeline: Timeline, other: Timeline, value: int, clock: Clock) -> None:
        """Capture the stream of ``timeline``, too: it waits for a captured one."""
        if self._blocks:
            self.refuse("in a block whose condition is on the device, no stream is captured that was not before")
        stream = next(iter(streams_of(timeline)), None)
        if stream is None or timeline.recording is not None or stream.device is not self.device:
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
            own = set(self._timelines)
            for buffer in list(self.memory.made):
                others = [(line, value) for line, value in buffer.uses() if line not in own]
                buffer._writer = buffer._reader = self._bases[0]
                buffer._written = buffer._read = 0
                buffer._readers = None
                for line, value in others:
                    buffer._record_write(line, value)
            for timeline in self._timelines:
                timeline.recording = None
                timeline.lose(CaptureError(reason))
                del timeline._recorder  # the two would hold each other, and the memory of the graph
            self._timelines.clear()
            self.stream_ids = [stream.stream_id for stream in self.streams]
            self.streams.clear()

    def loose_ends(self) -> list[Stream]:
        """Streams that nothing waits for to the end, but for the first."""
        reached, rows = [0] * len(self.streams), [BEGIN] * len(self.streams)
        reached[0] = self._counters[1][SUBMITTED]
        if len(self.streams) == 1:
            return []
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

    def depends_on_replay(self, buffer: Buffer) -> bool:
        """Whether what a buffer holds is another thing at each replay: a captured operation writes to it, or it is an input."""
        return buffer in self.memory.made or self.held.get(buffer, False) or buffer in self.inputs

    def draws_of(self, generator: Generator) -> Draws:
        """What is drawn from a generator."""
        if self._blocks:
            self.refuse("in a block whose condition is on the device nothing is drawn, since its rounds are not known")
        found = self.draws.get(generator)
        if found is None:
            found = self.draws[generator] = Draws(generator)
        return found

    # Submission

    def items(self) -> list[Item]:
        """What was submitted, in order."""
        return [Node(*one) if one.__class__ is tuple else one for one in self._submitted]

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        kernel = self._kernels.get(entry)
        if kernel is None:
            kernel = self._kernels[entry] = by_entry[entry]
        counters, blocks = self._counters[queue], self._blocks
        if blocks:
            self._check_block(queue - 1)
        with self._lock:
            value = counters[SUBMITTED] = counters[SUBMITTED] + 1
            self._submitted.append((queue - 1, value, "launch", entry, size, arguments, site, kernel, bool(blocks)))
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
        with self._lock:
            item.value = counters[SUBMITTED] = counters[SUBMITTED] + 1
            self._submitted.append(item)
        return item.value

    # Blocks

    def _check_block(self, lane: int) -> None:
        if lane != self._blocks[0][0].lane:
            self.refuse("in a block whose condition is on the device, there is one stream, the one that it began on")

    def open_block(self, timeline: Timeline, label: str, condition: Array) -> None:
        """Begin a block that runs if, or while, an element is not zero."""
        word = condition._address & -_WORD
        mask = (1 << 8 * condition.itemsize) - 1 << 8 * (condition._address - word)
        begin = Branch(timeline.queue - 1, label, _one(word) + _unsigned(mask), _site())
        self._append(begin)
        begin.is_inside = True
        self.hold(condition._buffer, False)
        self._blocks.append((begin, list(self.memory.made)))

    def close_block(self) -> None:
        """End the block that was begun last."""
        begin = self._blocks[-1][0]
        end = Branch(begin.lane, "end", _pair(0, 0), begin.site)
        self._append(end)
        self._blocks.pop()
        end.is_inside = bool(self._blocks)
        begin.target, begin.distance = end, 1
        end.target, end.distance = (begin, 0) if begin.label == "while" else (end, 1)

    # What a recording does not do

    def refuse(self, reason: str) -> NoReturn:
        """Raise CaptureError, which names what the program called, and where."""
        call, place = _called(sys._getframe(1))
        raise CaptureError(reason, call=call, place=place)

    def _refuse_wait(self, *args: Any, **named: Any) -> Any:
        self.refuse("the host cannot wait for captured work, which runs when the graph is replayed")

    def _refuse_gate(self, *args: Any, **named: Any) -> Any:
        self.refuse("a captured stream cannot wait for the host")

    def _refuse_stamp(self, *args: Any, **named: Any) -> Any:
        self.refuse("times cannot be captured")

    def _refuse_stream(self, *args: Any, **named: Any) -> Any:
        self.refuse("a captured stream is no stream of a driver's, and no queue")

    spin = help = arm = collect = create_waker = faults = forgive = _refuse_wait
    gate = open_gate = _refuse_gate
    stamp = _refuse_stamp
    withdraw = create_queue = destroy_queue = foreign_wait = wait_foreign = adopt_stream = _refuse_stream
    handle_of = _refuse_stream


def _site() -> int:
    return callsites.outside(sys._getframe(2))


def _value_places(block: bytes) -> Iterator[int]:
    """Where a block of native calls has words that are passed as they are."""
    words = struct.unpack(f"<{len(block) // _WORD}q", block)
    place = 2
    for _ in range(words[1]):
        count, place = words[place], place + 1
        for _ in range(1 + count):
            if words[place] == VALUE:
                yield _WORD * (place + 1)
            place += 2


def _called(frame: FrameType | None) -> tuple[str | None, str | None]:
    """The function of a library that the program called, and where."""
    call: str | None = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != "aiodev" and not name.startswith("aiodev.") and not callsites.is_library(frame):
            return call, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        call = frame.f_code.co_qualname
        frame = frame.f_back
    return call, None
