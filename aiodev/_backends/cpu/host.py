"""A backend whose queues are run by threads of this process: queues, submission, waiting, failure and kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from aiodev._backends.cpu.compile.raised import said
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.structs import Entry
from aiodev._backends.executor.arena import arena
from aiodev._backends.executor.fields import sizeof
from aiodev._core import callsites
from aiodev._core.backend.interface import Backend, Fault, KernelSpec
from aiodev._core.errors import AiodevError, KernelError

__all__ = ["Executor", "HostBackend"]


class Executor(Protocol):
    """What runs queues: the ABC's queue, submission, waiting and failure methods, with the same meaning.

    ``NativeExecutor`` and ``PortableExecutor`` are the two.
    """

    kind: str  #: ``native`` or ``python``
    thread_count: int  #: of each device
    decode_error: Callable[[int, int, int], BaseException]  #: (excinfo address, entry, site) of failed code

    def stop(self) -> None: ...
    def set_entry(self, entry: int, code: Any) -> None: ...  # an address; the portable one takes functions too
    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]: ...
    def destroy_queue(self, queue: int) -> None: ...
    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int: ...
    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int: ...
    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int: ...
    def wait(self, queue: int, other: int, value: int) -> int: ...
    def gate(self, queue: int) -> tuple[int, int]: ...
    def open_gate(self, gate: int, failed: bool) -> None: ...
    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int: ...
    def stamp(self, queue: int, cell: int) -> int: ...
    def spin(self, queue: int, value: int, duration: int) -> bool: ...
    def help(self, queue: int, value: int, duration: int, descriptor: int) -> bool: ...
    def create_waker(self, descriptor: int) -> int: ...
    def collect(self, waker: int) -> list[int]: ...
    def arm(self, queue: int, value: int, waker: int) -> bool: ...
    def faults(self, queue: int) -> list[Fault]: ...
    def forgive(self, queue: int) -> None: ...


#: Bound on the instance by ``adopt``, so that a call goes to the executor without a step between.
_BOUND = (
    "set_entry",
    "create_queue",
    "destroy_queue",
    "launch",
    "copy",
    "fill",
    "wait",
    "gate",
    "open_gate",
    "stamp",
    "withdraw",
    "spin",
    "help",
    "create_waker",
    "collect",
    "arm",
    "faults",
    "forgive",
)


class HostBackend(Backend):
    """A backend that hands its queues to an :class:`Executor`, which ``start`` makes and passes to ``adopt``."""

    def __init__(self) -> None:
        self._executor: Executor | None = None
        self._names: dict[int, str] = {}

    @property
    def executor(self) -> Executor:
        """The executor; RuntimeError before ``start``."""
        if self._executor is None:
            raise RuntimeError(f"backend {self.name!r} has not been started; call start() first")
        return self._executor

    def adopt(self, executor: Executor) -> None:
        """Use ``executor`` from now on. The class's methods below remain for who calls before ``start``."""
        self._executor = executor
        executor.decode_error = self._decode_error
        if isinstance(executor, PortableExecutor):
            executor.wrap_error = self._wrap_error
        for method in _BOUND:
            setattr(self, method, getattr(executor, method))

    def stop(self) -> None:
        """Let the executor's threads end; a second call does nothing more."""
        if self._executor is not None:
            self._executor.stop()

    # Kernels

    def compile(self, spec: KernelSpec, directory: str) -> None:
        """See the ABC."""
        from aiodev._backends.cpu.compile import compiler  # needs numba

        compiler.compile_kernel(spec, directory)

    def load_into(self, entry: int, spec: KernelSpec, directory: str) -> None:
        """``load`` for an entry that was reserved, and perhaps launched behind a gate, before."""
        from aiodev._backends.cpu.compile import compiler  # needs numba

        self._fill(entry, spec, compiler.load_kernel(spec, directory))

    def load_cached(self, entry: int, spec: KernelSpec, directory: str) -> bool:
        """See the ABC."""
        from aiodev._backends.cpu.compile import compiler  # needs numba

        code = compiler.cached_kernel(spec, directory)
        if code is None:
            return False
        self._fill(entry, spec, code)
        return True

    def _fill(self, entry: int, spec: KernelSpec, code: int | Callable[[bytes, int, int], None]) -> None:
        self._names[entry] = spec.name
        Entry(entry).uniform = spec.uniform
        self.set_entry(entry, self.adapt(spec, code))

    def adapt(self, spec: KernelSpec, code: int | Callable[[bytes, int, int], None]) -> Any:
        """The code that an entry for ``spec`` gets; a backend with memory of its own goes between here."""
        return code

    def _decode_error(self, excinfo: int, entry: int, site: int) -> BaseException:
        """The error for compiled code that failed."""
        from aiodev._backends.cpu.compile import compiler  # needs numba, which is there when compiled code is

        return _located(compiler.decode_error(excinfo, self._names.get(entry, "kernel")), site)

    def _wrap_error(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The error for Python code that raised ``error``: a KernelError with that cause, unless it is one of ours."""
        if isinstance(error, AiodevError):
            return _located(error, site)
        wrapped = KernelError(self._names.get(entry, "kernel"), said(error))
        wrapped.__cause__ = error
        return _located(wrapped, site)

    def reserve_entry(self) -> int:
        """An entry without code, before ``start`` too; to be launched behind a gate that opens after ``set_entry``."""
        return arena.allocate(sizeof(Entry))

    def set_entry(self, entry: int, code: int | Callable[[bytes, int, int], object]) -> None:
        """Give an entry its code: an address, or on the portable executor a function ``(arguments, lo, hi)``."""
        self.executor.set_entry(entry, code)

    # What the executor does

    def create_queue(self, index: int, priority: int, reserved: bool) -> tuple[int, memoryview[int]]:
        """See the ABC."""
        return self.executor.create_queue(index, priority, reserved)

    def destroy_queue(self, queue: int) -> None:
        """See the ABC."""
        self.executor.destroy_queue(queue)

    def launch(self, queue: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        """See the ABC."""
        return self.executor.launch(queue, entry, size, arguments, site)

    def copy(self, queue: int, dst: int, src: int, nbytes: int) -> int:
        """See the ABC."""
        return self.executor.copy(queue, dst, src, nbytes)

    def fill(self, queue: int, dst: int, count: int, pattern: bytes) -> int:
        """See the ABC."""
        return self.executor.fill(queue, dst, count, pattern)

    def wait(self, queue: int, other: int, value: int) -> int:
        """See the ABC."""
        return self.executor.wait(queue, other, value)

    def gate(self, queue: int) -> tuple[int, int]:
        """See the ABC."""
        return self.executor.gate(queue)

    def open_gate(self, gate: int, failed: bool) -> None:
        """See the ABC."""
        self.executor.open_gate(gate, failed)

    def stamp(self, queue: int, cell: int) -> int:
        """See the ABC."""
        return self.executor.stamp(queue, cell)

    def withdraw(self, queue: int, first: int, last: int, partly: bool) -> int:
        """See the ABC."""
        return self.executor.withdraw(queue, first, last, partly)

    def spin(self, queue: int, value: int, duration: int) -> bool:
        """See the ABC."""
        return self.executor.spin(queue, value, duration)

    def create_waker(self, descriptor: int) -> int:
        """See the ABC."""
        return self.executor.create_waker(descriptor)

    def collect(self, waker: int) -> list[int]:
        """See the ABC."""
        return self.executor.collect(waker)

    def arm(self, queue: int, value: int, waker: int) -> bool:
        """See the ABC."""
        return self.executor.arm(queue, value, waker)

    def faults(self, queue: int) -> list[Fault]:
        """See the ABC."""
        return self.executor.faults(queue)

    def forgive(self, queue: int) -> None:
        """See the ABC."""
        self.executor.forgive(queue)


def _located(error: BaseException, site: int) -> BaseException:
    if isinstance(error, KernelError) and error.submitted_at is None:
        error.submitted_at = callsites.describe(site)
    return error
