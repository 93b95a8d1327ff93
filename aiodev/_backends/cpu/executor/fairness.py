"""Who is next: the queues that wait, by the time of the device that they have had (invariant 7).

Queues of one priority share the workers as if each ran all the time, at the speed that is left for it (processor sharing). Each
has a *virtual time*: what it has used, of all workers together. Whoever looks for work takes the queue that waits with the
least, and gives way to another once it is a slice ahead of that.

The device's *clock* is what a queue that ran all the time would show: for so many ns used by one of ``n`` active queues it goes
on by an ``n``-th. A queue that was idle or held begins at the clock, or where it was if that is later. So it neither collects
time while it wants none, nor gets rid of what it has used by being another queue: who makes one for each request begins each
where the fair share of everybody has got to meanwhile, behind all that have had less. (The least virtual time in service, the
clock of start-time fair queueing [1]_, stands still as long as new queues come: who has used more than those never runs.)

Time counts only while another queue waits for it: what nobody else wanted is not held against anyone. While nobody waits, what
a queue is owed or owes shrinks by what it uses.

Those that wait are a binary heap in an array, by virtual time and, where that is the same, by arrival. A queue whose range is
open is behind by a slice for each member, as if they had used that up already: workers spread over queues before they meet in
one. What is noted there may be less than what the members have used since, and is brought up to date before it counts.

.. [1] P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing. SIGCOMM 1996. The clock is that of A. Demers, S. Keshav,
   S. Shenker: Analysis and simulation of a fair queueing algorithm. SIGCOMM 1989.
"""

from __future__ import annotations

from aiodev._backends.cpu.layout import (
    D_ARRIVALS,
    D_CAME,
    D_CLOCK,
    D_FIRST,
    D_GONE,
    D_HEAP,
    D_LEAST,
    D_LOCK,
    D_PENDING,
    D_PENDING_BY_PRIORITY,
    H_ORDER,
    H_QUEUE,
    H_TIME,
    NEVER,
    PLACE_BYTES,
    PRIORITIES,
    Q_HELPERS,
    Q_PLACE,
    Q_PRIORITY,
    Q_RANGE_LINKED,
    Q_RANGE_MEMBERS,
    Q_SETTLED,
    Q_SPENT,
    Q_TIME,
    W_OFF,
    WORD,
)
from aiodev._backends.executor.compile import exported, inner, int64, void
from aiodev._backends.executor.intrinsics import copy_memory, fetch_add, get, load, now, put, store, thread_time
from aiodev._backends.executor.locking import lock, unlock

#: How far (ns) a queue gets ahead of another one that waits before that has its turn: switching costs what is in the caches,
#: and a request that takes few turns has luck or not.
SLICE = 250_000
#: What operations are thought to have taken (ns) when it is time to look at what they have, and to count it.
LOOK = 20_000
#: What an operation is thought to take at least: of short ones it is time at every 32nd.
OPERATION = LOOK // 32


#: An interval that is longer than this (ns) is looked at more closely: the thread may have had no core meanwhile.
SUSPICIOUS = 200_000


@inner
def precedes(place, time, order):
    """Whether what is at a place comes before something else."""
    other = get(place + H_TIME)
    return other < time or (other == time and get(place + H_ORDER) < order)


@inner
def fill_place(heap, number, time, order, queue):
    place = heap + number * PLACE_BYTES
    put(place + H_TIME, time)
    put(place + H_ORDER, order)
    put(place + H_QUEUE, queue)
    put(queue + Q_PLACE, number)


