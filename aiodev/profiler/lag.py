"""The loop's lag: how late a timer of the running loop is."""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from aiodev._core.arguments import message, number
from aiodev._core.waiting.loops import loop_runs_here, running_loop
from aiodev._core.waiting.reactor import others_first
from aiodev.profiler.tuning import BEATS_KEPT

__all__ = ["Beat", "LoopLag", "loop_lag", "recent_lags"]


#: Those that measure now.
measuring: weakref.WeakSet[LoopLag] = weakref.WeakSet()


class Beat(NamedTuple):
    """One beat of a timer.

    Example:
        >>> from aiodev.profiler import Beat
        >>> Beat(time_ns=5_000_000, lag_ns=20_000).lag_ns
        20000
    """

    time_ns: int  #: when it came, by ``time.perf_counter_ns``
    lag_ns: int  #: how much later than it was due


def loop_lag(period: float = 0.001) -> LoopLag:
    """Measure how late the running loop's timers are, for as long as the block runs.

    A timer of the loop is due every ``period`` seconds. What holds the loop (a callback that computes, a call that blocks) has
    it come late by as much. A beat that is late delays the next one, as in any program that sleeps in a loop: one stall counts
    once. A beat takes the loop about 10 µs.

    Args:
        period: seconds between two beats.

    Returns:
        an async context manager, which gives a :class:`LoopLag`.

    Raises:
        ValueError: ``period`` is not positive.
        RuntimeError: on entering, no loop of asyncio, uvloop or trio is running.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.loop_lag() as lag:
        ...         await asyncio.sleep(0.01)
        ...         time.sleep(0.05)  # as a call that blocks
        ...     return lag.max >= 0.04
        >>> import time
        >>> asyncio.run(main())
        True
    """
    period = number("loop_lag", "period", period)
    if not 0 < period < math.inf:
        raise ValueError(message("loop_lag", "period", "a positive number of seconds", period))
    return LoopLag(period)


class LoopLag:
    """The lag of a loop, in seconds; what :func:`loop_lag` gives.

    Attributes:
        period: seconds between two beats.
        beats: the beats so far, at most the last million.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.loop_lag(0.001) as lag:
        ...         await asyncio.sleep(0.01)
        ...     return lag.percentile(50) <= lag.percentile(99) <= lag.max
        >>> asyncio.run(main())
        True
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self.beats: deque[Beat] = deque(maxlen=BEATS_KEPT)
        self._due = 0
        self._cancel: Callable[[], object] | None = None

    async def __aenter__(self) -> LoopLag:
        await others_first
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to measure in the loop of this thread."""
        if not loop_runs_here():
            raise RuntimeError("no event loop of asyncio, uvloop or trio is running in this thread")
        self._due = time.perf_counter_ns() + self._period_ns
        measuring.add(self)
        loop = running_loop()
        if loop is not None:
            self._cancel = _Timer(loop, self.period, self.beat).cancel
            return
        trio = sys.modules["trio"]
        scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(_beat_on_trio, trio, scope, self.period, self.beat, name="aiodev.profiler.loop_lag")
        self._cancel = scope.cancel

    def stop(self) -> None:
        """Measure no longer. A beat that is overdue counts: the loop is held until now."""
        measuring.discard(self)
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
            if time.perf_counter_ns() > self._due:
                self.beat()

    @property
    def _period_ns(self) -> int:
        return int(self.period * 1e9)

    def beat(self) -> None:
        """Note a beat, and when the next one is due."""
        now = time.perf_counter_ns()
        self.beats.append(Beat(now, max(0, now - self._due)))
        self._due = now + self._period_ns

    def __len__(self) -> int:
        """How many beats there were."""
        return len(self.beats)

    @property
    def max(self) -> float:
        """The longest lag; 0 before the first beat."""
        return max((beat.lag_ns for beat in list(self.beats)), default=0) / 1e9

    @property
    def mean(self) -> float:
        """The mean lag; 0 before the first beat."""
        return sum(beat.lag_ns for beat in list(self.beats)) / max(1, len(self.beats)) / 1e9

    def percentile(self, q: float) -> float:
        """The ``q``-th percentile of the lag, from 0 to 100; 0 before the first beat.

        Raises:
            ValueError: ``q`` is beyond that.
        """
        if not 0 <= number("percentile", "q", q) <= 100:
            raise ValueError(message("percentile", "q", "a number from 0 to 100", q))
        ordered = sorted(beat.lag_ns for beat in list(self.beats))
        return ordered[min(len(ordered) - 1, int(q / 100 * len(ordered)))] / 1e9 if ordered else 0.0

    def __reduce__(self) -> NoReturn:
        """It is of a loop."""
        raise TypeError("the lag of a loop is not pickled or copied: that loop is measured; copy its beats")

    def __repr__(self) -> str:
        median, rare, most = (f"{1e3 * lag:.3g} ms" for lag in (self.percentile(50), self.percentile(99), self.max))
        return f"<aiodev.profiler.LoopLag median {median}, 99 % {rare}, max {most} in {len(self)} beats>"


def recent_lags(seconds: float = 10.0) -> list[int]:
    """The lags (ns) that were measured lately, of all loops, ascending."""
    since = time.perf_counter_ns() - int(1e9 * seconds)
    lags: list[int] = []
    for lag in list(measuring):
        for beat in reversed(list(lag.beats)):
            if beat.time_ns < since:
                break
            lags.append(beat.lag_ns)
    return sorted(lags)


class _Timer:
    """A timer of asyncio or uvloop that comes again and again."""

    def __init__(self, loop: Any, period: float, callback: Callable[[], object]) -> None:
        self._loop, self._period, self._callback = loop, period, callback
        self._handle = loop.call_later(period, self._run)

    def _run(self) -> None:
        self._callback()
        self._handle = self._loop.call_later(self._period, self._run)

    def cancel(self) -> None:
        """Let it not come again."""
        self._handle.cancel()


async def _beat_on_trio(trio: Any, scope: Any, period: float, callback: Callable[[], object]) -> None:
    with scope:
        while True:
            await trio.sleep(period)
            callback()
