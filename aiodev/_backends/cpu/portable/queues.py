"""Queues of the portable executor, the devices that serve them, and what both need of operations and workers.

Invariants, all under the executor's one lock:

1. A queue is in exactly one state: idle (nothing pending), on its device's ready heap, in the hands of one worker, or
   held by its first operation, which has left word with a gate or another queue. Hence operations never overlap.
2. A failure is recorded before COMPLETED reaches the value that failed: who sees the value sees the failure.
3. What is withdrawn was not in a worker's hands when it was: ``begun`` is the last operation that was, whatever came of it.
4. COMPLETED is written, then those who wait for it are looked through; they look at COMPLETED, then register. Both
   happen under the lock, so no wake-up is lost.
5. Of the queues of one priority that are ready, the one that has had the least of the device is next, and one that is a slice
   ahead of it gives way, between two operations or two chunks of a range (``Device``).
"""

from __future__ import annotations

import contextlib
import enum
import heapq
import itertools
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from aiodev._backends.cpu.tuning import PORTABLE_FAULTS, PORTABLE_WITHDRAWALS, SLICE
from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS, FAULTS, SUBMITTED, Command, Fault
from aiodev._core.backend.trace_log import COMMAND, FATE_DONE, FATE_FAILED, FATE_SKIPPED, FATE_WITHDRAWN, TraceLog

__all__ = [
    "Device",
    "Failure",
    "Function",
    "Operation",
    "PAUSED",
    "Pause",
    "PortableQueue",
    "Runner",
    "Shared",
    "Waker",
]

ONE = (1).to_bytes(8, sys.byteorder)

#: How an operation failed: what it raised, or the (queue, value) whose failure it shares; neither for a failed gate.
Failure = tuple[BaseException | None, tuple[int, int] | None]


class Pause(enum.Enum):
    """How an operation ends that is not done yet."""

    PAUSED = enum.auto()


#: The operation has given way to another queue's, and goes on when it is run again.
PAUSED = Pause.PAUSED

#: A kernel's code: ``function(arguments, lo, hi)`` runs the indices ``lo`` … ``hi - 1``.
Function = Callable[[bytes, int, int], object]


class Operation(Protocol):
    """The interface that a queue needs of its operations."""

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Whether ``queue`` must stop here; ``skipped``: an earlier failure keeps the operation from running."""

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | Pause | None:
        """Do it, or a part of it; the lock is held on entry and on return."""

    def traced(self) -> tuple[int, int, int]:
        """What a log has of it: what it is, and what that is about (:mod:`aiodev._core.backend.trace_log`)."""


class Shared(Protocol):
    """One launch's indices, which workers of the device claim chunk by chunk."""

    queue: PortableQueue

    @property
    def claimed(self) -> bool:
        """Whether all indices are run, or being run."""

    def help(self) -> None:
        """Claim and run chunks until none is left, or others have had less; the lock is held on entry and on return."""


class Runner(Protocol):
    """The interface that operations need of the worker that runs them.

    Attributes:
        lock: the executor's.
        thread_count: how many workers the device has.
    """

    lock: threading.RLock
    thread_count: int

    def function(self, entry: int) -> Function:
        """Code of a kernel entry."""

    def before(self, queue: PortableQueue) -> None:
        """Take the time, or the failure, that a simulated device puts before an operation."""

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The exception that a waiter gets for ``error``, which a kernel raised."""

    def invite(self, queue: PortableQueue, work: Shared, helpers: int) -> None:
        """Let up to ``helpers`` idle workers join ``work``."""


class Waker:
    """A descriptor that a loop watches, and the queues that it should look at."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._fired: list[int] = []

    def fire(self, queue: int) -> None:
        """Note ``queue``; write unless an earlier note has not been collected yet."""
        self._fired.append(queue)
        if len(self._fired) > 1:
            return
        # Full means readable, which is all that is wanted; closed means that its loop is gone and nobody waits.
        with contextlib.suppress(OSError):
            os.write(self._descriptor, ONE)

    def collect(self) -> list[int]:
        """The queues noted since the last call."""
        fired, self._fired = self._fired, []
        return fired


