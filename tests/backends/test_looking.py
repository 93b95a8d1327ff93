"""Looking for work, over a memory and a clock of the test's own."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from interpreted import World
from pieces import MS, PATIENCE, Entry, started

from aiodev._backends.cpu.executor import helping, ready_queue, worker as worker_module
from aiodev._backends.cpu.executor.executor import NativeExecutor
from aiodev._backends.cpu.structs import Device, KernelRecord, Queue, Worker
from aiodev._backends.cpu.tuning import BRIEF, DRAINED, OFFER
from aiodev._core.backend.interface import Command


def test_a_worker_that_looks_for_work_offers_its_core_after_a_while() -> None:
    """And again that much later, for as long as it looks."""
    world = World()
    world.worker.spin = 100_000
    assert not world.run(ready_queue, "look_around", world.device, world.worker, None, 0)
    began = world.worker.idle
    assert world.time == began + 100_000
    assert world.offered == list(range(began + OFFER, world.time, OFFER))
    assert world.device.spinners.value == 0


def test_a_worker_that_finds_work_soon_has_offered_nothing() -> None:
    """What comes within that time is not missed by a thread that has gone to the end of a core's queue."""
    world = World()
    world.worker.spin = 100_000

    def has_work(device: Device, queue: Queue | None, owed: int) -> bool:
        return world.time >= OFFER

    assert world.run(ready_queue, "look_around", world.device, world.worker, None, 0, has_work=has_work)
    assert world.time >= OFFER and world.offered == []


def test_a_loops_thread_that_spins_never_offers_its_core() -> None:
    """It would get it back when others are through with it, and its timers would be as late."""
    world = World()
    replaced = {"send_away": lambda queue: False, "wake_for_range": lambda device, queue: None}
    assert not world.run(helping, "spin", world.queue, 1, 100 * OFFER, **replaced)
    assert world.time >= 100 * OFFER and world.offered == []
    assert world.queue.helpers.value == 0


@pytest.mark.parametrize(
    ("left", "active", "crowded", "sent"), [(0, 1, False, 9), (1, 1, False, 0), (0, 2, False, 0), (0, 1, True, 0)]
)
def test_who_waits_for_the_last_member_sends_it_away(left: int, active: int, crowded: bool, sent: int) -> None:
    """Where all chunks of the range were claimed for a while, there is no other work, and no others want the cores."""
    world = World()
    world.queue.range_members.value, world.queue.range_left.value = 1, left
    world.device.came[1].value, world.device.workers = active, 1
    if crowded:
        world.crowd.until.value = 1 << 62
    times: list[int] = []
    replaced = {"send_away": lambda queue: False, "this_core": lambda: 0}
    replaced["send_member_away"] = lambda queue: times.append(world.time)
    assert not world.run(helping, "spin", world.queue, 1, BRIEF if crowded else 10 * DRAINED, **replaced)  # else it ends
    assert min(sent, 5) <= len(times) <= sent
    assert all(later - before > DRAINED for before, later in itertools.pairwise([0, *times]))


def test_a_helper_steps_aside_before_it_joins() -> None:
    """On the core of the one that it is to help it may have to wait for another, and who has joined is waited for."""
    world = World()
    world.open_range(left=1)
    steps: list[tuple[int, int]] = []

    def step_aside(worker: Worker) -> None:
        steps.append((world.queue.range_members.value, world.device.lock.held.value))

    def in_the_way(queue: Queue, worker: Worker) -> bool:
        return not steps

    found = world.run(ready_queue, "find_work", world.device, world.worker, in_the_way=in_the_way, step_aside=step_aside)
    assert found == world.queue.address + 1
    assert steps == [(1, 0)], "it was a member already, or held the lock"
    assert world.queue.range_members.value == 2 and world.device.lock.held.value == 0


def test_nobody_steps_aside_for_a_range_that_is_exhausted() -> None:
    """There is nothing to join: the worker goes on to what else there is, here the end."""
    world = World()
    world.open_range(left=0)
    moves: list[Worker] = []

    def look_around(device: Device, worker: Worker, queue: Queue | None, owed: int) -> bool:
        device.stop.value = 1
        return True

    replaced = {"in_the_way": lambda queue, worker: not moves, "step_aside": moves.append, "look_around": look_around}
    assert world.run(ready_queue, "find_work", world.device, world.worker, **replaced) == 0
    assert moves == [] and world.queue.range_linked.value == 0


