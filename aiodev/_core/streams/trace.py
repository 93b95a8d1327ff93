"""Tracing: which operation was submitted, begun and done when, on which stream, by which task.

**How.** While somebody profiles, there is one recorder. It gives each executor a log
(:mod:`aiodev._core.backend.trace_log`), in which native code notes when operations are submitted, begun and done. What native
code does not know (the kernel's arguments, the task, the line of the program) is noted by the streams, which submit through the
recorder then. The two are brought together by stream and number when somebody looks.

**Invariants.**

1.  Streams and executors know of no recorder unless there is a profile: a submission then costs what it would cost without this
    module, and an operation one comparison on its worker.
2.  A log lives until the operations that have a slot there are done (``_retired``), whoever profiled.
3.  Numbers are kept, no objects: a note holds no task, array or stream, and the garbage collector does not look into it.
4.  What is noted is bounded: what goes beyond is counted, and not kept.

The public face is :func:`aiodev.profiler.profile`.
"""

from __future__ import annotations

import bisect
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from aiodev._core import callsites
from aiodev._core.at_fork import first_in_child, in_child
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import Executor
from aiodev._core.backend.trace_log import BEGUN, ENDED, KERNEL, QUEUE, SECOND, SLOT_WORDS, VALUE, TraceLog
from aiodev._core.timeline.withdrawal import Withdrawals
from aiodev._core.tuning import STREAMS_TRACED
from aiodev._core.waiting.loops import task_namer

__all__ = ["NodeNote", "Note", "Recorder", "TracedKernel", "Window", "active", "begin", "end", "entries", "kernel_name",
           "label"]  # fmt: skip


class TracedKernel(NamedTuple):
    """What a profile says of a kernel's entry."""

    name: str
    ndim: int
    arguments: tuple[str, ...]  #: as in a :class:`~aiodev.KernelSpec`


_serials = itertools.count(1)
#: Kernels by their entries, filled in by the kernel layer.
entries: dict[int, TracedKernel] = {}


def kernel_name(entry: int) -> str:
    """The name of the kernel behind an entry."""
    kernel = entries.get(entry)
    return "kernel" if kernel is None else kernel.name


class TracedTimeline(Protocol):
    """A stream's timeline, as far as it is traced."""

    deferred: bool
    device: Device
    lost: BaseException | None
    operations: Executor
    queue: int

    @property
    def faults(self) -> Any: ...
    @property
    def submitted(self) -> int: ...
    @property
    def handle(self) -> Any: ...
    def submit_with(self, needed: object, nbytes: int, submit: Callable[..., int], *args: Any) -> int: ...
    def reached(self, value: int) -> bool: ...


class Traced(Protocol):
    """A stream whose submissions are noted."""

    _launch: Callable[[int, int, bytes, int], int]
    _copy: Callable[[int, int, int], int]
    _fill: Callable[[int, int, bytes], int]
    stream_id: int
    device: Device

    @property
    def timeline(self) -> Any: ...


class Note(NamedTuple):
    """What was submitted, as the stream has noted it."""

    stream_id: int
    value: int
    submitted: int  #: ns of ``time.perf_counter_ns``; 0: when the executor's log says
    kind: str  #: ``kernel``, ``copy``, ``fill``, or what a gate is for
    what: Any  #: a kernel's entry, or the name of what a gate is for
    payload: Any  #: a kernel's argument block; how many bytes are copied or filled; which stream's operation is waited for
    site: int
    task: str | None


NOTE_WORDS = len(Note._fields)


class NodeNote(NamedTuple):
    """What a graph says of a node, whose site executors note whenever it runs."""

    number: int
    kind: str  #: ``kernel``, ``copy``, ``fill`` or ``native``
    what: Any  #: as of a :class:`Note`
    payload: Any
    site: int  #: where it was captured


class KnownStream(NamedTuple):
    """A stream that was traced, which is not kept; but what was withdrawn of it is known for longer."""

    device: Device
    timeline: weakref.ref[Any]
    withdrawals: Withdrawals


class Source:
    """An executor that is traced.

    Attributes:
        executor: the executor; None for those that stamp.
        logs: its logs, the present one last.
        bindings: of each queue, from when on it was which stream's.
    """

    def __init__(self, executor: Executor | None, room: int) -> None:
        self.executor = executor
        self.logs = [TraceLog(room)]
        self.bindings: dict[int, list[tuple[int, int]]] = {}

    def renew(self, room: int) -> None:
        """See that there is room for so many more operations."""
        log = self.logs[-1]
        if log.room - log.claimed < room:
            self.logs.append(TraceLog(room))
            self.connect(self.logs[-1])

    def connect(self, log: TraceLog | None) -> None:
        """Have the executor note what it is given in a log, or no longer."""
        if self.executor is not None:
            self.executor.trace(log)

    def stream_of(self, queue: int, submitted: int) -> int:
        """The stream that had a queue at a time; 0 for none that is known."""
        bindings = self.bindings.get(queue, [])
        place = bisect.bisect(bindings, submitted, key=itemgetter(0))
        return bindings[place - 1][1] if place else 0


