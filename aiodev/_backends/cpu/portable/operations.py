"""Operations in the portable executor's queues: one small object each.

An operation answers two questions, both asked with the executor's lock held. ``holds`` says whether its queue must stop
here for now; then it has left word with whatever will let go. ``run`` does the work, with the lock released around
anything long, and returns how it failed, or None.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
import time
from collections.abc import Callable, Sequence

from aiodev._backends.cpu.portable.queues import PAUSED, Failure, Function, Operation, Pause, PortableQueue, Runner
from aiodev._backends.cpu.tuning import PORTABLE_CHUNK, PORTABLE_GRAIN
from aiodev._core.backend.interface import Command
from aiodev._core.backend.trace_log import BUFFER, FATE_DONE, FATE_FAILED, GATE, KERNEL, STAMP, WAIT, TraceLog

__all__ = [
    "CommandBuffer",
    "Copy",
    "Execution",
    "Fill",
    "Gate",
    "Launch",
    "NativeCode",
    "NativeFailure",
    "Range",
    "Signal",
    "Stamp",
    "Wait",
]

_WORD = 8
_ADDRESS, _PAIR, _PATCH = struct.Struct("<q"), struct.Struct("<2q"), struct.Struct("<q8s")

class Work:
    """An operation that runs as soon as it is reached, with the lock released."""

    __slots__ = ()

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Never."""
        return False

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | None:
        """Do it."""
        begun = queue.device.now()
        worker.lock.release()
        try:
            worker.before(queue)
            self.perform()
        except BaseException as error:  # whatever it is, it belongs to the waiter, not to this thread
            return error, None
        finally:
            worker.lock.acquire()
            queue.device.charge(queue, queue.device.now() - begun)
        return None

    def traced(self) -> tuple[int, int, int]:
        """That it is work of the device's; who submitted it knows what."""
        return KERNEL, 0, 0

    def perform(self) -> None:
        """The work itself."""
        raise NotImplementedError


class Nothing(Work):
    """Take the time, or the failure, that a simulated device puts before every operation."""

    __slots__ = ()

    def perform(self) -> None:
        """Do nothing: the operation is done."""


class Copy(Work):
    """Copy bytes; the regions may overlap."""

    __slots__ = ("dst", "nbytes", "src")

    def __init__(self, dst: int, src: int, nbytes: int) -> None:
        self.dst, self.src, self.nbytes = dst, src, nbytes

    def perform(self) -> None:
        """Copy; ctypes releases the GIL meanwhile."""
        ctypes.memmove(self.dst, self.src, self.nbytes)


class Fill(Work):
    """Repeat a pattern."""

    __slots__ = ("count", "dst", "pattern")

    def __init__(self, dst: int, count: int, pattern: bytes) -> None:
        self.dst, self.count, self.pattern = dst, count, pattern

    def perform(self) -> None:
        """Write the pattern once, then double what is written: each step is one copy without the GIL."""
        if len(self.pattern) == 1:
            ctypes.memset(self.dst, self.pattern[0], self.count)
            return
        total = self.count * len(self.pattern)
        written = min(total, len(self.pattern))
        ctypes.memmove(self.dst, self.pattern, written)
        while written < total:
            step = min(written, total - written)
            ctypes.memmove(self.dst + written, self.dst, step)
            written += step


class Stamp(Work):
    """Store the time."""

    __slots__ = ("cell",)

    def __init__(self, cell: int) -> None:
        self.cell = cell

    def traced(self) -> tuple[int, int, int]:
        """That it stores the time."""
        return STAMP, 0, 0

    def perform(self) -> None:
        """Store it."""
        ctypes.c_int64.from_address(self.cell).value = time.perf_counter_ns()


