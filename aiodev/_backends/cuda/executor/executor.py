"""The CUDA executor: streams, page-locked memory, threads and entries, which its native code works on.

To make one loads (at the very first time: compiles) the native code, which blocks.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiodev._backends.cpu import layout as cpu
from aiodev._backends.cuda import executor as native, layout
from aiodev._backends.cuda.code_cache import native_key
from aiodev._backends.cuda.driver import Driver, DriverError
from aiodev._backends.cuda.memory import DeviceMemory
from aiodev._backends.executor import native_code
from aiodev._backends.executor.arena import arena, words_at
from aiodev._core.backend.interface import COUNTER_WORDS, SUBMITTED, Fault
from aiodev._core.errors import CaptureError, DeviceError, DeviceLostError

__all__ = ["CUDAExecutor"]

STREAM_SLOTS = 32  #: CUstreams of each device and priority, which queues share
_NON_BLOCKING = 1
_UNTIMED_EVENT = 2
_BLOCKING_EVENT = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_LAST_OF_CAPTURES = 908  # CUDA_ERROR_CAPTURED_EVENT and what else captures refuse
_RECORDS_CONTEXTS = 12050  # the driver that has cuCtxRecordEvent
_LEGACY = 1
_PAGE = 1 << 20
_libc = ctypes.CDLL(None)


class _Device:
    """One device: its native structure, its CUstreams, and page-locked and device memory for queues."""

    def __init__(self, executor: CUDAExecutor, index: int) -> None:
        driver = executor.driver
        doing = f"starting cuda:{index}"
        ordinal = driver.number("cuDeviceGet", index, doing=doing)
        self.index, self.driver, self._code = index, driver, executor.code
        self.context = driver.number("cuDevicePrimaryCtxRetain", ordinal, doing=doing)
        total = driver.number("cuDeviceTotalMem", ordinal, doing=doing)
        self.memory = DeviceMemory(driver, index, ordinal, self.context, total)
        self.address = arena.allocate(layout.DEVICE_BYTES)
        self.words = words_at(self.address, layout.DEVICE_BYTES // 8)
        self._waiters = threading.Lock()
        self.memory.waiting = self.waiting
        #: Queues to be used again, by priority and whether they have a CUstream of their own.
        self.pools: dict[tuple[int, bool], deque[int]] = defaultdict(deque)
        self.adopted: deque[int] = deque()  #: queues to be used again with another library's CUstream
        #: Events that were recorded on other libraries' streams, by the queue and the number of what waits for them.
        self.events: deque[tuple[int, int, int]] = deque()
        self.slots: dict[int, list[int]] = defaultdict(list)
        self.used: dict[int, int] = defaultdict(int)
        self._records: deque[int] = deque()
        self._sharing: dict[int, list[int]] = defaultdict(list)
        self._pinned = self._pinned_end = 0
        with driver.bound(self.context):
            least, greatest = ctypes.c_int(), ctypes.c_int()
            driver.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest), doing=doing)
            # The least is every other library's default, and so ours; there is nothing below it.
            self.priorities = (greatest.value, least.value, least.value)
            staging = self.memory.allocate_pinned(layout.STAGE_SLOTS * layout.STAGE_BYTES)
            ring = self.memory.allocate_pinned(layout.RING_SLOTS * layout.RING_BYTES)
            follow = driver.number("cuEventCreate", _UNTIMED_EVENT, doing=doing)
            events = [driver.number("cuEventCreate", _BLOCKING_EVENT, doing=doing) for _ in range(layout.STAGE_SLOTS)]
        words = {
            layout.D_CONTEXT: self.context, layout.D_INDEX: index, layout.D_SPIN: executor.spin_ns,
            layout.D_WAIT_BY: executor.wait_by, layout.D_STAGE_BUFFERS: staging,
            layout.D_RING: ring, layout.D_RING_USERS: arena.allocate(16 * layout.RING_SLOTS), layout.D_FOLLOW_EVENT: follow,
            layout.D_ANNOUNCE: executor.code.address(native.announce), layout.D_STAMP: executor.code.address(native.stamp_now),
        }  # fmt: skip
        words |= {layout.D_STAGE_EVENTS + 8 * i: event for i, event in enumerate(events)}
        words |= {layout.D_FUNCTIONS + 8 * i: driver.address(name) for i, name in enumerate(layout.DRIVER)}
        for offset, word in words.items():
            self.words[offset // 8] = word
        for semaphore in (layout.D_SEMAPHORE, layout.D_STAGE_SEMAPHORE):
            _libc.sem_init(ctypes.c_void_p(self.address + semaphore), 0, 0)

    def start(self) -> None:
        """Start the threads."""
        lives = [("watch", native.watch, self.address), ("stage", native.carry, self.address)]
        if self.words[layout.D_WAIT_BY // 8] == layout.BY_EVENT:
            lives += [("attend", native.attend_for_ever, attendant) for attendant in self._make_attendants()]
        for name, life, address in lives:
            thread = threading.Thread(
                target=self._code.function(life), args=(address,), name=f"aiodev-cuda:{self.index}-{name}", daemon=True
            )
            thread.start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around calls of the driver that may wait for the device: while they do, submissions let go of the GIL."""
        with self._waiters:
            self.words[layout.D_WAITERS // 8] += 1
        try:
            yield
        finally:
            with self._waiters:
                self.words[layout.D_WAITERS // 8] -= 1

    def _make_attendants(self) -> list[int]:
        first = arena.allocate(layout.ATTENDANTS * layout.T_BYTES)
        made = [first + layout.T_BYTES * index for index in range(layout.ATTENDANTS)]
        doing = f"starting cuda:{self.index}"
        with self.driver.bound(self.context):
            for attendant in made:
                words = words_at(attendant, layout.T_BYTES // 8)
                words[layout.T_EVENT // 8] = self.driver.number("cuEventCreate", _BLOCKING_EVENT, doing=doing)
                words[layout.T_DEVICE // 8] = self.address
                _libc.sem_init(ctypes.c_void_p(attendant + layout.T_SEMAPHORE), 0, 0)
        self.words[layout.D_ATTENDANTS // 8] = first
        return made

    def queue_memory(self) -> int:
        """Page-locked memory for a queue."""
        nbytes = -(-layout.QUEUE_BYTES // 64) * 64
        if self._pinned + nbytes > self._pinned_end:
            self._pinned = self.memory.allocate_pinned(_PAGE)
            self._pinned_end = self._pinned + _PAGE
        address, self._pinned = self._pinned, self._pinned + nbytes
        ctypes.memset(address, 0, nbytes)
        return address

    def fault_record(self, queue: int, stream: int) -> int:
        """A fault record on the device for ``queue``. Needs the context."""
        if not self._records:
            block = self.memory.allocate(1024 * layout.RECORD_BYTES)
            self._records.extend(block + layout.RECORD_BYTES * i for i in range(1024))
        record = self._records.popleft()
        self.clear_record(record, queue, stream)
        return record

    def clear_record(self, record: int, queue: int, stream: int) -> None:
        """Make a fault record new. Needs the context."""
        doing = f"clearing a record for a stream of cuda:{self.index}"
        # By the stream itself: a copy from here would wait for the legacy stream, and might arrive after the first launch.
        self.driver.call("cuMemsetD32Async", record, 0, layout.RECORD_BYTES // 4, stream, doing=doing)
        host = queue + layout.Q_STATUS
        self.driver.call("cuStreamWriteValue64", stream, record + layout.X_HOST, host, 0, doing=doing)

    def stream(self, priority: int, reserved: bool) -> int:
        """A CUstream: one of the slots in turn, or one of its own. Needs the context."""
        slots = self.slots[priority]
        if not reserved and len(slots) == STREAM_SLOTS:
            self.used[priority] += 1
            return slots[self.used[priority] % STREAM_SLOTS]
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
        """Divide a CUstream's room among the queues that have it, ``queue`` from now on among them."""
        queues = self._sharing[stream]
        queues.append(queue)
        window = max(1, min(layout.WINDOW, layout.STREAM_WINDOW // len(queues)))
        for each in queues:
            words_at(each, layout.QUEUE_BYTES // 8)[layout.Q_WINDOW // 8] = window


class CUDAExecutor:
    """Queues on the streams of ``device_count`` devices.

    The hot methods (``launch``, ``copy``, ``wait``, ``stamp``, ``spin``, ``arm``, ``forgive``, ``open_gate``) and
    ``withdraw`` are the compiled functions themselves.

    Args:
        spin_ns: how long a device's watching thread polls without a pause.
        wait_by: how the end of awaited work is noticed, one of ``layout.BY_…``.
    """

    def __init__(self, driver: Driver, device_count: int, spin_ns: int, wait_by: int = layout.BY_POLL) -> None:
        self.code = native_code.load(native.__name__, native_key())
        self.driver, self.spin_ns, self.wait_by = driver, spin_ns, wait_by
        self.explain: Callable[[int, int, int, int], BaseException] = _unexplained
        self._lock = threading.Lock()
        self._errors: dict[tuple[int, int], BaseException] = {}
        self._pool_of: dict[int, deque[int]] = {}
        self._stopped = False
        code = self.code
        self.launch = code.function(native.launch)
        self.copy = code.function(native.copy)
        self.wait = code.function(native.wait)
        self.stamp = code.function(native.stamp)
        self.call_native = code.function(native.call_native)
        self.spin = code.function(native.spin)
        self.arm = code.function(native.arm)
        self.forgive = code.function(native.forgive)
        self.open_gate = code.function(native.open_gate)
        self.withdraw = code.function(native.withdraw)
        self.foreign_wait = code.function(native.foreign_wait)
        self._wait_event = code.function(native.wait_event)
        self._fill = code.function(native.fill)
        self._gate = code.function(native.gate)
        self._create_gate = code.function(native.create_gate)
        self._rearm_waker = code.function(native.rearm_waker)
        self._next_fired = code.function(native.next_fired)
        self.devices = [_Device(self, index) for index in range(device_count)]
        for device, following in zip(self.devices, self.devices[1:] + self.devices[:1], strict=True):
            device.words[layout.D_NEXT // 8] = following.address
        for device in self.devices:
            device.start()

    def stop(self) -> None:
        """Let the threads return; waits a moment, since the driver cannot be interrupted."""
        if self._stopped:
            return
        self._stopped = True
        stop = self.code.function(native.stop)
        for device in self.devices:
            stop(device.address)
        deadline = time.monotonic() + 0.3
        for device in self.devices:
            while device.words[layout.D_LEFT // 8] < 2 and time.monotonic() < deadline:
                time.sleep(0.0005)  # native threads that end tell nobody but this word

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
        words = words_at(queue, layout.QUEUE_BYTES // 8)
        return queue, words[:COUNTER_WORDS]

    def home_of(self, address: int) -> int:
        """The device that has the memory at an address."""
        ordinal = ctypes.c_int()
        try:
            with self.driver.bound(self.devices[0].context):
                self.driver.call(
                    "cuPointerGetAttribute", ctypes.byref(ordinal), _DEVICE_ORDINAL, address, doing="finding memory"
                )
        except DriverError as error:
            raise BufferError(f"the memory at {address:#x} is on no CUDA device: {error}") from None
        return ordinal.value

    def adopt_stream(self, index: int, stream: int) -> tuple[int, memoryview[int]]:
        """A queue on another library's CUstream."""
        device = self.devices[index]
        doing = f"taking another library's stream for one of cuda:{index}"
        with self._lock, self.driver.bound(device.context):
            self._refuse_captured(stream, doing)
            found = ctypes.c_void_p()
            self.driver.call("cuStreamGetCtx", stream, ctypes.byref(found), doing=doing)
            if found.value != device.context:
                raise ValueError(f"{doing}: it is of another device, or of a context that is not the device's primary one")
            queue = device.adopted.popleft() if device.adopted else 0
            if queue:
                words = words_at(queue, layout.QUEUE_BYTES // 8)
                words[layout.Q_STREAM // 8] = stream
                device.clear_record(words[layout.Q_RECORD // 8], queue, stream)
        if not queue:
            queue = self._make_queue(device, stream=stream)
            self._pool_of[queue] = device.adopted
        words = words_at(queue, layout.QUEUE_BYTES // 8)
        return queue, words[:COUNTER_WORDS]

    def handle_of(self, queue: int) -> int:
        """The CUstream of a queue; 0 while an operation is held on the host."""
        words = words_at(queue, layout.QUEUE_BYTES // 8)
        return words[layout.Q_STREAM // 8] if words[layout.Q_ISSUED // 8] == words[SUBMITTED] else 0

    def _make_queue(self, device: _Device, priority: int = 0, reserved: bool = False, stream: int = 0) -> int:
        foreign = stream != 0
        with self._lock, self.driver.bound(device.context):
            queue = device.queue_memory()
            stream = stream or device.stream(priority, reserved)
            record = device.fault_record(queue, stream)
        parameters = arena.allocate(layout.PARAMETERS_BYTES)
        words = words_at(queue, layout.QUEUE_BYTES // 8)
        fields = {
            cpu.Q_TARGET: cpu.NEVER, cpu.Q_FORGIVEN: cpu.NEVER, cpu.Q_WITHDRAWN: cpu.NEVER,
            layout.Q_DEVICE: device.address, layout.Q_STREAM: stream,
            layout.Q_RECORD: record, layout.Q_PARAMETERS: parameters, layout.Q_EXTRA: 1, layout.Q_EXTRA + 8: parameters,
            layout.Q_EXTRA + 16: 2, layout.Q_EXTRA + 24: queue + layout.Q_PARAMETER_BYTES, layout.Q_EXTRA + 32: 0,
            layout.Q_FOREIGN: int(foreign),
        }  # fmt: skip
        for offset, word in fields.items():
            words[offset // 8] = word
        with self._lock:
            device.share(stream, queue)
            words[layout.Q_NEXT // 8] = device.words[layout.D_QUEUES // 8]
            device.words[layout.D_QUEUES // 8] = queue  # last: from now on the watching thread reads it
        return queue

    def destroy_queue(self, queue: int) -> None:
        """Recycle a queue whose operations are done."""
        self._forget_errors(queue, before=cpu.NEVER)
        if self._pool_of[queue] is self._device(queue).adopted:  # the stream may be gone; whoever has the queue next clears
            words = words_at(queue, layout.QUEUE_BYTES // 8)
            words[layout.Q_STATUS // 8] = words[layout.Q_DIRTY // 8] = 0
        self.code.function(native.recycle)(queue)
        with self._lock:
            self._pool_of[queue].append(queue)

    # Submission

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """Write a pattern ``count`` times."""
        return self._fill(queue, dst, count, pattern * (16 // len(pattern)), len(pattern))

    def gate(self, queue: int) -> tuple[int, int]:
        """Append a shut gate."""
        gate = self._create_gate()
        return self._gate(queue, gate), gate

    def wait_foreign(self, queue: int, stream: int) -> int:
        """Hold ``queue`` until another library's stream has done what it was given so far.

        0 is whichever streams there are: the whole context; with drivers before 12.5, which cannot say that, all streams that
        the legacy stream waits for.
        """
        device = self._device(queue)
        doing = f"ordering a stream of cuda:{device.index} after another library's"
        with self.driver.bound(device.context):
            whole = stream == 0 and self.driver.has("cuCtxRecordEvent", _RECORDS_CONTEXTS)
            if not whole:
                stream = stream or _LEGACY
                self._refuse_captured(stream, doing)
            event = self._event(device, doing)
            try:
                if whole:
                    self.driver.call("cuCtxRecordEvent", device.context, event, doing=doing)
                else:
                    self.driver.call("cuEventRecord", event, stream, doing=doing)
            except DriverError as error:
                if not layout.CAPTURED <= error.status <= _LAST_OF_CAPTURES:
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
                words = words_at(queue, layout.QUEUE_BYTES // 8)
                # Numbers begin anew when a queue is used again, which it is when all was handed on.
                if words[layout.Q_ISSUED // 8] >= value or words[SUBMITTED] < value:
                    device.events.popleft()
                    return event
        return self.driver.number("cuEventCreate", _UNTIMED_EVENT, doing=doing)

    def _refuse_captured(self, stream: int, doing: str) -> None:
        capturing = ctypes.c_int()
        try:
            self.driver.call("cuStreamIsCapturing", stream, ctypes.byref(capturing), doing=doing)
        except DriverError as error:
            if not layout.CAPTURED <= error.status <= _LAST_OF_CAPTURES:
                raise
            raise CaptureError(str(error)) from error  # the legacy stream, while one that waits for it is captured
        if capturing.value:  # our work would be drawn into its graph, and complete nothing
            raise CaptureError(f"{doing}: that is being captured into a graph, and does nothing yet")

    def attach_thread(self, index: int) -> None:
        """Make the device's context current on this thread, for as long as nobody makes another so."""
        self.driver.attach(self.devices[index].context)

    def _device(self, queue: int) -> _Device:
        address = words_at(queue, layout.QUEUE_BYTES // 8)[layout.Q_DEVICE // 8]
        return next(device for device in self.devices if device.address == address)

    # Wakers

    def create_waker(self, descriptor: int) -> int:
        """A waker for a file descriptor; never freed, since a thread may be about to write."""
        waker = arena.allocate(cpu.WAKER_BYTES)
        words = words_at(waker, cpu.WAKER_BYTES // 8)
        words[cpu.K_DESCRIPTOR // 8] = descriptor
        words[cpu.K_ONE // 8] = 1
        return waker

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
        words = words_at(queue, layout.QUEUE_BYTES // 8)
        count = words[cpu.Q_FAULTS // 8]
        found = []
        for i in range(max(0, count - cpu.FAULT_SLOTS), count):
            start = (cpu.Q_FAULT_RING + i % cpu.FAULT_SLOTS * cpu.FAULT_BYTES) // 8
            first, last, kind, a, b, c, _ = words[start : start + 7]
            error = self._errors.get((queue, first))
            if error is None and kind not in (layout.KIND_DEPENDENCY, layout.KIND_GATE, cpu.KIND_WITHDRAWN):
                error = self._errors[queue, first] = self._error(queue, kind, a, b, c)
            dependency = (a, b) if kind == layout.KIND_DEPENDENCY else None
            found.append(Fault(first, last or None, error, dependency, kind == cpu.KIND_WITHDRAWN))
        if len(found) == cpu.FAULT_SLOTS:
            self._forget_errors(queue, before=found[0].first)
        return found

    def _error(self, queue: int, kind: int, a: int, b: int, c: int) -> BaseException:
        if kind == layout.KIND_KERNEL:
            return self.explain(c, a, b, self._device(queue).index)
        index = self._device(queue).index
        if kind == layout.KIND_NATIVE:
            return DeviceError(f"call_native on cuda:{index}: function {b} of the calls returned {a}")
        error = self.driver.error(a, f"an operation on cuda:{index}")
        if kind == layout.KIND_DRIVER and layout.CAPTURED <= a <= _LAST_OF_CAPTURES:
            return CaptureError(f"{error}: another library is capturing the stream, or one that waits for it")
        if kind == layout.KIND_LOST:
            return DeviceLostError(f"cuda:{index}", f"{error.status_name} ({a}): {error.text}")
        return error

    def _forget_errors(self, queue: int, before: int) -> None:
        for key in [key for key in self._errors if key[0] == queue and key[1] < before]:
            del self._errors[key]


def _unexplained(entry: int, status: int, site: int, index: int) -> BaseException:
    return RuntimeError(f"entry {entry:#x} failed with status {status}, and nobody is here to explain it")
