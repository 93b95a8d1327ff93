"""Streams of one priority share a device by the time that they have used (invariant 7)."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from interpreted import World
from pieces import MS, PATIENCE, Entry, one_worker_held, started
from selection import some

from aiodev._backends.cpu.executor import core_time, fairness
from aiodev._backends.cpu.executor.executor import NativeExecutor
from aiodev._backends.cpu.host import Executor
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.structs import Device, Entry as Code, Queue
from aiodev._backends.cpu.tuning import SLICE
from aiodev._backends.executor.structs import NEVER
from aiodev._core.backend.interface import COMPLETED, SUBMITTED, Command
from aiodev._native.fields import sizeof

US = 1_000


class Board:
    """An executor's kernels in Python: each index takes a given time, calls a function, and is noted in a log.

    Attributes:
        log: who ran, index by index.
        time: what a portable executor takes for the time; its kernels take none that others could make longer.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self.time = 0
        self.executor = executor or PortableExecutor(1, 2, lambda: self.time)
        self.log: list[object] = []
        self._kept: list[object] = []
        self._numbers = itertools.count(1_000)

    def entry(self, name: object, duration: int, then: Callable[[], object] = lambda: None) -> int:
        """An entry for indices that take ``duration`` ns each."""

        def each(lo: int, hi: int) -> None:
            for _ in range(lo, hi):
                end = self._clock() + duration  # of which the function takes a part: it is nobody's work
                self.log.append(name)
                then()
                self._work_until(end)

        if not isinstance(self.executor, NativeExecutor):
            number = next(self._numbers)
            self.executor.set_entry(number, lambda arguments, lo, hi: each(lo, hi))
            return number
        entry = Entry(self.executor, duration * 1000)
        entry.before = each
        self._kept.append(entry)
        return entry.address

    def _clock(self) -> int:
        """For how long (ns) this thread has had a core."""
        return self.time if isinstance(self.executor, PortableExecutor) else time.thread_time_ns()

    def _work_until(self, end: int) -> None:
        if isinstance(self.executor, PortableExecutor):
            self.time = max(self.time, end)
        while self._clock() < end:
            pass

    def queue(self) -> int:
        return self.executor.create_queue(0, 0, False)[0]

    def submit(self, name: object, duration: int, size: int = 1, then: Callable[[], object] = lambda: None) -> None:
        """Launch a kernel on a queue of its own."""
        self.executor.launch(self.queue(), self.entry(name, duration, then), size, b"", 0)


