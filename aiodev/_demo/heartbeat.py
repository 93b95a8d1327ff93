"""A 1 ms timer on the event loop that notes how late each of its beats is."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

import numpy as np

__all__ = ["PERIOD", "Heartbeat", "Lag"]

PERIOD = 0.001  #: seconds


class Lag:
    """How late the beats of a heartbeat were, in milliseconds."""

    def __init__(self) -> None:
        self._late: list[float] = []

    def extend(self, late_ms: list[float]) -> None:
        """Add the lateness of further beats."""
        self._late.extend(late_ms)

    @property
    def count(self) -> int:
        """Number of beats."""
        return len(self._late)

    @property
    def worst(self) -> float:
        """The latest beat, in ms."""
        return max(self._late, default=0.0)

    def percentile(self, q: float) -> float:
        """The ``q``-th percentile of the lateness, in ms."""
        return float(np.percentile(self._late, q)) if self._late else 0.0


class Heartbeat:
    """Beats every millisecond while its block runs.

    A beat that comes late delays the next one, as in any program that sleeps in a loop; so one stall counts once.

    Attributes:
        times: when each beat came, in ns of ``time.perf_counter_ns``.
        late_ms: how late it came, in ms.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.late_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Heartbeat:
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)  # so that the first period starts before the body does
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        # A stall that lasts until now has a beat that is due: let it be noted before the task ends.
        await asyncio.sleep(2 * PERIOD)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _beat(self) -> None:
        before = time.perf_counter_ns()
        while True:
            await asyncio.sleep(PERIOD)
            now = time.perf_counter_ns()
            self.times.append(now)
            self.late_ms.append((now - before) / 1e6 - 1e3 * PERIOD)
            before = now