@inner
def settle_in(heap, count, number, time, order, queue):
    """Put a queue at a place that is free, or nearer to the first or to the last, where it belongs."""
    while number > 1 and not precedes(heap + (number >> 1) * PLACE_BYTES, time, order):
        above = heap + (number >> 1) * PLACE_BYTES
        fill_place(heap, number, get(above + H_TIME), get(above + H_ORDER), get(above + H_QUEUE))
        number >>= 1
    while 2 * number <= count:
        child = 2 * number
        below = heap + child * PLACE_BYTES
        if child < count and precedes(below + PLACE_BYTES, get(below + H_TIME), get(below + H_ORDER)):
            child += 1
            below += PLACE_BYTES
        if not precedes(below, time, order):
            break
        fill_place(heap, number, get(below + H_TIME), get(below + H_ORDER), get(below + H_QUEUE))
        number = child
    fill_place(heap, number, time, order, queue)


@inner
def note_first(device, priority):
    """Let everybody see who is first (lock held)."""
    if get(device + D_PENDING_BY_PRIORITY + WORD * priority) == 0:
        store(device + D_LEAST + WORD * priority, NEVER)
        store(device + D_FIRST + WORD * priority, 0)
        return
    place = get(device + D_HEAP + WORD * priority) + PLACE_BYTES
    store(device + D_LEAST + WORD * priority, get(place + H_TIME))
    store(device + D_FIRST + WORD * priority, get(place + H_QUEUE))


@inner
def standing(queue):
    """The virtual time by which a queue waits."""
    time = load(queue + Q_TIME)
    return time + SLICE * get(queue + Q_RANGE_MEMBERS) if get(queue + Q_RANGE_LINKED) != 0 else time


@inner
def line_up(device, queue):
    """Have a queue wait for a worker (lock held)."""
    priority = get(queue + Q_PRIORITY)
    count = get(device + D_PENDING_BY_PRIORITY + WORD * priority) + 1
    order = get(device + D_ARRIVALS)
    put(device + D_ARRIVALS, order + 1)
    settle_in(get(device + D_HEAP + WORD * priority), count, count, standing(queue), order, queue)
    store(device + D_PENDING, get(device + D_PENDING) + 1)
    store(device + D_PENDING_BY_PRIORITY + WORD * priority, count)
    note_first(device, priority)


@inner
def take_out(device, queue):
    """Have a queue that waits wait no longer (lock held)."""
    priority = get(queue + Q_PRIORITY)
    heap = get(device + D_HEAP + WORD * priority)
    count = get(device + D_PENDING_BY_PRIORITY + WORD * priority) - 1
    number = get(queue + Q_PLACE)
    last = heap + (count + 1) * PLACE_BYTES
    if number <= count:
        settle_in(heap, count, number, get(last + H_TIME), get(last + H_ORDER), get(last + H_QUEUE))
    put(queue + Q_PLACE, 0)
    store(device + D_PENDING, get(device + D_PENDING) - 1)
    store(device + D_PENDING_BY_PRIORITY + WORD * priority, count)
    note_first(device, priority)


@inner
def move(device, queue):
    """Have a queue that waits do so by what it has used by now (lock held)."""
    priority = get(queue + Q_PRIORITY)
    heap = get(device + D_HEAP + WORD * priority)
    number = get(queue + Q_PLACE)
    order = get(heap + number * PLACE_BYTES + H_ORDER)
    settle_in(heap, get(device + D_PENDING_BY_PRIORITY + WORD * priority), number, standing(queue), order, queue)
    note_first(device, priority)


@inner
def first(device, priority):
    """The queue that is to be served next (lock held), or 0."""
    while True:
        queue = get(device + D_FIRST + WORD * priority)
        if queue == 0 or standing(queue) <= get(device + D_LEAST + WORD * priority):
            return queue
        move(device, queue)


@inner
def arrive(device, queue):
    """Have a queue that was idle or held begin with what is its due (lock held)."""
    came = device + D_CAME + WORD * get(queue + Q_PRIORITY)
    store(came, get(came) + 1)
    catch_up(device, queue)


@inner
def catch_up(device, queue):
    """A queue that wanted no time was given none (lock held)."""
    clock = load(device + D_CLOCK + WORD * get(queue + Q_PRIORITY))
    if load(queue + Q_TIME) < clock:
        store(queue + Q_TIME, clock)


