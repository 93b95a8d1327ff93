"""The native executor's threads, in orders that a machine hardly ever comes to: what is submitted runs once, when it may."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
from interleaved import Interleaved
from selection import some

from aiodev._backends.cpu import executor as native
from aiodev._backends.cpu.executor.crowding import ALWAYS
from aiodev._backends.cpu.executor.waiting import fire
from aiodev._backends.cpu.executor.worker import pass_gate, pass_wait
from aiodev._backends.cpu.structs import (
    OP_COMMAND,
    OP_END,
    OP_SIGNAL,
    Chunk,
    CommandBuffer,
    Device,
    Entry,
    KernelRecord,
    Partition,
    Place,
    Queue,
    Record,
    SignalRecord,
    Worker,
)
from aiodev._backends.executor.structs import NEVER, Gate, Semaphore, TraceLog, TraceSlot, Waker
from aiodev._backends.executor.wait_nodes import arm_node
from aiodev._core.backend.trace_log import OPERATION_MASK
from aiodev._native.fields import sizeof

#: Bytes of a chunk of records: a few, so that programs of some operations come to its end.
CHUNK = 320
PRIORITIES = 3
#: How many operations a log has room for.
SLOTS = 24


@dataclass
class Operation:
    """One that was submitted, and what is to be true when it runs."""

    queue: Queue
    value: int
    size: int = 1
    ran: list[int] = field(default_factory=list)
    behind: list[tuple[Queue, int]] = field(default_factory=list)  #: what other queues have to have reached
    gates: list[tuple[Gate, int]] = field(default_factory=list)  #: which have to be open, unless that operation is withdrawn
    withdrawn: set[int] = field(default_factory=set)  #: operations that may be
    ahead: list[Operation] = field(default_factory=list)  #: commands of the same graph
    fails: bool = False


class Machine(Interleaved):
    """A device with workers, and what its clients do with it."""

    def __init__(self, *how: Any, workers: int = 2) -> None:
        super().__init__(*how)
        self.operations: list[Operation] = []
        self.opened: set[int] = set()
        replaced: dict[str, Any] = {
            "CHUNK_BYTES": CHUNK, "call_entry": self._run, "sched_getcpu": self._core, "thread_time": lambda: self.time,
            "sched_getaffinity": lambda *words: -1,
        }  # fmt: skip
        self.call = self.functions(native, **replaced)
        if self.chance.random() < 0.5:
            self.crowd.clock_wait = 1
            self.crowd.until.value = self.chance.choice((0, ALWAYS))
        if self.crowd.until.value == ALWAYS:
            self.crowd.span = -1
            self.crowd.coalesces = self.chance.randrange(2)
        self.log: TraceLog | None = None
        if self.chance.random() < 0.3:
            self.log = TraceLog(self.allocate(sizeof(TraceLog) + SLOTS * sizeof(TraceSlot)), self)
            self.log.room = SLOTS
        self._clients = 0
        self._spin = self.chance.choice((0, 0, 5_000, 100_000))
        self._devices = [self.device]
        self._start(self.device, workers)

    def _start(self, device: Device, workers: int) -> None:
        device.crowd, device.workers = self.crowd, workers
        for priority in range(PRIORITIES):
            device.least[priority].value = NEVER
            device.heap[priority].value = Place(self.allocate(16 * sizeof(Place)), self)
        for number in range(workers):
            worker = Worker(self.allocate(sizeof(Worker)), self)
            worker.spin = worker.spin_cap = self._spin
            if number == 0:
                device.prime = worker
            self.add(f"worker {len(self._threads)}", lambda worker=worker: self.call["work"](device, worker))

    def _core(self) -> int:
        return self._threads.index(self.running) % 2 if self.running else 0

    def _run(self, code: int, outcome: Any, arguments: Any, lo: int, hi: int) -> int:
        """Run indices of a kernel, whose code is its number: all that is ahead of it has to be over, and it comes once."""
        self.progress()
        operation = self.operations[code]
        words, queue = self.words, operation.queue
        assert words[queue.completed.address] == operation.value - 1, "it runs out of its turn"
        assert not set(operation.ran) & set(range(lo, hi)) and hi <= operation.size, "it runs twice"
        operation.ran += range(lo, hi)
        assert all(words[other.completed.address] >= value for other, value in operation.behind), "it did not wait"
        assert all(len(each.ran) == each.size for each in operation.ahead), "it overtakes another command"
        for gate, number in operation.gates:
            assert gate.address in self.opened or number in operation.withdrawn, "the gate is shut"
        self.touch(queue.completed.address)
        self.time += self.chance.choice((0, 1_000, 30_000)) * (hi - lo)
        self.touch(queue.completed.address)
        return int(operation.fails)

    def add_client(self, body: Any) -> None:
        """A thread that submits; when the last of them has ended, the workers are told to."""
        self._clients += 1

        def run() -> None:
            body()
            self._clients -= 1
            if self._clients == 0:
                for device in self._devices:
                    self.call["stop"](device)

        self.add(f"client {self._clients}", run)

    def limit_workers(self) -> None:
        """Have fewer workers be awake, and all of them, as a quota is found to change."""
        for _ in range(3):
            self.call["limit_workers"](self.device, self.chance.randrange(self.device.workers), self.device.reserve)
            self.spin()
        self.call["limit_workers"](self.device, 0, self.device.reserve)

    def make_queue(self, reserved: bool = False) -> Queue:
        """A queue as the executor makes it; a reserved one has a worker of its own."""
        queue, chunk = Queue(self.allocate(sizeof(Queue)), self), Chunk(self.allocate(CHUNK), self)
        chunk.nbytes = CHUNK
        queue.target.value = queue.forgiven.value = NEVER
        queue.chunk = queue.open_chunk = chunk
        queue.offset = sizeof(Chunk)
        queue.cursor = Record(chunk.address + sizeof(Chunk), self)
        queue.device = queue.range_device = self.device
        if reserved:
            queue.device = Device(self.allocate(sizeof(Device)), self)
            self._devices.append(queue.device)
            self._start(queue.device, 1)
        queue.partitions = Partition(self.allocate(self.device.workers * sizeof(Partition)), self)
        self.call["recycle"](queue, self.chance.randrange(PRIORITIES), self.log)
        return queue


Kind = TypeVar("Kind", bound=Machine)


class Client:
    """Submits to a queue, and knows what has to come of it."""

    def __init__(self, machine: Machine, chance: random.Random, reserved: bool = False, helps: bool = True) -> None:
        self.machine, self.chance, self._helps = machine, chance, helps
        self.call = machine.call
        self.queue = machine.make_queue(reserved)
        self.submitted = 0
        self._behind: list[tuple[Queue, int]] = []
        self._gates: list[tuple[Gate, int]] = []
        self._shut = deque[Gate]()
        self._withdrawn, self._may_be = set[int](), set[int]()
        self._mine: list[Operation] = []
        self._shared: dict[int, tuple[Client, int]] = {}  # waits whose failure is shared, by their numbers
        self._bell = Semaphore(machine.allocate(sizeof(Semaphore)), machine)
        self._waker = Waker(machine.allocate(sizeof(Waker)), machine)
        self._waker.descriptor = self._bell.address

    def launch(self, fails: bool = False) -> None:
        size = self.chance.choice((1, 1, 1, 5))
        entry = self._entry(self.submitted + 1, size, [])
        self._mine[-1].fails = fails
        self._submit("launch", entry, size, b"", 0)

    def execute(self, signals: Queue | None = None) -> None:
        """Launch several kernels as a graph; behind each, a queue is given a signal, if there is one."""
        sizes, nbytes = [self.chance.choice((1, 1, 5)) for _ in range(3)], max(sizeof(KernelRecord), sizeof(SignalRecord))
        room = sizeof(CommandBuffer) + 2 * nbytes * len(sizes) + sizeof(Record)
        buffer = CommandBuffer(self.machine.allocate(room), self.machine)
        buffer.length, ahead, place = len(sizes), list[Operation](), buffer.commands.address
        for size in sizes:
            record = KernelRecord(place, self.machine)
            record.mark, record.nbytes, record.size = OP_COMMAND, nbytes, size
            record.entry = self._entry(self.submitted + 1, size, ahead[:])
            ahead.append(self._mine[-1])
            place += nbytes
            if signals is not None:
                signal = SignalRecord(place, self.machine)
                signal.mark, signal.nbytes, signal.queue, signal.bound = OP_SIGNAL, nbytes, signals, len(sizes)
                place += nbytes
        Record(place, self.machine).mark = OP_END
        self._submit("execute", buffer, b"")

    def _entry(self, value: int, size: int, ahead: list[Operation]) -> Entry:
        """A kernel's entry, of which no other launch is, so that it is known what runs."""
        operation = Operation(self.queue, value, size, [], self._behind[:], self._gates[:], self._may_be, ahead)
        known = self.machine.operations
        known.append(operation)
        self._mine.append(operation)
        entry, number = Entry(self.machine.allocate(sizeof(Entry)), self.machine), len(known) - 1
        entry.code.value = number
        entry.cost = self.chance.choice((0, 1_000, 40_000_000))
        entry.uniform = self.chance.randrange(2)
        return entry

    def gate(self) -> Gate:
        gate = Gate(self.call["create_gate"](), self.machine)
        self._submit("gate", gate)
        self._gates.append((gate, self.submitted))
        return gate

    def open(self, gate: Gate) -> None:
        self.machine.opened.add(gate.address)
        self.call["open_gate"](gate, False)

    def hold(self) -> None:
        """Add a gate, which is opened later."""
        self._shut.append(self.gate())

    def let_go(self, most: int = 1) -> None:
        """Open those gates."""
        while self._shut and most:
            self.open(self._shut.popleft())
            most -= 1

    def wait(self, other: Client, value: int, shared: bool = False) -> None:
        """Wait for another queue; if that is ``shared``, what fails there fails here."""
        self._submit("wait" if shared else "wait_over", other.queue, value)
        self._behind.append((other.queue, value))
        if shared:
            self._shared[self.submitted] = other, value

    def fails_by(self, value: int) -> bool:
        """Whether a failure begins with an operation up to ``value``; then what is behind it does not run."""
        known = [number for number in range(1, value + 1) if number not in self._withdrawn]
        fails = {operation.value for operation in self._mine if operation.fails}
        waits = [self._shared[number] for number in known if number in self._shared]
        return not fails.isdisjoint(known) or any(other.covers(target) for other, target in waits)

    def covers(self, value: int) -> bool:
        """Whether who waits for an operation fails."""
        return value in self._withdrawn or self.fails_by(value)

    def withdraw(self) -> None:
        if self.submitted:
            first = self.chance.randint(1, self.submitted)
            last = self.chance.randint(first, self.submitted)
            self._may_be.update(range(first, last + 1))
            start = self.call["withdraw"](self.queue, first, last, self.chance.random() < 0.5)
            if start:
                self._withdrawn.update(range(start, last + 1))

    def _submit(self, name: str, *arguments: object) -> None:
        self.submitted += 1
        assert self.call[name](self.queue, *arguments) == self.submitted

    def finish(self) -> None:
        """Wait until all is done, by helping or not; then each has run that was to."""
        self.let_go(-1)
        while self.queue.completed.load() < self.submitted:
            match self.chance.randrange(4) if self._helps else None:
                case 0:
                    self.call["spin"](self.queue, self.submitted, self.chance.choice((5_000, 200_000)))
                case 1:
                    self._sleep()
                case _:
                    self.machine.spin()
        for operation in self._mine:
            runs = operation.value not in self._withdrawn and not self.fails_by(operation.value - 1)
            if runs and operation.fails:
                assert operation.ran, "it did not run"
            else:
                expected = range(operation.size if runs else 0)
                assert sorted(operation.ran) == list(expected), "not all of it ran, or some that was not to"

    def _sleep(self) -> None:
        """Wait as a loop does, which parks."""
        if self.call["arm"](self.queue, self.submitted, self._waker):
            self.machine.sleep(self._bell)
            self.call["rearm_waker"](self._waker)
            while self.call["next_fired"](self._waker):
                pass

    def begin_again(self) -> None:
        """Have the queue recycled, as that of a stream that was dropped is."""
        while self.queue.pending.load() != 0 or self.queue.visitors.load() != 0:
            self.machine.spin()
        self.call["recycle"](self.queue, self.chance.randrange(PRIORITIES), self.machine.log)
        self.submitted = 0
        self._withdrawn, self._may_be = set(), set()
        for known in (self._behind, self._gates, self._mine, self._shared):
            known.clear()


