"""Affinity: a worker is not left on the core of the thread that it works for.

Linux wakes a thread on the core of its waker if it sees no other that is idle, and in a virtual machine it may take a core that
sleeps for one that is taken. There a worker takes turns with the event loop that waits for it: while the loop spins the
worker cannot run, and once the loop parks, the worker's wake-up draws it to the same core again. Or it takes turns with the
worker whose range it is to join. They are left like that for tens of milliseconds, at a half or a quarter of their speed,
while another core idles.

So a worker that was woken for a range moves away before it joins: it may have to wait for another core, and members are waited
for. And a thread that is about to spin for a worker on its own core sends that worker away first; so does one that
spins and finds that all chunks of the range were claimed, and one of them does not end. To which core is the system's
choice, and a worker stays free to be moved: it is bound to no core, for the sake of other processes that have as many. Where a
move does not last, since the other cores are taken, it is tried ever more seldom.
"""

from __future__ import annotations

import sys

from aiodev._backends.cpu.executor.crowding import is_crowded
from aiodev._backends.cpu.structs import Queue, Worker
from aiodev._backends.cpu.tuning import LASTED, LONGEST, RECENT, SHORTEST
from aiodev._native.compile import inner
from aiodev._native.fields import WORD
from aiodev._native.intrinsics import (
    get,
    now,
    on_stack,
    put,
    sched_getaffinity,
    sched_getcpu,
    sched_setaffinity,
)

#: Whether threads can tell their core, and move.
MOVES = sys.platform == "linux"
#: Value of ``Worker.stay`` while the worker is being moved.
MOVING = 1 << 62
#: Bytes of a set of cores.
SET = 128

if MOVES:

    @inner
    def this_core() -> int:
        """The number of the core that this thread runs on, from 0."""
        return max(0, sched_getcpu())

    @inner
    def note_core(queue: Queue, worker: Worker | None) -> None:
        """Note which worker has the queue, and where it runs: it is this thread."""
        queue.core = sched_getcpu()
        queue.worker = worker
        queue.noted = now()

    @inner
    def in_the_way(queue: Queue, worker: Worker) -> bool:
        """Whether this worker is on the core of the one that has the queue, and is to step aside, as it must then."""
        if sched_getcpu() != queue.core or is_crowded(queue.range_device.crowd, now()):
            return False
        return may_move(worker)

    @inner
    def step_aside(worker: Worker) -> None:
        """Have this worker leave its core."""
        move(0, sched_getcpu())
        has_moved(worker)

    @inner
    def send_away(queue: Queue) -> bool:
        """Have the worker that has the queue leave this thread's core, if it was there, unless too soon; whether it does."""
        worker = queue.worker
        if worker is None:
            return False
        core, time = sched_getcpu(), now()
        if core != queue.core or time - queue.noted >= RECENT or is_crowded(queue.range_device.crowd, time):
            return False
        if not may_move(worker):
            return False
        queue.worker = None
        sent = move(worker.thread, core)
        has_moved(worker)
        return sent

    @inner
    def send_member_away(queue: Queue) -> None:
        """Have the last member of the queue's range leave this thread's core, if it came there: it is waited for.

        However short ago it was moved: to step aside from another member may have brought it here.
        """
        worker, core = queue.joined, sched_getcpu()
        if worker is None or core != queue.joined_core:
            return
        until = worker.stay.load()
        if until == MOVING or not worker.stay.compare_exchange(until, MOVING):
            return
        queue.joined = None
        move(worker.thread, core)
        has_moved(worker)

    @inner
    def may_move(worker: Worker) -> bool:
        """Whether a worker may be moved now. If so, nobody else may before ``has_moved``: its set is another one meanwhile."""
        time, until, stayed = now(), worker.stay.load(), worker.stayed
        if time < until:
            return False
        stays = min(2 * stayed, LONGEST) if time - until < LASTED * stayed else SHORTEST
        if not worker.stay.compare_exchange(until, MOVING):
            return False
        worker.stayed = stays
        return True

    @inner
    def has_moved(worker: Worker) -> None:
        """Note until when a worker is not to be moved again."""
        worker.stay.store(now() + worker.stayed)

    @inner
    def move(thread: int, core: int) -> bool:
        """Have a thread, 0 for this one, leave a core; False if it may use no other."""
        cores = on_stack(SET)
        if core < 0 or core >= 8 * SET or sched_getaffinity(thread, SET, cores) != 0:
            return False
        others = 0
        word, bit = cores + WORD * (core >> 6), 1 << (core & 63)
        put(word, get(word) & ~bit)
        for place in range(cores, cores + SET, WORD):
            others |= get(place)
        if others == 0:
            return False
        sched_setaffinity(thread, SET, cores)
        put(word, get(word) | bit)
        sched_setaffinity(thread, SET, cores)
        return True

else:

    @inner
    def this_core() -> int:
        """0: a thread cannot tell its core."""
        return 0

    @inner
    def note_core(queue: Queue, worker: Worker | None) -> None:
        """Nothing: a thread cannot tell its core."""

    @inner
    def in_the_way(queue: Queue, worker: Worker) -> bool:
        """False."""
        return False

    @inner
    def step_aside(worker: Worker) -> None:
        """Nothing."""

    @inner
    def send_away(queue: Queue) -> bool:
        """Nothing."""
        return False

    @inner
    def send_member_away(queue: Queue) -> None:
        """Nothing."""
