"""Ready lists, open ranges, sleepers: how a worker finds work and work finds a worker (invariants 2, 5 and 6)."""

from __future__ import annotations

from aiodev._backends.cpu.layout import (
    D_LOCK,
    D_OPEN,
    D_PENDING,
    D_PENDING_BY_PRIORITY,
    D_READY_HEAD,
    D_READY_TAIL,
    D_SLEEPERS,
    D_SPINNERS,
    D_STOP,
    D_WORKERS,
    PRIORITIES,
    Q_DEVICE,
    Q_NEXT,
    Q_PENDING,
    Q_PRIORITY,
    Q_RANGE_LEFT,
    Q_RANGE_LINK,
    Q_RANGE_LINKED,
    Q_RANGE_MEMBERS,
    W_IDLE,
    W_NEXT,
    W_PENALTY,
    W_SEMAPHORE,
    W_SPIN,
    W_SPIN_CAP,
    WORD,
)
from aiodev._backends.cpu.native.compile import inner
from aiodev._backends.cpu.native.cores import in_the_way, step_aside
from aiodev._backends.cpu.native.intrinsics import (
    exchange,
    fetch_add,
    get,
    load,
    load_fence,
    now,
    pause,
    put,
    sched_yield,
    sem_post,
    sem_wait,
    store,
    store_fence,
)

#: A spin loop that saw no clock for this long (ns) was not running: its core was taken.
PREEMPTED = 50_000
#: Idle periods without spinning after that.
PENALTY = 8
#: How often (ns) a worker that looks for work offers its core: one that has the last piece of a range may be waiting for that.
OFFER = 8_000


@inner
def lock(address):
    turns = 0
    while exchange(address, 1) != 0:
        while load(address) != 0:
            turns += 1
            if turns & 63 == 0:
                sched_yield()
            else:
                pause()


@inner
def unlock(address):
    store(address, 0)


@inner
def announce(device, priority):
    """Count one more queue on a list (lock held)."""
    store(device + D_PENDING, get(device + D_PENDING) + 1)
    by_priority = device + D_PENDING_BY_PRIORITY + WORD * priority
    store(by_priority, get(by_priority) + 1)


@inner
def withdraw(device, priority):
    """Count one queue less on a list (lock held)."""
    store(device + D_PENDING, get(device + D_PENDING) - 1)
    by_priority = device + D_PENDING_BY_PRIORITY + WORD * priority
    store(by_priority, get(by_priority) - 1)


@inner
def pop_sleeper(device):
    """A sleeper that should be woken for pending work (lock held), or 0: none asleep, or somebody is looking."""
    sleeper = get(device + D_SLEEPERS)
    if sleeper == 0 or get(device + D_SPINNERS) != 0:
        return 0
    put(device + D_SLEEPERS, get(sleeper + W_NEXT))
    return sleeper


@inner
def wake_worker(sleeper):
    if sleeper != 0:
        sem_post(sleeper + W_SEMAPHORE)


@inner
def make_ready(queue):
    """Put a queue that is in our hands on its device's ready list."""
    device = get(queue + Q_DEVICE)
    priority = get(queue + Q_PRIORITY)
    head = device + D_READY_HEAD + WORD * priority
    tail = device + D_READY_TAIL + WORD * priority
    lock(device + D_LOCK)
    put(queue + Q_NEXT, 0)
    last = get(tail)
    if last != 0:
        put(last + Q_NEXT, queue)
    else:
        put(head, queue)
    put(tail, queue)
    announce(device, priority)
    sleeper = pop_sleeper(device)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@inner
def take(device, worker):
    """The most urgent work (lock held): a ready queue, a queue + 1 whose range was joined, or 0; or -1: step aside first."""
    for priority in range(PRIORITIES):
        head = device + D_READY_HEAD + WORD * priority
        queue = get(head)
        if queue != 0:
            following = get(queue + Q_NEXT)
            put(head, following)
            if following == 0:
                put(device + D_READY_TAIL + WORD * priority, 0)
            withdraw(device, priority)
            return queue
        queue = get(device + D_OPEN + WORD * priority)
        while queue != 0:
            following = get(queue + Q_RANGE_LINK)
            if load(queue + Q_RANGE_LEFT) > 0 and in_the_way(queue, worker):
                return -1
            if enter_range(device, queue):
                return queue + 1
            unlink_range(device, queue)
            queue = following
    return 0


@inner
def link_range(device, queue):
    """Put a queue on the open list (lock held)."""
    priority = get(queue + Q_PRIORITY)
    put(queue + Q_RANGE_LINK, get(device + D_OPEN + WORD * priority))
    put(device + D_OPEN + WORD * priority, queue)
    store_fence(queue + Q_RANGE_LINKED, 1)
    announce(device, priority)