def run_program(*how: Any) -> Machine:
    """Two clients, of which each has a queue that the other one waits for, and one that begins again."""
    chance = random.Random(how[0])
    machine = Machine(*how, workers=chance.choice((1, 2, 2, 3)))
    shared = [Client(machine, chance) for _ in range(2)]
    privates = [Client(machine, chance, reserved=chance.random() < 0.2) for _ in range(2)]

    def act(client: Client, waited_for: Client) -> None:
        match chance.randrange(11):
            case 0 | 1 | 2:
                client.launch()
            case 3 | 4:
                client.execute()
            case 5:
                client.hold()
            case 6 | 7:
                client.let_go()
            case 8 if waited_for.submitted:
                client.wait(waited_for, waited_for.submitted, shared=chance.random() < 0.5)
            case 9:
                client.withdraw()
            case 10:
                client.launch(fails=True)

    def body(number: int) -> None:
        mine, private = shared[number], privates[number]
        for _ in range(chance.randint(1, 2)):
            for _ in range(chance.randint(2, 6)):
                act(*chance.choice(((private, shared[0]), (private, shared[1]), (mine, shared[1 - number]))))
            mine.let_go(-1)  # which the private one may wait for
            private.finish()
            private.begin_again()
        mine.finish()

    for number in range(2):
        machine.add_client(lambda number=number: body(number))
    machine.add("limits", machine.limit_workers)
    machine.start()
    for client in shared:
        assert client.queue.pending.value == client.queue.owed == 0, "an idle queue counts what it was given"
    assert machine.device.pending.value == 0, "an idle queue waits"
    if machine.log is not None:
        slots = [machine.log.slots[number] for number in range(min(SLOTS, machine.log.claimed.value))]
        noted = [slot for slot in slots if slot.what & OPERATION_MASK not in (0, OP_COMMAND)]  # 0: a command that was withdrawn
        assert all(slot.ended.value >= slot.begun >= slot.submitted > 0 for slot in noted), "it is not noted when it ended"
    return machine


