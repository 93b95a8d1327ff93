"""Structs of the CPU's native executor in native memory (see :mod:`aiodev._backends.executor.structs`)."""

from __future__ import annotations

from typing import Final

from aiodev._backends.executor import structs
from aiodev._backends.executor.structs import Lock, Semaphore, Waker
from aiodev._core.backend.trace_log import OPERATIONS
from aiodev._native.fields import Atomic, Cell, Struct, embedded, word, words

PRIORITIES: Final = 3  #: 0 high, 1 normal, 2 low
LOW: Final = PRIORITIES - 1  #: that of work which offers its core to whatever else wants it
PACES: Final = 4  #: how many paces a kernel's entry has room for of those whose digests end alike
PACE_SETS: Final = 32  #: how many ends of digests there are
CHUNK_BYTES: Final = 16384  #: of a chunk of records, unless one record needs more
RECORD_ALIGNMENT: Final = 64  #: a record that is written shares no cache line with one that is read
OP_CHUNK = 0  #: the end of a chunk, which is no operation; those are numbered as in logs
OP_KERNEL, OP_WAIT, OP_GATE, OP_STAMP, OP_BUFFER, OP_COMMAND = OPERATIONS
OP_BRANCH, OP_SIGNAL, OP_END = range(7, 10)  #: what else is in command buffers, and has no slot in a log


class Entry(Struct):
    """A kernel's code and what it was seen to cost."""

    code: Atomic[int]  #: address of ``int32 f(result*, excinfo**, arguments, lo, hi)``
    cost: int  #: picoseconds an index, or 0 while unknown
    uses: int  #: launches so far
    uniform: int  #: 1 if all indices take about as long, whatever the arguments, and wait for nothing
    irregular: int  #: 1 if nothing says how long an index takes, but how long others took: it may depend on elements
    #: Bits of the argument words, by number, that alone say how long an index takes, which waits for nothing; or 0.
    pacing: int
    #: Paces: measured cost of an index with given words of those, as a digest of them (high bits) and picoseconds (low bits).
    paces: Atomic[int] = words(PACE_SETS * PACES)


class Record(Struct):
    """An operation that was submitted. What follows depends on which."""

    mark: int  #: one of ``OP_…``, and in the bits above ``OPERATION_MASK`` the address of its slot in a log, if it has one
    nbytes: int  #: of the record, up to the next one


class LinkRecord(Record):
    """The end of a chunk."""

    chunk: Chunk  #: where the next record is


class KernelRecord(Record):
    """A launch."""

    entry: Entry
    size: int  #: indices
    site: int  #: where it was submitted
    arguments: Cell[int] = words(0)  #: first word of the kernel's arguments


class WaitRecord(Record):
    """A wait for another queue."""

    other: structs.Queue
    value: int
    node: structs.WaitNode  #: the queue's, on the other one
    is_shared: int  #: 1 if its failure is the queue's as well


class GateRecord(Record):
    """A gate."""

    gate: structs.Gate


class StampRecord(Record):
    """The storing of the time."""

    cell: int  #: address of the word that it is stored to


class CommandBuffer(Struct):
    """Commands that are executed as one operation: records of ``OP_COMMAND``, as ``KernelRecord``, up to one of ``OP_END``."""

    duration: int  #: how long an execution takes, ns, as a moving average; 0 if it is not known
    begun: int  #: when the last one began, ns
    length: int  #: how many commands an execution runs; 0 where branches decide that
    commands: Record = embedded(Record, 0)


class BufferRecord(Record):
    """The execution of a command buffer."""

    buffer: CommandBuffer
    count: int  #: patches
    patches: Cell[int] = words(0)  #: of each where to write, and which word


class ScheduledStep(Struct):
    """A step of a schedule: the execution of a command buffer, or a wait for another step."""

    lane: int  #: which of the queues it is submitted to
    buffer: CommandBuffer | None  #: None for a wait
    other: int  #: the queue that is waited for
    awaited: ScheduledStep | None  #: what is waited for there; or None for what the schedule begins behind
    value: int  #: which operation it has become, the last time


