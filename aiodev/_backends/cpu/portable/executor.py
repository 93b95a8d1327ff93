"""The portable executor: queues run by plain Python threads, where native code cannot run.

It gives every guarantee of the native executor but speed: its workers need the GIL between operations. One lock guards
everything, so it is also the easiest place to read what those guarantees are (:mod:`aiodev._backends.cpu.portable.queues`).
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
import time
from collections.abc import Callable, Sequence

from aiodev._backends.cpu.host import HostExecutor
from aiodev._backends.cpu.portable.operations import (
    CommandBuffer,
    Copy,
    Execution,
    Fill,
    Gate,
    Launch,
    NativeCode,
    NativeFailure,
    Signal,
    Stamp,
    Wait,
)
from aiodev._backends.cpu.portable.queues import Device, Function, Operation, PortableQueue, Waker
from aiodev._backends.cpu.portable.worker import Worker
from aiodev._backends.cpu.tuning import PORTABLE_STOP
from aiodev._core.backend.interface import Command, Fault
from aiodev._core.backend.trace_log import TraceLog

__all__ = ["PortableExecutor"]

#: For how long a thread has had a core: what others took is not the queue's. The time where that is coarse, as on Windows.
_FINE = time.get_clock_info("thread_time").resolution < 1e-4
_THREAD_TIME = time.thread_time_ns if _FINE else time.perf_counter_ns


class PortableExecutor(HostExecutor):
    """Runs the queues of ``device_count`` devices on ``threads_per_device`` threads each, at least two.

    ``now`` tells what the calling thread has used, in ns.
    """

    kind = "python"
    has_buffers = has_branches = has_signals = True

    def __init__(
        self, device_count: int, threads_per_device: int, now: Callable[[], int] = _THREAD_TIME
    ) -> None:
        self.thread_count = max(2, threads_per_device)
        self.decode_error = _undecoded
        self.wrap_error = lambda error, entry, site: error
        # Re-entrant: the collector may find a future that a gate waits for while this thread holds it.
        self._lock = threading.RLock()
        self._devices = [Device(self._lock, self.thread_count, now) for _ in range(device_count)]
        self._queues: dict[int, PortableQueue] = {}
        self._gates: dict[int, Gate] = {}
        self._wakers: dict[int, Waker] = {}
        self._entries: dict[int, Function] = {}
        self._log: TraceLog | None = None
        self._buffers: dict[int, CommandBuffer] = {}
        self._numbers = itertools.count(1)
        self._workers = [
            Worker(f"aiodev-cpu:{index}-{number}", device, self._lock, self)
            for index, device in enumerate(self._devices)
            for number in range(device.thread_count)
        ]
        for worker in self._workers:
            worker.thread.start()

    def stop(self) -> None:
        """Let the threads end; what they are inside of is given a quarter of a second."""
        with self._lock:
            for worker in self._workers:
                worker.stopping = True
            for device in self._devices:
                device.arrived.notify_all()
        deadline = time.monotonic() + PORTABLE_STOP
        for worker in self._workers:
            if worker.thread is not threading.current_thread():
                worker.thread.join(max(0.0, deadline - time.monotonic()))

    # Kernel entries

    def set_entry(self, entry: int, code: int | Function) -> None:
        """Give an entry its code: the address of native code, or a Python function ``(arguments, lo, hi)``."""
        self._entries[entry] = NativeCode(code) if isinstance(code, int) else code

    def function(self, entry: int) -> Function:
        """The function that ``set_entry`` gave an entry."""
        return self._entries.get(entry, _not_loaded)

    def explain(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The error to report for what a kernel raised."""
        if isinstance(error, NativeFailure):
            return self.decode_error(error.excinfo, entry, site)
        return self.wrap_error(error, entry, site)

    def before(self, queue: int) -> None:
        """Called before each copy, fill, stamp and kernel; a simulated device waits or raises here."""

    # Queues

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        """Make a queue of device ``index``. It owns nothing scarce, so ``reserved`` makes no difference."""
        queue = PortableQueue(next(self._numbers), self._devices[index], priority)
        queue.log = self._log
        self._queues[queue.number] = queue
        return queue.number, queue.counters.toreadonly()

    def destroy_queue(self, queue: int) -> None:
        """Give an idle queue back; its counters are not read again."""
        del self._queues[queue]

    # Submission

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        """Run entry ``entry`` (of ``load``) over ``range(size)``; ``arguments`` is copied."""
        return self._submit(queue, Launch(entry, size, bytes(arguments), site))

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        """Copy ``nbytes`` between two addresses, host or device; page-locked or not, the caller and the GIL are not needed."""
        return self._submit(queue, self.copy_operation(dst, src, nbytes))

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """Write ``pattern`` (1, 2, 4, 8 or 16 bytes) ``count`` times from address ``dst`` on."""
        return self._submit(queue, self.fill_operation(dst, count, pattern))

    def copy_operation(self, dst: int, src: int, nbytes: int) -> Operation:
        """What a copy is; a device with memory of its own has another."""
        return Copy(dst, src, nbytes)

    def fill_operation(self, dst: int, count: int, pattern: bytes) -> Operation:
        """What a fill is."""
        return Fill(dst, count, pattern)

    def read_word(self, address: int) -> int:
        """A word of device memory, once all that was to write it has."""
        return ctypes.c_int64.from_address(address).value

    # Command buffers

    def create_buffer(self, index: int, commands: Sequence[Command]) -> tuple[int, list[int]]:
        """Commands in the order of their numbers, and the addresses of their arguments."""
        buffer = CommandBuffer(commands, self._operation_of, self.read_word)
        self._buffers[buffer.address] = buffer
        return buffer.address, buffer.places

    def destroy_buffer(self, buffer: int) -> None:
        """Let go of it."""
        del self._buffers[buffer]

    def execute(self, queue: int, buffer: int, patches: bytes) -> int:
        """Run the commands of a buffer in order, as one operation."""
        return self._submit(queue, Execution(self._buffers[buffer], patches))

    def _operation_of(self, command: Command) -> Operation:
        kind, entry, size, arguments, site = command
        if kind == "launch":
            return Launch(entry, size, arguments, site)
        if kind == "copy":
            dst, src = struct.unpack("<2q", arguments)
            return self.copy_operation(dst, src, size)
        if kind == "signal":
            queue, bound = struct.unpack("<2q", arguments)
            return Signal(self._queues[queue], bound)
        return self.fill_operation(int.from_bytes(arguments[:8], "little", signed=True), size, arguments[8:])

    def stamp(self, queue: int, cell: int) -> int:
        """Store the time, in ns of ``time.perf_counter_ns``'s clock, as int64 at address ``cell`` (host memory)."""
        return self._submit(queue, Stamp(cell))

    def wait(self, queue: int, other: int, value: int) -> int:
        """Hold ``queue`` until ``other``, a queue of the same executor, has completed ``value``; fail if that failed."""
        return self._submit(queue, Wait(self._queues[other], value, True))

    def wait_over(self, queue: int, other: int, value: int) -> int:
        """Hold ``queue`` until ``other`` has completed ``value``, however that comes out."""
        return self._submit(queue, Wait(self._queues[other], value, False))

    def create_gate(self) -> int:
        """A gate, which is shut, for one operation."""
        number = next(self._numbers)
        self._gates[number] = Gate()
        return number

    def gate(self, queue: int, gate: int) -> int:
        """Hold ``queue`` until the host opens the gate. A gate behind a failure does not hold."""
        own = self._gates[gate]
        value = self._submit(queue, own)
        with self._lock:
            own.submitted = True
            if own.opened:
                del self._gates[gate]
        return value

    def open_gate(self, gate: int, failed: bool) -> None:
        """Open a gate, once, if it holds nothing yet, too; ``failed``: its operation fails, with ``Fault.error`` None."""
        with self._lock:
            own = self._gates[gate]
            own.opened, own.failed = True, failed
            if own.submitted:
                del self._gates[gate]
            if own.held is not None:
                own.held.resume()

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        """Have operations ``first`` … ``last`` not run, unless the first has begun; ``partly``: those that have not begun."""
        with self._lock:
            return self._queues[queue].withdraw(first, last, partly)

    def trace(self, log: TraceLog | None) -> None:
        """Note what is submitted from now on in a log; None: no longer."""
        with self._lock:
            self._log = log
            for queue in list(self._queues.values()):
                queue.log = log

    def _submit(self, queue: int, operation: Operation) -> int:
        target = self._queues[queue]
        with self._lock:
            return target.submit(operation)

    # Waiting

    def spin(self, queue: int, value: int, duration: int) -> bool:
        """Wait for ``value``, asleep: a Python thread that spins would keep the GIL from the workers."""
        target = self._queues[queue]
        if target.completed >= value or duration <= 0:
            return target.completed >= value
        with self._lock:
            if target.completed >= value:
                return True
            reached = target.add_spinner(value)
        if reached.acquire(timeout=min(duration / 1e9, threading.TIMEOUT_MAX)):
            return True
        with self._lock:
            target.remove_spinner(reached)
            return target.completed >= value

    def help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        """False: a kernel in Python would keep the GIL from the workers."""
        return False

    def create_waker(self, descriptor: int) -> int:
        """A waker that writes 8 bytes (the integer 1) to a non-blocking descriptor; it lives as long as the executor."""
        waker = next(self._numbers)
        self._wakers[waker] = Waker(descriptor)
        return waker

    def collect(self, waker: int) -> list[int]:
        """The queues that reached their armed value since the last call; each is armed again only by ``arm``."""
        with self._lock:
            return self._wakers[waker].collect()

    def arm(self, queue: int, value: int, waker: int) -> bool:
        """Have ``waker`` fire once when ``queue`` reaches ``value``; False (and it will not fire) when it has already."""
        target, firing = self._queues[queue], self._wakers[waker]
        with self._lock:
            if target.completed >= value:
                return False
            target.armed[firing] = min(value, target.armed.get(firing, value))
            return True

    # Failure

    def faults(self, queue: int) -> list[Fault]:
        """The queue's failures, oldest first (at least the last 32). ``FAULTS`` is non-zero exactly when there are any."""
        with self._lock:
            return list(self._queues[queue].faults)

    def forgive(self, queue: int) -> None:
        """End an open fault: what is submitted from now on runs again."""
        with self._lock:
            self._queues[queue].forgive()


def _not_loaded(arguments: bytes, lo: int, hi: int) -> None:
    raise RuntimeError("launched before its code was loaded")


def _undecoded(excinfo: int, entry: int, site: int) -> BaseException:
    return RuntimeError(f"entry {entry} failed, and nobody is here to decode its exception at {excinfo:#x}")
