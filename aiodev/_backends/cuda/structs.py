"""Structs of the CUDA executor in native memory (see :mod:`aiodev._backends.executor.structs`).

Queues lie in page-locked memory that the device can write.
"""

from __future__ import annotations

from typing import Final

from aiodev._backends.cuda.tuning import STAGE_SLOTS, WINDOW
from aiodev._backends.executor import structs
from aiodev._backends.executor.structs import Lock, Semaphore
from aiodev._native.fields import Atomic, Cell, Struct, embedded, word, words

#: Why a queue's oldest record is held (``held``).
HELD_NOT, HELD_GATE, HELD_WAIT, HELD_DEVICE = range(4)
#: Whether another thread carries out a queue's next operation, and touches its memory (``busy``).
BUSY_NOT, BUSY, BUSY_COPYING = range(3)
#: How deep a poller sleeps (``sleep``).
AWAKE, SLEEP_SHORT, SLEEP_DEEP = range(3)
#: How the end of awaited work is noticed (``wait_by``): by looking; by a host function that the driver calls; by threads that
#: wait in the driver, as far as they reach.
BY_POLL, BY_CALLBACK, BY_EVENT = range(3)

MAXIMUM_DEVICES: Final = 64
PARAMETERS_BYTES: Final = 4608  #: of a queue's parameter buffer
BLOCKS_DEEP: Final = 8  #: how many blocks of a command buffer may be within each other

OP_LAUNCH, OP_COPY, OP_FILL, OP_WAIT, OP_GATE, OP_STAMP, OP_EVENT, OP_NATIVE, OP_EXECUTE = range(1, 10)
#: Commands of buffers alone: the beginning of a block that runs as a condition says, and its end.
OP_BLOCK, OP_END = 10, 11
#: One more: the next position of a queue is completed.
OP_SIGNAL: Final = 12

#: Bit of a patch's address: it is within the arguments of a command, on the host.
ARGUMENT: Final = 1 << 62

NOT_READY: Final = 600  #: CUDA_ERROR_NOT_READY
CAPTURED: Final = 900  #: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
RELAXED: Final = 2  #: CU_STREAM_CAPTURE_MODE_RELAXED


class Entry(Struct):
    """A kernel's code on each device."""

    ndim: int  #: dimensions of its range
    fallible: int  #: 1 if it can fail
    block: int  #: threads of a block
    grid: int  #: most blocks
    team: int  #: 1: an index is a block's, not a thread's
    launched: int  #: a bit for each device it was launched on: the first launch may have the driver load code, or move memory
    functions: Cell[int] = words(MAXIMUM_DEVICES, line=True)  #: CUfunction for each device


class Launch(Struct):
    """A launch in flight that can fail."""

    entry: int  #: its entry's address
    site: int  #: where it was submitted


class Parameters(Struct):
    """A kernel's parameters: where it stores its failure, and its arguments."""

    record: int  #: address of the queue's fault record on the device; 0 if nothing here can fail
    value: int  #: number of the operation
    arguments: Cell[int] = words(0)  #: first word of the kernel's arguments


class Grid(Struct):
    """Blocks along x, y and z, and threads of a block along x and y."""

    columns: int
    rows: int
    planes: int
    wide: int
    high: int


class Step(Struct):
    """A command of a command buffer; behind its arguments are those that its node has, and the next one."""

    operation: int  #: ``OP_LAUNCH``, ``OP_COPY``, ``OP_FILL``, ``OP_NATIVE``, ``OP_BLOCK``, ``OP_END`` or ``OP_SIGNAL``
    entry: int  #: of a launch; of a fill, bytes of the pattern; of a block, CUgraphConditionalNodeType; of an end, the block
    size: int  #: indices, bytes, or how often the pattern is written
    site: int  #: where it was captured
    nbytes: int  #: of the arguments, a multiple of 8
    node: int  #: of a launch, the CUgraphNode; of a block, its CUgraphConditionalHandle
    parameters: Parameters = embedded(Parameters)  #: whose arguments are those of any command


class Buffer(Struct):
    """Commands that are executed together, more than once: a CUDA graph from the second time on."""

    count: int
    first: Step
    seen: int  #: ``patched`` of its device when the nodes were given the arguments
    fallible: int  #: 1 if a kernel among them can fail
    runs: int  #: how often it was executed
    refused: int  #: the driver's status when the commands could not be captured; then they are submitted each time
    graph: int  #: CUgraph, whose nodes the steps have
    executable: int  #: CUgraphExec
    record: int  #: address of the fault record that its kernels look at
    extra: Cell[int] = words(5)  #: cuLaunchKernel's ``extra``
    parameter_bytes: Cell[int]
    grid: Grid = embedded(Grid)
    node_parameters: Cell[int] = words(9)  #: CUDA_KERNEL_NODE_PARAMS
    outcome: Cell[int] = words(3)  #: CUgraphExecUpdateResultInfo
    blocks: int  #: how many there are: then a graph is made from the first time on, and anew where any argument has changed
    own_parameters: Cell[int] = words(4)  #: those of a kernel of ours (:mod:`aiodev._backends.cuda.executor.ptx`)
    block_parameters: Cell[int] = words(32)  #: CUgraphNodeParams