class Schedule(Struct):
    """Steps that one call submits."""

    count: int
    steps: ScheduledStep = embedded(ScheduledStep, 0)


class BranchRecord(Record):
    """A command that goes to another one if a word is zero."""

    target: int  #: how many bytes further that is
    condition: int  #: address of the word
    mask: int  #: its bits that count; 0: go there in any case


class SignalRecord(Record):
    """A command that completes the next position of another queue, which has no operations of its own."""

    queue: Queue
    bound: int  #: no position above this is completed


class Chunk(Struct, alignment=64):
    """Room for records, which follow."""

    nbytes: int  #: of the chunk, this included


class Partition(Struct, alignment=64):
    """The part of a range that one worker begins with. On a cache line of its own."""

    next: Atomic[int]  #: first place that no member has claimed
    end: int
    mirror: int  #: 0 where places are indices; else the sum of a place and the end of the index there


class Place(Struct):
    """A waiting queue's place in the heap."""

    time: int  #: its virtual time, of an open range that and what its members are about to use
    order: int  #: when it came, in arrivals
    queue: Queue


class Worker(Struct, alignment=64):
    """A thread that runs queues."""

    next: Worker | None  #: next sleeper
    spin: int  #: how long to look for work before sleeping, ns; learned
    spin_cap: int  #: the most that is learned
    woken: int  #: when it was woken (ns)
    idle: int = word(line=0, slot=6)  #: when it ran out of work and began to look for some, or 0
    stay: Atomic[int]  #: until when it is not to move to another core, ns
    semaphore: Semaphore = embedded(Semaphore)
    stayed: int  #: for how long it was not to, the last time
    thread: int  #: the system's number of its thread
    off: int  #: for how long (ns) it has had no core in all, counted from some time, when that was last looked at
    watched: int  #: when that was, ns
    next_offer: int  #: when it is to let others have its core, ns
    asleep: int  #: 1 while it is among the sleepers
    bell: Waker | None  #: that it is to ring ahead of what may end after ``bell_due`` (``executor/coalescing.py``)
    bell_due: int  #: in ns


class Crowd(Struct, alignment=64):
    """Whether the machine is crowded, as the threads of an executor tell each other (see ``executor/crowding.py``)."""

    until: Atomic[int]  #: the machine counts as crowded until then, ns
    span: int  #: for how long it was, the last time (ns); negative if it stays as it is, whatever threads see
    #: For how long (ns, of all of them together) threads have shared kernels and kept their cores, since it last was crowded.
    calm: Atomic[int]
    coalesces: int  #: 1 where the process has one core, or the time of one, and workers hold on to wake-ups
    clock_wait: int  #: address of the C library's ``sem_clockwait``; 0 if it has none, and so no worker is the lookout


class Device(Struct, alignment=64):
    """The workers that serve the same queues."""

    lock: Lock = embedded(Lock)
    stop: Atomic[int]  #: 1 when workers are to return
    spinners: Atomic[int]  #: workers that look for work without sleeping
    sleepers: Worker | None  #: first sleeping worker
    workers: int  #: how many there are, without the reserve
    left: Atomic[int]  #: workers that have returned after stop
    crowd: Crowd  #: that of the executor, which all its devices share
    lookout: Atomic[Worker | None]  #: the sleeper that looks now and then whether a queue waits that nobody serves

    pending: Atomic[int] = word(line=True)  #: queues that wait; spinners watch it
    pending_by_priority: Atomic[int] = words(PRIORITIES)
    least: Atomic[int] = words(PRIORITIES)  #: the virtual time of the queue that is first of those that wait, or NEVER
    reserve: int  #: workers beyond ``workers``, which are to be among the sleepers as long as no others crowd the machine
    first: Atomic[Queue | None] = words(PRIORITIES, line=True)  #: that queue
    heap: Cell[Place] = words(PRIORITIES)  #: where the places of those that wait are, the first of which is number 1
    arrivals: int  #: how often a queue has begun to wait
    prime: Worker  #: the worker that is woken before others
    #: The virtual time of a queue that has had its share, neither more nor less.
    clock: Atomic[int] = words(PRIORITIES, line=True)
    came: Atomic[int] = words(PRIORITIES)  #: how often a queue has become active, that is, waits or is served
    asleep: int  #: how many workers are among the sleepers
    surplus: int  #: how many are to be, since a quota has become smaller

    gone: Atomic[int] = words(PRIORITIES, line=True)  #: how often one has ceased to be; written without the lock

    full: Atomic[int] = words(PRIORITIES, line=True)  #: ranges that have as many members as there are workers