def run_gates(*how: Any, kind: type[Kind]) -> Kind:
    """A client that waits behind gates, and one that opens each of them as soon as it is there."""
    machine = kind(*how)
    client = Client(machine, machine.chance)
    kept = deque[Gate]()

    def submit() -> None:
        for _ in range(2):
            kept.append(client.gate())
            client.launch()
        client.finish()

    def open_each() -> None:
        for _ in range(2):
            while not kept:
                machine.spin()
            client.open(kept.popleft())

    machine.add_client(submit)
    machine.add_client(open_each)
    machine.start()
    return machine


def run_waits(*how: Any) -> Machine:
    """A queue that waits for each operation of another one, as it is completed."""
    machine = Machine(*how)
    first, second = (Client(machine, machine.chance) for _ in range(2))

    def lead() -> None:
        for _ in range(3):
            first.launch()
        first.finish()

    def follow() -> None:
        for value in range(1, 4):  # which may not have been submitted yet
            second.wait(first, value)
            second.launch()
        second.finish()

    machine.add_client(lead)
    machine.add_client(follow)
    machine.start()
    return machine


def run_lives(*how: Any, kind: type[Kind]) -> Kind:
    """A queue that waits for another one's first operation, and both again and again as those of new streams."""
    machine = kind(*how)
    first, second = Client(machine, machine.chance, helps=False), Client(machine, machine.chance, helps=False)
    lives = [0, 0]

    def live(mine: Client, submit: Callable[[], object]) -> None:
        number = (first, second).index(mine)
        for _ in range(3):
            submit()
            for step in (mine.finish, mine.begin_again):
                step()
                lives[number] += 1
                while min(lives) < lives[number]:
                    machine.spin()

    def follow() -> None:
        second.wait(first, 1)
        second.launch()

    machine.add_client(lambda: live(first, first.launch))
    machine.add_client(lambda: live(second, follow))
    machine.start()
    return machine


