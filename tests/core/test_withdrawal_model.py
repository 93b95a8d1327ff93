"""Random programs that withdraw, against a model of what runs; and at full speed, against what every program may rely on."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import aiodev
from aiodev.testing import Latch, SimulatedBackend

STREAMS = 3
RAN, WITHDRAWN, BEHIND, FAILED, DEPENDENT = "ran", "withdrawn", "behind", "failed", "dependent"


class Planned(Exception):
    """What functions fail with."""


@dataclass
class Operation:
    """One operation of the model: a call, or a wait for another stream's."""

    number: int
    done: aiodev.Completion | None  # None of a wait
    target: Operation | None = None
    fails: bool = False
    runs: int = 0
    fate: str | None = None


@dataclass
class Line:
    """A stream, held by a wait for another one with a latch, which withdrawing does not open; what the model has of it."""

    stream: aiodev.Stream
    latch: Latch
    operations: list[Operation] = field(default_factory=list)  # since it was held


def call(operation: Operation) -> int:
    operation.runs += 1
    if operation.fails:
        raise Planned
    return operation.number


class Program(RuleBasedStateMachine):
    """Streams are held while a program is submitted and withdrawn, so that nothing has begun; then all of it runs."""

    device = "cpu"

    @initialize()
    def start(self) -> None:
        self.finished: list[Operation] = []  # of earlier rounds
        self.lines = []
        self.holders = [aiodev.Stream(self.device) for _ in range(STREAMS)]
        for n in range(STREAMS):
            self.lines.append(self.hold(n, aiodev.Stream(self.device)))

    def hold(self, n: int, stream: aiodev.Stream) -> Line:
        latch = Latch(self.holders[n])
        stream.wait(aiodev.Completion(self.holders[n].timeline, latch.value))
        return Line(stream, latch, [Operation(stream.timeline.submitted, None)])

    @rule(n=st.integers(0, STREAMS - 1), fails=st.integers(0, 7))
    def submit(self, n: int, fails: int) -> None:
        line = self.lines[n]
        operation = Operation(0, None, fails=fails == 0)
        operation.done = line.stream.call(call, operation)
        operation.number = operation.done.value
        line.operations.append(operation)

    @rule(n=st.integers(0, STREAMS - 1), choice=st.randoms(use_true_random=False))
    def wait(self, n: int, choice: random.Random) -> None:
        """Only for streams further up, so that the program ends."""
        line = self.lines[n]
        targets = [operation for other in self.lines[:n] for operation in other.operations if operation.done]
        targets += [found for found in self.finished if found.done and found.done.timeline is not line.stream.timeline]
        if not targets:
            return
        target = choice.choice(targets)
        assert target.done is not None
        before = line.stream.timeline.submitted
        line.stream.wait(target.done)
        number = line.stream.timeline.submitted
        line.operations.append(Operation(number if number > before else 0, None, target=target))

    @rule(n=st.integers(0, STREAMS - 1), choice=st.randoms(use_true_random=False))
    def cancel(self, n: int, choice: random.Random) -> None:
        operations = self.lines[n].operations
        calls = [operation for operation in operations if operation.done]
        if not calls:
            return
        operation = choice.choice(calls)
        assert operation.done is not None
        assert operation.done.cancel() == (operation.fate != WITHDRAWN)
        assert operation.done.cancelled()
        if operation.fate != WITHDRAWN:
            operation.fate = WITHDRAWN
            for behind in operations[operations.index(operation) + 1 :]:
                behind.fate = behind.fate or BEHIND

    @rule(n=st.integers(0, STREAMS - 1))
    def cancel_all(self, n: int) -> None:
        line = self.lines[n]
        left = [operation for operation in line.operations if operation.number and operation.fate != WITHDRAWN]
        assert line.stream.cancel() == len(left)
        for operation in line.operations:
            operation.fate = WITHDRAWN

    @precondition(lambda self: any(len(line.operations) > 1 for line in self.lines))
    @rule(order=st.permutations(range(STREAMS)))
    def run(self, order: list[int]) -> None:
        for line in self.lines:  # those that they wait for are further up
            self.decide(line)
        for n in order:
            self.lines[n].latch.release()
        for line in self.lines:
            self.compare(line)
        for n, line in enumerate(self.lines):
            while True:
                try:
                    line.stream.synchronize_blocking(30)
                    break
                except (Planned, aiodev.DependencyError, aiodev.WithdrawnError):
                    pass
            assert line.stream.empty()
            self.finished += line.operations
            self.lines[n] = self.hold(n, line.stream)
        del self.finished[:-40]

    def decide(self, line: Line) -> None:
        """Foretell: a failure reaches to the end of the line, since nobody is told while it runs."""
        failed = False
        for operation in line.operations:
            if operation.fate in (WITHDRAWN, BEHIND):
                continue
            if failed:
                operation.fate = DEPENDENT
            elif operation.target is not None:
                told = operation.target in self.finished and operation.target.fate not in (WITHDRAWN, BEHIND)
                failed = operation.target.fate != RAN and not told
                operation.fate = DEPENDENT if failed else RAN
            elif operation.fails:
                operation.fate, failed = FAILED, True
            else:
                operation.fate = RAN

    def compare(self, line: Line) -> None:
        expected = {
            RAN: None, FAILED: Planned, WITHDRAWN: aiodev.WithdrawnError, BEHIND: aiodev.DependencyError,
            DEPENDENT: aiodev.DependencyError,
        }  # fmt: skip
        for operation in line.operations:
            if operation.done is None:
                continue
            error: type[BaseException] | None = None
            try:
                result = operation.done.synchronize_blocking(30)
            except (Planned, aiodev.WithdrawnError, aiodev.DependencyError) as raised:
                error = type(raised)
            else:
                assert result == operation.number or operation.number == 0
            assert operation.fate is not None
            assert error is expected[operation.fate], (operation, error)
            assert operation.done.query() and operation.done.cancelled() == (operation.fate == WITHDRAWN)
            assert not operation.done.cancel()
            assert operation.runs == (operation.fate in (RAN, FAILED))

    def teardown(self) -> None:
        for line in getattr(self, "lines", ()):
            line.latch.release()
            line.stream.cancel()


