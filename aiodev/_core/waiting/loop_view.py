"""Looks into asyncio's own loops: whether a turn would find something to do.

They have had the attributes since Python 3.4. Those of uvloop, and trio, keep all of that to themselves.
"""

from __future__ import annotations

import select
import sys
from typing import Any

__all__ = ["LoopView"]


class LoopView:
    """What a loop has to do.

    Attributes:
        descriptor: becomes readable when one of those does that the loop waits for.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._ready = loop._ready
        self.is_ready(0), self.time_to_timer()  # has what that looks at
        self.descriptor: int = loop._selector.fileno()
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        self._poll = poll.poll

    @classmethod
    def of(cls, loop: Any) -> LoopView | None:
        """The view of a loop, if it can be looked into."""
        try:
            return cls(loop)
        except AttributeError:
            return None

    def is_ready(self, ours: int) -> bool:
        """Whether more callbacks are ready than ``ours``, or the loop is to stop."""
        return len(self._ready) > ours or bool(self._loop._stopping)

    def time_to_timer(self) -> int:
        """In how many ns the next timer is due."""
        timers = self._loop._scheduled
        return max(0, int((timers[0].when() - self._loop.time()) * 1e9)) if timers else sys.maxsize

    def has_work(self, ours: int) -> bool:
        """Whether a turn would find something to do, beside so many callbacks of ours."""
        loop = self._loop
        if len(self._ready) > ours or loop._stopping:
            return True
        timers = loop._scheduled
        return bool(timers and timers[0]._when <= loop.time()) or bool(self._poll(0))
