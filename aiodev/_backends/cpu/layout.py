"""Where each word of the native executor's structures lies.

All are arrays of 8-byte words at addresses that never go back to the C library while the process lives: they are
recycled, so that a late reader sees a stale word, never an unmapped one. Offsets are in bytes. Words that submitters
write, words that workers write and words that both write are on cache lines of their own.
"""

from __future__ import annotations

from typing import Final

WORD: Final = 8
NEVER: Final = (1 << 63) - 1  #: a target that no counter reaches

# Queue: one stream's operations, in order.
Q_COMPLETED: Final = 0  #: operations completed; the timeline
Q_FAULTS: Final = 8  #: faults recorded so far
Q_TARGET: Final = 16  #: no waiter has a lower target than this
Q_WAITERS: Final = 24  #: first wait node, or 0
Q_WITHDRAWN: Final = 32  #: no operation below this is withdrawn, but those that the queue has passed; NEVER: none is
Q_BEGUN: Final = 40  #: no operation above this has begun; what is next counts as begun while a worker has the queue
Q_WITHDRAWALS: Final = 48  #: first withdrawal that the queue has not passed, or 0; under the lock
Q_WITHDRAW_LOCK: Final = 56

Q_SUBMITTED: Final = 64  #: operations submitted; what only submitters touch is on this line
Q_CHUNK: Final = 72  #: chunk that the next record goes to
Q_OFFSET: Final = 80  #: where in it
Q_SUBMIT_LOCK: Final = 88
Q_SPARE: Final = 96  #: a drained chunk for the submitter to reuse, or 0
Q_GUESTS: Final = 104  #: threads that wait awake and may help meanwhile
Q_EXPECTED: Final = 112  #: guests that have helped lately, and are awaited before a worker is woken in their place
Q_PASSED: Final = 120  #: withdrawals that the ring of faults has no room for any more, or 0; under Q_WITHDRAW_LOCK

#: Operations that no worker has taken off the count; whoever raises it from 0 makes the queue ready. Alone on its line,
#: which an idle worker watches: a submission takes the line away once.
Q_PENDING: Final = 128

Q_PLACE: Final = 192  #: its place among those that wait, or 0
Q_DEVICE: Final = 200  #: the device whose workers run it
Q_PRIORITY: Final = 208  #: 0 high, 1 normal, 2 low
Q_HELPERS: Final = 216  #: the device whose workers may join its ranges
Q_WORKER: Final = 224  #: the worker that last woke a waiting thread, or opened a range; or 0
Q_CORE: Final = 232  #: where it ran then
Q_NOTED: Final = 240  #: when that was
Q_SHARES: Final = 248  #: the shares of its ranges, one for each worker of those that may join

Q_CURSOR: Final = 256  #: address of the next record to run; what only its worker touches is on this line
Q_FAILED: Final = 264  #: value of the operation that opened the present fault, or 0
Q_OPEN_CHUNK: Final = 272  #: chunk that the cursor is in
Q_KNOWN: Final = 280  #: what the worker last saw of Q_PENDING
Q_OWED: Final = 288  #: how many of those it has completed, and not taken off the count yet
Q_FORGIVEN: Final = 296  #: operations up to this value share the present fault's fate; NEVER while it is open
Q_SPENT: Final = 304  #: what its operations have taken since the last settlement, as far as that is known (ns)
Q_SETTLED: Final = 312  #: when that was, if others waited then; or 0

Q_RANGE_LEFT: Final = 320  #: shares of the range that have indices which nobody has claimed; no more than 0: none
Q_AWAITED: Final = 328  #: until when somebody is awaited who is to help with the range (ns); or 0
Q_RANGE_CHUNK: Final = 336  #: indices to claim at a time, at most
Q_RANGE_MEMBERS: Final = 344  #: workers inside, under the helpers' lock
Q_TIME: Final = 352  #: its virtual time (ns): of those that wait, the one with the least is served first
Q_RANGE_STATUS: Final = 360  #: first non-zero status, or 0
Q_RANGE_EXCINFO: Final = 368
Q_RANGE_LINKED: Final = 376  #: 1 while others may join, and the queue is among those that wait

Q_FAULT_RING: Final = 384  #: the last faults
FAULT_SLOTS: Final = 32
FAULT_BYTES: Final = 64
F_FIRST, F_LAST, F_KIND, F_A, F_B, F_C, F_D = 0, 8, 16, 24, 32, 40, 48
KIND_KERNEL, KIND_DEPENDENCY, KIND_GATE, KIND_WITHDRAWN = 1, 2, 3, 7

QUEUE_BYTES: Final = Q_FAULT_RING + FAULT_SLOTS * FAULT_BYTES

# Share: what one worker of a range begins with. On a cache line of its own.
S_NEXT: Final = 0  #: first place that nobody has claimed
S_END: Final = 8
S_MIRROR: Final = 16  #: 0 where places are indices; else the sum of a place and the end of the index there
SHARE_BYTES: Final = 64

