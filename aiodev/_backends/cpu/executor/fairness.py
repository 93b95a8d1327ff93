"""Fairness: which waiting queue is served next, by the time of the device that each has had (invariant 7).

Queues of one priority share the workers as if each ran all the time, at the speed that is left for it (processor sharing). Each
has a *virtual time*: what it has used, of all workers together. A worker that looks for work takes the waiting queue with the
least, and gives way to another once it is a slice ahead of that.

The device's *clock* is what a queue that ran all the time would show: for so many ns used by one of ``n`` active queues it goes
on by an ``n``-th. A queue that was idle or held begins at the clock, or where it was if that is later. So a queue collects no
time while it wants none. Nor does a client that makes a queue for each request get rid of what it has used: each begins where
everybody's fair share has got to, behind all queues that have had less. (The clock of start-time fair queueing [1]_, the least
virtual time in service, stands still as long as new queues come. Whoever has used more than those never runs.)

Time counts only while another queue waits for it: what nobody else wanted is not held against anyone. While nobody waits, what
a queue is owed or owes shrinks by what it uses.

Waiting queues are a binary heap in an array, by virtual time and, where that is the same, by arrival. A queue whose range is
open is behind by a slice for each member, as if they had used that up already: workers spread over queues before they meet in
one. What is noted there may be less than what the members have used since, and is brought up to date before it counts.

.. [1] P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing. SIGCOMM 1996. The clock is that of A. Demers, S. Keshav,
   S. Shenker: Analysis and simulation of a fair queueing algorithm. SIGCOMM 1989.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.core_time import on_core, watch_interval
from aiodev._backends.cpu.structs import PRIORITIES, Device, Place, Queue, Worker
from aiodev._backends.cpu.tuning import LOOK, SLICE, TRUSTED
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import NEVER
from aiodev._native.compile import exported, inner, int64, void
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import copy_memory, now


@inner
def precedes(place: Place, time: int, order: int) -> bool:
    """Whether the queue at a place of the heap comes before one of this virtual time and arrival."""
    other = place.time
    return other < time or (other == time and place.order < order)


@inner
def fill_place(heap: Place, number: int, time: int, order: int, queue: Queue) -> None:
    """Store a waiting queue at a place of the heap."""
    place = heap[number]
    place.time = time
    place.order = order
    place.queue = queue
    queue.place = number


@inner
def sift(heap: Place, count: int, number: int, time: int, order: int, queue: Queue) -> None:
    """Sift a queue up or down the heap from a free place to where it belongs."""
    while number > 1 and not precedes(heap[number >> 1], time, order):
        above = heap[number >> 1]
        fill_place(heap, number, above.time, above.order, above.queue)
        number >>= 1
    while 2 * number <= count:
        child = 2 * number
        below = heap[child]
        if child < count and precedes(below[1], below.time, below.order):
            child += 1
            below = below[1]
        if not precedes(below, time, order):
            break
        fill_place(heap, number, below.time, below.order, below.queue)
        number = child
    fill_place(heap, number, time, order, queue)


@inner
def note_first(device: Device, priority: int) -> None:
    """Publish the first queue of a priority and its virtual time (lock held)."""
    if device.pending_by_priority[priority].value == 0:
        device.least[priority].store(NEVER)
        device.first[priority].store(None)
        return
    place = device.heap[priority].value[1]
    device.least[priority].store(place.time)
    device.first[priority].store(place.queue)


@inner
def standing(queue: Queue) -> int:
    """The virtual time by which a queue waits."""
    time = queue.time.load()
    return time + SLICE * queue.range_members.value if queue.range_linked.value != 0 else time


@inner
def line_up(device: Device, queue: Queue) -> None:
    """Add a queue to those that wait for a worker (lock held)."""
    priority = queue.priority
    count = device.pending_by_priority[priority].value + 1
    order = device.arrivals
    device.arrivals = order + 1
    sift(device.heap[priority].value, count, count, standing(queue), order, queue)
    device.pending.store(device.pending.value + 1)
    device.pending_by_priority[priority].store(count)
    note_first(device, priority)


@inner
def take_out(device: Device, queue: Queue) -> None:
    """Remove a queue from those that wait (lock held)."""
    priority = queue.priority
    heap = device.heap[priority].value
    count = device.pending_by_priority[priority].value - 1
    number = queue.place
    last = heap[count + 1]
    if number <= count:
        sift(heap, count, number, last.time, last.order, last.queue)
    queue.place = 0
    device.pending.store(device.pending.value - 1)
    device.pending_by_priority[priority].store(count)
    note_first(device, priority)


@inner
def move(device: Device, queue: Queue) -> None:
    """Reorder a waiting queue by the virtual time that it has by now (lock held)."""
    priority = queue.priority
    heap = device.heap[priority].value
    number = queue.place
    order = heap[number].order
    sift(heap, device.pending_by_priority[priority].value, number, standing(queue), order, queue)
    note_first(device, priority)


@inner
def first(device: Device, priority: int) -> Queue | None:
    """The queue that is to be served next (lock held), if any."""
    while True:
        queue = device.first[priority].value
        if queue is None or standing(queue) <= device.least[priority].value:
            return queue
        move(device, queue)


@inner
def arrive(device: Device, queue: Queue) -> None:
    """Start a queue that was idle or held at the virtual time that is due to it (lock held)."""
    came = device.came[queue.priority]
    came.store(came.value + 1)
    catch_up(device, queue)


@inner
def catch_up(device: Device, queue: Queue) -> None:
    """Move an idle queue's virtual time up to the clock (lock held): while it wanted no time it collects none."""
    clock = device.clock[queue.priority].load()
    if queue.time.load() < clock:
        queue.time.store(clock)


