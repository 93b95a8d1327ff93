"""Where each word of the CUDA executor's structures lies.

Queues, waiters, wakers and gates share what they have in common with the CPU's (:mod:`aiodev._backends.cpu.layout`),
so that waking and failing are one code. Queues lie in page-locked memory that the device can write. Offsets are in bytes.
"""

from __future__ import annotations

from typing import Final

from aiodev._backends.cpu import layout as cpu

_BASE: Final = -(-cpu.QUEUE_BYTES // 64) * 64

# Queue: what the CPU's has for COMPLETED, FAULTS, SUBMITTED, waiters and faults, and:
Q_SHADOW: Final = _BASE  #: what the device completed but the host has not looked at; alone on its line

Q_LOCK: Final = _BASE + 64  #: held by whoever submits to the queue, or hands its operations to the driver
Q_DEVICE: Final = _BASE + 72
Q_STREAM: Final = _BASE + 80  #: CUstream
Q_NEXT: Final = _BASE + 88  #: next queue of the device
Q_ISSUED: Final = _BASE + 96  #: operations handed to the driver, or done by the host
Q_LAST_SHADOW: Final = _BASE + 104  #: last operation whose completion the device writes to Q_SHADOW
Q_SHADOW_FROM: Final = _BASE + 112  #: first one of the present row of them
Q_LAST_FALLIBLE: Final = _BASE + 120  #: last launch that can fail
Q_HEAD: Final = _BASE + 128  #: oldest record that was not handed on, or 0
Q_TAIL: Final = _BASE + 136
Q_HELD: Final = _BASE + 144  #: why the oldest record is held: HELD_…
Q_BUSY: Final = _BASE + 152  #: whether another thread carries out the operation Q_ISSUED + 1: BUSY_…
Q_DIRTY: Final = _BASE + 160  #: 1 while a status stands in the device's fault record
Q_RECORD: Final = _BASE + 168  #: address of the fault record on the device
Q_PARAMETERS: Final = _BASE + 176  #: address of the parameter buffer
Q_PARAMETER_BYTES: Final = _BASE + 184  #: how much of it the present launch uses
Q_EXTRA: Final = _BASE + 192  #: five words: cuLaunchKernel's ``extra``
Q_FOREIGN: Final = _BASE + 240  #: 1 if the CUstream is another library's

Q_STATUS: Final = _BASE + 256  #: the host's fault record, which a failing kernel writes: status, value; on its own line
Q_FAILED_VALUE: Final = _BASE + 264

Q_STAGE_NEXT: Final = _BASE + 320  #: next queue with a copy for the staging thread
Q_STAGE_DST: Final = _BASE + 328
Q_STAGE_SRC: Final = _BASE + 336
Q_STAGE_BYTES: Final = _BASE + 344
Q_STAGE_KIND: Final = _BASE + 352
Q_FOLLOWED: Final = _BASE + 360  #: 1 if a queue, perhaps of another device, is held until we get on
Q_WINDOW: Final = _BASE + 368  #: how many operations may be in the driver's hands
Q_ATTENDED: Final = _BASE + 376  #: 1 while a thread waits in the driver for what was handed on

Q_LAUNCHES: Final = _BASE + 384  #: entry and site of each launch in flight that can fail, by value % WINDOW
WINDOW: Final = 128  #: operations of a queue in the driver's hands, at most
#: Operations of a queue in the driver's hands with which a submission surely finds room; beyond, it lets go of the GIL.
SURELY_ROOM: Final = 32
STREAM_WINDOW: Final = (
    256  #: those of all queues of a CUstream; the driver's own limit, at which it would block, is higher
)
QUEUE_BYTES: Final = Q_LAUNCHES + 16 * WINDOW

HELD_NOT, HELD_GATE, HELD_WAIT, HELD_DEVICE = 0, 1, 2, 3
BUSY_NOT, BUSY, BUSY_COPYING = 0, 1, 2
KIND_KERNEL, KIND_DEPENDENCY, KIND_GATE = cpu.KIND_KERNEL, cpu.KIND_DEPENDENCY, cpu.KIND_GATE
KIND_DRIVER, KIND_LOST, KIND_NATIVE = 4, 5, 6

# Fault record on the device.
X_STATUS: Final = 0
X_HOST: Final = 16  #: address of Q_STATUS, as the device has it
RECORD_BYTES: Final = 32
PARAMETERS_BYTES: Final = 4608

# Device.
D_LOST: Final = 0  #: the driver's status when the context was lost, else 0
D_STOP: Final = 8
D_CONTEXT: Final = 16
D_INDEX: Final = 24
D_QUEUES: Final = 32  #: first queue
D_LEFT: Final = 40  #: threads that have returned after stop
D_SCRATCH: Final = 48  #: two words
D_SPIN: Final = 64  #: how long the watching thread polls without a pause, ns
D_WAIT_BY: Final = 80  #: how the end of awaited work is noticed: BY_…
D_STAGE_HEAD: Final = 88  #: under D_STAGE_LOCK
D_STAGE_LOCK: Final = 96
D_NEXT: Final = 72  #: next device, round to the first
D_STAGE_BUFFERS: Final = 104  #: page-locked: STAGE_SLOTS slots of STAGE_BYTES
D_SLEEP: Final = 128  #: SLEEP_…; whoever takes it back to 0 posts the semaphore
D_SEMAPHORE: Final = 192
D_STAGE_SEMAPHORE: Final = 256
D_STAGE_EVENTS: Final = 320  #: STAGE_SLOTS words
D_ANNOUNCE: Final = 352  #: address of the host function that wakes the watching thread
D_STAMP: Final = 360  #: address of the host function that stores the time
D_ATTENDANTS: Final = 368  #: address of the first of the threads that wait in the driver, or 0
D_FOLLOW_EVENT: Final = 376  #: CUevent for another library's stream to wait for a queue, under D_FOLLOW_LOCK
D_FOLLOW_LOCK: Final = 384
D_WAITERS: Final = 392  #: calls of ours under way that may wait for the device, and hold up all others meanwhile
D_RING: Final = 400  #: page-locked: RING_SLOTS slots of RING_BYTES, for small copies from ordinary memory, under D_RING_LOCK
D_RING_LOCK: Final = 408
D_RING_NEXT: Final = 416  #: which slot is tried next
D_RING_USERS: Final = 424  #: address of two words for each slot: the queue and the number of the operation that reads it
D_FUNCTIONS: Final = 448  #: the driver's functions, in order of ``DRIVER``
DEVICE_BYTES: Final = 1024

AWAKE, SLEEP_SHORT, SLEEP_DEEP = 0, 1, 2
#: By looking; by a host function that the driver calls; by threads that wait in the driver, as far as they reach.
BY_POLL, BY_CALLBACK, BY_EVENT = 0, 1, 2

# A thread that waits in the driver.
T_QUEUE: Final = 0  #: what it waits for; 0 when it is free
T_EVENT: Final = 8  #: CUevent
T_DEVICE: Final = 16
T_SEMAPHORE: Final = 64
T_BYTES: Final = 128
ATTENDANTS: Final = 8
RING_SLOTS: Final = 32
RING_BYTES: Final = 64 << 10
STAGE_SLOTS: Final = 2
STAGE_BYTES: Final = 4 << 20
STAGE_TURN: Final = 256 << 20  #: after so much of a copy it is the next queue's turn

#: The driver's functions that native code calls.
DRIVER: Final = (
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuStreamWriteValue64",
    "cuStreamWaitValue64",
    "cuMemcpyAsync",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD2D32Async",
    "cuLaunchHostFunc",
    "cuStreamQuery",
    "cuPointerGetAttribute",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuMemcpyPeerAsync",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuEventQuery",
)
(
    F_CTX_GET, F_CTX_SET, F_LAUNCH, F_WRITE, F_WAIT, F_COPY, F_SET8, F_SET16, F_SET32, F_SET2D, F_HOST, F_QUERY,
    F_POINTER, F_RECORD, F_EVENT_WAIT, F_WAIT_EVENT, F_COPY_PEER,
    F_CAPTURE_MODE, F_CAPTURING, F_EVENT_QUERY,
) = range(D_FUNCTIONS, D_FUNCTIONS + 8 * len(DRIVER), 8)  # fmt: skip

# Entry: a kernel's code on each device.
E_NDIM: Final = 0
E_FALLIBLE: Final = 8
E_BLOCK: Final = 16  #: threads of a block
E_GRID: Final = 24  #: most blocks
E_TEAM: Final = 32  #: 1: an index is a block's, not a thread's
E_LAUNCHED: Final = 40  #: 1 once it was launched: the first launch may make the driver load code, or move local memory
E_FUNCTIONS: Final = 64  #: CUfunction for each device
MAXIMUM_DEVICES: Final = 64
ENTRY_BYTES: Final = E_FUNCTIONS + 8 * MAXIMUM_DEVICES

# Record of an operation that was not handed on.
R_NEXT, R_OPERATION, R_A, R_B, R_C, R_NBYTES, R_ARGUMENTS = 0, 8, 16, 24, 32, 40, 48
OP_LAUNCH, OP_COPY, OP_FILL, OP_WAIT, OP_GATE, OP_STAMP, OP_EVENT, OP_NATIVE = 1, 2, 3, 4, 5, 6, 7, 8

NOT_READY: Final = 600  #: CUDA_ERROR_NOT_READY
CAPTURED: Final = 900  #: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
RELAXED: Final = 2  #: CU_STREAM_CAPTURE_MODE_RELAXED
