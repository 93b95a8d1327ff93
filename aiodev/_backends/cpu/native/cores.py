"""Cores: a worker that helps leaves the core of the one that it helps.

Linux wakes a thread on the core of its waker if no other is idle at that moment, as when the event loop is just about to
park. There it would take turns with the worker that it is to help, at half the speed of both, and be left alone for tens of
milliseconds while another core idles. So it moves. Which core it moves to is the system's choice, and it stays free to be
moved: workers are bound to no core, for the sake of other processes that have as many.
"""

from __future__ import annotations

import sys

from aiodev._backends.cpu.layout import CORES_BYTES, Q_RANGE_CORE, W_CORES, W_MOVED, WORD
from aiodev._backends.cpu.native.compile import inner
from aiodev._backends.cpu.native.intrinsics import (
    get,
    now,
    put,
    sched_getaffinity,
    sched_getcpu,
    sched_setaffinity,
)

#: Where a worker can tell its core, and choose.
MOVES = sys.platform == "linux"
#: Moves of a worker are at least this long apart (ns): where all cores are taken, none helps.
MOVE_EVERY = 1_000_000

if MOVES:

    @inner
    def note_core(queue):
        """Note where the worker that opens a range runs."""
        put(queue + Q_RANGE_CORE, sched_getcpu())

    @inner
    def step_aside(worker, queue):
        """Leave the core of the worker that opened the range, unless we may not or have just done so."""
        core = sched_getcpu()
        if core < 0 or core >= 8 * CORES_BYTES or core != get(queue + Q_RANGE_CORE):
            return
        time = now()
        if time - get(worker + W_MOVED) < MOVE_EVERY:
            return
        put(worker + W_MOVED, time)
        cores = worker + W_CORES
        if sched_getaffinity(0, CORES_BYTES, cores) != 0:
            return
        others = 0
        word, bit = cores + WORD * (core >> 6), 1 << (core & 63)
        put(word, get(word) & ~bit)
        for place in range(cores, cores + CORES_BYTES, WORD):
            others |= get(place)
        if others != 0:
            sched_setaffinity(0, CORES_BYTES, cores)
        put(word, get(word) | bit)
        if others != 0:
            sched_setaffinity(0, CORES_BYTES, cores)

else:

    @inner
    def note_core(queue):
        """Nothing: a worker cannot tell."""

    @inner
    def step_aside(worker, queue):
        """Nothing."""
