"""Looking for work, over a memory and a clock of the test's own."""

from __future__ import annotations

from interpreted import World

from aiodev._backends.cpu.executor import helping, ready_queue
from aiodev._backends.cpu.structs import Device, Queue, Worker
from aiodev._backends.cpu.tuning import OFFER


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