class PortableQueue:
    """One queue's operations, counters, failures, and those who wait for it."""

    def __init__(self, number: int, device: Device, priority: int) -> None:
        self.number, self.device, self.priority = number, device, priority
        self.counters = memoryview(bytearray(8 * COUNTER_WORDS)).cast("q")
        self.time = 0  #: virtual, ns
        self.pending: deque[Operation] = deque()
        self.idle = True
        self.begun = 0
        self.withdrawals: list[tuple[int, int]] = []  # first and last of what does not run and is not passed
        self.faults: deque[Fault] = deque(maxlen=PORTABLE_FAULTS)
        self.passed: deque[tuple[int, int]] = deque(maxlen=PORTABLE_WITHDRAWALS)
        self.armed: dict[Waker, int] = {}
        self.log: TraceLog | None = None  # where operations are noted, while somebody profiles
        self.traces: dict[int, tuple[TraceLog, int]] = {}  # of operations that are not done: the log, and the place there
        self._held: list[tuple[int, int, PortableQueue]] = []  # heap of (value, its number, queue that waits for it)
        self._spinners: list[tuple[int, threading.Lock]] = []

    @property
    def completed(self) -> int:
        """Operations completed."""
        return self.counters[COMPLETED]

    def submit(self, operation: Operation) -> int:
        """Append an operation; returns its value."""
        if self.log is not None:
            value = self.counters[SUBMITTED] + 1
            place = self.log.claim(self.number, value, *operation.traced(), time.perf_counter_ns())
            if place:
                self.traces[value] = (self.log, place)
        self.pending.append(operation)
        self.counters[SUBMITTED] += 1
        if self.idle:
            self.idle = False
            self.resume()
        return self.counters[SUBMITTED]

    def resume(self) -> None:
        """Let a worker of the device take this queue."""
        self.device.arrive(self)

    def hold(self, value: int, queue: PortableQueue) -> None:
        """Have ``queue`` resume when this one reaches ``value``."""
        heapq.heappush(self._held, (value, queue.number, queue))

    def complete(self, failure: Failure | None) -> None:
        """Count the first operation as completed and wake those who waited for it."""
        value = self.completed + 1
        if failure is not None:
            self.faults.append(Fault(value, None, *failure))
            self.counters[FAULTS] += 1
        if self.traces:
            log, place = self.traces.pop(value, (None, 0))
            if log is not None:
                log.end(place, time.perf_counter_ns(), self.fate_of(value))
        self.counters[COMPLETED] = value
        while self._held and self._held[0][0] <= value:
            heapq.heappop(self._held)[2].resume()
        if self.armed:
            for waker in [waker for waker, target in self.armed.items() if target <= value]:
                del self.armed[waker]
                waker.fire(self.number)
        if self._spinners:
            for target, reached in self._spinners:
                if target <= value:
                    reached.release()
            self._spinners = [spinner for spinner in self._spinners if spinner[0] > value]

    def add_spinner(self, value: int) -> threading.Lock:
        """A lock that is released when ``value`` is reached."""
        reached = threading.Lock()
        reached.acquire()
        self._spinners.append((value, reached))
        return reached

    def remove_spinner(self, reached: threading.Lock) -> None:
        """Forget what ``add_spinner`` gave."""
        self._spinners = [spinner for spinner in self._spinners if spinner[1] is not reached]

    def skips(self, value: int) -> bool:
        """Whether operation ``value``, the next to run, is behind a failure and must not run."""
        if not self.faults:
            return False
        last = self.faults[-1].last
        return last is None or value <= last

    def fate_of(self, value: int) -> int:
        """How operation ``value``, which is about to be completed, came out, as one of ``FATE_…``."""
        if not self.skips(value):
            return FATE_DONE
        fault = self.faults[-1]
        return FATE_WITHDRAWN if fault.withdrawn else FATE_FAILED if fault.first == value else FATE_SKIPPED

    def begin_trace(self, value: int) -> None:
        """Note that the queue has come to an operation, if somebody profiles it."""
        log, place = self.traces.get(value, (None, 0))
        if log is not None:
            log.begin(place, time.perf_counter_ns())

    def begin_command(self, command: Command) -> tuple[TraceLog, int] | None:
        """Note that the queue has come to a command of an execution, if somebody profiles that; gives where that is noted."""
        value, log = self.completed + 1, self.log
        execution, place = self.traces.get(value, (None, 0))
        if execution is None or log is None or command.kind not in ("launch", "copy", "fill"):
            return None
        own = log.claim(self.number, value, COMMAND, command.site, command.size, execution.submitted_at(place))
        if not own:
            return None
        log.begin(own, time.perf_counter_ns())
        return log, own

    def failed_at(self, value: int) -> int | None:
        """Where the failure began that ``value`` shares, or None when it did not fail."""
        for fault in reversed(self.faults):
            if fault.first <= value:
                return fault.first if fault.last is None or value <= fault.last else None
        return next((first for first, last in self.passed if first <= value <= last), None)

    def withdraw(self, first: int, last: int, partly: bool) -> int:
        """Withdraw what has not begun; returns the first of it, or 0."""
        start = max(first, self.begun + 1)
        if start > last or (start > first and not partly):
            return 0
        near = [(start, last), *((f, n) for f, n in self.withdrawals if f <= last + 1 and start - 1 <= n)]
        self.withdrawals = [span for span in self.withdrawals if span not in near]
        self.withdrawals.append((min(span[0] for span in near), max(span[1] for span in near)))
        return start

    def fails_withdrawn(self, value: int) -> bool:
        """Whether operation ``value``, the next to run, is withdrawn; then that is a failure, unless it is behind another."""
        self.withdrawals = [(first, last) for first, last in self.withdrawals if last >= value]
        last = max((last for first, last in self.withdrawals if first <= value), default=0)
        if not last:
            return False
        if not self.skips(value):
            self.faults.append(Fault(value, last, None, withdrawn=True))
            self.passed.append((value, last))
            self.counters[FAULTS] += 1
        return True

    def forgive(self) -> None:
        """End an open failure at the value submitted last."""
        if self.faults and self.faults[-1].last is None:
            self.faults[-1] = self.faults[-1]._replace(last=self.counters[SUBMITTED])


