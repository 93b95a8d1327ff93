"""Pools that nobody will allocate from again, while work uses their memory, or arrays have it.

**Problem.** A pool is dropped, and what is free in it goes back at once. The rest is to follow when the work that uses it is
done, and the arrays are gone. No thread waits for that, and the program may never call :func:`empty_cache`; but a pool for each
request must not leave a segment behind.

**How.** What still uses the pool's free memory is noted: of each timeline the last operation. The device's allocator asks by
turns whether all of that is done, a few pools whenever a pool is made or dropped, or memory is looked for. Beside that the
note is among the blocks whose timelines the device's allocator is to forget, so that a program which frees anything there
comes across it. In the pool itself an alarm is the first of those blocks: nothing uses it, so that each release of one of the
pool's buffers calls Python's code, and the pool learns of it.

Invariants:

1.  A pool that nobody will allocate from is empty; or it has live blocks, whose release it learns of; or its note waits, in the
    device's turns; or a graph uses it, and says so when it is gone.
2.  A pool is looked through when all is done that was noted, and when half of the blocks that were live then are released:
    that is seldom, however many arrays outlive it.
3.  Buffers are released wherever the garbage collector likes. No release waits for the lock, nor touches what this thread is at
    work on: that is left to the next turn.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.sigint import sigint_held
from aiodev._memory.block import FREE, Block, Segment
from aiodev._memory.tuning import TURNS

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._memory.segments import Segments

__all__ = ["Abandonment", "Pool", "take_turns"]


class Pool(Protocol):
    """What is asked of a pool; see :class:`~aiodev._memory.slow_path.SlowPath`."""

    segments: Segments
    pending: deque[Block]
    noticed: deque[Block]
    turns: deque[Abandonment]
    lock: threading.RLock
    looking: bool
    is_parents: bool

    def empty(self) -> int:
        """Give back what is free, and no work uses."""


class Abandonment(Block):
    """The note of what an abandoned pool waits for.

    Attributes:
        points: the last operation of each timeline; None while it waits for nothing but releases.
        queued: whether it is in the device's turns.
        living: live blocks when it was looked through.
        released: blocks that were released since.
    """

    __slots__ = ("_pool", "living", "points", "queued", "released")

    def __init__(self, pool: Pool) -> None:
        super().__init__(0, 0, Segment(0, 0, pool.segments.small, growable=False), FREE)
        self._pool = pool
        self.points: dict[Timeline, int] | None = None
        self.queued = False
        self.living = self.released = 0
        pool.pending.appendleft(_Alarm(0, 0, self.segment, FREE))

    def forget(self) -> bool:
        """Give back what is free if all is done that was waited for; whether nothing is waited for now."""
        points = self.points
        if points is None:
            return True
        if any(timeline.counters[COMPLETED] < value for timeline, value in points.items()):
            return False
        return self._give_back()

    def note_release(self) -> None:
        """One of the pool's buffers was released."""
        pending = self._pool.pending
        try:
            while len(pending) > 1:
                block = pending.pop()
                if isinstance(block, _Alarm):
                    pending.appendleft(block)
                else:  # what uses it is noted here instead
                    block.listed = False
        except IndexError:  # another thread was faster
            pass
        self.released += 1
        if not self.points and 2 * self.released >= self.living:
            self._give_back()

    def note(self) -> None:
        """Note what uses the pool's memory (lock held), when what was free has gone back."""
        pool = self._pool
        if pool.looking:
            self._put_off()
            return
        if pool.is_parents or pool.segments.pins:
            self._wait_for(None)
            return
        self.released = 0
        points, self.living, is_stale = pool.segments.left_over()
        self._wait_for({} if is_stale else points or None)

    def _give_back(self) -> bool:
        pool = self._pool
        with sigint_held:
            if not pool.lock.acquire(blocking=False):
                return self._put_off()
            try:
                if pool.looking:  # this thread is at work on it, and the garbage collector came
                    return self._put_off()
                pool.empty()
                self.note()
                return self.points is None
            finally:
                pool.lock.release()

    def _put_off(self) -> bool:
        if not self.points:
            self._wait_for({})
        return False

    def _wait_for(self, points: dict[Timeline, int] | None) -> None:
        self.timeline = self.uses = None
        self.points = points
        if points is None:
            return
        if points:
            timeline, self.value = next(iter(points.items()))
            self.uses = points if len(points) > 1 else None
            self.timeline = timeline
        if not self.queued:
            self.queued = True
            self._pool.turns.append(self)
        if not self.listed:
            self.listed = True
            self._pool.noticed.append(self)


class _Alarm(Block):
    """Nothing uses it, and it stays."""

    __slots__ = ()

    def forget(self) -> bool:
        return False


def take_turns(turns: deque[Abandonment]) -> None:
    """Have the next few of the abandoned pools give back what is done with."""
    for _ in range(min(TURNS, len(turns))):
        try:
            abandonment = turns.popleft()
        except IndexError:  # another thread was faster
            return
        abandonment.queued = False
        if not abandonment.forget() and not abandonment.queued:
            abandonment.queued = True
            turns.append(abandonment)
