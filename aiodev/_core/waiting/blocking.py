"""Blocking waits, in a thread that has no loop or whose loop is to wait as well: the same ladder as in ``reactor.py``."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aiodev._core.arguments import seconds
from aiodev._core.backend.interface import BLOCKED
from aiodev._core.tuning import TURN_NS
from aiodev._core.waiting.spinning import may_help, note_wait, spin
from aiodev._core.waiting.sync_debug import about_to_block
from aiodev._core.waiting.waitset import WaitSet

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._core.waiting.reactor import Point

#: Longest sleep in seconds that ``poll`` takes; as good as for ever.
_LONGEST = 2e6
#: What a timeout is, as a rule.
_NUMBERS = (int, float)


class _ParkingPlace:
    """A thread's wait set, kept from one blocking wait to the next."""

    def __init__(self) -> None:
        self.waits: WaitSet[str] = WaitSet()
        self.poll = select.poll()
        self.poll.register(self.waits.descriptor.read_end, select.POLLIN)

    def park(self, deadline: float, timeline: Timeline, value: int) -> bool:
        """Sleep until ``timeline`` reaches ``value``; whether that was before ``deadline``."""
        waits = self.waits
        while not timeline.reached(value) and waits.add(timeline, value, "blocked"):
            left = deadline - time.monotonic()
            if left > 0:
                self.poll.poll(None if left > _LONGEST else left * 1000)
            waits.discard(timeline, value, "blocked")
            if left <= 0:
                return False
            waits.collect()
        return True


class _Thread(threading.local):
    """This thread's wait set while it does not wait, and the callbacks around its waits."""

    parking: _ParkingPlace | None = None
    leave: Callable[[], object] | None = None
    come_back: Callable[[], object] | None = None


_thread = _Thread()


def when_blocked(leave: Callable[[], object], come_back: Callable[[], object]) -> None:
    """Have ``leave`` called whenever this thread is about to sleep here, and ``come_back`` afterwards."""
    _thread.leave, _thread.come_back = leave, come_back


def wait_blocking(timeline: Timeline, value: int, timeout: float | None) -> None:
    """Block this thread until ``timeline`` reaches ``value``; Ctrl-C interrupts it.

    Raises:
        TimeoutError: ``timeout`` seconds have passed.
        TypeError, ValueError: ``timeout`` is no number of seconds.
        SyncError: it has to wait, and an event loop runs here whose task does not want that.
    """
    if timeline.deferred or not timeline.reached(value):
        wait_all_blocking([(timeline, value)], timeout)
        return
    if timeout is not None and (timeout.__class__ not in _NUMBERS or timeout != timeout):
        seconds(None, timeout)  # refuses what is no number, though there is nothing to wait for
    if timeline.needed:
        timeline.let_go()


def wait_all_blocking(points: Iterable[Point], timeout: float | None) -> None:
    """Block this thread until each of several points, (timeline, value), is reached; ``timeout`` is for all together.

    Raises:
        TimeoutError: ``timeout`` seconds have passed.
        TypeError, ValueError: ``timeout`` is no number of seconds.
        SyncError: it has to wait, and an event loop runs here whose task does not want that.
    """
    deadline = math.inf if timeout is None else time.monotonic() + seconds(None, timeout)
    told = timeout is not None and timeout <= 0  # there is nothing to tell of: it does not wait
    for timeline, value in points:
        if not told and (timeline.deferred or not timeline.reached(value)):
            about_to_block()
            told = True
        try:
            _wait_until(deadline, timeline, value)
        except _Late:
            raise TimeoutError(f"{timeline!r}: operation {value} was not done within {timeout} s") from None
        if timeline.needed:
            timeline.let_go()


class _Late(Exception):
    """Raised inside a wait when the deadline has passed."""


def _wait_until(deadline: float, timeline: Timeline, value: int) -> None:
    if timeline.deferred:
        started = threading.Event()
        timeline.handle.start_soon(lambda error: started.set())
        if not started.wait(min(deadline - time.monotonic(), threading.TIMEOUT_MAX)):
            raise _Late
    if timeline.reached(value) or _help(deadline, timeline, value):  # before a spin, which may do less than a blocked thread
        return
    if spin(timeline, value) or _help(deadline, timeline, value):
        return
    # An exception may arrive at any instruction, and a signal's handler may wait, too. So the place is taken, and put back only
    # when it is whole: whoever waits meanwhile, or after an interrupt, has another.
    place, _thread.parking = _thread.parking, None
    if place is None:
        place = _ParkingPlace()
    if _thread.leave is not None:
        _thread.leave()
    try:
        in_time = place.park(deadline, timeline, value)
    except BaseException:
        place.waits.recycle()  # the next owner of the descriptor looks at everything anew
        raise
    finally:
        if _thread.come_back is not None:
            _thread.come_back()
    _thread.parking = place
    if not in_time:
        raise _Late
    note_wait(timeline)


def _help(deadline: float, timeline: Timeline, value: int) -> bool:
    """Do a part of the work for as long as there is any to do here; whether ``value`` was reached."""
    if not timeline.parked:
        timeline.parked_at = time.monotonic_ns()
    while may_help():
        duration = min(TURN_NS, max(0, deadline - time.monotonic()) * 1e9)
        if not timeline.operations.help(timeline.queue, value, int(duration), BLOCKED):
            break
        if timeline.reached(value):
            note_wait(timeline)
            return True
    return False


def forget_places_after_fork() -> None:
    """In a forked child: its descriptor is the parent's."""
    _thread.parking = None  # which recycles it
