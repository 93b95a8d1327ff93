"""What threads of an executor learn from being kept from their cores, over a memory and a clock of the test's own."""

from __future__ import annotations

import struct
import threading
import time

import numpy as np
import pytest
from interpreted import TICK, World
from pieces import MS, PATIENCE, Entry, busy_for, one_worker_held, started

from aiodev._backends.cpu.executor import (
    core_time,
    crowding,
    helping,
    parallel_for,
    ready_queue,
    waiting,
    worker as worker_module,
)
from aiodev._backends.cpu.executor.helping import REFUSED
from aiodev._backends.cpu.structs import (
    LOW,
    PRIORITIES,
    BufferRecord,
    CommandBuffer,
    Device,
    Entry as Code,
    Helper,
    KernelRecord,
    Queue,
    Worker,
)
from aiodev._backends.cpu.tuning import (
    ALONE,
    ALONE_IN_A_CROWD,
    BRIEF,
    CALM,
    DOUBTED,
    FORGOTTEN,
    GIVEN,
    LATE,
    LONGEST_CROWD,
    OFFER,
    OVERDUE,
    SHORTEST_CROWD,
    SUSPICIOUS,
    TAKEN,
    YIELD_EVERY,
)
from aiodev._backends.executor.structs import Waker
from aiodev._core.backend.interface import BLOCKED

LONG = 1 << 62


def crowded(world: World) -> None:
    """From now on, for as long as the test goes on."""
    world.crowd.until.value = LONG


def test_a_machine_that_stays_crowded_is_tried_ever_more_seldom() -> None:
    """Each time that it turns out to be crowded still, for twice as long as before; not at all for more than so long."""
    world, at = World(), 10 * LONGEST_CROWD
    for k in range(10):
        world.run(crowding, "note_crowd", world.crowd, at)
        span = min(SHORTEST_CROWD << k, LONGEST_CROWD)
        assert world.crowd.until.value == at + span
        assert world.run(crowding, "is_crowded", world.crowd, at + span - 1)
        assert not world.run(crowding, "is_crowded", world.crowd, at + span)
        at += span


def test_what_is_known_already_counts_once() -> None:
    """Many threads are kept from their cores at once."""
    world, at = World(), 10 * LONGEST_CROWD
    for _ in range(5):
        world.run(crowding, "note_crowd", world.crowd, at)
    assert (world.crowd.until.value, world.crowd.span) == (at + SHORTEST_CROWD, SHORTEST_CROWD)


@pytest.mark.parametrize("until", [0, LONG])
def test_what_is_said_to_stay_stays(until: int) -> None:
    """Whatever a thread has seen: tests that are about something else want one of the two."""
    world, at = World(), 10 * LONGEST_CROWD
    world.crowd.until.value, world.crowd.span = until, -1
    world.run(crowding, "note_crowd", world.crowd, at)
    assert (world.crowd.until.value, world.crowd.span) == (until, -1)


