"""The native executor's code: submission, scheduling, execution and wake-ups, with no GIL and no Python.

**Problem.** Streams are queues of operations that Python threads feed and a few workers run. Workers must never need the
GIL, submitters must never wait, an idle machine must sleep, and whoever makes work ready must wake exactly whom it takes.

**Invariants.**

1.  A queue's operations complete in order, one at a time; ``completed`` is stored after everything that the operation
    wrote, its fault included.
2.  A queue is at any time in exactly one place: nowhere (``pending`` is 0), waiting for a worker, in a worker's hands, held
    by one wait node or gate, or open with a range. Moving it from place to place transfers the right to touch it.
3.  Whoever raises ``pending`` from 0 has the queue wait for a worker; the worker that lowers it to 0 never touches
    the queue again. Hence an idle queue may be recycled, unless it has ``visitors``: a worker that leaves another queue with a
    wait node here looks at both again, when they may have been through all that, and wait for each other anew.
4.  Waiters and completers shake hands: a waiter stores its target, then loads the counter; a completer stores the
    counter, then loads the target. All four are sequentially consistent, so that at least one of the two sees the other, and
    the node's target is taken back to ``NEVER`` by compare-exchange, so that exactly one acts.
5.  A worker sleeps only after it found, under the device's lock, no work; work is only added under that lock, and wakes a
    sleeper unless somebody is already looking. (It sleeps, too, where others have begun the range that is all there is, and
    helpers wait for it awake.) So no work waits while all sleep, except for some ms what its submitter is expected to run:
    meanwhile one of the sleepers, the lookout, looks whether it does (``ready_queue.py``, ``crowding.py``).
6.  A range is joined and left under the lock of its range device. The last to leave an exhausted range, and nobody else,
    completes it, be it a worker or a thread that waits for the queue (``helping.py``).
7.  Of the queues of one priority that wait, the one that has had the least of the device is served next, and who has had a
    slice more than one that waits gives way to it, between two operations or two chunks of a range (``fairness.py``). Who has
    a queue in its hands charges it for its time before the queue leaves them.
8.  Workers and whoever withdraws operations shake hands: a worker stores ``begun``, then loads ``withdrawn``, before each
    operation; who withdraws stores ``withdrawn``, then loads ``begun``. So an operation that was withdrawn does not
    run, and one that runs is not withdrawn. Between two operations in a row the fence between is that of ``completed``:
    ``begun`` is stored ahead of it, which costs a plain store and, for some ns, calls begun what is about to. Where a queue
    changes hands it is fenced itself. What holds a queue, or waits on a list, has not begun: a wait and a gate begin when
    they are passed.
9.  A command buffer is one operation. While the cursor is in it, ``caller`` is that operation; between two commands the queue
    gives way to others as between two operations, but has begun. Nobody writes to a command buffer but who executes it.
10. A gate is freed by the last who refers to it: the host, the queue, and the worker that leaves the queue with it. As soon
    as the gate knows the queue others may be through with both, and that worker has still to look whether it is open by now.

A device's lock is held for tens of nanoseconds, and never across a call of the system or of a kernel.
"""

from aiodev._backends.cpu.executor.fairness import make_room
from aiodev._backends.cpu.executor.helping import help, spin
from aiodev._backends.cpu.executor.memory_operations import copy_entry, fill_entry
from aiodev._backends.cpu.executor.submission import (
    execute,
    execute_schedule,
    gate,
    launch,
    launch_at_once,
    open_gate,
    recycle,
    stamp,
    wait,
    wait_over,
)
from aiodev._backends.cpu.executor.waiting import arm
from aiodev._backends.cpu.executor.withdrawal import withdraw
from aiodev._backends.cpu.executor.worker import limit_workers, stop, work
from aiodev._backends.executor.faults import forgive
from aiodev._backends.executor.gates import create_gate
from aiodev._backends.executor.wait_nodes import next_fired, rearm_waker

__all__ = [
    "arm",
    "copy_entry",
    "create_gate",
    "execute",
    "execute_schedule",
    "fill_entry",
    "forgive",
    "gate",
    "help",
    "launch",
    "launch_at_once",
    "limit_workers",
    "make_room",
    "next_fired",
    "open_gate",
    "rearm_waker",
    "recycle",
    "spin",
    "stamp",
    "stop",
    "wait",
    "wait_over",
    "withdraw",
    "work",
]
