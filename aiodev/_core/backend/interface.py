"""The two interfaces between aiodev and a kind of device.

A :class:`Backend` has devices, their memory and compiled code; it starts an :class:`Executor`, which runs queues. Both
exchange integers and plain data only: a *queue*, an *entry*, a *waker*, a *gate* and an address are ``int``; arguments are
``bytes``. Whatever is a Python object (streams, events, arrays, kernels) is made above them, once for all backends. The
conformance test is :func:`aiodev.testing.check_backend`.

Every submission returns its *value* on the queue's timeline: the first is 1, the next 2, and so on. An operation has
completed when the queue's ``COMPLETED`` counter has reached its value; operations of one queue complete in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

from aiodev._core.backend.kernel_arguments import KernelArgument, parse_arguments
from aiodev._core.backend.trace_log import TraceLog

__all__ = [
    "COMPLETED",
    "COUNTER_WORDS",
    "DLPACK_HOST",
    "FAULTS",
    "SUBMITTED",
    "Backend",
    "Capabilities",
    "Command",
    "DeviceProperties",
    "Executor",
    "Fault",
    "KernelSpec",
    "ScheduleStep",
]

#: Words of a queue's counters: int64, written by the backend, readable by anyone at any time. COMPLETED and FAULTS share
#: a cache line, which workers write; SUBMITTED is on the next, which submitters write.
COMPLETED, FAULTS, SUBMITTED, COUNTER_WORDS = 0, 1, 8, 16
#: No descriptor, see `Executor.help`.
BLOCKED: Final = -2


#: DLPack's types of memory that is the host's: its own, and page-locked for CUDA and for ROCm.
DLPACK_HOST = frozenset({1, 3, 11})


class Capabilities(NamedTuple):
    """What a backend can do, as data: what is asked instead of its name, by :func:`aiodev.capabilities`.

    Example:
        >>> aiodev.get_backend("cpu").capabilities.host_accessible
        True
    """

    host_accessible: bool  #: device memory is host memory: NumPy may view it in place
    timing: bool = True  #: ``stamp`` works
    tracing: bool = False  #: ``trace`` works; else operations are profiled between two stamps
    interprocess: bool = False  #: events can be shared between processes
    restarts_after_fork: bool = False  #: a forked child may start the backend afresh
    stand_in: bool = False  #: stands in for another device, for tests: the default only where there is nothing else
    priorities: tuple[int, int] = (-1, 1)  #: highest and lowest, inclusive; more urgent is lower
    simt: bool = False  #: indices are hardware threads, thousands at a time; else cores loop over ranges of them
    thread_blocks: bool = False  #: blocks of threads share memory and have barriers: ``block=``, ``grid=`` and ``team=`` work
    host_code: bool = False  #: kernels run in this process, and :func:`aiodev.lang.call_native` reaches its C functions
    native_streams: bool = False  #: streams are a driver's: ``call_native``, ``adopt_stream`` and ``handle_of`` work
    cuda_interfaces: bool = False  #: memory and streams are CUDA's: there are ``__cuda_array_interface__``, ``__cuda_stream__``
    dlpack_types: tuple[int, ...] = ()  #: DLPack's types of memory that is this backend's, its own first; none for the host's


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What a device is; the same fields on every backend, the rest in ``extra``.

    Example:
        >>> properties = aiodev.get_device_properties("cpu:0")
        >>> properties.index
        0
    """

    name: str
    type: str
    index: int
    total_memory: int  #: bytes
    multi_processor_count: int  #: cores or multiprocessors
    capability: tuple[int, int]  #: CUDA's compute capability; for a CPU (SIMD width in bytes, 0)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)  # compared, but a mapping has no hash


class Fault(NamedTuple):
    """A failure on a queue: operations ``first`` … ``last`` failed or did not run.

    ``last`` is None while the failure is not yet forgiven: then everything submitted so far and later fails too. It is
    cleared by ``forgive``, which sets ``last`` to the value submitted last.

    Example:
        >>> fault = aiodev.Fault(first=3, last=None, error=ValueError("bad row"))
        >>> fault.last is None  # open: what is submitted now fails, too
        True
    """

    first: int
    last: int | None
    error: BaseException | None  #: what operation ``first`` raised; None for a gate opened as failed, or a dependency
    dependency: tuple[int, int] | None = None  #: (queue, value of its first failed operation) when a wait failed
    withdrawn: bool = False  #: the operations were withdrawn; such a fault is forgiven from the beginning