class Launch:
    """Run a kernel over a range, which idle workers of the device share when it is long."""

    __slots__ = ("_work", "arguments", "entry", "site", "size")

    def __init__(self, entry: int, size: int, arguments: bytes, site: int) -> None:
        self.entry, self.size, self.arguments, self.site = entry, size, arguments, site
        self._work: Range | None = None

    def traced(self) -> tuple[int, int, int]:
        """The kernel's entry, and how many indices it runs for."""
        return KERNEL, self.entry, self.size

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Never."""
        return False

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | Pause | None:
        """Run it, with whatever help there is, until it is done or others have had less."""
        work = self._work
        if work is None:
            refusal = Nothing().run(queue, worker)
            if refusal is not None:
                return refusal
            shares = worker.thread_count if self.size > PORTABLE_GRAIN else 1
            chunk = max(PORTABLE_GRAIN, -(-self.size // (4 * shares))) if shares > 1 else self.size
            work = self._work = Range(queue, worker.function(self.entry), self.arguments, self.size, chunk, worker.lock)
            worker.invite(queue, work, min(shares, -(-self.size // max(1, chunk))) - 1)
        work.help()
        if not work.claimed:
            return PAUSED
        work.join()
        if work.error is None:
            return None
        return worker.explain(work.error, self.entry, self.site), None


class Execution:
    """Run the commands of a buffer, one after the other, behind its patches; and go on where it has given way to others."""

    __slots__ = ("_buffer", "_current", "_patches", "_position", "_trace")

    def __init__(self, buffer: CommandBuffer, patches: bytes) -> None:
        self._buffer, self._patches, self._position = buffer, patches, 0
        self._trace: tuple[TraceLog, int] | None = None  # of the command that has begun, if somebody profiles
        self._current: Operation | None = None

    def traced(self) -> tuple[int, int, int]:
        """That it executes a command buffer."""
        return BUFFER, 0, 0

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Never."""
        return False

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | Pause | None:
        """Run commands until one fails, or it is the turn of others."""
        buffer = self._buffer
        for word, value in _PATCH.iter_unpack(self._patches):
            failure = buffer.patch(word, value, queue, worker)
            if failure is not None:
                return failure
        self._patches = b""
        while self._position < len(buffer.commands):
            if self._current is None:
                target = buffer.target(self._position)
                if target is None:
                    self._current = buffer.operation(self._position)
                    self._trace = queue.begin_command(buffer.commands[self._position])
                else:
                    self._position = target
            if self._current is not None:
                outcome = self._current.run(queue, worker)
                if self._trace is not None and outcome is not PAUSED:
                    log, place = self._trace
                    log.end(place, time.perf_counter_ns(), FATE_DONE if outcome is None else FATE_FAILED)
                if outcome is not None:
                    return outcome
                self._current = None
                self._position += 1
            if queue.device.gives_way(queue):
                return PAUSED
        return None


class CommandBuffer:
    """Commands, and their arguments at addresses that patches may name.

    Args:
        commands: see :class:`aiodev.Command`.
        make: makes a command's operation, of its kind, its numbers and its arguments.
        read: reads a word of device memory.
    """

    def __init__(
        self, commands: Sequence[Command], make: Callable[[Command], Operation], read: Callable[[int], int]
    ) -> None:
        self.commands, self._make, self._read = list(commands), make, read
        self._memory = ctypes.create_string_buffer(b"".join(command.arguments for command in commands) + bytes(_WORD))
        self.address = ctypes.addressof(self._memory)
        self.places = [*itertools.accumulate((len(command.arguments) for command in commands), initial=self.address)][:-1]

    def _arguments(self, position: int) -> bytes:
        begin = self.places[position] - self.address
        return self._memory.raw[begin : begin + len(self.commands[position].arguments)]

    def operation(self, position: int) -> Operation:
        """The operation of a command as its arguments are now."""
        return self._make(self.commands[position]._replace(arguments=self._arguments(position)))

    def target(self, position: int) -> int | None:
        """Where a branch goes to; None of another command."""
        command = self.commands[position]
        if command.kind != "branch":
            return None
        address, mask = _PAIR.unpack(self._arguments(position))
        return position + 1 if mask and self._read(address) & mask else command.size

    def patch(self, address: int, word: bytes, queue: PortableQueue, worker: Runner) -> Failure | Pause | None:
        """Write a word, here or in memory of the device."""
        if 0 <= address - self.address < len(self._memory):
            ctypes.memmove(address, word, _WORD)
            return None
        fill = Command("fill", 0, 1, _ADDRESS.pack(address) + word)
        return self._make(fill).run(queue, worker)


