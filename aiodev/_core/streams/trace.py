"""Tracing: which operation ran when, on which stream.

While a trace is active, every kernel, copy and fill is bracketed by two stamps on its stream. Native code writes the times;
nothing of it needs the GIL. The public face is :func:`aiodev.profiler.record`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core.waiting.blocking import wait_blocking

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline

#: Names of kernel entries, filled in by the kernel layer.
entry_names: dict[int, str] = {}


class Traced(Protocol):
    """A stream whose submissions a trace brackets."""

    _launch: Callable[[int, int, bytes, int], int]
    _copy: Callable[[int, int, int], int]
    _fill: Callable[[int, int, bytes], int]
    stream_id: int
    device: Device
    timeline: Timeline


class Span:
    """One traced operation; times in ns of ``time.perf_counter_ns``, 0 until it ran."""

    __slots__ = ("begin", "device", "end", "last", "name", "stream_id", "timeline")

    def __init__(self, name: str, timeline: Timeline, stream: Identity) -> None:
        self.name = name
        self.timeline = timeline
        self.last = 0  # the number of the closing stamp
        self.stream_id = stream.stream_id
        self.device = stream.device
        self.begin = ctypes.c_int64()
        self.end = ctypes.c_int64()

    def finish(self) -> None:
        """Wait for the closing stamp of an operation that has run; it follows at once, within µs, and seldom blocks at all."""
        if self.end.value == 0 and self.timeline.reached(self.last - 1):
            wait_blocking(self.timeline, self.last, None)


class Trace:
    """Collects spans from every stream that it is attached to."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def attach(self, stream: Traced) -> None:
        """Trace what is submitted to ``stream`` from now on."""
        stream._launch = self._traced(stream, stream._launch, lambda args: entry_names.get(args[0], "kernel"))
        stream._copy = self._traced(stream, stream._copy, lambda args: "copy")
        stream._fill = self._traced(stream, stream._fill, lambda args: "fill")

    def _traced(
        self, stream: Traced, submit: Callable[..., int], name: Callable[[tuple[Any, ...]], str]
    ) -> Callable[..., int]:
        timeline = stream.timeline
        identity = Identity(stream)

        def submit_traced(*args: Any) -> int:
            span = Span(name(args), timeline, identity)
            operations, queue = timeline.operations, timeline.queue
            timeline.keep(operations.stamp(queue, ctypes.addressof(span.begin)), span)
            value = submit(*args)
            span.last = operations.stamp(queue, ctypes.addressof(span.end))
            timeline.keep(span.last, span)
            self.spans.append(span)
            return value

        return submit_traced


class Identity:
    """The name of a span's stream, which does not hold the stream."""

    __slots__ = ("device", "stream_id")

    def __init__(self, stream: Traced) -> None:
        self.stream_id = stream.stream_id
        self.device = stream.device


#: The active trace, or None.
active: Trace | None = None
