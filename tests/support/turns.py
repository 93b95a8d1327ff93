"""A clock that only the test moves, a count of the loop's turns, and coroutines that are to need none."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

from aiodev._core.tuning import PERIOD_NS
from aiodev._core.waiting import fairness

WORK = 3 * PERIOD_NS // 2
_SECOND = 10**9
_T = TypeVar("_T")


def put_off_turns() -> None:
    """Have no turn of a loop be due for a second, whoever awaits what needs no waiting."""
    fairness.budget.renew(fairness.clock() + _SECOND)


def run_at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine that has nothing to wait for comes to, outside of any task."""
    put_off_turns()
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    raise AssertionError(f"{coroutine} waits")


class Clock:
    """Time that passes when somebody works."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        """As a module's ``time`` it has the one function that the core asks for the time between two looks."""
        return self.now

    def work(self, duration: int = WORK) -> None:
        """Take so many ns."""
        self.now += duration


class Turns:
    """Counts the turns of the running loop while the block lasts."""

    def __init__(self) -> None:
        self.count = 0
        self._group = anyio.create_task_group()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await anyio.lowlevel.checkpoint()

    async def __aenter__(self) -> Turns:
        await self._group.__aenter__()
        self._group.start_soon(self._run)
        for _ in range(5):  # until nobody takes turns
            await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
