"""Backend handle: one registered backend and its start, which happens once, off every loop and off the caller's thread.

Starting imports compilers and drivers and takes up to seconds, so everybody shares one attempt. Invariants:

1.  ``started`` becomes true after ``Backend.start`` and after every queued call; never before one of them. Whoever
    reads it as true may use the backend, and nothing that was asked for before is still to come.
2.  Callbacks run in order of registration, in the starting thread. One that is registered while earlier ones still
    run comes after them, so "called back" means that whoever asked before has been served.
3.  An attempt fails as a whole: for its waiters, its callbacks, and whoever joined before it failed. It is over before any of
    them learns that, so that what they do next is a new attempt; its callbacks come after those of the failed one.
4.  No fork happens in the middle of an attempt (``Registry.hold_starts``): a child would inherit import locks and half-made
    state that nobody is left to finish.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from aiodev._core import arguments, callsites
from aiodev._core.backend.interface import Backend
from aiodev._core.errors import BackendUnavailableError, BadForkError
from aiodev._core.usable_cores import core_watch
from aiodev._core.waiting.sync_debug import about_to_block

__all__ = ["BackendHandle", "Factory", "starting"]

logger = logging.getLogger("aiodev")

Factory = Callable[[], Backend]
Callback = Callable[[BaseException | None], object]

#: Called when a backend is about to start, in the starting thread. They must be short, and not fail.
starting: list[Callable[[BackendHandle], object]] = []


class BackendHandle:
    """A backend that is made on first need and started once."""

    def __init__(self, name: str, factory: Factory) -> None:
        self.name = name
        self.started = False
        self._factory = factory
        self._backend: Backend | None = None
        # Re-entrant, for the garbage collector may run a finalizer that comes here while this thread holds it.
        self._lock = threading.RLock()
        self._attempt: Future[None] | None = None
        self._starter: threading.Thread | None = None
        self._running = False  # ``Backend.start`` has returned
        self._callbacks: deque[Callback] = deque()
        self._queued: deque[tuple[Callable[[], object], int]] = deque()
        self._inherited: list[Backend] = []

    def __repr__(self) -> str:
        state = "started" if self.started else "not started"
        return f"<backend {self.name!r}, {state}>"

    # What can be known without a start

    @property
    def backend(self) -> Backend:
        """The instance; made on first need, which starts nothing.

        Raises:
            BackendUnavailableError: it cannot be made.
        """
        backend = self._backend
        if backend is None:
            with self._lock:
                if self._backend is None:
                    self._backend = self._make()
                backend = self._backend
        return backend

    def _make(self) -> Backend:
        try:
            return self._factory()
        except BackendUnavailableError:
            raise
        except Exception as error:  # a stranger's backend may raise anything
            raise BackendUnavailableError(self.name, f"{type(error).__name__}: {error}") from error

    @property
    def busy(self) -> bool:
        """Whether it has started, or is about to."""
        return self.started or self._attempt is not None

    @property
    def lost_in_fork(self) -> bool:
        """Whether the parent of this forked process had started it, so that it cannot start here."""
        return any(not backend.capabilities.restarts_after_fork for backend in self._inherited)

    def unavailable_reason(self) -> str | None:
        """Why it cannot start here, or None. Never raises, starts nothing."""
        if self.started:
            return None
        if self.lost_in_fork:
            return "it was started before this process was forked"
        try:
            reason = self.backend.unavailable_reason()
            if reason is None and self.backend.device_count() == 0:
                reason = "it has no devices"
        except BackendUnavailableError as error:
            reason = error.reason
        except Exception as error:  # a stranger's backend may raise anything
            reason = f"{type(error).__name__}: {error}"
        return reason

    def device_count(self) -> int:
        """How many devices it has; 0 when it cannot start here. Never raises, starts nothing."""
        return self.backend.device_count() if self.unavailable_reason() is None else 0

    def check_available(self) -> None:
        """Raise unless it can start here.

        Raises:
            BadForkError: it was started before this process was forked.
            BackendUnavailableError: it cannot start for another reason.
        """
        reason = self.unavailable_reason()
        if reason is None:
            return
        if self.lost_in_fork:
            raise BadForkError(f"backend {self.name!r}", "start processes with the 'spawn' method")
        raise BackendUnavailableError(self.name, reason)

    # Starting

    def start_soon(self, callback: Callback | None = None) -> None:
        """Start in a thread, unless started; then call ``callback(error or None)``.

        Never blocks. The callback runs in the starting thread, or at once when nothing is left to start; it must be
        short.
        """
        with self._lock:
            if self._join() is not None:
                if callback is not None:
                    self._callbacks.append(callback)
                return
        if callback is not None:
            callback(None)

    def ensure_started(self, timeout: float | None = None) -> None:
        """Block this thread until it has started.

        Raises:
            BackendUnavailableError: it cannot start here.
            BadForkError: it was started before this process was forked, and cannot start afresh.
            TimeoutError: ``timeout`` seconds have passed; the start goes on.
            Exception: a call that had been queued raised this; a note says where it was queued.
        """
        if self.started or (self._attempt is not None and self._starter is threading.current_thread()):
            return
        with self._lock:
            attempt = self._join()
        if attempt is not None:
            if not attempt.done() and (timeout is None or timeout > 0):
                about_to_block(starting=True)
            try:
                attempt.result(None if timeout is None else min(arguments.seconds(None, timeout), threading.TIMEOUT_MAX))
            except TimeoutError:
                if attempt.done():  # the start itself ran into a timeout
                    raise
                late = f"backend {self.name!r} had not started after {timeout} s; it goes on starting"
                raise TimeoutError(late) from None

    def call_when_started(self, fn: Callable[[], object]) -> None:
        """Run ``fn`` now if the backend has started, else when it starts, in the order of these calls.

        If ``fn`` raises then, so does the start, with a note that names the place outside aiodev that made this call.
        """
        with self._lock:
            replaying = self._running and self._starter is threading.current_thread()
            if not self.started and not replaying:
                self._queued.append((fn, _site_of_caller()))
                return
        fn()

    def _join(self) -> Future[None] | None:
        """The attempt in progress, begun if need be; None when there is nothing left to do. Needs the lock."""
        if self._attempt is None and not self.started:
            attempt: Future[None] = Future()
            # A thread of its own in any case: Ctrl-C must not tear a start apart, and a waiter may have a timeout.
            starter = threading.Thread(
                target=self._run, args=(attempt, self._starter), name=f"aiodev-start-{self.name}", daemon=True
            )
            # First, for a finalizer that comes here while the thread is started: it joins this attempt.
            ahead, self._attempt, self._starter = self._starter, attempt, starter
            try:
                starter.start()
            except BaseException as error:
                self._attempt, self._starter = None, ahead
                if isinstance(error, RuntimeError | MemoryError):  # the process or the system has no more
                    reason = "the system refuses a thread for it; raise the limit of processes (ulimit -u, pids.max)"
                    raise BackendUnavailableError(self.name, reason) from error
                raise
        return self._attempt

    def _run(self, attempt: Future[None], ahead: threading.Thread | None) -> None:
        """Make an attempt, then call its callbacks; ``ahead`` is the thread that still calls those of a failed attempt."""
        try:
            if not self._running:
                self._start_backend()
            self._replay()
        except BaseException as error:  # it belongs to those who wait for the start
            callbacks = self._fail()
            attempt.set_exception(error)
            _wait_for(ahead)
            for callback in callbacks:
                self._call(callback, error)
            with self._lock:
                if self._starter is threading.current_thread():  # nobody has tried again
                    self._starter = None
            return
        attempt.set_result(None)
        _wait_for(ahead)
        while (following := self._next_callback()) is not None:
            self._call(following, None)

    def _fail(self) -> list[Callback]:
        """End the attempt, so that later callers begin another; returns the callbacks of those who had joined it."""
        with self._lock:
            callbacks = list(self._callbacks)
            self._callbacks.clear()
            self._attempt = None
            return callbacks

    def _call(self, callback: Callback, error: BaseException | None) -> None:
        try:
            callback(error)
        except Exception:  # the other callbacks still have to be called
            logger.exception("backend %r: a callback of its start failed", self.name)

    def _start_backend(self) -> None:
        self.check_available()
        for hook in starting:
            hook(self)
        core_watch.start()
        try:
            self.backend.start()
        except BaseException as error:  # in whatever way it failed, the instance is of no more use
            self._backend = None  # an instance is started once
            if isinstance(error, BackendUnavailableError):
                raise
            raise BackendUnavailableError(self.name, f"{type(error).__name__}: {error}") from error
        self._running = True

    def _replay(self) -> None:
        while True:
            with self._lock:
                if not self._queued:
                    self.started = True
                    return
                fn, site = self._queued.popleft()
            try:
                fn()
            except Exception as error:  # a stranger's backend may raise anything
                where = callsites.describe_site(site)
                error.add_note(f"this call was queued at {where}, until backend {self.name!r} had started")
                raise

    def _next_callback(self) -> Callback | None:
        """The next callback of a start; None ends the attempt, in one step with finding that there are no more."""
        with self._lock:
            if self._callbacks:
                return self._callbacks.popleft()
            self._attempt = self._starter = None
            return None

    # The ends of a process

    def stop(self) -> None:
        """Have the backend's threads end, because the process does."""
        if self._running and self._backend is not None:
            self._backend.stop()

    @property
    def starter(self) -> threading.Thread | None:
        """The thread that makes an attempt, or tells of one, which waits for those that tell of earlier ones."""
        return self._starter

    def hold(self) -> None:
        """Before a fork: let no attempt begin or end until ``resume``."""
        self._lock.acquire()

    def resume(self) -> None:
        """After a fork, in the parent: let attempts begin and end again."""
        self._lock.release()

    def forget_after_fork(self) -> None:
        """In a forked child: what the parent started is not here. Calls that are still queued stay so."""
        touched = self._running or self._attempt is not None
        if touched and self._backend is not None:
            self._inherited.append(self._backend)  # kept, since to collect it would end what is the parent's
            self._backend = None
        self.started = self._running = False
        self._attempt = self._starter = None
        self._callbacks.clear()
        self._lock = threading.RLock()


def _wait_for(thread: threading.Thread | None) -> None:
    if thread is not None:
        thread.join()


def _site_of_caller() -> int:
    """The site outside aiodev from which ``call_when_started`` was reached."""
    depth = 2
    while True:
        frame = sys._getframe(depth)
        outside = frame.f_globals.get("__name__", "").partition(".")[0] != "aiodev"
        if outside or frame.f_back is None:
            return callsites.here(depth)
        depth += 1
