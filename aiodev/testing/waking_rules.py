"""Rules about waiting on the host: bounded spins, and wakers that lose no wake-up."""

from __future__ import annotations

import os
import random
import select
import threading
import time
from contextlib import suppress

from aiodev.testing.rule import rule
from aiodev.testing.workbench import Lane, Workbench

__all__ = ["RULES"]

_SECOND = 1_000_000_000
_MS = 1_000_000


class _Bell:
    """A waker and the pipe that it writes to."""

    def __init__(self, bench: Workbench) -> None:
        self._executor, self._patience = bench.executor, bench.patience
        self._reading, writing = bench.pipe()
        self.waker = bench.executor.create_waker(writing)

    def arm(self, lane: Lane, value: int) -> bool:
        return self._executor.arm(lane.number, value, self.waker)

    def rung(self, timeout: float = 0.0) -> int:
        """Bytes that were written since the last call."""
        if not select.select([self._reading], [], [], timeout)[0]:
            return 0
        return len(os.read(self._reading, 1 << 16))

    def wait_for(self, lane: Lane) -> None:
        """Sleep until the bell rings for ``lane``; spurious rings are allowed."""
        deadline = time.monotonic() + self._patience
        while True:
            assert self.rung(max(0.0, deadline - time.monotonic())), f"no wake-up came for {lane!r}"
            if lane.number in self.collect():
                return

    def collect(self) -> list[int]:
        return self._executor.collect(self.waker)


@rule
def spin_returns_at_once_for_a_reached_value(bench: Workbench) -> None:
    """``spin`` is true for a value that is reached, whatever the duration, zero included."""
    lane, chain = bench.lane(), bench.chain(1, 2)
    value = lane.copy_chain(chain)
    lane.reach(value)
    assert lane.spin(value, 0) and lane.spin(value, _SECOND) and lane.spin(0, 0)