class Queue(structs.Queue):
    """One stream's operations, in order."""

    chunk: Chunk = word(line=1)  #: chunk that the next record goes to
    offset: int  #: where in it
    submit_lock: Lock = embedded(Lock)
    spare: Atomic[Chunk | None]  #: a drained chunk for the submitter to reuse
    helpers: Atomic[int]  #: threads that wait awake and may help
    expected_helpers: Atomic[int]  #: threads that helped lately; no worker is woken in their place before they are overdue

    #: Operations that no worker has taken off the count; whoever raises it from 0 makes the queue ready. Alone on its line,
    #: which an idle worker watches: a submission takes the line away once.
    pending: Atomic[int] = word(line=2)

    place: int = word(line=3)  #: number of its place among those that wait, or 0
    device: Device  #: the device whose workers run it
    priority: int  #: 0 high, 1 normal, 2 low
    range_device: Device  #: the device whose workers may join its ranges
    worker: Worker | None  #: the worker that last woke a waiting thread, or opened a range
    core: int  #: where it ran then
    noted: int  #: when that was
    partitions: Partition  #: those of its ranges, one for each worker of those that may join

    cursor: Record = word(line=4)  #: the next record to run; what only its worker touches is on this line
    open_chunk: Chunk  #: chunk that the cursor is in
    known: int  #: what the worker last saw of ``pending``
    owed: int  #: how many of those it has completed, and not taken off the count yet
    spent: int  #: what its operations have taken since it was last charged, as far as that is known (ns)
    charged_at: int  #: when that was, if others waited then; or 0
    trusted: int  #: how many operations may end until the clock is read, while others wait; -1: they took longer than thought

    #: Partitions of the range that have indices which no member has claimed; 0 or less for none.
    range_left: Atomic[int] = word(line=5)
    help_due: Atomic[int]  #: when (ns) members of the range wake a worker if no other has come by then; or 0
    range_chunk: Atomic[int]  #: indices to claim at a time, at most
    range_members: Atomic[int]  #: workers inside, under the lock of ``range_device``
    time: Atomic[int]  #: its virtual time (ns): of those that wait, the one with the least is served first
    range_status: Atomic[int]  #: first non-zero status, or 0
    range_excinfo: int  #: what numba says of that failure
    range_linked: Atomic[int]  #: 1 while others may join, and the queue is among those that wait

    ends: Atomic[int] = word(line=True)  #: when the command buffer, or the kernel that runs alone, seems to end (ns)
    caller: BufferRecord  #: while the cursor is in a command buffer, the operation that executes it
    command: int  #: address of the slot in a log of the command at the cursor, which has begun; or 0
    joined: Worker | None  #: the worker that last became a member of one of its ranges
    joined_core: int  #: where it ran then
    range_full: int  #: 1 while its range is one of ``Device.full``


class Helper(Struct):
    """A thread that waits, and helps meanwhile (work-helping)."""

    until: int  #: when it stops helping, ns; 0 once it is called away
    descriptor: int  #: readable when it is called away; or -1
    looked: int  #: when it last polled that, or looked at the clock where it has none to poll, ns
    polled: Cell[int]  #: ``struct pollfd``
    longest: int  #: longest index that it may run, ns: within an index it cannot be called away
    off: int  #: for how long (ns) it has had no core in all, as ``Worker.off``
    watched: int  #: when that was looked at last, ns
    next_offer: int  #: when it is to let others have its core, as ``Worker.next_offer``
    left: int  #: of its time (ns) what short commands may use before it looks at the clock


class Outcome(Struct):
    """Where an entry stores its result and its failure."""

    result: int
    excinfo: int  #: what numba says of a failure
