"""Queues, devices and worker threads of the portable executor.

Invariants, all under the executor's one lock:

1. A queue is in exactly one state: idle (nothing pending), on its device's ready heap, in the hands of one worker, or
   held by its first operation, which has left word with a gate or another queue. Hence operations never overlap.
2. A failure is recorded before COMPLETED reaches the value that failed: who sees the value sees the failure.
3. What is withdrawn was not in a worker's hands when it was: ``begun`` is the last operation that was, whatever came of it.
4. COMPLETED is written, then those who wait for it are looked through; they look at COMPLETED, then register. Both
   happen under the lock, so no wake-up is lost.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import sys
import threading
from collections import deque
from typing import Protocol

from aiodev._backends.cpu.operations import Failure, Function, Operation, Range
from aiodev._core.backend import COMPLETED, COUNTER_WORDS, FAULTS, SUBMITTED, Fault

__all__ = ["Device", "PortableQueue", "Waker", "Worker"]

#: Operations that a worker runs of one queue before others of the same priority get their turn.
BATCH = 64
#: Failures remembered for each queue.
FAULTS_KEPT = 64
#: Withdrawals remembered for each queue, for those who wait for it.
WITHDRAWALS_KEPT = 1024
ONE = (1).to_bytes(8, sys.byteorder)


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
        self.pending: deque[Operation] = deque()
        self.idle = True
        self.begun = 0
        self.withdrawals: list[tuple[int, int]] = []  # first and last of what does not run and is not passed
        self.faults: deque[Fault] = deque(maxlen=FAULTS_KEPT)
        self.passed: deque[tuple[int, int]] = deque(maxlen=WITHDRAWALS_KEPT)
        self.armed: dict[Waker, int] = {}
        self._held: list[tuple[int, int, PortableQueue]] = []  # heap of (value, its number, queue that waits for it)
        self._spinners: list[tuple[int, threading.Lock]] = []

    @property
    def completed(self) -> int:
        """Operations completed."""
        return self.counters[COMPLETED]

    def submit(self, operation: Operation) -> int:
        """Append an operation; returns its value."""
        self.pending.append(operation)
        self.counters[SUBMITTED] += 1
        if self.idle:
            self.idle = False
            self.resume()
        return self.counters[SUBMITTED]

    def resume(self) -> None:
        """Let a worker of the device take this queue."""
        self.device.push(self.priority, self)
        self.device.arrived.notify()

    def hold(self, value: int, queue: PortableQueue) -> None:
        """Have ``queue`` resume when this one reaches ``value``."""
        heapq.heappush(self._held, (value, queue.number, queue))

    def complete(self, failure: Failure | None) -> None:
        """Count the first operation as completed and wake those who waited for it."""
        value = self.completed + 1
        if failure is not None:
            self.faults.append(Fault(value, None, *failure))
            self.counters[FAULTS] += 1
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
    """What is ready for the workers of one device."""

    def __init__(self, lock: threading.Lock, thread_count: int) -> None:
        self.thread_count = thread_count
        self.arrived = threading.Condition(lock)
        self.ready: list[tuple[int, int, PortableQueue | Range]] = []  # heap of (priority, arrival, what)
        self._arrivals = itertools.count()

    def push(self, priority: int, what: PortableQueue | Range) -> None:
        """Put ``what`` on the heap, behind what has the same priority."""
        heapq.heappush(self.ready, (priority, next(self._arrivals), what))


class Owner(Protocol):
    """What workers ask of their executor, without the lock or with it."""

    def function(self, entry: int) -> Function:
        """Code of a kernel entry."""

    def before(self, queue: int) -> None:
        """Called before each copy, fill, stamp and kernel, without the lock; may raise."""

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """What the waiter should get for ``error``."""


class Worker:
    """One thread: takes what is most urgent on its device, again and again."""

    def __init__(self, name: str, device: Device, lock: threading.Lock, owner: Owner) -> None:
        self.lock = lock
        self.thread_count = device.thread_count
        self.stopping = False
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._device, self._owner = device, owner

    def function(self, entry: int) -> Function:
        """Code of a kernel entry."""
        return self._owner.function(entry)

    def before(self, queue: PortableQueue) -> None:
        """Take the time, or the failure, that a simulated device puts before an operation."""
        self._owner.before(queue.number)

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """What the waiter should get for ``error``, which a kernel raised."""
        return self._owner.explain(error, entry, site)

    def invite(self, queue: PortableQueue, work: Range, helpers: int) -> None:
        """Let up to ``helpers`` idle workers join ``work``, at its queue's priority."""
        for _ in range(helpers):
            self._device.push(queue.priority, work)
        if helpers > 0:
            self._device.arrived.notify(helpers)

    def _work(self) -> None:
        device = self._device
        with self.lock:
            while not self.stopping:
                if not device.ready:
                    device.arrived.wait()
                    continue
                what = heapq.heappop(device.ready)[2]
                if isinstance(what, Range):
                    what.help()
                else:
                    self._advance(what)

    def _advance(self, queue: PortableQueue) -> None:
        """Run operations of ``queue`` until it is idle or held, at the end of its turn, or others are more urgent."""
        ready = self._device.ready
        for _ in range(BATCH):
            if not queue.pending:
                queue.idle = True
                return
            operation, value = queue.pending[0], queue.completed + 1
            skipped = queue.skips(value) or (bool(queue.withdrawals) and queue.fails_withdrawn(value))
            if operation.holds(queue, skipped):
                return
            queue.begun = value
            failure = None if skipped else operation.run(queue, self)
            queue.pending.popleft()
            queue.complete(failure)
            if ready and ready[0][0] < queue.priority:
                break
        # No notify: this worker looks at the heap next.
        self._device.push(queue.priority, queue)
