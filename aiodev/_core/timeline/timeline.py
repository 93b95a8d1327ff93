"""The one primitive: a counter of completed operations that native code writes and anyone may read.

**Problem.** Completion, order, elision of waits, timeouts, the lifetime of memory and failure are usually five mechanisms
(events, stream registries, reference counts, callbacks, error flags). Here all follow from one number per stream.

**Invariants.**

1.  Operations of a timeline are numbered from 1 in order of submission and complete in that order. Operation ``v`` is
    done exactly when ``counters[COMPLETED] >= v``; that never becomes false again.
2.  ``frontier`` is a pair (since, clock): every operation numbered ``since`` or later runs after ``clock[t]`` of each
    timeline ``t`` in ``clock``. The pair is replaced, never changed, so a reader sees one or the other. A wait that the
    frontier implies is not enqueued (IREE calls this the frontier; it is a vector clock). A wait that is behind a failure, or
    was withdrawn, keeps its time, but does not see whether what it waits for failed: once that is over, it counts for nothing.
    A clock is bounded (``PartialClock``): what it leaves out may be waited for once more, never too little.
3.  Whatever an operation needs and nobody else holds is in ``needed`` until the operation is done, and timelines that it waits
    for in ``_kept``. Who learns that operations are done, by waiting or asking, lets go of what they needed; where nobody does,
    and it may be much (``TENDED_BYTES``), the watcher, some time later.
4.  A fault covers operations ``first`` … ``last``; while ``last`` is open, everything submitted is covered. It is closed by
    telling a waiter: then what is submitted afterwards runs again. A fault that nobody was told of is reported when the
    timeline ends.
5.  A lost timeline (its backend failed to start, its device is gone, or it belongs to the parent of a fork) reads as
    completed and failed: every query is true, every wait raises, none hangs.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiodev._core import at_fork
from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS, FAULTS, SUBMITTED, Executor
from aiodev._core.config import settings
from aiodev._core.errors import WithdrawnError, fresh
from aiodev._core.finalizing import until_exit
from aiodev._core.streams import trace
from aiodev._core.timeline import faults
from aiodev._core.timeline.deferred import Deferred, Lost
from aiodev._core.timeline.ended import Lease, ended_totals
from aiodev._core.timeline.faults import FaultLog, KnownFault, dependency_error, root_cause
from aiodev._core.timeline.gate import Gate, opened_on_error
from aiodev._core.timeline.living import Living
from aiodev._core.timeline.vector_clock import NO_CLOCK, Clock, PartialClock, merged, totals
from aiodev._core.tuning import RELEASE_EVERY, TENDED_BYTES
from aiodev._core.waiting.watcher import watcher

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.backend.registry import BackendHandle
    from aiodev._core.timeline.recording import Recording

logger = logging.getLogger("aiodev")

_opening = threading.RLock()  # re-entrant: a finalizer, or a signal's handler, may make a stream while this thread holds it
_reporting = threading.RLock()  # whoever finds nothing to report, as at exit, knows that it has been

#: In place of the number of an operation that is just being submitted: more than any.
_UNKNOWN: Final = (1 << 63) - 1
#: The counters of timelines that are lost: whoever asks finds all done, and looks for what failed.
_OF_THE_LOST: Final = tuple({COMPLETED: _UNKNOWN, SUBMITTED: _UNKNOWN, FAULTS: 1}.get(word, 0) for word in range(COUNTER_WORDS))


class Bound(Protocol):
    """A stream, as its timeline knows it."""

    def _bind(self) -> None: ...


#: Another library's stream: its handle, and what keeps it alive.
External = tuple[int | None, object]
OURS: External = (None, None)


@until_exit
class Timeline:
    """One queue of one backend, and what is known of its operations.

    Until the backend has started, ``operations`` is not its executor but a :class:`~aiodev._core.timeline.deferred.Deferred`
    one, which numbers what is submitted the same way and hands it on.
    """

    __slots__ = (
        "__weakref__",
        "_external",
        "_fault_logs",
        "_kept",
        "_lease",
        "_native_counters",
        "_reserved",
        "_stream",
        "_untended",
        "counters",
        "deferred",
        "device",
        "handle",
        "frontier",
        "held",
        "lost",
        "needed",
        "noted",
        "operations",
        "owned",
        "parked",
        "parked_at",
        "past",
        "priority",
        "queue",
        "quick_waits",
        "recording",
        "spin_doubts",
        "spins",
        "stream_id",
        "tended",
        "withdrew",
    )

    #: To the watcher, and in `end`, once and twice are the same; what was handed to nobody would stay for good.
    finalizes_again = True

    def __init__(
        self, handle: BackendHandle, device: Device, priority: int, reserved: bool, stream_id: int, external: External = OURS
    ) -> None:
        self.handle = handle
        self.device = device
        self.priority = priority
        self.stream_id = stream_id
        self.lost: BaseException | None = None
        self.recording: Recording | None = None  #: the graph that operations are captured into
        #: Of a graph's, memory of before the capture whose use is noted, and whether it is written. Native code looks there.
        self.noted: Mapping[Any, bool] | None = None
        self.owned = False  #: others stand for all of its operations, or who asked for them: nobody else hears of its failures
        self.frontier: tuple[int, Clock] = (0, NO_CLOCK)
        #: For debugging, those of before that operations which are not done have; else None.
        self.past: deque[tuple[int, Clock]] | None = deque() if settings.debug else None
        self.spins = True  # whether the next wait spins
        self.spin_doubts = 0  # quick waits that it takes before spinning is tried again; below 0, spins that were not in vain
        self.quick_waits = 0  # that there have been, while nobody spun
        self.parked = 0  # wait sets with waiters of this timeline
        self.parked_at = 0  # when the first of them parked, by time.monotonic_ns
        self.withdrew = False  # whether anything was ever withdrawn
        self.held = 0  # gates that are shut and that only the program opens
        self._reserved = reserved
        self._external = external
        self._kept: deque[list[Any]] = deque()  # a wait's number, and the timeline that it is for
        self.needed: deque[list[Any]] = deque()  # pairs of an operation's number and what it needs
        self._untended = 0  # bytes of what is needed
        self.tended = False  # by the watcher
        self._fault_logs: list[FaultLog] = []
        self.queue = 0
        self._stream: weakref.ref[Bound] | None = None
        self._native_counters: memoryview[int] | None = None
        self._lease: Lease | None = None
        self.operations: Executor
        self.counters: Sequence[int]
        self.deferred = False
        self._connect()

    @property
    def faults(self) -> FaultLog:
        """What failed, and what was withdrawn. Made when it is first asked for: of most streams nothing is."""
        logs = self._fault_logs
        if not logs:
            logs.append(FaultLog())  # where another thread was faster its own, which is the first one, counts
        return logs[0]

    def _connect(self) -> None:
        """Get a queue, or what stands for it until the backend has started."""
        self.deferred = not self.handle.started
        if self.deferred:
            self.operations = deferred = Deferred(self.open_queue, self.bind, self.lose)
            self.counters = deferred.counters
            self.handle.start_soon(deferred.started)
        else:
            ended_totals.keep_short()
            operations, _ = self.open_queue()
            self._submit_to(operations)
        living.by_stream_id.enter(self.stream_id, self)  # when it is whole, since other threads wait for all that live

    def open_queue(self) -> tuple[Executor, int]:
        """The executor of the backend, which has started, and the queue, which is made if there is none. Raises the loss."""
        if self.lost is not None:
            raise fresh(self.lost)
        executor = self.handle.backend.executor
        with _opening:
            if self.queue == 0:
                handle = self._external[0]
                if handle is None:
                    queue, self._native_counters = executor.create_queue(self.device.index, self.priority, self._reserved)
                else:
                    queue, self._native_counters = executor.adopt_stream(self.device.index, handle)
                self.queue = queue
                if trace.active is not None:
                    trace.active.bind(self, executor)  # before what was deferred is handed on
        return executor, self.queue

    def bind(self) -> None:
        """Submit to the executor itself from now on."""
        self._submit_to(self.handle.backend.executor)
        self.deferred = False
        self._rebind()

    def _submit_to(self, executor: Executor) -> None:
        assert self._native_counters is not None
        self.counters = self._native_counters
        self.operations = executor  # the last of what a new one needs: see __del__

    def hand_on(self) -> Executor:
        """The executor to submit to; if the backend has started, it has been given all that was submitted before.

        A waiter of the start may be here before the thread that made it.
        """
        if isinstance(self.operations, Deferred) and self.handle.started:
            self.operations.started(None)
        return self.operations

    def belongs_to(self, stream: Bound) -> None:
        """Have its stream, for as long as it lives, be told whenever ``operations`` is replaced."""
        self._stream = weakref.ref(stream)

    @property
    def stream(self) -> Bound | None:
        """Its stream, if that lives."""
        return None if self._stream is None else self._stream()

    def _rebind(self) -> None:
        stream = self.stream
        if stream is not None:
            stream._bind()

    def gate(self, by_program: bool = False) -> Gate:
        """Hold the timeline until the gate that is returned is opened; ``by_program``: when the program sees fit."""
        operations, faults = self.operations, self.faults
        gate = Gate(faults.gate_fails, faults.withdrawals)
        number = operations.create_gate()
        with opened_on_error(gate):
            gate.opens = partial(self._open_gate, operations, number, by_program)
            self.held += by_program  # nothing comes in between
            gate.hold(operations.gate(self.queue, number))
        return gate

    def _open_gate(self, operations: Executor, gate: int, by_program: bool, failed: bool) -> None:
        self.held -= by_program
        if self.lost is not None:  # in a forked child no native code must run: a worker of the parent may have held a lock then
            return
        if at_fork.forking:  # this may be a child that does not know it yet, where somebody dropped what was to open the gate
            watcher.call(partial(operations.open_gate, gate, failed))
        else:
            operations.open_gate(gate, failed)

    @property
    def label(self) -> str:
        """How its stream shows itself."""
        return f"<aiodev.Stream {self.stream_id} on {self.device}>"

    def __repr__(self) -> str:
        return f"<timeline of {self.label}: {self.counters[COMPLETED]} of {self.counters[SUBMITTED]} done>"

    # Progress

    @property
    def submitted(self) -> int:
        """Number of the operation submitted last; 0 when there was none."""
        return self.counters[SUBMITTED] if self.lost is None else self.counters[COMPLETED]

    def reached(self, value: int) -> bool:
        """Whether operation ``value`` is done (failed and skipped ones are, too)."""
        return self.counters[COMPLETED] >= value

    def keep(self, value: int, needed: object, nbytes: int = 0) -> None:
        """Hold ``needed``, which is host memory of ``nbytes``, until operation ``value`` is done (invariant 3)."""
        self.needed.append([value, needed])
        self._tend(nbytes)

    def submit_with(self, needed: object, nbytes: int, submit: Callable[..., int], *args: Any) -> int:
        """Call ``submit``, which returns an operation's number, and hold ``needed`` until that is done, as :meth:`keep` does.

        It is held from before: an exception may arrive when the operation has been submitted and its number is not known yet,
        as Ctrl-C's does, and memory that is written then must not be free.
        """
        held: list[Any] = [_UNKNOWN, needed]
        try:
            self.needed.append(held)
            held[0] = submit(*args)
        except BaseException:
            held[0] = self.submitted
            raise
        self._tend(nbytes)
        value: int = held[0]
        return value

    def _tend(self, nbytes: int) -> None:
        """Let go of what is done; have the watcher look after the rest, if that is much."""
        queue = self.needed
        if queue and queue[0][0] <= self.counters[COMPLETED]:
            self.let_go()
        self._untended += nbytes
        if self._untended >= TENDED_BYTES and not self.tended:
            self.tended = True
            watcher.tend(self)

    def let_go(self) -> None:
        """Let go of what finished operations needed. Whoever finds some of them done calls this, if anything is ``needed``."""
        needed, completed = self.needed, self.counters[COMPLETED]
        while needed and needed[0][0] <= completed:
            try:
                needed.popleft()
            except IndexError:  # another thread was faster
                return
        if not needed:
            self._untended = 0

    def kept_timeline(self, queue: int) -> Timeline | None:
        """The timeline of a queue that an unfinished wait, or one whose faults are not learnt yet, is for."""
        kept = tuple(self._kept)  # other threads submit waits, and let go of those that are over
        return next((timeline for _, timeline in kept if timeline.queue == queue), None)

    def release(self) -> None:
        """Let go of what finished operations needed, and of the timelines that finished waits were for."""
        if self.needed:
            self.let_go()
        kept, completed = self._kept, self.counters[COMPLETED]  # before the faults: what fails meanwhile is kept
        if self.counters[FAULTS] != self.faults.seen:
            faults.collect_faults(self)  # while the timelines that they may come from are kept
        while kept and kept[0][0] <= completed:
            try:
                kept.popleft()
            except IndexError:  # another thread was faster
                return

    # Withdrawal

    def withdraw(self, first: int, last: int, site: int, partly: bool = False) -> tuple[int, int]:
        """Withdraw operations ``first`` … ``last``, unless the first has begun; ``partly``: those that have not begun.

        What else has been submitted behind them does not run either (:mod:`aiodev._core.timeline.withdrawal`). Returns the
        first that does not run, or 0; and how many were withdrawn by this call: none, where they fail anyway.
        """
        completed, end = self.counters[COMPLETED], self.submitted
        if self.lost is not None or completed >= last:
            return 0, 0
        # Behind a failure whose waiter was told, only what was submitted since would not run for it.
        if not partly and self.counters[FAULTS] and self.fault_of(last) is not None:
            return 0, 0
        self.withdrew = True
        tell = partial(self.operations.withdraw, self.queue)
        start, count = self.faults.withdrawals.withdraw((first, last, end), partly, site, completed, tell)
        if count:
            self.distrust(start, end)
            faults.note_withdrawal()
        return start, count

    def withdraw_all(self, site: int) -> tuple[int, int]:
        """Withdraw what has not begun; returns the first operation that does not run, or 0, and how many were withdrawn."""
        return self.withdraw(self.counters[COMPLETED] + 1, self.submitted, site, partly=True)

    def last_to_run(self, value: int, clock: Clock) -> tuple[int, Clock]:
        """``value``, if it is to run, else the last operation ahead of it that is; and what that one is known to follow."""
        last = self.faults.withdrawals.ahead_of(value)
        return last, clock if last == value else self.clock_at(last)

    # Order between timelines

    def clock_at(self, value: int) -> Clock:
        """What operation ``value`` is known to follow. Empty when it was submitted before that was known, but for debugging."""
        since, clock = self.frontier
        if value >= since:
            return clock
        past = () if self.past is None else tuple(self.past)
        return next((clock for since, clock in reversed(past) if value >= since), NO_CLOCK)

    def clocks_at(self, value: int) -> list[Clock]:
        """What operation ``value`` is known to follow, and what it follows though no wait relies on that; for debugging."""
        known = (self.frontier,) if self.past is None else (*self.past, self.frontier)
        return [clock for since, clock in known if value >= since]

    def join(self, other: Timeline, value: int, clock: Clock) -> int | None:
        """Order later operations after ``other``'s ``value``; returns the wait's number, None when it was elided.

        ``clock`` is what that point follows itself. A failure of ``value`` that nobody was told of spreads; one that somebody
        was told of is over, wherever the queues have got to.
        """
        known = self.frontier[1]
        counters = other.counters
        is_there = other is self or known.get(other, 0) >= value or counters[COMPLETED] >= value
        if (counters[FAULTS] or other.withdrew) and other is not self:
            told = other.failure_told(value)
            if told is False:
                is_there = False  # it is waited for though it is reached: that fails, too
            elif told and not is_there:  # it is to be skipped: who waits for it, and not for it to be over, would fail
                return self.come_after(other, value, clock)
        if is_there:
            totals.waits_elided += 1
            return None
        operations = self.operations
        is_near = operations is other.operations
        if not is_near and other.recording is not None:
            other.recording.take_in(self, other, value, clock)
            return None
        kept: list[Any] = [_UNKNOWN, other]
        try:
            self._kept.append(kept)  # from before: it may fail, and somebody learn of that, before its number is known here
            kept[0] = number = operations.wait(self.queue, other.queue, value) if is_near else self._enqueue_wait(other, value)
        except BaseException:
            kept[0] = self.submitted
            raise
        totals.waits_enqueued += 1
        if number % RELEASE_EVERY == 0:
            self.release()
        if type(known) is PartialClock and self.counters[COMPLETED] >= self.frontier[0]:
            known = NO_CLOCK  # all is done, what it leaves out, too
        if clock or (known and not (len(known) == 1 and other in known)) or type(known) is PartialClock:
            known = merged(known, clock, self, other, value)
        else:
            known = {other: value}
        self.advance(number, known)
        return number

    def come_after(self, other: Timeline, value: int, clock: Clock = NO_CLOCK) -> int:
        """Order later operations after ``other``'s ``value``, however that comes out; gives the wait's number.

        Nothing relies on that order but who asks for it, since what follows would fail with ``value``. ``clock`` is what that
        point follows itself, for debugging.
        """
        operations = self.operations
        if operations is other.operations:
            number = operations.wait_over(self.queue, other.queue, value)
        else:
            number = self._enqueue_wait(other, value, over=True)
        self.release()
        self._kept.append([number, other])
        totals.waits_enqueued += 1
        if self.past is not None:  # to who looks for races it is an order as any other
            self.advance(number, self.frontier[1])
            self.past.append((number, {**clock, other: value}))
        return number

    def keep_awaited(self, number: int, other: Timeline) -> None:
        """Keep a timeline that operations up to ``number``, which are submitted next, wait for; nothing relies on that order.

        It is kept from before: else somebody might learn of a failure there, and not of its cause.
        """
        self.release()
        self._kept.append([number, other])

    def follow(self, number: int, other: Timeline, value: int) -> None:
        """Note that operation ``number``, a gate, is done after ``other``'s ``value``, and fails if that fails."""
        self.advance(number, merged(self.frontier[1], other.clock_at(value), self, other, value))

    def advance(self, number: int, clock: Clock) -> None:
        """Note that operation ``number`` and those after it follow ``clock``."""
        if self.past is not None:
            self.past.append(self.frontier)
            while len(self.past) > 1 and self.past[1][0] <= self.counters[COMPLETED]:
                self.past.popleft()
        self.frontier = (number, clock)

    def _enqueue_wait(self, other: Timeline, value: int, over: bool = False) -> int:
        """A wait where an executor is not known yet, or another's; ``over``: however ``value`` comes out."""
        if other.lost is not None:
            raise fresh(other.lost)
        if self.handle is other.handle:

            def wait(executor: Executor, queue: int) -> int:
                return (executor.wait_over if over else executor.wait)(queue, other.open_queue()[1], value)

            operations = self.operations
            if isinstance(operations, Deferred):
                return operations.defer(wait)
            other.hand_on()  # its backend is ours, and has started
            return wait(operations, self.queue)
        # Another kind of device: the host carries the news, in native wake-ups, and opens a gate.
        refusal = watcher.refusal()
        if refusal is not None:  # before anything is submitted: what is ordered after the gate relies on its time
            raise refusal
        gate = self.gate()

        def open_gate() -> None:
            try:
                error = None if over else other.error_of(value)
            except BaseException as failure:  # what it was cannot be learnt: this timeline fails rather than hangs
                error = failure
            gate.open(error)

        with opened_on_error(gate):
            trace.label(self, gate.value, "wait", str(other.device), (other, value))
            watcher.watch(other, value, open_gate, gate.open)
        return gate.value

    def distrust(self, first: int, last: int) -> None:
        """Rely on no wait among operations that do not run: it kept its time, but did not see if what it was for failed."""
        if self.frontier[0] >= first:
            self.advance(last + 1, NO_CLOCK)

    # Failure

    def untold_faults(self) -> Sequence[KnownFault]:
        """The faults that no waiter of this timeline was told of, oldest first."""
        if self.counters[FAULTS] != self.faults.seen:
            faults.collect_faults(self)
        return tuple(self.faults.untold)  # others may be told meanwhile

    def fault_of(self, value: int) -> KnownFault | None:
        """The fault that covers an operation, or None."""
        if self.counters[FAULTS] != self.faults.seen:
            faults.collect_faults(self)
        return self.faults.at(value)

    def failure_told(self, value: int) -> bool | None:
        """Whether somebody was told that operation ``value`` failed or does not run; None where no failure of it is known.

        What does not run since it was withdrawn never counts as told. Of what is not done the failure may be known already, if
        it is one of an operation ahead of it.
        """
        if self.lost is not None or self.faults.withdrawals.ahead_of(value) != value:
            return False
        fault = self.fault_of(value)
        # While the end is not known somebody is just being told, and what is submitted meanwhile may fail for itself.
        return None if fault is None else fault.told and fault.last is not None

    def failed(self, value: int) -> bool:
        """Whether operation ``value``, which is done, failed or did not run."""
        return self.lost is not None or self.fault_of(value) is not None

    def error_of(self, value: int) -> BaseException | None:
        """A copy of what went wrong with operation ``value``, without telling."""
        if self.lost is not None:
            return self.lost
        fault = self.fault_of(value)
        return self.faults.withdrawals.error(value, self.label) if fault is None else fault.copy()

    def check(self, value: int, first: int = 0) -> None:
        """Raise if operation ``value`` failed or did not run; that tells its fault (invariant 4)."""
        error = self.failure(value, first)
        if error is not None:
            try:
                raise error
            finally:
                del error  # else the traceback, which has this frame, would hold itself

    def failure(self, value: int, first: int = 0) -> BaseException | None:
        """What a waiter of operation ``value`` is to raise, or None; that tells its fault (invariant 4).

        ``first``: the waiter waits for operations from that one on together: what any of them raised is what it is to raise.
        """
        if self.lost is not None:
            return fresh(self.lost)
        fault = self.fault_of(value)
        if self.withdrew and (fault is None or fault.withdrawn or self.faults.withdrawals.withdrawn(value)):
            error = self._withdrawal(value, fault)
            if error is not None:
                return error
        if fault is None:
            return None
        faults.tell(self, fault)
        if value in (fault.first, fault.guarded) or 0 < first <= fault.first:
            return fault.to_raise()
        return dependency_error(f"an operation of {self.label}", fault.root())

    def _withdrawal(self, value: int, fault: KnownFault | None) -> BaseException | None:
        """What a waiter is to raise if operation ``value`` does not run because it, or one ahead of it, was withdrawn."""
        error = self.faults.withdrawals.error(value, self.label)
        if error is None:
            return None
        if fault is not None and fault.withdrawn:
            faults.tell(self, fault)
        return error if self.faults.withdrawals.withdrawn(value) else dependency_error(f"an operation of {self.label}", error)

    def check_all(self, value: int) -> None:
        """Raise the first failure among the operations up to ``value`` that nobody was told of."""
        error = self.first_failure(value)
        if error is not None:
            try:
                raise error
            finally:
                del error  # as in `check`

    def first_failure(self, value: int) -> BaseException | None:
        """What :meth:`check_all` is to raise, or None; that tells its fault (invariant 4)."""
        if self.lost is not None:
            return fresh(self.lost)
        if not self.counters[FAULTS]:
            return None
        for fault in self.untold_faults():
            if fault.first <= value and faults.tell(self, fault):
                return fault.to_raise()
        return None

    def lose(self, error: BaseException) -> None:
        """Make every wait, now and later, raise ``error`` (invariant 5)."""
        self._lose_counters(error)
        self._rebind()
        self.drop_all()

    def _lose_counters(self, error: BaseException) -> None:
        self.lost = error
        self.counters = _OF_THE_LOST
        self.operations = Lost(error)
        self.deferred = False
        if self._lease is not None:
            self._lease.queue = 0

    def drop_all(self) -> None:
        """Drop what it keeps."""
        self._kept.clear()
        self.needed.clear()

    # End

    def retire(self) -> None:
        """Note that nobody submits to it any more, as its stream was dropped; for finalizers.

        Timelines that it has waited for may have waited for it: they would keep each other until the collector comes by. So
        they are let go of when its work is done.
        """
        if not (self._kept or self.frontier[1]) or self.deferred or self.lost is not None or self.recording is not None:
            return
        submitted = self.counters[SUBMITTED]
        if self.counters[COMPLETED] >= submitted and self.counters[FAULTS] == self.faults.seen:
            self._forget_others()
        else:
            watcher.hand_over(self, submitted, self._forget_others)

    def _forget_others(self) -> None:
        self.release()
        self.frontier = (0, NO_CLOCK)  # what is over, and follows nothing any more, waits for nobody
        if self.past is not None:
            self.past.clear()

    def report(self) -> None:
        """Log failures that nobody was told of, as asyncio does for tasks."""
        if self.lost is not None or self.owned or not self.counters[FAULTS]:
            return
        with _reporting:
            for fault in self.untold_faults():
                if fault.retrieved or not faults.tell(self, fault):
                    continue
                error = fault.to_raise()
                if not isinstance(root_cause(error), WithdrawnError):  # else it is as somebody asked for
                    logger.error("%s: a failure was never retrieved", self.label, exc_info=error)

    def _has_all_told(self) -> bool:
        """Whether there is nothing to report, as far as can be known without a lock: for finalizers."""
        log = self.faults
        return self.owned or (self.counters[FAULTS] == log.seen and all(fault.retrieved for fault in log.untold))

    @property
    def has_ended(self) -> bool:
        """Whether its queue goes back as soon as nobody refers to it."""
        return self._lease is not None

    def end(self) -> None:
        """Report, and go. The timeline must be idle."""
        self.report()
        self._go()

    def _go(self) -> None:
        """Have the queue go back when nobody waits for it any more (see ``Lease``). Takes no lock."""
        living.dropped.discard(self)  # not before: at exit, what is reported is looked for there
        if self.lost is None and (self._lease is None or not self._lease.queue):  # else it has ended before
            self._lease = Lease(self.operations)
            self._lease.queue = self.queue  # behind: Ctrl-C before that, and nobody has given it back
            ended_totals.note(self.device, self.counters[COMPLETED], self.counters[FAULTS])

    def __del__(self) -> None:
        try:
            operations = self.operations
        except AttributeError:  # Ctrl-C came before it was whole: between the queue and the timeline, perhaps
            if getattr(self, "queue", 0):
                watcher.call(partial(self.handle.backend.executor.destroy_queue, self.queue))
            return
        if self.queue == 0 or self.lost is not None:
            return
        counters = self.counters
        is_over = counters[COMPLETED] >= counters[SUBMITTED] and not self.needed
        # As of requests with a stream each, which are to wake up nobody: theirs would come and go faster than the watcher.
        if is_over and operations.destroys_anywhere and (not counters[FAULTS] or self._has_all_told()):
            self._go()
            return
        # The watcher holds the timeline, and all that it keeps, until it is idle, and then ends it. It does so even if it
        # is idle now: the collector may have called us in the middle of anything, such as a backend that holds its lock, or
        # what logs, which a report would wait for.
        living.dropped.add(self)
        watcher.hand_over(self, counters[SUBMITTED], self.end)


#: Those of this process.
living: Final[Living[Timeline]] = Living()


def lose_all(error: BaseException) -> None:
    """In a forked child: lose every timeline, those that were dropped with work in flight included, and drop nothing."""
    global _opening, _reporting
    faults.forget_collecting_after_fork()
    _opening = threading.RLock()  # this is a forked child, and other threads of the parent may have held them
    _reporting = threading.RLock()
    lost = living.all()
    # All counters before anything that is kept: what ends then looks at those of others, and a driver's memory is not here.
    for timeline in lost:
        timeline._lose_counters(error)
        timeline.faults.withdrawals.lose_gates()
    for timeline in lost:
        timeline._rebind()
    ended_totals.forget_after_fork()
