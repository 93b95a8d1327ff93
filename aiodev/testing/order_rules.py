"""Rules about order: within a queue, across queues by waits, and by gates."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Workbench

__all__ = ["RULES"]


@rule
def values_count_from_one(bench: Workbench) -> None:
    """Submissions return 1, 2, 3, …, SUBMITTED follows at once, and all counters of a fresh queue are zero."""
    lane, cells = bench.lane(), bench.chain(7, 2)
    assert (lane.completed, lane.submitted, lane.fault_count) == (0, 0, 0), lane
    for expected in range(1, 101):
        value = lane.copy_word(cells[1], cells[0])
        assert value == expected, f"submission {expected} returned {value}"
        assert lane.submitted == expected, lane
    lane.finish()
    assert lane.completed == 100, lane


@rule
def recycled_queues_start_afresh(bench: Workbench) -> None:
    """A queue made after another was destroyed, even one that had failed, starts at zero and without faults."""
    for _ in range(40):
        number, counters = bench.executor.create_queue(0, 0, False)
        assert list(counters[:2]) == [0, 0], f"a fresh queue has counters {list(counters)}"
        assert bench.executor.faults(number) == [], "a fresh queue has faults"
        gate = bench.executor.create_gate()
        bench.executor.gate(number, gate)
        bench.executor.open_gate(gate, True)
        bench.until(partial(bench.executor.spin, number, 1, 1_000_000), "a failed gate does not complete")
        bench.executor.destroy_queue(number)


@rule
def queues_are_destroyed_anywhere(bench: Workbench) -> None:
    """An executor that says so has a queue destroyed in the midst of making one, by the same thread, as a finalizer may do."""
    executor = bench.executor
    if not executor.destroys_anywhere:
        raise NotApplicable("a thread of its own destroys queues")
    idle = [executor.create_queue(0, 0, False)[0] for _ in range(100)]
    made: list[int] = []

    def destroy_one(*_: Any) -> Any:
        if idle:
            executor.destroy_queue(idle.pop())
        return destroy_one

    def make() -> None:
        sys.settrace(destroy_one)  # at each line, where the collector may run
        try:
            made.extend(executor.create_queue(0, 0, False)[0] for _ in range(20))
        finally:
            sys.settrace(None)

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    maker.join(bench.patience)
    assert not maker.is_alive(), "destroy_queue waits for what create_queue holds"
    assert len(set(made)) == 20, f"the same queue was made twice: {made}"
    cells = bench.chain(7, 2)
    for number in made:
        value = executor.copy(number, cells[1], cells[0], 8)
        assert value == 1, f"a queue that was made meanwhile begins at {value}"
        bench.until(partial(executor.spin, number, value, 1_000_000), "such a queue completes nothing")
    for number in (*made, *idle):
        executor.destroy_queue(number)


@rule
def operations_of_a_queue_run_in_order(bench: Workbench) -> None:
    """Each operation sees what the one before it wrote."""
    lane, chain = bench.lane(), bench.chain(0x1234_5678_9ABC_DEF0 - (1 << 63), 2000)
    lane.reach(lane.copy_chain(chain))
    assert bench.last(chain) == 0x1234_5678_9ABC_DEF0 - (1 << 63), "a later copy ran before an earlier one"


@rule
def counters_never_go_back(bench: Workbench) -> None:
    """COMPLETED only grows, never passes SUBMITTED, and can be read from any thread at any time."""
    lane, cells = bench.lane(), bench.chain(1, 2)
    seen: list[str] = []
    ended = threading.Event()

    def observe() -> None:
        before = 0
        while not ended.is_set():
            completed = lane.completed
            submitted = lane.submitted  # read later, hence at least as high
            if not before <= completed <= submitted:
                seen.append(f"completed {before}, then {completed} of {submitted}")
            before = completed

    observer = threading.Thread(target=observe)
    observer.start()
    try:
        for _ in range(3000):
            lane.copy_word(cells[1], cells[0])
        lane.finish()
    finally:
        ended.set()
        observer.join()
    assert not seen, seen[0]


@rule
def threads_keep_their_own_order(bench: Workbench) -> None:
    """Eight threads may submit to one queue at once: values are unique, and each thread's operations stay in order."""
    lane, count, length = bench.lane(), 8, 400
    chains = [bench.chain(100 + t, length) for t in range(count)]
    values: list[list[int]] = [[] for _ in range(count)]
    together = threading.Barrier(count)

    def submit(t: int) -> None:
        together.wait()
        for i in range(length - 1):
            values[t].append(lane.copy_word(chains[t][i + 1], chains[t][i]))

    threads = [threading.Thread(target=submit, args=(t,)) for t in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lane.finish()
    assert all(v == sorted(v) for v in values), "a thread's later submission got a lower value"
    assert sorted(sum(values, [])) == list(range(1, count * (length - 1) + 1)), "values are missing or given twice"
    words = [bench.last(chain) for chain in chains]
    assert words == [100 + t for t in range(count)], f"a thread's operations ran out of order: {words}"


@rule
def depth_is_bounded_by_memory_alone(bench: Workbench) -> None:
    """100,000 operations wait behind a shut gate; no submission blocks, none is lost, and order holds."""
    lane, chain = bench.lane(), bench.chain(42, 100_001)
    _, gate = lane.gate()
    last = lane.copy_chain(chain)
    assert last == 100_001 and lane.completed == 0, lane
    bench.open(gate)
    lane.reach(last)
    assert bench.last(chain) == 42, "operations were lost or ran out of order"


@rule
def a_gate_holds_its_queue(bench: Workbench) -> None:
    """What is submitted behind a gate does not run before the host opens it; what is before it does."""
    lane, before, after = bench.lane(), bench.chain(5, 2), bench.chain(6, 2)
    first = lane.copy_chain(before)
    value, gate = lane.gate()
    lane.copy_chain(after)
    lane.reach(first)
    bench.pass_time([lane])
    assert lane.completed == value - 1, f"a shut gate lets pass: {lane}"
    assert (bench.last(before), bench.last(after)) == (5, 0), "an operation on the wrong side of a gate ran"
    bench.open(gate)
    lane.finish()
    assert bench.last(after) == 6, "an operation behind an opened gate did not run"


@rule
def a_gate_may_be_opened_before_it_is_reached(bench: Workbench) -> None:
    """A gate opened while its queue is still held elsewhere does not hold the queue when that comes to it."""
    lane, chain = bench.lane(), bench.chain(9, 2)
    _, first = lane.gate()
    _, second = lane.gate()
    lane.copy_chain(chain)
    bench.open(second)
    bench.pass_time([lane])
    assert lane.completed == 0, f"opening the second gate opened the first: {lane}"
    bench.open(first)
    lane.finish()
    assert bench.last(chain) == 9


@rule
def gates_open_from_any_thread_at_any_moment(bench: Workbench) -> None:
    """A gate opened by another thread just before, while, or just after its queue reaches it never leaves it held."""
    lane, gates = bench.lane(), [0] * 500
    ready = threading.Semaphore(0)

    def open_all() -> None:
        for i in range(len(gates)):
            ready.acquire()
            bench.open(gates[i])

    opener = threading.Thread(target=open_all)
    opener.start()
    for i in range(len(gates)):
        _, gates[i] = lane.gate()
        ready.release()
    opener.join()
    lane.finish()


@rule
def a_gate_may_be_opened_first(bench: Workbench) -> None:
    """Before it is submitted, and if it never is: whoever submits may be interrupted in between."""
    lane, chain = bench.lane(), bench.chain(7, 2)
    bench.executor.open_gate(bench.executor.create_gate(), False)
    lane.open_gate_first()
    lane.copy_chain(chain)
    lane.finish()
    assert bench.last(chain) == 7, "an operation behind an opened gate did not run"
    failed = lane.open_gate_first(failed=True)
    lane.reach(failed)
    assert [(fault.first, fault.error) for fault in lane.faults()] == [(failed, None)], "it was opened as failed"


@rule
def held_queues_hold_no_worker(bench: Workbench) -> None:
    """Many more queues than workers may be held by gates and waits while others run."""
    held = bench.lanes(100)
    gates = [lane.gate()[1] for lane in held]
    waiting = bench.lanes(100)
    for lane, other in zip(waiting, held, strict=True):
        lane.wait(other, 1)
    free, chain = bench.lane(), bench.chain(3, 100)
    free.reach(free.copy_chain(chain))
    assert bench.last(chain) == 3
    for gate in gates:
        bench.open(gate)
    for lane in (*held, *waiting):
        lane.finish()


@rule
def a_wait_orders_two_queues(bench: Workbench) -> None:
    """A queue that waits for a point of another runs nothing before that point, and sees what was written up to it."""
    first, second, cells = bench.lane(), bench.lane(), bench.chain(8, 3)
    _, gate = first.gate()
    value = first.copy_word(cells[1], cells[0])
    second.wait(first, value)
    second.copy_word(cells[2], cells[1])
    bench.pass_time([second])
    assert second.completed == 0, f"a wait for {first!r} let pass: {second!r}"
    bench.open(gate)
    second.finish()
    assert bench.last(cells) == 8, "a queue ran ahead of the point that it waits for"


@rule
def a_wait_for_a_reached_point_passes(bench: Workbench) -> None:
    """A wait for a point that is reached already holds nothing, not even while that other queue is held further on."""
    first, second, cells = bench.lane(), bench.lane(), bench.chain(1, 2)
    value = first.copy_chain(cells)
    first.reach(value)
    first.gate()
    second.reach(second.wait(first, value))


@rule
def a_wait_is_for_its_point_alone(bench: Workbench) -> None:
    """Waiting for an early point does not wait for what was submitted later."""
    first, second, cells = bench.lane(), bench.lane(), bench.chain(1, 2)
    _, gate = first.gate()
    value = first.copy_chain(cells)
    first.gate()
    reached = second.wait(first, value)
    bench.open(gate)
    second.reach(reached)


@rule
def waits_fan_out_and_in(bench: Workbench) -> None:
    """Any number of queues may wait for one point, and one queue for points of many."""
    source, middle, sink = bench.lane(), bench.lanes(50), bench.lane()
    inner = [bench.chain(0, 2) for _ in middle]
    seed = bench.cells([77])
    _, gate = source.gate()
    value = source.copy_word(seed[0], seed[0])
    for lane, cells in zip(middle, inner, strict=True):
        lane.wait(source, value)
        sink.wait(lane, lane.copy_word(cells[1], seed[0]))
    total = bench.chain(0, len(middle))
    for i, cells in enumerate(inner):
        sink.copy_word(total[i], cells[1])
    bench.open(gate)
    sink.finish()
    assert bench.values(total) == [77] * len(middle), "a wait for one of many queues did not hold"


@rule
def ping_pong_between_queues_keeps_order(bench: Workbench) -> None:
    """Two queues that wait for each other in turn, a thousand times, run strictly alternately."""
    lanes, chain = bench.lanes(2), bench.chain(11, 1001)
    for i in range(1000):
        value = lanes[i % 2].copy_word(chain[i + 1], chain[i])
        lanes[(i + 1) % 2].wait(lanes[i % 2], value)
    for lane in lanes:
        lane.finish()
    assert bench.last(chain) == 11, "two queues overtook each other"


@rule
def waits_order_queues_of_two_devices(bench: Workbench) -> None:
    """A wait works across devices of one backend, and copies go from device to device."""
    if bench.backend.device_count() < 2:
        raise NotApplicable("there is one device")
    lanes = [bench.lane(0), bench.lane(1)]
    cells = [bench.chain(21, 501, 0), bench.chain(21, 501, 1)]
    for i in range(500):
        value = lanes[i % 2].copy_word(cells[(i + 1) % 2][i + 1], cells[i % 2][i])
        lanes[(i + 1) % 2].wait(lanes[i % 2], value)
    for lane in lanes:
        lane.finish()
    assert bench.values(cells[0])[-1] == 21, "two devices overtook each other"


RULES = (
    values_count_from_one,
    recycled_queues_start_afresh,
    queues_are_destroyed_anywhere,
    operations_of_a_queue_run_in_order,
    counters_never_go_back,
    threads_keep_their_own_order,
    depth_is_bounded_by_memory_alone,
    a_gate_holds_its_queue,
    a_gate_may_be_opened_before_it_is_reached,
    a_gate_may_be_opened_first,
    gates_open_from_any_thread_at_any_moment,
    held_queues_hold_no_worker,
    a_wait_orders_two_queues,
    a_wait_for_a_reached_point_passes,
    a_wait_is_for_its_point_alone,
    waits_fan_out_and_in,
    ping_pong_between_queues_keeps_order,
    waits_order_queues_of_two_devices,
)
