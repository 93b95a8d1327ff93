"""Exceptions that arrive at any moment, as Ctrl-C's do, and what finalizers and signal handlers do at any moment.

The interpreter looks for them where a function begins, after each call and where a loop jumps back: there they are raised here.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_everywhere

import aiodev
from aiodev import Stream
from aiodev._array import array, copy as array_copy, readback
from aiodev._array.array import fill_array
from aiodev._backends.cpu.portable import executor as portable, queues, worker
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._core import callsites
from aiodev._core.backend.handle import BackendHandle
from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS
from aiodev._core.streams import event as event_module, future_bridge, host_calls, stream as stream_module
from aiodev._core.streams.host_calls import HostThreads
from aiodev._core.timeline import deferred as deferred_module, gate as gate_module, timeline as timeline_module
from aiodev._core.timeline.deferred import Deferred
from aiodev._core.timeline.gate import Gate
from aiodev._core.timeline.timeline import living
from aiodev._core.timeline.withdrawal import Withdrawals
from aiodev._core.waiting import blocking, waitset
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev._core.waiting.waitset import WaitSet
from aiodev._graph import graph as graph_module, resources, submitter
from aiodev._kernel.compile.service import PendingKernel
from aiodev._kernel.dispatch import submission
from aiodev._memory import buffer
from aiodev.testing import Latch, SimulatedBackend

_poll = select.poll
WAIT = 30  # seconds that no test takes


class Promptly:
    """An executor whose work is done as soon as somebody waits for it; it writes a descriptor once between two collections.

    Attributes:
        prompt: else work is done when ``finish`` is called.
    """

    def __init__(self) -> None:
        self.prompt = True
        self.fired: dict[int, list[int]] = {}
        self.armed: list[tuple[int, int]] = []
        self.lines: dict[int, Any] = {}
        self.events: dict[int, int] = {}

    def line(self) -> Any:
        """A timeline of which nothing is done."""
        queue = len(self.lines) + 1
        line = SimpleNamespace(
            queue=queue,
            counters=[0] * COUNTER_WORDS,
            parked=0,
            parked_at=0,
            deferred=False,
            needed=(),
            spins=False,
            spin_doubts=0,
            quick_waits=0,
            operations=self,
        )
        line.reached = lambda value: line.counters[COMPLETED] >= value
        self.lines[queue] = line
        return line

    def spin(self, queue: int, value: int, duration: int) -> bool:
        return False

    def is_crowded(self) -> bool:
        return False

    def help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        return False

    def create_waker(self, descriptor: int) -> int:
        self.events[descriptor] = descriptor
        return descriptor

    def arm(self, queue: int, value: int, waker: int) -> bool:
        if self.lines[queue].counters[COMPLETED] >= value:
            return False
        self.armed.append((queue, waker))
        if self.prompt:
            self.finish(queue, value)
        return True

    def finish(self, queue: int, value: int) -> None:
        """Complete operations up to ``value``."""
        self.lines[queue].counters[COMPLETED] = value
        for armed, waker in self.armed:
            if armed == queue:
                fired = self.fired.setdefault(waker, [])
                if not fired:  # else the descriptor has been written since it was collected last
                    os.write(waker, (1).to_bytes(8, "little"))
                fired.append(queue)
        self.armed = [(armed, waker) for armed, waker in self.armed if armed != queue]

    def collect(self, waker: int) -> list[int]:
        return self.fired.pop(waker, [])


class Poll:
    """A poll object of which nobody asks in vain: with that backend, whoever has to sleep would sleep for ever."""

    def __init__(self) -> None:
        self._poll = _poll()

    def register(self, descriptor: int, events: int) -> None:
        self._poll.register(descriptor, events)

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        found = self._poll.poll(0)
        assert found, "nothing would wake this thread"
        return found


@pytest.fixture
def own_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Descriptors and places of the test's own; threads sleep at once."""
    monkeypatch.setattr(waitset, "_descriptors", [])
    monkeypatch.setattr(blocking, "_thread", blocking._Thread())
    monkeypatch.setattr(blocking, "may_help", lambda: False)
    monkeypatch.setattr(select, "poll", Poll)
    yield


