"""A lock of one word, for tens of nanoseconds."""

from __future__ import annotations

from aiodev._backends.executor.structs import Lock
from aiodev._native.compile import inner
from aiodev._native.intrinsics import pause, sched_yield


@inner
def lock(word: Lock) -> None:
    """Have a lock; spins, and offers its core where that takes long."""
    turns = 0
    while word.held.exchange(1) != 0:
        while word.held.load() != 0:
            turns += 1
            if turns & 63 == 0:
                sched_yield()
            else:
                pause()


@inner
def try_lock(word: Lock) -> bool:
    """Have a lock if nobody has it; whether we have."""
    return word.held.exchange(1) == 0


@inner
def unlock(word: Lock) -> None:
    """Let go of a lock."""
    word.held.store(0)
