"""Spinning for what is done within microseconds, and learning where that pays.

After a spin in vain a timeline's waits park, until one of them ends so soon that a spin would have met it. Each further spin in
vain doubles how many such waits it takes; a long wait takes back half. So no waiter spins where kernels are long or the cores
are taken.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiodev._core.config import settings

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

_MOST_NS = settings.spin_us * 1000
#: A wait that took no longer (ns), its wake-up included, would have ended within a spin.
_SOON_NS = 2 * _MOST_NS
#: Most quick waits before spinning is tried again. Larger: a timeline whose work becomes short parks for longer; smaller: one
#: whose work stays long spins in vain more often.
_MOST_DOUBTS = 15


def may_wait_awake() -> bool:
    """Whether threads may spin at all."""
    return _MOST_NS > 0


def spin(timeline: Timeline, value: int) -> bool:
    """Spin for as long as it pays on this timeline; whether ``value`` was reached.

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


def note_wait(timeline: Timeline) -> None:
    """Decide, at the end of a wait that did more than spin, whether the next one spins. Of several at once, each counts."""
    if time.monotonic_ns() - timeline.parked_at > _SOON_NS:
        timeline.quick_waits = max(0, timeline.quick_waits // 2)
    elif not timeline.spin_ns:
        timeline.quick_waits += 1
        if timeline.quick_waits >= timeline.spin_doubts:
            timeline.spin_ns = _MOST_NS