class Device:
    """The ready queues and open ranges of one device, by priority and virtual time.

    A queue's virtual time is what it has used while others waited; the clock is that of a queue which ran all the time. One
    that was idle or held begins no earlier than the clock. Why, :mod:`aiodev._backends.cpu.executor.fairness` says.

    Attributes:
        now: what the calling thread has used, in ns.
    """

    def __init__(self, lock: threading.RLock, thread_count: int, now: Callable[[], int]) -> None:
        self.thread_count = thread_count
        self.now = now
        self.arrived = threading.Condition(lock)
        self.ready: list[tuple[int, int, int, PortableQueue | Shared]] = []  # heap of (priority, time, arrival, what)
        self._arrivals = itertools.count()
        self._waiting = Counter[int]()  # queues on the heap, by priority
        self._active = Counter[int]()  # those, and the ones that are served
        self._clock = Counter[int]()

    def arrive(self, queue: PortableQueue) -> None:
        """Have a queue that was idle or held served, with what is its due."""
        self._active[queue.priority] += 1
        queue.time = max(queue.time, self._clock[queue.priority])
        self.put_back(queue)
        self.arrived.notify()

    def put_back(self, queue: PortableQueue) -> None:
        """Have a queue that gave way served again; no notify: the worker looks at the heap next."""
        self._waiting[queue.priority] += 1
        self._push(queue, queue.time, queue)

    def invite(self, queue: PortableQueue, work: Shared, helpers: int) -> None:
        """Let up to ``helpers`` workers join ``work`` that have no better: a queue that waits goes first."""
        for _ in range(helpers):
            self._push(queue, queue.time + SLICE, work)
        if helpers > 0:
            self.arrived.notify(helpers)

    def _push(self, queue: PortableQueue, time: int, what: PortableQueue | Shared) -> None:
        heapq.heappush(self.ready, (queue.priority, time, next(self._arrivals), what))

    def pop(self) -> PortableQueue | Shared:
        """The next work, taken off the ready queues."""
        what = heapq.heappop(self.ready)[-1]
        if isinstance(what, PortableQueue):
            self._waiting[what.priority] -= 1
        return what

    def depart(self, queue: PortableQueue) -> None:
        """A queue that was served is idle or held."""
        self._active[queue.priority] -= 1

    def charge(self, queue: PortableQueue, spent: int) -> None:
        """Count time that was spent on a queue that is served."""
        priority = queue.priority
        if self._waiting[priority]:
            queue.time += spent
            self._clock[priority] += -(-spent // max(1, self._active[priority]))
        else:
            queue.time += max(-spent, min(spent, self._clock[priority] - queue.time))

    def gives_way(self, queue: PortableQueue) -> bool:
        """Whether a queue that is served is to give way to what is ready: that is more urgent, or has had much less."""
        self._refresh()
        if not self.ready:
            return False
        priority, time, _, what = self.ready[0]
        if priority != queue.priority:
            return priority < queue.priority
        return time < queue.time - SLICE and (isinstance(what, PortableQueue) or what.queue is not queue)

    def _refresh(self) -> None:
        """Drop ranges that are over from the head, and reorder queues that have used more than is noted there."""
        while self.ready and not isinstance(work := self.ready[0][-1], PortableQueue):
            queue = work.queue
            if not work.claimed and self.ready[0][1] >= queue.time + SLICE:
                break
            heapq.heappop(self.ready)
            if not work.claimed:
                self._push(queue, queue.time + SLICE, work)