class Window:
    """What was recorded from one time on, until another."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.began = time.perf_counter_ns()
        self.ended: int | None = None
        self.ranges: Ranges | None = None
        self._first = {log: log.claimed for source in recorder.sources for log in source.logs}
        self._last: dict[TraceLog, int] = {}
        self._first_word = len(recorder.words)
        self._first_event, self._last_event = len(recorder.memory), 0

    def close(self) -> None:
        """End it now."""
        if self.ended is None:
            self.ended = time.perf_counter_ns()
            self._last = {log: log.claimed for source in self.recorder.sources for log in source.logs}
            self._last_event = len(self.recorder.memory)

    def slots(self) -> Iterator[tuple[Source, memoryview[int]]]:
        """The words of slots of each log (copied by whoever reads them: workers write), in the order of submission."""
        for source in list(self.recorder.sources):
            for log in list(source.logs):
                first = self._first.get(log, 0)
                last = log.claimed if self.ended is None else self._last.get(log, 0)
                if first < last:
                    yield source, log.slots(first, last)

    def stamps(self) -> list[tuple[Any, int]]:
        """The stamps behind operations that are done, by timeline and number; they are about to be made."""
        stamps: list[tuple[Any, int]] = []
        for source, slots in self.slots():
            for place in range(0, len(slots) if source.executor is None else 0, SLOT_WORDS):
                value, closing = slots[place + VALUE], slots[place + SECOND]
                known = self.recorder.streams.get(-slots[place + QUEUE])
                timeline = None if known is None else known.timeline()
                if not slots[place + ENDED] and closing == value + 1 and timeline is not None and timeline.reached(value):
                    stamps.append((timeline, closing))
        return stamps

    def notes(self) -> list[Note]:
        """What streams have noted since it began. A thread may note what it has submitted a while after others have gone on."""
        words = self.recorder.words[self._first_word :]
        return [Note._make(words[at : at + NOTE_WORDS]) for at in range(0, len(words), NOTE_WORDS)]

    def memory(self) -> list[Any]:
        """What allocators have noted."""
        events = self.recorder.memory
        return events[self._first_event : len(events) if self.ended is None else self._last_event]

    def dropped(self) -> int:
        """How many operations there was no room for."""
        dropped = 0
        for source in list(self.recorder.sources):
            for log in list(source.logs):
                first = max(log.room, self._first.get(log, 0))
                dropped += max(0, (log.claimed if self.ended is None else self._last.get(log, 0)) - first)
        return dropped


class Recorder:
    """Has every stream and executor of the process note what they do.

    Attributes:
        words: what streams have noted: the fields of a :class:`Note`, and those of the next one. Each tuple that is kept would
            cost as much again, and the garbage collector would come for them.
        memory: what allocators have noted.
        most: how many words there may be.
        sources: the executors' logs.
        streams: what there is to know of each stream, by its id.
        nodes: of graphs that were replayed, by their sites.
        windows: the windows that are open, weakly.
        note_replay: is called with a stream's id and an operation that is the replay of a graph, or a part of one.
        serial: of this recorder, among all.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.most = NOTE_WORDS * room
        self.words: list[Any] = []
        self.memory: list[Any] = []
        self.sources: list[Source] = []
        self.streams: dict[int, KnownStream] = {}
        self.nodes: dict[int, NodeNote] = {}
        self.windows: weakref.WeakSet[Window] = weakref.WeakSet()
        self.ranges: Ranges | None = None
        self._ids: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._task = task_namer()
        self._lock = threading.RLock()
        self._stamped: Source | None = None
        self.serial = next(_serials)
        self.note_replay = self._replay_noter(False)

    def adopt(self, executor: Executor) -> Source:
        """Have an executor that can do so note what it is given."""
        with self._lock:
            for source in self.sources:
                if source.executor is executor:
                    return source
            source = Source(executor, self.room)
            self.sources.append(source)
            source.connect(source.logs[-1])
            return source

    def bind(self, timeline: Any, executor: Executor) -> None:
        """Note that a timeline has its queue now, if its stream is known."""
        stream_id = self._ids.get(timeline)
        if stream_id is not None and timeline.handle.backend.capabilities.tracing:
            known = self.adopt(executor).bindings.setdefault(timeline.queue, [])
            known.append((time.perf_counter_ns(), stream_id))

    def attach(self, stream: Traced) -> None:
        """Note what is submitted to ``stream`` from now on. Called again when its backend has started."""
        timeline: TracedTimeline = stream.timeline
        if timeline.lost is not None or len(self.streams) >= STREAMS_TRACED:
            return
        self.streams[stream.stream_id] = KnownStream(stream.device, weakref.ref(timeline), timeline.faults.withdrawals)
        self._ids[timeline] = stream.stream_id
        capabilities = timeline.handle.backend.capabilities
        if capabilities.tracing:
            if not timeline.deferred:
                self.bind(timeline, timeline.operations)
        else:
            self.note_replay = self._replay_noter(True)
            if capabilities.timing:
                self._stamp(stream)
        if self.ranges is not None and capabilities.cuda_interfaces:
            self.ranges.attach(stream)
        self._note(stream)

    def _note(self, stream: Traced) -> None:
        """Have a stream note what its submissions are. This runs at each of them.

        When that was, the executor's log says, unless it has none or is not given the operation yet.
        """
        stream_id, words = stream.stream_id, self.words
        note = words.extend
        launch, copy, fill, clock = stream._launch, stream._copy, stream._fill, time.perf_counter_ns
        task, timeline = self._task, stream.timeline
        has_no_log = timeline.deferred or not timeline.handle.backend.capabilities.tracing

        def launch_noted(entry: int, size: int, block: bytes, site: int) -> int:
            submitted = clock() if has_no_log else 0
            value = launch(entry, size, block, site)
            if len(words) < self.most:
                note((stream_id, value, submitted, "kernel", entry, block, site, task()))
            return value

        def copy_noted(dst: int, src: int, nbytes: int) -> int:
            submitted = clock() if has_no_log else 0
            value = copy(dst, src, nbytes)
            if len(words) < self.most:
                site = callsites.outside(sys._getframe(1))
                note((stream_id, value, submitted, "copy", 0, nbytes, site, task()))
            return value

        def fill_noted(dst: int, count: int, pattern: bytes) -> int:
            submitted = clock() if has_no_log else 0
            value = fill(dst, count, pattern)
            if len(words) < self.most:
                site = callsites.outside(sys._getframe(1))
                note((stream_id, value, submitted, "fill", 0, count * len(pattern), site, task()))
            return value

        stream._launch, stream._copy, stream._fill = launch_noted, copy_noted, fill_noted

    def _stamp(self, stream: Traced) -> None:
        """Have the device of a stream stamp the time before and after each operation, since its executor does not trace."""
        with self._lock:
            if self._stamped is None:
                self._stamped = Source(None, self.room)
                self.sources.append(self._stamped)
        self._stamped.bindings[-stream.stream_id] = [(0, stream.stream_id)]
        stream._launch = self._stamping(stream, self._stamped, stream._launch)
        stream._copy = self._stamping(stream, self._stamped, stream._copy)
        stream._fill = self._stamping(stream, self._stamped, stream._fill)

    def _stamping(self, stream: Traced, source: Source, submit: Callable[..., int]) -> Callable[..., int]:
        timeline, queue, lock = stream.timeline, -stream.stream_id, self._lock

        def submit_stamped(*args: Any) -> int:
            log = source.logs[-1]
            with lock:
                place = log.claim(queue, 0, KERNEL, 0, 0, time.perf_counter_ns())
            if not place:
                return submit(*args)
            operations = timeline.operations
            timeline.submit_with(log, 0, operations.stamp, timeline.queue, log.address_of(place, BEGUN))
            value = submit(*args)
            closing = timeline.submit_with(log, 0, operations.stamp, timeline.queue, log.address_of(place, ENDED))
            log.name(place, value, closing)
            return value

        return submit_stamped

    def label(self, timeline: Any, value: int, kind: str, name: str, after: tuple[Any, int] | None) -> None:
        """See :func:`label`."""
        stream_id = self._ids.get(timeline)
        if stream_id is not None and len(self.words) < self.most:
            follows = None if after is None else (self._ids.get(after[0], 0), after[1])
            site = callsites.outside(sys._getframe(1))
            self.words.extend(Note(stream_id, value, time.perf_counter_ns(), kind, name, follows, site, self._task()))

    def note_nodes(self, sites: Sequence[int], nodes: Callable[[], Iterable[NodeNote]]) -> None:
        """Note what the nodes of a graph are that is replayed, by their sites, unless that is known."""
        if sites and sites[0] not in self.nodes and len(self.nodes) + len(sites) <= self.room:
            self.nodes.update(zip(sites, nodes(), strict=True))

    def _replay_noter(self, timed: bool) -> Callable[[int, int], None]:
        """What notes that an operation of a stream is the replay of a graph, or a part of one. It runs at each of them, too.

        ``timed``: there are executors without logs, so it notes when that was.
        """
        words, task, clock = self.words, self._task, time.perf_counter_ns
        note, frame_above, site_of, outside = words.extend, sys._getframe, callsites.site_of, callsites.outside

        def note_replay(stream_id: int, value: int) -> None:
            if len(words) < self.most:
                frame = frame_above(2)
                first = site_of(id(frame.f_code))  # as a rule the program has called the graph
                site = first + frame.f_lasti if first else outside(frame)
                submitted = clock() if timed else 0
                note((stream_id, value, submitted, "graph", "graph", None, site, task()))

        return note_replay

    def note_node(self, stream_id: int, value: int, site: int) -> None:
        """Note that an operation of a stream is a node, which its executor was given as any other operation."""
        node = self.nodes.get(site)
        if node is not None and len(self.words) < self.most:
            now = time.perf_counter_ns()
            self.words.extend(Note(stream_id, value, now, node.kind, node.what, node.payload, site, self._task()))

    def note_memory(self, event: Any) -> None:
        """Note what an allocator has to say."""
        if len(self.memory) < self.room:
            self.memory.append(event)

    def open(self, room: int) -> Window:
        """Begin a window, with room for so many operations."""
        self.room = max(self.room, max(len(self.words) // NOTE_WORDS, len(self.memory)) + room)
        self.most = NOTE_WORDS * self.room
        with self._lock:
            for source in self.sources:
                source.renew(room)
        window = Window(self)
        self.windows.add(window)
        return window

    def choose_ranges(self) -> bool:
        """Mark submissions if an open window wants that; whether that has changed."""
        before, self.ranges = self.ranges, next((each.ranges for each in self.windows if each.ranges is not None), None)
        return (before is None) is not (self.ranges is None)

    def disconnect(self) -> None:
        """Have no executor note anything any more; their logs live until what is in flight is done (invariant 2)."""
        for source in self.sources:
            source.connect(None)
        pending = [
            (known.timeline, timeline.submitted)
            for known in self.streams.values() if (timeline := known.timeline()) is not None
        ]  # fmt: skip
        _retired.append((self, pending))
        forget_retired()


class Ranges(Protocol):
    """Marks submissions for a profiler of the device's maker."""

    def attach(self, stream: Traced) -> None: ...


#: Recorders that nobody records with any more, and the operations that were in flight then.
_retired: list[tuple[Recorder, list[tuple[weakref.ref[Any], int]]]] = []


def forget_retired() -> None:
    """Let go of logs to which nothing writes any more."""
    _retired[:] = [
        (recorder, pending)
        for recorder, pending in _retired
        if any((timeline := known()) is not None and not timeline.reached(value) for known, value in pending)
    ]


#: The recorder, while somebody profiles.
active: Recorder | None = None
_changing = threading.RLock()


def begin(room: int, rebind: Callable[[], None], ranges: Ranges | None = None) -> Window:
    """Open a window for ``room`` operations; ``rebind`` has every stream look whether it is traced."""
    global active
    with _changing:
        recorder = active
        if recorder is None:
            forget_retired()
            recorder = active = Recorder(room)
        window = recorder.open(room)
        window.ranges = ranges
        if recorder.choose_ranges() or len(recorder.windows) == 1:
            rebind()
        return window


def end(window: Window, rebind: Callable[[], None]) -> None:
    """Close a window; with the last one, nothing is noted any more."""
    global active
    with _changing:
        window.close()
        recorder = window.recorder
        recorder.windows.discard(window)
        if recorder is active and not recorder.windows:
            active = None
            rebind()
            recorder.disconnect()
        elif recorder.choose_ranges():
            rebind()


def label(timeline: Any, value: int, kind: str, name: str, after: tuple[Any, int] | None = None) -> None:
    """Say what a gate of a timeline is for, if somebody profiles; ``after``: the timeline and operation that it waits for."""
    recorder = active
    if recorder is not None:
        recorder.label(timeline, value, kind, name, after)


def _forget_after_fork() -> None:
    global active, _changing
    if active is not None:
        for window in list(active.windows):
            window.close()
    active, _changing = None, threading.RLock()


first_in_child(_forget_after_fork)
in_child(_retired.clear)
