"""Spinning for what is done within microseconds, and learning where that pays.

After a spin in vain a timeline's waits park, until one is over soon enough that a spin would have met it. Where spins are in
vain again and again, it takes more and more such waits, of which a long one takes back half. So where kernels are long nobody
spins. Where other processes want the cores as well the executor ends a spin at once: its threads learn that from each other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiodev._core.config import settings

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

_MOST_NS = settings.spin_us * 1000
_SOON_NS = 2 * _MOST_NS  # a wait that took no longer, with its wake-up, a spin would have met
_MOST_DOUBTS = 15  # quick waits that it takes at most, before spinning is tried again


def may_wait_awake() -> bool:
    """Whether threads may wait without sleeping at all."""
    return _MOST_NS > 0


def spin(timeline: Timeline, value: int) -> bool:
    """Spin for as long as the timeline has learnt that it pays; whether ``value`` was reached.

    Where tasks are parked on the timeline already, others have their turn first: no spin.
    """
    if timeline.parked or not timeline.spin_ns:
        return False
    if timeline.operations.spin(timeline.queue, value, timeline.spin_ns):
        if timeline.spin_doubts:
            timeline.spin_doubts //= 2
        return True
    timeline.spin_doubts = min(_MOST_DOUBTS, 2 * timeline.spin_doubts + 1)
    timeline.spin_ns, timeline.quick_waits = 0, -1  # the rest of this wait is no evidence
    return False


def learn(timeline: Timeline) -> None:
    """A wait that did more than spin is over: whether the next one spins. Of several at once, each counts as the first does."""
    if time.monotonic_ns() - timeline.parked_at > _SOON_NS:
        timeline.quick_waits = max(0, timeline.quick_waits // 2)
    elif not timeline.spin_ns:
        timeline.quick_waits += 1
        if timeline.quick_waits >= timeline.spin_doubts:
            timeline.spin_ns = _MOST_NS