def run(program: type[Program], own: settings) -> None:
    """Run it many times; nothing of it is left, such as failures that nobody was told of."""
    machine = program.TestCase
    machine.settings = own
    machine().runTest()
    del machine
    gc.collect()


_SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


def test_held_programs_agree_with_the_model() -> None:
    """On the native executor: what is withdrawn, what is behind it, what fails, and what runs, each exactly once."""
    aiodev.init_blocking("cpu")
    run(type("Native", (Program,), {"device": "cpu"}), _SETTINGS)


def test_held_programs_agree_with_the_model_portably(simulated: SimulatedBackend) -> None:
    """The same on the portable executor."""
    aiodev.init_blocking(simulated.name)
    run(type("Portable", (Program,), {"device": simulated.name}), settings(_SETTINGS, max_examples=50))


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("seed", range(3))
def test_running_programs(device: str, seed: int, request: pytest.FixtureRequest) -> None:
    """While all of it runs: what ``cancel`` says is what happened, everything ends, nothing runs twice or half."""
    if device == "sim":
        device = request.getfixturevalue("simulated").name
    aiodev.init_blocking(device)
    choose = random.Random(seed)
    streams = [aiodev.Stream(device, choose.randrange(-1, 2), reserve=n == 3) for n in range(4)]
    operation = Operation(0, None)
    operations: list[Operation] = []
    answers: dict[int, list[bool]] = {}
    lock = threading.Lock()

    def withdraw(choose: random.Random) -> None:
        for _ in range(400):
            with lock:
                operation = choose.choice(operations[-30:]) if operations else None
            if operation is None or operation.done is None:
                continue
            answer = operation.done.cancel()
            with lock:
                answers.setdefault(id(operation), []).append(answer)

    threads = [threading.Thread(target=withdraw, args=(random.Random(f"{seed} {n}"),)) for n in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stream, other = choose.sample(streams, 2)
        kind = choose.randrange(12)
        if kind == 0:
            stream.wait_stream(other)
        elif kind == 1:
            stream.wait_event(other.record_event())
        else:
            operation = Operation(0, None)
            operation.done = stream.call(call, operation)
            with lock:
                operations.append(operation)
        if kind == 2 and stream.qsize() > 20:
            stream.cancel()
        if kind == 3 and operation.done is not None:
            with contextlib.suppress(aiodev.WithdrawnError, aiodev.DependencyError):
                operation.done.synchronize_blocking(30)
    for operation in operations:
        assert operation.done is not None
        said = answers.get(id(operation), [])
        assert sum(said) <= 1, "two callers withdrew one operation"
        try:
            operation.done.synchronize_blocking(30)
        except aiodev.WithdrawnError:
            assert operation.runs == 0 and operation.done.cancelled()
        except aiodev.DependencyError:
            assert operation.runs == 0 and not operation.done.cancelled() and not any(said)
        else:
            assert operation.runs == 1 and not operation.done.cancelled() and not any(said)
    for stream in streams:
        assert stream.empty() and not stream.timeline.faults.withdrawals.gates
