"""Wait sets over a backend that fires when the test says so."""

from __future__ import annotations

import select
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS
from aiodev._core.waiting import waitset
from aiodev._core.waiting.waitset import WaitSet


class Bells:
    """What a wait set needs of a backend.

    Attributes:
        armed: values, in order.
        fired: queues that ``collect`` names next.
        broken: ``arm`` raises.
    """

    def __init__(self) -> None:
        self.armed: list[int] = []
        self.fired: list[int] = []
        self.collected = 0
        self.broken = False
        self.counters = [0] * COUNTER_WORDS

    def line(self) -> Any:
        """Its timeline."""
        return SimpleNamespace(operations=self, queue=7, counters=self.counters, parked=0)

    def create_waker(self, descriptor: int) -> int:
        return descriptor

    def arm(self, queue: int, value: int, waker: int) -> bool:
        if self.broken:
            raise OSError("no bell rings any more")
        self.armed.append(value)
        return self.counters[COMPLETED] < value

    def collect(self, waker: int) -> list[int]:
        self.collected += 1
        fired, self.fired = self.fired, []
        return fired


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[WaitSet[str]]:
    """A wait set whose descriptor has no other owner, before or after."""
    monkeypatch.setattr(waitset, "_descriptors", [])
    made: WaitSet[str] = WaitSet()
    yield made
    made.recycle()
    made.descriptor.close()


def is_readable(waits: WaitSet[str]) -> bool:
    """Whether who polls the descriptor would wake up."""
    return bool(select.select([waits.descriptor.read_end], [], [], 0)[0])


def test_who_comes_too_late_leaves_the_others_armed(waits: WaitSet[str]) -> None:
    """A failed attempt at a lower value may have taken the place of the one that was armed: the rest is looked at again."""
    bells = Bells()
    line = bells.line()
    assert waits.add(line, 5, "high")
    bells.counters[COMPLETED] = 3
    assert not waits.add(line, 2, "low")
    assert is_readable(waits)
    assert waits.collect() == [] and bells.armed == [5, 2, 5]
    assert not is_readable(waits)
    bells.counters[COMPLETED], bells.fired = 5, [7]
    assert waits.collect() == ["high"]
    assert line.parked == 0 and len(waits) == 0


def test_all_that_is_reached_comes_at_once(waits: WaitSet[str]) -> None:
    """Whoever waits for the same value, and for lower ones; the lowest of the others is armed."""
    bells = Bells()
    line = bells.line()
    for value, token in ((4, "d"), (2, "b"), (2, "also b"), (9, "i")):
        assert waits.add(line, value, token)
    assert bells.armed == [4, 2] and line.parked == 1 and len(waits) == 4
    bells.counters[COMPLETED], bells.fired = 6, [7]
    assert waits.collect() == ["b", "also b", "d"]
    assert bells.armed == [4, 2, 9] and len(waits) == 1
    waits.discard(line, 9, "i")
    assert line.parked == 0 and len(waits) == 0


def test_wakers_of_earlier_owners_are_collected_too(waits: WaitSet[str]) -> None:
    """One that fired for them would stay silent for the next who waits."""
    bells = Bells()
    waits.descriptor.waker(bells)
    bells.fired = [7]
    assert waits.collect() == [] and bells.collected == 1


def test_who_cannot_be_waited_for_any_more_is_woken(waits: WaitSet[str], caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits tries again, and gets the error; it is logged, and waiters of other timelines are not kept waiting."""
    bells, others = Bells(), Bells()
    line, other = bells.line(), others.line()
    assert waits.add(line, 5, "high") and waits.add(other, 1, "other")
    bells.counters[COMPLETED], bells.fired, bells.broken = 3, [7], True
    others.counters[COMPLETED], others.fired = 1, [7]
    assert sorted(waits.collect()) == ["high", "other"]
    assert "cannot be waited for" in caplog.text
    assert line.parked == other.parked == 0


def test_a_descriptor_goes_to_one_next_owner(waits: WaitSet[str]) -> None:
    """However often its set is done with; with nobody parked any more."""
    line = Bells().line()
    assert waits.add(line, 5, "high")
    waits.recycle()
    waits.recycle()
    assert waitset._descriptors == [waits.descriptor] and line.parked == 0


def test_a_descriptor_of_the_parent_goes_to_nobody(waits: WaitSet[str]) -> None:
    """In a forked child: the parent reads it."""
    waits.descriptor.process += 1  # as if this were another one
    waits.recycle()
    assert waitset._descriptors == []