@pytest.mark.parametrize(("helpers", "joins"), [(0, True), (1, False)])
def test_a_worker_makes_room_for_a_helper(helpers: int, joins: bool) -> None:
    """It sleeps, where there is a range that others have begun and nothing else, and a thread on each core that it leaves."""
    world = World()
    world.open_range(left=1)
    world.queue.helpers.value = helpers
    slept: list[Worker] = []

    def sleep(device: Device, worker: Worker) -> None:
        slept.append(worker)
        world.device.stop.value = 1

    found = world.run(ready_queue, "find_work", world.device, world.worker, sleep=sleep, in_the_way=lambda queue, worker: False)
    assert (found == world.queue.address + 1) is joins
    assert (slept == []) is joins and world.device.lock.held.value == 0
    assert world.queue.range_members.value == 1 + joins


def test_a_worker_makes_no_room_where_there_is_other_work() -> None:
    """Of whatever priority, and in whosever hands: it would be taken up again, and who has the range be without a core."""
    world = World()
    world.open_range(left=1)
    world.queue.helpers.value = 1
    world.device.came[0].value, world.device.came[2].value = 1, 1
    found = world.run(ready_queue, "find_work", world.device, world.worker, in_the_way=lambda queue, worker: False)
    assert found == world.queue.address + 1


@pytest.mark.parametrize(("left", "active", "joins"), [(1, 1, True), (0, 1, False), (1, 2, False)])
def test_a_helper_joins_what_all_workers_have_if_that_is_all(left: int, active: int, joins: bool) -> None:
    """As one more; not where other work keeps them awake, nor where nothing is left of the range."""
    world = World()
    world.device.workers = 2
    world.queue.range_members.value, world.queue.range_left.value = 2, left
    world.device.came[1].value = active
    assert bool(world.run(helping, "is_shared", world.queue)) is joins


@pytest.mark.parametrize("others", [0, 1])
def test_who_finds_work_on_its_own_queue_leaves_what_else_came_to_another(others: int) -> None:
    """While it looked nobody was woken, since it might have come for that."""
    world, posted = World(), list[object]()
    world.open_range(left=0)
    device, queue, sleeper = world.device, Queue(0x300000, world), Worker(0x400000, world)
    queue.device = queue.range_device = device
    device.sleepers, device.prime, device.asleep, sleeper.asleep = sleeper, sleeper, 1, 1
    record = KernelRecord(0x200000, world)
    queue.known, queue.pending.value, record.nbytes = 1, 1, 64
    device.pending.value = 0

    def look_around(device: Device, worker: Worker, queue: Queue, owed: int) -> bool:
        queue.pending.value += 1
        device.pending.value = others
        return True

    replaced = {"complete": lambda queue, value, worker: None, "look_around": look_around, "sem_post": posted.append}
    assert world.run(worker_module, "finish", device, world.worker, queue, record, 1, **replaced)
    assert len(posted) == others == 1 - device.asleep


def test_another_worker_comes_for_another_queue() -> None:
    """Though the one that served the first queue looked for work, and has it there again, for long."""
    with started(2, spin_ns=10 * MS) as executor:
        entry = Entry(executor, 20 * MS, uniform=False)
        (first, _), (second, _) = (executor.create_queue(0, 0, False) for _ in range(2))
        for _ in range(20):
            entry.before = lambda lo, hi: None
            assert executor.spin(first, executor.launch(first, entry.address, 1, b"", 0), PATIENCE)
            held, ran = threading.Event(), list[int]()
            entry.before = lambda lo, hi, ran=ran, held=held: (ran.append(lo), len(ran) == 1 and held.wait(20))  # type: ignore[misc]
            values = [(queue, executor.launch(queue, entry.address, 1, b"", 0)) for queue in (first, second)]
            until = time.monotonic() + 20
            while len(ran) < 2 and time.monotonic() < until:
                time.sleep(0.001)
            held.set()
            assert len(ran) == 2
            for queue, value in values:
                assert executor.spin(queue, value, PATIENCE)