@inner
def depart(device: Device, priority: int) -> None:
    """Count one active queue less; it may be in other hands already."""
    device.gone[priority].fetch_add(1)


@inner
def is_only_one(device: Device) -> bool:
    """Whether one queue is active, of all priorities, or none."""
    active = 0
    for priority in range(PRIORITIES):
        active += device.came[priority].load() - device.gone[priority].load()
    return active <= 1


@inner
def charge(device: Device, queue: Queue, spent: int) -> None:
    """Count time that a worker or helper of ``device`` has spent on a queue that it serves, or on its range."""
    if device != queue.range_device:
        return  # its own worker's time is nobody else's
    priority = queue.priority
    clock = device.clock[priority]
    if device.pending_by_priority[priority].load() > queue.range_linked.load():
        active = max(1, device.came[priority].load() - device.gone[priority].load())
        queue.time.fetch_add(spent)
        clock.fetch_add((spent + active - 1) // active)
        return
    owed = clock.load() - queue.time.load()
    if owed != 0:
        queue.time.fetch_add(max(-spent, min(spent, owed)))


@inner
def others_wait(device: Device, queue: Queue) -> bool:
    """Whether queues of the same priority wait while this worker serves one."""
    return device.pending_by_priority[queue.priority].load() != 0


@inner
def begin_turn(device: Device, worker: Worker | None, queue: Queue) -> None:
    """Start the clock for the queue that this thread takes, if others wait."""
    queue.charged_at, queue.trusted = 0, 0
    if others_wait(device, queue):
        time = now()
        watch_interval(queue, worker, None, time)
        queue.charged_at = time


@inner
def spend(queue: Queue, duration: int) -> None:
    """Note what operations of the served queue took, or are thought to have taken."""
    queue.spent += duration


@inner
def charge_spent(device: Device, worker: Worker | None, queue: Queue) -> None:
    """Charge the served queue for what it spent since it was last charged; by the clock, if that was started.

    What is too little to be worth a look at the clock stays for another time.
    """
    begun, spent = queue.charged_at, queue.spent
    if begun == 0 and spent < LOOK:
        return
    if begun != 0:
        time = now()
        spent = on_core(queue, worker, None, time, time - begun)
        queue.charged_at = time if others_wait(device, queue) else 0
    queue.trusted = TRUSTED if spent <= LOOK + 2 * queue.spent else -1
    queue.spent = 0
    charge(device, queue, spent)


@inner
def is_ahead(device: Device, queue: Queue, by: int) -> bool:
    """Whether the served queue is more than ``by`` ns of virtual time ahead of one of its priority that waits."""
    priority = queue.priority
    if device.least[priority].load() >= queue.time.load() - by:
        return False
    lock(device.lock)
    other = first(device, priority)
    least = device.least[priority].value
    unlock(device.lock)
    return other != queue and least < queue.time.load() - by


@exported(void(int64, int64, int64))
def make_room(device: Device, places: Place, count: int) -> None:
    """Move the heaps to ``places``, which have room for ``count`` queues of each priority."""
    lock(device.lock)
    for priority in range(PRIORITIES):
        heap = device.heap[priority]
        waiting = device.pending_by_priority[priority].value
        if waiting > 0:
            copy_memory(places[1], heap.value[1], waiting * sizeof(Place))
        heap.value = places
        places = places[count + 1]
    unlock(device.lock)