@rule
def spin_ends_when_its_time_is_over(bench: Workbench) -> None:
    """``spin`` for a value that is not reached is false after its duration, and soon after."""
    lane = bench.lane()
    value, _ = lane.gate()
    assert not lane.spin(value, 0)
    begin = time.perf_counter()
    assert not lane.spin(value, _SECOND // 20)
    took = time.perf_counter() - begin
    assert 0.045 < took < 5, f"spinning for 0.05 s took {took:.3f} s"


@rule
def spin_lets_other_threads_run(bench: Workbench) -> None:
    """``spin`` waits without the GIL: a thread that needs it can bring about what is waited for."""
    lane = bench.lane()
    value, gate = lane.gate()
    opener = threading.Thread(target=bench.open, args=(gate,))
    opener.start()
    begin = time.perf_counter()
    reached = lane.spin(value, int(bench.patience * _SECOND))
    took = time.perf_counter() - begin
    opener.join()
    assert reached and took < bench.patience / 2, f"another thread opened a gate only after {took:.1f} s of spinning"


@rule
def help_does_what_it_says(bench: Workbench) -> None:
    """``help`` is false behind a shut gate, and what it does some of is done once, however often it is called."""
    lane, chain = bench.lane(), bench.chain(1, 3)
    shut, gate = lane.gate()
    value = lane.copy_chain(chain)
    for _ in range(3):
        lane.help(value, _SECOND)
        assert lane.completed < shut, "help went through a shut gate"
    assert not lane.help(value, _SECOND), "help says again and again that there is something to do, behind a shut gate"
    bench.open(gate)
    while lane.help(value, _MS) and lane.completed < value:
        pass
    lane.reach(value)
    assert bench.last(chain) == 1, "not everything was done, or not in order"


@rule
def arm_refuses_a_reached_value(bench: Workbench) -> None:
    """``arm`` is false, and the waker does not fire, when the value has been reached already."""
    lane, chain = bench.lane(), bench.chain(1, 2)
    value = lane.copy_chain(chain)
    lane.reach(value)
    bell = _Bell(bench)
    assert not bell.arm(lane, value)
    bench.pass_time()
    assert bell.rung() == 0 and bell.collect() == [], "a waker fired although arm had said that it would not"


@rule
def an_armed_waker_fires_once(bench: Workbench) -> None:
    """An armed waker writes when the value is reached, and ``collect`` names the queue then, once, and not before."""
    lane, bell = bench.lane(), _Bell(bench)
    value, gate = lane.gate()
    assert bell.arm(lane, value)
    bench.pass_time()
    assert bell.collect() == [], "a queue is named before its armed value was reached"
    bench.open(gate)
    bell.wait_for(lane)
    assert lane.completed >= value
    _, gate = lane.gate()
    bench.open(gate)
    lane.finish()
    bench.pass_time()
    assert bell.collect() == [], "a queue is named again without having been armed again"


@rule
def arming_lower_replaces(bench: Workbench) -> None:
    """Arming one waker on one queue again for a lower value brings the wake-up forward."""
    lane = bench.lane()
    low, low_gate = lane.gate()
    high, high_gate = lane.gate()
    bell = _Bell(bench)
    assert bell.arm(lane, high) and bell.arm(lane, low)
    bench.open(low_gate)
    bell.wait_for(lane)
    assert lane.completed >= low
    assert bell.arm(lane, high)
    bench.open(high_gate)
    bell.wait_for(lane)
    assert lane.completed >= high


@rule
def arming_higher_keeps_the_lower(bench: Workbench) -> None:
    """Arming one waker on one queue again for a higher value does not put the wake-up off."""
    lane = bench.lane()
    low, low_gate = lane.gate()
    high, _ = lane.gate()
    bell = _Bell(bench)
    assert bell.arm(lane, low) and bell.arm(lane, high)
    bench.open(low_gate)
    bell.wait_for(lane)
    assert low <= lane.completed < high


@rule
def wakers_of_one_queue_are_independent(bench: Workbench) -> None:
    """Each of several wakers on one queue fires at its own value."""
    lane = bench.lane()
    points = [lane.gate() for _ in range(4)]
    first = _Bell(bench)
    second = _Bell(bench)
    third = _Bell(bench)
    assert first.arm(lane, points[2][0]) and second.arm(lane, points[0][0]) and third.arm(lane, points[2][0])
    bench.open(points[0][1])
    second.wait_for(lane)
    bench.open(points[1][1])
    lane.reach(points[1][0])
    bench.open(points[2][1])
    first.wait_for(lane)
    third.wait_for(lane)


@rule
def wake_ups_coalesce(bench: Workbench) -> None:
    """However many queues reach their armed value between two calls of ``collect``, it writes once; all are named."""
    lanes = bench.lanes(20)
    points = [lane.gate() for lane in lanes]
    bell = _Bell(bench)
    for lane, (value, _) in zip(lanes, points, strict=True):
        assert bell.arm(lane, value)
    for lane, (value, gate) in zip(lanes, points, strict=True):
        bench.open(gate)
        lane.reach(value)
    named, written = set[int](), 0
    deadline = time.monotonic() + bench.patience
    while len(named) < len(lanes) and time.monotonic() < deadline:
        rung = bell.rung(1.0)
        assert rung in (0, 8), f"a waker wrote {rung} bytes between two calls of collect"
        written += rung
        named.update(bell.collect())
    assert named == {lane.number for lane in lanes}, "a queue that reached its armed value was not named"


@rule
def no_wake_up_is_lost(bench: Workbench) -> None:
    """Completion at any moment around ``arm`` either makes it false or fires the waker: 4,000 random trials."""
    lane, chain = bench.lane(), bench.chain(1, 2)
    chance = random.Random(1)
    bell = _Bell(bench)
    for _ in range(4000):
        value = 0
        for _ in range(chance.randrange(1, 4)):
            value = lane.copy_word(chain[1], chain[0])
        for _ in range(chance.randrange(3) * chance.randrange(200)):
            pass
        if bell.arm(lane, value):
            bell.wait_for(lane)
        assert lane.completed >= value, "a waker fired for a value that was not reached"


@rule
def no_wake_up_is_lost_among_many_queues(bench: Workbench) -> None:
    """No wake-up is lost where 16 queues complete around ``arm`` and share a waker, whose wake-ups coalesce."""
    lanes, chain = bench.lanes(16), bench.chain(1, 2)
    bell = _Bell(bench)
    for _ in range(200):
        waiting = set()
        for lane in lanes:
            if bell.arm(lane, lane.copy_word(chain[1], chain[0])):
                waiting.add(lane.number)
        while waiting:
            assert bell.rung(bench.patience), f"no wake-up came; {len(waiting)} queues are waited for"
            waiting.difference_update(bell.collect())


@rule
def a_full_descriptor_stops_nothing(bench: Workbench) -> None:
    """A waker whose descriptor can take no more neither blocks the device nor loses the queue's name."""
    _, writing = bench.pipe()
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    lane = bench.lane()
    value, gate = lane.gate()
    waker = bench.executor.create_waker(writing)
    assert bench.executor.arm(lane.number, value, waker)
    bench.open(gate)
    lane.reach(value)
    bench.until(lambda: lane.number in bench.executor.collect(waker), "a queue is not named")


RULES = (
    spin_returns_at_once_for_a_reached_value,
    spin_ends_when_its_time_is_over,
    spin_lets_other_threads_run,
    help_does_what_it_says,
    arm_refuses_a_reached_value,
    an_armed_waker_fires_once,
    arming_lower_replaces,
    arming_higher_keeps_the_lower,
    wakers_of_one_queue_are_independent,
    wake_ups_coalesce,
    no_wake_up_is_lost,
    no_wake_up_is_lost_among_many_queues,
    a_full_descriptor_stops_nothing,
)
