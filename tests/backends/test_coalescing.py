"""Wake-ups of which one may stand for several: over a memory and a clock of the test's own, and as a waiter sees them."""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from interpreted import TICK, World
from pieces import MS, Entry, one_worker_held, started

from aiodev._backends.cpu.executor import coalescing, core_time, parallel_for, ready_queue
from aiodev._backends.cpu.executor.crowding import ALWAYS
from aiodev._backends.cpu.executor.executor import NativeExecutor
from aiodev._backends.cpu.structs import Device, Entry as Code, KernelRecord, Queue, Worker
from aiodev._backends.cpu.tuning import HELD, YIELD_EVERY
from aiodev._backends.executor.structs import Waker

LONG = 1 << 62


class Bells:
    """A world in which it is noted who is rung."""

    def __init__(self, coalesces: bool = True) -> None:
        self.world = World()
        self.world.crowd.coalesces = int(coalesces)
        self.rung: list[int] = []
        self.looking: list[int] = []  # how many workers seemed to look for work meanwhile

    def waker(self, number: int) -> Waker:
        return Waker(0x90000 + 0x1000 * number, self.world)

    def _write(self, waker: Waker | None) -> None:
        if waker is not None:
            self.rung.append((waker.address - 0x90000) // 0x1000)
            self.looking.append(self.world.device.spinners.value)

    def call(self, name: str, *arguments: object) -> None:
        self.world.run(coalescing, name, *arguments, ring=self._write)

    def ring(self, number: int, worker: Worker | None = None, free: bool = False) -> None:
        """As a worker who has completed an operation does, unless it is a helper."""
        self.call("ring_in_time", self.world.device, worker, self.waker(number), free)


def test_a_worker_holds_on_to_a_wake_up() -> None:
    """To the first one; the same again is one, another one's is rung at once, and nobody's is nothing."""
    bells = Bells()
    worker = bells.world.worker
    bells.ring(1, worker)
    held_since = bells.world.time
    bells.ring(1, worker)
    assert bells.rung == [] and worker.bell == bells.waker(1) and worker.bell_due == held_since + HELD
    bells.ring(2, worker)
    bells.call("ring_in_time", bells.world.device, worker, None, True)
    assert bells.rung == [2] and worker.bell == bells.waker(1)
    bells.call("ring_held", worker)
    bells.call("ring_held", worker)
    bells.call("ring_held", None)
    assert bells.rung == [2, 1] and worker.bell is None


@pytest.mark.parametrize(
    ("coalesces", "helper", "until", "held"),
    [
        (True, False, 0, True), (False, False, 0, False), (True, True, 0, False), (True, False, LONG - 1, False),
        (True, False, ALWAYS, True),
    ],
)  # fmt: skip
def test_where_wake_ups_are_held(coalesces: bool, helper: bool, until: int, held: bool) -> None:
    """By workers, where the process has the time of one core, unless others were seen to want that."""
    bells = Bells(coalesces)
    bells.world.crowd.until.value = until
    bells.ring(1, None if helper else bells.world.worker)
    assert (bells.rung == []) is held and (bells.world.worker.bell is not None) is held


@pytest.mark.parametrize(("free", "until", "alone"), [(True, LONG, True), (True, 0, False), (False, LONG, False)])
def test_in_a_crowd_what_is_submitted_by_who_is_woken_is_for_a_worker_that_is_free(
    free: bool, until: int, alone: bool
) -> None:
    bells = Bells(coalesces=False)
    bells.world.crowd.until.value = until
    bells.ring(1, bells.world.worker, free)
    assert bells.looking == [int(alone)] and bells.world.device.spinners.value == 0


@pytest.mark.parametrize(
    ("duration", "rings"), [(0, True), (1, False), (HELD - TICK, False), (HELD - TICK + 1, True), (10**9, True)]
)
def test_nothing_long_and_nothing_unknown_is_begun_with_it(duration: int, rings: bool) -> None:
    bells = Bells()
    bells.ring(1, bells.world.worker)
    bells.call("ring_ahead", bells.world.worker, duration)
    assert bells.rung == ([1] if rings else [])
    bells.call("ring_ahead", None, duration)


@pytest.mark.parametrize("stops", [False, True])
def test_nobody_sleeps_with_it(stops: bool) -> None:
    """Nor returns; it looks for work once more, since who was woken may have some."""
    bells = Bells()
    world, order = bells.world, list[str]()
    device, worker = world.device, world.worker
    device.workers = 1
    bells.ring(1, worker)
    device.stop.value = int(stops)

    def ring(waker: Waker | None) -> None:
        if waker is not None:
            order.append("rung")

    def sleep(device: Device, worker: Worker) -> None:
        order.append("asleep")
        device.stop.value = 1

    def look_around(*_: object) -> bool:
        order.append("looked")
        return False

    replaced = {"sleep": sleep, "watch_core": lambda worker: None, "look_around": look_around, "ring": ring}
    assert world.run(ready_queue, "find_work", device, worker, **replaced) == 0
    assert order == (["rung"] if stops else ["rung", "looked", "asleep"]) and worker.bell is None


def test_nobody_offers_its_core_with_it() -> None:
    """Others might have that for long."""
    bells = Bells()
    world = bells.world
    bells.ring(1, world.worker)
    seen: list[bool] = []

    def offer() -> int:
        seen.append(world.worker.bell is None)
        return 0

    world.run(core_time, "offer_core", world.worker, None, world.queue, YIELD_EVERY, sched_yield=offer, ring=lambda waker: None)
    assert seen == [True]


def test_a_range_that_takes_longer_than_it_did_rings_between_two_chunks() -> None:
    """What was known of its kernel is not what it takes now."""
    bells = Bells()
    world, chunks = bells.world, list[bool]()
    worker, queue, record = world.worker, world.queue, KernelRecord(0x70000, world)
    queue.cursor, record.size, record.entry = record, 4, Code(0x80000, world)
    world.device.workers, queue.range_members.value, queue.range_left.value = 1, 1, 1
    queue.partitions[0].end, queue.range_chunk.value = record.size, 1
    worker.next_offer = LONG
    bells.ring(1, worker)

    def run_chunk(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
        chunks.append(worker.bell is None)
        world.time += 2 * HELD // 3

    replaced = {"run_chunk": run_chunk, "this_core": lambda: 0, "leave_range": lambda home, helper, queue: True}
    assert world.run(parallel_for, "join_range", world.device, worker, None, queue, **replaced, ring=lambda waker: None)
    assert chunks == [False, False, True, True]


# As a waiter sees it


class Waiter:
    """Sleeps on a descriptor, as a loop does."""

    def __init__(self, executor: NativeExecutor) -> None:
        self.executor, self.descriptor = executor, os.eventfd(0, os.EFD_NONBLOCK)
        self.waker = executor.create_waker(self.descriptor)

    def sleeps(self, seconds: float) -> bool:
        """Whether nothing happens for so long."""
        return not select.select([self.descriptor], [], [], seconds)[0]

    def wakes(self) -> set[int]:
        """The queues that it is woken for."""
        assert not self.sleeps(20), "it was never woken"
        os.read(self.descriptor, 8)
        return set(self.executor.collect(self.waker))


@contextmanager
def waiting(executor: NativeExecutor) -> Iterator[Waiter]:
    waiter = Waiter(executor)
    try:
        yield waiter
    finally:
        executor.stop()
        os.close(waiter.descriptor)


def short(executor: NativeExecutor) -> Entry:
    """A kernel whose duration is known to be short."""
    entry = Entry(executor, 0, uniform=True)
    entry.say_cost(1000)
    return entry


def test_several_queues_wake_their_loop_once() -> None:
    """All of those that a worker was about to serve in a row."""
    with started(1) as executor, waiting(executor) as waiter:
        executor.coalesce_wake_ups(True)
        entry, lanes = short(executor), [executor.create_queue(0, 0, False)[0] for _ in range(5)]
        with one_worker_held(executor):
            for queue in lanes:
                value = executor.launch(queue, entry.address, 1, struct.pack("q", 1), 0)
                assert executor.arm(queue, value, waiter.waker)
        woken = waiter.wakes()
        if woken == set(lanes):
            assert waiter.sleeps(0.01), "it was woken again for nothing"
        while woken != set(lanes):  # a busy machine has kept the worker from its core
            woken |= waiter.wakes()


@pytest.mark.parametrize("what", ["unknown", "long"])
def test_nobody_waits_behind_what_takes_long(what: str) -> None:
    """For an operation that is done."""
    with started(1) as executor, waiting(executor) as waiter:
        executor.coalesce_wake_ups(True)
        first, second = (executor.create_queue(0, 0, False)[0] for _ in range(2))
        entry, entered, release = short(executor), threading.Event(), threading.Event()
        slow = Entry(executor, 0, uniform=what == "long")
        if what == "long":
            slow.say_cost(10 * MS * 1000)

        def before(lo: int, hi: int) -> None:
            entered.set()
            release.wait(30)

        slow.before = before
        with one_worker_held(executor):
            value = executor.launch(first, entry.address, 1, struct.pack("q", 1), 0)
            assert executor.arm(first, value, waiter.waker)
            executor.launch(second, slow.address, 1, struct.pack("q", 1), 0)
        try:
            assert entered.wait(20)
            assert waiter.wakes() == {first}
        finally:
            release.set()
