"""Counters of what the runtime did, and traces of which operation ran when on which stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aiodev._core.backend.device import Device
from aiodev._core.compilations import Compilation, on_compilation
from aiodev._core.streams import stream as _stream, trace
from aiodev._core.timeline.vector_clock import totals
from aiodev._kernel.compile.service import totals as kernel_totals

__all__ = ["Activity", "Compilation", "counters", "on_compilation", "record"]


def __dir__() -> list[str]:
    return __all__


class Activity(NamedTuple):
    """One kernel, copy or fill that a device ran.

    Times are in ns of the clock of ``time.perf_counter_ns``, read by the device itself right before and after.

    Example:
        >>> import aiodev
        >>> from aiodev.profiler import Activity
        >>> Activity("copy", 1, aiodev.Device("cpu"), start_ns=1_000, end_ns=1_500).duration_ns
        500
    """

    name: str  #: of the kernel, or ``"copy"`` or ``"fill"``
    stream_id: int
    device: Device
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """How long it ran."""
        return self.end_ns - self.start_ns


def counters() -> dict[str, int]:
    """Totals of this process so far.

    ``events_recorded``: calls of ``record``. ``waits_enqueued``: waits of a stream for another that the device had to
    be given. ``waits_elided``: those that were ordered already, so that nothing was enqueued. ``kernels_compiled``:
    kernels, each for one combination of types, that no process had compiled before. ``kernels_loaded``: those that were
    found in the disk cache. Subtract two readings to see what a piece of a program does.

    Example:
        >>> from aiodev import profiler
        >>> stream = aiodev.Stream("cpu")
        >>> before = profiler.counters()["waits_elided"]
        >>> stream.wait_stream(stream)  # a stream follows itself
        >>> profiler.counters()["waits_elided"] - before
        1
    """
    return {name: getattr(source, name) for source in (totals, kernel_totals) for name in sorted(source.__slots__)}


@contextmanager
def record() -> Iterator[list[Activity]]:
    """Record what every stream runs of what is submitted inside the block.

    The list is filled when the block is left, ordered by start, with what has run by then; so wait inside the block for
    what is to be seen. Operations that failed or were skipped are not in it. Each operation is bracketed by two stamps
    of the device, which make submission slower and need no GIL.

    Raises:
        RuntimeError: a recording is under way; there is one at a time in a process.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     with profiler.record() as activities:
        ...         await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
        ...     return [activity.name for activity in activities]
        >>> asyncio.run(main())
        ['copy']
    """
    if trace.active is not None:
        raise RuntimeError("a recording is under way in this process; leave its block first")
    activities: list[Activity] = []
    trace.active = recording = trace.Trace()
    try:
        _rebind()
        yield activities
    finally:
        trace.active = None
        _rebind()
        for span in recording.spans:
            span.finish()
        done = [span for span in recording.spans if span.end.value]
        activities += [
            Activity(span.name, span.stream_id, span.device, span.begin.value, span.end.value) for span in done
        ]
        activities.sort(key=lambda activity: activity.start_ns)


def _rebind() -> None:
    """Have every stream take up, or drop, the tracing of what it submits."""
    for stream in list(_stream._streams.values()):
        if not stream._closed:
            stream._bind()