# Device: the workers that share what waits.
D_LOCK: Final = 0
D_STOP: Final = 8
D_SPINNERS: Final = 16  #: workers that look for work without sleeping
D_SLEEPERS: Final = 24  #: first sleeping worker, or 0
D_WORKERS: Final = 32
D_LEFT: Final = 40  #: workers that have returned after stop

D_PENDING: Final = 64  #: queues that wait; spinners watch it
D_PENDING_BY_PRIORITY: Final = 72  #: three words
D_LEAST: Final = 96  #: three words: the virtual time of the queue that is first of those that wait, or NEVER
D_FIRST: Final = 128  #: three words: that queue, or 0
D_HEAP: Final = 152  #: three words: where the places of those that wait are, the first of which is number 1
D_ARRIVALS: Final = 176  #: how often a queue has begun to wait
D_CLOCK: Final = 192  #: three words: the virtual time of a queue that has had its share, neither more nor less
D_CAME: Final = 216  #: three words: how often a queue has become active, that is, waits or is served

D_GONE: Final = 256  #: three words: how often one has ceased to be; written without the lock
DEVICE_BYTES: Final = 320
PRIORITIES: Final = 3

# Place of a queue that waits.
H_TIME: Final = 0  #: its virtual time, of an open range that and what its members are about to use
H_ORDER: Final = 8  #: when it came, in arrivals
H_QUEUE: Final = 16
PLACE_BYTES: Final = 24

# Worker.
W_NEXT: Final = 0  #: next sleeper
W_SPIN: Final = 8  #: how long to look for work before sleeping, ns; learned
W_SPIN_CAP: Final = 16
W_PENALTY: Final = 24  #: idle periods left in which not to spin, since the core was taken
W_IDLE: Final = 48  #: when we ran out of work and began to look around, or 0
W_STAY: Final = 56  #: until when it is not to move to another core, ns
W_SEMAPHORE: Final = 64
W_STAYED: Final = 96  #: for how long it was not to, the last time
W_THREAD: Final = 104  #: the system's number of its thread
W_OFF: Final = 112  #: for how long (ns) it has had no core in all, counted from some time, when that was last looked at
WORKER_BYTES: Final = 128

# Guest: a thread that waits, and helps meanwhile.
V_UNTIL: Final = 0  #: it helps until then, ns; 0 once it is called away
V_DESCRIPTOR: Final = 8  #: what is readable when it is called away, or -1
V_LOOKED: Final = 16  #: when it looked at that
V_POLLED: Final = 24  #: what poll is asked, and answers
V_LONGEST: Final = 32  #: what an index may take, ns: between indices it cannot be called away
GUEST_BYTES: Final = 40

# Wait node: one waiter of one queue.
N_TARGET: Final = 0
N_OWNER: Final = 8  #: a queue, or a waker + 1
N_NEXT: Final = 16
N_QUEUE: Final = 24
N_FIRED_NEXT: Final = 32
N_FIRED: Final = 40  #: 1 while on its waker's fired list
NODE_BYTES: Final = 64

# Withdrawal: operations of a queue that do not run. A queue's are ascending, and apart from each other.
I_FIRST: Final = 0
I_LAST: Final = 8
I_NEXT: Final = 16
WITHDRAWAL_BYTES: Final = 24

# Passed withdrawals: how many there were, and a ring of the last ones, first and last operation of each.
P_COUNT: Final = 0
P_RING: Final = 16
PASSED_SLOTS: Final = 1024
PASSED_BYTES: Final = P_RING + 16 * PASSED_SLOTS

# Waker: a file descriptor that a loop watches.
K_DESCRIPTOR: Final = 0
K_PENDING: Final = 8  #: 1 between a write and the next collect
K_FIRED: Final = 16  #: first fired node, or 0
K_ONE: Final = 24  #: the eight bytes that are written
WAKER_BYTES: Final = 64

# Gate: an operation that the host completes.
G_STATE: Final = 0  #: 0 shut, 1 open, 2 open and failed
G_WAITER: Final = 8  #: queue that is held, or 0
G_REFERENCES: Final = 16  #: the queue's and the host's
GATE_BYTES: Final = 32

# Entry: a kernel's code and what it was seen to cost.
E_CODE: Final = 0
E_COST: Final = 8  #: picoseconds an index, or 0 while unknown
E_USES: Final = 16
E_UNIFORM: Final = 24  #: 1 if all indices take about as long, and wait for nothing
ENTRY_BYTES: Final = 32

# Chunk of records. A record is a header (operation, bytes) and its words.
C_BYTES: Final = 0
C_FIRST: Final = 64
CHUNK_BYTES: Final = 16384

RECORD_ALIGNMENT: Final = 64  #: a record that is written shares no cache line with one that is read
R_OPERATION: Final = 0
R_BYTES: Final = 8
R_A, R_B, R_C, R_ARGUMENTS = 16, 24, 32, 40
OP_CHUNK, OP_KERNEL, OP_WAIT, OP_GATE, OP_STAMP = 0, 1, 2, 3, 4
