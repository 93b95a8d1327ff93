"""A simulated accelerator: the ``sim`` backend, for tests of what no CPU shows.

Its memory is not host memory: an address carries a tag, so that code which assumes host access crashes where it does
so, and every copy and fill is checked against the living allocations. Latency and failures can be injected. Queues are
run by the portable executor, so that order, failure and waiting are the real thing.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import struct
import threading
import time

from aiodev._backends.cpu.host import HostBackend
from aiodev._backends.cpu.memory import HostMemory
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.portable.operations import Copy, Fill, NativeCode
from aiodev._backends.cpu.portable.queues import Function
from aiodev._core.backend.interface import SUBMITTED, Capabilities, DeviceProperties, KernelSpec
from aiodev._core.backend.kernel_arguments import KernelArgument
from aiodev._core.errors import BackendUnavailableError, DeviceError, DeviceLostError

__all__ = ["SimulatedBackend", "SimulatedMemory"]

#: Device i's addresses have 0x10 + i in their highest byte: positive as int64, and no address that a host can read.
_TAG_SHIFT = 56
_FIRST_TAG = 0x10
_ADDRESS = (1 << _TAG_SHIFT) - 1


class SimulatedMemory:
    """All devices' allocations, and the way from a device address to the host memory behind it."""

    def __init__(self, devices: int, total: int) -> None:
        self.total = total
        self._hosts = [HostMemory(total) for _ in range(devices)]
        self._lock = threading.Lock()
        self._starts: list[int] = []  # of living allocations, ascending
        self._sizes: dict[int, int] = {}

    def allocate(self, index: int, nbytes: int) -> int:
        """A tagged address."""
        address = (_FIRST_TAG + index) << _TAG_SHIFT | self._hosts[index].allocate(nbytes)
        with self._lock:
            bisect.insort(self._starts, address)
            self._sizes[address] = nbytes
        return address

    def deallocate(self, address: int) -> None:
        """Give back; what still uses it fails."""
        with self._lock:
            del self._sizes[address]
            del self._starts[bisect.bisect_left(self._starts, address)]
        self._hosts[(address >> _TAG_SHIFT) - _FIRST_TAG].deallocate(address & _ADDRESS)

    def free(self, index: int) -> int:
        """Bytes that device ``index`` has left."""
        return self._hosts[index].free()

    def allocated(self, index: int) -> int:
        """Bytes that are handed out."""
        return self._hosts[index].allocated

    def host_address(self, address: int, nbytes: int) -> int:
        """Where ``nbytes`` at ``address`` really are; host addresses pass through.

        Raises:
            DeviceError: they are not within one living allocation.
        """
        if address >> _TAG_SHIFT == 0:
            return address
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            start = self._starts[i] if i >= 0 else 0
            if i < 0 or address + nbytes > start + self._sizes[start]:
                raise DeviceError(f"illegal access to {nbytes:,} bytes at {address:#x}: not in a living allocation")
        return address & _ADDRESS


class _SimulatedCopy(Copy):
    __slots__ = ("memory",)

    def __init__(self, memory: SimulatedMemory, dst: int, src: int, nbytes: int) -> None:
        super().__init__(dst, src, nbytes)
        self.memory = memory

    def perform(self) -> None:
        dst, src = (self.memory.host_address(address, self.nbytes) for address in (self.dst, self.src))
        ctypes.memmove(dst, src, self.nbytes)


class _SimulatedFill(Fill):
    __slots__ = ("memory",)

    def __init__(self, memory: SimulatedMemory, dst: int, count: int, pattern: bytes) -> None:
        super().__init__(dst, count, pattern)
        self.memory = memory

    def perform(self) -> None:
        where = self.memory.host_address(self.dst, self.count * len(self.pattern))
        Fill(where, self.count, self.pattern).perform()


class _SimulatedExecutor(PortableExecutor):
    """The portable executor with checked memory and a chance to wait or fail before each operation."""

    def __init__(self, backend: SimulatedBackend, devices: int, threads: int) -> None:
        self._backend = backend
        self._device_of: dict[int, int] = {}
        self._foreign: dict[int, tuple[int, memoryview[int]]] = {}
        self._foreign_lock = threading.Lock()
        super().__init__(devices, threads, time.perf_counter_ns)  # a latency uses no core

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        queue, counters = super().create_queue(index, priority, reserved)
        self._device_of[queue] = index
        return queue, counters

    def copy_operation(self, dst: int, src: int, nbytes: int) -> Copy:
        return _SimulatedCopy(self._backend.memory, dst, src, nbytes)

    def fill_operation(self, dst: int, count: int, pattern: bytes) -> Fill:
        return _SimulatedFill(self._backend.memory, dst, count, pattern)

    def read_word(self, address: int) -> int:
        return super().read_word(self._backend.memory.host_address(address, 8))

    def before(self, queue: int) -> None:
        self._backend.before(self._device_of[queue])

    # Streams of other libraries: for each handle that is mentioned, a queue of device 0

    def foreign_queue(self, stream: int) -> tuple[int, memoryview[int]]:
        with self._foreign_lock:
            if stream not in self._foreign:
                self._foreign[stream] = self.create_queue(0, 0, False)
            return self._foreign[stream]

    def foreign_wait(self, stream: int, queue: int, value: int) -> bool:
        self.wait(self.foreign_queue(stream)[0], queue, value)
        return True

    def wait_foreign(self, queue: int, stream: int) -> int:
        if stream:
            other, counters = self.foreign_queue(stream)
            return self.wait(queue, other, counters[SUBMITTED])
        with self._foreign_lock:
            every = list(self._foreign.values())
        waits = [self.wait(queue, other, counters[SUBMITTED]) for other, counters in every]
        return waits[-1] if waits else 0


