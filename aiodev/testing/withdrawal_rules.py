"""Rules about withdrawal: what is withdrawn does not run, what runs was not withdrawn, and everybody else goes on."""

from __future__ import annotations

import random
from functools import partial

from aiodev._core.backend.interface import Fault
from aiodev.testing.rule import rule
from aiodev.testing.workbench import Cells, Lane, Workbench

__all__ = ["RULES"]


def _mark(lane: Lane, cells: Cells, i: int) -> int:
    """Submit the writing of a cell."""
    return lane.copy_word(cells[i], cells[len(cells) - 1])


def _expect(lane: Lane, *expected: Fault) -> None:
    faults = lane.faults()
    assert faults == list(expected), f"expected faults {list(expected)}, found {faults}"


@rule
def withdrawn_operations_do_not_run(bench: Workbench) -> None:
    """What is withdrawn completes without effect, in its turn, with a fault that says so and has ended; the others run."""
    lane, cells = bench.lane(), bench.cells([0] * 9 + [1])
    _, gate = lane.gate()
    for i in range(9):
        assert _mark(lane, cells, i) == i + 2
    assert lane.withdraw(4, 6) == 4
    assert not lane.spin(1, 0), "a withdrawal opened a gate ahead of it"
    bench.open(gate)
    lane.finish()
    assert bench.values(cells) == [1, 1, 0, 0, 0, 1, 1, 1, 1, 1]
    _expect(lane, Fault(4, 6, None, withdrawn=True))
    assert lane.fault_count != 0, "FAULTS is zero although operations were withdrawn"


@rule
def what_has_begun_is_not_withdrawn(bench: Workbench) -> None:
    """Of operations that are done none is withdrawn, and nothing changes; ``partly`` withdraws the others."""
    lane, cells = bench.lane(), bench.cells([0] * 6 + [1])
    for i in range(3):
        _mark(lane, cells, i)
    lane.finish()
    assert lane.withdraw(1, 3) == lane.withdraw(1, 3, partly=True) == lane.withdraw(3, 3) == 0
    held, gate = lane.gate()
    for i in range(3, 6):
        _mark(lane, cells, i)
    bench.pass_time([lane])
    assert lane.withdraw(2, 6) == 0, "the first has run"
    assert lane.withdraw(2, 6, partly=True) == held, "the operation that a gate holds has not begun"
    bench.open(gate)
    lane.finish()
    assert bench.values(cells) == [1, 1, 1, 0, 0, 1, 1]
    _expect(lane, Fault(held, 6, None, withdrawn=True))


@rule
def operations_can_be_withdrawn_before_they_are_submitted(bench: Workbench) -> None:
    """A withdrawal may name operations that the queue does not have yet."""
    lane, cells = bench.lane(), bench.cells([0, 0, 0, 1])
    assert lane.withdraw(2, 2) == 2
    for i in range(3):
        _mark(lane, cells, i)
    lane.finish()
    assert bench.values(cells) == [1, 0, 1, 1]
    _expect(lane, Fault(2, 2, None, withdrawn=True))


@rule
def withdrawals_add_up(bench: Workbench) -> None:
    """In whatever order operations are withdrawn, and however often: each of them does not run, and no other."""
    for seed in range(20):
        choose = random.Random(seed)
        lane, cells = bench.lane(), bench.cells([0] * 60 + [1])
        _, gate = lane.gate()
        for i in range(60):
            _mark(lane, cells, i)
        expected = [1] * 61
        for _ in range(choose.randrange(1, 25)):
            first = choose.randrange(60)
            last = min(59, first + choose.choice((0, 0, 1, 5)))
            assert lane.withdraw(first + 2, last + 2) == first + 2
            expected[first : last + 1] = [0] * (last + 1 - first)
        bench.open(gate)
        lane.finish()
        assert bench.values(cells) == expected, f"seed {seed}"


