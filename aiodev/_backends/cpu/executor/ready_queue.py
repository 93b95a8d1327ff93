"""Ready queue, open ranges and sleepers: how a worker finds work and work finds a worker (invariants 2, 5 and 6)."""

from __future__ import annotations

from aiodev._backends.cpu.executor.affinity import in_the_way, step_aside
from aiodev._backends.cpu.executor.coalescing import ring_alone, ring_held
from aiodev._backends.cpu.executor.core_time import note_offer, watch_core
from aiodev._backends.cpu.executor.crowding import is_crowded, note_crowd
from aiodev._backends.cpu.executor.fairness import arrive, catch_up, first, is_only_one, line_up, move, take_out
from aiodev._backends.cpu.structs import PRIORITIES, Device, Queue, Worker
from aiodev._backends.cpu.tuning import DOUBT, LATE, LOOKOUT, OFFER, SHORTEST_SPIN, SPIN_MARGIN, TAKEN
from aiodev._backends.executor.locking import lock, unlock
from aiodev._native.compile import inner
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import (
    Timespec,
    clock_wait,
    now,
    on_stack,
    pause,
    sched_yield,
    sem_post,
    sem_wait,
)

#: In place of work: this worker is to leave its core first, to the one that has the range, if that is all there is; or to
#: sleep, since there is a helper for each core that sleeping workers leave, or more urgent work has all cores.
STEP_ASIDE, SLEEP = -1, -2


@inner
def forget_sleeper(device: Device, worker: Worker) -> None:
    """Take a worker off the list of those that sleep (lock held); it is one of them."""
    worker.asleep = 0
    device.asleep = device.asleep - 1
    before = device.sleepers
    if before == worker:
        device.sleepers = worker.next
        return
    while before is not None and before.next != worker:
        before = before.next
    if before is not None:
        before.next = worker.next


@inner
def has_place(device: Device, asleep: int) -> bool:
    """Whether a worker may be awake while so many others are asleep (lock held): in a crowd, the reserve, too."""
    more = asleep - device.surplus
    return more >= device.reserve or (more >= 0 and is_crowded(device.crowd, now()))


@inner
def cores_left(device: Device) -> int:
    """How many cores sleeping workers leave to others (lock held)."""
    return device.asleep - device.surplus - device.reserve


@inner
def pop_sleeper(device: Device) -> Worker | None:
    """The sleeper to wake for pending work (lock held); None if none may be woken, or if another worker looks for work."""
    sleeper = device.sleepers
    if sleeper is None or device.spinners.value != 0:
        return None
    if device.surplus + device.reserve != 0 and not has_place(device, device.asleep - 1):
        return None
    if device.prime.asleep != 0:
        sleeper = device.prime
    forget_sleeper(device, sleeper)
    if device.lookout.value == sleeper:
        device.lookout.store(None)
    return sleeper


@inner
def wake_worker(sleeper: Worker | None) -> None:
    """Wake a worker; None wakes none."""
    if sleeper is not None:
        sleeper.woken = now()
        sem_post(sleeper.semaphore)


@inner
def make_ready(queue: Queue) -> None:
    """Make a queue ready that was idle or held, and that this thread holds."""
    device = queue.device
    lock(device.lock)
    arrive(device, queue)
    line_up(device, queue)
    sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@inner
def begin_queue(queue: Queue) -> None:
    """Make a queue ready that was given an operation, for a worker or for a submitter that tends to run what it waits for.

    In that case no worker is woken as long as one of them is the lookout: a worker would come for nothing, and take somebody
    else's core. An operation that the submitter does not run waits for ``LOOKOUT`` and twice ``DOUBT`` ns at most, about as
    long as a woken worker may have to wait for a core. Where several queues wait, the submitter has enough to do, and a worker
    is woken.
    """
    device = queue.device
    if device.lookout.load() is None or queue.expected_helpers.load() == 0:
        make_ready(queue)
        return
    lock(device.lock)
    arrive(device, queue)
    line_up(device, queue)
    sleeper: Worker | None = None
    if device.lookout.value is None or device.pending.value > 1:
        sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@inner
def send_for_worker(device: Device) -> None:
    """Wake a worker, if there is a lookout and a queue waits: the submitter that was to run it does not."""
    if device.lookout.load_fence() is not None:
        send_another(device)


