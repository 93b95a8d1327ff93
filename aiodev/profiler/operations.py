"""Operations of a profile: what executors and streams have noted of each, brought together."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiodev._core import callsites
from aiodev._core.backend.device import Device
from aiodev._core.backend.kernel_arguments import WORD, parse_arguments
from aiodev._core.backend.trace_log import (
    BEGUN,
    BUFFER,
    COMMAND,
    ENDED,
    FATE_SHIFT,
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
)
from aiodev._core.streams import trace
from aiodev._core.streams.trace import KnownStream, NodeNote, Note, Source, TracedKernel, Window
from aiodev._core.timeline.withdrawal import Withdrawals

__all__ = ["Operation", "by_stream", "read_operations"]

_KINDS = {KERNEL: "kernel", WAIT: "wait", GATE: "gate", STAMP: "stamp", BUFFER: "graph", COMMAND: "kernel"}
_FATES = dict(zip(FATES, ("done", "failed", "skipped", "withdrawn"), strict=True))
_describe = functools.lru_cache(4096)(callsites.describe_site)
_FATE_MASK = len(FATES) - 1


class Operation(NamedTuple):
    """One operation of a stream.

    Times are in ns of the clock of ``time.perf_counter_ns``. The device's workers read it themselves.

    ``kind`` is ``kernel``, ``copy`` or ``fill``; ``wait``, for another stream; ``call``, of a Python function; ``future``, a
    wait for the host; ``compilation`` and ``memory``, waits for a kernel's code and for memory that others still use; ``gate``,
    held by anything else; ``stamp``, the time of an event; and ``graph``, a graph's replay, or a part of one. The nodes of that
    follow it, each as often as it has run; they have the number of the replay's operation, and lie within its time. Those that
    ran after the profile had ended are not there.

    Example:
        >>> from aiodev.profiler import Operation
        >>> copy = Operation("copy", "copy", 128, aiodev.Device("cpu"), 1, "done", 900, 1_000, 1_500, nbytes=64)
        >>> copy.duration_ns, copy.delay_ns
        (500, 100)
    """

    name: str  #: of the kernel, the function, the stream that is waited for; else the kind
    kind: str
    stream_id: int
    device: Device
    value: int  #: its number on the stream
    #: ``done``, ``failed``, ``skipped`` (one ahead of it had failed, or was withdrawn), ``withdrawn`` itself, or ``pending``
    #: while it is not over.
    outcome: str
    submitted_ns: int
    start_ns: int | None = None  #: when its stream came to it; None before that
    end_ns: int | None = None  #: when it was over, whatever its outcome; None before that
    shape: tuple[int, ...] | None = None  #: of a kernel's launch
    nbytes: int | None = None  #: what is copied or filled; of a kernel, its arrays as a whole, each counted once
    task: str | None = None  #: the name of the task that submitted it
    site: str | None = None  #: file and line that submitted it
    after: tuple[int, int] | None = None  #: the stream that a wait is for, and the operation there
    node: int | None = None  #: number of the node of a graph, where a replay has submitted it
    nested: bool = False  #: a node that lies within an operation of kind ``graph``, whose number it has

    @property
    def duration_ns(self) -> int | None:
        """How long it ran, or held its stream; None while it is not over."""
        return None if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns

    @property
    def delay_ns(self) -> int | None:
        """How long its stream took to come to it; None before that."""
        return None if self.start_ns is None else self.start_ns - self.submitted_ns

    @property
    def runs(self) -> bool:
        """Whether it is work of the device, that is a kernel, a copy, a fill or a graph; else it is a wait of some kind."""
        return self.kind in ("kernel", "copy", "fill", "graph")


def read_operations(window: Window) -> list[Operation]:
    """The operations of a window, in the order of submission. Waits for nothing.

    What a stream has noted and no executor has is not given to a device yet, which starts; or there was no room for it.
    """
    recorder = window.recorder
    streams = dict(recorder.streams)
    notes = {(note.stream_id, note.value): note for note in window.notes()}
    operations: list[Operation] = []
    replays: dict[tuple[int, int], Operation] = {}
    for source, slots in window.slots():
        for place in range(0, len(slots), SLOT_WORDS):
            slot = slots[place : place + SLOT_WORDS].tolist()
            if not slot[WHAT]:
                continue  # somebody is about to fill it in
            stream_id = source.stream_of(slot[QUEUE], slot[SUBMITTED])
            if stream_id not in streams:
                continue
            key = stream_id, slot[VALUE]
            if slot[WHAT] & OPERATION_MASK == COMMAND:
                replay = replays.get(key)
                if replay is not None:  # else that was submitted before the profile began
                    operations.append(_of_command(slot, replay, recorder.nodes.get(slot[FIRST])))
                continue
            operation = _of_slot(slot, source, stream_id, streams[stream_id], notes.pop(key, None), recorder.nodes)
            if operation.kind == "graph":
                replays[key] = operation
            operations.append(operation)
    all_noted = not window.dropped()
    operations += [
        _of_note(note, streams[note.stream_id])
        for note in notes.values()
        if 0 < note.submitted <= (window.ended or note.submitted)
        and (all_noted or _is_deferred(streams.get(note.stream_id)))
    ]
    return _in_order(operations)


def _in_order(operations: list[Operation]) -> list[Operation]:
    """Operations in the order of submission.

    A wait that was submitted while its backend started was noted when it was handed on: it came before the operation behind it.
    """
    ordered: list[Operation] = []
    for group in by_stream(operations).values():
        group.sort(key=lambda operation: operation.value)
        latest = group[-1].submitted_ns
        for place, operation in reversed(list(enumerate(group))):
            latest = min(latest, operation.submitted_ns)
            if latest != operation.submitted_ns:
                group[place] = operation._replace(submitted_ns=latest)
        ordered += group
    ordered.sort(key=lambda operation: (operation.submitted_ns, operation.stream_id, operation.value))
    return ordered


def _is_deferred(known: KnownStream | None) -> bool:
    """Whether a stream's device has not started, so that it was given nothing yet."""
    timeline = None if known is None else known.timeline()
    return timeline is not None and timeline.deferred