@inner
def wake_helper(device, queue):
    """Wake a sleeper, if there is one, to help with the queue's range, if that is open."""
    if load_fence(queue + Q_RANGE_LINKED) == 0:
        return
    lock(device + D_LOCK)
    sleeper = pop_sleeper(device)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@inner
def enter_range(device, queue):
    """Join a range on the open list (lock held), which takes it off if it has enough members now; False if it is exhausted."""
    if load(queue + Q_RANGE_LEFT) <= 0:
        return False
    members = get(queue + Q_RANGE_MEMBERS) + 1
    put(queue + Q_RANGE_MEMBERS, members)
    if members >= get(device + D_WORKERS):
        unlink_range(device, queue)
    return True


@inner
def unlink_range(device, queue):
    """Take a queue off the open list (lock held)."""
    if get(queue + Q_RANGE_LINKED) == 0:
        return
    store(queue + Q_RANGE_LINKED, 0)
    priority = get(queue + Q_PRIORITY)
    link = device + D_OPEN + WORD * priority
    while get(link) != queue:
        link = get(link) + Q_RANGE_LINK
    put(link, get(queue + Q_RANGE_LINK))
    withdraw(device, priority)


@inner
def find_work(device, worker):
    """Take work, looking for a while and then sleeping until there is some; 0 when the device stops."""
    looking = True
    while True:
        lock(device + D_LOCK)
        if get(device + D_STOP) != 0:
            unlock(device + D_LOCK)
            return 0
        work = take(device, worker)
        if work == -1:
            unlock(device + D_LOCK)
            step_aside(worker)
            continue
        if work != 0:
            sleeper = 0
            if get(device + D_PENDING) > 0:
                sleeper = pop_sleeper(device)
            unlock(device + D_LOCK)
            wake_worker(sleeper)
            learn(worker)
            return work
        if looking:
            unlock(device + D_LOCK)
            looking = look_around(device, worker, 0, 0)
            continue
        put(worker + W_NEXT, get(device + D_SLEEPERS))
        put(device + D_SLEEPERS, worker)
        unlock(device + D_LOCK)
        while sem_wait(worker + W_SEMAPHORE) != 0:
            pass


@inner
def look_around(device, worker, queue, owed):
    """Spin for as long as this worker has learnt that it pays, counted from when it ran out of work; whether there is any.

    ``queue`` is 0, or a queue in our hands, all ``owed`` pending operations of which are done: what there is may be another
    one of it. Keeping hold of it saves its submitter and us the way over the ready list.
    """
    time = now()
    if get(worker + W_IDLE) == 0:
        put(worker + W_IDLE, time)
    if get(worker + W_PENALTY) > 0:
        return False
    until = get(worker + W_IDLE) + get(worker + W_SPIN)
    if time >= until:
        return False
    offers = time + OFFER
    fetch_add(device + D_SPINNERS, 1)
    found = watch(device, queue, owed)
    while not found:
        seen, time = time, now()
        if time - seen > PREEMPTED:
            put(worker + W_PENALTY, PENALTY)
            break
        if time >= until:
            break
        if time >= offers:
            sched_yield()
            offers = time + OFFER
        found = watch(device, queue, owed)
    fetch_add(device + D_SPINNERS, -1)
    return found


@inner
def watch(device, queue, owed):
    """Look some times; whether there is anything to do."""
    for _ in range(32):
        if load(device + D_PENDING) != 0 or load(device + D_STOP) != 0:
            return True
        if queue != 0 and load(queue + Q_PENDING) > owed:
            return True
        pause()
    return False


@inner
def learn(worker):
    """Adapt the spin to how long work took to come: spin for what tends to come soon, sleep through the rest."""
    since = get(worker + W_IDLE)
    if since == 0:
        return
    put(worker + W_IDLE, 0)
    put(worker + W_PENALTY, max(0, get(worker + W_PENALTY) - 1))
    idle = now() - since
    cap = get(worker + W_SPIN_CAP)
    spin = get(worker + W_SPIN)
    if idle <= cap:
        put(worker + W_SPIN, max(spin, min(cap, 2 * idle + 5_000)))
    else:
        put(worker + W_SPIN, spin - spin // 4 if spin > 1_000 else 0)


@inner
def outranked(device, queue):
    """Whether more urgent work than ``queue`` waits."""
    for higher in range(get(queue + Q_PRIORITY)):  # noqa: SIM110  (nopython code has no generators)
        if load(device + D_PENDING_BY_PRIORITY + WORD * higher) != 0:
            return True
    return False
