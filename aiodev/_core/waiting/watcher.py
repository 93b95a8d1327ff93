"""The watcher: a thread that waits for timelines on behalf of whoever has no loop to wait in.

It starts on first need and runs callbacks, which must be short: hand a called function to its thread, end a timeline that
was dropped with work in flight, open the gate of a stream that waits for another kind of device.

It also tends timelines that hold much memory for work that may be done (``Timeline.needed``), which no waiter may ever ask
for. That is not urgent: it looks at them now and then, and a copy with a waiter wakes up no thread.

``hand_over``, ``call`` and ``tend`` take no lock that the thread holds while it works: the garbage collector may call them, in
that very thread, at any allocation. Where the system refuses the thread, what they are given is done when there is one: whoever
comes next tries to start it. What is submitted cannot rely on that, so ``watch`` refuses.

While the process forks, what it is to do is put down, and nobody is woken (:mod:`aiodev._core.at_fork`): finalizers come here
in a child that has not forgotten anything yet, whose watcher is its parent's.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import weakref
from collections import deque
from collections.abc import Callable

from aiodev._core import at_fork
from aiodev._core.errors import ThreadLimitError
from aiodev._core.sigint import sigint_held
from aiodev._core.timeline.points import Tended
from aiodev._core.tuning import STARTING_PATIENCE, TEND_EVERY
from aiodev._core.waiting.waitset import WaitSet

logger = logging.getLogger("aiodev")

#: What keeps the thread from starting: the process or the system has no more threads, memory or descriptors.
_REFUSALS = (RuntimeError, MemoryError, OSError)


class _Job:
    """A callback with an identity of its own."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def run(self) -> None:
        try:
            self.callback()
        except Exception:  # the thread goes on for everybody else
            logger.exception("a callback of the watcher failed")


class Watcher:
    """Calls back when a timeline reaches a value."""

    def __init__(self) -> None:
        self._starting = threading.Lock()  # nobody waits for it for long: see `_start`
        self._inbox: deque[tuple[Tended | None, int, _Job]] = deque()
        self._tended: deque[weakref.ref[Tended]] = deque()
        self._waits: WaitSet[_Job] | None = None

    def watch(
        self, timeline: Tended, value: int, callback: Callable[[], object], refuse: Callable[[BaseException], object]
    ) -> None:  # fmt: skip
        """Call ``callback`` once ``timeline`` reaches ``value``: now, when it has already, else from the watcher's thread.

        If that cannot be had, ``refuse`` is called instead, with the error.
        """
        if timeline.deferred:
            timeline.handle.start_soon(lambda error: self.watch(timeline, value, callback, refuse))
        elif timeline.reached(value):
            _Job(callback).run()
        elif (refusal := self.refusal()) is not None:
            refuse(refusal)
        else:
            self.hand_over(timeline, value, callback)

    def refusal(self) -> ThreadLimitError | None:
        """Why the thread cannot be had; None if it runs. It never ends."""
        if self._waits is not None or at_fork.forking:
            return None
        try:
            waits = self._start(STARTING_PATIENCE)
        except _REFUSALS as error:
            refusal = ThreadLimitError()
            refusal.__cause__ = error.with_traceback(None)  # which has what it would have waited with
            return refusal
        if waits is not None:
            waits.descriptor.wake()  # for what was left to be done
        return None

    def hand_over(self, timeline: Tended, value: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` as ``watch`` does, but always from the watcher's thread: for finalizers, under any lock."""
        self._inbox.append((timeline, value, _Job(callback)))
        self._wake()

    def call(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` soon, from the watcher's thread; for finalizers, too."""
        self._inbox.append((None, 0, _Job(callback)))
        self._wake()

    def tend(self, timeline: Tended) -> None:
        """Have ``timeline`` let go of what it needs no more, soon after that is so; for finalizers, too."""
        idle = not self._tended
        self._tended.append(weakref.ref(timeline))
        if idle or self._waits is None:
            self._wake()

    def _wake(self) -> None:
        if at_fork.forking:
            return
        waits = self._waits
        if waits is None:
            with contextlib.suppress(*_REFUSALS):  # it is done when there is a thread
                waits = self._start()
        if waits is not None:
            waits.descriptor.wake()

    def _start(self, patience: float = 0.0) -> WaitSet[_Job] | None:
        """Start the thread; None if somebody does so already, and for longer than ``patience`` seconds.

        That may be whoever waits for this very thread, or this one, further up: a finalizer may come in between. What was left
        to be done then is found, since the thread is woken up once more when it has started.
        """
        with sigint_held:  # a lock that is kept would keep the thread from ever starting
            if not self._starting.acquire(timeout=patience):
                return None
            try:
                if self._waits is None:
                    waits: WaitSet[_Job] = WaitSet()
                    threading.Thread(target=self._run, args=(waits,), name="aiodev-watcher", daemon=True).start()
                    self._waits = waits  # last: where no thread could be started, the next who comes tries again
                return self._waits
            finally:
                self._starting.release()

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

    def _run(self, waits: WaitSet[_Job]) -> None:
        poll = select.poll()
        poll.register(waits.descriptor.read_end, select.POLLIN)
        while True:
            poll.poll(TEND_EVERY if self._tended else None)
            self._tend()
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

    def resume(self) -> None:
        """After a fork, in the parent: do what was put down meanwhile."""
        if self._inbox or self._tended:
            self._wake()

    def forget_after_fork(self) -> None:
        """In a forked child the thread is gone, and what it was to do is the parent's; start afresh."""
        while self._inbox:  # one by one: a finalizer of what is dropped may add to it
            self._inbox.popleft()
        waits = self._waits
        if waits is not None and waits.descriptor.is_ours:  # its thread runs here
            return
        Watcher.__init__(self)
        if waits is not None:  # last: nobody finds it closed
            waits.descriptor.close()


#: The process's watcher.
watcher = Watcher()
at_fork.around_fork(lambda: None, watcher.resume)
