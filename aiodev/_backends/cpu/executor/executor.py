"""The native executor: workers that run streams without the GIL (see :mod:`aiodev._backends.cpu.executor`).

This file owns what the native code works on: the memory of its structures, its threads, and the table of entries.
To make one loads (at the very first time: compiles) the native code, which blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial

from aiodev._backends.cpu import executor as native
from aiodev._backends.cpu.code_cache import EXECUTOR
from aiodev._backends.cpu.executor.crowding import ALWAYS
from aiodev._backends.cpu.host import HostExecutor
from aiodev._backends.cpu.structs import (
    CHUNK_BYTES,
    OP_BRANCH,
    OP_COMMAND,
    OP_END,
    OP_SIGNAL,
    PRIORITIES,
    RECORD_ALIGNMENT,
    BranchRecord,
    Chunk,
    CommandBuffer,
    Crowd,
    Device,
    Entry,
    Partition,
    Place,
    Queue,
    Record,
    Schedule,
    ScheduledStep,
    SignalRecord,
    Worker,
)
from aiodev._backends.cpu.tuning import FIRST_ROOM, NICE
from aiodev._backends.executor.arena import arena, words_at
from aiodev._backends.executor.structs import FAULT_SLOTS, KIND_DEPENDENCY, KIND_KERNEL, KIND_WITHDRAWN, NEVER, Waker
from aiodev._core.backend.interface import COUNTER_WORDS, Command, Fault, ScheduleStep
from aiodev._core.backend.launch_codes import launch_codes
from aiodev._core.backend.trace_log import TraceLog
from aiodev._core.time_slice import shorten_time_slice
from aiodev._native.fields import WORD, offset_of, sizeof
from aiodev._native.native_code import COMPILED

_PENDING, _VISITORS = (offset_of(Queue, name) // WORD for name in ("pending", "visitors"))
_LOG = offset_of(Queue, "log") // WORD
#: The head of a command: a ``KernelRecord`` without its arguments.
_COMMAND = struct.Struct("5q")
#: That of any record.
_HEAD = struct.Struct("2q")
#: That of a branch: a ``BranchRecord`` without its condition and its mask.
_BRANCH = struct.Struct("3q")


def _work(work: Callable[[int, int], None], device: int, worker: int, is_nice: bool) -> None:
    """A worker's thread."""
    thread = threading.get_native_id()
    Worker(worker).thread = thread
    shorten_time_slice()
    if is_nice:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    work(device, worker)


class _Room:
    """Capacity of a device's heaps: how many queues it has, and for how many there are places."""

    def __init__(self) -> None:
        self.count = self.size = 0


