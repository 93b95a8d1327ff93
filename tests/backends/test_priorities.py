"""Priorities are strict where there are more threads than cores: helpers, and the reserve."""

from __future__ import annotations

import threading
import time

import pytest
from interpreted import World
from pieces import MS, PATIENCE, Entry, help_until, started

from aiodev._backends.cpu.executor import helping, parallel_for, ready_queue
from aiodev._backends.cpu.executor.ready_queue import SLEEP
from aiodev._backends.cpu.structs import Device, Helper, Place, Queue, Worker


def is_cheap(entry: Entry) -> bool:
    """Make it so: a helper leaves what costs much alone, and where its core was taken meanwhile an index seems to."""
    entry.say_cost(MS // 100)
    return True


class Ranked:
    """A world with the range of an urgent queue, which has one member of two, and a less urgent queue that waits."""

    def __init__(self, left: int = 1) -> None:
        self.world = World()
        self.device, self.urgent = self.world.device, self.world.queue
        self.world.open_range(left)
        self.device.workers = 2
        self.low = Queue(0x300000, self.world)
        self.low.device = self.low.range_device = self.device
        self.low.priority = 1
        self.device.heap[1].value = Place(0x310000, self.world)
        self.posted: list[object] = []
        self.run(ready_queue, "line_up", self.device, self.low)

    def run(self, module: object, name: str, *arguments: object) -> object:
        replaced = {"in_the_way": lambda queue, worker: False, "sem_post": self.posted.append}
        return self.world.run(module, name, *arguments, **replaced)  # type: ignore[arg-type]

    def enter(self) -> object:
        return self.run(ready_queue, "enter_range", self.device, self.urgent)

    def leave(self, helper: Helper | None = None, home: Device | None = None) -> object:
        return self.run(parallel_for, "leave_range", home or self.device, helper, self.urgent)

    def take(self) -> object:
        return self.run(ready_queue, "take", self.device, self.world.worker)

    def fall_asleep(self) -> None:
        """Have one worker sleep."""
        sleeper = Worker(0x400000, self.world)
        self.device.sleepers = self.device.prime = sleeper
        self.device.asleep = sleeper.asleep = 1

    def outranked(self) -> object:
        return self.run(ready_queue, "outranked", self.device, self.low)


def test_less_urgent_work_is_not_begun_while_a_range_has_a_member_for_each_core() -> None:
    """One more thread would take the core of one of them; as soon as one has left it is somebody's turn."""
    ranked = Ranked()
    assert ranked.take() == ranked.urgent.address + 1 and ranked.device.pending.value == 1
    assert ranked.outranked() and ranked.take() == SLEEP
    ranked.urgent.range_left.value = 0
    assert not ranked.leave() and not ranked.outranked()
    assert ranked.take() == ranked.low.address
    assert ranked.posted == [], "who left looks for work itself"
    assert ranked.leave() and [ranked.device.full[n].value for n in range(3)] == [0, 0, 0]


def test_what_is_as_urgent_is_begun() -> None:
    """And who finds nothing at all goes on looking."""
    ranked = Ranked()
    ranked.enter()
    ranked.run(ready_queue, "take_out", ranked.device, ranked.low)
    assert ranked.take() == 0
    ranked.low.priority = 0
    ranked.run(ready_queue, "line_up", ranked.device, ranked.low)
    assert not ranked.outranked() and ranked.take() == ranked.low.address


def test_one_member_more_than_workers_counts_once() -> None:
    """A helper may join what all workers have."""
    ranked = Ranked()
    ranked.enter()
    ranked.enter()
    assert ranked.device.full[0].value == 1
    ranked.leave()
    assert ranked.outranked()
    ranked.leave()
    assert ranked.device.full[0].value == 0 == ranked.urgent.range_full
    assert ranked.outranked(), "it may be joined again"


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("waits", [True, False])
def test_a_helper_that_leaves_a_core_sends_for_a_worker(waits: bool, left: int) -> None:
    """If there is other work. It does not look for any itself, and those that found none that they may begin sleep."""
    ranked = Ranked()
    ranked.enter()
    ranked.fall_asleep()
    if not waits:
        ranked.run(ready_queue, "take_out", ranked.device, ranked.low)
    ranked.urgent.range_left.value = left
    assert not ranked.leave(Helper(0x500000, ranked.world))
    assert len(ranked.posted) == waits == 1 - ranked.device.asleep


def test_so_does_the_worker_of_a_reserved_queue() -> None:
    """It looks for the work of its own device, which is no other queue's."""
    ranked = Ranked()
    ranked.enter()
    ranked.fall_asleep()
    ranked.urgent.range_left.value = 0
    assert not ranked.leave(home=Device(0x500000, ranked.world))
    assert len(ranked.posted) == 1


def test_a_worker_makes_room_for_a_helper_with_more_urgent_work() -> None:
    """Both workers are in a less urgent range; one goes on to the urgent one, which this thread joins as its second member."""
    with started(2) as executor:
        (low, _), (high, _) = executor.create_queue(0, 0, False), executor.create_queue(0, -1, False)
        less, urgent = Entry(executor, MS // 100), Entry(executor, MS // 100)
        workers, lock, here = list[int](), threading.Lock(), threading.get_ident()
        inside, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
        begun, looked, pieces = threading.Event(), threading.Event(), list[int]()

        def before_less(lo: int, hi: int) -> None:
            with lock:
                worker = threading.get_ident()
                if worker in workers or looked.is_set():
                    return
                workers.append(worker)
                number = len(workers) - 1
            inside[number].set()
            assert leave[number].wait(30)

        def before_urgent(lo: int, hi: int) -> None:
            if looked.is_set():
                return
            if threading.get_ident() != here:
                begun.set()
                assert looked.wait(30)
                return
            pieces.append(len(less.pieces))
            leave[1].set()
            time.sleep(0.05)  # in which the other worker could do a lot
            pieces.append(len(less.pieces))
            looked.set()

        less.before, urgent.before = before_less, before_urgent
        last = executor.launch(low, less.address, 1000, b"", 0)
        assert inside[0].wait(30) and inside[1].wait(30)
        value = executor.launch(high, urgent.address, 1000, b"", 0)
        leave[0].set()
        assert begun.wait(30)
        help_until(executor, high, value, lambda: is_cheap(urgent) and looked.is_set())
        assert pieces[0] == pieces[1]
        assert executor.spin(high, value, PATIENCE) and executor.spin(low, last, PATIENCE)
        assert urgent.covered(1000) and less.covered(1000)


@pytest.mark.parametrize("full", [False, True])
def test_a_helper_does_not_join_a_less_urgent_range(full: bool) -> None:
    """Neither while more urgent work waits, nor while that has a member for each core."""
    ranked = Ranked()
    if full:
        ranked.enter()
    ranked.low.range_linked.value = ranked.low.range_left.value = ranked.low.range_members.value = 1
    helper = Helper(0x500000, ranked.world)
    helper.until = helper.longest = 1 << 40
    replaced = {"expected_cost": lambda helper, record: 1, "join_range": lambda device, worker, helper, queue: False}
    assert ranked.world.run(helping, "help_with_range", helper, ranked.low, 1, **replaced) == helping.MISSED
    assert ranked.low.range_members.value == 1
