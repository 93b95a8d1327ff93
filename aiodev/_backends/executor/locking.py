"""A lock of one word, for tens of nanoseconds."""

from __future__ import annotations

from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import exchange, load, pause, sched_yield, store


@inner
def lock(address):
    turns = 0
    while exchange(address, 1) != 0:
        while load(address) != 0:
            turns += 1
            if turns & 63 == 0:
                sched_yield()
            else:
                pause()


@inner
def unlock(address):
    store(address, 0)