class Command(NamedTuple):
    """An operation of a command buffer; see :meth:`Executor.create_buffer`.

    Example:
        >>> aiodev.Command("copy", 0, 16, (4096).to_bytes(8, "little") + (8192).to_bytes(8, "little")).size
        16
    """

    #: ``launch``, ``copy`` or ``fill``, as the executor's methods; ``native``, as ``call_native``; ``branch``: go to another
    #: command, if a word is zero; ``signal``: complete the next position of another queue, which is given no operations.
    kind: str
    entry: int  #: of a launch
    size: int  #: indices, bytes to copy, how often to write the pattern, or the number of the command to go to
    #: Of a launch; the addresses of a copy, destination first; that of a fill, and the pattern; of a branch the address of the
    #: word, and which of its bits count (none: go there in any case); of a signal the queue, and the last position that it has.
    arguments: bytes
    site: int = 0  #: where it was captured


class ScheduleStep(NamedTuple):
    """A step of a schedule: the execution of a buffer, or a wait; see :meth:`Executor.create_schedule`.

    Example:
        >>> aiodev.ScheduleStep(lane=1, buffer=0, other=0).awaited  # the second queue waits for what all begins behind
        -1
    """

    lane: int  #: which of the queues it is submitted to
    buffer: int  #: that is executed; 0 for a wait
    other: int = 0  #: which queue is waited for
    awaited: int = -1  #: the number of the step that is waited for, one of that queue; -1 for what all begins behind


class KernelSpec(NamedTuple):
    """A kernel body and the types to compile it for; what a worker process needs, and no more.

    ``arguments`` holds one descriptor an argument: ``"f4"`` for a scalar (a dtype's code in ``aiodev.dtypes.DTYPES``),
    ``"A2f4C"`` for an array (dimensions, code, layout ``C`` contiguous or ``A`` any), with a trailing ``r`` if it is read-only.
    ``options`` are those that are on, as in :func:`aiodev.kernel`: ``("fastmath", True)``, or the flags' sorted names in place
    of True; and those of :meth:`aiodev.Kernel.implementation`, such as ``("block", 128)``. What a backend does not know it
    refuses.

    Example:
        >>> def body(i, x):
        ...     x[i] += 1
        >>> aiodev.KernelSpec("increment", body, ndim=1, arguments=("A1f4C",)).arguments
        ('A1f4C',)
    """

    name: str
    function: Callable[..., None]
    ndim: int
    arguments: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()
    key: str = ""  #: content hash of source, constants, globals, closure, types and options; a backend adds its versions
    #: All indices take about as long and none waits: a thread that waits for the kernel may run some. None where that is not
    #: known, nor said to be otherwise: a thread that does nothing else meanwhile may.
    uniform: bool | None = False
    #: The places of the arguments whose values, or lengths, alone say how long an index takes, where none waits: a thread that
    #: waits may run some that are as long as others were; None where that is not known.
    paced_by: tuple[int, ...] | None = None

    def parse_arguments(self) -> list[KernelArgument]:
        """What each argument is, and its place in the argument block of :meth:`Executor.launch`.

        Raises:
            ValueError: a descriptor that is none.
        """
        return parse_arguments(self.ndim, self.arguments)


