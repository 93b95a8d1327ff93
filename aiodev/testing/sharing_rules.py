"""Rules about how queues share a device: priorities, fairness, and queues of their own."""

from __future__ import annotations

import ctypes
import time

from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Lane, Workbench

__all__ = ["RULES"]

_BULK = 4 << 20
_LONG = 24 << 20
#: Whoever serves the urgent queue may be kept from its core just then, where other processes want that, too.
_ATTEMPTS = 3


def _stamp(bench: Workbench, lane: Lane) -> ctypes.c_int64:
    """Submit a stamp; the result holds it once the lane has finished."""
    cell = bench.host(8)
    bench.executor.stamp(lane.number, ctypes.addressof(cell))
    return ctypes.c_int64.from_buffer(cell)


@rule
def urgent_work_overtakes(bench: Workbench) -> None:
    """When more queues are ready than workers, one of the highest priority goes before most of the lowest, even of
    those that were ready first: at most a quarter of them, and those that were running already, precede it.
    """
    high, low = bench.backend.capabilities.priorities
    if high == low:
        raise NotApplicable("there is one priority")
    if not bench.backend.capabilities.timing:
        raise NotApplicable("capabilities.timing is false")
    workers = bench.backend.device_properties(0).multi_processor_count
    source, target, starter = bench.allocate(_BULK), bench.allocate(_BULK), bench.lane(0, high)
    crowd = [bench.lane(0, low) for _ in range(4 * min(workers, 64) + 24)]
    urgent = bench.lane(0, high)
    allowed = len(crowd) // 4 + min(workers, 64)
    for _ in range(_ATTEMPTS):
        start, gate = starter.gate()
        stamps = []
        for position, lane in enumerate((*crowd, None)):
            if position == len(crowd) // 2:
                # In the middle, so that neither first come first served nor its reverse would put it in front.
                urgent.wait(starter, start)
                urgent_stamp = _stamp(bench, urgent)
            if lane is not None:
                lane.wait(starter, start)
                bench.executor.copy(lane.number, target, source, _BULK)
                stamps.append(_stamp(bench, lane))
        bench.open(gate)
        for lane in (*crowd, urgent):
            lane.finish()
        ahead = sum(stamp.value < urgent_stamp.value for stamp in stamps)
        if ahead <= allowed:
            return
    raise AssertionError(f"{ahead} of {len(crowd)} queues of the lowest priority went before one of the highest")


@rule
def every_priority_runs(bench: Workbench) -> None:
    """Queues of every priority make progress when nothing more urgent is ready."""
    high, low = bench.backend.capabilities.priorities
    for priority in range(high, low + 1):
        lane, chain = bench.lane(0, priority), bench.chain(priority + 10, 50)
        lane.reach(lane.copy_chain(chain))
        assert bench.last(chain) == priority + 10


@rule
def long_queues_share_a_device(bench: Workbench) -> None:
    """A queue with a long backlog does not keep another of the same priority from running until the backlog is done."""
    crowd = 2 * min(bench.backend.device_properties(0).multi_processor_count, 64)
    source, target = bench.allocate(_BULK), bench.allocate(_BULK)
    for _ in range(_ATTEMPTS):
        starter, late, backlog = bench.lane(), bench.lane(), [bench.lane() for _ in range(crowd)]
        long_chains, chain = [bench.chain(1, 5001) for _ in backlog], bench.chain(2, 3)
        start, gate = starter.gate()
        for lane, cells in zip(backlog, long_chains, strict=True):
            lane.wait(starter, start)
            lane.copy_chain(cells)
            for _ in range(16):  # longer than any turn that a queue may have before others have theirs
                bench.executor.copy(lane.number, target, source, _BULK)
        late.wait(starter, start)
        last = late.copy_chain(chain)
        witnesses = [_stamp(bench, lane) for lane in (late, *backlog)]
        bench.open(gate)
        late.reach(last)
        for lane in (late, *backlog):
            lane.finish()
        assert [bench.last(cells) for cells in long_chains] == [1] * len(backlog)
        assert bench.last(chain) == 2
        if not bench.backend.capabilities.timing or witnesses[0].value < max(stamp.value for stamp in witnesses[1:]):
            return
    raise AssertionError("a short queue ran only after every backlog was done")


@rule
def newcomers_wait_for_their_turn(bench: Workbench) -> None:
    """A queue has its share while new queues of its priority keep coming, each of which has had nothing yet: when it has done
    eight long copies, no more than three times as many are done as each of the others would have had meanwhile.
    """
    crowd, copies = 2 * min(bench.backend.device_properties(0).multi_processor_count, 64) + 2, 8
    source, target = bench.allocate(_LONG), bench.allocate(_LONG)
    starter, old = bench.lane(), bench.lane()
    bench.executor.copy(starter.number, target, source, _LONG)  # the first one is longer: the memory is fetched from the system
    start, gate = starter.gate()

    def newcomer() -> Lane:
        lane = bench.lane()
        lane.wait(starter, start)
        bench.executor.copy(lane.number, target, source, _LONG)
        return lane

    old.wait(starter, start)
    for _ in range(copies):
        bench.executor.copy(old.number, target, source, _LONG)
    waiting = [newcomer() for _ in range(crowd)]
    came = crowd
    bench.open(gate)

    def done() -> bool:
        nonlocal came
        time.sleep(0.0001)  # who waits awake may do a part of what it waits for
        for place, lane in enumerate(waiting):
            if lane.completed == lane.submitted:
                assert came < 3 * crowd * copies, f"{came} queues came after {old!r}, and were done"
                waiting[place] = newcomer()
                came += 1
        return old.completed == old.submitted

    bench.until(done, f"a queue is not done while new ones come: {old!r}")


@rule
def reserved_queues_work_like_others(bench: Workbench) -> None:
    """A reserved queue keeps order, waits, fails and is forgiven like any other."""
    lane, other, chain = bench.lane(reserved=True), bench.lane(), bench.chain(5, 300)
    _, gate = other.gate()
    lane.wait(other, 1)
    lane.copy_chain(chain)
    bench.open(gate)
    lane.finish()
    assert bench.last(chain) == 5
    failed = lane.fail()
    lane.finish()
    assert [fault.first for fault in lane.faults()] == [failed]
    lane.forgive()
    lane.reach(lane.copy_chain(bench.chain(6, 3)))


RULES = (
    urgent_work_overtakes,
    every_priority_runs,
    long_queues_share_a_device,
    newcomers_wait_for_their_turn,
    reserved_queues_work_like_others,
)
