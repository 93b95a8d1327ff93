"""Bringing an array to the host.

**Problem.** A read must see the state that the work submitted before it leaves, on however many streams, wait for nothing
else, keep later writers out until it is done, and not block the loop; a failure of the work must reach the reader, and only
its own stream.

**How.** What is small and written is copied at once, whoever else reads it, and so is what is about to be written where it
pays to wait for that awake (:mod:`aiodev._core.waiting.spinning`), or this thread can do the work itself while the loop has
nothing else to do: no task runs meanwhile that might submit more. If the
contents are of one stream alone, and that is the last thing that it was given, the copy is appended to that stream. Otherwise
streams may have more to do that is none of the reader's business: then a stream of the reader's own waits for all that writes
the array and copies. Such streams are kept for the next reader, unless something failed on them.

**Who is kept out.** The streams that the contents are of, whether or not they have written it by now, and the reader's current
stream if it follows what the read waits for, wait until the copy is over. Whether it is made is none of their business: it may
wait for other streams, which fail, or for what is withdrawn. But where one of those may wait for the program (a future, a
call), the program may be waiting for the stream that would be held. Then nobody is held: the reader waits for what has still to
write the array, and begins anew; it sees what was written meanwhile, too. If a single stream has still to write it, those alone
are held that follow it.

Another thread may submit at any moment: behind the look whether the array is written, while it is copied here, before all are
kept out. So a copy counts only if no write was noted from before that look until it is made, or until all are kept out, and
none was under way that had still to be noted (:mod:`aiodev._core.timeline.noting`). Else the read begins anew.

From a device whose memory the host cannot reach, what is small comes to page-locked memory, which the device writes by itself
in stream order, and is copied out of it when it is there: a copy to ordinary memory would wait for a thread's turn, twice.

Views with gaps are copied as one piece from their first to their last element, and NumPy strides over that, unless the
gaps are so large that a strided copy is better.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array import layout
from aiodev._array.dtypes import DType
from aiodev._array.protocols import Protocols, address_of, host_view, host_window, refuse_captured
from aiodev._array.tuning import DIRECT, READ_AGAIN, READ_LOCKED, READERS_KEPT, SMALL, WASTE
from aiodev._core.arguments import seconds
from aiodev._core.at_fork import in_child
from aiodev._core.backend.interface import COMPLETED, FAULTS
from aiodev._core.streams.completion import Completion, Reached
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import are_some_unnoted, counter, noting, wait_until_noted
from aiodev._core.timeline.recording import under_way
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.timeline.vector_clock import NO_CLOCK, merged
from aiodev._core.waiting.block_until import waits_for_program
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev._core.waiting.reactor import help_at_once, others_first
from aiodev._core.waiting.spinning import spin
from aiodev._memory.buffer import check_writes, record_torn
from aiodev._memory.pinned import pinned_cache

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._memory.buffer import Buffer

    Point = tuple[Timeline, int]

__all__ = ["at_hand", "is_soon_written", "item_at_once", "read", "read_at_once", "read_blocking", "read_later"]

HostArray = np.ndarray[Any, DType]

#: The numbers that are read as they lie there.
_NUMBERS: dict[DType, Any] = {
    np.dtype(name): kind
    for name, kind in (
        ("bool", ctypes.c_bool), ("int8", ctypes.c_int8), ("uint8", ctypes.c_uint8), ("int16", ctypes.c_int16),
        ("uint16", ctypes.c_uint16), ("int32", ctypes.c_int32), ("uint32", ctypes.c_uint32), ("int64", ctypes.c_int64),
        ("uint64", ctypes.c_uint64), ("float32", ctypes.c_float), ("float64", ctypes.c_double),
    )
}  # fmt: skip

_readers: dict[Device, list[Stream]] = {}
in_child(_readers.clear)


async def read(array: Protocols) -> HostArray:
    """A copy of the array on the host, for whom ``read_at_once`` had none."""
    at_once = read_at_once(array) if is_soon_written(array) else None
    if at_once is None:
        return await read_later(array)
    await others_first
    return at_once


async def read_later(array: Protocols) -> HostArray:
    """The same, of what is not soon written."""
    at_once = None
    while at_once is None and (ahead := _not_to_be_held_for(array._buffer)):
        for timeline, value in ahead:
            await Reached(timeline, value)
        at_once = read_at_once(array)
    if at_once is not None:
        await others_first
        return at_once
    readback = _read_back(array)
    try:
        await readback.completion
    except Exception:  # whatever it is, what made the contents may have failed before
        readback.raise_cause()
        raise
    return readback.finish()


def read_blocking(array: Protocols, timeout: float | None) -> HostArray:
    """A copy of the array on the host; blocks this thread."""
    if timeout is not None and seconds(None, timeout) <= 0:
        return _look(array, timeout)
    while (at_once := read_at_once(array)) is None and (ahead := _not_to_be_held_for(array._buffer)):
        began = time.monotonic()
        wait_all_blocking(ahead, timeout)
        timeout = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
    if at_once is not None:
        return at_once
    readback = _read_back(array)
    try:
        readback.completion.synchronize_blocking(timeout)
    except TimeoutError:
        raise
    except Exception:  # whatever it is, what made the contents may have failed before
        readback.raise_cause()
        raise
    return readback.finish()


def _look(array: Protocols, timeout: float) -> HostArray:
    """A copy, of values that are there: nothing is waited for, and nothing submitted.

    Raises:
        TimeoutError: something has still to write the array, or the host does not reach its memory.
    """
    values = read_at_once(array)
    if values is not None:
        return values
    values = _undisturbed(array._buffer, lambda: None if (there := at_hand(array)) is None else there.copy("K"))
    if values is not None:
        return values
    if array._buffer.is_written():
        array._buffer.check()
    raise TimeoutError(f"an array of the shape {array.shape} on {array.device} was not there within {timeout} s")


def read_at_once(array: Protocols) -> HostArray | None:
    """The copy, if nothing has to be waited for."""
    if under_way:
        refuse_captured(array._buffer)
    buffer, form = array._buffer, array._form
    if form.size * form.itemsize > DIRECT or not (buffer.source.host_accessible or form.size == 0):
        return None
    writer, written = buffer._writer, buffer._written
    if writer.__class__ is not Timeline or writer.counters[FAULTS] or not form.packed or not form.size:
        return _undisturbed(buffer, lambda: _copy_here(array))
    # As `_undisturbed` and `_copy_here` have it, without their calls, which would be as much again as the whole read.
    if writer.counters[COMPLETED] < written or noting or counter.value > 0:
        return None
    values = host_window(array).copy()
    if buffer._written != written or buffer._writer is not writer or noting or counter.value > 0:
        return None
    return values


def _copy_here(array: Protocols) -> HostArray | None:
    buffer, form = array._buffer, array._form
    if not buffer.is_written():
        return None
    buffer.check()
    return host_view(array).copy("K") if form.size else np.empty(form.shape, form.dtype)


def _undisturbed(buffer: Buffer, copy: Callable[[], HostArray | None]) -> HostArray | None:
    """What ``copy`` gives, if no thread has submitted a write meanwhile, of which the half might be in it."""
    for _ in range(2):  # a look at writers that are done forgets them, which is no write
        state = buffer.state()
        values = None if are_some_unnoted() else copy()
        if values is None or (buffer.state() == state and not are_some_unnoted()):
            return values
    return None


def is_soon_written(array: Protocols) -> bool:
    """Whether it is a small array and a spin sees all of it written: a copy on the device takes as long again."""
    buffer, form = array._buffer, array._form
    if form.size * form.itemsize > DIRECT or not buffer.source.host_accessible:
        return False
    for timeline, value in buffer.contents():
        if timeline.counters[COMPLETED] < value and (
            timeline.deferred or not (spin(timeline, value) or help_at_once(timeline, value))
        ):
            return False
    return True


def item_at_once(array: Protocols) -> Any:
    """The only element as a Python number, if nothing has to be waited for; else None."""
    if under_way:
        refuse_captured(array._buffer)
    buffer = array._buffer
    kind = _NUMBERS.get(array._form.dtype)
    if kind is None or not buffer.source.host_accessible or not buffer.is_written():
        copy = read_at_once(array)
        return None if copy is None else copy.item()
    buffer.check()
    return kind.from_address(array._address).value


def at_hand(array: Protocols) -> HostArray | None:
    """The array's memory as the host sees it, if it does, all that was to write it has, and nothing of that failed.

    Nobody is told of a failure by that.
    """
    buffer = array._buffer
    if not array.size:
        return np.empty(array._form.shape, array._form.dtype)
    if not buffer.source.host_accessible or not buffer.is_written():
        return None
    if any(value and timeline.error_of(value) is not None for timeline, value in buffer.contents()):
        return None
    return host_view(array)


def _not_to_be_held_for(buffer: Buffer) -> list[Point]:
    """The writes that a reader waits for before it begins, if a writer may not be held for the read (see the module)."""
    written = buffer.contents()
    if len(written) == 1:
        return []
    awaited = _unreached(written)
    if all(_follows(timeline, awaited) for timeline, _ in written):
        return []
    return awaited if any(waits_for_program(timeline) for timeline, _ in awaited) else []


def _unreached(points: list[Point]) -> list[Point]:
    return [(timeline, value) for timeline, value in points if not timeline.reached(value)]


def _follows(timeline: Timeline, points: list[Point]) -> bool:
    """Whether what a timeline is given from now on follows all of these points."""
    clock = timeline.frontier[1]
    return all(other is timeline or clock.get(other, 0) >= value for other, value in points)


def _read_back(array: Protocols) -> _Readback:
    """A copy that nobody can disturb any more."""
    tries = READ_AGAIN
    while True:
        wait_until_noted()
        readback = _Readback(array)
        if readback.is_whole() and (tries == 0 or not are_some_unnoted()):
            return readback
        tries = max(0, tries - 1)


class _Readback:
    """A copy to the host in flight."""

    def __init__(self, array: Protocols) -> None:
        self._buffer = array._buffer
        self._state = self._buffer.state()
        self._written = array._buffer.contents()
        self._ahead = _unreached(self._written)
        self._reader: Stream | None = None
        self._locked = False
        form = array._form
        nbytes = form.size * form.itemsize
        first, last = (0, nbytes) if form.packed else layout.extent(array._layout, form.itemsize)
        if last - first <= max(WASTE * nbytes, SMALL):
            timeline = self._choose_timeline(array.device)
            staging = self._staging(timeline, max(1, last - first))
            self._result: HostArray = np.ndarray(form.shape, form.dtype, staging, -first, form.strides)
            target = address_of(staging)
            operands = timeline.queue, target, array._address + first, last - first
            # The reader may be cancelled; the copy is not.
            try:
                value = timeline.submit_with(staging, staging.nbytes, timeline.operations.copy, *operands)
                self._buffer._record_read(timeline, value)
            except BaseException as error:
                record_torn(error, timeline, (), (self._buffer,))
                raise
        else:
            reader = self._own_reader(array.device)
            self._result = np.empty(form.shape, form.dtype)
            copied = reader.copy(self._result, array)
            timeline, value = copied.timeline, copied.value
        self._keep_writers_out(array.device, timeline, value)
        self.completion: Completion[None] = Completion(timeline, value)

    def is_whole(self) -> bool:
        """Whether no write was noted before all were kept out."""
        return bool(self._buffer.state() == self._state)

    def _staging(self, timeline: Timeline, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if nbytes <= READ_LOCKED and not self._buffer.source.host_accessible:
            try:
                block = pinned_cache(timeline.handle).allocate(timeline.device.index, nbytes)
            except (MemoryError, NotImplementedError):  # there is no more, or it has none at all
                pass
            else:
                self._locked = True
                return np.asarray(block)[:nbytes]
        return np.empty(nbytes, np.uint8)

    def _choose_timeline(self, device: Device) -> Timeline:
        timeline, value = self._written[0]
        if len(self._written) == 1 and timeline.submitted == value and self._ahead:
            return timeline
        return self._own_reader(device).timeline

    def _own_reader(self, device: Device) -> Stream:
        idle = _readers.setdefault(device, [])
        reader = self._reader = idle.pop() if idle else Stream(device, priority=-1)
        reader.timeline.owned = True  # who reads is told, if it still waits; what has failed, by its own stream
        for writer, value in self._ahead:
            reader.timeline.join(writer, value, writer.clock_at(value))
        return reader

    def _keep_writers_out(self, device: Device, timeline: Timeline, value: int) -> None:
        kept_out = {writer: None for writer, _ in self._written}
        current = current_stream(device).timeline
        if current is not timeline and current.recording is None and _follows(current, self._ahead):
            kept_out[current] = None
        former = [writer for writer in self._buffer.former_writers() if writer not in kept_out and writer.lost is None]
        if former and not any(waits_for_program(writer) for writer, _ in self._ahead):
            kept_out.update(dict.fromkeys(former))
        kept_out.pop(timeline, None)
        for other in kept_out:
            if timeline.counters[COMPLETED] < value:
                number = other.come_after(timeline, value)
                # That the clock has it says that what follows fails with what is written there, which is nobody else's.
                other.advance(number, merged(other.frontier[1], NO_CLOCK, other, timeline, value))

    def raise_cause(self) -> None:
        """Raise the failure of the work that the array depends on, from its own stream."""
        check_writes(self._written)

    def finish(self) -> HostArray:
        """The values, once the copy is done."""
        check_writes(self._written)  # what was over before the read began the copy did not wait for
        if self._reader is not None:
            idle = _readers.setdefault(self._reader.device, [])
            if len(idle) < READERS_KEPT:
                idle.append(self._reader)
        if not self._locked:
            return self._result
        return self._result.copy("K")