class Noting(Machine):
    """Notes which functions a thread was in at each place, and which thread it was."""

    def __init__(self, *how: Any) -> None:
        self.where: dict[int, tuple[str, set[str]]] = {}
        super().__init__(*how)

    def _place(self) -> None:
        frame, names = sys._getframe(1), set[str]()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        self.where[self.places + 1] = self.running.name if self.running else "", names
        super()._place()

    def places_in(self, *functions: Any, since: int = 0) -> list[int]:
        """Those at which a worker was in all of these functions, native ones or not."""
        within = {getattr(function, "py_func", function).__name__ for function in functions}
        found = ((place, name, names) for place, (name, names) in self.where.items() if place > since)
        return [place for place, name, names in found if name.startswith("worker") and names >= within]


def run_signals(*how: Any) -> Machine:
    """A graph that says after each of its kernels that it is done, to a queue and to a thread."""
    machine = Machine(*how)
    graph, behind, signals = Client(machine, machine.chance), Client(machine, machine.chance), Client(machine, machine.chance)

    def lead() -> None:
        graph.execute(signals.queue)
        graph.finish()

    def follow() -> None:
        for value in range(1, 4):
            behind.wait(signals, value)
            behind.launch()
        behind.finish()

    def watch() -> None:
        signals.submitted = 3
        signals.finish()

    for body in (lead, follow, watch):
        machine.add_client(body)
    machine.start()
    return machine


