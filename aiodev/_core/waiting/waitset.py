"""Wait sets: who waits for which operation, and one file descriptor that becomes readable when some of it is done.

Every loop, and every thread that waits, has a ``WaitSet`` of its own; only its owner touches it. Native code is asked for
the lowest value that somebody waits for on each timeline (``Executor.arm``), and writes the descriptor at most once
between two collections, so wake-ups coalesce: ten thousand waiters of one operation cost one system call.

Invariants:

1.  On each timeline with waiters, the lowest awaited value is armed, or about to be looked at by ``collect``.
2.  A descriptor and its wakers are never closed while the process lives, but pooled: native code may be about to write.
    A stale wake-up is harmless, since ``collect`` collects from every waker and looks at the counters.
3.  A waker that has fired is silent until it is collected. So whoever may have read the descriptor without that makes it
    readable again: a ``collect`` that an exception ended, as Ctrl-C may; else the next ``add``, or ``recycle``. The next
    ``collect`` then looks at everything, as what native code had named may be lost.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from aiodev._core.backend.interface import COMPLETED, Executor
from aiodev._core.finalizing import until_exit
from aiodev._core.timeline.points import Waited

logger = logging.getLogger("aiodev")
_Token = TypeVar("_Token", bound=Hashable)
_Added = TypeVar("_Added", contravariant=True)


class Descriptor:
    """A file descriptor to poll for reading, an eventfd or else a pipe; and its wakers."""

    def __init__(self) -> None:
        self.wakers: dict[Executor, int] = {}
        self.process = os.getpid()
        if hasattr(os, "eventfd"):
            self.read_end = self.write_end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.read_end, self.write_end = os.pipe()
            for end in (self.read_end, self.write_end):
                os.set_blocking(end, False)

    def waker(self, executor: Executor) -> int:
        """The executor's waker for this descriptor."""
        waker = self.wakers.get(executor)
        if waker is None:
            waker = self.wakers[executor] = executor.create_waker(self.write_end)
        return waker

    def wake(self) -> None:
        """Make it readable."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: one more changes nothing
            os.write(self.write_end, (1).to_bytes(8, "little"))

    def clear(self) -> None:
        """Read what was written."""
        try:
            os.read(self.read_end, 4096)
        except BlockingIOError:  # suppress() takes as long as the system call
            return

    @property
    def is_ours(self) -> bool:
        """Whether this process has made it, rather than its parent before a fork."""
        return self.process == os.getpid()

    def close(self) -> None:
        """Close it; only for a forked child that has inherited it, so that no native code writes to it here."""
        for end in {self.read_end, self.write_end}:
            os.close(end)


class Line(Protocol[_Added]):
    """Those who may go on, in order."""

    def extend(self, tokens: Iterable[_Added], /) -> None: ...


class _Waiters(Generic[_Token]):
    """The waiters of one timeline."""

    __slots__ = ("by_value", "heap", "timeline")

    def __init__(self, timeline: Waited) -> None:
        self.timeline = timeline
        self.heap: list[int] = []
        self.by_value: dict[int, dict[_Token, None]] = {}


_descriptors: list[Descriptor] = []  # not in use


@until_exit
class WaitSet(Generic[_Token]):
    """Waiters of one loop or thread. A waiter is any hashable token."""

    def __init__(self) -> None:
        self._groups: dict[Executor, dict[int, _Waiters[_Token]]] = {}
        self._due: list[tuple[Executor, int]] = []  # to be looked at by the next `collect`
        self._done: list[_Token] = []  # collected, and not returned yet
        self._torn = False  # `collect` has begun, and has not ended
        self._recycled = False
        try:
            self.descriptor = _descriptors.pop()
        except IndexError:  # other threads may take them, too
            self.descriptor = Descriptor()

    def __len__(self) -> int:
        groups = self._groups.values()
        return sum(len(t) for group in groups for waiters in group.values() for t in waiters.by_value.values())

    def recycle(self) -> None:
        """Leave the descriptor to the next owner; this set is not used any more. Once is enough."""
        if self._recycled:
            return
        self._recycled = True
        for group in self._groups.values():
            for waiters in list(group.values()):
                self._drop(group, waiters)
        if self.descriptor.is_ours:  # else the parent uses it
            if self._torn:
                self.descriptor.wake()
            _descriptors.append(self.descriptor)

    def __del__(self) -> None:
        self.recycle()  # a thread has ended, and with it what it waited with

    def add(self, timeline: Waited, value: int, token: _Token) -> bool:
        """Have ``token`` returned by ``collect`` once ``timeline`` reaches ``value``; False when it has already."""
        executor = timeline.operations
        if self._torn:
            self.descriptor.wake()  # invariant 3
        group = self._groups.get(executor)
        if group is None:
            group = self._groups[executor] = {}
        waiters = group.get(timeline.queue)
        if waiters is None:
            waiters = group[timeline.queue] = _Waiters(timeline)
            timeline.parked += 1
        tokens = waiters.by_value.get(value)
        if tokens is not None:
            tokens[token] = None
            return True
        heap = waiters.heap
        lowest = not heap or value < heap[0]
        if lowest and not executor.arm(timeline.queue, value, self.descriptor.waker(executor)):
            # The failed attempt may have taken the place of a higher armed value: have the rest looked at.
            if heap:
                self._due.append((executor, timeline.queue))
                self.descriptor.wake()
            else:
                self._drop(group, waiters)
            return False
        heapq.heappush(heap, value)
        waiters.by_value[value] = {token: None}
        return True

    def discard(self, timeline: Waited, value: int, token: _Token) -> None:
        """Forget ``token``."""
        group = self._groups.get(timeline.operations, {})
        waiters = group.get(timeline.queue)
        if waiters is None:
            return
        tokens = waiters.by_value.get(value)
        if tokens is not None:
            tokens.pop(token, None)
            if not tokens:
                del waiters.by_value[value]  # its place in the heap goes when it is reached
        if not waiters.by_value:
            self._drop(group, waiters)

    def _drop(self, group: dict[int, _Waiters[_Token]], waiters: _Waiters[_Token]) -> None:
        del group[waiters.timeline.queue]
        waiters.timeline.parked -= 1

    def collect(self) -> list[_Token]:
        """The waiters whose operation is done; to be called when the descriptor is readable."""
        done: list[_Token] = []
        self.collect_into(done)
        return done

    def collect_into(self, line: Line[_Token]) -> None:
        """Have them stand in line. After an exception at any moment those who do not are still to be collected."""
        torn, self._torn = self._torn, True
        try:
            self.descriptor.clear()
            if torn:
                self._due = [(executor, queue) for executor, group in self._groups.items() for queue in group]
            # Every waker of the descriptor, whether or not anybody waits here for its executor: one that fired for an earlier
            # owner of the descriptor would stay silent until it is collected.
            for executor, waker in self.descriptor.wakers.items():
                self._due.extend((executor, queue) for queue in executor.collect(waker))
            for executor, queue in self._due:
                self._collect_queue(executor, self._groups.get(executor, {}), queue)
            line.extend(self._done)
        except BaseException:
            self.descriptor.wake()
            raise
        self._due, self._done, self._torn = [], [], False

    def _collect_queue(self, executor: Executor, group: dict[int, _Waiters[_Token]], queue: int) -> None:
        waiters = group.get(queue)
        if waiters is None:  # all were discarded, or a stale wake-up
            return
        heap = waiters.heap
        while True:
            completed = waiters.timeline.counters[COMPLETED]
            while heap and heap[0] <= completed:
                # First into the list: who is woken twice, as after an interrupt, looks again; who is never woken hangs.
                self._done.extend(waiters.by_value.get(heap[0], ()))
                waiters.by_value.pop(heap[0], None)
                heapq.heappop(heap)
            if not heap or not waiters.by_value:
                self._drop(group, waiters)
                return
            try:
                if executor.arm(queue, heap[0], self.descriptor.waker(executor)):
                    return
            except Exception:
                # Whoever waits is woken, tries again, and gets the error; those of other timelines must not miss their turn.
                logger.exception("%r cannot be waited for", waiters.timeline)
                for tokens in waiters.by_value.values():
                    self._done.extend(tokens)
                self._drop(group, waiters)
                return


def forget_after_fork() -> None:
    """In a forked child: the parent's descriptors are not ours to read."""
    for descriptor in [descriptor for descriptor in _descriptors if not descriptor.is_ours]:
        _descriptors.remove(descriptor)  # before: nobody takes one that is closed
        descriptor.close()
