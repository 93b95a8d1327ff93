"""Graphs that are dropped before a pass has released them: they are taken apart node by node, in portions.

**Problem.** A result holds its node, that holds the nodes before, and so on: to drop the last result of a graph of 100,000
nodes frees all of them, and the arrays that they keep, in one go. That takes a tenth of a second, in which the loop of the
thread, which may be any that the collector runs in, has no turn.

**How.** A node that dies hands on what it has, in place of dropping it. Whoever is first in a thread drops what was handed
on, piece by piece, which makes the next nodes die. After a millisecond the rest is left to the loop that runs in the thread,
and goes on in its next turn; where there is none, nobody waits.

So a finalizer drops nothing that is longer than one node, and nothing recurses.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from aiodev._autograd.tuning import PIECES_A_LOOK
from aiodev._core.at_fork import in_child
from aiodev._core.tuning import PERIOD_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.loops import running_loop, trio_token

__all__ = ["hand_on", "sweep"]


class _Debris(threading.local):
    """What this thread has to drop.

    Attributes:
        pieces: the edges of nodes, and what these kept.
        is_swept: somebody drops them right now.
        loop: that goes on with them in its next turn, for as long as it runs.
    """

    def __init__(self) -> None:
        self.pieces: deque[Any] = deque()
        self.is_swept = False
        self.loop: Any = None


_debris = _Debris()


def hand_on(*pieces: Any) -> None:
    """Have what a node has dropped by :func:`sweep`."""
    _debris.pieces.append(pieces)


def sweep() -> None:
    """Drop what was handed on, now or soon, if nobody is about to."""
    debris = _debris
    if not debris.is_swept and (debris.loop is None or debris.loop is not _loop_here()):
        _sweep()


def _sweep() -> None:
    """Drop pieces, for a millisecond; the loop goes on with the rest."""
    debris = _debris
    debris.is_swept, debris.loop = True, None
    pieces = debris.pieces
    until = fairness.clock() + PERIOD_NS
    turns = 0
    try:
        while pieces:
            pieces.popleft()
            turns += 1
            if not turns % PIECES_A_LOOK and fairness.clock() >= until:
                loop, token = running_loop(), trio_token()
                with contextlib.suppress(RuntimeError):  # it is about to end
                    if loop is not None:
                        loop.call_soon_threadsafe(_sweep)
                    elif token is not None:
                        token.run_sync_soon(_sweep)
                    else:
                        continue
                    debris.loop = _loop_here()
                    return
    finally:
        debris.is_swept = False


def _loop_here() -> Any:
    """The loop that runs in this thread, or what stands for it; None where none does."""
    loop = running_loop()
    return trio_token() if loop is None else loop


def _forget_after_fork() -> None:
    _debris.loop = None  # it does not run here


in_child(_forget_after_fork)
