"""The compile service and its worker processes."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from kernel_entry import needs_compiler

import aiodev
from aiodev import profiler
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.registry import registry
from aiodev._core.config import settings
from aiodev._core.errors import CompileError
from aiodev._kernel.compile import pool, service as service_module
from aiodev._kernel.compile.pool import WorkerPool
from aiodev._kernel.compile.snapshot import capture
from aiodev._kernel.compile.worker import Job, placeholder
from aiodev._kernel.dispatch import specializations

Outcomes = queue.SimpleQueue[BaseException | None]


def fill(i: int, x: Any) -> None:
    x[i] = 1


def wrong(i: int, x: Any) -> None:
    x[i] = nowhere  # noqa: F821


def job(function: Any, directory: Path, key: str) -> Job:
    spec = KernelSpec(function.__name__, placeholder, 1, ("A1f8C",), (), key)
    return "cpu", spec, capture(function).to_bytes(), str(directory)


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """A pool of one worker, gone at the end."""
    made = WorkerPool(1)
    yield made
    made.stop()


@needs_compiler
def test_jobs_end_well_or_with_the_compilers_message(workers: WorkerPool, tmp_path: Path) -> None:
    """One worker serves them in turn; a kernel that does not compile does not harm it."""
    outcomes: Outcomes = queue.SimpleQueue()
    for function, key in ((fill, "aa"), (wrong, "bb"), (fill, "cc")):
        workers.submit(job(function, tmp_path, key * 32), outcomes.put)
    first, second, third = (outcomes.get(timeout=60) for _ in range(3))
    assert first is None and third is None
    assert isinstance(second, CompileError) and "nowhere" in second.log
    assert second.kernel == "wrong" and second.location is not None and second.location.startswith(__file__)
    assert len(list(tmp_path.rglob("*.bin"))) == 2
    assert len(workers.processes) == 1


def test_a_killed_worker_is_replaced(workers: WorkerPool, tmp_path: Path) -> None:
    """The job that it had is done by the next one."""
    outcomes: Outcomes = queue.SimpleQueue()
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None
    (worker,) = workers.processes
    worker.kill()
    workers.submit(job(fill, tmp_path, "bb" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None
    assert workers.processes and worker not in workers.processes


def test_a_pool_that_was_stopped_starts_no_worker(workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the job whose worker it has ended, nor for the next one; the program ends, and nobody hears of either."""
    outcomes: Outcomes = queue.SimpleQueue()
    starts, asked = [0], threading.Event()
    start, ask = WorkerPool._start, WorkerPool._ask

    def count(self: WorkerPool) -> Any:
        starts[0] += 1
        return start(self)

    def held(self: WorkerPool, worker: Any, message: Any) -> Any:
        asked.set()
        worker.wait(timeout=60)
        return ask(self, worker, message)

    monkeypatch.setattr(WorkerPool, "_start", count)
    monkeypatch.setattr(WorkerPool, "_ask", held)
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    assert asked.wait(60)
    (thread,) = [each for each in threading.enumerate() if each.name == "aiodev-compile" and each._target.__self__ is workers]
    workers.stop()
    workers.submit(job(fill, tmp_path, "bb" * 32), outcomes.put)
    thread.join(60)
    assert not thread.is_alive() and starts == [1] and outcomes.empty()


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal here")
def test_ctrl_c_does_not_reach_a_worker(workers: WorkerPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A terminal sends it to every process: it is the program's, from the worker's first instruction on."""
    outcomes: Outcomes = queue.SimpleQueue()
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    until, sent = time.monotonic() + 60, 0
    while outcomes.empty() and time.monotonic() < until:
        for worker in list(workers.processes):
            worker.send_signal(signal.SIGINT)
            sent += 1
        time.sleep(0.01)
    assert outcomes.get(timeout=60) is None and sent
    assert [worker.poll() for worker in workers.processes] == [None]
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@needs_compiler
@pytest.mark.parametrize("hurried", [False, True])
def test_what_somebody_waits_for_is_compiled_first(workers: WorkerPool, tmp_path: Path, hurried: bool) -> None:
    """Also what was to be compiled ahead, once somebody waits for it; it is compiled once."""
    order: queue.SimpleQueue[str] = queue.SimpleQueue()
    begun, release = threading.Event(), threading.Event()

    def hold(error: BaseException | None) -> None:
        begun.set()
        release.wait(60)

    def note(name: str) -> Any:
        return lambda error: order.put(name if error is None else repr(error))

    workers.submit(job(fill, tmp_path, "aa" * 32), hold)
    assert begun.wait(60)
    ahead = [workers.submit(job(fill, tmp_path, key * 32), note(key), ahead=True) for key in ("bb", "cc")]
    workers.submit(job(fill, tmp_path, "dd" * 32), note("dd"))
    if hurried:
        workers.hurry(ahead[1])
    workers.submit(job(fill, tmp_path, "ee" * 32), note("ee"))
    release.set()
    found = [order.get(timeout=60) for _ in range(4)]
    assert found == (["dd", "cc", "ee", "bb"] if hurried else ["dd", "ee", "bb", "cc"])
    workers.submit(job(fill, tmp_path, "ff" * 32), note("ff"), ahead=True)
    assert order.get(timeout=60) == "ff"  # and nothing before it


@pytest.mark.parametrize("launched", [False, True])
async def test_a_kernel_is_compiled_ahead_until_it_is_launched(monkeypatch: pytest.MonkeyPatch, launched: bool) -> None:
    """By ``prepare()``, which says when the code is there; it raises at once if the arguments do not fit."""
    service = service_module.service
    held: list[service_module.PendingKernel] = []
    load = service.load
    monkeypatch.setattr(service, "load", held.append)

    @aiodev.kernel
    def touch(i: int, x: Any) -> None:
        x[i] = 1

    x, stream = aiodev.zeros(3, device="cpu"), aiodev.Stream("cpu")
    assert not touch.prepare(x)
    (loading,) = held
    assert not loading.awaited
    if launched:
        touch[3, stream](x)
    assert loading.awaited == launched
    load(loading)
    await touch.compile(x)
    assert touch.prepare(x)
    await stream.synchronize()
    with pytest.raises(aiodev.LaunchError):
        touch.prepare("three")


def fails_once(workers: WorkerPool, directory: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """What was patched fails a job, which says so and leaves no worker; without it the next one succeeds."""
    outcomes: Outcomes = queue.SimpleQueue()
    workers.submit(job(fill, directory, "aa" * 32), outcomes.put)
    error = outcomes.get(timeout=60)
    assert isinstance(error, CompileError) and said in error.log
    assert not workers.processes
    monkeypatch.undo()
    workers.submit(job(fill, directory, "aa" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None


def test_an_answer_that_cannot_be_read_fails_the_job(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a worker that has newer code than this process; the next job has a new worker."""

    def receive(stream: object) -> object:
        raise AttributeError("no such name here")

    monkeypatch.setattr(pool, "receive", receive)
    fails_once(workers, tmp_path, monkeypatch, "no such name here")


def test_a_job_that_kills_its_workers_fails(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second worker died of it, its waiters are told; the next job has a new worker."""
    monkeypatch.setattr(pool, "CODE", "import os; os._exit(7)")
    fails_once(workers, tmp_path, monkeypatch, "exit status 7")


def test_a_system_without_another_process_is_named(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a worker that died."""

    def refuse(self: WorkerPool) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(WorkerPool, "_start", refuse)
    fails_once(workers, tmp_path, monkeypatch, "no compile worker can be started: [Errno 11] Resource temporarily unavailable")


def test_the_current_directory_is_not_imported_from(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the program does: whatever lies there may be called as something that a compiler needs."""
    for name in ("aiodev", "pickle", "numba"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('from the current directory')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    outcomes: Outcomes = queue.SimpleQueue()
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None


def test_an_idle_worker_ends(workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it; a job that comes later starts another."""
    monkeypatch.setattr(pool, "WORKER_IDLE", 0.01)
    outcomes: Outcomes = queue.SimpleQueue()
    for key in ("aa", "bb"):
        before = set(threading.enumerate())
        workers.submit(job(fill, tmp_path, key * 32), outcomes.put)
        assert outcomes.get(timeout=60) is None
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=30)
        assert not workers.processes


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say how large a process is")
@pytest.mark.parametrize(("largest", "lives"), [(0, False), (1 << 40, True)])
def test_a_worker_that_has_grown_large_is_replaced(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, lives: bool
) -> None:
    """It compiles what it was given, and no more."""
    monkeypatch.setattr(pool, "LARGEST_WORKER", largest)
    outcomes: Outcomes = queue.SimpleQueue()
    for key in ("aa", "bb"):
        workers.submit(job(fill, tmp_path, key * 32), outcomes.put)
        assert outcomes.get(timeout=60) is None
        assert bool(workers.processes) == lives


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong on the way to the compiler is the outcome of the compilation."""

    def broken(*args: Any) -> str:
        raise OSError("the cache is gone")

    monkeypatch.setattr(service_module, "cache_key", broken)

    @aiodev.kernel
    def fresh(i: int, x: Any) -> None:
        x[i] = 1

    for _ in range(2):
        with pytest.raises(CompileError, match="the cache is gone"):
            fresh[4](aiodev.zeros(4)).synchronize_blocking(60)


def test_a_job_that_never_ends_fails(workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are killed after the longest time that a kernel may take; the next job has a new one."""
    monkeypatch.setattr(pool, "CODE", "import sys; sys.stdin.read()")
    monkeypatch.setattr(pool, "WORKER_PATIENCE", 0.01)
    outcomes: Outcomes = queue.SimpleQueue()
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    error = outcomes.get(timeout=60)
    assert isinstance(error, CompileError) and "exit status -9; it took longer" in error.log
    assert error.__cause__ is None  # it is the kernel's doing, and not tried again
    monkeypatch.undo()
    workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None


def test_kernels_of_the_same_content_are_compiled_once() -> None:
    """Closures over one function are different kernels; those that hold the same values share a compilation."""
    constant = time.time_ns()

    def make() -> aiodev.Kernel:
        @aiodev.kernel
        def fresh(i: int, x: Any) -> None:
            x[i] = constant

        return fresh

    before = profiler.counters()["kernels_compiled"]
    arrays = [aiodev.zeros(2, dtype="i8") for _ in range(5)]
    launches = [make()[2](x) for x in arrays]
    for done, x in zip(launches, arrays, strict=True):
        done.synchronize_blocking(60)
        assert x.numpy_blocking().tolist() == [constant] * 2
    assert profiler.counters()["kernels_compiled"] == before + 1


@needs_compiler
def test_a_file_that_is_damaged_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker compiles the kernel again: to do that in a thread of this process would hold up its loop."""
    from aiodev._backends.cpu.compile import kernel_code

    constant = time.time_ns()
    files = Path(settings.cache_dir, "cpu")

    def brought_in() -> tuple[int, int]:
        @aiodev.kernel
        def to_be_damaged(i: int, x: Any) -> None:
            x[i] = constant

        monkeypatch.setattr(kernel_code, "_loaded", {})  # as in a new process
        x = aiodev.zeros(2, dtype="i8")
        before = profiler.counters()
        to_be_damaged[2](x).synchronize_blocking(60)
        assert x.numpy_blocking().tolist() == [constant] * 2
        after = profiler.counters()
        compiled, loaded = (after[name] - before[name] for name in ("kernels_compiled", "kernels_loaded"))
        return compiled, loaded

    known = set(files.rglob("to_be_damaged-*"))
    assert brought_in() == (1, 0)
    (file,) = set(files.rglob("to_be_damaged-*")) - known
    assert brought_in() == (0, 1)
    file.write_bytes(file.read_bytes()[:-1])
    assert brought_in() == (1, 0)
    assert brought_in() == (0, 1)


@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="a current directory cannot be removed here")
@pytest.mark.parametrize("served_before", [False, True])
def test_a_current_directory_that_is_gone(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_before: bool
) -> None:
    """The compiler asks for it; a worker goes elsewhere, before its first job and later."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    outcomes: Outcomes = queue.SimpleQueue()
    if served_before:
        workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
        assert outcomes.get(timeout=60) is None
    os.rmdir(tmp_path / "gone")
    workers.submit(job(fill, tmp_path, "bb" * 32), outcomes.put)
    workers.submit(job(wrong, tmp_path, "cc" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None
    failure = outcomes.get(timeout=60)
    assert isinstance(failure, CompileError) and "nowhere" in failure.log


def test_a_worker_that_is_started_ahead_is_the_one_that_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it compiles to warm up is kept nowhere."""
    made = service_module.Service()
    made.workers.size = 1
    monkeypatch.setattr(service_module, "settings", replace(settings, compiler_start="early"))
    try:
        made.start_compiler(registry.handle("cpu"))
        outcomes: Outcomes = queue.SimpleQueue()
        made.workers.submit(job(fill, tmp_path, "ab" * 32), outcomes.put)
        assert outcomes.get(timeout=60) is None
        assert len(made.workers.processes) == 1
        assert [path.name.partition("-")[0] for path in tmp_path.rglob("*.bin")] == ["fill"]
    finally:
        made.workers.stop()


@pytest.mark.parametrize(("setting", "compiled", "starts"), [
    ("auto", True, 0), ("auto", False, 1), ("early", True, 1), ("early", False, 1), ("late", True, 0), ("late", False, 0),
])  # fmt: skip
def test_when_a_worker_is_started_ahead(monkeypatch: pytest.MonkeyPatch, setting: str, compiled: bool, starts: int) -> None:
    """As the setting says; by default where nothing was ever compiled."""
    made, entry = service_module.Service(), registry.handle("cpu")
    jobs: list[Job] = []
    monkeypatch.setattr(service_module, "settings", replace(settings, compiler_start=setting))
    monkeypatch.setattr(type(entry.backend), "has_compiled", lambda self, directory: compiled)
    monkeypatch.setattr(made.workers, "submit", lambda job, done: jobs.append(job))
    made.start_compiler(entry)
    assert len(jobs) == starts


@pytest.fixture
def own_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[service_module.Service]:
    """A service with no thread yet, in the place of the process's."""
    made = service_module.Service()
    monkeypatch.setattr(specializations, "service", made)
    monkeypatch.setattr(service_module, "service", made)
    yield made
    made.workers.stop()


def launch(value: int) -> tuple[Any, Any]:
    """Of a kernel that nobody has launched before."""

    @aiodev.kernel
    def put(i: int, x: Any) -> None:
        x[i] = value

    x = aiodev.zeros(3, device="cpu")
    return put[3, aiodev.Stream("cpu")](x), x


@pytest.mark.parametrize("dies_in", ["a step", "its own"])
async def test_a_loading_thread_that_dies(
    own_service: service_module.Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, dies_in: str
) -> None:
    """What it had and what was queued fails; the next launch has another thread."""
    await aiodev.init("cpu")
    reached, release = threading.Event(), threading.Event()

    def die(*_: Any) -> None:
        reached.set()
        release.wait(60)
        raise SystemError("error return without exception set")

    class Dies(BaseException):
        pass

    def die_in_a_step(*_: Any) -> None:
        with pytest.raises(SystemError):
            die()
        raise Dies("out of memory")

    with monkeypatch.context() as patch:
        if dies_in == "a step":
            patch.setattr(service_module, "cache_key", die_in_a_step)
        else:
            patch.setattr(own_service, "_take_step", die)
        failing = [launch(value) for value in (1, 2, 3)]
        assert await anyio.to_thread.run_sync(reached.wait, 60)
        thread = own_service._thread
        release.set()
        with anyio.fail_after(60):
            for done, _ in failing:
                with pytest.raises(CompileError, match="put: .*(without exception set|out of memory)"):
                    await done
    assert thread is not None
    await anyio.to_thread.run_sync(thread.join, 60)
    assert "has died" in caplog.text
    with anyio.fail_after(60):
        done, x = launch(4)
        await done
        assert (await x.numpy()).tolist() == [4, 4, 4]


@pytest.mark.parametrize("when", ["before", "when a worker hands over"])
async def test_a_loading_thread_that_cannot_be_started(
    own_service: service_module.Service, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The launch fails, and says so; a later one tries again."""
    await aiodev.init("cpu")

    class Refused(threading.Thread):
        def start(self) -> None:
            if self.name == "aiodev-load":
                raise RuntimeError("can't start new thread")
            super().start()

    def submit(job: Job, done: Any, *, ahead: bool = False) -> pool.QueuedJob:
        threading.Thread(target=hand_over, args=(done,)).start()
        return pool.QueuedJob(job, done)

    def hand_over(done: Any) -> None:
        while not own_service._compiling:
            time.sleep(0.001)
        patch.setattr(own_service, "_thread", None)
        patch.setattr(threading, "Thread", Refused)
        done(None)

    with monkeypatch.context() as patch:
        if when == "before":
            patch.setattr(threading, "Thread", Refused)
        else:
            patch.setattr(own_service.workers, "submit", submit)
        with anyio.fail_after(60), pytest.raises(CompileError, match="refuses a thread"):
            await launch(5)[0]
    with anyio.fail_after(60):
        done, x = launch(6)
        await done
        assert (await x.numpy()).tolist() == [6, 6, 6]


@pytest.mark.parametrize("want", ["a thread", "a process", "memory", "memory of the system"])
async def test_a_kernel_that_failed_for_want_of_something_is_tried_again(
    own_service: service_module.Service, monkeypatch: pytest.MonkeyPatch, want: str
) -> None:
    """By the next launch, when there may be enough: for the failed one's entry, for all variants that shared it."""
    await aiodev.init("cpu")
    nobodys = float(time.time_ns() % 2**31)  # so that no other run has left its code

    @aiodev.kernel
    def put(i: int, x: Any, value: Any) -> None:
        x[i] = value + nobodys

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread") if want == "a thread" else BlockingIOError(11, "none left")

    def run_out(*_: Any) -> Any:
        raise MemoryError("no room")

    x = aiodev.zeros(3, device="cpu")
    with monkeypatch.context() as patch:
        if want == "a thread":
            patch.setattr(threading.Thread, "start", refuse)
        elif want == "a process":
            patch.setattr(own_service.workers, "_start", refuse)
        elif want == "memory":
            patch.setattr(service_module, "cache_key", run_out)
        else:
            patch.setattr(pool, "CODE", "import os; os.kill(os.getpid(), 9)")
        for value in (1, True, 2):  # an int and a bool may be packed as one type
            with anyio.fail_after(60), pytest.raises(CompileError):
                await put[3, aiodev.Stream("cpu")](x, value)
        entry = put._loading_of((x, 1), None).entry
    for value in (3, True):
        with anyio.fail_after(60):
            await put[3, aiodev.Stream("cpu")](x, value)
        assert (await x.numpy()).tolist() == [value + nobodys] * 3
    assert put._loading_of((x, 1), None).entry == entry


async def test_a_kernel_that_does_not_compile_is_not_tried_again() -> None:
    """However often it is launched."""

    @aiodev.kernel
    def wrong(i: int, x: Any) -> None:
        x[i] = "text"

    x = aiodev.zeros(3, device="cpu")
    for _ in range(2):
        with pytest.raises(CompileError):
            await wrong[3, aiodev.Stream("cpu")](x)
    failed = wrong._loading_of((x,), None)
    with pytest.raises(CompileError):
        await wrong[3, aiodev.Stream("cpu")](x)
    assert wrong._loading_of((x,), None) is failed


def test_a_thread_of_the_pool_goes_on(workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a job raises there: its waiter learns that, and the next job is done."""
    outcomes: Outcomes = queue.SimpleQueue()
    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "_compile", lambda *_: 1 // 0)
        workers.submit(job(fill, tmp_path, "aa" * 32), outcomes.put)
        failure = outcomes.get(timeout=60)
    assert isinstance(failure, CompileError) and "ZeroDivisionError" in failure.log
    workers.submit(job(fill, tmp_path, "bb" * 32), outcomes.put)
    assert outcomes.get(timeout=60) is None