IMPORTING = """
import _imp, faulthandler, signal, threading
import numpy as np
import aiodev

signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
faulthandler.dump_traceback_later(20, exit=True)
acquire, interrupted = _imp.acquire_lock, []


def interrupt():
    acquire()  # the lock of all imports: it is kept if this is left by an exception
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGINT)


def use():
    with aiodev.Stream("cpu"):
        x = aiodev.full(3, 2.0) * 3 + 1
        np.from_dlpack(x)
        aiodev.from_dlpack(np.ones(3))
        return aiodev.Graph, aiodev.StreamFullError, x.__array_namespace__(), x.numpy_blocking()


_imp.acquire_lock = interrupt
while True:
    try:
        result = use()
        break
    except KeyboardInterrupt:
        interrupted.append(1)
print(*result[-1], bool(interrupted))
"""


def test_ctrl_c_while_a_backend_starts_tears_no_import() -> None:
    """The next attempt finds the locks of imports as they were; else the thread that starts the backend would wait for ever."""
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, timeout=2 * WAIT)
    assert done.stdout.split() == ["7.0", "7.0", "7.0", "True"], done.stderr


@pytest.mark.usefixtures("own_places")
def test_after_an_interrupt_anywhere_the_next_wait_works() -> None:
    """However a blocking wait was torn, the thread's next wait is woken, and nothing waits on the timelines any more."""
    backend = Promptly()
    line = backend.line()

    def act() -> None:
        wait_all_blocking([(line, line.counters[COMPLETED] + 1)], None)

    for _ in interrupted_everywhere(act, blocking, waitset):
        for waited in (line, backend.line()):
            wait_all_blocking([(waited, waited.counters[COMPLETED] + 1)], None)


@pytest.mark.usefixtures("own_places")
def test_after_an_interrupted_collection_nobody_is_forgotten() -> None:
    """A loop's wait set whose ``collect_into`` was torn anywhere is readable again, and then names every waiter that is due."""
    backend = Promptly()
    backend.prompt = False
    waits: WaitSet[tuple[int, int]] = WaitSet()
    lines = [backend.line() for _ in range(2)]
    wanted: set[tuple[int, int]] = set()

    def prepare() -> None:
        wanted.clear()
        for line in lines:
            done = line.counters[COMPLETED]
            for value in (done + 1, done + 2, done + 4):
                assert waits.add(line, value, (line.queue, value))
            wanted.update({(line.queue, done + 1), (line.queue, done + 2)})
            backend.finish(line.queue, done + 2)

    for _ in interrupted_everywhere(lambda: waits.collect_into([]), waitset, prepare=prepare):
        assert select.select([waits.descriptor.read_end], [], [], 0)[0]
        assert wanted <= set(waits.collect())
        for line in lines:  # the rest is armed
            backend.finish(line.queue, line.counters[COMPLETED] + 2)
        rest = {(line.queue, line.counters[COMPLETED]) for line in lines}
        assert rest <= set(waits.collect()) and len(waits) == 0
        assert all(line.parked == 0 for line in lines)