class FaultRecord(Struct, alignment=32):
    """A queue's fault record on the device."""

    status: Atomic[int]  #: of the kernel that failed, or 0
    host: int = word(line=0, slot=2)  #: address of the queue's ``status``, as the device has it


class Record(Struct):
    """An operation that was not handed on.

    ============== ========================  =========  ========================  ===================
    operation      a                         b          c                         arguments
    ============== ========================  =========  ========================  ===================
    ``OP_LAUNCH``  entry                     size       where it was submitted    the kernel's
    ``OP_COPY``    destination               source     bytes
    ``OP_FILL``    destination               count      bytes of the pattern      the pattern
    ``OP_WAIT``    the other queue           value      1: failure is shared
    ``OP_GATE``    gate
    ``OP_STAMP``   address of the time
    ``OP_EVENT``   CUevent
    ``OP_NATIVE``                                                                 the calls
    ``OP_EXECUTE`` command buffer                                                 patches
    ============== ========================  =========  ========================  ===================
    """

    next: Record | None
    operation: int  #: one of ``OP_…``
    a: int
    b: int
    c: int
    nbytes: int  #: of the arguments
    arguments: Cell[int] = words(0)  #: first word of the arguments


class Driver(Struct):
    """Addresses of the driver's functions that native code calls."""

    cuCtxGetCurrent: int
    cuCtxSetCurrent: int
    cuLaunchKernel: int
    cuStreamWriteValue64: int
    cuStreamWaitValue64: int
    cuMemcpyAsync: int
    cuMemsetD8Async: int
    cuMemsetD16Async: int
    cuMemsetD32Async: int
    cuMemsetD2D32Async: int
    cuLaunchHostFunc: int
    cuStreamQuery: int
    cuPointerGetAttribute: int
    cuEventRecord: int
    cuEventSynchronize: int
    cuStreamWaitEvent: int
    cuMemcpyPeerAsync: int
    cuThreadExchangeStreamCaptureMode: int
    cuStreamIsCapturing: int
    cuEventQuery: int
    cuStreamBeginCapture: int
    cuStreamEndCapture: int
    cuStreamGetCaptureInfo: int
    cuGraphInstantiateWithFlags: int
    cuGraphExecKernelNodeSetParams: int
    cuGraphExecUpdate: int
    cuGraphLaunch: int
    cuGraphDestroy: int
    cuGraphExecDestroy: int
    cuStreamUpdateCaptureDependencies: int
    cuGraphConditionalHandleCreate: int  #: this and the following are 0 where the driver has no conditional nodes
    cuGraphAddNode: int
    cuStreamBeginCaptureToGraph: int


class Item(Struct):
    """A word that a foreign function is given, or its address (:mod:`aiodev._core.streams.native_calls`)."""

    kind: int  #: what ``content`` is, in the low 8 bits; above them what is added to it from one time to the next
    content: int


class ForeignCall(Struct):
    """A call of a foreign function; the next one follows its arguments."""

    count: int  #: arguments; above 32 bits how often it is made
    function: Item = embedded(Item)
    arguments: Item = embedded(Item, 0)


class ForeignCalls(Struct):
    """Calls of foreign functions, one after the other."""

    lock: Lock | None  #: the first of the locks of which one is held meanwhile
    places: int  #: how many there are
    waits: int  #: 1 if the calls may wait for the device
    count: int
    calls: ForeignCall = embedded(ForeignCall, 0)  #: the first one


class RingUser(Struct):
    """The queue whose copy uses a slot of the device's ring."""

    queue: Queue | None
    value: int  #: number of the operation


class EventWaiter(Struct, alignment=64):
    """A thread that waits in the driver."""

    queue: Atomic[Queue | None]  #: what it waits for; None when it is free
    event: int  #: CUevent
    device: Device
    semaphore: Semaphore = embedded(Semaphore, line=True)


class Caller(Struct):
    """A thread that makes calls which may wait for the device."""

    device: Device
    event: int  #: CUevent


class ReadyQueue(Struct):
    """Queues with an operation for a thread of ours, and what such threads sleep on."""

    head: Cell[Queue | None]  #: the first, under ``lock``
    lock: Lock = embedded(Lock)
    semaphore: Semaphore = embedded(Semaphore)


