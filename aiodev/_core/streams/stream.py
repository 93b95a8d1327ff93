"""Streams: queues of device work that asyncio programs feed, order and wait for."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from aiodev._core import arguments, callsites, context, journal
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import COMPLETED, FAULTS, SUBMITTED
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.config import settings
from aiodev._core.errors import AiodevError, ClosedError, fresh
from aiodev._core.finalizing import until_exit
from aiodev._core.hooks import Hook
from aiodev._core.sigint import sigint_held
from aiodev._core.streams import trace
from aiodev._core.streams.completion import Completion, Reached
from aiodev._core.streams.event import Event
from aiodev._core.streams.future_bridge import Bridge
from aiodev._core.streams.host_calls import Call
from aiodev._core.streams.native_calls import NativeStream, external_handle
from aiodev._core.streams.outcome import Outcome
from aiodev._core.streams.room import Room
from aiodev._core.timeline.gate import Gate, opened_on_error
from aiodev._core.timeline.recording import NOT_DONE
from aiodev._core.timeline.timeline import Timeline, living
from aiodev._core.tuning import EXECUTING_SLOTS
from aiodev._core.waiting.blocking import wait_blocking
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.reactor import at_hand, current_reactor, goes_on, others_first, starting
from aiodev._core.waiting.ticket import Ticket, Tickets

__all__ = ["Stream", "living_streams"]

T = TypeVar("T")

#: (stream, dst, src): copies an array, or to or from one.
copy_arrays: Hook[[Any, Any, Any], Completion[None]] = Hook("aiodev._array.copy")

_PRIORITY_BITS, _SLOT_BITS = 2, 5

_serials = itertools.count(1)
_slots: dict[tuple[Device, int], itertools.count[int]] = {}


#: What :meth:`Stream.as_one` gives of an unbounded stream.
_UNBOUNDED = contextlib.nullcontext()


@until_exit
class Stream(NativeStream):
    """A sequence of operations on one device, in order; different streams run concurrently.

    Submitting never blocks, whatever the depth, and returns a :class:`Completion`. Any thread and any task may submit, and
    any may wait. ``with stream:`` and ``async with stream:`` make it, and its device, current for the running task.

    A stream is a sequence of *dependent* work: when an operation fails, what is ordered after it, here and on streams that
    wait for it, does not run. Once a waiter was told, work submitted afterwards runs again. A failure that nobody was told of
    is logged when the stream is closed or collected, or at exit.

    A stream may be dropped with work in flight: the work goes on, and what it needs lives until it is done. After a fork,
    a stream of the parent raises :class:`BadForkError` in the child.

    Args:
        device: where it runs; the current device by default. Its backend is started off the loop, on first use.
        priority: -1 high, 0, 1 low; out of range clamps. At every operation, and between the pieces of a large kernel,
            workers turn to the most urgent stream that is ready. Those of one priority share the device by the time used.
            Low work leaves its core to other threads that want it, too, such as an event loop that wakes up.
        maxsize: how many operations may be pending; 0 means any number. A submission to a full stream raises
            :class:`StreamFullError`; ``await stream.drain(n)`` waits for room for n.
        low_water: a ``drain`` that has to wait does so until no more than these are pending, so that a producer is woken for
            many operations at a time; by default until there is room.
        reserve: have an executing slot that no other stream shares.
        external: another library's stream on this device, to submit to: an object with ``__cuda_stream__``, which is kept, or a
            ``CUstream``'s address, which must stay valid; 1 is the legacy default stream. What waits for the host (futures,
            gates, copies of ordinary memory) is handed to it when the host is ready; what the other library submits meanwhile
            goes before it. Starts the backend, if need be, blocking.

    Raises:
        TypeError: a number is no integer, or ``external`` no stream of another library.
        ValueError: a number makes no sense.
        RuntimeError: when ``with stream:`` is left, and something else was entered last, in this task.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     async with aiodev.Stream("cpu") as stream:
        ...         stream.call(print, "first")
        ...         stream.call(print, "second")
        ...         await stream.synchronize()
        >>> import asyncio; asyncio.run(main())
        first
        second
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_copy",
        "_fill",
        "_is_admitted",
        "_is_default",
        "_launch",
        "_room",
        "device",
        "low_water",
        "maxsize",
        "priority",
        "stream_id",
        "timeline",
    )

    _launch: Callable[[int, int, bytes, int], int]
    _copy: Callable[[int, int, int], int]
    _fill: Callable[[int, int, bytes], int]
    _is_admitted: bool  #: whether what is submitted now needs no room: it is a part of a call for which there was room, or any
    _room: Room | None

    def __init__(
        self,
        device: DeviceLike | None = None,
        priority: int = 0,
        *,
        maxsize: int = 0,
        low_water: int | None = None,
        reserve: bool = False,
        external: Any = None,
    ) -> None:
        handle, resolved = registry.resolve(device)
        if priority.__class__ is not int or reserve.__class__ is not bool:
            priority = arguments.integer("Stream", "priority", priority)
            reserve = arguments.instance("Stream", "reserve", reserve, bool, "True or False")
        driver_stream = None if external is None else external_handle(external)
        if driver_stream is not None:
            if priority or reserve:
                raise ValueError(f"external={external!r}: another library's stream has its priority and slot already")
            if not handle.backend.capabilities.native_streams:
                raise NotImplementedError(f"backend {handle.name!r} cannot submit to another library's stream")
            handle.ensure_started()  # the driver runs already
        self.device = resolved
        self.priority = priority if -1 <= priority <= 1 else max(-1, min(1, priority))
        self.maxsize = self.low_water = 0
        self._room, self._is_admitted = None, True
        if maxsize.__class__ is not int or maxsize or low_water is not None:
            self._limit(maxsize, low_water)
        slots = _slots.get((resolved, self.priority)) or _slots.setdefault((resolved, self.priority), itertools.count())
        slot = next(slots) % EXECUTING_SLOTS
        self.stream_id = next(_serials) << _PRIORITY_BITS + _SLOT_BITS | (self.priority + 1) << _SLOT_BITS | slot
        self._closed = self._is_default = False
        self.timeline = Timeline(handle, resolved, self.priority, reserve, self.stream_id, (driver_stream, external))
        self.timeline.belongs_to(self)  # before it looks who records: who begins to meanwhile finds it
        self._bind()

    def _limit(self, maxsize: int, low_water: int | None) -> None:
        """Allow so many pending operations."""
        self.maxsize = arguments.integer("Stream", "maxsize", maxsize)
        if self.maxsize < 0:
            raise ValueError(f"maxsize={maxsize}: a number of operations, or 0 for any number")
        most = max(0, self.maxsize - 1)
        self.low_water = most if low_water is None else arguments.integer("Stream", "low_water", low_water)
        if not 0 <= self.low_water <= most:
            raise ValueError(f"low_water={low_water}: a number of operations below maxsize={maxsize}")
        if self.maxsize:
            self._room, self._is_admitted = Room(), False

    def _bind(self) -> None:
        """Have submissions go straight to the backend, or through what this stream asks for."""
        if self._closed:
            self._launch = self._copy = self._fill = partial(_refuse, self)
            return
        timeline = self.timeline
        operations, queue, recording = timeline.operations, timeline.queue, timeline.recording
        self._launch = partial(operations.launch, queue) if recording is None else recording.launcher(queue)
        self._copy = partial(operations.copy, queue)
        self._fill = partial(operations.fill, queue)
        if recording is not None:
            return
        if settings.debug:
            journal.attach(self)
        if trace.active is not None:
            trace.active.attach(self)
        if self.maxsize:
            self._launch, self._copy, self._fill = (self._bounded(f) for f in (self._launch, self._copy, self._fill))

    def _bounded(self, submit: Callable[..., int]) -> Callable[..., int]:
        timeline, room = self.timeline, self._room
        assert room is not None

        def submit_if_not_full(*args: Any) -> int:
            if self._is_admitted:
                return submit(*args)
            self._check_room()
            before = timeline.submitted
            value = submit(*args)
            room.count_once(before + 1, timeline.submitted)  # the device may be told to stamp the time before and after
            return value

        return submit_if_not_full

    def _check_room(self) -> None:
        if self._closed:
            raise ClosedError(self)
        if not self._is_admitted and self._pending() >= self.maxsize:
            from aiodev._core.streams.capacity import StreamFullError  # not above: it needs asyncio

            raise StreamFullError(self, self.maxsize)

    @contextlib.contextmanager
    def _one_call(self, room: Room) -> Iterator[None]:
        self._check_room()
        timeline, thread = self.timeline, get_ident()
        if thread in room.threads:
            yield
            return
        try:
            room.enter(thread, timeline.submitted)
            self._is_admitted = True
            yield
        finally:  # in another thread, perhaps, that closes a generator
            self._leave(room, thread)
            room.count(timeline.submitted)

    def _leave(self, room: Room, thread: int) -> None:
        """Have a thread submit no call any more."""
        room.threads.discard(thread)
        while self._is_admitted is not bool(room.threads):  # another thread may have begun in between
            self._is_admitted = bool(room.threads)

    @classmethod
    def from_id(cls, stream_id: int, device: DeviceLike | None = None) -> Stream:
        """The living stream with that id.

        Raises:
            TypeError: the id is no integer.
            LookupError: there is none, or it is on another device.
        """
        stream_id = arguments.integer("from_id", "stream_id", stream_id)
        timeline = living.of(stream_id)
        known = None if timeline is None else timeline.stream
        if not isinstance(known, Stream):
            raise LookupError(f"from_id: stream id {stream_id}: no stream with this id is alive in this process")
        if device is not None and registry.resolve(device)[1] != known.device:
            raise LookupError(f"from_id: stream id {stream_id} is on {known.device}, not on {device}")
        return known

    @property
    def device_type(self) -> str:
        """The device's type, such as ``"cpu"``."""
        return self.device.type

    @property
    def device_index(self) -> int:
        """The device's index."""
        return self.device.index

    def __repr__(self) -> str:
        return self.timeline.label

    # Submission

    def launch(self, kernel: Any, shape: int | tuple[int, ...], *args: Any) -> Completion[None]:
        """Launch a kernel over ``shape``; the same as ``kernel[shape, stream](*args)``.

        Raises:
            TypeError: ``kernel`` is none.
            LaunchError: an argument does not fit; it is named.
            StreamFullError: ``maxsize`` operations are pending.
        """
        try:
            launch = kernel[shape, self]
        except AiodevError:
            raise
        except Exception:  # it is subscribed to in another way, or in none
            raise arguments.refusal("launch", "kernel", "a kernel", kernel) from None
        completion: Completion[None] = launch(*args)
        return completion

    def copy(self, dst: Any, src: Any) -> Completion[None]:
        """Copy ``src`` to ``dst``: arrays of this or another device, or host arrays (NumPy).

        Never blocks. A host array is read, or written, in stream order, not now: it must not change until the completion is
        done (with ``AIODEV_DEBUG=1``, a source that did is logged). :func:`asarray` takes the values before it returns.

        Raises:
            ValueError: the shapes or dtypes differ, or ``dst`` is read-only.
            StreamFullError: ``maxsize`` operations are pending.
        """
        return copy_arrays.call(self, dst, src)

    def call(self, fn: Callable[..., T], /, *args: Any) -> Completion[T]:
        """Run ``fn(*args)`` in stream order, in a thread, with this task's context variables.

        ``await`` of the completion gives what ``fn`` returned, or raises what it raised, unchanged (at later waiters a copy:
        the stream does not hold the function's variables once somebody was told). Calls of different streams run concurrently.
        ``fn`` may block; it must not wait for its own stream. Arguments are not copied: ``fn`` sees them as they are then.
        At most ``AIODEV_CALL_THREADS`` functions run at once, and others wait in line. One that blocks on a stream does not
        count, so that calls may wait for each other that way; by a lock, a barrier or a loop of their own no more than that
        many may.

        What ``fn`` raises and what would have another meaning in the task that waits, such as ``CancelledError`` and
        ``StopIteration``, arrives as the cause of a :class:`CallError`. Where no thread can be had, the operation fails with
        :class:`ThreadLimitError`.

        Raises:
            TypeError: ``fn`` is no function, or makes a coroutine, which nobody would run; :meth:`wait_future` has the stream
                wait for one.
            StreamFullError: ``maxsize`` operations are pending.
        """
        if not callable(fn):
            raise TypeError(f"call: expected a function, got {fn!r}")
        if arguments.is_kind(fn, inspect.iscoroutinefunction):
            raise TypeError(f"call: {fn!r} makes coroutines; stream.wait_future(fn(*args)) waits for one")
        timeline = self.timeline
        if timeline.recording is not None:
            return Completion(timeline, timeline.recording.call(timeline, fn, args), Outcome())
        self._check_room()
        call = Call(timeline, fn, args)
        return Completion(timeline, call.submit(), call.outcome)

    def wait_future(self, awaitable: Awaitable[T] | concurrent.futures.Future[T]) -> Completion[T]:
        """Hold the stream until a future, a task or a coroutine of the host is done.

        ``await`` of the completion gives its result. If it raises, the operation fails with that exception and what is
        ordered after it does not run; if it is cancelled, or dropped unfinished, with :class:`DependencyError`.
        A coroutine is started as a task of the running loop, with this task's context variables; it is cancelled when the
        operation is withdrawn. Futures and tasks are their owners' to cancel.

        Raises:
            RuntimeError: a coroutine where no loop is running, or a future of a loop that is closed.
            TypeError: nothing that can be awaited.
            StreamFullError: ``maxsize`` operations are pending.
        """
        self._check_room()
        if not isinstance(awaitable, concurrent.futures.Future) and not inspect.isawaitable(awaitable):
            raise TypeError(f"wait_future: expected a future, a task or a coroutine, got {awaitable!r}")
        gate = self.timeline.gate(by_program=True)
        with opened_on_error(gate):  # no loop is running, or it is closed
            if trace.active is not None:
                name = getattr(awaitable, "__qualname__", type(awaitable).__name__)
                trace.label(self.timeline, gate.value, "future", name)
            outcome: Outcome[T] = Outcome()
            if isinstance(awaitable, Completion):
                self.timeline.follow(gate.value, awaitable.timeline, awaitable.value)
            Bridge(gate, outcome).follow(awaitable)
            return Completion(self.timeline, gate.value, outcome)

    def _gate(self, by_program: bool = False) -> Gate:
        """Hold the stream until the gate is opened; see :meth:`Timeline.gate`."""
        return self.timeline.gate(by_program)

    # Order

    def wait_event(self, event: Event) -> None:
        """Order what is submitted from now on after the event's present record. Nothing blocks."""
        try:
            record = event._record
        except AttributeError:
            raise _mistaken("wait_event", "an Event", event) from None
        if record is not None:
            self.timeline.join(record[0], record[1], record[2])

    def wait_stream(self, stream: Stream) -> None:
        """Order what is submitted from now on after all that ``stream`` has been given so far, and that was not withdrawn.

        A failure there spreads until somebody was told of it (:doc:`/concepts/failure`).
        """
        try:
            timeline = stream.timeline
            clock = timeline.frontier[1]  # before the point itself, as in Event.record
        except AttributeError:
            raise _mistaken("wait_stream", "a Stream", stream) from None
        value = timeline.submitted
        if timeline.withdrew:
            value, clock = timeline.last_to_run(value, clock)
        self.timeline.join(timeline, value, clock)

    def wait(self, completion: Completion[Any]) -> None:
        """Order what is submitted from now on after ``completion``; if that was withdrawn, it fails."""
        try:
            timeline, value = completion._timeline, completion._value
        except AttributeError:
            raise _mistaken("wait", "a Completion", completion) from None
        self.timeline.join(timeline, value, timeline.clock_at(value))

    def record_event(self, event: Event | None = None) -> Event:
        """Record ``event``, or a new one, at the present end of the stream."""
        if event is None:
            event = Event()
        if event.__class__ is not Event:
            arguments.instance("record_event", "event", event, Event, "an Event, or None")
        event.record(self)
        return event

    # Withdrawal

    def cancel(self) -> int:
        """Withdraw everything that has been submitted and has not begun; how many operations that are.

        Waits for other streams and for code that is being loaded are operations, too, and so is what would not run anyway,
        behind something withdrawn. They never run: who waits for them gets :class:`WithdrawnError`. What is submitted to this
        stream from now on runs, after what has begun. Streams that wait for what is withdrawn fail with
        :class:`DependencyError`, until somebody was told there, or their waits are withdrawn as well. Never blocks.
        See :meth:`Completion.cancel`.
        """
        return self.timeline.withdraw_all(callsites.here())[1]

    # Waiting

    def query(self) -> bool:
        """Whether everything submitted so far is done. Never blocks.

        Raises:
            CaptureError: it is being captured.
        """
        timeline = self.timeline
        if timeline.counters[COMPLETED] < timeline.counters[SUBMITTED]:
            if timeline.recording is not None:
                timeline.recording.refuse(NOT_DONE)
            return False
        if timeline.needed:
            timeline.let_go()
        return True

    async def synchronize(self) -> None:
        """Wait for what was submitted before this call, no more.

        Raises:
            BaseException: the first failure that nobody was told of yet; the stream works again afterwards.
        """
        timeline = self.timeline
        submitted = timeline.counters[SUBMITTED]
        if not at_hand(timeline, submitted):
            await Reached(timeline, submitted, spun=True)
        if timeline.counters[FAULTS]:
            timeline.check_all(submitted)

    def synchronize_blocking(self, timeout: float | None = None) -> None:
        """Block this thread until what was submitted before this call is done.

        Raises:
            TimeoutError: ``timeout`` seconds have passed.
            BaseException: as ``synchronize``.
        """
        timeline = self.timeline
        submitted = timeline.submitted
        wait_blocking(timeline, submitted, timeout)
        timeline.check_all(submitted)

    def qsize(self) -> int:
        """Operations submitted and not done; of a bounded stream, what one call has submitted counts as one.

        Raises:
            CaptureError: it is being captured.
        """
        if self.timeline.recording is not None:
            self.timeline.recording.refuse(NOT_DONE)
        return self._pending()

    def _pending(self) -> int:
        """Operations submitted and not done; none while it is captured, since what is recorded takes up no room."""
        timeline = self.timeline
        counters = timeline.counters
        if timeline.recording is not None:
            return 0
        submitted, completed, room = counters[SUBMITTED], counters[COMPLETED], self._room
        return max(0, submitted - completed - (0 if room is None else room.uncounted(completed)))

    def empty(self) -> bool:
        """Whether nothing is pending."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether ``maxsize`` operations are pending; never true of an unbounded stream."""
        return bool(self.maxsize) and self._pending() >= self.maxsize

    async def drain(self, n: int = 1) -> None:
        """Wait until there is room for ``n`` more operations; that is at once while there is, and on an unbounded stream.

        As with asyncio's stream writers, who finds no room waits until the stream is down to ``low_water``. The tasks of a loop
        that drain have their turns in the order of their calls, however much room each asks for.

        Nothing is reserved: what is submitted before the next ``await`` finds the room, since no other task of the loop runs
        meanwhile. Threads and loops that share a stream may take it; give each a stream of its own.

        Raises:
            ValueError: ``n`` is more than ``maxsize``: there will never be so much room; or it is negative.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     stream, seen = aiodev.Stream("cpu", maxsize=4), []
            ...     for step in range(10):
            ...         await stream.drain(3)  # a step is submitted whole, or not yet
            ...         for part in "abc":
            ...             stream.call(seen.append, f"{step}{part}")
            ...     await stream.synchronize()
            ...     return len(seen)
            >>> import asyncio; asyncio.run(main())
            30
        """
        n = arguments.integer("drain", "n", n)
        if n < 0:
            raise ValueError(f"drain({n}): expected a number of operations to have room for, 0 or more")
        if 0 < self.maxsize < n:
            raise ValueError(f"drain({n}): {self!r} never has room for more than maxsize={self.maxsize} operations")
        if self.timeline.lost is not None:
            raise fresh(self.timeline.lost)
        room = self._room
        if room is None:
            await others_first
            return
        if self._is_admitted:  # by another thread, unless Ctrl-C kept this one from leaving a call
            self._leave(room, get_ident())
        yields = budget.over() and not goes_on()
        draining = current_reactor().draining
        tickets = draining.get(self)
        if not (yields or tickets) and self._pending() + n <= self.maxsize:
            return
        if tickets is None:
            tickets = draining[self] = Tickets()
        ticket = Ticket(tickets)
        try:
            ticket.take()  # before others run, who may ask, too
            if yields:
                await others_first
            await ticket.first()
            await self._wait_for_room(n, room)
        finally:
            with sigint_held:
                ticket.give_back()

    def as_one(self) -> contextlib.AbstractContextManager[None]:
        """A block whose submissions count as one operation: if there is room for that, none of them is refused.

        So several are submitted whole or not at all. Where there is a block already, what is submitted is a part of that one;
        on an unbounded stream it does nothing. Keep it free of ``await``: what other tasks submit meanwhile is let in, too, as
        is what other threads submit to this stream.

        Raises:
            StreamFullError: ``maxsize`` operations are pending; nothing of the block runs.
            ClosedError: the stream is closed.

        Example:
            >>> import aiodev
            >>> with aiodev.Stream("cpu", maxsize=1) as stream, stream.as_one():
            ...     x = aiodev.arange(4, device="cpu")
            ...     y = (x + 1) * x
            >>> y.numpy_blocking()
            array([ 0,  2,  6, 12])
        """
        if self.timeline.lost is not None:
            raise fresh(self.timeline.lost)
        if self._room is not None:
            return self._one_call(self._room)
        if self._closed:
            raise ClosedError(self)
        return _UNBOUNDED

    async def _wait_for_room(self, n: int, room: Room) -> None:
        timeline, most = self.timeline, self.maxsize - n
        if self._pending() > most:
            most = min(most, self.low_water)
        while self._pending() > most:
            await Reached(timeline, room.last_but(most, timeline.submitted))

    async def aclose(self) -> None:
        """Wait for what is pending, report failures that nobody was told of, and refuse further work.

        Closing twice does nothing.

        Raises:
            RuntimeError: it is a device's default stream, which every task may use.
            CaptureError: it is being captured.
        """
        if self._closed:
            await others_first
            return
        if self._is_default:
            raise RuntimeError(f"{self!r} is a default stream, for everybody, and stays open; synchronize() waits for its work")
        if self.timeline.recording is not None:
            self.timeline.recording.refuse("the stream is being captured, and cannot be closed")
        self._closed = True
        self._bind()
        await Reached(self.timeline, self.timeline.submitted)
        self.timeline.report()

    def __del__(self) -> None:
        try:
            timeline = self.timeline
        except AttributeError:  # there was no such device, or Ctrl-C came before it was made
            return
        timeline.retire()

    def __reduce__(self) -> NoReturn:
        """A queue of this process is not copied and not pickled."""
        raise TypeError("streams are not pickled or copied: they belong to their process; make one there")

    # Guard

    def __enter__(self) -> Stream:
        context.push(self, self.device, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)

    async def __aenter__(self) -> Stream:
        await (starting(self.timeline.handle) if self.timeline.deferred else others_first)
        context.push(self, self.device, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)


def living_streams() -> list[Stream]:
    """Those that somebody holds, oldest first."""
    streams = [timeline.stream for timeline in living.all()]
    return sorted((stream for stream in streams if isinstance(stream, Stream)), key=lambda stream: stream.stream_id)


def _mistaken(method: str, expected: str, given: object) -> TypeError:
    return TypeError(f"{method}: expected {expected}, got {given!r}; there are wait, wait_event, wait_stream and wait_future")


def _refuse(stream: Stream, *args: object) -> Any:
    raise ClosedError(stream)


def forget_slots_after_fork() -> None:
    """In a forked child: nobody has a slot."""
    _slots.clear()