class Signal:
    """A command that completes the next position of another queue, which has no operations of its own, up to a bound."""

    __slots__ = ("_bound", "_queue")

    def __init__(self, queue: PortableQueue, bound: int) -> None:
        self._queue, self._bound = queue, bound

    def traced(self) -> tuple[int, int, int]:
        """That it is work of the device's."""
        return KERNEL, 0, 0

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Never."""
        return False

    def run(self, queue: PortableQueue, worker: Runner) -> None:
        """Complete it."""
        if self._queue.completed < self._bound:
            self._queue.complete(None)


class Range:
    """One launch's indices, which several workers claim chunk by chunk."""

    def __init__(
        self, queue: PortableQueue, function: Function, arguments: bytes, size: int, chunk: int, lock: threading.RLock
    ) -> None:
        self.queue, self.function, self.arguments, self.size, self.chunk = queue, function, arguments, size, chunk
        self.error: BaseException | None = None
        self._lock = lock
        self._next = 0
        self._step = 1  # indices to claim next: more and more, until they take long or are a chunk
        self._members = 0
        self._left = threading.Condition(lock)

    @property
    def claimed(self) -> bool:
        """Whether all indices are run, or being run."""
        return self._next >= self.size

    def help(self) -> None:
        """Claim and run chunks until none is left, or others have had less; the lock is held on entry and on return."""
        device = self.queue.device
        self._members += 1
        while not self.claimed:
            lo, hi = self._next, min(self._next + self._step, self.size)
            self._next = hi
            begun = device.now()
            self._lock.release()
            try:
                self.function(self.arguments, lo, hi)
            except BaseException as error:  # it belongs to the waiter, not to this thread
                self.fail(error)
            finally:
                self._lock.acquire()
            spent = device.now() - begun
            self._step = max(1, (hi - lo) // 2) if spent > PORTABLE_CHUNK else min(self.chunk, 4 * (hi - lo))
            device.charge(self.queue, spent)
            if device.gives_way(self.queue):
                break
        self._members -= 1
        if self._members == 0:
            self._left.notify_all()

    def fail(self, error: BaseException) -> None:
        """Keep the first error and hand out no more chunks."""
        if self.error is None:
            self.error = error
        self._next = self.size

    def join(self) -> None:
        """Wait for the helpers; each is inside a chunk, so this ends."""
        while self._members:
            self._left.wait()


class Wait:
    """Hold the queue until another has reached a value; fail if that failed, and failures are shared."""

    __slots__ = ("is_shared", "other", "value")

    def __init__(self, other: PortableQueue, value: int, is_shared: bool) -> None:
        self.other, self.value, self.is_shared = other, value, is_shared

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Until the value is reached, even when skipped.

        What is submitted after ``forgive`` relies on the order that this wait set up, so a wait behind a failure must
        still take its time; it only no longer looks at how the other queue fared.
        """
        if self.other.completed >= self.value:
            return False
        self.other.hold(self.value, queue)
        return True

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | None:
        """Share the other's failure."""
        first = self.other.failed_at(self.value) if self.is_shared else None
        return None if first is None else (None, (self.other.number, first))

    def traced(self) -> tuple[int, int, int]:
        """The queue that is waited for, and its operation."""
        return WAIT, self.other.number, self.value


class Gate:
    """Hold the queue until the host says so; behind a failure it does not hold."""

    __slots__ = ("failed", "held", "opened", "submitted")

    def __init__(self) -> None:
        self.opened = self.failed = self.submitted = False
        self.held: PortableQueue | None = None

    def holds(self, queue: PortableQueue, skipped: bool) -> bool:
        """Until it is opened."""
        if self.opened or skipped:
            return False
        self.held = queue
        return True

    def run(self, queue: PortableQueue, worker: Runner) -> Failure | None:
        """Fail if it was opened as failed."""
        return (None, None) if self.failed else None

    def traced(self) -> tuple[int, int, int]:
        """That it is a gate."""
        return GATE, 0, 0


class NativeFailure(Exception):
    """Compiled code returned a failure; ``excinfo`` is the address of what numba says about it."""

    def __init__(self, excinfo: int) -> None:
        self.excinfo = excinfo
        super().__init__(excinfo)


class NativeCode:
    """Compiled code at an address as a ``Function``; the GIL is released while it runs."""

    # The block's address is an int64 to the code; as void* ctypes takes it from the bytes themselves.
    _PROTOTYPE = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    )

    def __init__(self, address: int) -> None:
        self._code = self._PROTOTYPE(address)

    def __call__(self, arguments: bytes, lo: int, hi: int) -> None:
        """Run ``lo`` … ``hi - 1``; raises NativeFailure."""
        result, excinfo = (ctypes.c_void_p * 2)(), ctypes.c_void_p()
        if self._code(ctypes.byref(result), ctypes.byref(excinfo), arguments, lo, hi):
            raise NativeFailure(excinfo.value or 0)
