"""Rules about failure: what fails together, what is told about it, and how a queue becomes usable again."""

from __future__ import annotations

from aiodev._core.backend.interface import Fault
from aiodev.testing.rule import rule
from aiodev.testing.workbench import Lane, Workbench

__all__ = ["RULES"]


def _expect(lane: Lane, *expected: Fault) -> None:
    faults = lane.faults()
    assert faults == list(expected), f"expected faults {list(expected)}, found {faults}"


@rule
def a_queue_without_failure_has_no_faults(bench: Workbench) -> None:
    """FAULTS is zero and ``faults`` empty while nothing failed; ``forgive`` then does nothing."""
    lane, chain = bench.lane(), bench.chain(1, 10)
    lane.reach(lane.copy_chain(chain))
    lane.forgive()
    assert lane.fault_count == 0
    _expect(lane)


@rule
def a_failed_gate_opens_a_fault(bench: Workbench) -> None:
    """A gate opened as failed is the first operation of a fault with no error and no last value."""
    lane, chain = bench.lane(), bench.chain(1, 4)
    lane.copy_chain(chain)
    value, gate = lane.gate()
    bench.open(gate, failed=True)
    lane.reach(value)
    assert lane.fault_count != 0, "FAULTS is zero although an operation failed"
    _expect(lane, Fault(value, None, None, None))


@rule
def what_is_behind_a_failure_completes_without_running(bench: Workbench) -> None:
    """All that is behind a failure, submitted before or after it came, completes without effect; nothing fails anew."""
    lane, early, late, filled = bench.lane(), bench.chain(1, 50), bench.chain(1, 50), bench.cells([0])
    value, gate = lane.gate()
    lane.copy_chain(early)
    bench.open(gate, failed=True)
    lane.finish()
    lane.copy_chain(late)
    bench.executor.fill(lane.number, filled[0], 1, b"\xff" * 8)
    lane.finish()
    assert bench.values(early) == [1] + [0] * 49, "an operation behind a failure ran"
    assert bench.values(late) == [1] + [0] * 49, "an operation submitted after a failure, before forgive, ran"
    assert bench.values(filled) == [0], "a fill behind a failure ran"
    _expect(lane, Fault(value, None, None, None))


@rule
def forgiven_queues_run_again(bench: Workbench) -> None:
    """``forgive`` ends the fault at the value submitted last; what is submitted afterwards runs."""
    lane, before, after = bench.lane(), bench.chain(1, 20), bench.chain(2, 20)
    first = lane.fail()
    last = lane.copy_chain(before)
    lane.finish()
    lane.forgive()
    _expect(lane, Fault(first, last, None, None))
    lane.forgive()
    lane.reach(lane.copy_chain(after))
    _expect(lane, Fault(first, last, None, None))
    assert bench.last(before) == 0, "an operation behind a failure ran"
    assert bench.last(after) == 2, "an operation submitted after forgive did not run"


@rule
def forgive_is_for_later_submissions_only(bench: Workbench) -> None:
    """Operations that are pending when the queue is forgiven still do not run."""
    for _ in range(20):
        lane, pending, later = bench.lane(), bench.chain(1, 500), bench.chain(2, 2)
        failed, gate = lane.gate()
        last = lane.copy_chain(pending)
        bench.open(gate, failed=True)
        lane.reach(failed)
        lane.forgive()
        lane.copy_chain(later)
        lane.finish()
        assert bench.last(pending) == 0 and bench.values(pending)[1] == 0, "an operation pending at forgive ran"
        assert bench.last(later) == 2, "an operation submitted after forgive did not run"
        _expect(lane, Fault(failed, last, None, None))


@rule
def a_fault_is_told_before_its_value_completes(bench: Workbench) -> None:
    """Whoever sees that COMPLETED reached a failed value also sees FAULTS and the fault."""
    for _ in range(300):
        lane = bench.lane()
        value, gate = lane.gate()
        bench.open(gate, failed=True)
        while lane.completed < value:
            lane.spin(value, 1000)
        assert lane.fault_count != 0, "COMPLETED was written before FAULTS"
        assert lane.faults(), "COMPLETED was written before the fault was recorded"


@rule
def a_wait_for_a_failed_point_fails(bench: Workbench) -> None:
    """A wait for any value of a fault fails; ``dependency`` is (that queue, the fault's first value). And so on."""
    first, second, third, chain = bench.lane(), bench.lane(), bench.lane(), bench.chain(1, 10)
    failed = first.fail()
    behind = first.copy_chain(chain)
    second_failed = second.wait(first, behind)
    third.copy_chain(chain)
    third_failed = third.wait(second, second_failed)
    third.finish()
    _expect(second, Fault(second_failed, None, None, (first.number, failed)))
    _expect(third, Fault(third_failed, None, None, (second.number, second_failed)))


@rule
def a_held_wait_fails_with_what_it_waits_for(bench: Workbench) -> None:
    """A wait that is already holding its queue when the other queue fails, fails."""
    first, second, chain = bench.lane(), bench.lane(), bench.chain(1, 2)
    failed, gate = first.gate()
    waited = second.wait(first, failed)
    second.copy_chain(chain)
    bench.pass_time([second])
    bench.open(gate, failed=True)
    second.finish()
    _expect(second, Fault(waited, None, None, (first.number, failed)))
    assert bench.last(chain) == 0, "an operation behind a failed wait ran"


