"""Spinning for what is done within microseconds, and learning where that pays.

The most that anybody spins follows the cores that are usable (:mod:`aiodev._core.usable_cores`).

After a spin in vain a timeline's waits park, until one is over soon enough that a spin would have met it. Where spins are in
vain again and again, it takes more and more such waits, of which a long one takes back half. So where kernels are long nobody
spins. Behind many spins that were not in vain, one that was changes nothing: a system keeps every thread from its core now and
then, and to park takes as long again. Where other processes want the cores as well the executor ends a spin at once: its
threads learn that from each other, and a timeline learns nothing from that.

Who spins does short work itself meanwhile. On a single core, where nobody spins, what is left of a spin is to do that at once,
without a turn of the loop first; and waits learn in the same way whether it pays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiodev._core.config import settings
from aiodev._core.tuning import AT_ONCE_NS, MOST_DOUBTS, MOST_TRUST, SOON
from aiodev._core.usable_cores import Spin, core_watch

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

_MOST_NS = settings.spin_ns(core_watch.spin)
_SOON_NS = SOON * _MOST_NS or AT_ONCE_NS  # a wait that took no longer, with its wake-up, a spin would have met


def may_help() -> bool:
    """Whether a thread that waits may do a part of the work; on a single core, too, where nobody spins."""
    return settings.spin_us != 0


def spin(timeline: Timeline, value: int) -> bool:
    """Spin for as long as it pays on this timeline, or help where nobody spins; whether ``value`` was reached.

    Where tasks are parked on the timeline already, others have their turn first: no spin.
    """
    if timeline.parked or not timeline.spins or not may_help():
        return False
    doubts, operations, queue = timeline.spin_doubts, timeline.operations, timeline.queue
    if _MOST_NS:
        reached = operations.spin(queue, value, _MOST_NS)
    else:
        reached = operations.help(queue, value, AT_ONCE_NS, -1) and timeline.reached(value)
    if reached:
        if doubts > -MOST_TRUST:
            timeline.spin_doubts = doubts // 2 if doubts > 0 else doubts - 1
        return True
    if _MOST_NS and operations.is_crowded():
        pass  # a spin that ended at once, or a thread that was kept from its core, says nothing of how long operations take
    elif doubts <= -MOST_TRUST:  # one that is late among many that were not
        timeline.spin_doubts = 0
    else:
        timeline.spin_doubts = min(MOST_DOUBTS, 2 * max(0, doubts) + 1)
        timeline.spins = False
    timeline.quick_waits = -1  # the rest of this wait is no evidence
    return False


def note_wait(timeline: Timeline) -> None:
    """Decide, at the end of a wait that did more than spin, whether the next one spins. Of several at once, each counts."""
    if time.monotonic_ns() - timeline.parked_at > _SOON_NS:
        timeline.quick_waits = max(0, timeline.quick_waits // 2)
    elif not timeline.spins:
        timeline.quick_waits += 1
        if timeline.quick_waits >= timeline.spin_doubts:
            timeline.spins = True


def _follow(spin: Spin) -> None:
    global _MOST_NS, _SOON_NS
    _MOST_NS = settings.spin_ns(spin)
    _SOON_NS = SOON * _MOST_NS or AT_ONCE_NS


core_watch.follow(_follow, in_children=True)
