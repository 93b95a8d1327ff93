"""Random programs that withdraw, against a model of what runs; and at full speed, against what every program may rely on.

What is known of withdrawals is compared with a table of operations, too.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import aiodev
from aiodev._core import callsites
from aiodev._core.timeline import spans, withdrawal
from aiodev._core.timeline.withdrawal import Known, Withdrawals
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
        was, operation.fate = operation.fate, WITHDRAWN
        if was is None:
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


# What is known of withdrawals


@dataclass
class Table:
    """Why each operation does not run: the one that was withdrawn, itself or ahead of it, and where."""

    why: dict[int, tuple[int, int]] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)

    def withdraw(self, start: int, last: int, end: int, site: int, partly: bool) -> int:
        """Returns how many were not withdrawn before; where none is to run, what was submitted since is not behind them."""
        new = set(range(start, last + 1)) - self.withdrawn
        if not new:
            return 0
        if not partly and self.why.keys() >= set(range(start, last + 1)):
            end = last
        self.withdrawn |= new
        self.why |= {value: (value, site) for value in new}
        for value in range(last + 1, end + 1):
            self.why.setdefault(value, (start, site))
        return len(new)

    def ahead_of(self, value: int) -> int:
        while value in self.why:
            value -= 1
        return value

    def takes_along(self, first: int, last: int) -> bool:
        return any(value in self.why and value not in self.withdrawn for value in range(first, last + 1))


def said(withdrawals: Withdrawals, value: int) -> tuple[int, str] | None:
    error = withdrawals.error(value, "stream")
    return None if error is None else (error.operation, error.withdrawn_at)


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4), st.just(0), st.just(False)),
        st.tuples(st.just("withdraw"), st.integers(1, 40), st.integers(0, 12), st.booleans()),
        st.tuples(st.just("begin"), st.integers(1, 40), st.just(0), st.just(False)),
        st.tuples(st.just("complete"), st.integers(1, 3), st.just(0), st.just(False)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("kept", [1024, 4])
def test_what_is_known_agrees_with_a_table(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was withdrawn where, who is behind whom, what runs ahead; of what is done, and is not kept, no more than nothing."""
    monkeypatch.setattr(spans, "_CHUNK", 2)
    monkeypatch.setattr(withdrawal, "FAULTS_KEPT", kept)
    monkeypatch.setattr(callsites, "describe_site", str)

    @settings(deadline=None, max_examples=300)
    @given(steps=_steps)
    def compare(steps: list[tuple[str, int, int, bool]]) -> None:
        known, table = Withdrawals(), Table()
        submitted = completed = begun = 0
        for site, (step, first, more, partly) in enumerate(steps, 1):
            if step == "submit":
                submitted += first
            elif step == "complete":
                completed = min(submitted, completed + first)
            elif step == "begin":
                value = min(completed + first, submitted)
                assert known.begin(value) == (value not in table.why)
                if value not in table.why:
                    begun = max(begun, value)
            else:
                span, start = (first, min(first + more, submitted), submitted), max(first, begun + 1)
                if completed >= span[1] or max(start, completed + 1) != start:
                    continue  # a timeline does not ask for these
                answer = known.withdraw(span, partly, site, completed, lambda first, last, partly: first)
                if start > span[1] or (start > first and not partly):
                    assert answer == (0, 0)
                else:
                    assert answer == (start, table.withdraw(start, span[1], submitted, site, partly))
            for value in range(1, submitted + 2):
                why = table.why.get(value)
                found = said(known, value)
                assert found == (None if why is None else (why[0], str(why[1]))) or (found is None and value <= completed)
                if kept == 1024 or value > completed:
                    assert known.withdrawn(value) == (value in table.withdrawn)
                    assert known.ahead_of(value) == table.ahead_of(value) or known.ahead_of(value) <= completed
                    assert known.takes_along(value, submitted) == table.takes_along(value, submitted)

    compare()


@pytest.mark.parametrize("pattern", ["alone", "pairs", "two sites"])
def test_what_is_done_is_not_kept_for_good(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However withdrawals follow each other, whether or not they meet, and with others behind that are withdrawn later."""
    monkeypatch.setattr(spans, "_CHUNK", 2)
    monkeypatch.setattr(withdrawal, "FAULTS_KEPT", 8)
    known = Withdrawals()

    def withdraw(value: int, end: int, site: int) -> None:
        assert known.withdraw((value, value, end), False, site, value - 1, lambda first, last, partly: first) == (value, 1)

    site, other = callsites.here(0), callsites.here(0)
    assert site != other
    for value in range(2, 400, 2):
        withdraw(value, value + (pattern == "pairs"), site)
        if pattern != "alone":
            withdraw(value + 1, value + 1, other if pattern == "two sites" else site)
        assert known.withdrawn(value) and said(known, value) is not None
    assert all(len(spans) <= 8 + 4 for spans in known.known)


def test_a_finalizer_that_withdraws_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come while this thread withdraws, and in any line of that: both are known, and each is counted once."""
    known = Withdrawals()

    def tell(first: int, last: int, partly: bool) -> int:
        return first

    including = Known.including

    def interrupted(self: Known, *span: int) -> tuple[Known, int]:
        after = including(self, *span)
        monkeypatch.setattr(Known, "including", including)
        assert known.withdraw((5, 6, 9), False, 1, 0, tell) == (5, 2)
        return after

    monkeypatch.setattr(Known, "including", interrupted)
    assert known.withdraw((3, 5, 9), False, 2, 0, tell) == (3, 2)
    assert [known.withdrawn(value) for value in range(1, 10)] == [False, False, True, True, True, True, False, False, False]
    assert known.ahead_of(9) == 2 and known.takes_along(3, 9) and not known.takes_along(3, 6)


@pytest.mark.parametrize("order", ["ascending", "descending", "alternate", "random"])
@pytest.mark.parametrize("apart", [False, True], ids=["one fills the gaps", "gaps stay"])
def test_what_a_withdrawal_costs(order: str, apart: bool) -> None:
    """Calls of functions, of which there are as many for each of two thousand withdrawals as of a hundred."""

    def calls_each(count: int) -> float:
        known, calls = Withdrawals(), 0
        values = list(range(1, 2 * count, 2) if apart else range(1, count + 1))
        if order == "descending":
            values.reverse()
        elif order == "alternate":
            values = values[::2] + values[1::2]
        elif order == "random":
            random.Random(0).shuffle(values)

        def count_calls(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            for value in values:
                known.withdraw((value, value, value if apart else count), False, 7, 0, lambda first, last, partly: first)
            for value in values:
                known.ahead_of(value)
                known.takes_along(value, value)
        finally:
            sys.setprofile(None)
        if not apart:  # who is behind the first of them is behind no other
            assert sum(map(len, known.known)) <= 20
        return calls / count

    assert calls_each(2000) <= 1.5 * calls_each(100)