@rule
def a_withdrawn_gate_may_fail(bench: Workbench) -> None:
    """A gate that was withdrawn is opened as any other; that it failed is no fault any more, behind it all runs."""
    lane, cells = bench.lane(), bench.cells([0, 1])
    value, gate = lane.gate()
    bench.pass_time([lane])
    assert lane.withdraw(value, value) == value
    _mark(lane, cells, 0)
    bench.open(gate, failed=True)
    lane.finish()
    assert bench.values(cells) == [1, 1]
    _expect(lane, Fault(value, value, None, withdrawn=True))


@rule
def a_wait_for_a_withdrawn_operation_fails(bench: Workbench) -> None:
    """Waits for a withdrawn operation fail, held ones and later ones; waits for those around it do not."""
    lane, cells = bench.lane(), bench.cells([0, 0, 1])
    _, gate = lane.gate()
    for i in range(2):
        _mark(lane, cells, i)
    held = bench.lane()
    held.wait(lane, 2)
    bench.pass_time([held])
    assert lane.withdraw(2, 2) == 2
    bench.open(gate)
    held.finish()
    lane.finish()
    _expect(held, Fault(1, None, None, (lane.number, 2)))
    for value, fails in ((1, False), (2, True), (3, False)):
        waiter = bench.lane()
        waiter.wait(lane, value)
        waiter.finish()
        _expect(waiter, *([Fault(1, None, None, (lane.number, 2))] if fails else []))