@pytest.mark.parametrize("queues", [1, 3])
def test_workers_beyond_the_limit_stay_asleep(queues: int) -> None:
    """However much waits, in a range or in several queues; and they run again once the limit is raised."""
    with started(2) as executor:
        entry = Entry(executor, 20 * MS, uniform=False)
        lanes = [executor.create_queue(0, 0, False) for _ in range(queues)]

        def run(patience: float) -> bool:
            """Whether two workers were at it at once; the first one waits so many seconds for the second."""
            entry.pieces.clear()
            both = threading.Event()

            def before(lo: int, hi: int) -> None:
                if len(entry.threads()) == 2:
                    both.set()
                if len(entry.pieces) == 1:
                    both.wait(patience)

            entry.before = before
            values = [executor.launch(queue, entry.address, 64, b"", 0) for queue, _ in lanes]
            for (queue, _), value in zip(lanes, values, strict=True):
                assert executor.spin(queue, value, PATIENCE)
            return both.is_set()

        executor.limit_workers(1)
        for _ in range(3):
            assert not run(0.03) and len(entry.threads()) == 1
        executor.limit_workers(2)
        assert run(20)
        executor.limit_workers(1)
        await_sleepers(executor, 1)  # the second one looked for work on the queue that it served, and may have found it there
        assert not run(0.03)


@pytest.mark.parametrize("what", ["queue", "range"])
def test_raising_the_limit_wakes_a_worker_for_what_waits(what: str) -> None:
    """And not the next operation that is submitted, which may never come."""
    with started(2) as executor:
        entry = Entry(executor, 20 * MS, uniform=False)
        executor.limit_workers(1)
        await_sleepers(executor, 1)
        entry.before = lambda lo, hi: both.wait(20) if len(entry.threads()) < 2 else both.set()  # type: ignore[func-returns-value]
        both = threading.Event()
        queues = [executor.create_queue(0, 0, False)[0] for _ in range(1 if what == "range" else 2)]
        values = [executor.launch(queue, entry.address, 64 if what == "range" else 1, b"", 0) for queue in queues]
        while not entry.pieces:
            time.sleep(0.001)
        executor.limit_workers(2)
        assert both.wait(20)  # nobody helps meanwhile
        for queue, value in zip(queues, values, strict=True):
            assert executor.spin(queue, value, PATIENCE)


def await_sleepers(executor: NativeExecutor, count: int) -> None:
    """Wait until so many workers sleep."""
    until = time.monotonic() + PATIENCE / 1e9
    while Device(executor._devices[0]).asleep < count:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.parametrize("what", ["operations", "graph", "range"])
def test_workers_beyond_the_limit_sleep_though_their_queues_are_never_empty(what: str) -> None:
    """They leave what is still to be run to the others, in the midst of a graph or a range, too."""
    with started(2) as executor:
        entry = Entry(executor, 100 * MS)
        entry.before = lambda lo, hi: time.sleep(0.0001 * (hi - lo))
        buffer, _ = executor.create_buffer(0, [Command("launch", entry.address, 1, b"")] * 2_000)
        queues = [executor.create_queue(0, 0, False)[0] for _ in range(1 if what == "range" else 2)]
        for queue in queues:
            if what == "graph":
                executor.execute(queue, buffer, b"")
            if what == "range":
                executor.launch(queue, entry.address, 4_000, b"", 0)
            for _ in range(2_000 if what == "operations" else 0):
                executor.launch(queue, entry.address, 1, b"", 0)
        values = [executor.launch(queue, entry.address, 1, b"", 0) for queue in queues]
        while len(entry.threads()) < 2:
            time.sleep(0.001)
        executor.limit_workers(1)
        await_sleepers(executor, 1)
        assert not any(executor.spin(queue, value, 0) for queue, value in zip(queues, values, strict=True))
        seen = len(entry.pieces)
        for queue, value in zip(queues, values, strict=True):
            assert executor.spin(queue, value, PATIENCE)
        later = {thread for thread, _, _ in entry.pieces[seen + 1 :]} - {threading.get_ident()}  # which helps
        assert sum(hi - lo for _, lo, hi in entry.pieces) == 4_000 + len(queues) and len(later) == 1


def test_a_worker_beyond_the_limit_sleeps_though_work_waits() -> None:
    """Those that are awake come by where it waits before they sleep; and nobody is woken in its place."""
    world = World()
    world.open_range(left=1)
    device, worker = world.device, world.worker
    device.surplus, device.workers, worker.spin = 1, 2, 100_000

    def sleep(device: Device, worker: Worker) -> None:
        assert (device.asleep, device.sleepers) == (1, worker)
        assert world.run(ready_queue, "pop_sleeper", device) is None
        device.surplus = 0
        assert world.run(ready_queue, "pop_sleeper", device) == worker

    device.prime = worker
    replaced = {"sleep": sleep, "watch_core": lambda worker: None, "in_the_way": lambda queue, worker: False}
    found = world.run(ready_queue, "find_work", device, worker, **replaced)
    assert found == world.queue.address + 1 and device.asleep == 0