def _of_note(note: Note, known: KnownStream) -> Operation:
    name, shape, nbytes, after = _about(note)
    site = _describe(note.site)
    return Operation(
        name, note.kind, note.stream_id, known.device, note.value, "pending", note.submitted,
        shape=shape, nbytes=nbytes, task=note.task, site=site, after=after,
    )  # fmt: skip


def _of_command(slot: list[int], replay: Operation, node: NodeNote | None) -> Operation:
    """A node, as it ran in a replay."""
    begun, ended = slot[BEGUN], slot[ENDED]
    outcome = _FATES[slot[WHAT] >> FATE_SHIFT & _FATE_MASK] if ended else "pending"
    common = replay._replace(outcome=outcome, start_ns=begun or None, end_ns=ended or None, nested=True)
    if node is None:  # there was no room for it
        return common._replace(name="kernel", kind="kernel")
    note = Note(replay.stream_id, replay.value, replay.submitted_ns, node.kind, node.what, node.payload, node.site, replay.task)
    name, shape, nbytes, _ = _about(note)
    site = _describe(node.site)
    return common._replace(name=name, kind=node.kind, shape=shape, nbytes=nbytes, site=site, node=node.number)


def _of_slot(
    slot: list[int], source: Source, stream_id: int, known: KnownStream, note: Note | None, nodes: Mapping[int, NodeNote]
) -> Operation:
    what, begun, ended, submitted = slot[WHAT], slot[BEGUN], slot[ENDED], slot[SUBMITTED]
    operation = what & OPERATION_MASK
    outcome = _FATES[what >> FATE_SHIFT & _FATE_MASK] if ended else "pending"
    if source.executor is None and not ended and _is_over(known, slot[SECOND]):  # a stamp behind a failure is not made
        outcome = "failed" if begun else "skipped"
        begun = ended = begun or submitted
    outcome = _told_apart(outcome, known.withdrawals, slot[VALUE])
    kind, name, shape, nbytes, after = _KINDS[operation], _KINDS[operation], None, None, None
    task = site = number = None
    if note is not None:
        node = nodes.get(note.site)
        kind, task, site = note.kind, note.task, _describe(note.site if node is None else node.site)
        number = None if node is None else node.number
        submitted = min(submitted, note.submitted) if note.submitted else submitted
        name, shape, nbytes, after = _about(note)
    elif operation == KERNEL:
        name = trace.kernel_name(slot[FIRST])
    elif operation == WAIT:
        after = source.stream_of(slot[FIRST], submitted), slot[SECOND]
        name = f"stream {after[0]}"
    return Operation(
        name, kind, stream_id, known.device, slot[VALUE], outcome, submitted, begun or None, ended or None,
        shape, nbytes, task, site, after, number,
    )  # fmt: skip


def _told_apart(outcome: str, withdrawals: Withdrawals, value: int) -> str:
    """How an operation came out: what was withdrawn itself, and what is behind that, is the same to executors."""
    if outcome in ("done", "pending"):
        return outcome
    if withdrawals.withdrawn(value):
        return "withdrawn"
    return "skipped" if withdrawals.takes_along(value, value) else outcome


def _is_over(known: KnownStream, closing: int) -> bool:
    """Whether the stamp behind an operation was come to."""
    timeline = known.timeline()
    return timeline is None or (closing > 0 and timeline.reached(closing))


def _about(note: Note) -> tuple[str, tuple[int, ...] | None, int | None, tuple[int, int] | None]:
    """The name, shape and bytes of what a stream has noted, and what it waits for."""
    if note.kind in ("copy", "fill"):
        return note.kind, None, note.payload, None
    if note.kind != "kernel":
        return str(note.what), None, None, note.payload
    kernel = trace.entries.get(note.what)
    if kernel is None:
        return "kernel", None, None, None
    return kernel.name, *_size_of(kernel, note.payload), None


def _size_of(kernel: TracedKernel, block: bytes) -> tuple[tuple[int, ...], int]:
    """The shape of a launch, and the bytes of its arrays, from its argument block."""
    words = struct.unpack(f"<{len(block) // WORD}q", block)
    extents = {words[at]: itemsize * math.prod(words[at + 1 : at + 1 + ndim]) for at, ndim, itemsize in _arrays_of(kernel)}
    return words[: kernel.ndim], sum(extents.values())


@functools.lru_cache(1024)
def _arrays_of(kernel: TracedKernel) -> tuple[tuple[int, int, int], ...]:
    """Of each array of a kernel: the place of its address in the block, its dimensions, and the bytes of an element."""
    arguments = parse_arguments(kernel.ndim, kernel.arguments)
    return tuple((each.offset // WORD, each.ndim, each.itemsize) for each in arguments if each.is_array)


def by_stream(operations: Iterable[Operation]) -> dict[int, list[Operation]]:
    """Operations of each stream, in the order in which streams were first submitted to."""
    streams: dict[int, list[Any]] = {}
    for operation in operations:
        streams.setdefault(operation.stream_id, []).append(operation)
    return streams