@inner
def depart(device, priority):
    """Count one active queue less; it may be in other hands already."""
    fetch_add(device + D_GONE + WORD * priority, 1)


@inner
def watch_core(worker):
    """Begin to look at how long this thread, a worker's, has no core; it had none while it slept."""
    put(worker + W_OFF, now() - thread_time())


@inner
def on_core(worker, time, duration):
    """For how much of the ``duration`` ns up to ``time`` this thread had a core: what others took is not the queue's."""
    if worker == 0 or duration < SUSPICIOUS:
        return duration
    off = time - thread_time()
    lost = off - get(worker + W_OFF)
    put(worker + W_OFF, off)
    return max(0, duration - lost)


@inner
def charge(device, queue, spent):
    """Count time that a worker or guest of ``device`` has spent on a queue that it serves, or on its range."""
    if device != get(queue + Q_HELPERS):
        return  # its own worker's time is nobody else's
    priority = get(queue + Q_PRIORITY)
    clock = device + D_CLOCK + WORD * priority
    if load(device + D_PENDING_BY_PRIORITY + WORD * priority) > load(queue + Q_RANGE_LINKED):
        active = max(1, load(device + D_CAME + WORD * priority) - load(device + D_GONE + WORD * priority))
        fetch_add(queue + Q_TIME, spent)
        fetch_add(clock, (spent + active - 1) // active)
        return
    owed = load(clock) - load(queue + Q_TIME)
    if owed != 0:
        fetch_add(queue + Q_TIME, max(-spent, min(spent, owed)))


@inner
def others_wait(device, queue):
    """Whether queues of the same priority wait for the one in our hands."""
    return load(device + D_PENDING_BY_PRIORITY + WORD * get(queue + Q_PRIORITY)) != 0


@inner
def begin_turn(device, queue):
    """Begin to look at the clock for the queue in our hands, if others wait."""
    put(queue + Q_SETTLED, now() if others_wait(device, queue) else 0)


@inner
def spend(queue, duration):
    """Note what operations of the queue in our hands have taken, or are thought to."""
    put(queue + Q_SPENT, get(queue + Q_SPENT) + duration)


@inner
def settle(device, worker, queue):
    """Charge the queue in our hands for what was spent since the last settlement; by the clock, if we have looked at that.

    What is too little to be worth the look stays for another time.
    """
    begun, spent = get(queue + Q_SETTLED), get(queue + Q_SPENT)
    if begun == 0 and spent < LOOK:
        return
    if begun != 0:
        time = now()
        spent = on_core(worker, time, time - begun)
        put(queue + Q_SETTLED, time if others_wait(device, queue) else 0)
    put(queue + Q_SPENT, 0)
    charge(device, queue, spent)


@inner
def is_ahead(device, queue, by):
    """Whether a queue in our hands has had more than another of its priority that waits, by more than ``by`` ns."""
    priority = get(queue + Q_PRIORITY)
    if load(device + D_LEAST + WORD * priority) >= load(queue + Q_TIME) - by:
        return False
    lock(device + D_LOCK)
    other = first(device, priority)
    least = get(device + D_LEAST + WORD * priority)
    unlock(device + D_LOCK)
    return other != queue and least < load(queue + Q_TIME) - by


@exported(void(int64, int64, int64))
def make_room(device, places, count):
    """Have ``count`` queues of each priority find a place at ``places``; those that wait move there."""
    lock(device + D_LOCK)
    for priority in range(PRIORITIES):
        heap = device + D_HEAP + WORD * priority
        waiting = get(device + D_PENDING_BY_PRIORITY + WORD * priority)
        if waiting > 0:
            copy_memory(places + PLACE_BYTES, get(heap) + PLACE_BYTES, waiting * PLACE_BYTES)
        put(heap, places)
        places += (count + 1) * PLACE_BYTES
    unlock(device + D_LOCK)
