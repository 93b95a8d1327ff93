"""Looking for work, over a memory and a clock of the test's own."""

from __future__ import annotations

from interpreted import DEVICE, QUEUE, WORKER, World

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.executor import helping, ready_queue


def test_a_worker_that_looks_for_work_offers_its_core_after_a_while() -> None:
    """And again that much later, for as long as it looks."""
    world = World()
    world.words[WORKER + layout.W_SPIN] = 100_000
    assert not world.run(ready_queue, "look_around", DEVICE, WORKER, 0, 0)
    began = world.words[WORKER + layout.W_IDLE]
    assert world.time == began + 100_000
    assert world.offered == list(range(began + ready_queue.OFFER, world.time, ready_queue.OFFER))
    assert world.words[DEVICE + layout.D_SPINNERS] == 0


def test_a_worker_that_finds_work_soon_has_offered_nothing() -> None:
    """What comes within that time is not missed by a thread that has gone to the end of a core's queue."""
    world = World()
    world.words[WORKER + layout.W_SPIN] = 100_000

    def watch(device: int, queue: int, owed: int) -> bool:
        return world.time >= ready_queue.OFFER

    assert world.run(ready_queue, "look_around", DEVICE, WORKER, 0, 0, watch=watch)
    assert world.time >= ready_queue.OFFER and world.offered == []


def test_a_loops_thread_that_spins_never_offers_its_core() -> None:
    """It would get it back when others are through with it, and its timers would be as late."""
    world = World()
    replaced = {"send_away": lambda queue: False, "wake_helper": lambda device, queue: None}
    assert not world.run(helping, "spin", QUEUE, 1, 100 * ready_queue.OFFER, **replaced)
    assert world.time >= 100 * ready_queue.OFFER and world.offered == []
    assert world.words[QUEUE + layout.Q_GUESTS] == 0


def test_a_helper_steps_aside_before_it_joins() -> None:
    """On the core of the one that it is to help it may have to wait for another, and who has joined is waited for."""
    world = World()
    world.open_range(left=1)
    steps: list[tuple[int, int]] = []

    def step_aside(worker: int) -> None:
        steps.append((world.words[QUEUE + layout.Q_RANGE_MEMBERS], world.words[DEVICE + layout.D_LOCK]))

    def in_the_way(queue: int, worker: int) -> bool:
        return not steps

    found = world.run(ready_queue, "find_work", DEVICE, WORKER, in_the_way=in_the_way, step_aside=step_aside)
    assert found == QUEUE + 1
    assert steps == [(1, 0)], "it was a member already, or held the lock"
    assert world.words[QUEUE + layout.Q_RANGE_MEMBERS] == 2 and world.words[DEVICE + layout.D_LOCK] == 0


def test_nobody_steps_aside_for_a_range_that_is_exhausted() -> None:
    """There is nothing to join: the worker goes on to what else there is, here the end."""
    world = World()
    world.open_range(left=0)
    moves: list[int] = []

    def look_around(device: int, worker: int, queue: int, owed: int) -> bool:
        world.words[DEVICE + layout.D_STOP] = 1
        return True

    replaced = {"in_the_way": lambda queue, worker: not moves, "step_aside": moves.append, "look_around": look_around}
    assert world.run(ready_queue, "find_work", DEVICE, WORKER, **replaced) == 0
    assert moves == [] and world.words[QUEUE + layout.Q_RANGE_LINKED] == 0