@pytest.mark.usefixtures("own_places")
def test_a_signal_handler_may_wait_while_its_thread_does() -> None:
    """The wait that it interrupts is woken nevertheless."""
    backend = Promptly()
    outer, inner = backend.line(), backend.line()

    def handler(number: int, frame: FrameType | None) -> None:
        backend.finish(outer.queue, 1)
        wait_all_blocking([(inner, 1)], None)

    backend.prompt = False
    arm = backend.arm

    def arm_and_interrupt(queue: int, value: int, waker: int) -> bool:
        parked = arm(queue, value, waker)
        backend.prompt = True
        if queue == outer.queue and parked:
            signal.raise_signal(signal.SIGUSR1)
        return parked

    backend.arm = arm_and_interrupt  # type: ignore[method-assign]
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        wait_all_blocking([(outer, 1)], None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert outer.counters[COMPLETED] == inner.counters[COMPLETED] == 1


@pytest.mark.usefixtures("own_places")
def test_who_is_interrupted_leaves_a_descriptor_that_wakes_its_next_owner() -> None:
    """What had fired for the one who was interrupted would else keep the waker silent."""
    backend = Promptly()
    backend.prompt = False
    line = backend.line()
    torn: list[WaitSet[str]] = []

    def prepare() -> None:
        torn[:] = [WaitSet()]
        value = line.counters[COMPLETED] + 1
        assert torn[0].add(line, value, "torn")
        backend.finish(line.queue, value)

    for _ in interrupted_everywhere(lambda: torn[0].collect(), waitset, prepare=prepare):
        torn[0].recycle()
        waits: WaitSet[str] = WaitSet()
        assert waits.descriptor is torn[0].descriptor
        waits.collect()
        value = line.counters[COMPLETED] + 1
        assert waits.add(line, value, "next")
        backend.finish(line.queue, value)
        assert select.select([waits.descriptor.read_end], [], [], 0)[0] and waits.collect() == ["next"]
        waits.recycle()


@aiodev.kernel
def step(i: int, a: int, x: Any) -> None:
    x[i] += a


@pytest.mark.parametrize("kind", ["copy", "fill", "replay"])
async def test_an_array_whose_use_was_submitted_is_known_to_be_used(kind: str) -> None:
    """The interrupt may come too late: what the submission writes must not be read, or serve others, before it is done."""
    aiodev.init_blocking("cpu")
    stream = Stream("cpu")
    with stream:
        x, y = aiodev.zeros(8, "int64"), aiodev.ones(8, "int64")
        made: list[aiodev.Array] = []
        acts: dict[str, Callable[[], object]] = {
            "copy": lambda: stream.copy(x, y),
            "fill": lambda: fill_array(made.pop(), stream, 8, bytes(8)),
            "replay": lambda: graph.replay(stream),
        }
        async with aiodev.capture(stream) as graph:
            step[8, stream](1, x)
        modules = (array, array_copy, buffer, graph_module, resources)
        for _ in range(4):  # until it is known
            made.append(x)
            acts[kind]()
            stream.synchronize_blocking()
        torn = 0
        with Latch(stream):
            before = stream.timeline.submitted

            def prepare() -> None:
                nonlocal before
                before = stream.timeline.submitted
                made.append(x)

            for _ in interrupted_everywhere(acts[kind], *modules, prepare=prepare, least=1):
                made.clear()
                if stream.timeline.submitted > before:
                    torn += 1
                    assert x._buffer._writer is stream.timeline and x._buffer._written == stream.timeline.submitted
        assert torn


@aiodev.kernel
def step_and_stop(i: int, x: Any, rows: Any, goes_on: Any) -> None:
    rows[0] = x[0]
    goes_on[0] = 0


@pytest.mark.parametrize("kind", ["read", "to_host", "from_host", "pieces", "event", "rows"])
async def test_what_the_host_gave_is_held_until_an_interrupted_submission_is_done(kind: str) -> None:
    """The work goes on, though nobody knows its number: memory that is free by then would be written to."""
    aiodev.init_blocking("cpu")
    stream = Stream("cpu")
    timeline, event = stream.timeline, aiodev.Event(enable_timing=True)
    with stream:
        x = aiodev.zeros((4, 1000), "int64")
        acts: dict[str, Callable[[], object]] = {
            "read": lambda: readback._Readback(x),
            "to_host": lambda: stream.copy(np.empty((4, 1000), np.int64), x),
            "from_host": lambda: stream.copy(x, np.ones((4, 1000), np.int64)),
            "pieces": lambda: stream.copy(np.empty((4, 2000), np.int64)[:, :1000], x),
            "event": lambda: event.record(stream),
            "rows": lambda: graph.replay(stream),
        }
        rows, goes_on = aiodev.zeros(1, "int64"), aiodev.ones(1, "bool")
        async with aiodev.capture(stream) as graph:
            with graph.while_(goes_on, rows=rows):
                step_and_stop[1, stream](x[0], rows, goes_on)
        await graph.replay(stream)
        with Latch(stream):
            before = 0

            def prepare() -> None:
                nonlocal before
                stream.copy(x, x + 1)  # on this stream, and to be waited for
                before = timeline.submitted

            torn, modules = 0, (readback, array_copy, event_module, timeline_module, graph_module, submitter)
            for _ in interrupted_everywhere(acts[kind], *modules, prepare=prepare, least=5):
                if timeline.submitted > before:
                    torn += 1
                    assert max((value for value, _ in timeline.needed), default=0) == timeline.submitted
            assert torn


@pytest.mark.parametrize("kind", ["launch", "replay"])
async def test_what_was_not_submitted_whole_does_not_run_without_its_code(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, where an interrupt has left nobody who would have it wait for the compiler."""
    aiodev.init_blocking("cpu")
    compiled = queue.SimpleQueue[tuple[PendingKernel, BaseException | None]]()
    monkeypatch.setattr(PendingKernel, "finish", lambda *outcome: compiled.put(outcome))
    acts: list[tuple[Stream, aiodev.Array, Callable[[], object]]] = []

    @aiodev.kernel
    def step_late(i: int, x: Any) -> None:
        x[i] += 1

    for _ in range(300):
        stream = Stream("cpu")
        with stream:
            x = aiodev.zeros(8, "int64")
        launch = functools.partial(step_late[8, stream], x)
        if kind == "replay":
            async with aiodev.capture(stream) as graph:
                launch()
            assert len(graph) == 1
            launch = functools.partial(graph.replay, stream)
        acts.append((stream, x, launch))
    attempts = iter(acts)
    tried: list[tuple[Stream, aiodev.Array]] = []

    def act() -> None:
        stream, x, launch = next(attempts)
        tried.append((stream, x))
        launch()

    for _ in interrupted_everywhere(act, submission, gate_module, timeline_module, submitter, least=10):
        pass
    kernel, error = compiled.get(timeout=WAIT)
    monkeypatch.undo()
    kernel.finish(error)
    failed = 0
    for stream, x in tried:
        try:
            await stream.synchronize()
        except aiodev.KernelError as error:
            assert "interrupted" in f"{error} {error.__cause__}"
            failed += 1
            with pytest.raises(aiodev.KernelError):
                await x.tolist()
    assert failed
    stream, x = tried[-1]
    assert await x.tolist() == [1] * 8


# The gate of a call that is over already may be dropped here. Python ignores what is raised in its finalizer; of a signal it is
# raised again, which test_interrupts_in_finalizers.py is about.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["call", "future", "other device"])
async def test_a_stream_goes_on_after_an_interrupted_gate(
    kind: str, register: Callable[[type[Any]], str]
) -> None:
    """It is open, whoever was to open it was told of it or not."""
    aiodev.init_blocking("cpu")
    stream, other = Stream("cpu"), Stream(f"{register(SimulatedBackend)}:0")
    other.synchronize_blocking()
    acts: dict[str, Callable[[], object]] = {
        "call": lambda: stream.call(int),
        "future": lambda: stream.wait_future(futures[-1]),
        "other device": lambda: stream.wait_stream(other),
    }
    modules = (gate_module, timeline_module, host_calls, stream_module, future_bridge)
    latches: list[Latch] = []
    futures: list[asyncio.Future[None]] = []

    def prepare() -> None:
        latches.append(Latch(other))
        futures.append(asyncio.get_running_loop().create_future())

    def resolve() -> None:
        latches.pop().release()
        futures.pop().set_result(None)

    for _ in interrupted_everywhere(acts[kind], *modules, prepare=prepare, least=5):
        resolve()
        await asyncio.wait_for(stream.synchronize(), WAIT)
        assert stream.timeline.held == 0 and not stream.timeline.faults.withdrawals.gates
    resolve()


def _gate(opens: Callable[[bool], None], fail: Callable[..., None]) -> Gate:
    gate = Gate(fail, Withdrawals())
    gate.opens = opens
    gate.hold(1)
    return gate


def test_a_gate_that_is_being_opened_when_an_interrupt_arrives_is_opened() -> None:
    """Once, or it can still be opened: else its stream would hang."""
    opened: list[bool] = []
    gates: list[Gate] = []
    failure = ValueError("why")

    def prepare() -> None:
        opened.clear()
        gates[:] = [_gate(opened.append, lambda *_: None)]

    for _ in interrupted_everywhere(lambda: gates[0].open(failure), gate_module, prepare=prepare, least=4):
        gates[0].open(failure)
        assert opened == [True] and not gates[0].shut


def test_a_gate_whose_failure_cannot_be_noted_is_opened_as_failed() -> None:
    """What is behind it does not run, and does not hang."""
    opened: list[bool] = []

    def fail(*_: object) -> None:
        raise MemoryError

    gate = _gate(opened.append, fail)
    with pytest.raises(MemoryError):
        gate.open(ValueError("why"))
    assert opened == [True]


def in_time(test: Callable[[], None]) -> None:
    """Run ``test`` in a thread of its own, which may hang."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            test()
        except BaseException as error:  # it is the test's
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive(), "it waits for itself"
    if failures:
        raise failures[0]


def test_the_portable_executor_may_be_called_while_it_is_called() -> None:
    """A finalizer that opens a gate, and submits, at any moment of a submission."""

    def everywhere() -> None:
        executor = PortableExecutor(1, 1)
        ours, theirs = (executor.create_queue(0, 0, False)[0] for _ in range(2))
        waker = executor.create_waker(os.open(os.devnull, os.O_WRONLY))
        submitted = {ours: 0, theirs: 0}

        def submit(queue: int) -> None:
            gate = executor.create_gate()
            number = executor.gate(queue, gate)
            executor.arm(queue, number, waker)
            executor.open_gate(gate, False)
            submitted[queue] = max(number, submitted[queue])
            executor.collect(waker)

        for count in interrupted_everywhere(
            lambda: submit(ours), portable, queues, worker, arrive=lambda: submit(theirs)
        ):
            assert executor.spin(ours, submitted[ours], WAIT * 10**9)
            assert executor.spin(theirs, submitted[theirs], WAIT * 10**9)
            assert submitted == {ours: count, theirs: count}
        executor.stop()

    in_time(everywhere)


class Recording:
    """A backend that counts, and notes in which order it is given operations."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def stamp(self, queue: int, cell: int) -> int:
        self.given.append(cell)
        return len(self.given)


@pytest.mark.parametrize("handed_on", [False, True])
def test_what_is_submitted_while_something_is_submitted_has_its_number(handed_on: bool) -> None:
    """Before a backend has started, and while it is given what was submitted: numbers are the order in which it gets them."""

    def everywhere() -> None:
        numbers: dict[int, int] = {}
        deferred: list[Deferred] = []
        executors: list[Any] = []
        cells = itertools.count()

        def submit() -> None:
            cell = next(cells)
            numbers[cell] = deferred[0].stamp(1, cell)

        def prepare() -> None:
            numbers.clear()
            executors[:] = [Recording()]
            deferred[:] = [Deferred(lambda: (executors[0], 1), lambda: None, pytest.fail)]
            for _ in range(2):
                submit()

        def act() -> None:
            if handed_on:
                deferred[0].started(None)
            else:
                submit()

        for _ in interrupted_everywhere(act, deferred_module, prepare=prepare, arrive=submit, least=4):
            deferred[0].started(None)
            submit()
            given = executors[0].given
            assert len(given) == len(numbers)
            assert {cell: number for number, cell in enumerate(given, 1)} == numbers

    in_time(everywhere)


def test_a_stream_may_be_made_while_one_is_made() -> None:
    """By a finalizer, at any moment; each has a queue of its own."""

    def everywhere() -> None:
        made: list[Stream] = []

        def make() -> None:
            made.append(Stream("cpu"))
            made[-1]._fill(0, 0, bytes(1))

        Stream("cpu").call(int).synchronize_blocking(WAIT)  # which starts the backend
        executors = ("portable.executor", "executor.executor")
        names = ("aiodev._core.timeline.timeline", *(f"aiodev._backends.cpu.{name}" for name in executors))
        modules = [sys.modules[name] for name in names if name in sys.modules]  # the native one, where that can run
        kept: list[Stream] = []
        for _ in interrupted_everywhere(make, *modules, arrive=make):
            kept += made
            assert len({stream.timeline.queue for stream in kept}) == len(kept)
            while made:
                made.pop().synchronize_blocking(WAIT)

    in_time(everywhere)


def test_what_an_interrupted_stream_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at all streams finds whole ones only, and the next stream is as good as any."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # finalizers are interrupted, too

    def everywhere() -> None:
        Stream("cpu").call(int).synchronize_blocking(WAIT)  # which starts the backend
        for _ in interrupted_everywhere(lambda: Stream("cpu"), stream_module, timeline_module):
            gc.collect(0)
            aiodev.synchronize_blocking("cpu", WAIT)
            assert all(line.counters is not None and line.operations for line in living.all())
            Stream("cpu").call(int).synchronize_blocking(WAIT)

    in_time(everywhere)


def test_calls_may_be_submitted_while_one_is_submitted() -> None:
    """By a finalizer, at any moment: each is run, and no more threads are made than there may be."""

    def everywhere() -> None:
        threads = HostThreads(2)
        done: queue.SimpleQueue[None] = queue.SimpleQueue()

        def submit() -> None:
            threads.submit(lambda: done.put(None), pytest.fail)

        for _ in interrupted_everywhere(submit, host_calls, arrive=submit, least=4):
            for _ in range(2):
                done.get(timeout=WAIT)
            assert 0 <= threads._idle <= threads._count <= 2 and not threads._backlog
        assert threads._count >= 1

    in_time(everywhere)


def test_places_have_indices_of_their_own() -> None:
    """Of code that submits for the first time while other code does."""

    def everywhere() -> None:
        made: list[CodeType] = []

        def enter() -> None:
            made.append(compile("0", f"file {next(numbers)}", "exec"))
            callsites._enter(made[-1], False)

        numbers = itertools.count()
        for _ in interrupted_everywhere(enter, callsites, arrive=enter, least=2):
            for code in made:
                first = callsites.site_of(id(code))
                assert first is not None and callsites._codes[(first >> 32) - 1] is code

    in_time(everywhere)


def test_a_start_during_a_start_joins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that needs a backend whose starting thread is just being started."""
    started: list[str] = []
    finished = threading.Event()

    class Slow:
        capabilities = SimpleNamespace(restarts_after_fork=True)

        def unavailable_reason(self) -> None:
            return None

        def device_count(self) -> int:
            return 1

        def has_compiled(self, directory: str) -> bool:
            return True

        def start(self) -> None:
            started.append(threading.current_thread().name)

    entry = BackendHandle("slow", Slow)  # type: ignore[arg-type]
    start, starters = threading.Thread.start, list[str]()

    def start_and_come_back(thread: threading.Thread) -> None:
        starters.append(thread.name)
        if len(starters) == 1:
            entry.start_soon(lambda error: finished.set())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_and_come_back)
    entry.start_soon()
    monkeypatch.undo()
    assert finished.wait(WAIT) and starters == started == ["aiodev-start-slow"]
