"""The watcher: a thread that waits for timelines on behalf of whoever has no loop to wait in.

It starts on first need and runs callbacks, which must be short: hand a called function to its thread, end a timeline that
was dropped with work in flight, open the gate of a stream that waits for another kind of device.

It also tends timelines that hold much memory for work that may be done (``Timeline.needed``), which no waiter may ever ask
for, and ends those that were dropped when their work was done. Neither is urgent: it looks after them now and then, so that a
copy with a waiter wakes up no thread, nor does a stream that served a request. To wake the thread costs whoever does it some
ten microseconds, and then the two of them want the GIL.

``watch`` takes no lock that the thread holds while it works: the garbage collector may call it, in that very
thread, at any allocation.
"""

from __future__ import annotations

import logging
import select
import threading
import weakref
from collections import deque
from collections.abc import Callable

from aiodev._core.timeline.points import Tended
from aiodev._core.tuning import TEND_EVERY
from aiodev._core.waiting.waitset import WaitSet

logger = logging.getLogger("aiodev")

_FAILED = "a callback of the watcher failed"


class _Job:
    """A callback with an identity of its own."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def run(self) -> None:
        try:
            self.callback()
        except Exception:  # the thread goes on for everybody else
            logger.exception(_FAILED)


class Watcher:
    """Calls back when a timeline reaches a value."""

    def __init__(self) -> None:
        self._starting = threading.RLock()
        self._inbox: deque[tuple[Tended | None, int, _Job]] = deque()
        self._tended: deque[weakref.ref[Tended]] = deque()
        self._later: deque[Callable[[], object]] = deque()
        self._ticks = False  # whether the thread looks after the two by itself, every ``TEND_EVERY``
        self._waits: WaitSet[_Job] | None = None

    def watch(self, timeline: Tended, value: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` once ``timeline`` reaches ``value``: now, when it has already, else from the watcher's thread."""
        if timeline.deferred:
            timeline.handle.start_soon(lambda error: self.watch(timeline, value, callback))
        elif timeline.reached(value):
            _Job(callback).run()
        else:
            self.hand_over(timeline, value, callback)

    def hand_over(self, timeline: Tended, value: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` as ``watch`` does, but always from the watcher's thread: for finalizers, under any lock."""
        self._inbox.append((timeline, value, _Job(callback)))
        self._started().descriptor.wake()

    def call(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` soon, from the watcher's thread; for finalizers, too."""
        self._inbox.append((None, 0, _Job(callback)))
        self._started().descriptor.wake()

    def tend(self, timeline: Tended) -> None:
        """Have ``timeline`` let go of what it needs no more, soon after that is so; for finalizers, too."""
        self._tended.append(weakref.ref(timeline))
        self._have_it_tick()

    def call_later(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` within ``TEND_EVERY``, from the watcher's thread or by :meth:`catch_up`; for finalizers, too."""
        self._later.append(callback)
        self._have_it_tick()

    def catch_up(self, most: int) -> bool:
        """Call some of what was to be called later, here and now; whether there was any.

        What Ctrl-C tears is not called again.
        """
        later = self._later
        is_any = bool(later)
        for _ in range(most):
            try:
                callback = later.popleft()
            except IndexError:
                break
            try:
                callback()
            except Exception:  # it is nobody's here
                logger.exception(_FAILED)
        return is_any

    def _have_it_tick(self) -> None:
        if not self._ticks:
            waits = self._started()
            self._ticks = True
            waits.descriptor.wake()

    def _tend(self) -> None:
        for _ in range(len(self._tended)):
            reference = self._tended.popleft()
            timeline = reference()
            if timeline is None:  # what ends it lets go of everything
                continue
            timeline.tended = False
            timeline.let_go()
            if timeline.needed:
                timeline.tended = True
                self._tended.append(reference)

    def _started(self) -> WaitSet[_Job]:
        waits = self._waits
        if waits is None:
            with self._starting:
                if self._waits is None:
                    waits = WaitSet()
                    threading.Thread(target=self._run, args=(waits,), name="aiodev-watcher", daemon=True).start()
                    self._waits = waits  # last: where no thread could be started, the next who comes tries again
                waits = self._waits
        return waits

    def _run(self, waits: WaitSet[_Job]) -> None:
        poll = select.poll()
        poll.register(waits.descriptor.read_end, select.POLLIN)
        while True:
            is_woken = poll.poll(TEND_EVERY if self._ticks else None)
            if not is_woken:
                self._ticks = False  # before it looks, so that who comes behind that wakes it
            self._tend()
            if (self.catch_up(len(self._later)) and not is_woken) or self._tended:
                self._ticks = True
            done = waits.collect()
            while self._inbox:
                timeline, value, job = self._inbox.popleft()
                try:
                    parked = timeline is not None and waits.add(timeline, value, job)
                except Exception:  # this thread outlives every backend: whoever relies on it must not hang
                    logger.exception("%r cannot be waited for", timeline)
                    parked = False
                if not parked:
                    done.append(job)
                del timeline, job
            done.reverse()
            while done:  # and keep none of them, nor the timeline that it may hold, until the next wake-up
                done.pop().run()

    def forget_after_fork(self) -> None:
        """In a forked child the thread is gone; start afresh."""
        waits = self._waits
        Watcher.__init__(self)
        if waits is not None:  # last: nobody finds it closed
            waits.descriptor.close()


#: The process's watcher.
watcher = Watcher()
