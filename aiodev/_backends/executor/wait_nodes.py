"""Wait nodes: who waits for a queue, and wakers, by which threads are told.

**Invariant.** Waiters and completers shake hands: a waiter stores its target, then loads the counter; a completer stores the
counter, then loads the target. All four are sequentially consistent, so that at least one of the two sees the other, and
the node's target is taken back to ``NEVER`` by compare-exchange, so that exactly one acts.
"""

from __future__ import annotations

from aiodev._backends.executor.structs import NEVER, Queue, WaitNode, Waker
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import WORD, sizeof
from aiodev._native.intrinsics import c_write, malloc


@inner
def find_node(queue: Queue, owner: int) -> WaitNode:
    """The wait node of ``owner`` on ``queue``, made on first need and kept."""
    known = queue.waiters.load()
    while known is not None:
        if known.owner == owner:
            return known
        known = known.next
    address = malloc(sizeof(WaitNode))
    if address == 0:
        raise MemoryError("no memory for another waiter")
    node = WaitNode(address)
    node.target.value = NEVER
    node.owner = owner
    node.queue = queue
    node.fired_next = None
    node.fired.value = 0
    while True:
        first = queue.waiters.load()
        node.next = first
        if queue.waiters.compare_exchange(first, node):
            return node


@inner
def arm_node(queue: Queue, node: WaitNode, value: int) -> bool:
    """Have ``node`` fire at ``value``; False, and it will not fire, when that is reached already."""
    node.target.fetch_min(value)
    queue.target.fetch_min(value)
    if queue.completed.load_fence() < value:
        return True
    return not node.target.compare_exchange(value, NEVER)


@inner
def notify(waker: Waker, node: WaitNode) -> bool:
    """Put ``node`` on its waker's fired list, unless that is done already; whether the waker is to be rung."""
    if node.fired.exchange(1) == 0:
        while True:
            first = waker.fired.load()
            node.fired_next = first
            if waker.fired.compare_exchange(first, node):
                break
    return waker.pending.exchange(1) == 0


@inner
def ring(waker: Waker | None) -> None:
    """Write the descriptor of a waker, if there is one. That wakes a thread, which may take this thread's core at once."""
    if waker is not None:
        c_write(waker.descriptor, waker.one, WORD)


@exported(void(int64))
def rearm_waker(waker: Waker) -> None:
    """Allow the waker to write its descriptor again."""
    waker.pending.exchange(0)


@exported(int64(int64))
def next_fired(waker: Waker) -> int:
    """A queue that reached its armed value, or 0. One thread at a time."""
    while True:
        node = waker.fired.load()
        if node is None:
            return 0
        if waker.fired.compare_exchange(node, node.fired_next):
            node.fired.exchange(0)
            return node.queue.address
