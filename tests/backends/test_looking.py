"""Looking for work: the native executor's functions as Python runs them, over a memory and a clock of the test's own."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import FunctionType, ModuleType
from typing import Any

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.native import guests, scheduling

DEVICE, QUEUE, WORKER, STACK, HEAP = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
#: What a look at the clock takes (ns).
TICK = 1000


class World:
    """Words at addresses, all of them 0 at first, and a clock that goes on when it is read.

    Attributes:
        offered: when the thread offered its core to others.
    """

    def __init__(self) -> None:
        self.words: defaultdict[int, int] = defaultdict(int)
        self.time = 0
        self.offered: list[int] = []

    def open_range(self, left: int) -> None:
        """The queue has one, with a member, and ``left`` shares that nobody has begun; nothing else waits."""
        self.words |= {DEVICE + layout.D_WORKERS: 3, DEVICE + layout.D_HEAP: HEAP, QUEUE + layout.Q_DEVICE: DEVICE}
        self.words |= {QUEUE + layout.Q_RANGE_LEFT: left, QUEUE + layout.Q_RANGE_MEMBERS: 1}
        self.run(scheduling, "link_range", DEVICE, QUEUE)

    def get(self, address: int) -> int:
        return self.words[address]

    def put(self, address: int, value: int) -> None:
        self.words[address] = value

    def fetch_add(self, address: int, value: int) -> int:
        before = self.words[address]
        self.words[address] += value
        return before

    def exchange(self, address: int, value: int) -> int:
        before, self.words[address] = self.words[address], value
        return before

    def now(self) -> int:
        self.time += TICK
        return self.time

    def offer(self) -> int:
        self.offered.append(self.time)
        return 0

    def run(self, module: ModuleType, name: str, *arguments: int, **replaced: Any) -> Any:
        """Call a function of a native module; what it calls of the others is interpreted as well, unless ``replaced``."""
        known = {"get": self.get, "load": self.get, "load_fence": self.get, "now": self.now, "thread_time": self.now}
        known |= {"put": self.put, "store": self.put, "store_fence": self.put, "pause": lambda: None}
        known |= {"on_stack": lambda nbytes: STACK, "sem_post": lambda address: 0}
        known |= {"fetch_add": self.fetch_add, "exchange": self.exchange, "sched_yield": self.offer, **replaced}
        return self._interpreted(module, known, {})[name](*arguments)

    def _interpreted(self, module: ModuleType, known: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
        """The names of a native module, with functions of Python in place of compiled ones."""
        names = done[module.__name__] = {**vars(module), **known}
        for own, function in vars(module).items():
            body = getattr(function, "py_func", None)
            if body is None or own in known:
                continue
            home = body.__module__
            if home != module.__name__:
                names[own] = (done.get(home) or self._interpreted(sys.modules[home], known, done))[body.__name__]
            else:
                names[own] = FunctionType(body.__code__, names)
        return names


def test_a_worker_that_looks_for_work_offers_its_core_after_a_while() -> None:
    """And again that much later, for as long as it looks."""
    world = World()
    world.words[WORKER + layout.W_SPIN] = 100_000
    assert not world.run(scheduling, "look_around", DEVICE, WORKER, 0, 0)
    began = world.words[WORKER + layout.W_IDLE]
    assert world.time == began + 100_000
    assert world.offered == list(range(began + scheduling.OFFER, world.time, scheduling.OFFER))
    assert world.words[DEVICE + layout.D_SPINNERS] == 0


def test_a_worker_that_finds_work_soon_has_offered_nothing() -> None:
    """What comes within that time is not missed by a thread that has gone to the end of a core's queue."""
    world = World()
    world.words[WORKER + layout.W_SPIN] = 100_000

    def watch(device: int, queue: int, owed: int) -> bool:
        return world.time >= scheduling.OFFER

    assert world.run(scheduling, "look_around", DEVICE, WORKER, 0, 0, watch=watch)
    assert world.time >= scheduling.OFFER and world.offered == []


def test_a_loops_thread_that_spins_never_offers_its_core() -> None:
    """It would get it back when others are through with it, and its timers would be as late."""
    world = World()
    replaced = {"send_away": lambda queue: False, "wake_helper": lambda device, queue: None}
    assert not world.run(guests, "spin", QUEUE, 1, 100 * scheduling.OFFER, **replaced)
    assert world.time >= 100 * scheduling.OFFER and world.offered == []
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

    found = world.run(scheduling, "find_work", DEVICE, WORKER, in_the_way=in_the_way, step_aside=step_aside)
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
    assert world.run(scheduling, "find_work", DEVICE, WORKER, **replaced) == 0
    assert moves == [] and world.words[QUEUE + layout.Q_RANGE_LINKED] == 0
