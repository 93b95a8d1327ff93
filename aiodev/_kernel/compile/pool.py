"""Worker processes that compile: started on demand, ended when idle, replaced when they die."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import select
import threading
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from aiodev._core.child_process import command
from aiodev._core.compilations import reported
from aiodev._core.errors import CompileError
from aiodev._core.sigint import withheld_from_children
from aiodev._core.usable_cores import core_watch
from aiodev._kernel.compile.worker import Job, placeholder
from aiodev._kernel.dispatch.wire import receive, send
from aiodev._kernel.tuning import LARGEST_WORKER, WORKER_IDLE, WORKER_PATIENCE

if TYPE_CHECKING:
    import subprocess

__all__ = ["QueuedJob", "WorkerPool"]

#: The program that a worker process runs.
CODE = "from aiodev._kernel.compile.worker import main; main()"

Done = Callable[[BaseException | None], None]


class QueuedJob:
    """A job that waits for a worker, or has one."""

    __slots__ = ("done", "job", "taken")

    def __init__(self, job: Job, done: Done) -> None:
        self.job = job
        self.done = done
        self.taken = False


def _readable(pipe: IO[bytes], patience: float) -> bool:
    """Wait until there is something to read; False after ``patience`` seconds."""
    if not hasattr(select, "poll"):  # Windows can only read, and wait for ever
        return True
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    return bool(ready.poll(patience * 1000))


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _without_worker(kernel: str, error: BaseException) -> CompileError:
    failure = CompileError(kernel, f"no compile worker can be started: {error}; raise the limit of processes, files or memory")
    failure.__cause__ = error
    return failure


def _died(kernel: str, error: BaseException, status: int | None) -> CompileError:
    """What a job fails with; its cause is one of the system's errors where the system has killed the worker."""
    why = f"; {error}" if isinstance(error, TimeoutError) else ""
    log = f"the compile worker died, twice (exit status {status}{why}); its messages are on standard error"
    failure = CompileError(kernel, log)
    if not why and status == -9:  # SIGKILL
        failure.__cause__ = ChildProcessError("the worker was killed, which the system does where memory runs out")
    return failure


class WorkerPool:
    """Up to ``size`` worker processes, each fed by a thread of this one.

    A job whose worker dies is tried once more on a new one; then it fails, since it may be what kills them. A worker that
    has grown large is replaced.

    Args:
        size: how many processes; by default as many as leave a core to the program, up to eight.
        environment: variables that its processes have in addition to this one's.
    """

    def __init__(self, size: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self.size = size or max(1, min(8, core_watch.cores.count - 1))
        #: Those that somebody waits for come first, the others after them, each in order.
        self._jobs: queue.PriorityQueue[tuple[bool, int, QueuedJob]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._threads = 0
        self._pending = 0
        self.processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        atexit.register(self.stop)

    def submit(self, job: Job, done: Done, *, ahead: bool = False) -> QueuedJob:
        """Compile a job, after others if it is ``ahead`` of need; a thread of the pool calls ``done(error or None)``."""
        with self._lock:
            self._pending += 1
            grow = self._threads < self.size and self._pending > self._threads
            self._threads += grow
        if grow:
            try:
                threading.Thread(target=self._feed, name="aiodev-compile", daemon=True).start()
            except RuntimeError:  # the system has no more
                with self._lock:
                    self._threads -= 1
                    if self._threads == 0:  # nobody would take the job
                        self._pending -= 1
                        raise
        queued = QueuedJob(job, done)
        self._jobs.put((ahead, next(self._numbers), queued))
        return queued

    def hurry(self, queued: QueuedJob) -> None:
        """Compile a job that was to be compiled ahead as one that somebody waits for."""
        if not queued.taken:
            self._jobs.put((False, next(self._numbers), queued))  # its later place is skipped

    def stop(self) -> None:
        """End every worker process at once, and start no other. Of jobs that are not done nobody hears any more."""
        self._stopped = True
        for process in list(self.processes):
            with contextlib.suppress(OSError):
                process.kill()

    def forget(self) -> None:
        """Forget the processes, which belong to the parent of a fork now."""
        atexit.unregister(self.stop)
        self.processes.clear()

    def _feed(self) -> None:
        worker: subprocess.Popen[bytes] | None = None
        while True:
            try:
                _, _, queued = self._jobs.get(timeout=WORKER_IDLE)
            except queue.Empty:
                with self._lock:
                    if self._pending >= self._threads:  # a job has just been counted on this thread
                        continue
                    self._threads -= 1
                self._end(worker)
                return
            with self._lock:
                if queued.taken:
                    continue
                queued.taken = True
            job, done = queued.job, queued.done
            error: BaseException | None
            try:
                with reported(job[1].name) if job[1].key else contextlib.nullcontext():  # without a key nobody waits for it
                    worker, error = self._compile(worker, job)
            except BaseException as failure:  # as where memory runs out: this thread goes on, for the jobs that are queued
                error = CompileError(job[1].name, f"{type(failure).__name__}: {failure}")
                error.__cause__ = failure
            if self._stopped:  # it is why the job failed
                return
            with self._lock:
                self._pending -= 1
            done(error)

    def _compile(
        self, worker: subprocess.Popen[bytes] | None, job: Job
    ) -> tuple[subprocess.Popen[bytes] | None, BaseException | None]:
        """Have ``worker``, or its replacement, compile a job; returns the living worker and the outcome."""
        name, spec, data, directory = job
        message = (name, spec._replace(function=placeholder), data, directory)
        failure = CompileError(spec.name, "no compile worker was asked")
        for _ in range(2):
            if self._stopped:  # else a job whose worker was ended would get another, which nobody ends
                break
            try:
                if worker is None or worker.poll() is not None:
                    self._end(worker)
                    worker = None
                    worker = self._start()
                reply = self._ask(worker, message)
            except (EOFError, OSError) as error:
                failure = _without_worker(spec.name, error) if worker is None else _died(spec.name, error, self._end(worker))
                worker = None
                continue
            except Exception as error:  # what cannot be packed or read: those who wait must hear of it, and the thread go on
                self._end(worker)
                log = f"the compile worker cannot be understood: {type(error).__name__}: {error}; a process that runs cannot "
                return None, CompileError(spec.name, log + "compile any more once its packages were changed on disk")
            if _resident(worker.pid) > LARGEST_WORKER:
                self._end(worker)
                worker = None
            return worker, reply
        return worker, failure

    def _start(self) -> subprocess.Popen[bytes]:
        import subprocess  # costly to import, and not needed where all kernels are in the cache

        environment = {**os.environ, **(self._environment or {})}
        with withheld_from_children():  # Ctrl-C is for the program, which ends its workers when it ends
            process = subprocess.Popen(command(CODE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.processes.add(process)
        if self._stopped:  # meanwhile
            process.kill()
        return process

    def _ask(self, worker: subprocess.Popen[bytes], message: Any) -> Any:
        assert worker.stdin is not None and worker.stdout is not None
        send(worker.stdin, message)
        if not _readable(worker.stdout, WORKER_PATIENCE):
            worker.kill()
            raise TimeoutError(f"it took longer than {WORKER_PATIENCE:g} s")
        return receive(worker.stdout)

    def _end(self, worker: subprocess.Popen[bytes] | None) -> int | None:
        """Make sure that a worker has ended; returns its exit status."""
        if worker is None:
            return None
        self.processes.discard(worker)
        for pipe in (worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        import subprocess  # costly to import; there is a worker, so it is

        try:
            return worker.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()
