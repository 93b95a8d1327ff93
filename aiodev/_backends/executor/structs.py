"""Structs that all native executors have in memory: queues as others see them, waiters, gates, failures.

Structs lie at addresses that never go back to the C library while the process lives: they are recycled, so that a late reader
sees a stale word, never an unmapped one. Words that submitters write, words that workers write and words that both write are on
cache lines of their own.
"""

from __future__ import annotations

from typing import Final

from aiodev._native.fields import Atomic, Cell, Struct, embedded, word, words

NEVER: Final = (1 << 63) - 1  #: a target that no counter reaches

#: What a fault is, by its ``kind``: see :class:`Fault`.
KIND_KERNEL, KIND_DEPENDENCY, KIND_GATE, KIND_DRIVER, KIND_LOST, KIND_NATIVE, KIND_WITHDRAWN = range(1, 8)

FAULT_SLOTS: Final = 32  #: faults that a queue's ring holds
PASSED_SLOTS: Final = 1024  #: withdrawals that are kept when the ring has no room for them any more

#: ``state`` of a gate.
GATE_SHUT, GATE_OPEN, GATE_FAILED = range(3)


class Lock(Struct):
    """A lock of one word, for tens of nanoseconds (:mod:`aiodev._backends.executor.locking`)."""

    held: Atomic[int]


class Semaphore(Struct):
    """The C library's ``sem_t``."""

    state: Cell[int] = words(4)  #: the C library's


class Fault(Struct, alignment=64):
    """Operations of a queue that failed or did not run, and why.

    ======================  ========================================================================
    ``KIND_KERNEL``         a kernel; the words are the executor's: what failed, where, and how
    ``KIND_DEPENDENCY``     a wait for a queue (``a``) whose operation ``b`` had failed
    ``KIND_GATE``           a gate that was opened as failed
    ``KIND_DRIVER``         the driver refused it with status ``a``
    ``KIND_LOST``           the device was lost with status ``a``
    ``KIND_NATIVE``         a foreign function, the one with number ``b``, returned ``a``
    ``KIND_WITHDRAWN``      nobody wants them any more
    ======================  ========================================================================
    """

    first: int  #: the operation that failed
    last: Atomic[int]  #: the last one that shares its fate; 0: all that follow, until it is forgiven
    kind: int  #: one of ``KIND_…``
    a: int
    b: int
    c: int
    d: int


class Withdrawal(Struct):
    """Operations of a queue that do not run. A queue's are ascending, and apart from each other."""

    first: int
    last: int
    next: Cell[Withdrawal | None]


class PassedRange(Struct):
    """Operations that a queue has passed without running them."""

    first: int
    last: int


class Passed(Struct):
    """Withdrawals that a queue has passed, and its ring of faults holds no more."""

    count: int  #: how many there were
    ring: PassedRange = embedded(PassedRange, PASSED_SLOTS, line=0, slot=2)  #: the last ones


class TraceSlot(Struct, alignment=64):
    """One operation in a log, by the fields of :mod:`aiodev._core.backend.trace_log`, in their order."""

    queue: Queue
    value: int  #: the operation's
    what: int  #: one of ``OP_…``, and how it came out
    first: int  #: a kernel's entry; the queue that is waited for
    second: int  #: a kernel's indices; the value that is waited for
    submitted: int  #: when it was submitted (ns)
    begun: int  #: when its queue came to it (ns), or 0
    ended: Atomic[int]  #: when it was done (ns), or 0


class TraceLog(Struct, alignment=64):
    """A log of the operations that the queues of one executor are given."""

    claimed: Atomic[int]  #: slots that were asked for, which may be more than there are
    room: int  #: slots that there are
    slots: TraceSlot = embedded(TraceSlot, 0, line=1)


class Queue(Struct, alignment=64):
    """One stream's operations, in order: what waiters, other queues and Python see of it.

    Lines 2, 3 and 5 are an executor's own, and so is what is free on lines 1 and 4: its struct goes on there.
    """

    completed: Atomic[int]  #: operations completed; the timeline
    faults: Atomic[int]  #: faults recorded so far
    target: Atomic[int]  #: no waiter has a lower target than this
    waiters: Atomic[WaitNode | None]  #: first wait node
    #: No operation below this is withdrawn, but those that the queue has passed; NEVER: none is.
    withdrawn: Atomic[int]
    begun: Atomic[int]  #: no operation above this has begun; what is next counts as begun while a worker has the queue
    withdrawals: Cell[Withdrawal | None]  #: first withdrawal that the queue has not passed; under the lock
    withdraw_lock: Lock = embedded(Lock)

    submitted: Atomic[int] = word(line=1)  #: operations submitted; what only submitters touch is on this line
    log: TraceLog | None = word(line=1, slot=7)  #: where submitters note what they submit, while somebody profiles

    failed: int = word(line=4, slot=1)  #: value of the operation that opened the present fault, or 0
    #: Operations up to this value share the present fault's fate; NEVER while it is open.
    forgiven: Atomic[int] = word(line=4, slot=5)

    ring: Fault = embedded(Fault, FAULT_SLOTS, line=6)  #: the last faults
    #: Withdrawals that the ring has no room for any more; under ``withdraw_lock``.
    passed: Passed | None = word(line=True)
    #: Threads that are leaving another queue with a wait node here: until they are through this one is not recycled.
    visitors: Atomic[int]


class WaitNode(Struct, alignment=64):
    """One waiter of one queue; made on first need and kept."""

    target: Atomic[int]  #: the value that is waited for; NEVER while nothing is
    owner: int  #: address of a queue, or of a waker + 1
    next: WaitNode | None  #: of the same queue
    queue: Queue  #: whose waiter it is
    fired_next: WaitNode | None  #: on its waker's fired list
    fired: Atomic[int]  #: 1 while on that list


class Waker(Struct, alignment=64):
    """A file descriptor that a loop watches."""

    descriptor: int
    pending: Atomic[int]  #: 1 between a write and the next collect
    fired: Atomic[WaitNode | None]  #: first fired node
    one: Cell[int]  #: the eight bytes that are written


class Gate(Struct, alignment=32):
    """An operation that the host completes."""

    state: Atomic[int]  #: one of ``GATE_…``
    waiter: Atomic[Queue | None]  #: queue that is held
    references: Atomic[int]  #: the queue's, the host's, and that of a worker which leaves the queue with it
