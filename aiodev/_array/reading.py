"""Bringing an array to the host.

**Problem.** A read must see the state that the work submitted before it leaves, wait for nothing else, keep later writers
out until it is done, and not block the loop; a failure of the work must reach the reader, and only its own stream.

**How.** What is small and written is copied at once, whoever else reads it. If the last thing that the array's stream was
given wrote the array, the copy is appended to that stream. Otherwise the stream may have more to do that is none of the
reader's business: then a stream of the reader's own waits for what wrote the array and copies, and the array's stream waits
for it. Such streams are kept for the next reader, unless something failed on them.

From a device whose memory the host cannot reach, what is small comes to page-locked memory, which the device writes by itself
in stream order, and is copied out of it when it is there: a copy to ordinary memory would wait for a thread's turn, twice.

Views with gaps are copied as one piece from their first to their last element, and NumPy strides over that, unless the
gaps are so large that a strided copy is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array import layout
from aiodev._array.dtypes import DType
from aiodev._array.protocols import Unwaited
from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.completion import Completion
from aiodev._core.registry import registry
from aiodev._core.stream import Stream
from aiodev._memory.pinned import pinned_cache

if TYPE_CHECKING:
    from aiodev._array.array import Array
    from aiodev._core.device import Device
    from aiodev._core.timeline import Timeline
    from aiodev._memory.buffer import Buffer

__all__ = ["read", "read_blocking"]

HostArray = np.ndarray[Any, DType]

#: Bytes that are copied by the host itself, which takes no longer than submitting does.
DIRECT = 32 << 10
#: Gaps are copied along if that makes the copy at most so much larger, or this large.
_WASTE, _SMALL = 4, 1 << 20
#: Bytes that go by way of page-locked memory.
_LOCKED = 64 << 10
_READERS_KEPT = 4

_readers: dict[Device, list[Stream]] = {}
registry.after_fork.append(_readers.clear)


async def read(array: Array) -> HostArray:
    """A copy of the array on the host."""
    at_once = _read_directly(array)
    if at_once is not None:
        return at_once
    reading = _Reading(array)
    try:
        await reading.completion
    except Exception:  # whatever it is, what made the contents may have failed before
        reading.raise_cause()
        raise
    return reading.finish()


def read_blocking(array: Array, timeout: float | None) -> HostArray:
    """The same, blocking this thread."""
    at_once = _read_directly(array)
    if at_once is not None:
        return at_once
    reading = _Reading(array)
    try:
        reading.completion.synchronize_blocking(timeout)
    except TimeoutError:
        raise
    except Exception:  # whatever it is, what made the contents may have failed before
        reading.raise_cause()
        raise
    return reading.finish()


def _read_directly(array: Array) -> HostArray | None:
    """The copy, if nothing has to be waited for."""
    buffer = array._buffer
    if array.nbytes > DIRECT and array.size:
        return None
    if not (buffer.source.host_accessible or array.size == 0) or not _is_written(buffer):
        return None
    buffer.check()
    return np.array(Unwaited(array)) if array.size else np.empty(array._shape, array._dtype)


def _is_written(buffer: Buffer) -> bool:
    """Whether the contents are there. What else only reads them is not waited for."""
    timeline, value = buffer.contents()
    return timeline.counters[COMPLETED] >= value


class _Reading:
    """A copy to the host in flight."""

    def __init__(self, array: Array) -> None:
        self._buffer = array._buffer
        self._written = array._buffer.contents()
        self._reader: Stream | None = None
        self._locked = False
        itemsize = array.itemsize
        first, last = layout.extent(array._layout, itemsize)
        if last - first <= max(_WASTE * array.nbytes, _SMALL):
            timeline = self._choose_timeline(array.device)
            staging = self._staging(timeline, last - first)
            self._result: HostArray = np.ndarray(array.shape, array.dtype, staging, -first, array.strides)
            target = staging.__array_interface__["data"][0]
            value = timeline.operations.copy(timeline.queue, target, array._address + first, last - first)
            timeline.keep(value, staging, staging.nbytes)  # the reader may be cancelled; the copy is not
        else:
            reader = self._own_reader(array.device)
            self._result = np.empty(array.shape, array.dtype)
            timeline, value = reader.copy(self._result, array)
        self._keep_writers_out(timeline, value)
        self.completion = Completion(timeline, value)

    def _staging(self, timeline: Timeline, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if nbytes <= _LOCKED and not self._buffer.source.host_accessible:
            try:
                block = pinned_cache(timeline.entry).allocate(timeline.device.index, nbytes)
            except (MemoryError, NotImplementedError):  # there is no more, or it has none at all
                pass
            else:
                self._locked = True
                return np.asarray(block)[:nbytes]
        return np.empty(nbytes, np.uint8)

    def _choose_timeline(self, device: Device) -> Timeline:
        timeline, value = self._written
        if timeline.submitted == value and not _is_written(self._buffer):
            return timeline
        return self._own_reader(device).timeline

    def _own_reader(self, device: Device) -> Stream:
        idle = _readers.setdefault(device, [])
        reader = self._reader = idle.pop() if idle else Stream(device, priority=-1)
        writer, value = self._written
        if not _is_written(self._buffer):
            reader.timeline.join(writer, value, writer.clock_at(value))
        return reader

    def _keep_writers_out(self, timeline: Timeline, value: int) -> None:
        writer = self._buffer._timeline
        self._buffer._stamp_aside(timeline, value)
        if writer is not timeline:
            writer.join(timeline, value, timeline.clock_at(value))

    def raise_cause(self) -> None:
        """Raise the failure of the work that the array depends on, from its own stream."""
        timeline, value = self._written
        if timeline.reached(value) and not self._buffer.inherited(timeline, value):
            timeline.check(value)

    def finish(self) -> HostArray:
        """The copy, which is done."""
        timeline, value = self._written
        if timeline.counters[FAULTS] and not self._buffer.inherited(timeline, value):
            timeline.check(value)  # over before the read began, so the copy did not wait for it
        if self._reader is not None:
            idle = _readers.setdefault(self._reader.device, [])
            if len(idle) < _READERS_KEPT:
                idle.append(self._reader)
        if not self._locked:
            return self._result
        return self._result.copy("K")