class NativeExecutor(HostExecutor):
    """Workers for ``device_count`` devices, ``threads_per_device`` each, and as many more of each as are in ``reserve``."""

    kind = "native"
    has_buffers = has_branches = has_signals = has_schedules = True
    destroys_anywhere = True

    #: The hot methods, and ``withdraw``, are the compiled functions themselves, which an instance has.
    launch = execute = execute_schedule = wait = wait_over = stamp = spin = help = COMPILED
    arm = forgive = create_gate = gate = open_gate = withdraw = COMPILED

    def __init__(self, device_count: int, threads_per_device: int, spin_ns: int, reserve: int = 0) -> None:
        code = self._code = EXECUTOR.load()
        self.thread_count = self._limit = threads_per_device
        self._reserve, self._reserve_held = reserve, False
        self.decode_error = _undecoded
        self._spin_ns = spin_ns
        self._lock = threading.RLock()  # re-entrant: a finalizer may make a stream while this thread holds it
        self._errors: dict[tuple[int, int], BaseException] = {}
        self._free: dict[int, deque[int]] = defaultdict(deque)
        self._reserved: dict[int, deque[int]] = defaultdict(deque)
        self._pool_of: dict[int, deque[int]] = {}
        self._words: dict[int, memoryview[int]] = {}  # of every queue
        self._counters: dict[int, memoryview[int]] = {}  # the first of these
        self._log = 0  # address of the log that submitters are to note operations in, or 0
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._stopped = False
        self.launch = code.function(native.launch)
        launch_codes[self.launch] = code.address(native.launch_at_once)
        self.execute = code.function(native.execute)
        self.execute_schedule = code.function(native.execute_schedule)
        self.wait = code.function(native.wait)
        self.wait_over = code.function(native.wait_over)
        self.stamp = code.function(native.stamp)
        self.spin = code.function(native.spin)
        self.help = code.function(native.help)
        self.arm = code.function(native.arm)
        self.forgive = code.function(native.forgive)
        self.open_gate = code.function(native.open_gate)
        self._make_room = code.function(native.make_room)
        self.withdraw = code.function(native.withdraw)
        self.gate = code.function(native.gate)
        self.create_gate = code.function(native.create_gate)
        self._rearm_waker = code.function(native.rearm_waker)
        self._next_fired = code.function(native.next_fired)
        self._recycle = code.function(native.recycle)
        self._limit_workers = code.function(native.limit_workers)
        self._copy_entry = arena.allocate(sizeof(Entry))
        self._fill_entry = arena.allocate(sizeof(Entry))
        for entry in (self._copy_entry, self._fill_entry):
            Entry(entry).uniform = True
        self.set_entry(self._copy_entry, code.address(native.copy_entry))
        self.set_entry(self._fill_entry, code.address(native.fill_entry))
        self._rooms: dict[int, _Room] = defaultdict(_Room)
        self._crowd = Crowd(arena.allocate(sizeof(Crowd)))
        self._crowd.clock_wait = _address_of("sem_clockwait")
        self._devices: list[int] = []
        self._all_devices: list[int] = []
        self._workers: list[Worker] = []
        try:
            self._devices = [self._start_device(f"cpu:{i}", threads_per_device, reserve) for i in range(device_count)]
        except BaseException:  # the workers that did start would wait for ever
            self.stop()
            raise

    def _start_device(self, name: str, threads: int, reserve: int = 0) -> int:
        device = Device(arena.allocate(sizeof(Device)))
        device.workers, device.reserve = threads, reserve
        device.crowd = self._crowd
        for priority in range(PRIORITIES):
            device.least[priority].value = NEVER
        self._all_devices.append(device.address)
        work = partial(_work, self._code.function(native.work))
        for i in range(threads + reserve):
            worker = Worker(arena.allocate(sizeof(Worker)))
            self._workers.append(worker)
            worker.spin = worker.spin_cap = self._spin_ns
            if i == 0:
                device.prime = worker
            _libc.sem_init(ctypes.c_void_p(worker.semaphore.address), 0, 0)
            arguments = device.address, worker.address, 0 < i < threads
            threading.Thread(target=work, args=arguments, name=f"aiodev-{name}-{i}", daemon=True).start()
        return device.address

    def stop(self) -> None:
        """Let the workers return; waits a moment, since a kernel cannot be interrupted."""
        if self._stopped:
            return
        self._stopped = True
        stop = self._code.function(native.stop)
        for device in self._all_devices:
            stop(device)
        deadline = time.monotonic() + 0.3
        for each in map(Device, self._all_devices):
            count = each.workers + (self._reserve if each.address in self._devices else 0)
            while each.left.value < count and time.monotonic() < deadline:
                time.sleep(0.0005)  # native threads that end tell nobody but this word

    def limit_spin(self, nanoseconds: int) -> None:
        """See the ABC. A worker that learns in the very moment may spin once more for as long as it did."""
        self._spin_ns = nanoseconds
        for worker in self._workers:
            worker.spin_cap = nanoseconds
            worker.spin = nanoseconds

    def limit_workers(self, count: int) -> None:
        """See the ABC. Those beyond that sleep once they look for work the next time, or at the next look at the time."""
        self._limit = count
        self._have_asleep()

    def hold_reserve(self, held: bool) -> None:
        """See the ABC."""
        self._reserve_held = held
        self._have_asleep()

    def _have_asleep(self) -> None:
        """Tell the devices how many workers are to sleep."""
        for device in map(Device, self._devices):
            beyond = max(0, device.workers - self._limit)
            surplus, reserve = (beyond + self._reserve, 0) if self._reserve_held else (beyond, self._reserve)
            self._limit_workers(device.address, surplus, reserve)

    def coalesce_wake_ups(self, coalesced: bool) -> None:
        """See the ABC."""
        self._crowd.coalesces = int(coalesced)

    def is_crowded(self) -> bool:
        """See the ABC. Where this process has one core, its own threads are the crowd."""
        return time.monotonic_ns() < self._crowd.until.value

    def share_core(self, shared: bool) -> None:
        """See the ABC. One core is crowded for good: each worker that is woken takes it from the thread that submits."""
        crowd = self._crowd
        if shared:
            crowd.span, crowd.until.value = -1, ALWAYS
        elif crowd.until.value == ALWAYS:
            crowd.span, crowd.until.value = 0, 0

    # Queues

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        """A queue of device ``index``; a reserved one has a worker that serves nobody else."""
        range_device = self._devices[index]
        pool = (self._reserved if reserved else self._free)[index]
        queue = self._take_queue(pool)
        if not queue:
            queue = self._make_queue(self._start_device(f"cpu:{index}-reserved", 1) if reserved else range_device, range_device)
            self._pool_of[queue] = pool
        self._recycle(queue, priority + 1, self._log)
        return queue, self._counters[queue]

    def _take_queue(self, pool: deque[int]) -> int:
        """One that was given back, and that no worker holds on to; 0 if there is none. Others take and give back meanwhile."""
        held: list[int] = []
        try:
            while True:
                words = self._words[queue := pool.pop()]  # what was used last is in the caches
                if not (words[_PENDING] or words[_VISITORS]):
                    return queue
                held.append(queue)
        except IndexError:
            return 0
        finally:
            # A worker that looks for work keeps hold of the queue that it served last, and one that leaves a queue to wait for
            # this one may have lost its core. That stays the next one to be taken: at the other end it would come after all
            # that were ever used, and streams that come and go would go through these.
            if held:
                pool.extend(reversed(held))

    def _make_queue(self, device: int, range_device: int) -> int:
        queue = Queue(arena.allocate(sizeof(Queue)))
        address = _libc.aligned_alloc(RECORD_ALIGNMENT, CHUNK_BYTES)
        if not address:
            raise MemoryError("no memory for another stream")
        for place in {device, range_device}:
            self._admit(place)
        chunk = Chunk(address)
        chunk.nbytes = CHUNK_BYTES
        queue.target.value = queue.forgiven.value = NEVER
        queue.chunk = queue.open_chunk = chunk
        queue.offset = sizeof(Chunk)
        queue.cursor = Record(chunk.address + sizeof(Chunk))
        queue.device = Device(device)
        queue.range_device = Device(range_device)
        queue.partitions = Partition(arena.allocate(self.thread_count * sizeof(Partition)))
        self._words[queue.address] = words = words_at(queue.address, sizeof(Queue) // WORD)
        self._counters[queue.address] = words[:COUNTER_WORDS]
        return queue.address

    def _admit(self, device: int) -> None:
        """Make sure that one more queue finds a place on ``device``, whatever its priority."""
        with self._lock:
            room = self._rooms[device]
            room.count += 1
            while room.count > room.size:  # a finalizer may admit queues, and make room, in the midst of this
                size = max(FIRST_ROOM, 2 * room.size)
                places = arena.allocate(PRIORITIES * (size + 1) * sizeof(Place))
                if size > room.size:
                    self._make_room(device, places, size)
                    room.size = size

    def destroy_queue(self, queue: int) -> None:
        """Recycle a queue whose operations are done, once no worker holds on to it (invariant 3 of the native code)."""
        if self._errors:
            self._forget_errors(queue, before=NEVER)
        self._pool_of[queue].append(queue)  # without a lock, so that finalizers may call this

    # Submission

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        """Copy bytes; large copies are shared by the workers like any range."""
        return self.launch(queue, self._copy_entry, nbytes, struct.pack("qq", dst, src), 0)

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """Write a pattern ``count`` times."""
        return self.launch(queue, self._fill_entry, count, _fill_arguments(struct.pack("q", dst), pattern), 0)

    def trace(self, log: TraceLog | None) -> None:
        """See the ABC."""
        with self._lock:
            self._log = 0 if log is None else log.address
            for queue in list(self._pool_of):
                self._words[queue][_LOG] = self._log

    # Command buffers

    def create_buffer(self, index: int, commands: Sequence[Command]) -> tuple[int, list[int]]:
        """Records of all commands, one behind the other, and the end."""
        parts: list[bytes] = [bytes(sizeof(CommandBuffer))]
        places: list[int] = []
        begins: list[int] = []
        end = sizeof(CommandBuffer)
        branches: list[tuple[int, int]] = []  # of each its part, and where it goes
        for kind, entry, size, arguments, site in commands:
            begins.append(end)
            if kind == "branch":
                branches.append((len(parts), size))
                parts += [b"", arguments]
                places.append(end + _BRANCH.size)
                end += _BRANCH.size + len(arguments)
                continue
            if kind == "signal":
                parts += [_HEAD.pack(OP_SIGNAL, sizeof(SignalRecord)), arguments]
                places.append(end + _HEAD.size)
                end += _HEAD.size + len(arguments)
                continue
            if kind == "copy":
                entry = self._copy_entry
            elif kind == "fill":
                entry, arguments = self._fill_entry, _fill_arguments(arguments[:WORD], arguments[WORD:])
            nbytes = _COMMAND.size + len(arguments)
            parts += [_COMMAND.pack(OP_COMMAND, nbytes, entry, size, site), arguments]
            places.append(end + _COMMAND.size)
            end += nbytes
        begins.append(end)
        for part, target in branches:
            own = begins[part // 2]  # ahead of them is one part, and each command has two
            parts[part] = _BRANCH.pack(OP_BRANCH, sizeof(BranchRecord), begins[target] - own)
        parts.append(_HEAD.pack(OP_END, sizeof(Record)))
        memory = ctypes.create_string_buffer(b"".join(parts))
        buffer = ctypes.addressof(memory)
        self._buffers[buffer] = memory
        CommandBuffer(buffer).length = 0 if branches else len(commands)
        return buffer, [buffer + place for place in places]

    def destroy_buffer(self, buffer: int) -> None:
        """Let go of its memory."""
        del self._buffers[buffer]

    # Schedules

    def create_schedule(self, steps: Sequence[ScheduleStep]) -> int:
        """The steps as native code reads them, one behind the other."""
        memory = ctypes.create_string_buffer(sizeof(Schedule) + sizeof(ScheduledStep) * len(steps))
        schedule = Schedule(ctypes.addressof(memory))
        schedule.count = len(steps)
        for number, (lane, buffer, other, awaited) in enumerate(steps):
            step = schedule.steps[number]
            step.lane, step.buffer, step.other = lane, CommandBuffer(buffer) if buffer else None, other
            step.awaited = None if awaited < 0 else schedule.steps[awaited]
        self._buffers[schedule.address] = memory
        return schedule.address

    def destroy_schedule(self, schedule: int) -> None:
        """Let go of its memory."""
        del self._buffers[schedule]

    # Wakers

    def create_waker(self, descriptor: int) -> int:
        """A waker for a file descriptor; never freed, since a worker may be about to write."""
        waker = Waker(arena.allocate(sizeof(Waker)))
        waker.descriptor = descriptor
        waker.one.value = 1
        return waker.address

    def collect(self, waker: int) -> list[int]:
        """Queues that reached their armed value."""
        self._rearm_waker(waker)
        fired = []
        while queue := self._next_fired(waker):
            fired.append(queue)
        return fired

    # Failure

    def faults(self, queue: int) -> list[Fault]:
        """The last faults of a queue, decoded."""
        view, faults = Queue(queue), []
        count = view.faults.value
        for i in range(max(0, count - FAULT_SLOTS), count):
            fault = view.ring[i % FAULT_SLOTS]
            first, last, kind, a, b, c = fault.first, fault.last.value, fault.kind, fault.a, fault.b, fault.c
            error = None
            if kind == KIND_KERNEL:
                error = self._errors.get((queue, first))
                if error is None:  # decoded once: numba's record of a dynamic exception does not survive a second time
                    error = self._errors[queue, first] = self.decode_error(a, c, b)
            dependency = (a, b) if kind == KIND_DEPENDENCY else None
            faults.append(Fault(first, last or None, error, dependency, kind == KIND_WITHDRAWN))
        if len(faults) == FAULT_SLOTS:
            self._forget_errors(queue, before=faults[0].first)
        return faults

    def _forget_errors(self, queue: int, before: int) -> None:
        for key in list(self._errors):  # other threads enter some, and forget some, meanwhile
            if key[0] == queue and key[1] < before:
                self._errors.pop(key, None)

    # Entries

    def set_entry(self, entry: int, code: int) -> None:
        """Give an entry, an :class:`Entry` of the arena, its code: ``int32 f(result*, excinfo**, arguments, lo, hi)``."""
        Entry(entry).code.value = code


def _fill_arguments(dst: bytes, pattern: bytes) -> bytes:
    return dst + struct.pack("q", len(pattern)) + pattern * (16 // len(pattern))


def _undecoded(excinfo: int, entry: int, site: int) -> BaseException:
    return RuntimeError(f"entry {entry:#x} failed, and nobody is here to decode its exception at {excinfo:#x}")


def _address_of(name: str) -> int:
    """The address of a function of the C library; 0 if it lacks that."""
    function = getattr(_libc, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


_libc = ctypes.CDLL(None, use_errno=True)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
