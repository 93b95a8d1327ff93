"""The CUDA executor's code: submission, hand-over to the driver, completion, wake-ups and failure, with no Python.

**Problem.** A CUDA stream runs operations in order, but the driver blocks whoever submits more than it has room for, knows
nothing of gates, and of failures only that the whole device is lost. So each queue has a native half on the host, which
hands operations to the driver as early as they may go, usually in the call that submits them.

**Invariants.**

1.  Operations are handed to the driver in order, under the queue's lock; ``issued`` is the last one. What cannot go yet
    is kept as a record; while there is a record, everything submitted is kept behind it. Never more than ``WINDOW``
    operations are in the driver's hands, so that it never blocks a submitter. To another library's stream goes all that can, at
    once: that library's own submissions must not overtake it.
2.  After each operation the stream writes its number to page-locked memory: to ``completed`` itself, which anyone reads; or
    to ``shadow``, when the host must look first, after a launch that can fail (its kernel has code for that). While an
    operation that was written to the shadow is not completed, those behind it are written there too.
3.  A kernel that fails writes a status to the queue's fault record on the device and to ``status`` on the host. Behind a
    launch that can fail, only kernels, which look at that record first and do nothing when it is set, and waits are handed on;
    anything else is kept until the outcome is known. Then it is either right to run it, or it is passed over.
4.  Gates are the host's: an operation behind a shut gate is kept. A wait for another queue is handed on when that has handed on
    what is waited for and it cannot fail any more; until then it is kept. Operations are thus handed over in an order in which
    they can run, and the device never waits for the host.
5.  Waiters and the poller shake hands as on the CPU: a waiter stores its target, then loads the counter and
    ``sleep``; the thread stores ``sleep``, then loads counters and targets.
6.  Nobody waits for the device with the GIL: a submission that may block in the driver (``may_block``), or that does not get
    the queue's lock, lets go of it first, and takes it again when it holds no lock. A driver may hold up all calls of a
    context while one is blocked, so while one of ours may be (``waiters``), every submission does so, and none begins to block
    while a submission that has the GIL is in the driver (``submitting``): see :mod:`aiodev._backends.cuda.executor.gil`. Who
    waits for an event holds up nobody: the driver's threads may wait for several at once.
7.  Operations are withdrawn under the queue's lock, if they were not handed on and no thread carries them out already.
8.  Once ``lost`` is set every operation of the device completes as failed, those in flight and those to come. The device is
    asked to complete nothing any more: it might do so with an operation that it refused.
"""

from aiodev._backends.cuda.executor.event_waiters import run_event_waiter
from aiodev._backends.cuda.executor.foreign_calls import run_caller
from aiodev._backends.cuda.executor.poller import announce, arm, run_poller, spin, stamp_now, stop
from aiodev._backends.cuda.executor.staging import run_stager
from aiodev._backends.cuda.executor.submission import (
    call_native,
    copy,
    count_waiters,
    destroy_buffer,
    execute,
    fill,
    foreign_wait,
    gate,
    launch,
    launch_at_once,
    open_gate,
    record_context,
    recycle,
    stamp,
    wait,
    wait_event,
    wait_over,
    withdraw,
)
from aiodev._backends.executor.faults import forgive
from aiodev._backends.executor.gates import create_gate
from aiodev._backends.executor.wait_nodes import next_fired, rearm_waker

__all__ = [
    "announce",
    "arm",
    "run_caller",
    "run_event_waiter",
    "run_poller",
    "run_stager",
    "call_native",
    "copy",
    "count_waiters",
    "create_gate",
    "destroy_buffer",
    "execute",
    "fill",
    "foreign_wait",
    "forgive",
    "gate",
    "launch",
    "launch_at_once",
    "next_fired",
    "open_gate",
    "rearm_waker",
    "record_context",
    "recycle",
    "spin",
    "stamp",
    "stamp_now",
    "stop",
    "wait",
    "wait_event",
    "wait_over",
    "withdraw",
]