class Executor(ABC):
    """Runs the queues of a started backend: submission, waiting, wake-ups and failure.

    :meth:`Backend.start` makes it, as :attr:`Backend.executor`. No method blocks for longer than a system call, but ``spin``
    and ``help``, for as long as they are told to; ``spin`` for twice that where it does a part of the work meanwhile. All may
    be called from any thread. Submissions hold no reference to anything: the memory that they use is the caller's to keep
    until they have completed.

    Callers look a method up once and keep it. A method may therefore be an attribute of the instance, such as a compiled
    function, which nothing stands in front of.

    Example:
        >>> from aiodev.testing import SimulatedBackend
        >>> backend = SimulatedBackend()
        >>> backend.start()
        >>> executor = backend.executor
        >>> queue, counters = executor.create_queue(0, priority=0, reserved=False)
        >>> executor.fill(queue, 0, 0, bytes(1))  # an operation that does nothing, the first of its queue
        1
        >>> executor.spin(queue, 1, 10**9), counters[0]
        (True, 1)
        >>> backend.stop()
    """

    #: Words of a queue's counters, int64, which the executor writes and anyone may read at any time: how many operations have
    #: completed, how many faults there were, and how many were submitted; and how many words there are.
    COMPLETED, FAULTS, SUBMITTED, COUNTER_WORDS = COMPLETED, FAULTS, SUBMITTED, COUNTER_WORDS
    #: What ``help`` is given in place of a descriptor by a thread that does nothing else.
    BLOCKED = BLOCKED

    def __reduce__(self) -> NoReturn:
        """Queues are not copied and not pickled."""
        raise TypeError("executors are not pickled or copied: their queues belong to their process")

    def __repr__(self) -> str:
        return f"<aiodev executor {type(self).__name__}>"

    # Queues

    @abstractmethod
    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        """Make a queue of device ``index``; returns it and its counters, all zero (``COUNTER_WORDS`` of int64)."""

    #: Whether ``destroy_queue`` takes no lock and waits for nothing. Then a finalizer calls it, in any thread and in the midst
    #: of any other method; else a thread of its own does, which has to be woken up.
    destroys_anywhere: ClassVar[bool] = False

    @abstractmethod
    def destroy_queue(self, queue: int) -> None:
        """Give an idle queue back; its counters are not read again. See ``destroys_anywhere``."""

    # Submission: each appends an operation and returns its value. None blocks; the depth is bounded by memory alone.

    @abstractmethod
    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        """Run entry ``entry`` (of ``load``) over ``range(size)``; ``arguments`` is copied.

        The arguments are words of 8 bytes, little-endian: the lengths of the shape; then the scalars in order, one word each,
        of ``complex128`` two; then the arrays in order: of each its address and shape and, unless it is contiguous, its strides
        in bytes. :meth:`KernelSpec.parse_arguments` says where each is.
        ``site`` is an integer that names the place of submission; it comes back in the error.
        """

    @abstractmethod
    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        """Copy ``nbytes`` between two addresses, host or device; page-locked or not, the caller and the GIL are not needed."""

    @abstractmethod
    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """Write ``pattern`` (1, 2, 4, 8 or 16 bytes) ``count`` times from address ``dst`` on."""

    @abstractmethod
    def wait(self, queue: int, other: int, value: int) -> int:
        """Hold ``queue`` until ``other``, a queue of the same executor, has completed ``value``; fail if that failed.

        A wait holds behind a failure, too: what is submitted after ``forgive`` relies on the order that it sets up.
        """

    @abstractmethod
    def wait_over(self, queue: int, other: int, value: int) -> int:
        """As ``wait``, but for how ``value`` comes out, which is nothing to ``queue``."""

    @abstractmethod
    def create_gate(self) -> int:
        """A gate, which is shut, for one operation."""

    @abstractmethod
    def gate(self, queue: int, gate: int) -> int:
        """Hold ``queue`` until the host opens the gate. A gate behind a failure does not hold."""

    @abstractmethod
    def open_gate(self, gate: int, failed: bool) -> None:
        """Open a gate, once, if it holds nothing yet, too; ``failed``: its operation fails, with ``Fault.error`` None."""

    @abstractmethod
    def stamp(self, queue: int, cell: int) -> int:
        """Store the time, in ns of ``time.perf_counter_ns``'s clock, as int64 at address ``cell`` (host memory)."""

    @abstractmethod
    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        """Have operations ``first`` … ``last`` not run, unless the first has begun; ``partly``: those that have not begun.

        Returns the first that will not run, with all from there to ``last``; or 0, and nothing has changed. Waits for no
        operation. What the queue has not been given yet has not begun, nor has what a gate or a wait holds. An operation that
        is next, behind one that is about to end, may count as begun; one behind an operation that runs does not.

        What is withdrawn completes in its turn, with a ``Fault`` that says so, unless it is behind another. A wait among it
        holds all the same; a gate is still to be opened, and may hold until it is.
        """

    def trace(self, log: TraceLog | None) -> None:
        """Note what is submitted from now on, to any queue, in a log; None: no longer. Where ``capabilities.tracing`` says so.

        Who submits claims a place; who runs the operation notes its times there. What has a place goes on being noted there,
        whatever is traced since: the log lives until then.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot trace operations")

    # Command buffers: operations that are submitted together, as one, and more than once. An executor may do without: it is
    # given the operations one by one then.

    #: Whether there are any; and whether their commands can branch, and are ``signal``, which a driver may decide.
    has_buffers: ClassVar[bool] = False
    has_branches: bool = False
    has_signals: bool = False

    def create_buffer(self, index: int, commands: Sequence[Command]) -> tuple[int, list[int]]:
        """Make a command buffer for device ``index``; gives it, and where each command's arguments are, as ``patches`` has it.

        The entries of its launches need no code before it is executed, where the executor does not say so.

        Raises:
            NotImplementedError: these commands are to be submitted one by one, for the reason that it says.
        """
        raise NotImplementedError(f"{type(self).__name__} has no command buffers")

    def buffer_obstacle(self, buffer: int) -> str | None:
        """Why the commands of a buffer are submitted one by one each time that it is executed; None where they are not."""
        return None

    def destroy_buffer(self, buffer: int) -> None:
        """Give a command buffer back that nobody executes any more."""
        raise NotImplementedError(f"{type(self).__name__} has no command buffers")

    def execute(self, queue: int, buffer: int, patches: bytes) -> int:
        """Run the commands of a buffer in order, as one operation: the first that fails is its failure, and the last.

        ``patches`` are pairs of words, little-endian: an address of the device, or within the arguments of a command, and the
        word that is written there before. No buffer is executed by two queues at once.
        """
        raise NotImplementedError(f"{type(self).__name__} has no command buffers")

    # Schedules: executions of buffers on several queues, and the waits between them, that one call submits, again and again.

    #: Whether there are any; else the steps are submitted one by one.
    has_schedules: ClassVar[bool] = False

    def create_schedule(self, steps: Sequence[ScheduleStep]) -> int:
        """Prepare steps, none of which comes before what it waits for."""
        raise NotImplementedError(f"{type(self).__name__} has no schedules")

    def destroy_schedule(self, schedule: int) -> None:
        """Give a schedule back that nobody submits any more; what was submitted may still run."""
        raise NotImplementedError(f"{type(self).__name__} has no schedules")

    def execute_schedule(self, schedule: int, queues: bytes, start: int) -> None:
        """Submit all steps, to queues given as int64, little-endian; steps that wait for none wait for ``start`` of the first.

        No two threads submit the same schedule at once.
        """
        raise NotImplementedError(f"{type(self).__name__} has no schedules")

    # Streams of other libraries, by the driver's handle (for CUDA as DLPack has it: 1 is the legacy default stream). Only
    # where the host cannot reach the memory are these needed.

    def foreign_wait(self, stream: int, queue: int, value: int) -> bool:
        """Have another library's stream wait for ``value`` of ``queue``; False if it cannot: then the host waits."""
        return False

    def wait_foreign(self, queue: int, stream: int) -> int:
        """Hold ``queue`` until another library's stream has done what it was given so far; 0: until all of them have.

        Raises:
            CaptureError: it is being captured into a graph.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot wait for another library's stream")

    def adopt_stream(self, index: int, stream: int) -> tuple[int, memoryview[int]]:
        """A queue whose operations go to another library's stream, which outlives them; as ``create_queue``.

        Raises:
            ValueError: the stream is of another device.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot submit to another library's stream")

    def handle_of(self, queue: int) -> int:
        """The driver's handle of a queue's stream; 0 while an operation of the queue is held back from it."""
        raise NotImplementedError(f"{type(self).__name__} has no streams of its own")

    # Native libraries that submit to the device's own streams

    def call_native(self, queue: int, block: bytes) -> int:
        """Call native functions, which submit to the queue's stream, when their turn comes.

        ``block`` is a row of little-endian int64: the address of a lock of 8 bytes, or 0; how many calls there are; and of each
        call how many arguments, then (kind, word) of the function and of each argument. A word of kind 0 is passed as it is,
        kind 1 is the stream's handle, and of kind 2 what is at the address when the call is made. The first call that returns
        anything but 0 fails the operation.
        """
        raise NotImplementedError(f"{type(self).__name__} has no streams of its own")

    # Waiting

    @abstractmethod
    def spin(self, queue: int, value: int, duration: int) -> bool:
        """Wait for ``value`` without the GIL for at most ``duration`` ns; whether it was reached.

        Less than a millisecond is an attempt to save a wake-up, and may end early where other processes want the cores. Unless
        ``duration`` is 0 the thread may help meanwhile, which may take longer.
        """

    def is_crowded(self) -> bool:
        """Whether ``spin`` ends early, since other processes want the cores: one in vain has cost next to nothing."""
        return False

    def help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        """Do a part of what ``value`` waits for in this thread, without the GIL, for about ``duration`` ns at most.

        That ends within some 0.2 ms of when ``descriptor`` becomes readable. It is -1 where it is not seen what else the
        thread may have to do, and ``BLOCKED`` where that is nothing before ``value`` is reached. Returns whether there was
        anything to do, here and now. An executor whose device does all of it, the default, returns False.
        """
        return False

    @abstractmethod
    def create_waker(self, descriptor: int) -> int:
        """A waker that writes 8 bytes (the integer 1) to a non-blocking descriptor; it lives as long as the executor.

        Wake-ups coalesce: between two calls of ``collect`` it writes at most once.
        """

    @abstractmethod
    def collect(self, waker: int) -> list[int]:
        """The queues that reached their armed value since the last call; each is armed again only by ``arm``.

        To be called after the descriptor became readable and was read.
        """

    @abstractmethod
    def arm(self, queue: int, value: int, waker: int) -> bool:
        """Have ``waker`` fire once when ``queue`` reaches ``value``; False (and it will not fire) when it has already.

        One waker has at most one armed value on one queue: arming it again for a lower one replaces that, for a higher
        one keeps the lower. A spurious wake-up is allowed, a lost one is not.
        """

    # Failure

    @abstractmethod
    def faults(self, queue: int) -> list[Fault]:
        """The queue's failures, oldest first (at least the last 32). ``FAULTS`` is non-zero exactly when there are any."""

    @abstractmethod
    def forgive(self, queue: int) -> None:
        """End an open fault: what is submitted from now on runs again."""


