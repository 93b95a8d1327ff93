"""Block a timeline until other timelines' work is done, whether that failed or not.

On the device a wait for an operation that fails fails, too. So the host waits, and opens a gate.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiodev._core.streams import trace
from aiodev._core.timeline.gate import opened_on_error
from aiodev._core.timeline.vector_clock import PartialClock
from aiodev._core.waiting.watcher import watcher

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["hold_until", "waits_for_program"]


def waits_for_program(timeline: Timeline) -> bool:
    """Whether a timeline may have to wait for the program: a future, a call. Holding something until then may hold that up."""
    since, clock = timeline.frontier
    if type(clock) is PartialClock and not timeline.reached(since):
        return True  # it may be held by one of those that are left out
    return any(other.held for other in (timeline, *clock))


def hold_until(timeline: Timeline, points: Mapping[Timeline, int]) -> int | None:
    """Have what ``timeline`` is given from now on wait for operations of other timelines; their failures are not its business.

    Returns the number of the last operation of ``timeline`` that must be done; or None, and nothing is held, when one of the
    others waits for the program (a future, a call), since the program may be waiting for ``timeline``; and where the system
    refuses the thread that would wait.
    """
    if any(map(waits_for_program, points)):
        return None
    left = [(other, value) for other, value in points.items() if other is not timeline and not other.reached(value)]
    if not left:
        return points.get(timeline, 0)
    if watcher.refusal() is not None:
        return None
    gate = timeline.gate()
    countdown = threading.Semaphore(len(left) - 1)

    def reached() -> None:
        if not countdown.acquire(blocking=False):
            gate.open()

    with opened_on_error(gate):
        trace.label(timeline, gate.value, "memory", "others' work")
        for other, value in left:
            watcher.watch(other, value, reached, gate.open)
    return gate.value