@rule
def each_of_many_withdrawals_fails_who_waits(bench: Workbench) -> None:
    """However many operations are withdrawn one by one: a wait for any of them fails, and one for those between does not."""
    lane, cells, count = bench.lane(), bench.cells([0, 1]), 500
    _, gate = lane.gate()
    waiters = [bench.lane() for _ in range(20)]
    gates = [waiter.gate()[1] for waiter in waiters[:10]]
    for _ in range(count):
        _mark(lane, cells, 0)
    values = [2 + (count // 10) * i + i % 2 for i in range(10)] * 2
    for waiter, value in zip(waiters, values, strict=True):
        waiter.wait(lane, value)
    for value in range(2, count, 2):
        assert lane.withdraw(value, value) == value
    bench.open(gate)
    lane.finish()
    for shut in gates:  # these come to their waits when all is over
        bench.open(shut)
    for waiter, value in zip(waiters, values, strict=True):
        waiter.finish()
        wait = waiter.submitted
        _expect(waiter, *([] if value % 2 else [Fault(wait, None, None, (lane.number, value))]))


@rule
def a_withdrawn_wait_still_takes_its_time(bench: Workbench) -> None:
    """A wait that was withdrawn holds, since what comes later relies on the order that it sets up; it does not fail."""
    first, second, cells = bench.lane(), bench.lane(), bench.chain(6, 3)
    failed, gate = first.gate()
    second.wait(first, failed)
    bench.pass_time([second])
    assert second.withdraw(1, 1) == 1
    second.copy_word(cells[1], cells[0])
    bench.pass_time([second])
    assert second.completed == 0, "a wait that was withdrawn did not hold"
    bench.open(gate, failed=True)
    second.finish()
    _expect(second, Fault(1, 1, None, withdrawn=True))
    assert bench.values(cells) == [6, 6, 0]


@rule
def behind_a_failure_a_withdrawal_is_none(bench: Workbench) -> None:
    """What is withdrawn behind a failure is a part of that; beyond its end it is a fault of its own."""
    lane, cells = bench.lane(), bench.cells([0] * 5 + [1])
    failed, gate = lane.gate()
    for i in range(2):
        _mark(lane, cells, i)
    second, behind = lane.gate()
    bench.open(gate, failed=True)
    lane.finish()
    lane.forgive()
    third, ahead = lane.gate()
    for i in range(2, 5):
        _mark(lane, cells, i)
    assert lane.withdraw(third + 1, third + 2) == third + 1
    bench.open(behind)
    bench.open(ahead)
    lane.finish()
    _expect(lane, Fault(failed, second, None, None), Fault(third + 1, third + 2, None, withdrawn=True))
    assert bench.values(cells) == [0, 0, 0, 0, 1, 1]


@rule
def forgiving_is_not_needed_after_a_withdrawal(bench: Workbench) -> None:
    """``forgive`` does nothing about a withdrawal, and ends the failure that comes after it."""
    lane, cells = bench.lane(), bench.cells([0, 0, 0, 1])
    _, gate = lane.gate()
    _mark(lane, cells, 0)
    assert lane.withdraw(2, 2) == 2
    bench.open(gate)
    lane.finish()
    lane.forgive()
    failed = lane.fail()
    last = _mark(lane, cells, 1)
    lane.finish()
    lane.forgive()
    _mark(lane, cells, 2)
    lane.finish()
    _expect(lane, Fault(2, 2, None, withdrawn=True), Fault(failed, last, None, None))
    assert bench.values(cells) == [0, 0, 1, 1]


@rule
def recycled_queues_have_no_withdrawals(bench: Workbench) -> None:
    """What was withdrawn of a queue, ahead of its time or behind a failure, is not of the one that is made after it."""
    for _ in range(40):
        number, _ = bench.executor.create_queue(0, 0, False)
        gate = bench.executor.create_gate()
        bench.executor.gate(number, gate)
        bench.executor.fill(number, 0, 0, bytes(1))
        assert bench.executor.withdraw(number, 2, 50, False) == 2
        bench.executor.open_gate(gate, True)
        bench.until(partial(bench.executor.spin, number, 2, 1_000_000), "a withdrawn fill does not complete")
        bench.executor.destroy_queue(number)
    for _ in range(40):
        lane, cells = bench.lane(), bench.cells([0, 0, 1])
        for i in range(2):
            _mark(lane, cells, i)
        lane.finish()
        assert bench.values(cells) == [1, 1, 1], "an operation did not run that nobody withdrew"
        _expect(lane)


@rule
def what_runs_was_not_withdrawn(bench: Workbench) -> None:
    """Withdrawn while the queue runs, each operation either runs, or was withdrawn; never both, never neither."""
    for seed in range(24):
        choose, count = random.Random(seed), 400 if seed % 2 else 4000
        lane, cells, withdrawn = bench.lane(), bench.cells([0] * count + [1]), set[int]()

        def withdraw(lane: Lane = lane, choose: random.Random = choose, withdrawn: set[int] = withdrawn) -> None:
            first = lane.completed + choose.choice((1, 1, 2, 3, 10, 50))
            last = min(lane.submitted, first + choose.choice((0, 0, 4)))
            partly = choose.random() < 0.5
            start = lane.withdraw(first, last, partly)
            assert start == 0 or start == first or (partly and first < start <= last), f"{start} of {first} … {last}"
            withdrawn.update(range(start, last + 1) if start else ())

        if count == 4000:  # much to do: from one operation to the next
            ahead, gate = lane.gate()
            for i in range(count):
                _mark(lane, cells, i)
            bench.open(gate)
            while lane.completed < lane.submitted:
                withdraw()
        else:  # little: each operation is waited for
            ahead = 0
            for i in range(count):
                _mark(lane, cells, i)
                withdraw()
        lane.finish()
        expected = [int(i + 1 + ahead not in withdrawn) for i in range(count)]
        assert bench.values(cells)[:-1] == expected, f"seed {seed}: an operation ran that was withdrawn, or the reverse"


RULES = (
    withdrawn_operations_do_not_run,
    what_has_begun_is_not_withdrawn,
    operations_can_be_withdrawn_before_they_are_submitted,
    withdrawals_add_up,
    a_withdrawn_gate_may_fail,
    a_wait_for_a_withdrawn_operation_fails,
    each_of_many_withdrawals_fails_who_waits,
    a_withdrawn_wait_still_takes_its_time,
    behind_a_failure_a_withdrawal_is_none,
    forgiving_is_not_needed_after_a_withdrawal,
    recycled_queues_have_no_withdrawals,
    what_runs_was_not_withdrawn,
)