def interleave(run: Callable[..., Machine], seed: int) -> None:
    """Run a program undisturbed, which says how many places there are; then several times, and give way at some of them."""
    only_atomic, chance = seed % 2 == 0, random.Random(seed)
    places = run(seed, (), only_atomic).places
    for _ in range(10):
        run(seed, [chance.randint(1, places) for _ in range(chance.randint(1, 4))], only_atomic)


@pytest.mark.parametrize("seed", some(range(400), 20))
def test_programs_in_any_order(seed: int) -> None:
    """What is submitted runs once, in its turn, and behind what it waits for; and nobody sleeps for ever."""
    for run in (run_program, partial(run_gates, kind=Machine), run_waits, run_signals):
        interleave(run, seed)


@pytest.mark.parametrize("seed", some(range(100), 10))
def test_a_gate_that_is_opened_as_a_worker_comes_to_it(seed: int) -> None:
    """Another worker may be through with it, and it be freed, before that one has looked again."""
    for place in run_gates(seed, (), False, kind=Noting).places_in(pass_gate):
        run_gates(seed, (place,), False, kind=Machine)


@pytest.mark.parametrize("seed", some(range(18, 80), 9))
def test_a_worker_that_is_late_finds_the_queues_of_new_streams(seed: int) -> None:
    """It leaves one to wait for another, and both are recycled, and wait like that again, before it has looked once more."""
    for place in run_lives(seed, (), True, kind=Noting).places_in(pass_wait, arm_node, Machine.exchange)[3::4][:2]:
        late = run_lives(seed, (place,), True, kind=Noting)  # it has armed, and gives way
        for other in late.places_in(fire, Machine.compare_exchange, since=place):
            run_lives(seed, (place, other), True, kind=Machine)