class _SetByStart:
    """An attribute that instances have from ``start`` on."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, backend: Backend | None, owner: type) -> _SetByStart:
        if backend is None:
            return self
        raise RuntimeError(f"backend {backend.name!r} has no {self._name} before it was started; call start() first")


def _set_by_start() -> Any:
    return _SetByStart()


class Backend(ABC):
    """One kind of device: which devices there are, their memory, and code for them. What runs there is its executor's.

    ``unavailable_reason`` and ``device_count`` are cheap, start nothing and do not break a later fork. Everything else
    needs ``start``, which sets ``executor``. No method but ``start``, ``stop``, ``compile`` and ``load`` blocks for longer than
    a system call. All may be called from any thread.

    Example:
        >>> from aiodev.testing import SimulatedBackend
        >>> backend = SimulatedBackend()
        >>> backend.start()
        >>> address = backend.allocate(0, 1024)
        >>> address % 256
        0
        >>> backend.deallocate(0, address, 1024)
        >>> backend.stop()
    """

    name: ClassVar[str]
    capabilities: Capabilities
    #: What runs the queues of all devices; ``start`` sets it. RuntimeError before.
    executor: Executor = _set_by_start()

    def __reduce__(self) -> NoReturn:
        """A device's queues and memory are not copied and not pickled."""
        raise TypeError("backends are not pickled or copied: they belong to their process; aiodev.get_backend finds one there")

    def __repr__(self) -> str:
        return f"<aiodev backend {self.name!r}>"

    @abstractmethod
    def unavailable_reason(self) -> str | None:
        """Why this backend cannot start here, or None when it can."""

    @abstractmethod
    def device_count(self) -> int:
        """How many devices there are; 0 when unavailable. Never raises."""

    @abstractmethod
    def device_properties(self, index: int) -> DeviceProperties:
        """What device ``index`` is. Needs no start where the answer is cheap; else it starts what it needs, and blocks."""

    @abstractmethod
    def start(self) -> None:
        """Import, load and start what is needed, and set ``executor``. Blocks; called once, off every loop."""

    @abstractmethod
    def stop(self) -> None:
        """Let the backend's threads end; at most a fraction of a second. Work in flight may be lost."""

    # Memory

    @abstractmethod
    def allocate(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of fresh device memory, aligned to 256. Raises MemoryError."""

    @abstractmethod
    def deallocate(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``allocate`` gave."""

    @abstractmethod
    def memory_info(self, index: int) -> tuple[int, int]:
        """Bytes free and in total."""

    # Memory that grows in place: the allocator then works in few ranges of addresses instead of many allocations.

    def granularity(self, index: int) -> int:
        """Memory is mapped into a range in multiples of so many bytes; 0: this backend has ``allocate`` alone."""
        return 0

    def reserve_range(self, index: int, nbytes: int) -> int:
        """First of ``nbytes`` addresses, a multiple of the granularity, with no memory behind them. Raises MemoryError."""
        raise NotImplementedError(f"backend {self.name!r} cannot map memory into a range")

    def map_range(self, index: int, address: int, nbytes: int) -> None:
        """Put fresh memory behind a part of a range that has none. Raises MemoryError; then nothing has changed."""
        raise NotImplementedError(f"backend {self.name!r} cannot map memory into a range")

    def unmap_range(self, index: int, address: int, nbytes: int) -> None:
        """Give the memory behind a part of a range back, however it was mapped; its addresses stay reserved."""
        raise NotImplementedError(f"backend {self.name!r} cannot map memory into a range")

    def release_range(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``reserve_range`` gave, when no memory is behind it."""
        raise NotImplementedError(f"backend {self.name!r} cannot map memory into a range")

    # Page-locked host memory, which the device's copies reach without the host's help.

    def allocate_pinned(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of page-locked host memory, aligned to 256. Raises MemoryError."""
        raise NotImplementedError(f"backend {self.name!r} has no page-locked memory")

    def deallocate_pinned(self, index: int, address: int) -> None:
        """Give back what ``allocate_pinned`` gave."""
        raise NotImplementedError(f"backend {self.name!r} has no page-locked memory")

    def home_of(self, address: int) -> int:
        """Index of the device that has the memory at an address of another library's; needs a start.

        Raises:
            BufferError: no device has.
        """
        raise NotImplementedError(f"backend {self.name!r} knows only its own memory")

    def attach_thread(self, index: int) -> None:  # noqa: B027  # most devices have nothing of the kind
        """Make device ``index`` the one that native libraries find current on this thread. Needs a start."""

    # Kernels

    @abstractmethod
    def compile(self, spec: KernelSpec, directory: str) -> None:
        """Compile into the disk cache at ``directory``. Called in a worker process; raises CompileError."""

    @abstractmethod
    def reserve_entry(self) -> int:
        """An entry without code, before ``start`` too; it may be launched behind a gate that opens after ``load_into``."""

    @abstractmethod
    def load_into(self, entry: int, spec: KernelSpec, directory: str) -> None:
        """Give an entry its code, from the disk cache, else compiled. Blocks; called off every loop."""

    def load_cached(self, entry: int, spec: KernelSpec, directory: str) -> bool:
        """Give an entry its code if nothing has to be compiled for that; else False. Blocks; called off every loop.

        What this refuses is sent to a worker process before ``load_into`` is called.
        """
        return False

    def has_compiled(self, directory: str) -> bool:
        """Whether anything was ever compiled into the disk cache at ``directory``. Blocks; called before ``start``.

        Where nothing was, a worker process for ``compile`` is started along with the backend.
        """
        return True

    def is_provisional(self, spec: KernelSpec) -> bool:
        """Whether the code that ``load_cached`` found for a kernel is good, but ``compile`` would make better code.

        This process uses what was found. Better code is made in a worker process, for processes that come later.
        """
        return False

    def load(self, spec: KernelSpec, directory: str) -> int:
        """A fresh entry with the code for ``spec``. Blocks."""
        entry = self.reserve_entry()
        self.load_into(entry, spec, directory)
        return entry