@inner
def send_another(device: Device) -> None:
    """Wake a worker if a queue waits: the one that looked for work, for whose sake none was woken, has some other."""
    if device.pending.load_fence() == 0:
        return
    lock(device.lock)
    sleeper: Worker | None = None
    if device.pending.value != 0:
        sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@inner
def put_back(queue: Queue, waited_for: bool) -> None:
    """Make a queue ready again that this thread has served.

    Where it goes on to wait for that, to run more of it or to park, the lookout is enough until then, as in ``begin_queue``.
    """
    device = queue.device
    lock(device.lock)
    line_up(device, queue)
    sleeper: Worker | None = None
    if not waited_for or device.lookout.value is None or device.pending.value > 1:
        sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@inner
def take(device: Device, worker: Worker) -> int:
    """The next work (lock held): a ready queue; a queue + 1 whose range was joined; 0 for none; or what to do first."""
    for priority in range(PRIORITIES):
        queue = first(device, priority)
        while queue is not None:
            if queue.range_linked.value == 0:
                take_out(device, queue)
                return queue.address
            if queue.range_left.load() > 0 and queue.range_members.value > 0:
                if cores_left(device) < queue.helpers.load() and is_only_one(device):
                    return SLEEP
                if in_the_way(queue, worker):
                    return STEP_ASIDE
            if enter_range(device, queue):
                return queue.address + 1
            unlink_range(device, queue)
            queue = first(device, priority)
        if device.full[priority].value != 0 and device.pending.value != 0:
            return SLEEP
    return 0


@inner
def link_range(device: Device, queue: Queue) -> None:
    """Let others join a queue's range (lock held)."""
    if queue.device != device:
        catch_up(device, queue)  # a reserved queue waits here for nothing else
    queue.range_linked.store_fence(1)
    line_up(device, queue)


@inner
def wake_for_range(device: Device, queue: Queue) -> None:
    """Wake a sleeper to help with the queue's range, if that is open: none of the last, whose cores its helpers have."""
    if queue.range_linked.load_fence() == 0:
        return
    lock(device.lock)
    sleeper: Worker | None = None
    if cores_left(device) > queue.helpers.load():
        sleeper = pop_sleeper(device)
    unlock(device.lock)
    wake_worker(sleeper)


@inner
def enter_range(device: Device, queue: Queue) -> bool:
    """Join a range that is open (lock held), which closes it if it has enough members now; False if it is exhausted."""
    if queue.range_left.load() <= 0:
        return False
    members = queue.range_members.value + 1
    queue.range_members.value = members
    if members >= device.workers:
        unlink_range(device, queue)
        if queue.range_full == 0:
            queue.range_full = 1
            full = device.full[queue.priority]
            full.store(full.value + 1)
    else:
        move(device, queue)
    return True


@inner
def unlink_range(device: Device, queue: Queue) -> None:
    """Let nobody else join a queue's range (lock held)."""
    if queue.range_linked.value == 0:
        return
    queue.range_linked.store(0)
    take_out(device, queue)


@inner
def find_work(device: Device, worker: Worker) -> int:
    """Take work, looking for a while and then sleeping until there is some; 0 when the device stops."""
    looking = True
    while True:
        lock(device.lock)
        if device.stop.value != 0:
            unlock(device.lock)
            ring_held(worker)
            return 0
        work = 0
        if has_place(device, device.asleep):
            work = take(device, worker)
        else:
            looking = False  # there are enough others, who come by here before they sleep
        if work == STEP_ASIDE:
            unlock(device.lock)
            step_aside(worker)
            continue
        if work == SLEEP:
            work = 0
            looking = False
        if work != 0:
            sleeper: Worker | None = None
            if device.pending.value > 0:
                sleeper = pop_sleeper(device)
            unlock(device.lock)
            wake_worker(sleeper)
            adapt_spin(worker)
            return work
        bell = worker.bell
        if bell is not None:
            unlock(device.lock)
            worker.bell = None
            ring_alone(device, bell)
            continue
        if looking:
            unlock(device.lock)
            looking = look_around(device, worker, None, 0)
            continue
        worker.next = device.sleepers
        worker.asleep = 1
        device.sleepers = worker
        device.asleep = device.asleep + 1
        lookout = False
        crowd = device.crowd
        if crowd.clock_wait != 0 and device.lookout.value is None and is_crowded(crowd, now()):
            lookout = True
            device.lookout.store(worker)
        unlock(device.lock)
        if lookout:
            keep_lookout(device, worker)
        else:
            sleep(device, worker)
        watch_core(worker)