class SimulatedBackend(HostBackend):
    """A backend with ``devices`` devices whose memory the host cannot reach; see the module.

    Attributes:
        latency: seconds that each copy, fill, stamp and kernel takes longer; may be set at any time.
        memory: the devices' memory; ``memory.allocated(index)`` tells what has leaked.

    Example:
        >>> from aiodev.testing import check_backend
        >>> sim = SimulatedBackend()
        >>> sim.start()
        >>> check_backend(sim, rules=["values_count_from_one"]).kept
        ['values_count_from_one']
        >>> sim.stop()
    """

    name = "sim"

    def __init__(
        self, devices: int = 2, *, threads: int = 2, total_memory: int = 1 << 30, latency: float = 0.0,
        unavailable: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.capabilities = Capabilities(host_accessible=False, tracing=True, stand_in=True, simt=True)
        self.latency = latency
        self.memory = SimulatedMemory(devices, total_memory)
        self._devices, self._threads, self._unavailable = devices, threads, unavailable
        self._lock = threading.Lock()
        self._failures: list[tuple[int, BaseException]] = []
        self._failing_allocations = 0
        self._lost: dict[int, str] = {}

    def unavailable_reason(self) -> str | None:
        """The reason that the constructor was given, or None."""
        return self._unavailable

    def device_count(self) -> int:
        """The number that the constructor was given; 0 when unavailable."""
        return 0 if self._unavailable else self._devices

    def device_properties(self, index: int) -> DeviceProperties:
        """What the simulated device ``index`` is."""
        return DeviceProperties("Simulated", self.name, index, self.memory.total, self._threads, (1, 0))

    def start(self) -> None:
        """Start the executor; raises BackendUnavailableError when that is simulated."""
        if self._unavailable:
            raise BackendUnavailableError(self.name, self._unavailable)
        self.adopt(_SimulatedExecutor(self, self._devices, self._threads))

    # Memory

    def allocate(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of simulated device memory, aligned to 256. Raises MemoryError."""
        with self._lock:
            if self._failing_allocations:
                self._failing_allocations -= 1
                raise MemoryError("injected by SimulatedBackend.fail_allocations")
        return self.memory.allocate(index, nbytes)

    def deallocate(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``allocate`` gave."""
        self.memory.deallocate(address)

    def memory_info(self, index: int) -> tuple[int, int]:
        """Bytes free and in total."""
        return self.memory.free(index), self.memory.total

    # Other libraries

    def foreign_queue(self, stream: int) -> tuple[int, memoryview[int]]:
        """The queue that plays another library's stream, for tests to submit to, and its counters."""
        assert isinstance(self.executor, _SimulatedExecutor)
        return self.executor.foreign_queue(stream)

    def home_of(self, address: int) -> int:
        """Index of the simulated device that has the memory at an address.

        Raises:
            BufferError: no device has.
        """
        index = (address >> _TAG_SHIFT) - _FIRST_TAG
        if not 0 <= index < self._devices:
            raise BufferError(f"the memory at {address:#x} is on no device of {self.name!r}")
        return index

    # Kernels

    def adapt(self, spec: KernelSpec, code: int | Function) -> Function:
        """The CPU's code for ``spec``, behind a step that checks and translates the arrays' addresses."""
        function = NativeCode(code) if isinstance(code, int) else code
        arrays = [argument for argument in spec.parse_arguments() if argument.is_array]

        def run(block: bytes, lo: int, hi: int) -> None:
            words = list(struct.unpack(f"<{len(block) // 8}q", block))
            for array in arrays:
                place = array.offset // 8
                low, nbytes = _extent(array, words[place + 1 : place + array.words])
                words[place] = self.memory.host_address(words[place] + low, nbytes) - low
            function(struct.pack(f"<{len(words)}q", *words), lo, hi)

        return run

    # Injection

    def fail(self, error: BaseException, after: int = 0) -> None:
        """Have a copy, fill, stamp or kernel fail with ``error``: the next to run, or the one ``after`` that many."""
        with self._lock:
            self._failures.append((after, error))

    def fail_allocations(self, count: int) -> None:
        """Have the next ``count`` allocations raise MemoryError."""
        with self._lock:
            self._failing_allocations = count

    def lose(self, index: int, reason: str = "simulated") -> None:
        """Lose device ``index``: from now on whatever runs on it fails with DeviceLostError, forgiven or not."""
        with self._lock:
            self._lost[index] = reason

    def before(self, index: int) -> None:
        """Called on the worker's thread before each operation of device ``index``."""
        if self.latency:
            time.sleep(self.latency)  # it is what is simulated
        with self._lock:
            if index in self._lost:
                raise DeviceLostError(f"{self.name}:{index}", self._lost[index])
            due = next((error for after, error in self._failures if after == 0), None)
            self._failures = [(after - 1, error) for after, error in self._failures if error is not due]
        if due is not None:
            raise due


def _extent(array: KernelArgument, words: list[int]) -> tuple[int, int]:
    """Bytes before the address of its first element that an array spans (0 or less), and in all."""
    itemsize = array.itemsize
    shape, strides = words[: array.ndim], words[array.ndim :]
    if 0 in shape:
        return 0, 0
    if not strides:
        return 0, math.prod(shape) * itemsize
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    low = sum(step for step in reach if step < 0)
    return low, sum(step for step in reach if step > 0) - low + itemsize
