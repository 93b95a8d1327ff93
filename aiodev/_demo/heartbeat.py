"""How late a 1 ms timer on the event loop was, over several passes."""

from __future__ import annotations

import numpy as np

from aiodev.profiler import LoopLag

__all__ = ["Lag"]


class Lag:
    """How late the beats of a heartbeat were, in milliseconds."""

    def __init__(self) -> None:
        self._late: list[float] = []

    def extend(self, lag: LoopLag) -> None:
        """Add the lateness of further beats."""
        self._late.extend(beat.lag_ns / 1e6 for beat in lag.beats)

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