@inner
def sleep(device: Device, worker: Worker) -> None:
    """Sleep until this worker, one of the sleepers, is woken."""
    while sem_wait(worker.semaphore) != 0:
        pass
    time = now()
    if time - worker.woken > LATE and is_witness(device):
        note_crowd(device.crowd, time)


@inner
def keep_lookout(device: Device, worker: Worker) -> None:
    """Sleep until this worker, the lookout, is woken, or sees that a queue waits that nobody serves."""
    timespec, arrivals, doubtful = Timespec(on_stack(sizeof(Timespec))), device.arrivals, False
    while True:
        until = now() + (DOUBT if doubtful else LOOKOUT)
        timespec.seconds = until // 1_000_000_000
        timespec.nanoseconds = until % 1_000_000_000
        if clock_wait(device.crowd.clock_wait, worker.semaphore, timespec) == 0:
            return
        lock(device.lock)
        mine, alone = device.lookout.value == worker, is_left_alone(device)
        crowded, still = is_crowded(device.crowd, now()), device.arrivals == arrivals
        taken = mine and alone and ((doubtful and still) or not crowded)  # at the first look somebody may be about to come
        over = not mine or (not alone and ((not doubtful and still) or not crowded))
        doubtful, arrivals = alone and (still or not doubtful), device.arrivals  # else somebody came, and has come again
        if taken or (mine and over):
            device.lookout.store(None)
        if taken:
            forget_sleeper(device, worker)
            for priority in range(PRIORITIES):
                queue = first(device, priority)
                if queue is not None:
                    queue.expected_helpers.store(0)
        unlock(device.lock)
        if taken:
            return
        if over:
            sleep(device, worker)
            return


@inner
def is_left_alone(device: Device) -> bool:
    """Whether a queue waits that nobody serves (lock held)."""
    for priority in range(PRIORITIES):
        queue = first(device, priority)
        if queue is not None and (queue.range_linked.value == 0 or queue.range_members.value == 0):
            return True
    return False


@inner
def look_around(device: Device, worker: Worker, queue: Queue | None, owed: int) -> bool:
    """Spin for as long as this worker has learnt that it pays, counted from when it ran out of work; whether there is any.

    ``queue`` is None, or the served queue, all ``owed`` pending operations of which are done: its next operation counts as
    work. To keep hold of it saves its submitter and the worker the way over the ready queue.
    """
    time = now()
    if worker.idle == 0:
        worker.idle = time
    until = worker.idle + worker.spin
    if time >= until or is_crowded(device.crowd, time):
        return False
    offers = time + OFFER
    device.spinners.fetch_add(1)
    seen_work = has_work(device, queue, owed)
    while not seen_work:
        seen, time = time, now()
        if time - seen > TAKEN:
            if is_witness(device):
                note_crowd(device.crowd, time)
            watch_core(worker)
            break
        if time >= until:
            break
        if time >= offers:
            sched_yield()
            note_offer(worker, None, now() - time)
            offers = time + OFFER
        seen_work = has_work(device, queue, owed)
    device.spinners.fetch_add(-1)
    return seen_work


@inner
def is_witness(device: Device) -> bool:
    """Whether a worker that had no core tells of others: while all workers are awake, a thread that submits may have had it."""
    return device.asleep > device.reserve or device.workers == 1


@inner
def has_work(device: Device, queue: Queue | None, owed: int) -> bool:
    """Look for work 32 times; whether there is any."""
    for _ in range(32):
        if device.pending.load() != 0 or device.stop.load() != 0:
            return True
        if queue is not None and queue.pending.load() > owed:
            return True
        pause()
    return False


@inner
def adapt_spin(worker: Worker) -> None:
    """Adapt the spin to how long work took to come: spin for what tends to come soon, sleep through the rest."""
    since = worker.idle
    if since == 0:
        return
    worker.idle = 0
    idle = now() - since
    cap = worker.spin_cap
    spin = worker.spin
    if idle <= cap:
        worker.spin = max(spin, min(cap, 2 * idle + SPIN_MARGIN))
    else:
        worker.spin = spin - spin // 4 if spin > SHORTEST_SPIN else 0


@inner
def outranked(device: Device, queue: Queue) -> bool:
    """Whether more urgent work than ``queue`` waits, or has all cores: one thread more would take one from it."""
    for higher in range(queue.priority):
        if device.pending_by_priority[higher].load() != 0 or device.full[higher].load() != 0:
            return True
    return False
