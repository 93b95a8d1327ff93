"""Submissions whose use of memory has still to be noted.

A thread submits an operation, and then notes in each buffer that the operation uses it. Another thread may have a turn in
between. It finds memory that is used, and that nobody says is used: who looks whether an array is being written asks here.
"""

from __future__ import annotations

import ctypes
import time

from aiodev._core.at_fork import in_child
from aiodev._core.tuning import NOTING_PATIENCE

__all__ = ["Noting", "are_some_unnoted", "counter", "noting", "wait_until_noted"]

#: How many native code is about: it counts while it holds the GIL.
counter = ctypes.c_int64()
#: What Python is about.
noting: set[Noting] = set()


class Noting:
    """A block in which something is submitted and noted."""

    __slots__ = ()

    def __enter__(self) -> None:
        noting.add(self)

    def __exit__(self, *error: object) -> None:
        noting.discard(self)


def are_some_unnoted() -> bool:
    """Whether any thread is between a submission and its note."""
    return bool(noting) or counter.value > 0


def wait_until_noted() -> None:
    """Let those note theirs that are about it: it takes them microseconds. One that this thread has interrupted is given up."""
    if not are_some_unnoted():
        return
    until = time.monotonic() + NOTING_PATIENCE
    awaited, counts = noting.copy(), counter.value > 0
    while (counts or not awaited.isdisjoint(noting)) and time.monotonic() < until:
        time.sleep(0.00002)  # without the GIL, for which they may wait
        counts = counts and counter.value > 0


def _forget() -> None:
    """In a forked child: what the parent's threads were about."""
    noting.clear()
    counter.value = 0


in_child(_forget)