@pytest.fixture(params=["native", "python"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    """An executor that has one worker for all; no kernel's time is taken for a collection of garbage."""
    gc.disable()
    request.addfinalizer(gc.enable)
    if request.param == "native":
        with started(1) as native:
            yield Board(native)
        return
    board = Board()
    executor, entered, release = board.executor, threading.Event(), threading.Event()
    executor.set_entry(1, lambda *_: (entered.set(), release.wait(60)))
    executor.launch(executor.create_queue(0, 0, False)[0], 1, 1, b"", 0)
    assert entered.wait(30)
    yield board
    release.set()
    executor.stop()


@contextmanager
def held(board: Board) -> Iterator[None]:
    """Let nothing run that is submitted inside the block before its end."""
    entered, release, queue = threading.Event(), threading.Event(), board.queue()

    def hold() -> None:
        entered.set()
        assert release.wait(60)

    value = board.executor.launch(queue, board.entry("hold", 0, hold), 1, b"", 0)
    assert entered.wait(30)
    yield
    board.log.clear()
    release.set()
    assert board.executor.spin(queue, value, PATIENCE)


def longest_gap(log: list[object], name: object) -> int:
    """How many others ran, at most, between two of ``name``."""
    places = [place for place, each in enumerate(log) if each == name]
    return max(after - before - 1 for before, after in itertools.pairwise(places))


def test_a_long_kernel_gives_way_between_its_indices(board: Board) -> None:
    """What is submitted while it runs waits for a slice or two of it, not for its end."""
    done = threading.Event()

    def submit() -> None:
        if board.log == ["long"]:
            board.submit("short", 0, then=done.set)

    board.submit("long", 500 * US, 100, submit)
    assert done.wait(30)
    assert board.log.index("short") <= 8


def test_a_graph_gives_way_between_its_commands(board: Board) -> None:
    """It is one operation, which may be as long as all the kernels in it."""
    done = threading.Event()

    def submit() -> None:
        if board.log == ["long"]:
            board.submit("short", 0, then=done.set)

    command = Command("launch", board.entry("long", 500 * US, submit), 1, b"")
    buffer, _ = board.executor.create_buffer(0, [command] * 100)
    board.executor.execute(board.queue(), buffer, b"")
    assert done.wait(30)
    assert board.log.index("short") <= 8


@pytest.mark.parametrize("captured", [False, True])
def test_what_takes_longer_than_it_did_gives_way(board: Board, captured: bool) -> None:
    """What comes does not wait for as many as would have been over by the next look at the clock, had they been as short."""
    duration, done, queue = [0], threading.Event(), board.queue()

    def work() -> None:
        if duration[0] and board.log.count("long") == 1:
            board.submit("other", 0, then=done.set)
        end = time.thread_time_ns() + duration[0]
        while isinstance(board.executor, NativeExecutor) and time.thread_time_ns() < end:
            pass
        board.time += duration[0]

    entry = board.entry("long", 0, work)
    if isinstance(board.executor, NativeExecutor):
        Code(entry).cost, Code(entry).uses = 10, 64
    with held(board):
        if captured:
            buffer, _ = board.executor.create_buffer(0, [Command("launch", entry, 1, b"")] * 60)
            board.executor.execute(queue, buffer, b"")
        for _ in range(0 if captured else 60):
            board.executor.launch(queue, entry, 1, b"", 0)
        duration[0] = 1_000 * US
    assert done.wait(30)
    assert board.log.index("other") <= 6


def test_newcomers_do_not_overtake(board: Board) -> None:
    """A long kernel has its share while new streams keep coming, each of which has had nothing yet."""
    newcomers, left, done = 4, [400], threading.Event()

    def another() -> None:
        if left[0] and not done.is_set():
            left[0] -= 1
            board.submit("new", 500 * US, then=another)

    def stop() -> None:
        if board.log.count("old") == 30:
            done.set()

    with held(board):
        board.submit("old", 500 * US, 30, stop)
        for _ in range(newcomers):
            another()
    assert done.wait(60)
    log = board.log[: len(board.log) - board.log[::-1].index("old")]
    assert log.count("old") == 30
    # It may be a slice and a few indices ahead, five in all, and then waits until each of the others has had twice as much.
    assert longest_gap(log, "old") <= 10 * newcomers
    assert 30 * newcomers * 0.5 <= log.count("new") <= 30 * newcomers * 1.5


@pytest.mark.parametrize("size", [1, 4])
def test_equal_clients_are_served_equally(board: Board, size: int) -> None:
    """Sixteen that make a stream for each request, and the next request when one is answered."""
    clients, requests, done = 16, 20, threading.Event()
    served, indices = Counter[int](), Counter[int]()

    def request(client: int) -> None:
        def answered() -> None:
            indices[client] += 1
            if indices[client] % size:
                return
            served[client] += 1
            if served.total() < clients * requests:
                request(client)
            else:
                done.set()

        board.submit(client, 400 * US // size, size, answered)

    with held(board):
        for client in range(clients):
            request(client)
    assert done.wait(60)
    # Whom the system stops for a while is charged for it; one that is starved has none, or a few.
    assert all(0.6 * requests <= served[client] <= 1.4 * requests for client in range(clients)), served


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("seed", some(range(20)))
def test_clients_of_all_kinds_are_served_equally(board: Board, seed: int, is_known: bool) -> None:
    """Kernels, ranges and graphs, short and long: who waits is behind by a slice and by what cannot be divided, no more.

    Where they take longer than is known of them it is by some kernels more.
    """
    chance, longest = random.Random(seed), 1_500 * US
    asked, ends = Counter[int](), list[tuple[Sequence[int], int]]()
    with held(board):
        for client in range(chance.randint(2, 5)):
            queue, counters = board.executor.create_queue(0, 0, False)
            while asked[client] < 30_000 * US:
                duration, size = chance.choice((20, 100, 400, 1_500)) * US, chance.choice((1, 1, 5, 30))
                entry = board.entry((client, duration), duration)
                if not is_known and isinstance(board.executor, NativeExecutor):
                    Code(entry).cost, Code(entry).uses = 10, 64
                if chance.random() < 0.4:
                    buffer, _ = board.executor.create_buffer(0, [Command("launch", entry, 1, b"")] * size)
                    board.executor.execute(queue, buffer, b"")
                elif is_known:
                    board.executor.launch(queue, entry, size, b"", 0)
                else:  # a range that seems short is one piece
                    for _ in range(size):
                        board.executor.launch(queue, entry, 1, b"", 0)
                asked[client] += duration * size
            ends.append((counters, counters[SUBMITTED]))
    deadline = time.monotonic() + 60
    while any(counters[COMPLETED] < last for counters, last in ends):  # not by a spin, which helps with its queue
        assert time.monotonic() < deadline
        time.sleep(0.001)
    used, ahead = Counter[int](), 0
    for client, duration in board.log:  # type: ignore[misc]
        used[client] += duration
        if used[client] == asked[client]:
            break  # from here on others have more
        ahead = max(ahead, max(used.values()) - min(used[each] for each in asked))
    # What is thought to be short is run eight times before somebody looks at the clock. What Python takes is not in the log.
    assert ahead <= 2 * SLICE + (2.5 if is_known else 10) * longest


def test_time_counts_and_not_how_many_operations(board: Board) -> None:
    """A stream of long operations and one of short ones have the same time."""
    done, short = threading.Event(), [0]

    def look() -> None:
        if board.log.count("long") == 20 and not done.is_set():
            short[0] = board.log.count("short")
            done.set()

    with held(board):
        for name, duration, count in (("long", 5_000 * US, 20), ("short", 500 * US, 300)):
            queue, entry = board.queue(), board.entry(name, duration, look)
            for _ in range(count):
                board.executor.launch(queue, entry, 1, b"", 0)
    assert done.wait(60)
    assert 140 <= short[0] <= 260


def test_who_was_idle_has_collected_nothing(board: Board) -> None:
    """A stream that comes back begins with its share, and not with what it could have had meanwhile."""
    done, idle = threading.Event(), board.queue()
    assert board.executor.spin(idle, board.executor.launch(idle, board.entry("idle", 0), 1, b"", 0), PATIENCE)

    def come_back() -> None:
        if board.log.count("other") == 100:
            entry = board.entry("idle", 500 * US, lambda: done.set() if board.log.count("idle") == 20 else None)
            for _ in range(20):
                board.executor.launch(idle, entry, 1, b"", 0)

    with held(board):
        for _ in range(2):
            board.submit("other", 500 * US, 200, come_back)
    assert done.wait(60)
    log = board.log
    assert log[log.index("idle") :].count("other") >= 20


def favoured(executor: NativeExecutor) -> int:
    """A queue that has had much more than others."""
    queue, _ = executor.create_queue(0, 0, False)
    Queue(queue).time.value = 100 * SLICE
    return queue


def test_a_helper_begins_a_queue_in_its_turn() -> None:
    """A thread that waits for a stream does not help it to more than its share."""
    with started(1) as executor, one_worker_held(executor):
        mine, (other, _) = favoured(executor), executor.create_queue(0, 0, False)
        entry = Entry(executor, 1000)
        value = executor.launch(mine, entry.address, 100, b"", 0)
        before = executor.launch(other, Entry(executor, 1000).address, 100, b"", 0)
        assert not executor.help(mine, value, 10**8, -1) and entry.pieces == []
        assert executor.help(other, before, PATIENCE, -1)
        assert executor.help(mine, value, PATIENCE, -1) and entry.covered(100)


def test_a_helper_joins_a_range_in_its_turn() -> None:
    """Not while a stream waits that has had less than the one whose range it is."""
    with started(2) as executor, one_worker_held(executor):
        mine, (other, _) = favoured(executor), executor.create_queue(0, 0, False)
        entry, begun, release = Entry(executor, MS // 100), threading.Event(), threading.Event()

        def before(lo: int, hi: int) -> None:
            begun.set()
            assert release.wait(30)

        entry.before = before
        value = executor.launch(mine, entry.address, 1000, b"", 0)
        assert begun.wait(30)
        last = executor.launch(other, Entry(executor, 1000).address, 100, b"", 0)
        assert not executor.help(mine, value, 10**8, -1)
        assert threading.get_ident() not in entry.threads()
        release.set()
        assert executor.spin(other, last, PATIENCE) and executor.spin(mine, value, PATIENCE)


class Waiting:
    """Queues of a world's device, and the functions that say which is next."""

    def __init__(self) -> None:
        self.world = World()
        self.device = self.world.device
        self.device.workers, self.device.heap.value, self.device.least.value = 1, self.world.heap, NEVER
        functions = self.world.functions(fairness)
        self.arrive, self.depart = functions["arrive"], functions["depart"]
        self.line_up, self.take_out, self.first = functions["line_up"], functions["take_out"], functions["first"]
        self.charge = functions["charge"]
        self._addresses = itertools.count(0x100_0000, sizeof(Queue))

    def queue(self, time: int = 0) -> Queue:
        """A new queue that waits."""
        queue = Queue(next(self._addresses), self.world)
        queue.range_device, queue.time.value = self.device, time
        self.arrive(self.device, queue)
        self.line_up(self.device, queue)
        return queue

    def take(self) -> Queue | None:
        """The queue that is next, which waits no longer."""
        queue: Queue | None = self.first(self.device, 0)
        if queue is not None:
            self.take_out(self.device, queue)
        return queue


@pytest.mark.parametrize("seed", range(5))
def test_the_least_is_first_and_of_equals_the_one_that_came_first(seed: int) -> None:
    """Whichever come and go, and wherever those stood."""
    chance, waiting, model = random.Random(seed), Waiting(), list[tuple[int, int, Queue]]()
    for arrival in range(400):
        queue = waiting.queue(chance.randrange(20))
        model.append((queue.time.value, arrival, queue))
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            if model and chance.random() < 0.5:
                waiting.take_out(waiting.device, model.pop(chance.randrange(len(model)))[-1])
            elif model:
                model.sort()
                assert waiting.take() == model.pop(0)[-1]
    assert [waiting.take() for _ in model] == [queue for _, _, queue in sorted(model)]
    assert waiting.take() is None and waiting.device.least.value == NEVER


def test_a_range_that_others_have_used_meanwhile_is_not_first() -> None:
    """What is noted of it is brought up to date before it counts."""
    waiting = Waiting()
    shared, other = waiting.queue(), waiting.queue(5 * SLICE)
    waiting.take_out(waiting.device, shared)
    shared.range_linked.value = shared.range_members.value = 1
    waiting.line_up(waiting.device, shared)
    assert waiting.first(waiting.device, 0) == shared
    waiting.charge(waiting.device, shared, 10 * SLICE)
    assert waiting.first(waiting.device, 0) == other


@pytest.mark.parametrize("request_time", [SLICE // 4, 5 * SLICE, 50 * SLICE])
def test_a_new_queue_does_not_get_rid_of_what_its_client_has_used(request_time: int) -> None:
    """A client with a queue for each request, which cannot be interrupted, and one with a long kernel have the same time."""
    waiting = Waiting()
    kept, asked = waiting.queue(), waiting.queue()
    used = {"kept": 0, "asked": 0}
    while used["asked"] < 100 * request_time:
        queue = waiting.take()
        if queue == kept:
            used["kept"] += SLICE // 4
            waiting.charge(waiting.device, kept, SLICE // 4)
            waiting.line_up(waiting.device, kept)
        else:
            used["asked"] += request_time
            waiting.charge(waiting.device, queue, request_time)
            waiting.depart(waiting.device, 0)
            asked = waiting.queue()
    assert 0.9 <= used["kept"] / used["asked"] <= 1.1
    assert asked.time.value >= kept.time.value - request_time


def test_what_nobody_else_wanted_is_not_held_against_a_queue() -> None:
    """One that had the device to itself for long is where a new one begins."""
    waiting = Waiting()
    alone = waiting.queue()
    for _ in range(100):
        assert waiting.take() == alone
        waiting.charge(waiting.device, alone, SLICE)
        waiting.line_up(waiting.device, alone)
    assert waiting.queue().time.value == alone.time.value


def test_what_a_queue_owes_shrinks_while_nobody_waits() -> None:
    """By what it uses, and no further than to where new queues begin."""
    waiting = Waiting()
    owing = waiting.queue(100 * SLICE)
    waiting.take()
    waiting.charge(waiting.device, owing, 30 * SLICE)
    assert owing.time.value == 70 * SLICE
    waiting.charge(waiting.device, owing, 300 * SLICE)
    assert owing.time.value == 0


@pytest.mark.parametrize("lost", [0, 3_000 * US])
def test_time_without_a_core_is_not_the_queues(lost: int) -> None:
    """A worker whose core others took charges for what it computed itself."""
    world, time = World(), 10_000 * US
    world.worker.off = 1_000 * US
    on_core = world.functions(core_time, thread_time=lambda: time - 1_000 * US - lost)["on_core"]
    assert on_core(world.queue, world.worker, None, time, 5_000 * US) == 5_000 * US - lost
    assert (world.crowd.until.value > time) is (lost > 0), "all threads are to know"
    assert on_core(world.queue, world.worker, None, time, 5_000 * US) == 5_000 * US, "counted twice"


def test_what_was_lost_before_is_no_loss_of_what_is_measured() -> None:
    """A worker that had no core between two operations, or before a turn, has had it in the next one."""
    waiting = Waiting()
    world, clock = waiting.world, {"now": 10_000 * US, "lost": 0}
    computed = {"now": lambda: clock["now"], "thread_time": lambda: clock["now"] - clock["lost"]}
    timed, turns = world.functions(core_time, **computed), world.functions(fairness, **computed)
    timed["watch_core"](world.worker)
    for measured in (True, False):
        clock["now"] += 50_000 * US
        clock["lost"] += 40_000 * US
        if measured:
            timed["watch_interval"](world.queue, world.worker, None, clock["now"])
        else:
            waiting.queue()
            turns["begin_turn"](waiting.device, world.worker, world.queue)
        clock["now"] += 5_000 * US
        clock["lost"] += 1_000 * US
        assert timed["on_core"](world.queue, world.worker, None, clock["now"], 5_000 * US) == 4_000 * US


@pytest.mark.parametrize("lost", [0, 3_000 * US])
def test_a_measured_kernel_is_charged_for_its_time_on_a_core(lost: int) -> None:
    """What others took meanwhile is counted neither when the kernel is measured nor when the turn is charged by the clock."""
    waiting = Waiting()
    world, clock = waiting.world, {"now": 10_000 * US, "lost": 0}
    functions = world.functions(fairness, now=lambda: clock["now"], thread_time=lambda: clock["now"] - clock["lost"])
    served, other = waiting.queue(), waiting.queue()
    assert waiting.take() == served
    functions["begin_turn"](waiting.device, world.worker, served)
    assert served.charged_at
    begin = clock["now"]
    clock["now"] += 500 * US + lost
    clock["lost"] += lost
    on_core = world.functions(core_time, thread_time=lambda: clock["now"] - clock["lost"])["on_core_in_turn"]
    assert on_core(served, world.worker, None, begin, clock["now"]) == 500 * US
    clock["now"] += 10 * US
    functions["charge_spent"](waiting.device, world.worker, served)
    assert served.time.value - other.time.value == 510 * US


def test_more_queues_than_there_was_room_for() -> None:
    """The places of those that wait move, and none is lost."""
    cells = (ctypes.c_int64 * 1)()
    with started(1) as executor, one_worker_held(executor):
        queues = [executor.create_queue(0, 0, False)[0] for _ in range(500)]
        values = [executor.stamp(queue, ctypes.addressof(cells)) for queue in queues]
        assert Device(executor._devices[0]).pending.value == 500
    assert all(executor.spin(queue, value, PATIENCE) for queue, value in zip(queues, values, strict=True))
