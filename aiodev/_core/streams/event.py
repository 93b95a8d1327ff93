"""Events: named points of streams that other streams, and tasks, wait for."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NoReturn, Protocol

from aiodev._core import arguments
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import SUBMITTED
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.errors import fresh
from aiodev._core.streams.completion import Completion, point
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.timeline.vector_clock import Clock, totals
from aiodev._core.waiting.reactor import others_first

__all__ = ["Event"]

_ids = itertools.count(1)


def _check_flags(**flags: bool) -> None:
    for name, flag in flags.items():
        arguments.instance("Event", name, flag, bool, "True or False")


class StreamLike(Protocol):
    """A stream, as events know it: streams make events, and not the other way round."""

    @property
    def timeline(self) -> Timeline: ...

    @property
    def device(self) -> Device: ...


#: What one `record` saw: a point, what that point follows, and where the time is written. Replaced as a whole.
_Record = tuple[Timeline, int, Clock, ctypes.c_int64 | None]


class Event:
    """A point of a stream, to be waited for by streams and by tasks.

    An event is made lazily: the first ``record`` fixes its device. One that was never recorded is done, and waiting for it
    does nothing. Recording again moves it; a wait binds to the record that was current when it was called. Recording
    costs a few loads, and with ``enable_timing`` one operation of the stream.

    Args:
        device: the device; by default that of the first stream it is recorded on.
        enable_timing: have ``record`` note the time, for ``elapsed_time``.
        blocking: a waiter parks at once instead of spinning for a moment.
        interprocess: not available yet; raises.

    Raises:
        TypeError: a flag is neither True nor False.
        ValueError: ``interprocess`` is asked for.

    Example:
        >>> import aiodev
        >>> first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        >>> _ = first.call(print, "first")
        >>> event = first.record_event()
        >>> second.wait_event(event)
        >>> second.call(print, "second").synchronize_blocking()
        first
        second
    """

    __slots__ = ("__weakref__", "_blocking", "_device", "_record", "enable_timing", "event_id")

    #: Set by ``stream``, which is further up the ladder: the current stream of a device.
    current_stream: ClassVar[Callable[[Device | None], StreamLike]]

    def __init__(
        self,
        device: DeviceLike | None = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        try:
            plain = not (enable_timing or blocking or interprocess)
        except Exception:  # an array, which has no truth
            plain = False
        if not plain:
            _check_flags(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)
            if interprocess:
                raise ValueError("Event(interprocess=True): no backend here can share events between processes yet")
        self._device = None if device is None else registry.resolve(device)[1]
        self.enable_timing = enable_timing
        self.event_id = next(_ids)
        self._blocking = blocking
        self._record: _Record | None = None

    def __reduce__(self) -> NoReturn:
        """A point of a stream of this process is not copied and not pickled."""
        raise TypeError("events are not pickled or copied: they belong to their process; record one there")

    @property
    def device(self) -> Device | None:
        """The device; None until the first ``record`` when none was given."""
        return self._device

    @property
    def blocking(self) -> bool:
        """Whether waiters park at once."""
        return self._blocking

    def record(self, stream: StreamLike | None = None) -> None:
        """Move the event to the present end of ``stream`` (default: the current stream of the event's device).

        Never blocks.

        Raises:
            TypeError: it is no stream.
            ValueError: the stream is on another device than the event.
        """
        if stream is None:
            stream = Event.current_stream(self._device)
        try:
            timeline, device = stream.timeline, stream.device
        except AttributeError:
            raise arguments.refusal("record", "stream", "a Stream, or None", stream) from None
        if self._device is None:
            self._device = device
        elif self._device is not device:  # there is one object for each device
            raise ValueError(
                f"the event belongs to {self._device} and cannot be recorded on {stream}; use another event"
            )
        if timeline.lost is not None:
            raise fresh(timeline.lost)
        totals.events_recorded += 1
        clock = timeline.frontier[1]  # before the point itself: what is read later may be true of later points only
        if self.enable_timing:
            cell = ctypes.c_int64()
            value = timeline.submit_with(cell, 0, timeline.operations.stamp, timeline.queue, ctypes.addressof(cell))
            self._record = (timeline, value, clock, cell)
        else:
            value = timeline.counters[SUBMITTED]
            if timeline.withdrew:
                value, clock = timeline.last_to_run(value, clock)
            if timeline.faults.known and (fault := timeline.fault_of(value)) is not None and fault.told:
                # The last operation failed, and that has been told. What follows it is clean: put a point there.
                cell = ctypes.c_int64()
                value = timeline.submit_with(cell, 0, timeline.operations.stamp, timeline.queue, ctypes.addressof(cell))
            self._record = (timeline, value, clock, None)

    def wait(self, stream: StreamLike | None = None) -> Completion[None]:
        """Order what is submitted to ``stream`` from now on after the event; returns what a task may await too.

        Does not block. On a stream that already follows the event nothing is enqueued.
        """
        if stream is None:
            stream = Event.current_stream(self._device)
        try:
            line = stream.timeline
        except AttributeError:
            raise arguments.refusal("wait", "stream", "a Stream, or None", stream) from None
        record = self._record
        if record is None:
            return point(line, 0)
        timeline, value, clock, _ = record
        line.join(timeline, value, clock)
        return point(timeline, value)

    def query(self) -> bool:
        """Whether the point is reached; True when never recorded."""
        record = self._record
        return record is None or Completion(record[0], record[1]).query()

    def __await__(self) -> Generator[Any, Any, None]:
        """Suspend the task until the point is reached; raises what failed on its stream before it."""
        record = self._record
        if record is None:
            return others_first.__await__()
        if self._blocking:
            record[0].spins = False
        return Completion(record[0], record[1]).__await__()

    async def synchronize(self) -> None:
        """As ``await event``."""
        await self

    def synchronize_blocking(self, timeout: float | None = None) -> None:
        """Block this thread until the point is reached.

        Raises:
            TimeoutError: ``timeout`` seconds have passed.
        """
        record = self._record
        if record is not None:
            Completion(record[0], record[1]).synchronize_blocking(timeout)
        else:
            arguments.seconds(None, timeout)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to ``end``, both recorded with timing and done. Never blocks.

        Raises:
            TypeError: ``end`` is no event.
            ValueError: one of them has no timing, or was never recorded, or they are of different device types.
            RuntimeError: one of them is not done.
        """
        arguments.instance("elapsed_time", "end", end, Event, "an Event")
        for name, event in (("start", self), ("end", end)):
            if not event.enable_timing:
                raise ValueError(f"the {name} event does not measure time; make it with Event(enable_timing=True)")
            if event._record is None:
                raise ValueError(f"the {name} event was never recorded; record it first")
        start_time, end_time = self._time("start"), end._time("end")
        assert self._device is not None and end._device is not None
        if self._device.type != end._device.type:
            raise ValueError(f"times on {self._device} and {end._device} cannot be compared")
        return (end_time - start_time) / 1e6

    def _time(self, name: str) -> int:
        record = self._record
        assert record is not None
        timeline, value, _, cell = record
        if cell is None or not timeline.reached(value):
            raise RuntimeError(f"the {name} event is not done; await it first")
        timeline.check(value)
        return cell.value

    def ipc_handle(self) -> bytes:
        """A handle for another process; raises, since no backend here can share events yet."""
        raise ValueError("ipc_handle: the event was not made with interprocess=True, which no backend here offers yet")

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, handle: bytes) -> Event:
        """The event of another process; raises, since no backend here can share events yet."""
        raise ValueError(f"from_ipc_handle: events of {registry.resolve(device)[1]} cannot be shared between processes yet")

    def __repr__(self) -> str:
        state = "unrecorded" if self._record is None else "done" if self.query() else "pending"
        return f"<aiodev.Event {self.event_id} on {self._device or 'any device'}, {state}>"
