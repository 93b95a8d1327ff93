"""What a timeline learns about spinning: from spins, and from waits that parked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from turns import Clock

from aiodev._core.config import Settings
from aiodev._core.tuning import MOST_TRUST
from aiodev._core.usable_cores import Spin
from aiodev._core.waiting import spinning

MOST = 50_000
QUICK, SLOW = MOST, 3 * MOST


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whatever AIODEV_SPIN_US says here."""
    monkeypatch.setattr(spinning, "_MOST_NS", MOST)
    monkeypatch.setattr(spinning, "_SOON_NS", 2 * MOST)


@pytest.fixture
def waits(waiting: Clock) -> Waits:
    """A timeline that nobody has waited for yet."""
    return Waits(waiting)


class Waits:
    """A timeline whose operations take as long as it is told."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.in_vain = clock, False  #: whatever is spun for takes longer than the spin
        self.crowded = False
        self.spins: list[int] = []
        self.helps, self.done = 0, False
        self.timeline: Any = SimpleNamespace(
            parked=0,
            queue=0,
            spins=True,
            spin_doubts=0,
            quick_waits=0,
            operations=SimpleNamespace(spin=self._spin, help=self._help, is_crowded=lambda: self.crowded),
            reached=lambda value: self.done,
        )

    def _spin(self, queue: int, value: int, duration: int) -> bool:
        self.spins.append(duration)
        return not self.in_vain and self.left <= duration

    def _help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        self.helps += 1
        self.done = self.left <= duration
        return True

    def wait(self, elapsed: int) -> bool:
        """Wait for so many ns, as the reactor does; whether that spun."""
        self.left, self.done, before = elapsed, False, len(self.spins)
        if not spinning.spin(self.timeline, 1):
            self.timeline.parked_at = self.clock.now
            self.clock.work(elapsed)
            spinning.note_wait(self.timeline)
        return len(self.spins) > before


def test_spins_are_as_long_as_the_usable_cores_allow(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits park where there is one core, and spin again where there are more, for as long as those allow."""
    monkeypatch.setattr(spinning, "settings", Settings())
    assert waits.wait(QUICK)
    spinning._follow(Spin.NONE)
    assert not waits.wait(QUICK) and spinning.may_help()
    for spin, most in ((Spin.SHORT, 10_000), (Spin.FULL, 50_000)):
        spinning._follow(spin)
        assert waits.wait(most) and spinning.may_help()
        assert waits.spins[-1] == most


def test_what_a_short_spin_would_miss_is_no_reason_to_spin(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that a full spin would meet park, each after the other, where only short ones are allowed."""
    monkeypatch.setattr(spinning, "settings", Settings())
    spinning._follow(Spin.SHORT)
    assert [waits.wait(QUICK) for _ in range(100)] == [True] + 99 * [False]


def test_where_nobody_spins_what_can_be_done_at_once_is_helped_with(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a single core. Behind something longer there is a wait that was quick enough, and then it is tried again."""
    monkeypatch.setattr(spinning, "settings", Settings())
    spinning._follow(Spin.NONE)
    helped = []
    for elapsed in (QUICK, QUICK, SLOW, QUICK, QUICK, QUICK):
        before = waits.helps
        assert not waits.wait(elapsed)
        helped.append(waits.helps > before)
    assert helped == [True, True, True, False, True, True]
    monkeypatch.setattr(spinning, "settings", Settings(spin_us=0))
    waits.wait(QUICK)
    assert waits.helps == 5


def test_quick_operations_are_spun_for(waits: Waits) -> None:
    assert all(waits.wait(QUICK) for _ in range(10))
    assert waits.spins == [MOST] * 10


def test_long_operations_are_not(waits: Waits) -> None:
    assert waits.wait(SLOW)
    assert not any(waits.wait(SLOW) for _ in range(1000))


def test_in_a_crowd_nothing_is_learnt_of_spins(waits: Waits) -> None:
    """They end at once there, or have no core; when the others are gone they pay as they did."""
    assert waits.wait(QUICK)
    waits.crowded = True
    assert all(waits.wait(SLOW) for _ in range(100))
    waits.crowded = False
    assert waits.wait(QUICK) and waits.wait(SLOW) and not waits.wait(SLOW)


def test_one_spin_in_vain_among_many_others_is_forgiven(waits: Waits) -> None:
    """A system keeps every thread from its core now and then; the second one in a row counts."""
    assert all(waits.wait(QUICK) for _ in range(MOST_TRUST))
    assert [waits.wait(elapsed) for elapsed in (SLOW, QUICK, SLOW, QUICK)] == [True, True, True, False]
    assert [waits.wait(elapsed) for elapsed in (QUICK, QUICK, *MOST_TRUST * [QUICK])][-MOST_TRUST:] == MOST_TRUST * [True]
    assert [waits.wait(elapsed) for elapsed in (SLOW, SLOW, QUICK)] == [True, True, False]


def test_after_a_slow_beginning_two_quick_waits_suffice(waits: Waits) -> None:
    """As after a pause, when cores have to wake up first."""
    assert [waits.wait(elapsed) for elapsed in (SLOW, SLOW, QUICK, QUICK, QUICK)] == [True, False, False, True, True]


def test_spins_in_vain_become_rare_where_parked_waits_are_quick(waits: Waits) -> None:
    """As with a foreign process on the core that the worker needs: it runs only while nobody spins."""
    waits.in_vain = True
    for _ in range(6500):
        waits.wait(QUICK)
    assert 390 <= len(waits.spins) <= 420


def test_long_operations_in_between_leave_spinning_off(waits: Waits) -> None:
    """One long, one short: each short one alone would have paid, each long one would have been in vain."""
    spun = sum(waits.wait(SLOW if turn % 2 == 0 else QUICK) for turn in range(1000))
    assert spun <= 3


def test_spins_that_pay_take_doubts_back(waits: Waits) -> None:
    for _ in range(4):
        waits.timeline.spins = True
        waits.wait(SLOW)
    assert waits.timeline.spin_doubts == 15
    waits.timeline.spins = True
    for _ in range(4):
        waits.wait(QUICK)
    assert waits.timeline.spin_doubts == 0


def test_nobody_spins_where_others_are_parked_or_nothing_may(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    waits.timeline.parked = 1
    assert not waits.wait(QUICK)
    waits.timeline.parked = 0
    monkeypatch.setattr(spinning, "settings", Settings(spin_us=0))
    spinning._follow(Spin.FULL)
    assert not any(waits.wait(QUICK) for _ in range(100)) and not waits.helps
