"""Ready queues, open ranges, sleepers: how a worker finds work and work finds a worker (invariants 2, 5 and 6)."""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import in_the_way, step_aside
from aiodev._backends.cpu.executor.fairness import arrive, catch_up, first, line_up, move, take_out, watch_core
from aiodev._backends.cpu.layout import (
    D_LOCK,
    D_PENDING,
    D_PENDING_BY_PRIORITY,
    D_SLEEPERS,
    D_SPINNERS,
    D_STOP,
    D_WORKERS,
    PRIORITIES,
    Q_DEVICE,
    Q_PENDING,
    Q_PRIORITY,
    Q_RANGE_LEFT,
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
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import (
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
from aiodev._backends.executor.locking import lock, unlock

#: A spin loop that saw no clock for this long (ns) was not running: its core was taken.
PREEMPTED = 50_000
#: Idle periods without spinning after that.
PENALTY = 8
#: How often (ns) a worker that looks for work offers its core: one that has the last piece of a range may be waiting for that.
OFFER = 8_000


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
    """Have a queue that was idle or held, and is in our hands, wait for a worker of its device."""
    device = get(queue + Q_DEVICE)
    lock(device + D_LOCK)
    arrive(device, queue)
    line_up(device, queue)
    sleeper = pop_sleeper(device)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@inner
def put_back(queue):
    """Have a queue that we have served wait for a worker again."""
    device = get(queue + Q_DEVICE)
    lock(device + D_LOCK)
    line_up(device, queue)
    sleeper = pop_sleeper(device)
    unlock(device + D_LOCK)
    wake_worker(sleeper)


@inner
def take(device, worker):
    """Whose turn it is (lock held): a ready queue, a queue + 1 whose range was joined, or 0; or -1: step aside first."""
    for priority in range(PRIORITIES):
        queue = first(device, priority)
        while queue != 0:
            if get(queue + Q_RANGE_LINKED) == 0:
                take_out(device, queue)
                return queue
            if load(queue + Q_RANGE_LEFT) > 0 and get(queue + Q_RANGE_MEMBERS) > 0 and in_the_way(queue, worker):
                return -1
            if enter_range(device, queue):
                return queue + 1
            unlink_range(device, queue)
            queue = first(device, priority)
    return 0


@inner
def link_range(device, queue):
    """Let others join a queue's range (lock held)."""
    if get(queue + Q_DEVICE) != device:
        catch_up(device, queue)  # a reserved queue waits here for nothing else
    store_fence(queue + Q_RANGE_LINKED, 1)
    line_up(device, queue)


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
    """Join a range that is open (lock held), which closes it if it has enough members now; False if it is exhausted."""
    if load(queue + Q_RANGE_LEFT) <= 0:
        return False
    members = get(queue + Q_RANGE_MEMBERS) + 1
    put(queue + Q_RANGE_MEMBERS, members)
    if members >= get(device + D_WORKERS):
        unlink_range(device, queue)
    else:
        move(device, queue)
    return True


@inner
def unlink_range(device, queue):
    """Let nobody else join a queue's range (lock held)."""
    if get(queue + Q_RANGE_LINKED) == 0:
        return
    store(queue + Q_RANGE_LINKED, 0)
    take_out(device, queue)


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
        watch_core(worker)


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
    for higher in range(get(queue + Q_PRIORITY)):  # noqa: SIM110  (native code has no generators)
        if load(device + D_PENDING_BY_PRIORITY + WORD * higher) != 0:
            return True
    return False
