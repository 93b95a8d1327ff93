"""A piece of device memory, and the last operations that use it.

**Problem.** An array may be dropped while work that reads or writes it is still queued. Its memory must then serve nobody
else before that work is done. Several streams may write an array at once, each a part of it; who reads it then waits for all
of them, and hears of the failure of each. And nothing may be kept per operation: a launch has no time for it.

**Invariants.**

1.  A buffer knows, for each timeline that has not finished with it, the number of its last write there and of its last read.
    Numbers only grow.
2.  The contents are good if every write of ``contents()`` succeeded. That is the last one of each timeline, but for those that
    a later write, of another timeline, stands for. It stands for what is done and did not fail; for what is ordered before it,
    since it is done later, and fails if that failed; and for what failed if somebody was told before it was submitted, as on a
    single stream. What only reads the contents leaves them as they are.
3.  ``_writer`` and ``_written`` are the only write that is known. While there are several, ``_writer`` is a :class:`Uses`
    of all of them, which is no timeline. ``_reader`` and ``_read`` are the last read, or None and 0; ``_readers`` has those of
    other timelines that may not be done.
4.  ``_former`` are other streams that have written the memory: a part of the contents may be from them, though a later write
    stands for theirs. There is nothing to wait for, but what they are given next may write that part again. Who reads holds
    them back meanwhile (:mod:`aiodev._array.readback`). They are referred to weakly: nobody submits to one that is gone.
5.  The use that a fresh buffer's memory was freed with, when it may still be running, is one of its reads: it is to be waited
    for by who takes the memory next, and its failure is not the business of the contents.

A launch stores to ``_written`` and ``_read`` by itself where the timeline is the same as before, and any thread may be
interrupted by another, or by a finalizer, at any call. So no call may come between the last look at one of these fields here
and the stores that give it another meaning: what was found out meanwhile is stored if they are what they were, else it is
found out again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core.backend.interface import COMPLETED, FAULTS
from aiodev._core.errors import BadForkError, fresh
from aiodev._core.finalizing import until_exit
from aiodev._core.timeline import faults
from aiodev._core.tuning import TENDED_BYTES
from aiodev._memory.tuning import CREDIT

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.timeline.timeline import Timeline

    Point = tuple[Timeline, int]

__all__ = ["Alias", "Buffer", "Foreign", "ForeignBuffer", "Source", "Uses", "check_writes", "record_torn", "why_read_only"]

_making = threading.RLock()  # re-entrant: a finalizer may write, too


class Source(Protocol):
    """An allocator, or an owner of foreign memory, as its buffers know it."""

    device: Device
    host_accessible: bool


class Former(set["weakref.ref[Timeline]"]):
    """Former writers. Now and then, those that are gone are left out.

    Attributes:
        most: how many there are when that is done next: many more than there were left, so that it costs little.
    """

    __slots__ = ("most",)

    def __init__(self, living: Iterable[weakref.ref[Timeline]] = ()) -> None:
        super().__init__(living)
        self.most = 2 * len(self) + CREDIT


class Uses(dict["Timeline", int]):
    """The last operation of each of several timelines. Now and then, those that need not be known any more are left out.

    Attributes:
        credit: how many more are noted before that: more than there are, so that it costs little.
        tellings: how often somebody had been told of a failure, or had withdrawn something, when they were looked through.
    """

    __slots__ = ("credit", "tellings")

    def __init__(self, points: Iterable[Point]) -> None:
        self.tellings = faults.tellings  # before they are looked through
        super().__init__(points)
        self.credit = 2 * len(self) + CREDIT


class Buffer:
    """Memory that arrays share; what becomes of it when the last of them is dropped, the subclasses say.

    Attributes:
        address: of its first byte.
        block: what its source knows it by.
        is_own: whether no other buffer has any byte of it, nor anybody but us.
    """

    is_own = False

    __slots__ = ("__weakref__", "_former", "_read", "_reader", "_readers", "_writer", "_written", "address", "block", "source")

    address: int
    source: Source
    block: Any
    _writer: Timeline | Uses
    _written: int
    _reader: Timeline | None
    _read: int
    _readers: Uses | None
    _former: Former  #: only where there are any

    def __init__(self, address: int, source: Source, block: Any, timeline: Timeline, value: int) -> None:
        self.address = address
        self.source = source
        self.block = block
        self._writer = timeline
        self._written = value
        self._reader = timeline
        self._read = 0
        self._readers = None

    def _record_write(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` uses the memory, and may write it; nothing for 0, no operation."""
        while (writer := self._writer) is not timeline:
            recording = timeline.recording
            if value == 0 or (recording is not None and (recording.held.get(self) or recording.hold(self, True))):
                return
            if isinstance(writer, Uses):
                if self._record_beside(writer, timeline, value):
                    return
                continue
            self._check_here()
            written, counters, (since, clock) = self._written, writer.counters, writer.frontier
            if timeline in clock and clock[timeline] >= value and written >= since:  # this thread is late: others were faster
                self._note_former(timeline)
                return
            latest: Timeline | Uses = timeline
            plain = counters[COMPLETED] >= written and not counters[FAULTS]
            if not (plain or _follows(timeline, value, writer, written) or _is_over(writer, written)):
                latest = Uses(((writer, written), (timeline, value)))
            if written:
                self._note_former(writer)
            if self._writer is writer and self._written == written:  # no call from here on
                self._writer = latest
                self._written = value
                return
        if self._written < value:
            self._written = value

    def _record_beside(self, writers: Uses, timeline: Timeline, value: int) -> bool:
        """Note a write while there are several writers; False if the writers have changed meanwhile."""
        if writers.credit > 0 and writers.tellings == faults.tellings:
            if self._writer is not writers:  # no call from here on
                return False
            if timeline in writers:
                if writers[timeline] >= value:
                    return True
                del writers[timeline]  # the last one is at the end
            writers[timeline] = value
            writers.credit -= 1
            return True
        before = writers.copy()
        if before.get(timeline, 0) > value:
            return True
        others = ((t, v) for t, v in before.items() if t is not timeline)
        left = Uses((t, v) for t, v in others if not (_is_over(t, v) or _follows(timeline, value, t, v)))
        latest: Timeline | Uses = left if left else timeline
        for former in before.keys() - left.keys():
            self._note_former(former)
        left[timeline] = value
        if self._writer is not writers or writers != before:  # no call from here on
            return False
        self._writer = latest
        self._written = value
        return True

    def _note_former(self, timeline: Timeline) -> None:
        former = getattr(self, "_former", None)
        if former is None or len(former) >= former.most:
            with _making:  # so that of two threads none replaces what the other one has noted
                former = getattr(self, "_former", None)
                if former is None or len(former) >= former.most:
                    living = () if former is None else former.copy()
                    former = self._former = Former(reference for reference in living if reference() is not None)
        former.add(weakref.ref(timeline))

    def former_writers(self) -> list[Timeline]:
        """Other streams that a part of the contents may be from, though there is nothing of theirs to wait for."""
        former = getattr(self, "_former", None)
        return [] if former is None else [timeline for reference in former.copy() if (timeline := reference()) is not None]

    def _record_read(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` reads the memory."""
        while (reader := self._reader) is not timeline:
            recording = timeline.recording
            if recording is not None and (self in recording.held or recording.hold(self, False)):
                return
            self._check_here()
            read, readers = self._read, self._readers
            if readers is not None and timeline in readers and readers[timeline] > value:
                return
            if reader is None or reader.counters[COMPLETED] >= read:
                if self._reader is reader and self._read == read:  # no call from here on
                    self._reader = timeline
                    self._read = value
                    return
            elif readers is None or readers.credit <= 0:
                before = {} if readers is None else readers.copy()
                left = Uses((t, v) for t, v in before.items() if t.counters[COMPLETED] < v)
                if self._readers is readers and (readers is None or readers == before):  # no call from here on
                    self._readers = left
            elif self._reader is reader and self._readers is readers:  # no call from here on
                if reader not in readers:
                    readers[reader] = self._read
                    readers.credit -= 1
                elif readers[reader] < self._read:
                    readers[reader] = self._read
                self._reader = timeline
                self._read = value
                return
        if self._read < value:
            self._read = value

    def _check_here(self) -> None:
        """Raise if this is a forked child, and the contents are those of its parent's timelines."""
        writer = self._writer
        last = next(iter(writer.copy())) if isinstance(writer, Uses) else writer
        if last.counters[FAULTS] and isinstance(last.lost, BadForkError):
            raise fresh(last.lost)

    def record_foreign(self, timeline: Timeline, value: int) -> None:
        """Note that work which was not submitted through aiodev, up to operation ``value``, uses the memory.

        Its order is its owner's business.
        """
        self._record_write(timeline, value)

    def contents(self) -> list[Point]:
        """The operations that the contents are of, the last one of each timeline that there may be something to know of."""
        writer, written = self._writer, self._written
        return list(writer.items()) if isinstance(writer, Uses) else [(writer, written)]

    def is_written(self) -> bool:
        """Whether the contents are there, as they are or failed."""
        writer, written = self._writer, self._written
        if isinstance(writer, Uses):
            return all(timeline.counters[COMPLETED] >= value for timeline, value in writer.copy().items())
        return writer.counters[COMPLETED] >= written

    def state(self) -> Any:
        """What is equal as long as no write is noted."""
        writer = self._writer
        return (writer, tuple(writer.copy().items())) if isinstance(writer, Uses) else (writer, self._written)

    def written_by(self, timeline: Timeline) -> int:
        """The last operation of ``timeline`` that the contents are of; 0 if there is none."""
        return max((value for writer, value in self.contents() if writer is timeline), default=0)

    def uses(self) -> list[Point]:
        """The last uses, those of what wrote the contents first; a timeline may be there more than once."""
        uses = self.contents()
        reader, read, readers = self._reader, self._read, self._readers
        if reader is not None and read:
            uses.append((reader, read))
        if readers is not None:
            uses += readers.copy().items()
        return uses

    def pending(self) -> list[Point]:
        """The uses that are not done; a timeline may be there more than once."""
        return [(timeline, value) for timeline, value in self.uses() if timeline.counters[COMPLETED] < value]

    def join_uses(self, timeline: Timeline) -> None:
        """Order later operations of a timeline after what others were given that uses the memory.

        They fail if what has written the contents failed; how reads come out is none of their business. If the timeline is
        captured, this holds for each replay.
        """
        recording = timeline.recording
        if recording is not None:
            recording.follow(timeline, self)
            return
        reader = self._reader
        is_read = not (reader is timeline or reader is None or reader.counters[COMPLETED] >= self._read)
        if self._writer is timeline and self._readers is None and not is_read:
            return
        written = self.contents()
        for other, value in (*written, *self.pending()):
            if other.recording is not None:
                other.recording.refuse("what is not captured cannot follow captured work")
            if (other, value) in written:
                timeline.join(other, value, other.clock_at(value))
            elif other is not timeline and timeline.frontier[1].get(other, 0) < value:
                timeline.come_after(other, value)

    def check(self) -> None:
        """Raise what went wrong with the contents, as far as that is known; see :func:`check_writes`."""
        writer, written = self._writer, self._written
        if not isinstance(writer, Uses):
            if writer.counters[FAULTS]:
                check_writes(((writer, written),))
            return
        writers = writer.copy()
        check_writes(writers.items())
        *_, (last, written) = writers.items()
        all_done = all(timeline.reached(value) for timeline, value in writers.items())
        if not all_done:
            return
        for former in writers:
            self._note_former(former)
        if self._writer is writer and writer == writers:  # no call from here on
            self._writer = last  # nobody need know of the others any more
            self._written = written


def record_torn(error: BaseException, timeline: Timeline, written: Iterable[Buffer], read: Iterable[Buffer] = ()) -> None:
    """Note that an operation may use buffers though its number got lost: an exception arrived behind its submission.

    Ctrl-C's is such a one. An ``Exception`` is a refusal, and nothing was submitted.
    """
    if isinstance(error, Exception):
        return
    value = timeline.submitted
    for buffer in written:
        buffer._record_write(timeline, value)
    for buffer in read:
        buffer._record_read(timeline, value)


def check_writes(points: Iterable[Point]) -> None:
    """Raise what went wrong with one of the operations that some contents are of; first what nobody was told of yet."""
    failed: Point | None = None
    for timeline, value in points:
        if value and timeline.counters[FAULTS] and timeline.reached(value):
            if timeline.failure_told(value) is False:
                timeline.check(value)
            if failed is None and timeline.error_of(value) is not None:
                failed = timeline, value
    if failed is not None:
        failed[0].check(failed[1])


def _is_over(timeline: Timeline, value: int) -> bool:
    """Whether an operation is done, and did not fail; or failed or never runs, as who was told or withdrew it knows."""
    if timeline.withdrew and timeline.faults.withdrawals.ahead_of(value) != value:
        return True
    counters = timeline.counters
    is_done = counters[COMPLETED] >= value
    if not counters[FAULTS] or timeline.lost is not None:
        return is_done
    told = timeline.failure_told(value)
    return is_done if told is None else told


def _follows(timeline: Timeline, value: int, other: Timeline, last: int) -> bool:
    """Whether operation ``value`` of ``timeline`` is ordered after ``last`` of ``other``, and fails if that fails."""
    since, clock = timeline.frontier
    return value >= since and clock.get(other, 0) >= last


class Alias(Buffer):
    """Another name for a buffer, under which one of several arrays in the same memory is told from the others.

    It knows of no use by itself: ``_writer`` and ``_reader`` are None, so that every use is noted by a call, in the buffer.
    """

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Buffer) -> None:
        super().__init__(buffer.address, buffer.source, buffer.block, None, 0)  # type: ignore[arg-type]
        self._buffer = buffer

    def _record_write(self, timeline: Timeline, value: int) -> None:
        self._buffer._record_write(timeline, value)

    def _record_read(self, timeline: Timeline, value: int) -> None:
        self._buffer._record_read(timeline, value)

    def contents(self) -> list[Point]:
        """The contents of the buffer that this is an alias of, as for all methods that follow."""
        return self._buffer.contents()

    def is_written(self) -> bool:
        return self._buffer.is_written()

    def state(self) -> Any:
        return self._buffer.state()

    def former_writers(self) -> list[Timeline]:
        return self._buffer.former_writers()

    def uses(self) -> list[Point]:
        return self._buffer.uses()

    def check(self) -> None:
        self._buffer.check()


class Foreign:
    """The source of buffers over memory that somebody else owns, such as a NumPy array: ``owner``, which keeps it.

    Attributes:
        why_read_only: where nobody has said so, why the memory must not be written to; the errors of writes end with it.
    """

    def __init__(self, device: Device, owner: Any, host_accessible: bool = True, why_read_only: str = "") -> None:
        self.device = device
        self.host_accessible = host_accessible
        self.owner = owner
        self.why_read_only = why_read_only


def why_read_only(array: Any) -> str:
    """What the error of a write adds to "is read-only", where its owner has not said that it is."""
    buffer = getattr(array, "_buffer", None)
    return str(getattr(getattr(buffer, "source", None), "why_read_only", ""))


@until_exit
class ForeignBuffer(Buffer):
    """Memory of a :class:`Foreign` owner, who is kept until its uses are done."""

    __slots__ = ()

    source: Foreign

    def __del__(self) -> None:
        """Keep the owner for what is still running."""
        for timeline, value in self.pending():
            timeline.keep(value, self.source.owner, TENDED_BYTES)  # how much it is we do not know
