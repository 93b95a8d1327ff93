"""Our backends keep every rule, and the rules catch backends that do not."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

from aiodev._backends.cpu.host import HostBackend
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.portable.operations import Wait
from aiodev._backends.cpu.portable.queues import PortableQueue, Waker
from aiodev._core.backend.interface import Fault
from aiodev.testing import RULES, ConformanceError, NotApplicable, Rule, SimulatedBackend, check_backend, check_rule

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "howto"

#: Rules that take longer than a tenth of a second on one of our backends: they are for ``--exhaustive``.
LONG = {
    "memory_can_be_given_back",
    "ranges_hold_memory_where_it_is_mapped",
    "large_copies_are_whole",
    "large_fills_are_whole",
    "depth_is_bounded_by_memory_alone",
    "threads_keep_their_own_order",
    "ping_pong_between_queues_keeps_order",
    "held_queues_hold_no_worker",
    "counters_never_go_back",
    "no_wake_up_is_lost",
    "no_wake_up_is_lost_among_many_queues",
    "failures_of_many_queues_stay_apart",
    "a_fault_is_told_before_its_value_completes",
    "the_last_faults_are_kept",
    "forgive_is_for_later_submissions_only",
    "what_runs_was_not_withdrawn",
    "withdrawals_add_up",
    "each_of_many_withdrawals_fails_who_waits",
    "recycled_queues_have_no_withdrawals",
    "long_queues_share_a_device",
    "newcomers_wait_for_their_turn",
    "kernels_run_every_index_once",
    "two_dimensions_run_in_rows",
    "empty_launches_complete",
    "kernels_keep_order_with_copies",
    "kernels_of_many_queues_run_together",
    "a_kernels_exception_is_its_fault",
}


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=rule.name, marks=pytest.mark.exhaustive if rule.name in LONG else ()) for rule in RULES]
)
def test_rule(rule: Rule, backend: HostBackend) -> None:
    """Each of our backends keeps each rule."""
    try:
        check_rule(backend, rule)
    except NotApplicable as reason:
        pytest.skip(str(reason))


def test_the_backend_of_the_guide_keeps_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says how to write one."""
    monkeypatch.syspath_prepend(str(GUIDES))
    backend = importlib.import_module("one_thread").OneThreadBackend()
    backend.start()
    try:
        found = check_backend(backend)
    finally:
        backend.stop()
    assert "kernels_run_every_index_once" in found.kept and "a_gate_may_be_opened_first" in found.kept


