"""The compile service: brings kernels from their source to code that can be launched, without the caller waiting.

1. A kernel is loaded once for a backend, however many launches ask for it at once; all of them get the one outcome.
2. Nothing here runs on a caller's thread but putting a request in a queue. One thread loads from the disk cache; what is not
   there goes to a pool of worker processes, and back to the loading thread when it is.
3. A callback is called exactly once, from a thread of the service, or at once when the outcome is known.
4. Nobody waits for a thread that is gone: what it had, and what was queued for it, fails, and the next request starts another.
5. The code that a process found first is what it goes on using, so that a launch gives the same bits as the one before. Where
   better code is made meanwhile, the next process finds it.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from aiodev._core.backend.handle import starting
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.registry import BackendHandle
from aiodev._core.cache_directory import cache
from aiodev._core.compilations import reported
from aiodev._core.config import settings
from aiodev._core.errors import AiodevError, BackendNotFoundError, CompileError
from aiodev._core.streams import trace
from aiodev._kernel.compile.keys import cache_key
from aiodev._kernel.compile.pool import QueuedJob, WorkerPool
from aiodev._kernel.compile.snapshot import Snapshot, Uncapturable, capture
from aiodev._kernel.compile.worker import Job
from aiodev._kernel.tuning import LOADING_PAUSE

__all__ = ["PendingKernel", "Totals", "by_entry", "service", "totals"]

logger = logging.getLogger("aiodev")

_NO_THREAD = (
    "the system refuses a thread to load its code; raise the limit of processes (ulimit -u, pids.max), or of memory (ulimit -v)"
)

#: What an entry is of, for who sees nothing but launches.
by_entry: weakref.WeakValueDictionary[int, PendingKernel] = weakref.WeakValueDictionary()


class Totals:
    """Counts of kernels compiled and loaded by this process; see :func:`aiodev.profiler.counters`."""

    __slots__ = ("kernels_compiled", "kernels_loaded")

    def __init__(self) -> None:
        self.kernels_compiled = 0
        self.kernels_loaded = 0


totals = Totals()


class PendingKernel:
    """A kernel on its way: an entry that may be launched behind a gate, and the outcome once it is known.

    Attributes:
        entry: the backend's entry; its launches are held until the outcome is known to be good.
        ready: the code is there.
        error: why it will never be.
        may_pass: that is for want of memory, threads, processes or files, so another launch may have more luck.
        awaited: somebody waits for the outcome.
        only_reads: the places, among its arguments, of arrays that its body only reads, as far as that is known.
    """

    __slots__ = ("__weakref__", "_callbacks", "_lock", "awaited", "backend", "entry", "error", "may_pass", "only_reads",
                 "ready", "snapshot", "spec")  # fmt: skip

    def __init__(
        self, backend: BackendHandle, spec: KernelSpec, snapshot: Snapshot, entry: int | None = None,
        only_reads: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.backend = backend
        self.spec = spec
        self.snapshot = snapshot
        self.ready = False
        self.error: BaseException | None = None
        self.may_pass = False
        self.awaited = False
        self.only_reads = only_reads
        self._lock = threading.RLock()  # re-entrant: a finalizer, or a signal's handler, may launch
        self._callbacks: list[Callable[[BaseException | None], object]] = []
        self.entry: int = backend.backend.reserve_entry() if entry is None else entry
        trace.entries[self.entry] = trace.TracedKernel(spec.name, spec.ndim, spec.arguments)
        by_entry[self.entry] = self

    def again(self) -> PendingKernel:
        """Another attempt, with the same entry, of one that has failed."""
        spec = self.spec._replace(key="")
        return PendingKernel(self.backend, spec, capture(spec.function), self.entry, self.only_reads)

    def when_done(self, callback: Callable[[BaseException | None], object]) -> None:
        """Call ``callback(error or None)`` when the outcome is known."""
        with self._lock:
            pending = not self.ready and self.error is None
            if pending:
                self._callbacks.append(callback)
            first = pending and not self.awaited
            self.awaited = True
        if first:
            service.hurry(self)
        if not pending:
            callback(self.error)

    def finish(self, error: BaseException | None) -> None:
        """Set the outcome, and call the callbacks."""
        with self._lock:
            self.may_pass = error is not None and _may_pass(error)
            self.error, self.ready = error, error is None
            self.snapshot = Snapshot()  # let go of what the body refers to
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(error)
            except Exception:  # the other callbacks still have to be called
                logger.exception("%s: a callback of its compilation failed", self.spec.name)


class Service:
    """The process's compile service; it owns the loading thread and the workers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._requests: queue.SimpleQueue[tuple[PendingKernel, Callable[[], None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.workers = WorkerPool()
        self.improvers = WorkerPool(1)  # of their own, so that nobody waits for a kernel that could wait
        self.recorded: list[Job] | None = None
        self._improved: set[str] = set()  # keys; the loading thread's
        #: By backend and key: who waits, and what the pool has. The loading thread's.
        self._compiling: dict[tuple[str, str], tuple[list[PendingKernel], QueuedJob]] = {}
        #: Those that are asked for by their content, with its key, again and again: entries are never given back.
        self._by_content: dict[tuple[BackendHandle, KernelSpec], PendingKernel] = {}
        self._finding = threading.Lock()

    def forget_after_fork(self) -> None:
        """In a forked child: the threads and the workers are the parent's."""
        self.workers.forget()
        self.improvers.forget()
        Service.__init__(self)

    def start_compiler(self, handle: BackendHandle) -> None:
        """Start a worker along with a backend if it will be needed: an empty cache has nothing for any launch."""
        directory = cache.directory()
        if settings.compiler_start == "late" or not cache.writable:
            return
        if settings.compiler_start == "early" or not handle.backend.has_compiled(directory):
            spec = KernelSpec("nothing", _nothing, 1, ("A1f8C",))
            job = (handle.name, spec, capture(_nothing).to_bytes(), "")  # compiled, and not kept
            try:
                self.workers.submit(job, lambda error: logger.debug("a compile worker is ready: %r", error))
            except RuntimeError as error:
                logger.debug("no compile worker is started ahead: %s", error)

    def load(self, loading: PendingKernel) -> None:
        """Begin to load or compile a kernel; as long as nobody waits for it, those that somebody waits for come first."""
        loading.backend.start_soon(lambda error: self._started(loading, error))

    def load_once(self, backend: BackendHandle, spec: KernelSpec, snapshot: Snapshot) -> PendingKernel:
        """The one kernel of a content, whose key ``spec`` has: it begins to load if there is none, or that one has failed."""
        with self._lock:
            known = self._by_content.get((backend, spec))
            if known is not None and known.error is None:
                return known
            entry = None if known is None else known.entry  # whose launches are held for ever
            loading = self._by_content[backend, spec] = PendingKernel(backend, spec._replace(key=""), snapshot, entry)
        self.load(loading)
        return loading

    def find_cached(self, backend: BackendHandle, spec: KernelSpec) -> PendingKernel | None:
        """The one kernel of a content whose body is not here; None if its code is not there either. Blocks.

        Until its code is there nobody has it but this table, so the next one who asks looks for its code again.
        """
        with self._finding:
            loading = self._by_content.get((backend, spec))
            if loading is None:
                loading = self._by_content[backend, spec] = PendingKernel(backend, spec, Snapshot())
            if not loading.ready:
                if not backend.backend.load_cached(loading.entry, spec, cache.directory()):
                    return None
                loading.finish(None)
            return loading

    def hurry(self, loading: PendingKernel) -> None:
        """Compile a kernel as one that somebody waits for, from now on."""
        if loading.spec.key:  # else it is not in the pool yet
            with suppress(CompileError):  # that there is no thread; it is compiled all the same
                self._request(loading, lambda: self._hurry(loading))

    def _hurry(self, loading: PendingKernel) -> None:
        compiling = self._compiling.get((loading.backend.name, loading.spec.key))
        if compiling is not None:
            self.workers.hurry(compiling[1])

    def _started(self, loading: PendingKernel, error: BaseException | None) -> None:
        if error is not None:
            loading.finish(error)
            return
        try:
            self._request(loading, lambda: self._prepare(loading))
        except CompileError as failure:  # no thread: launches that are held for this must not hang
            loading.finish(failure)

    def _request(self, loading: PendingKernel, step: Callable[[], None]) -> None:
        """Have the loading thread take a step on behalf of ``loading``.

        Raises:
            CompileError: there is no such thread, and none can be started.
        """
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="aiodev-load", daemon=True)
                try:
                    self._thread.start()
                except BaseException as error:
                    self._thread = None  # the next request tries again
                    if isinstance(error, RuntimeError | MemoryError):  # the process or the system has no more
                        raise CompileError(loading.spec.name, _NO_THREAD) from error
                    raise
            self._requests.put((loading, step))  # under the lock, so that a thread that dies sees it, or is replaced

    def _run(self) -> None:
        taken: tuple[PendingKernel, Callable[[], None]] | None = None
        try:
            while True:
                taken = self._requests.get()
                self._take_step(*taken)
                taken = None
                time.sleep(LOADING_PAUSE)  # the loop's thread gets the GIL
        except BaseException as error:  # as where memory runs out
            self._fail_all(error, [taken[0]] if taken else [])
            logger.exception("the thread that loads kernels has died; the next kernel that is launched starts another one")

    def _take_step(self, loading: PendingKernel, step: Callable[[], None]) -> None:
        try:
            step()
        except AiodevError as error:
            loading.finish(error)
        except BaseException as error:  # nobody may wait for ever
            loading.finish(_failure(loading, f"{type(error).__name__}: {error}", error))
            if not isinstance(error, Exception):
                raise

    def _fail_all(self, error: BaseException, waiting: list[PendingKernel]) -> None:
        """The loading thread dies: those who wait for it, and for what the pool would hand over to it, learn that."""
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread = None
            with suppress(queue.Empty):
                while True:
                    waiting.append(self._requests.get_nowait()[0])
            for kernels, _ in list(self._compiling.values()):
                waiting += kernels
            self._compiling.clear()
        for loading in waiting:
            if not loading.ready and loading.error is None:
                log = f"the thread that loads kernels has died: {type(error).__name__}: {error}"
                loading.finish(_failure(loading, log, error))

    def _prepare(self, loading: PendingKernel) -> None:
        """Load a kernel from the cache; else send it to a worker, or compile it here if it cannot be sent."""
        spec, backend, directory = loading.spec, loading.backend, cache.directory()
        try:
            key = cache_key(spec, loading.snapshot)
            data = loading.snapshot.to_bytes()
        except Uncapturable as reason:
            logger.debug("%s: compiled in this process, and not kept: %s", spec.name, reason)
            self._compile(loading)
            return
        loading.spec = spec = spec._replace(key=key)
        job = (backend.name, spec, data, directory)
        if self.recorded is not None:
            self.recorded.append(job)
        if backend.backend.load_cached(loading.entry, spec, directory):
            totals.kernels_loaded += 1
            loading.finish(None)
            if cache.lasting and backend.backend.is_provisional(spec):
                self._improve(job)
            return
        if not (directory and cache.writable):  # through which a worker would hand it over
            self._compile(loading)
            return
        compiling = self._compiling.get((backend.name, key))
        if compiling is not None:  # another kernel of the same content
            waiting, queued = compiling
            waiting.append(loading)
            if loading.awaited:
                self.workers.hurry(queued)
            return
        totals.kernels_compiled += 1

        def done(error: BaseException | None) -> None:
            try:
                self._request(loading, lambda: self._all_compiled(loading, error))
            except CompileError as no_thread:
                self._fail_all(no_thread, [])

        queued = self.workers.submit(job, done, ahead=not loading.awaited)
        self._compiling[backend.name, key] = [loading], queued

    def _improve(self, job: Job) -> None:
        """Have a worker make better code than was loaded, for later processes."""
        spec = job[1]

        def done(error: BaseException | None) -> None:
            logger.debug("%s: compiled for the next process: %r", spec.name, error)

        if spec.key not in self._improved:
            self._improved.add(spec.key)
            self.improvers.submit(job, done)

    def _all_compiled(self, first: PendingKernel, error: BaseException | None) -> None:
        """Pass on a worker's outcome to all that wait for it, each in a step of its own, so that one cannot spoil another."""
        waiting, _ = self._compiling.pop((first.backend.name, first.spec.key), ((), None))  # nobody if a thread has died
        for loading in waiting:
            self._request(loading, functools.partial(self._compiled, loading, error))

    def _compiled(self, loading: PendingKernel, error: BaseException | None) -> None:
        if isinstance(error, BackendNotFoundError):
            # Registered by this process alone (`register_backend`): only here can it be asked to compile.
            with reported(loading.spec.name):
                self._finish(loading)
        elif error is not None:
            loading.finish(error)
        else:
            self._finish(loading)

    def _compile(self, loading: PendingKernel) -> None:
        """Compile in this process."""
        totals.kernels_compiled += 1
        with reported(loading.spec.name):
            self._finish(loading)

    def _finish(self, loading: PendingKernel) -> None:
        loading.backend.backend.load_into(loading.entry, loading.spec, cache.directory())
        loading.finish(None)


def _failure(loading: PendingKernel, log: str, cause: BaseException) -> CompileError:
    failure = CompileError(loading.spec.name, log)
    failure.__cause__ = cause
    return failure


def _may_pass(error: BaseException) -> bool:
    """Whether a kernel has no code because the process or the system had too little of something at the time."""
    cause = error.__cause__
    return isinstance(cause, OSError | MemoryError) or (isinstance(cause, RuntimeError) and "new thread" in str(cause))


def _nothing(i: int, x: Any) -> None:
    x[i] = 0.0


#: The process's service.
service = Service()
starting.append(service.start_compiler)
