"""A backend whose queues are run by threads of this process: its executor, its kernels, and what their failures mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from aiodev._backends.compile.raised import said
from aiodev._backends.cpu.compile.excinfo import decode_error
from aiodev._backends.cpu.structs import Entry
from aiodev._backends.executor.arena import arena
from aiodev._core import callsites
from aiodev._core.backend.interface import Backend, Executor, KernelSpec
from aiodev._core.backend.kernel_arguments import WORD
from aiodev._core.errors import AiodevError, KernelError
from aiodev._native.fields import sizeof

__all__ = ["HostBackend", "HostExecutor"]


#: Beyond the bits of the argument words that there is room for.
_MOST_PACING = 1 << 63


class HostExecutor(Executor):
    """Runs queues on threads of this process; ``NativeExecutor`` and ``PortableExecutor`` are the two.

    Attributes:
        kind: ``native`` or ``python``.
        thread_count: threads of each device, without a reserve.
        decode_error: makes an error of (excinfo address, entry, site) when compiled code failed.
        wrap_error: makes one of (exception, entry, site) when Python code raised.
    """

    kind: ClassVar[str]
    thread_count: int
    decode_error: Callable[[int, int, int], BaseException]
    wrap_error: Callable[[BaseException, int, int], BaseException]

    @abstractmethod
    def stop(self) -> None:
        """Let the threads end; waits a moment for what they are inside of."""

    def limit_spin(self, nanoseconds: int) -> None:
        """How long idle workers may spin from now on, at most; nothing where none ever does. Called from any thread."""

    def limit_workers(self, count: int) -> None:
        """How many workers of each device may run from now on, at least one; nothing where they cost nothing."""

    def hold_reserve(self, held: bool) -> None:
        """Whether workers beyond ``thread_count`` sleep, whatever others do; nothing where there are none. For tests."""

    def coalesce_wake_ups(self, coalesced: bool) -> None:
        """Whether loops may be woken once for several operations, a little later; nothing where that saves nothing."""

    def share_core(self, shared: bool) -> None:
        """Whether all threads of this process have one core together from now on; nothing where that changes nothing."""

    @abstractmethod
    def set_entry(self, entry: int, code: Any) -> None:
        """Give an entry its code: an address, or on the portable executor a function ``(arguments, lo, hi)``."""


class HostBackend(Backend):
    """A backend whose queues a :class:`HostExecutor` runs, which ``start`` makes and passes to ``adopt``."""

    executor: HostExecutor

    def __init__(self) -> None:
        self._started = False
        self._names: dict[int, str] = {}

    def adopt(self, executor: HostExecutor) -> None:
        """Use ``executor`` from now on."""
        executor.decode_error, executor.wrap_error = self._decode_error, self._wrap_error
        self.executor, self._started = executor, True

    def stop(self) -> None:
        """Let the executor's threads end; a second call does nothing more."""
        if self._started:
            self.executor.stop()

    # Kernels

    def compile(self, spec: KernelSpec, directory: str) -> None:
        """Compile into the disk cache at ``directory``. Called in a worker process; raises CompileError."""
        from aiodev._backends.cpu.compile import kernel_code  # needs LLVM

        kernel_code.compile_kernel(spec, directory)

    def load_into(self, entry: int, spec: KernelSpec, directory: str) -> None:
        """``load`` for an entry that was reserved, and perhaps launched behind a gate, before."""
        from aiodev._backends.cpu.compile import kernel_code  # needs LLVM

        self._fill(entry, spec, kernel_code.load_kernel(spec, directory))

    def load_cached(self, entry: int, spec: KernelSpec, directory: str) -> bool:
        """Give an entry its code if nothing has to be compiled for that; else False. Blocks; called off every loop."""
        from aiodev._backends.cpu.compile import kernel_code  # needs LLVM

        code = kernel_code.cached_kernel(spec, directory)
        if code is None:
            return False
        self._fill(entry, spec, code)
        return True

    def is_provisional(self, spec: KernelSpec) -> bool:
        """Whether the code that ``load_cached`` found for a kernel is good, but ``compile`` would make better code."""
        from aiodev._backends.cpu.compile import kernel_code  # needs LLVM

        return kernel_code.is_provisional(spec)

    def _fill(self, entry: int, spec: KernelSpec, code: int | Callable[[bytes, int, int], None]) -> None:
        self._names[entry] = spec.name
        made = Entry(entry)
        made.uniform, made.irregular = spec.uniform is True, spec.uniform is None
        made.pacing = 0 if spec.paced_by is None else _pacing(spec, spec.paced_by)
        self.executor.set_entry(entry, self.adapt(spec, code))

    def adapt(self, spec: KernelSpec, code: int | Callable[[bytes, int, int], None]) -> Any:
        """The code that an entry for ``spec`` gets; a backend with memory of its own goes between here."""
        return code

    def _decode_error(self, excinfo: int, entry: int, site: int) -> BaseException:
        """The error for compiled code that failed."""
        return _located(decode_error(excinfo, self._names.get(entry, "kernel")), site)

    def _wrap_error(self, error: BaseException, entry: int, site: int) -> BaseException:
        """The error for Python code that raised ``error``: a KernelError with that cause, unless it is one of ours."""
        if isinstance(error, AiodevError):
            return _located(error, site)
        wrapped = KernelError(self._names.get(entry, "kernel"), said(error))
        wrapped.__cause__ = error
        return _located(wrapped, site)

    def reserve_entry(self) -> int:
        """An entry without code, before ``start`` too; to be launched behind a gate that opens after ``load_into``."""
        return arena.allocate(sizeof(Entry))


def _pacing(spec: KernelSpec, places: tuple[int, ...]) -> int:
    """Bits of those words of the argument block that hold some arguments' numbers, or arrays' lengths; 0 for too many words."""
    arguments, bits = spec.parse_arguments(), 0
    for argument in map(arguments.__getitem__, places):
        first = argument.offset // WORD + argument.is_array
        bits |= (1 << first + (argument.ndim if argument.is_array else argument.words)) - (1 << first)
    return bits if bits < _MOST_PACING else 0


def _located(error: BaseException, site: int) -> BaseException:
    if isinstance(error, KernelError) and error.submitted_at is None:
        error.submitted_at = callsites.describe_site(site)
        error.node = callsites.node_of(site)
    return error