def test_rules_have_names_of_their_own_and_promises() -> None:
    """Every rule is named once and says what it promises in a sentence."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert LONG.issubset(rule.name for rule in RULES)
    assert all(rule.promise.endswith(".") for rule in RULES)


def test_check_backend_reports(backend: HostBackend) -> None:
    """check_backend takes rules or their names, and says what was kept."""
    found = check_backend(backend, rules=["values_count_from_one", RULES[0]])
    assert found.kept == ["values_count_from_one", RULES[0].name]
    assert found.not_applicable == {}


def test_unknown_rule_is_a_key_error(backend: HostBackend) -> None:
    """A misspelt rule is not silently left out."""
    with pytest.raises(KeyError):
        check_backend(backend, rules=["values_count_from_two"])


class BrokenBackend(SimulatedBackend):
    """A backend with an executor that breaks a promise."""

    name = "broken"

    def __init__(self, executor: type[PortableExecutor]) -> None:
        super().__init__(2)
        self._broken = executor

    def start(self) -> None:
        self.adopt(self._broken(2, 2))

    def allocate(self, index: int, nbytes: int) -> int:
        return super().allocate(index, nbytes) & (1 << 56) - 1


class LosesWakeUps(PortableExecutor):
    """Says that it will fire, having looked too early."""

    def arm(self, queue: int, value: int, waker: int) -> bool:
        super().arm(queue, 1 << 60, waker)
        return True


class ForgetsFaults(PortableExecutor):
    """Keeps one fault only."""

    def faults(self, queue: int) -> list[Fault]:
        return super().faults(queue)[-1:]


class ForgivesTooMuch(PortableExecutor):
    """Lets what is pending run when it is forgiven."""

    def forgive(self, queue: int) -> None:
        with self._lock:
            target = self._queues[queue]
            if target.faults and target.faults[-1].last is None:
                first = target.faults[-1]
                target.faults[-1] = Fault(first.first, target.completed, first.error, first.dependency)


class DestroysUnderALock(PortableExecutor):
    """Says that it takes none."""

    destroys_anywhere = True

    def __init__(self, devices: int, workers: int) -> None:
        super().__init__(devices, workers)
        self._making, self._patience = threading.Lock(), 2.0  # so that the thread ends

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        with self._making:
            return super().create_queue(index, priority, reserved)

    def destroy_queue(self, queue: int) -> None:
        if self._making.acquire(timeout=self._patience):
            super().destroy_queue(queue)
            self._making.release()
        else:
            self._patience = 0.0


class IgnoresWaits(PortableExecutor):
    """Passes every wait."""

    def wait(self, queue: int, other: int, value: int) -> int:
        return super().wait(queue, other, 0)


class SharesFailures(PortableExecutor):
    """Has whoever waits for the end of something fail with it."""

    def wait_over(self, queue: int, other: int, value: int) -> int:
        return self.wait(queue, other, value)


class IgnoresPriority(PortableExecutor):
    """First come, first served."""

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        return super().create_queue(index, 0, reserved)


class ChattyWaker(Waker):
    """Writes for every queue."""

    def fire(self, queue: int) -> None:
        earlier = self.collect()
        super().fire(queue)
        self._fired += earlier


class DoesNotCoalesce(PortableExecutor):
    """Has a waker that writes more than once."""

    def create_waker(self, descriptor: int) -> int:
        waker = super().create_waker(descriptor)
        self._wakers[waker] = ChattyWaker(descriptor)
        return waker


class SkipsWaitsBehindFailures(PortableExecutor):
    """Forgets the order that a wait behind a failure sets up."""

    def wait(self, queue: int, other: int, value: int) -> int:
        target: PortableQueue = self._queues[queue]
        return super().wait(queue, other, 0 if target.faults else value)


class FillsBytes(PortableExecutor):
    """Takes the first byte for the pattern."""

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        return super().fill(queue, dst, count, pattern[:1] * len(pattern))


class ClaimsToHelp(PortableExecutor):
    """Has always done something."""

    def help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        return True


class ClaimsToWithdraw(PortableExecutor):
    """Says that it could, whatever has begun."""

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        super().withdraw(queue, first, last, partly)
        return first


class WithdrawsWhatRuns(PortableExecutor):
    """Does not look whether it has begun."""

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        with self._lock:
            self._queues[queue].begun = 0
        return super().withdraw(queue, first, last, partly)


class PassesWithdrawnWaits(PortableExecutor):
    """Forgets the order that a withdrawn wait sets up."""

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        start = super().withdraw(queue, first, last, partly)
        with self._lock:
            target = self._queues[queue]
            for operation in target.pending:
                if isinstance(operation, Wait):
                    operation.value = 0
            if not target.idle:
                target.resume()
        return start


@pytest.mark.parametrize(
    ("executor", "rule"),
    [
        (ClaimsToHelp, "help_does_what_it_says"),
        pytest.param(LosesWakeUps, "an_armed_waker_fires_once", marks=pytest.mark.exhaustive),  # takes all the patience
        (LosesWakeUps, "arm_refuses_a_reached_value"),
        (ForgetsFaults, "the_last_faults_are_kept"),
        pytest.param(ForgivesTooMuch, "forgive_is_for_later_submissions_only", marks=pytest.mark.exhaustive),
        (DestroysUnderALock, "queues_are_destroyed_anywhere"),
        (IgnoresWaits, "a_wait_orders_two_queues"),
        (SharesFailures, "a_wait_for_what_is_over_shares_no_failure"),
        (IgnoresPriority, "urgent_work_overtakes"),
        (DoesNotCoalesce, "wake_ups_coalesce"),
        (SkipsWaitsBehindFailures, "a_wait_behind_a_failure_still_takes_its_time"),
        (FillsBytes, "fills_repeat_their_pattern"),
        (ClaimsToWithdraw, "what_has_begun_is_not_withdrawn"),
        pytest.param(WithdrawsWhatRuns, "what_runs_was_not_withdrawn", marks=pytest.mark.exhaustive),
        (PassesWithdrawnWaits, "a_withdrawn_wait_still_takes_its_time"),
    ],
)
def test_broken_backend_is_caught(executor: type[PortableExecutor], rule: str) -> None:
    """A backend that breaks a promise fails the rule of that promise, by name."""
    broken = BrokenBackend(executor)
    broken.start()
    try:
        with pytest.raises(ConformanceError) as caught:
            check_backend(broken, rules=[rule], patience=0.5)
        assert caught.value.rule == rule
        assert str(caught.value).startswith(f"{rule}: ")
    finally:
        broken.stop()