class Device(Struct, alignment=64):
    """One GPU, and the threads that work for it."""

    lost: Atomic[int]  #: the driver's status when the context was lost, else 0
    stop: Atomic[int]  #: 1 when the threads are to return
    context: int  #: CUcontext
    index: int
    queues: Atomic[Queue | None]  #: first queue
    left: Atomic[int]  #: threads that have returned after stop
    until: Cell[int] = words(2)  #: the poller's ``struct timespec``
    spin: int  #: how long the poller polls without a pause, ns
    next: Device  #: next device, round to the first
    wait_by: int  #: how the end of awaited work is noticed: ``BY_…``
    stage_buffers: int  #: page-locked: STAGE_SLOTS slots of STAGE_BYTES
    sleep: Atomic[int] = word(line=2)  #: ``SLEEP_…``; whoever takes it back to AWAKE posts the semaphore
    semaphore: Semaphore = embedded(Semaphore, line=3)  #: what the poller sleeps on
    staging: ReadyQueue = embedded(ReadyQueue, line=4)  #: queues with a copy for the staging thread
    stage_events: Cell[int] = words(STAGE_SLOTS, line=5)  #: CUevents of the staging thread
    announce: int = word(line=5, slot=4)  #: address of the host function that wakes the poller
    stamp: int  #: address of the host function that stores the time
    event_waiters: EventWaiter  #: the first of the threads that wait in the driver; at 0 where there are none
    follow_event: int  #: CUevent for another library's stream to wait for a queue, under ``follow_lock``
    follow_lock: Lock = embedded(Lock)
    waiters: Atomic[int]  #: calls of ours under way that may wait for the device, and hold up all others meanwhile
    submitting: Atomic[int]  #: submissions in the driver's calls that nothing may hold up, as they have the GIL
    surely_room: int  #: with so many operations of a queue in the driver's hands, its channel has room for more
    ring: int  #: page-locked: RING_SLOTS slots of RING_BYTES, for small copies from ordinary memory, under ``ring_lock``
    ring_lock: Lock = embedded(Lock)
    ring_next: int  #: which slot is tried next
    ring_users: RingUser  #: the first slot's
    calling: ReadyQueue = embedded(ReadyQueue, line=7)  #: queues with calls that may wait, for the threads that make them
    capture_stream: int  #: CUstream on which command buffers are captured, under ``capture_lock``
    capture_lock: Lock = embedded(Lock)
    patched: Atomic[int]  #: how often an argument of a command has changed
    set_condition: int  #: CUfunction that sets the condition of a block; 0 where graphs have no blocks
    signal: int  #: CUfunction that completes the next position of a queue; 0 where the driver does not compile it
    block_streams: Cell[int] = words(BLOCKS_DEEP)  #: CUstreams on which blocks are captured, under ``capture_lock``
    driver: Driver = embedded(Driver, line=8)


class Queue(structs.Queue):
    """One stream's operations: the native half of a CUstream, or of a part of one."""

    shadow: Atomic[int] = word(line=True)  #: what the device completed but the host has not looked at; alone on its line

    lock: Lock = embedded(Lock, line=True)  #: held by whoever submits to the queue, or hands its operations to the driver
    device: Device
    stream: int  #: CUstream
    next: Queue | None  #: next queue of the device
    issued: Atomic[int]  #: operations handed to the driver, or done by the host
    last_shadow: Atomic[int]  #: last operation whose completion the device writes to ``shadow``
    shadow_from: Atomic[int]  #: first one of the present row of them
    last_fallible: Atomic[int]  #: last launch that can fail
    head: Atomic[Record | None]  #: oldest record that was not handed on
    tail: Record  #: the last one, if there is any
    held: int  #: why the oldest record is held: ``HELD_…``
    busy: Atomic[int]  #: whether another thread carries out the operation after ``issued``: ``BUSY_…``
    dirty: int  #: 1 while a status stands in the device's fault record
    record: int  #: address of the fault record on the device
    parameters: Parameters  #: the parameter buffer
    parameter_bytes: Cell[int]  #: how much of it the present launch uses
    extra: Cell[int] = words(5)  #: cuLaunchKernel's ``extra``
    foreign: int  #: 1 if the CUstream is another library's

    #: The host's fault record, which a failing kernel writes: status, value; on its own line.
    status: Atomic[int] = word(line=True)
    failed_value: int

    next_ready: Cell[Queue | None] = word(line=True)  #: the queue behind it in the ready queue that it is in, if it is in one
    stage_dst: int
    stage_src: int
    stage_bytes: int
    stage_kind: int
    followed: Atomic[int]  #: 1 if a queue, perhaps of another device, is held until we get on
    window: int  #: how many operations may be in the driver's hands
    has_event_waiter: Atomic[int]  #: 1 while a thread waits in the driver for what was handed on
    call_block: ForeignCalls  #: they, in memory of their own
    executing: int  #: the last execution of a command buffer that can fail
    executing_buffer: Buffer  #: and that

    launches: Launch = embedded(Launch, WINDOW)  #: launches in flight that can fail, by value % WINDOW