@rule
def only_the_fault_range_fails_waiters(bench: Workbench) -> None:
    """Waits for points before a fault and after its forgiveness pass; waits inside it fail however late they come."""
    lane, chain = bench.lane(), bench.chain(1, 5)
    before = lane.copy_chain(chain)
    first = lane.fail()
    last = lane.copy_chain(chain)
    lane.finish()
    lane.forgive()
    after = lane.copy_chain(chain)
    lane.finish()
    for value, fails in ((1, False), (before, False), (first, True), (last, True), (last + 1, False), (after, False)):
        waiter = bench.lane()
        waited = waiter.wait(lane, value)
        waiter.finish()
        _expect(waiter, *([Fault(waited, None, None, (lane.number, first))] if fails else []))


@rule
def waiters_are_forgiven_by_themselves(bench: Workbench) -> None:
    """Forgiving one queue leaves the faults of those that waited for it open, and the other way round."""
    first, second, chain = bench.lane(), bench.lane(), bench.chain(4, 3)
    failed = first.fail()
    waited = second.wait(first, failed)
    second.finish()
    first.forgive()
    second.reach(second.copy_chain(chain))
    assert bench.last(chain) == 0, "forgiving a queue forgave its waiter"
    second.forgive()
    second.reach(second.copy_chain(chain))
    assert bench.last(chain) == 4
    assert second.faults()[0].first == waited


@rule
def other_queues_never_notice_a_failure(bench: Workbench) -> None:
    """Queues that do not wait for the failed one run on, without faults."""
    failing, others, chains = bench.lane(), bench.lanes(8), [bench.chain(i, 50) for i in range(8)]
    failing.fail()
    for lane, chain in zip(others, chains, strict=True):
        lane.copy_chain(chain)
    for lane in (failing, *others):
        lane.finish()
    assert [bench.last(chain) for chain in chains] == list(range(8))
    for lane in others:
        _expect(lane)


@rule
def a_gate_behind_a_failure_does_not_hold(bench: Workbench) -> None:
    """A queue that failed completes the gates behind without the host; opening them later is harmless."""
    lane, chain = bench.lane(), bench.chain(1, 2)
    failed = lane.fail()
    _, shut = lane.gate()
    lane.finish()
    bench.open(shut, failed=True)
    lane.forgive()
    lane.reach(lane.copy_chain(chain))
    _expect(lane, Fault(failed, 2, None, None))
    assert bench.last(chain) == 1


@rule
def a_wait_behind_a_failure_still_takes_its_time(bench: Workbench) -> None:
    """A wait holds even behind a failure: what is submitted after ``forgive`` relies on the order that it sets up."""
    first, second, cells = bench.lane(), bench.lane(), bench.chain(6, 3)
    _, gate = first.gate()
    value = first.copy_word(cells[1], cells[0])
    second.reach(second.fail())
    second.wait(first, value)
    second.forgive()
    second.copy_word(cells[2], cells[1])
    bench.pass_time([second])
    bench.open(gate)
    second.finish()
    assert bench.last(cells) == 6, "after forgive an operation ran ahead of a point that its queue had waited for"


@rule
def the_last_faults_are_kept(bench: Workbench) -> None:
    """After 100 faults at least the last 32 are there, oldest first, each with its own range."""
    lane, chain = bench.lane(), bench.chain(1, 3)
    expected = []
    for _ in range(100):
        first = lane.fail()
        last = lane.copy_chain(chain)
        lane.finish()
        lane.forgive()
        lane.copy_chain(chain)
        expected.append(Fault(first, last, None, None))
    lane.finish()
    faults = lane.faults()
    assert len(faults) >= 32 and faults == expected[-len(faults) :], f"found {faults}"
    assert lane.fault_count != 0


@rule
def a_wait_for_what_is_over_shares_no_failure(bench: Workbench) -> None:
    """``wait_over`` holds until the other queue is there, and is done: whether that failed before, fails, or is withdrawn."""
    first, second, third, cells = bench.lane(), bench.lane(), bench.lane(), bench.chain(6, 4)
    first.reach(first.fail())
    second.wait_over(first, 1)
    failed, gate = first.gate()  # behind the failure: it does not hold
    first.reach(failed)
    first.forgive()
    failed, gate = first.gate()
    behind = first.copy_word(cells[3], cells[2])
    second.wait_over(first, behind)
    second.copy_word(cells[1], cells[0])
    bench.pass_time([second])
    assert second.completed == 1, "it did not hold, or failed with what had failed before"
    bench.open(gate, failed=True)
    second.finish()
    first.reach(behind)
    _expect(second)
    _, gate = third.gate()
    withdrawn = third.copy_word(cells[3], cells[2])
    assert third.withdraw(withdrawn, withdrawn) == withdrawn
    second.wait_over(third, withdrawn)
    reached = second.copy_word(cells[2], cells[1])
    bench.pass_time([second])
    assert second.completed < reached - 1, "it did not hold for what was withdrawn"
    bench.open(gate)
    second.finish()
    _expect(second)
    assert bench.values(cells)[:3] == [6, 6, 6]


RULES = (
    a_queue_without_failure_has_no_faults,
    a_failed_gate_opens_a_fault,
    what_is_behind_a_failure_completes_without_running,
    forgiven_queues_run_again,
    forgive_is_for_later_submissions_only,
    a_fault_is_told_before_its_value_completes,
    a_wait_for_a_failed_point_fails,
    a_held_wait_fails_with_what_it_waits_for,
    only_the_fault_range_fails_waiters,
    waiters_are_forgiven_by_themselves,
    other_queues_never_notice_a_failure,
    a_gate_behind_a_failure_does_not_hold,
    a_wait_behind_a_failure_still_takes_its_time,
    the_last_faults_are_kept,
    a_wait_for_what_is_over_shares_no_failure,
)
