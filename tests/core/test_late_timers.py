"""Random programs of awaits that need no waiting: how late timers are, and how long others wait, by a clock that they move.

The documented bound: a timer is late by no more than the longest stretch of work between two awaits, and a period. And where
others are ready, none goes on for longer than its share and such a stretch; three times as long where it is the last of a turn
and the first of the next, as trio may have it, or where others come when it has used up the share, and the period.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import anyio
import pytest
from turns import Clock

import aiodev
from aiodev import memory
from aiodev._core.tuning import PERIOD_NS, SHARE_NS
from aiodev._core.waiting import fairness

LOOPS = ["asyncio", "trio"]  # uvloop's timers have a clock of their own
#: What a stretch between two awaits takes, in ns.
STRETCHES = (0, 1_000, 5_000, 20_000, 100_000, 500_000, 2_000_000)
SECOND = 1_000_000_000


class Program:
    """Tasks, each of which awaits and works in turns; a task of which the timer is; and what they have seen.

    Attributes:
        latest: by how many ns a timer was late, at most.
        runs: for how long a task has gone on while others were there.
    """

    def __init__(self, seed: int, clock: Clock) -> None:
        chance = random.Random(seed)
        stretches = chance.sample(STRETCHES, chance.randint(1, 4))
        self.clock, self.longest = clock, max(stretches)
        self.latest, self.runs = 0, [0]
        self._kinds = chance.sample(range(len(AWAITS)), chance.randint(1, 4))
        self._steps = [
            [(chance.choice(self._kinds), chance.choice(stretches)) for _ in range(chance.randint(20, 200))]
            for _ in range(chance.randint(1, 8))
        ]
        self._delays = [chance.randrange(1, 3_000_000) for _ in range(200)]
        self._left, self._running = len(self._steps), -1

    async def run(self) -> None:
        """Run all of it, in whatever loop this is."""
        self._ready = await Ready().prepare()
        self.clock.now = 0
        fairness.budget.renew(0)
        async with anyio.create_task_group() as beats:
            beats.start_soon(self._beat)
            async with anyio.create_task_group() as tasks:
                for number, steps in enumerate(self._steps):
                    tasks.start_soon(self._task, number, steps)
            beats.cancel_scope.cancel()  # its clock stands still

    async def _task(self, number: int, steps: list[tuple[int, int]]) -> None:
        for kind, duration in steps:
            await AWAITS[kind](self._ready)
            if self._running != number or self._left == 1:
                self._running = number
                self.runs.append(0)
            self.clock.work(duration)
            self.runs[-1] += duration
        self._left -= 1

    async def _beat(self) -> None:
        for delay in self._delays:
            due = self.clock.now + delay
            await anyio.sleep(delay / SECOND)
            self.latest = max(self.latest, self.clock.now - due)
            self._running = -1


class Ready:
    """What there is to await; all of it is done."""

    async def prepare(self) -> Ready:
        self.stream, self.event = aiodev.Stream("cpu"), aiodev.Event("cpu")
        self.call = self.stream.call(int)
        await self.call
        self.array, self.one = aiodev.ones(4, "float64", "cpu"), aiodev.ones((), "float64", "cpu")
        await self.array.numpy()
        await self.one.item()
        return self

    async def result(self) -> None:
        await self.call

    async def guard(self) -> None:
        async with self.stream:
            pass

    async def device(self) -> None:
        async with aiodev.device("cpu"):
            pass

    async def lease(self) -> None:
        async with memory.lease(1, "cpu"):
            pass


AWAITS: list[Callable[[Ready], Awaitable[object]]] = [
    Ready.result, Ready.guard, Ready.device, Ready.lease, lambda r: r.array.numpy(), lambda r: r.array.tolist(),
    lambda r: r.one.item(), lambda r: r.stream.synchronize(), lambda r: r.event.synchronize(), lambda r: aiodev.init("cpu"),
]  # fmt: skip


def run_on_asyncio(program: Program) -> None:
    """In a loop whose timers follow the program's clock."""

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return program.clock.now / SECOND

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(program.run())


def run_on_trio(program: Program) -> None:
    """In a loop whose timers follow the program's clock."""
    trio = pytest.importorskip("trio")

    class Time(trio.abc.Clock):  # type: ignore[misc, name-defined]
        def start_clock(self) -> None: ...

        def current_time(self) -> float:
            return program.clock.now / SECOND

        def deadline_to_sleep_time(self, deadline: float) -> float:
            return max(0.0, deadline - self.current_time())

    trio.run(program.run, clock=Time())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(12))
def test_timers_are_late_by_no_more_than_a_stretch_and_a_period(clock: Clock, seed: int, loop: str) -> None:
    """Whatever is awaited, by however many tasks; and those have their turns."""
    program = Program(seed, clock)
    (run_on_asyncio if loop == "asyncio" else run_on_trio)(program)
    assert program.latest <= PERIOD_NS + program.longest
    assert max(program.runs) <= 3 * (SHARE_NS + program.longest)
