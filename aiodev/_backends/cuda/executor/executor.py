"""The CUDA executor: streams, page-locked memory, threads and entries, which its native code works on.

To make one loads (at the very first time: compiles) the native code, which blocks.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiodev._backends.cuda import executor as native, structs, tuning
from aiodev._backends.cuda.code_cache import EXECUTOR
from aiodev._backends.cuda.driver import CHANNELS_SETTING, DEFAULT_CHANNELS, MOST_CHANNELS, Driver, DriverError
from aiodev._backends.cuda.executor import ptx
from aiodev._backends.cuda.executor.steps import Steps
from aiodev._backends.cuda.memory import DeviceMemory
from aiodev._backends.cuda.structs import Buffer, Caller, Device, EventWaiter, FaultRecord, Parameters, Queue, RingUser
from aiodev._backends.executor.arena import arena, words_at
from aiodev._backends.executor.structs import (
    FAULT_SLOTS,
    KIND_DEPENDENCY,
    KIND_DRIVER,
    KIND_GATE,
    KIND_KERNEL,
    KIND_LOST,
    KIND_NATIVE,
    KIND_WITHDRAWN,
    NEVER,
    Waker,
)
from aiodev._core.at_fork import first_in_child
from aiodev._core.backend.interface import COUNTER_WORDS, Command, Executor, Fault
from aiodev._core.backend.launch_codes import launch_codes
from aiodev._core.errors import CaptureError, DeviceError, DeviceLostError
from aiodev._core.streams.native_calls import may_wait
from aiodev._native.fields import LINE, WORD, Cell, offset_of, sizeof
from aiodev._native.native_code import COMPILED

__all__ = ["CUDAExecutor"]

_NON_BLOCKING = 1
_UNTIMED_EVENT = 2
_BLOCKING_EVENT = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_LAST_OF_CAPTURES = 908  # CUDA_ERROR_CAPTURED_EVENT and what else captures refuse
_RECORDS_CONTEXTS = 12050  # the driver that has cuCtxRecordEvent
_PARAMETERS_ARE_AT, _PARAMETER_BYTES_ARE_AT, _END = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, …_BUFFER_SIZE, …_END
_LEGACY = 1
_MEMORY_TYPE, _ORDINAL, _HOST = 2, 9, 1  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, …_DEVICE_ORDINAL; CU_MEMORYTYPE_HOST
_OPERATIONS = {
    "launch": structs.OP_LAUNCH,
    "copy": structs.OP_COPY,
    "fill": structs.OP_FILL,
    "native": structs.OP_NATIVE,
    "signal": structs.OP_SIGNAL,
}
#: Functions that not every driver has which will do, and the version whose prototypes of them are called.
_OF_BLOCKS = {"cuGraphConditionalHandleCreate": 12030, "cuGraphAddNode": 12020, "cuStreamBeginCaptureToGraph": 12030}
_HAS_BLOCKS = 12040  # the driver that has conditional nodes, within each other too
_PAIR = struct.Struct("<2q")
_PAGE = 1 << 20
_executors: weakref.WeakSet[CUDAExecutor] = weakref.WeakSet()
_libc = ctypes.CDLL(None)


class _Device:
    """One device: its native structure, its CUstreams, and page-locked and device memory for queues."""

    def __init__(self, executor: CUDAExecutor, index: int) -> None:
        driver = executor.driver
        doing = f"starting cuda:{index}"
        ordinal = driver.number("cuDeviceGet", index, doing=doing)
        self.index, self.driver, self._code = index, driver, executor.code
        self._channels = self._count_channels(ordinal, doing)
        self.context = self._retain(ordinal, doing)
        total = driver.number("cuDeviceTotalMem", ordinal, doing=doing)
        self.memory = DeviceMemory(driver, index, ordinal, self.context, total)
        self.native = Device(arena.allocate(sizeof(Device)))
        self.native.surely_room = tuning.SURELY_ROOM
        self._count_waiters = executor.code.function(native.count_waiters)
        self.memory.waiting = self.waiting
        #: Queues to be used again, by priority and whether they have a CUstream of their own.
        self.pools: dict[tuple[int, bool], deque[int]] = defaultdict(deque)
        self.adopted: deque[int] = deque()  #: queues to be used again with another library's CUstream
        #: Events that were recorded on other libraries' streams, by the queue and the number of what waits for them.
        self.events: deque[tuple[int, int, int]] = deque()
        self.slots: dict[int, list[int]] = defaultdict(list)
        self.used: dict[int, int] = defaultdict(int)
        self._records: deque[int] = deque()
        self.cells: deque[int] = deque()  #: words of the device's memory, to be used again
        self._sharing: dict[int, list[int]] = {}  # the queues of each CUstream
        self._queues = 0
        self._pinned = self._pinned_end = 0
        with driver.bound(self.context):
            least, greatest = ctypes.c_int(), ctypes.c_int()
            driver.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest), doing=doing)
            # The least is every other library's default, and so ours; there is nothing below it.
            self.priorities = (greatest.value, least.value, least.value)
            staging = self.memory.allocate_pinned(tuning.STAGE_SLOTS * tuning.STAGE_BYTES)
            ring = self.memory.allocate_pinned(tuning.RING_SLOTS * tuning.RING_BYTES)
            follow = driver.number("cuEventCreate", _UNTIMED_EVENT, doing=doing)
            capturing = self._make_capture_stream()
            has_blocks = driver.version >= _HAS_BLOCKS and all(driver.has(*one) for one in _OF_BLOCKS.items())
            setting = ptx.load(driver, ptx.CONDITION, doing) if has_blocks else 0
            signal = ptx.load(driver, ptx.SIGNAL, doing)
            events = [driver.number("cuEventCreate", _BLOCKING_EVENT, doing=doing) for _ in range(tuning.STAGE_SLOTS)]
        device = self.native
        device.context, device.index = self.context, index
        device.spin, device.wait_by = executor.spin_ns, executor.wait_by
        device.stage_buffers, device.ring, device.follow_event, device.capture_stream = staging, ring, follow, capturing
        device.set_condition, device.signal = setting, signal
        device.ring_users = RingUser(arena.allocate(sizeof(RingUser) * tuning.RING_SLOTS))
        device.announce = executor.code.address(native.announce)
        device.stamp = executor.code.address(native.stamp_now)
        for i, event in enumerate(events):
            device.stage_events[i].value = event
        for name in structs.Driver.fields:
            if name not in _OF_BLOCKS or driver.has(name, _OF_BLOCKS[name]):
                setattr(device.driver, name, driver.address(name))
        for semaphore in (device.semaphore, device.staging.semaphore, device.calling.semaphore):
            _libc.sem_init(ctypes.c_void_p(semaphore.address), 0, 0)

    def _count_channels(self, ordinal: int, doing: str) -> int:
        """Channels that the context will have; or has at least, if another library has made it, by whatever was set then."""
        flags, is_there = ctypes.c_uint(), ctypes.c_int()
        self.driver.call(
            "cuDevicePrimaryCtxGetState", ordinal, ctypes.byref(flags), ctypes.byref(is_there), doing=doing
        )
        setting = os.environ.get(CHANNELS_SETTING, "")
        asked_for = int(setting) if setting.isdecimal() else DEFAULT_CHANNELS
        return max(1, min(asked_for, DEFAULT_CHANNELS if is_there.value else MOST_CHANNELS))

    def _retain(self, ordinal: int, doing: str) -> int:
        """The primary context. There is none where other processes have too many of the device's channels, too."""
        try:
            return self.driver.number("cuDevicePrimaryCtxRetain", ordinal, doing=doing)
        except MemoryError:
            raise MemoryError(
                f"{doing}: the device has no room for another context: its memory is full, or too many processes use it, each "
                f"with {self._channels} of its channels; {CHANNELS_SETTING}=8 or less in all of them makes room for more"
            ) from None

    def start(self) -> None:
        """Start the threads."""
        address = self.native.address
        lives: list[tuple[str, Any, int]] = [("poll", native.run_poller, address), ("stage", native.run_stager, address)]
        lives += [("call", native.run_caller, caller) for caller in self._make_callers()]
        if self.native.wait_by == structs.BY_EVENT:
            lives += [("event", native.run_event_waiter, waiter) for waiter in self._make_event_waiters()]
        for name, life, address in lives:
            thread = threading.Thread(
                target=self._code.function(life), args=(address,), name=f"aiodev-cuda:{self.index}-{name}", daemon=True
            )
            thread.start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around calls of the driver that may wait for the device: while they do, submissions let go of the GIL."""
        self._count_waiters(self.native.address, 1)
        try:
            yield
        finally:
            self._count_waiters(self.native.address, -1)

    def _make_callers(self) -> list[int]:
        first = Caller(arena.allocate(tuning.CALLERS * sizeof(Caller)))
        made = [first[index] for index in range(tuning.CALLERS)]
        with self.driver.bound(self.context):
            for caller in made:
                caller.event = self.driver.number("cuEventCreate", _BLOCKING_EVENT, doing=f"starting cuda:{self.index}")
                caller.device = self.native
        return [caller.address for caller in made]

    def _make_event_waiters(self) -> list[int]:
        first = EventWaiter(arena.allocate(tuning.EVENT_WAITERS * sizeof(EventWaiter)))
        made = [first[index] for index in range(tuning.EVENT_WAITERS)]
        doing = f"starting cuda:{self.index}"
        with self.driver.bound(self.context):
            for waiter in made:
                waiter.event = self.driver.number("cuEventCreate", _BLOCKING_EVENT, doing=doing)
                waiter.device = self.native
                _libc.sem_init(ctypes.c_void_p(waiter.semaphore.address), 0, 0)
        self.native.event_waiters = first
        return [waiter.address for waiter in made]

    def make_block_streams(self, depth: int) -> None:
        """Make the CUstreams that blocks are captured on, as many as are within each other."""
        streams = self.native.block_streams
        for place in range(depth):
            if not streams[place].value:
                with self.waiting(), self.driver.bound(self.context):
                    streams[place].value = self._make_capture_stream()

    def _make_capture_stream(self) -> int:
        """A CUstream that nothing but captures goes to. Needs the context."""
        doing = f"making a stream of cuda:{self.index} for captures"
        return self.driver.number("cuStreamCreateWithPriority", _NON_BLOCKING, self.priorities[1], doing=doing)

    def queue_memory(self) -> int:
        """Page-locked memory for a queue."""
        nbytes = sizeof(Queue)
        if self._pinned + nbytes > self._pinned_end:
            self._pinned = self.memory.allocate_pinned(_PAGE)
            self._pinned_end = self._pinned + _PAGE
        address, self._pinned = self._pinned, self._pinned + nbytes
        ctypes.memset(address, 0, nbytes)
        return address

    def fault_record(self) -> int:
        """A fault record on the device, which is to be cleared. Needs the context."""
        if not self._records:
            block = FaultRecord(self.memory.allocate(1024 * sizeof(FaultRecord)))
            self._records.extend(block[i].address for i in range(1024))
        return self._records.popleft()

    def cell(self) -> int:
        """A word of the device's memory."""
        if not self.cells:
            with self.waiting(), self.driver.bound(self.context):
                first = self.memory.allocate(1024 * WORD)
            self.cells.extend(range(first, first + 1024 * WORD, WORD))
        return self.cells.popleft()

    def clear_record(self, record: int, queue: int, stream: int) -> None:
        """Make a fault record new. Needs the context."""
        doing = f"clearing a record for a stream of cuda:{self.index}"
        # By the stream itself: a copy from here would wait for the legacy stream, and might arrive after the first launch.
        self.driver.call("cuMemsetD32Async", record, 0, sizeof(FaultRecord) // 4, stream, doing=doing)
        place, host = record + offset_of(FaultRecord, "host"), Queue(queue).status.address
        self.driver.call("cuStreamWriteValue64", stream, place, host, 0, doing=doing)

    def stream(self, priority: int, reserved: bool) -> int:
        """A CUstream: one of the slots in turn, or one of its own. Needs the context."""
        slots = self.slots[priority]
        if not reserved and len(slots) == tuning.STREAM_SLOTS:
            self.used[priority] += 1
            return slots[self.used[priority] % tuning.STREAM_SLOTS]
        stream = self.driver.number(
            "cuStreamCreateWithPriority",
            _NON_BLOCKING,
            self.priorities[priority + 1],
            doing=f"making a stream of cuda:{self.index}",
        )
        if not reserved:
            slots.append(stream)
        return stream

    def share(self, stream: int, queue: int) -> None:
        """Divide the channels' room among CUstreams, and theirs among the queues that have them, ``queue`` now among these."""
        self._queues += 1
        room = self._channels * tuning.CHANNEL_WINDOW // self._queues - 1
        self.native.surely_room = min(tuning.SURELY_ROOM, room)
        is_new = stream not in self._sharing
        self._sharing.setdefault(stream, []).append(queue)
        # The driver gives CUstreams their channels in turn.
        most = tuning.CHANNEL_WINDOW // -(-len(self._sharing) // self._channels)
        for queues in self._sharing.values() if is_new else (self._sharing[stream],):
            window = max(1, min(tuning.WINDOW, most // len(queues)))
            for each in queues:
                Queue(each).window = window


class CUDAExecutor(Executor):
    """Queues on the streams of ``device_count`` devices.

    Args:
        spin_ns: how long a device's watching thread polls without a pause.
        wait_by: how the end of awaited work is noticed, one of ``structs.BY_…``.
    """

    #: The hot methods, and some others, are the compiled functions themselves, which an instance has.
    launch = copy = execute = call_native = wait = stamp = spin = arm = forgive = withdraw = foreign_wait = COMPILED
    create_gate = gate = open_gate = wait_over = COMPILED
    has_buffers = True

    def __init__(self, driver: Driver, device_count: int, spin_ns: int, wait_by: int = structs.BY_POLL) -> None:
        self.code = EXECUTOR.load()
        self.driver, self.spin_ns, self.wait_by = driver, spin_ns, wait_by
        self.explain: Callable[[int, int, int, int], BaseException] = _unexplained
        self._lock = threading.Lock()
        self._errors: dict[tuple[int, int], BaseException] = {}
        self._pool_of: dict[int, deque[int]] = {}
        #: Of each command buffer its device, the memory of its commands, and the cells of its signals.
        self._buffers: dict[int, tuple[_Device, Any, list[int]]] = {}
        self._stopped = self._is_parents = False
        _executors.add(self)
        code = self.code
        self.launch = code.function(native.launch)
        launch_codes[self.launch] = code.address(native.launch_at_once)
        self.copy = code.function(native.copy)
        self.wait = code.function(native.wait)
        self.wait_over = code.function(native.wait_over)
        self.stamp = code.function(native.stamp)
        self.call_native = code.function(native.call_native)
        self.execute = code.function(native.execute)
        self.spin = code.function(native.spin)
        self.arm = code.function(native.arm)
        self.forgive = code.function(native.forgive)
        self.open_gate = code.function(native.open_gate)
        self._record_context = code.function(native.record_context)
        self.withdraw = code.function(native.withdraw)
        self.foreign_wait = code.function(native.foreign_wait)
        self._wait_event = code.function(native.wait_event)
        self._fill = code.function(native.fill)
        self.gate = code.function(native.gate)
        self.create_gate = code.function(native.create_gate)
        self._rearm_waker = code.function(native.rearm_waker)
        self._next_fired = code.function(native.next_fired)
        self.devices = [_Device(self, index) for index in range(device_count)]
        self.has_branches = all(device.native.set_condition for device in self.devices)
        self.has_signals = all(device.native.signal for device in self.devices)
        for device, following in zip(self.devices, self.devices[1:] + self.devices[:1], strict=True):
            device.native.next = following.native
        for device in self.devices:
            device.start()

    def stop(self) -> None:
        """Let the threads return; waits a moment, since the driver cannot be interrupted."""
        if self._stopped:
            return
        self._stopped = True
        stop = self.code.function(native.stop)
        for device in self.devices:
            stop(device.native.address)
        deadline = time.monotonic() + 0.3
        for device in self.devices:
            while device.native.left.value < 2 and time.monotonic() < deadline:
                time.sleep(0.0005)  # native threads that end tell nobody but this word

    def limit_spin(self, nanoseconds: int) -> None:
        """How long the watching threads poll without a pause from now on. Called from any thread."""
        self.spin_ns = nanoseconds
        for device in self.devices:
            device.native.spin = nanoseconds

    # Queues

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        """A queue of device ``index``; a reserved one has a CUstream of its own."""
        device = self.devices[index]
        priority = min(1, max(-1, priority))
        with self._lock:
            pool = device.pools[priority, reserved]
            queue = pool.popleft() if pool else 0
        if not queue:
            queue = self._make_queue(device, priority, reserved)
            self._pool_of[queue] = pool
        return queue, words_at(queue, COUNTER_WORDS)

    def adopt_stream(self, index: int, stream: int) -> tuple[int, memoryview[int]]:
        """A queue on another library's CUstream."""
        device = self.devices[index]
        doing = f"taking another library's stream for one of cuda:{index}"
        with device.waiting(), self.driver.bound(device.context):
            self._refuse_captured(stream, doing)
            context = ctypes.c_void_p()
            self.driver.call("cuStreamGetCtx", stream, ctypes.byref(context), doing=doing)
            if context.value != device.context:
                raise ValueError(f"{doing}: it is of another device, or of a context that is not the device's primary one")
            with self._lock:
                queue = device.adopted.popleft() if device.adopted else 0
            if queue:  # nobody else waits for us, if the stream has no room
                view = Queue(queue)
                view.stream = stream
                device.clear_record(view.record, queue, stream)
        if not queue:
            queue = self._make_queue(device, stream=stream)
            self._pool_of[queue] = device.adopted
        return queue, words_at(queue, COUNTER_WORDS)

    def handle_of(self, queue: int) -> int:
        """The CUstream of a queue; 0 while an operation is held on the host."""
        view = Queue(queue)
        return view.stream if view.issued.value == view.submitted.value else 0

    def _make_queue(self, device: _Device, priority: int = 0, reserved: bool = False, stream: int = 0) -> int:
        foreign = stream != 0
        with device.waiting(), self.driver.bound(device.context):
            with self._lock:
                address = device.queue_memory()
                stream = stream or device.stream(priority, reserved)
                record = device.fault_record()
            device.clear_record(record, address, stream)
        queue = Queue(address)
        queue.target.value = queue.forgiven.value = queue.withdrawn.value = NEVER
        queue.device, queue.stream, queue.record, queue.foreign = device.native, stream, record, foreign
        queue.parameters = Parameters(arena.allocate(structs.PARAMETERS_BYTES))
        extra = (
            _PARAMETERS_ARE_AT, queue.parameters.address, _PARAMETER_BYTES_ARE_AT, queue.parameter_bytes.address, _END
        )  # fmt: skip
        for i, word in enumerate(extra):
            queue.extra[i].value = word
        with self._lock:
            device.share(stream, address)
            queue.next = device.native.queues.value
            device.native.queues.value = queue  # last: from now on the poller reads it
        return address

    def destroy_queue(self, queue: int) -> None:
        """Recycle a queue whose operations are done."""
        self._forget_errors(queue, before=NEVER)
        if self._pool_of[queue] is self._device(queue).adopted:  # the stream may be gone; whoever has the queue next clears
            view = Queue(queue)
            view.status.value = view.dirty = 0
        self.code.function(native.recycle)(queue)
        with self._lock:
            self._pool_of[queue].append(queue)

    # Submission

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """Write a pattern ``count`` times."""
        return self._fill(queue, dst, count, pattern * (16 // len(pattern)), len(pattern))

    def wait_foreign(self, queue: int, stream: int) -> int:
        """Hold ``queue`` until another library's stream has done what it was given so far.

        0 is whichever streams there are: the whole context; with drivers before 12.5, which cannot say that, all streams that
        the legacy stream waits for.
        """
        device = self._device(queue)
        doing = f"ordering a stream of cuda:{device.index} after another library's"
        with device.waiting(), self.driver.bound(device.context):
            whole = stream == 0 and self.driver.has("cuCtxRecordEvent", _RECORDS_CONTEXTS)
            if not whole:
                stream = stream or _LEGACY
                self._refuse_captured(stream, doing)
            event = self._event(device, doing)
            try:
                if whole:
                    record = self.driver.address("cuCtxRecordEvent")
                    self.driver.check(self._record_context(device.native.address, record, event), doing)
                else:
                    self.driver.call("cuEventRecord", event, stream, doing=doing)
            except DriverError as error:
                if not structs.CAPTURED <= error.status <= _LAST_OF_CAPTURES:
                    raise
                raise CaptureError(str(error)) from error
        value: int = self._wait_event(queue, event)
        device.events.append((queue, value, event))
        return value

    def _event(self, device: _Device, doing: str) -> int:
        """An event that no wait needs any more: the driver has been told of the one that was for it. Needs the context."""
        with self._lock:
            if device.events:
                queue, value, event = device.events[0]
                view = Queue(queue)
                # Numbers begin anew when a queue is used again, which it is when all was handed on.
                if view.issued.value >= value or view.submitted.value < value:
                    device.events.popleft()
                    return event
        return self.driver.number("cuEventCreate", _UNTIMED_EVENT, doing=doing)

    def _refuse_captured(self, stream: int, doing: str) -> None:
        capturing = ctypes.c_int()
        try:
            self.driver.call("cuStreamIsCapturing", stream, ctypes.byref(capturing), doing=doing)
        except DriverError as error:
            if not structs.CAPTURED <= error.status <= _LAST_OF_CAPTURES:
                raise
            raise CaptureError(str(error)) from error  # the legacy stream, while one that waits for it is captured
        if capturing.value:  # our work would be drawn into its graph, and complete nothing
            raise CaptureError(f"{doing}: that is being captured into a graph, and does nothing yet")

    def _device(self, queue: int) -> _Device:
        native = Queue(queue).device
        return next(device for device in self.devices if device.native == native)

    # Command buffers

    def create_buffer(self, index: int, commands: Sequence[Command]) -> tuple[int, list[int]]:
        """Steps of all commands, one behind the other; the CUDA graph is made of them when they are executed.

        Raises:
            NotImplementedError: there is a command that is not for the driver alone to carry out, or a branch that is no
                block's; or, where there are no branches, one that is not to run when a kernel ahead of it has failed, or a
                kernel is not loaded yet.
        """
        device, steps, fallible = self.devices[index], Steps(commands), False
        has_blocks = any(command.kind == "branch" for command in commands)
        if has_blocks and not self.has_branches:
            raise NotImplementedError("the driver has no blocks in graphs")
        for number, (kind, entry, size, arguments, site) in enumerate(commands):
            if kind == "branch":
                steps.branch(number, site)
                continue
            if kind == "launch":
                code = structs.Entry(entry)
                is_loaded = code.functions[index].value != 0
                if not (is_loaded or has_blocks):
                    raise NotImplementedError(f"{number} {kind}: the kernel is not loaded yet")
                fallible = fallible or not is_loaded or code.fallible != 0
            elif kind == "signal":
                if not self.has_signals:
                    raise NotImplementedError(f"{number} signal: the driver does not compile the kernel for it")
            elif fallible and not has_blocks:
                raise NotImplementedError(f"{number} {kind}: behind a kernel that can fail; the host looks at that first")
            if kind == "copy":
                self._check_copy(device, number, *_PAIR.unpack(arguments))
            elif kind == "fill":
                entry = len(arguments) - WORD
                arguments = arguments[:WORD] + arguments[WORD:] * (16 // entry)
            elif kind == "native" and may_wait(arguments):
                raise NotImplementedError(f"{number} {kind}: calls that may wait for the device, in a thread of their own")
            steps.add(_OPERATIONS[kind], entry, size, arguments, site, fallible and kind not in ("launch", "signal"))
        signals = [number for number, command in enumerate(commands) if command.kind == "signal"]
        return self._lay_out(device, steps, signals, fallible)

    def _lay_out(self, device: _Device, steps: Steps, signals: list[int], fallible: bool) -> tuple[int, list[int]]:
        """A buffer of steps, and where the arguments of commands are: those of signals in cells of the device."""
        nbytes = len(steps.at(0))
        memory = ctypes.create_string_buffer(sizeof(Buffer) + nbytes + LINE)
        view = Buffer(-(-ctypes.addressof(memory) // LINE) * LINE)
        first = view.address + sizeof(Buffer)
        view.count, view.blocks, view.first, view.fallible = steps.count, steps.blocks, structs.Step(first), fallible
        ctypes.memmove(first, steps.at(first), nbytes)
        places = [(first + place) | structs.ARGUMENT for place in steps.places]
        with self._lock:
            device.make_block_streams(steps.depth)
            cells = [device.cell() for _ in signals]
        for number, cell in zip(signals, cells, strict=True):
            Cell[int](first + steps.places[number]).value = places[number] = cell
        self._buffers[view.address] = device, memory, cells
        return view.address, places

    def _check_copy(self, device: _Device, number: int, *addresses: int) -> None:
        """Raise for a copy that a graph cannot hold: of ordinary memory, or another device's."""
        with self.driver.bound(device.context):
            for address in addresses:
                kind, ordinal = ctypes.c_uint(0), ctypes.c_int(0)
                try:
                    self.driver.call("cuPointerGetAttribute", ctypes.byref(kind), _MEMORY_TYPE, address, doing="finding memory")
                    self.driver.call("cuPointerGetAttribute", ctypes.byref(ordinal), _ORDINAL, address, doing="finding memory")
                except DriverError:
                    kind.value = 0
                if kind.value == 0:
                    raise NotImplementedError(f"{number} copy: from or to ordinary memory of the host; pin it")
                if kind.value > _HOST and ordinal.value != device.index:
                    raise NotImplementedError(f"{number} copy: from or to another device")

    def destroy_buffer(self, buffer: int) -> None:
        """Let go of its memory, and of the graph."""
        device, memory, cells = self._buffers.pop(buffer)
        if not self._is_parents:
            self.code.function(native.destroy_buffer)(device.native.address, buffer)
        device.cells.extend(cells)
        del memory  # not before

    def buffer_obstacle(self, buffer: int) -> str | None:
        """What the driver said when it was to capture the commands."""
        status = Buffer(buffer).refused & 0xFFFFFFFF
        if status == 0:
            return None
        return str(self.driver.error(status, "capturing the commands of a graph"))

    # Wakers

    def create_waker(self, descriptor: int) -> int:
        """A waker for a file descriptor; never freed, since a thread may be about to write."""
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
        """The last faults of a queue, explained."""
        view, faults = Queue(queue), []
        count = view.faults.value
        for i in range(max(0, count - FAULT_SLOTS), count):
            fault = view.ring[i % FAULT_SLOTS]
            first, last, kind, a, b, c = fault.first, fault.last.value, fault.kind, fault.a, fault.b, fault.c
            error = self._errors.get((queue, first))
            if error is None and kind not in (KIND_DEPENDENCY, KIND_GATE, KIND_WITHDRAWN):
                error = self._errors[queue, first] = self._error(queue, kind, a, b, c)
            dependency = (a, b) if kind == KIND_DEPENDENCY else None
            faults.append(Fault(first, last or None, error, dependency, kind == KIND_WITHDRAWN))
        if len(faults) == FAULT_SLOTS:
            self._forget_errors(queue, before=faults[0].first)
        return faults

    def _error(self, queue: int, kind: int, a: int, b: int, c: int) -> BaseException:
        if kind == KIND_KERNEL:
            return self.explain(c, a, b, self._device(queue).index)
        index = self._device(queue).index
        if kind == KIND_NATIVE:
            return DeviceError(f"call_native on cuda:{index}: function {b} of the calls returned {a}")
        error = self.driver.error(a, f"an operation on cuda:{index}")
        if kind == KIND_DRIVER and structs.CAPTURED <= a <= _LAST_OF_CAPTURES:
            return CaptureError(f"{error}: another library is capturing the stream, or one that waits for it")
        if kind == KIND_LOST:
            return DeviceLostError(f"cuda:{index}", f"{error.status_name} ({a}): {error.text}")
        return error

    def _forget_errors(self, queue: int, before: int) -> None:
        for key in list(self._errors):  # other threads enter some, and forget some, meanwhile
            if key[0] == queue and key[1] < before:
                self._errors.pop(key, None)


def _forget_after_fork() -> None:
    for executor in list(_executors):
        executor._is_parents = True  # nobody is to call the driver here: its locks may be held, by threads that are not here


first_in_child(_forget_after_fork)


def _unexplained(entry: int, status: int, site: int, index: int) -> BaseException:
    return RuntimeError(f"entry {entry:#x} failed with status {status}, and nobody is here to explain it")
