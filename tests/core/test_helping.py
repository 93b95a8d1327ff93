"""Which tasks help, and for how long their loop waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aiodev._core import reactor


@pytest.fixture(autouse=True)
def spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever AIODEV_SPIN_US says here."""
    monkeypatch.setattr(reactor, "_MOST_NS", 50_000)


class Work:
    """A timeline with work for ``turns`` turns of 200 us."""

    def __init__(self, turns: int) -> None:
        self.left = turns
        self.helped: list[tuple[int, int]] = []  #: duration, descriptor
        self.timeline: Any = SimpleNamespace(
            parked=0, queue=0, operations=SimpleNamespace(help=self._help), reached=lambda value: self.left == 0
        )

    def _help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        self.helped.append((duration, descriptor))
        time.sleep(0.0002)
        self.left -= 1
        return True

    async def wait(self) -> bool:
        return await _Awaitable(lambda: reactor.help(self.timeline, 1))


class _Awaitable:
    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin

    def __await__(self) -> Any:
        return self._begin()


async def test_a_task_helps_while_its_loop_has_nothing_else_to_do() -> None:
    work = Work(5)
    assert await work.wait()
    assert len(work.helped) == 5
    assert all(0 < duration <= reactor._TURN_NS and descriptor >= 0 for duration, descriptor in work.helped)


async def test_no_task_helps_when_others_have_their_turn() -> None:
    work = Work(5)
    asyncio.get_running_loop().call_soon(lambda: None)
    assert not await work.wait() and work.helped == []


def test_no_task_helps_when_its_loop_is_to_stop() -> None:
    work, loop = Work(5), asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    task = loop.create_task(work.wait())
    loop.run_forever()
    assert work.helped == []
    assert not loop.run_until_complete(task)
    loop.close()


async def test_a_task_helps_until_the_next_timer() -> None:
    work = Work(1)
    timer = asyncio.get_running_loop().call_later(0.005, lambda: None)
    assert await work.wait()
    assert work.helped[0][0] <= 5_000_000
    timer.cancel()


async def test_one_task_helps_at_a_time_and_a_cancelled_one_no_more() -> None:
    first, second = Work(10), Work(1)
    helping = reactor.help(first.timeline, 1)
    next(helping)
    assert not await second.wait() and second.helped == []
    with pytest.raises(asyncio.CancelledError):
        helping.throw(asyncio.CancelledError())
    assert await second.wait()


def test_loops_that_cannot_be_looked_into_are_not_kept_from_others() -> None:
    """A fifth of the time at most, however long the work, and however many tasks wait."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> tuple[int, int]:
        works = [Work(1000) for _ in range(10)]
        began = time.monotonic_ns()
        while time.monotonic_ns() < began + 50_000_000:
            await asyncio.gather(*(work.wait() for work in works))
        helped = [duration for work in works for duration, descriptor in work.helped]
        assert set(helped) == {reactor._BLIND_TURN_NS}
        return len(helped) * 200_000, time.monotonic_ns() - began

    helped, elapsed = uvloop.run(main())
    assert 0 < helped <= elapsed // 4