def test_what_was_long_ago_is_forgotten() -> None:
    world, at = World(), 10 * LONGEST_CROWD
    world.crowd.until.value, world.crowd.span = at, LONGEST_CROWD
    world.run(crowding, "note_crowd", world.crowd, at + FORGOTTEN)
    assert world.crowd.span == SHORTEST_CROWD


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("crowded", [False, True])
def test_threads_that_share_a_kernel_and_keep_their_cores_show_that_these_are_free(members: int, crowded: bool) -> None:
    """Who is preempted now and then, for another reason, does not end the sharing for ever longer."""
    world = World()
    queue, record, step = world.queue, KernelRecord(0x70000, world), 10_000
    queue.cursor, record.size, record.entry = record, 2 * CALM // step, Code(0x80000, world)
    world.device.workers, queue.range_members.value, queue.range_left.value = 1, members, 1
    queue.partitions[0].end, queue.range_chunk.value = record.size, 1
    world.crowd.span, world.crowd.until.value = SHORTEST_CROWD, LONG if crowded else 0

    def run_chunk(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
        world.time += step * (hi - lo)

    replaced = {"run_chunk": run_chunk, "this_core": lambda: 0, "leave_range": lambda home, helper, queue: True}
    assert world.run(parallel_for, "join_range", world.device, world.worker, None, queue, **replaced)
    world.crowd.until.value, free = world.time - 1, members > 1 and not crowded
    world.run(crowding, "note_crowd", world.crowd, world.time)
    assert world.crowd.span == (SHORTEST_CROWD if free else 2 * SHORTEST_CROWD)
    world.run(crowding, "note_crowd", world.crowd, world.crowd.until.value)
    assert world.crowd.span == (2 if free else 4) * SHORTEST_CROWD, "it was not shown again"


def test_a_worker_that_lost_its_core_while_it_looked_looks_no_more() -> None:
    """Nor does any other; once the time is over they do again."""
    world = World()
    world.worker.spin, world.device.workers, world.device.asleep = 200_000, 2, 1

    def has_work(device: Device, queue: Queue | None, owed: int) -> bool:
        world.time += TAKEN
        return False

    assert not world.run(ready_queue, "look_around", world.device, world.worker, None, 0, has_work=has_work)
    until = world.crowd.until.value
    assert world.time <= until <= world.time + SHORTEST_CROWD
    looks: list[Worker] = []
    replaced = {"has_work": lambda device, queue, owed: bool(looks.append(world.worker))}
    world.worker.idle = 0
    assert not world.run(ready_queue, "look_around", world.device, world.worker, None, 0, **replaced) and looks == []
    world.time, world.worker.idle = until, 0
    assert not world.run(ready_queue, "look_around", world.device, world.worker, None, 0, **replaced) and looks != []
    assert world.device.spinners.value == 0


def test_a_core_that_was_offered_is_in_nobodys_time() -> None:
    """What others had of it while a worker looked for work is not taken off what its next kernel takes."""
    world = World()
    world.worker.spin, computed, lent = 10 * OFFER, [0], [0]

    def has_work(device: Device, queue: Queue | None, owed: int) -> bool:
        world.time += OFFER
        computed[0] += OFFER
        return False

    def offer() -> int:
        world.time += TAKEN // 2
        lent[0] += TAKEN // 2
        return 0

    replaced = {"now": lambda: world.time, "thread_time": lambda: computed[0]}
    world.run(ready_queue, "look_around", world.device, world.worker, None, 0, has_work=has_work, sched_yield=offer, **replaced)
    assert world.worker.off == lent[0] > 0
    world.time += SUSPICIOUS
    computed[0] += SUSPICIOUS
    assert world.run(core_time, "on_core", world.queue, world.worker, None, world.time, SUSPICIOUS, **replaced) == SUSPICIOUS


def test_a_core_that_was_offered_between_two_chunks_is_in_neithers_time() -> None:
    """Else a kernel beside a busy loop would seem to take no time, and its chunks would grow without a limit."""
    world, computed = World(), [0]
    queue, record = world.queue, KernelRecord(0x70000, world)
    queue.cursor, record.size, record.entry = record, 8, Code(0x80000, world)
    world.device.workers, queue.range_members.value, queue.range_left.value = 1, 1, 1
    queue.partitions[0].end, queue.range_chunk.value = 8, 1

    def run_chunk(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
        world.time += SUSPICIOUS * (hi - lo)
        computed[0] += SUSPICIOUS * (hi - lo)
        assert hi == lo + 1

    def offer() -> int:
        world.time += TAKEN // 2
        return 0

    replaced = {"now": lambda: world.time, "thread_time": lambda: computed[0], "this_core": lambda: 0}
    replaced |= {"run_chunk": run_chunk, "sched_yield": offer, "leave_range": lambda home, helper, queue: True}
    assert world.run(parallel_for, "join_range", world.device, world.worker, None, queue, **replaced)
    assert computed[0] == 8 * SUSPICIOUS and record.entry.cost == SUSPICIOUS * 1000


@pytest.mark.parametrize("priority", range(PRIORITIES))
@pytest.mark.parametrize("crowded", [False, True])
def test_work_of_low_priority_offers_its_core_on_a_crowded_machine_too(priority: int, crowded: bool) -> None:
    """Other work offers it where that costs no slice of others."""
    world = World()
    world.queue.priority, world.crowd.until.value = priority, LONG if crowded else 0
    offer = world.functions(core_time)["offer_core"]
    for world.time in range(YIELD_EVERY, 10 * YIELD_EVERY, YIELD_EVERY // 4):
        offer(world.worker, None, world.queue, world.time)
    if priority < LOW and crowded:
        assert world.offered == []
    else:
        gaps = np.diff(world.offered)
        assert len(gaps) >= 5 and gaps.min() >= YIELD_EVERY and gaps.max() <= 2 * YIELD_EVERY


@pytest.mark.parametrize("descriptor", [-1, 0])
def test_a_loop_that_helps_keeps_its_core(descriptor: int) -> None:
    """Another thread that helps offers it, as a worker does."""
    world = World()
    helper = Helper(0x70000, world)
    helper.descriptor, time = descriptor, 10 * YIELD_EVERY
    assert (world.run(core_time, "offer_core", None, helper, world.queue, time) > 0) and len(world.offered) == (descriptor < 0)


@pytest.mark.parametrize("priority", [LOW - 1, LOW])
def test_a_core_that_was_taken_for_a_slice_is_kept_for_as_long(priority: int) -> None:
    """Beside a busy process low work would have next to nothing; for other work it shows that the machine is crowded."""
    world, taken = World(), GIVEN + MS
    world.queue.priority = priority
    began = world.time = YIELD_EVERY

    def give() -> int:
        world.offer()
        world.time += taken
        return 0

    offer = world.functions(core_time, sched_yield=give)["offer_core"]
    back = offer(world.worker, None, world.queue, began)
    assert back > began + taken and (world.crowd.until.value > back) is (priority < LOW)
    world.crowd.until.value = 0
    for world.time, offers in ((back + taken - MS, 1), (back + taken + MS, 2)):
        offer(world.worker, None, world.queue, world.time)
        assert len(world.offered) == offers


def test_time_that_low_work_has_no_core_says_nothing_of_a_crowd() -> None:
    """It may be the loop that has it."""
    world = World()
    world.queue.priority, world.time = LOW, 10 * TAKEN
    assert world.run(core_time, "on_core", world.queue, world.worker, None, world.time, 2 * TAKEN, thread_time=lambda: 0) == 0
    assert world.crowd.until.value == 0


@pytest.mark.parametrize(("workers", "asleep", "tells"), [(2, 1, True), (2, 0, False), (1, 0, True), (4, 0, False)])
def test_a_worker_tells_of_no_crowd_while_all_are_awake(workers: int, asleep: int, tells: bool) -> None:
    """There are more threads of ours than cores then, with that which submits; it looks no more, as it may be in the way."""
    world, looks = World(), list[int]()
    world.worker.spin, world.device.workers, world.device.asleep = 200_000, workers, asleep

    def has_work(device: Device, queue: Queue | None, owed: int) -> bool:
        looks.append(world.time)
        world.time += TAKEN
        return False

    assert not world.run(ready_queue, "look_around", world.device, world.worker, None, 0, has_work=has_work)
    assert len(looks) == 1 and (world.crowd.until.value > 0) is tells


@pytest.mark.parametrize(("asleep", "surplus", "helpers", "woken"), [(1, 0, 1, 0), (2, 0, 1, 1), (1, 0, 0, 1), (3, 2, 1, 0)])
def test_no_worker_is_woken_for_the_core_of_a_helper(asleep: int, surplus: int, helpers: int, woken: int) -> None:
    """Who waits awake for the queue takes the place of a worker, of as many as there may be."""
    world, posted = World(), list[object]()
    device, queue = world.device, world.queue
    device.sleepers, device.prime, world.worker.asleep = world.worker, world.worker, 1
    device.workers, device.asleep, device.surplus = 4, asleep, surplus
    queue.range_linked.value, queue.helpers.value = 1, helpers
    world.run(ready_queue, "wake_for_range", device, queue, sem_post=posted.append)
    assert len(posted) == woken and device.lock.held.value == 0


@pytest.mark.parametrize("helpers", [0, 1])
def test_help_that_does_not_come_is_waited_for_anew_while_a_thread_helps(helpers: int) -> None:
    """That may be called away; who has nobody wakes a worker, and expects nobody the next time."""
    world, woken = World(), list[int]()
    world.time = 2 * DOUBTED
    queue, record = world.queue, KernelRecord(0x70000, world)
    queue.cursor, record.size, record.entry = record, 8, Code(0x80000, world)
    world.device.workers, queue.range_members.value, queue.range_left.value = 1, 1, 1
    queue.partitions[0].end, queue.range_chunk.value = 8, 1
    queue.helpers.value, queue.expected_helpers.value, queue.help_due.value = helpers, 1, 1

    def run_chunk(queue: Queue, record: KernelRecord, lo: int, hi: int) -> None:
        world.time += ALONE

    replaced = {"run_chunk": run_chunk, "this_core": lambda: 0, "leave_range": lambda home, helper, queue: True}
    replaced |= {"wake_for_range": lambda device, queue: woken.append(world.time)}
    replaced |= {"should_leave": lambda device, worker, queue: False}
    assert world.run(parallel_for, "join_range", world.device, world.worker, None, queue, **replaced)
    assert len(woken) > 2 if helpers else len(woken) == 1
    assert (queue.expected_helpers.value, queue.help_due.value > 0) == ((1, True) if helpers else (0, False))


@pytest.mark.parametrize("late", [0, LATE])
@pytest.mark.parametrize("asleep", [0, 1])
def test_a_worker_that_was_woken_and_came_late_had_no_core(late: int, asleep: int) -> None:
    """Unless it may have been a thread of ours that had it."""
    world = World()
    world.worker.woken, world.device.workers, world.device.asleep = world.now(), 2, asleep

    def sem_wait(semaphore: object) -> int:
        world.time += late
        return 0

    world.run(ready_queue, "sleep", world.device, world.worker, sem_wait=sem_wait)
    assert (world.crowd.until.value > 0) is (late > 0 and asleep > 0)


def test_who_waits_awake_and_lost_its_core_tells_the_others() -> None:
    """It has used up its share of that, and so may they have."""
    world = World()

    def pause() -> None:
        world.time += TAKEN

    replaced = {"send_away": lambda queue: False, "pause": pause}
    assert not world.run(helping, "spin", world.queue, 1, 10 * TAKEN, **replaced)
    assert world.crowd.until.value > 0


SPIN = 50_000


@pytest.mark.parametrize(("ends", "until"), [(0, SPIN), (SPIN * 3 // 2, SPIN * 3 // 2 + OVERDUE), (10 * SPIN, SPIN)])
def test_a_spin_ends_with_what_it_waits_for(ends: int, until: int) -> None:
    """If that is to be soon: it is not given up shortly before."""
    world = World()
    world.queue.ends.value = ends
    assert not world.run(helping, "spin", world.queue, 1, SPIN, send_away=lambda queue: False)
    assert until <= world.time <= until + 10 * TICK


def test_a_spin_ends_with_a_command_buffer() -> None:
    """Which takes as long as it took before, on the average of the last few times."""
    world = World()
    queue, record, buffer = world.queue, BufferRecord(0x70000, world), CommandBuffer(0x80000, world)
    record.buffer = buffer
    for took, known in ((40_000, 0), (40_000, 40_000), (80_000, 40_000), (40_000, 50_000)):
        before = queue.ends.value
        world.run(worker_module, "enter", queue, record)
        assert queue.cursor == buffer.commands and queue.caller == record
        assert queue.ends.value == (world.time + known if known else before)
        world.time += took - TICK  # as the look at the clock takes
        world.run(worker_module, "note_duration", buffer)
        assert buffer.duration == ((3 * known + took) // 4 if known else took)


def test_a_spin_goes_on_while_one_operation_after_the_other_is_done() -> None:
    """For twice the time."""
    world = World()
    replaced = {"send_away": lambda queue: False, "pause": lambda: world.queue.completed.fetch_add(1)}
    assert not world.run(helping, "spin", world.queue, 1 << 40, SPIN, **replaced)
    assert 2 * SPIN <= world.time <= 2 * SPIN + 10 * TICK


@pytest.mark.parametrize(("duration", "waits"), [(SPIN, False), (10 * BRIEF, True)])
def test_where_it_is_crowded_nobody_spins(duration: int, waits: bool) -> None:
    """To save a wake-up, that is; who is to wait awake for long does."""
    world = World()
    crowded(world)
    assert not world.run(helping, "spin", world.queue, 1, duration, send_away=lambda queue: False)
    assert (world.time >= duration) is waits and world.queue.helpers.value == 0
    assert waits or world.time < 20 * TICK


@pytest.mark.parametrize(
    ("lookout", "expected", "others", "woken"),
    [(True, 1, 0, False), (False, 1, 0, True), (True, 0, 0, True), (True, 1, 1, True)],
)
def test_no_worker_is_woken_for_what_its_submitter_runs(lookout: bool, expected: int, others: int, woken: bool) -> None:
    """If that has done so lately, and has nothing else to run, and one of the workers looks whether it does."""
    world = World()
    world.device.heap.value, world.queue.priority = world.heap, 0
    world.device.sleepers = world.worker
    if lookout:
        world.device.lookout.value = world.worker
    world.queue.expected_helpers.value = expected
    world.device.prime, world.worker.asleep = world.worker, 1
    for number in range(others):
        other = Queue(0x300000 + 0x10000 * number, world)
        other.device = other.range_device = world.device
        world.run(ready_queue, "line_up", world.device, other)
    posted: list[object] = []
    world.run(ready_queue, "begin_queue", world.queue, sem_post=posted.append)
    assert world.device.pending.value == 1 + others and bool(posted) is woken
    assert world.device.lock.held.value == 0


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_that_wakes_a_loop_is_there_for_what_that_submits(busy: bool) -> None:
    """On a crowded machine no other one is woken for that: the loop may have the core of this one just then."""
    world, spinners = World(), list[int]()
    if busy:
        crowded(world)
    queue, record, bell = world.queue, KernelRecord(0x200000, world), Waker(0x70000, world)
    queue.known, queue.pending.value, record.nbytes = 1, 1, 64
    replaced = {
        "complete": lambda queue, value, worker: bell,
        "ring": lambda waker: spinners.append(world.device.spinners.value),
    }
    assert not world.run(worker_module, "finish", world.device, world.worker, queue, record, 1, **replaced)
    assert spinners == [int(busy)] and world.device.spinners.value == 0


def test_who_parks_has_a_worker_come_for_what_nobody_runs() -> None:
    """Whatever kept it from running that itself."""
    world = World()
    world.device.sleepers, world.device.prime, world.worker.asleep = world.worker, world.worker, 1
    world.device.lookout.value, world.device.pending.value = world.worker, 1
    posted: list[object] = []
    replaced = {"sem_post": posted.append, "arm_node": lambda queue, node, value: True}
    assert world.run(waiting, "arm", world.queue, 1, Waker(0x70000, world), find_node=lambda *_: None, **replaced)
    assert len(posted) == 1 and world.device.sleepers is None and world.device.lookout.value is None


class Lookout:
    """A worker that keeps a lookout; what happens while it sleeps is told by ``turns``, one after the other."""

    def __init__(self, *turns: str) -> None:
        self.world, self.turns, self.slept = World(), list(turns), False
        device, worker = self.world.device, self.world.worker
        device.heap.value, device.sleepers, device.prime = self.world.heap, worker, worker
        worker.asleep, device.lookout.value = 1, worker
        crowded(self.world)
        self.world.queue.expected_helpers.value = 1
        self.world.run(ready_queue, "keep_lookout", device, worker, clock_wait=self._wait, sleep=self._sleep)

    def _wait(self, function: int, semaphore: object, until: object) -> int:
        device, queue, turn = self.world.device, self.world.queue, self.turns.pop(0)
        if turn == "came":
            self.world.run(ready_queue, "begin_queue", queue)
        elif turn == "taken":
            self.world.run(ready_queue, "take_out", device, queue)
        elif turn == "taken, and came again":
            self.world.run(ready_queue, "take_out", device, queue)
            self.world.run(ready_queue, "begin_queue", queue)
        elif turn == "came and went":
            device.arrivals += 1
        elif turn == "the others went":
            self.world.crowd.until.value = 0
        return 0 if turn == "posted" else -1

    def _sleep(self, device: Device, worker: Worker) -> None:
        self.slept = True


def test_the_lookout_takes_what_nobody_comes_for() -> None:
    """When it still waits at a second look; and nobody is expected to come for the next one."""
    lookout = Lookout("came", "nothing")
    assert lookout.turns == [] and not lookout.slept
    assert lookout.world.device.lookout.value is None and lookout.world.device.sleepers is None
    assert lookout.world.queue.expected_helpers.value == 0


def test_the_lookout_leaves_alone_what_somebody_comes_for() -> None:
    lookout = Lookout("came", "taken", "came", "taken", "nothing")
    assert lookout.turns == [] and lookout.slept
    assert lookout.world.queue.expected_helpers.value == 1


def test_the_lookout_leaves_alone_what_comes_again_and_again() -> None:
    """Its submitter runs it each time; once that does not come any more, the lookout does."""
    lookout = Lookout("came", *4 * ["taken, and came again"], "taken", "nothing")
    assert lookout.turns == [] and lookout.slept and lookout.world.queue.expected_helpers.value == 1
    lookout = Lookout("came", *5 * ["taken, and came again"], "nothing", "nothing")
    assert lookout.turns == [] and not lookout.slept and lookout.world.queue.expected_helpers.value == 0


def test_the_lookout_sleeps_when_nothing_comes_any_more() -> None:
    """It is among the sleepers still, and who submits next wakes one."""
    lookout = Lookout("came and went", "came and went", "nothing")
    assert lookout.slept and lookout.world.device.lookout.value is None
    assert lookout.world.device.sleepers == lookout.world.worker


def test_with_the_crowd_the_lookout_ends() -> None:
    """However much comes: who submits from now on wakes a worker, which spins, and so finds out whether it may."""
    lookout = Lookout("came and went", "came and went", "the others went")
    assert lookout.turns == [] and lookout.slept and lookout.world.device.lookout.value is None
    lookout = Lookout("the others went")
    assert lookout.slept
    lookout = Lookout("came", "the others went")
    assert not lookout.slept and lookout.world.device.lookout.value is None


def test_a_lookout_that_was_woken_looks_for_work() -> None:
    lookout = Lookout("came and went", "posted")
    assert not lookout.slept and lookout.turns == []


@pytest.mark.parametrize("prime", [0, 1, 2])
def test_the_prime_worker_is_woken_first(prime: int) -> None:
    """Wherever it is among those that sleep; without it they come last in, first out."""
    world = World()
    workers = [Worker(0x100000 + 0x1000 * k, world) for k in range(3)]
    for worker in reversed(workers):
        worker.asleep, worker.next = 1, world.device.sleepers
        world.device.sleepers = worker
    world.device.prime = workers[prime]
    popped = [world.run(ready_queue, "pop_sleeper", world.device) for _ in range(3)]
    assert popped == [workers[prime], *(worker for worker in workers if worker != workers[prime])]
    assert world.run(ready_queue, "pop_sleeper", world.device) is None


def test_a_range_is_run_by_one_thread_for_longer() -> None:
    """Until the machine has not been crowded for a while: the others might have a chunk and no core."""
    world = World()
    world.crowd.until.value = 1000
    for at, alone in ((0, ALONE_IN_A_CROWD), (999 + DOUBTED, ALONE_IN_A_CROWD), (1000 + DOUBTED, ALONE)):
        assert world.run(crowding, "alone_until", world.crowd, at) == at + alone


def _launched(world: World, *words: int) -> KernelRecord:
    """A launch with such argument words, whose second and third say how long an index takes."""
    record, entry = KernelRecord(0x200000, world), Code(0x210000, world)
    record.entry, entry.pacing = entry, 0b110
    for k, word in enumerate(words):
        record.arguments[k].value = word
    return record


def test_what_an_index_costs_is_known_by_the_words_that_say_it() -> None:
    """Whatever the others are; and of several launches in turn each is known."""
    world = World()
    parallel = world.functions(parallel_for)
    for words, cost in (((1, 10, 20), 500), ((1, 10, 21), 70_000)):
        assert parallel["known_cost"](_launched(world, *words)) == 0
        parallel["note_cost"](_launched(world, *words), cost)
    assert parallel["known_cost"](_launched(world, 2, 10, 20)) == 500
    assert parallel["known_cost"](_launched(world, 3, 10, 21)) == 70_000
    assert parallel["known_cost"](_launched(world, 1, 11, 20)) == 0


def test_a_measurement_that_others_took_most_of_is_made_again() -> None:
    """It would say that an index costs nothing, for the next 63 launches."""
    world = World()
    parallel = world.functions(parallel_for)
    record = _launched(world, 1, 10, 20)
    parallel["note_measured"](record, 10, SUSPICIOUS // 2, 3 * SUSPICIOUS)
    assert parallel["known_cost"](record) == 0 and record.entry.uses & 63 == 63
    parallel["note_measured"](record, 10, SUSPICIOUS, 3 * SUSPICIOUS)
    assert parallel["known_cost"](record) == SUSPICIOUS * 100


def test_what_two_dozen_launches_in_turn_cost_is_known() -> None:
    """As products of a model's layers; and however many others there were, what the last one cost."""
    world = World()
    parallel = world.functions(parallel_for)
    for count in range(24):
        parallel["note_cost"](_launched(world, 0, count, 64), 500 + count)
    for count in range(24):
        assert parallel["known_cost"](_launched(world, 0, count, 64)) == 500 + count
    for count in range(24, 1000):
        parallel["note_cost"](_launched(world, 0, count, 64), 500 + count)
        assert parallel["known_cost"](_launched(world, 0, count, 64)) == 500 + count


@pytest.mark.parametrize("descriptor", [BLOCKED, -1, 0])
def test_a_helper_that_was_kept_from_its_core_goes_on(descriptor: int) -> None:
    """If only the end of its time calls it away: that is time on a core. Another is to be back by the clock."""
    world, computed = World(), [0]
    helper = Helper(0x70000, world)
    helper.until, helper.descriptor = 100_000, descriptor
    replaced = {"thread_time": lambda: computed[0], "c_poll": lambda polled, count, timeout: 0}
    time_left = world.functions(parallel_for, **replaced)["time_left"]
    computed[0] = 60_000
    assert time_left(helper, 60_000) == 40_000
    computed[0] = 70_000
    assert time_left(helper, 70_000 + 5 * TAKEN) == (30_000 if descriptor == -1 else 0)
    computed[0] = 100_000
    assert time_left(helper, 100_000 + 5 * TAKEN) == 0


@pytest.mark.parametrize("descriptor", [BLOCKED, -1, 0])
def test_who_refuses_what_it_spins_for_has_no_worker_come_yet(descriptor: int) -> None:
    """It goes on to help for longer, or to park, which has one come."""
    world, sent = World(), list[Device]()
    world.device.first[world.queue.priority].value = world.queue
    replaced = {"begin": lambda helper, queue, value: REFUSED, "send_for_worker": sent.append, "without_core": lambda: 0}
    crowded(world)
    world.run(helping, "help", world.queue, 1, MS, descriptor, **replaced)
    assert sent == ([] if descriptor == -1 else [world.device])


@pytest.mark.parametrize("descriptor", [BLOCKED, -1, 0])
@pytest.mark.parametrize("reached", [False, True])
def test_who_goes_on_to_wait_has_no_worker_come_for_what_it_leaves(descriptor: int, reached: bool) -> None:
    """Unless that is no more what it waits for, or it was called away."""
    world, posted = World(), list[object]()
    device, queue, helper = world.device, world.queue, Helper(0x70000, world)
    device.heap.value, device.sleepers, device.prime, world.worker.asleep = world.heap, world.worker, world.worker, 1
    device.lookout.value, helper.descriptor, queue.completed.value = world.worker, descriptor, int(reached)
    queue.cursor = KernelRecord(0x71000, world)
    crowded(world)
    replaced = {"suits": lambda helper, record, left: False, "turn_is_over": lambda device, worker, queue: False}
    world.run(helping, "go_on", device, helper, queue, 1, sem_post=posted.append, **replaced)
    assert device.pending.value == 1 and len(posted) == (0 if descriptor == -1 and not reached else 1)


def test_a_helper_runs_a_loop_that_it_has_seen() -> None:
    """With the same words; with others it leaves the kernel to the workers until one has run it."""
    with started(1) as executor:
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, 0, uniform=False)
        entry._code.pacing = 0b10
        known, unknown = (struct.pack("qq", 7, count) for count in (100, 101))
        assert executor.spin(queue, executor.launch(queue, entry.address, 4, known, 0), PATIENCE)
        with one_worker_held(executor):
            entry.pieces.clear()
            value = executor.launch(queue, entry.address, 4, struct.pack("qq", 8, 100), 0)
            assert executor.help(queue, value, PATIENCE, -1) and counters[0] == value
            assert entry.threads() == {threading.get_ident()} and entry.covered(4)
            value = executor.launch(queue, entry.address, 4, unknown, 0)
            assert not executor.help(queue, value, PATIENCE, -1) and counters[0] < value
        assert executor.spin(queue, value, PATIENCE)


def test_long_indices_are_shared_at_once_in_a_crowd() -> None:
    """Who runs a range alone at first looks for help between two indices, and these take longer than that."""
    with started(2) as executor:
        executor._crowd.until.value = LONG
        queue, _ = executor.create_queue(0, 0, False)
        entry, both, done = Entry(executor, 20_000 * MS), threading.Event(), threading.Event()
        entry.before = lambda lo, hi: both.set() if len(entry.threads()) == 2 else both.wait(10) and None
        last = Entry(executor, 1)
        last.before = lambda lo, hi: done.set()
        executor.launch(queue, entry.address, 64, b"", 0)
        executor.launch(queue, last.address, 1, b"", 0)
        assert done.wait(30) and entry.covered(64)
        assert len({thread for thread, _, _ in entry.pieces[:2]}) == 2


@pytest.mark.parametrize("size", [1, 100])
def test_a_helper_in_a_crowd_takes_long_kernels_too(size: int) -> None:
    """A worker in its place would have to wait for a core first, and where the kernel is one of many the helper for that."""
    with started(1) as executor, one_worker_held(executor):
        executor._crowd.until.value = LONG
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, MS)
        value = executor.launch(queue, entry.address, size, b"", 0)
        assert executor.help(queue, value, PATIENCE, -1) and counters[0] == value
        assert entry.threads() == {threading.get_ident()} and entry.covered(size)


def test_a_helper_is_not_kept_by_what_an_index_costs_with_other_arguments() -> None:
    """Where they are cheap with most arguments, and these have been seen to make each take long."""
    with started(1) as executor:
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, 0, uniform=False)
        entry._code.pacing = 1
        entry.before = lambda lo, hi: busy_for(60_000 * (hi - lo))
        for _ in range(8):  # where others want the core, one may have spent its time off it, which is no cost
            assert executor.spin(queue, executor.launch(queue, entry.address, 1, struct.pack("q", 1), 0), PATIENCE)
        entry.before = lambda lo, hi: None
        entry.say_cost(10)
        with one_worker_held(executor):
            entry.pieces.clear()
            value = executor.launch(queue, entry.address, 2, struct.pack("q", 1), 0)
            assert executor.help(queue, value, PATIENCE, -1) and counters[0] == value
            assert len(entry.pieces) == 2 and entry.covered(2)


# The reserve


@pytest.mark.parametrize(
    ("asleep", "surplus", "span", "is_crowded", "wakes"),
    [
        (5, 0, 0, False, True), (4, 0, 0, False, False), (6, 1, 0, False, True), (5, 1, 0, False, False),
        (4, 0, 0, True, True), (1, 0, 0, True, True), (2, 1, 0, True, True), (1, 1, 0, True, False), (4, 0, -1, True, True),
    ],
)  # fmt: skip
def test_the_reserve_is_woken_where_others_crowd(
    asleep: int, surplus: int, span: int, is_crowded: bool, wakes: bool
) -> None:
    """Four of those that sleep stay asleep else; so do those beyond a quota. A single core is crowded for good."""
    world = World()
    device, worker = world.device, world.worker
    device.workers, device.reserve, device.surplus, device.asleep = 2, 4, surplus, asleep
    device.sleepers, device.prime, worker.asleep = worker, worker, 1
    world.crowd.span, world.crowd.until.value = span, LONG if is_crowded else 0
    assert (world.run(ready_queue, "pop_sleeper", device) is not None) is wakes


@pytest.mark.parametrize(("asleep", "takes"), [(4, True), (3, False)])
def test_the_reserve_sleeps_again_when_others_have_gone(asleep: int, takes: bool) -> None:
    """Though work waits: those whose it is come by."""
    world = World()
    world.open_range(left=1)
    device, worker = world.device, world.worker
    device.workers, device.reserve, device.asleep = 2, 4, asleep

    def sleep(device: Device, worker: Worker) -> None:
        device.stop.value = 1

    replaced = {"sleep": sleep, "watch_core": lambda worker: None, "in_the_way": lambda queue, worker: False}
    assert (world.run(ready_queue, "find_work", device, worker, **replaced) != 0) is takes


@pytest.mark.parametrize(("asleep", "tells"), [(5, True), (4, False), (0, False)])
def test_the_reserve_is_no_witness(asleep: int, tells: bool) -> None:
    """That it sleeps does not say that there is a core for each thread of ours that is awake."""
    world = World()
    world.device.workers, world.device.reserve, world.device.asleep = 2, 4, asleep
    assert bool(world.run(ready_queue, "is_witness", world.device)) is tells


def test_more_queues_are_served_at_once_where_others_crowd() -> None:
    """As many as there are workers with the reserve; before that, and afterwards, as many as without."""
    with started(2, reserve=2) as executor:
        entry = Entry(executor, 20 * MS, uniform=False)
        lanes = [executor.create_queue(0, 0, False) for _ in range(6)]

        def most_at_once(expected: int) -> int:
            """Of one operation on each queue, each of which waits for as many as are expected, and a moment for one more."""
            running, most, lock, until = 0, 0, threading.Lock(), time.monotonic() + 20

            def before(lo: int, hi: int) -> None:
                nonlocal running, most
                with lock:
                    running += 1
                    most = max(most, running)
                while most < expected and time.monotonic() < until:
                    time.sleep(0.001)
                time.sleep(0.03)
                with lock:
                    running -= 1

            entry.before = before
            values = [executor.launch(queue, entry.address, 1, b"", 0) for queue, _ in lanes]
            for (queue, _), value in zip(lanes, values, strict=True):
                assert executor.spin(queue, value, PATIENCE)
            return most

        assert most_at_once(2) == 2
        executor._crowd.span, executor._crowd.until.value = 0, 1 << 62
        assert most_at_once(4) == 4
        executor._crowd.span, executor._crowd.until.value = -1, 0
        for _ in range(3):
            most = most_at_once(2)
        assert most == 2
