"""The CPU as a device: memory of this process, queues run by an executor, kernels compiled by numba."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from aiodev._backends.compile.disk_cache import has_kernels
from aiodev._backends.cpu.host import HostBackend, HostExecutor
from aiodev._backends.cpu.memory import GRANULARITY, HostMemory
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.properties import cpu_properties, total_memory, worker_count
from aiodev._backends.cpu.tuning import RESERVE
from aiodev._core.backend.interface import Capabilities, DeviceProperties
from aiodev._core.config import Settings, settings
from aiodev._core.errors import BackendUnavailableError
from aiodev._core.usable_cores import Spin, core_watch
from aiodev._native.preload import load_llvm

__all__ = ["CPUBackend"]

logger = logging.getLogger("aiodev")

#: Where the native executor's code and its assumptions (futex-backed semaphores, eventfd, 64-bit words) hold.
_NATIVE_MACHINES = frozenset({"x86_64", "AMD64", "aarch64", "arm64"})


class CPUBackend(HostBackend):
    """The machine's cores as one device, or as ``AIODEV_CPU_DEVICES`` devices that share them out.

    Attributes:
        executor_kind: ``native`` or ``python``: which executor runs the queues, or would, before ``start``.
        executor_reason: why that one.
        workers_reason: why it has as many workers as it has, once it has started.
    """

    name = "cpu"

    def __init__(self, configuration: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings if configuration is None else configuration
        self.capabilities = Capabilities(host_accessible=True, tracing=True, restarts_after_fork=True, host_code=True)
        self.executor_kind, self.executor_reason = choose_executor(self.settings)
        self.workers_reason = ""
        self._memory = [HostMemory(total_memory() // self.device_count()) for _ in range(self.device_count())]

    def unavailable_reason(self) -> str | None:
        """None: there always is a CPU."""
        return None

    def device_count(self) -> int:
        """``AIODEV_CPU_DEVICES``, else 1."""
        return max(1, self.settings.cpu_devices)

    def device_properties(self, index: int) -> DeviceProperties:
        """What device ``index`` is. ``extra`` has its ``cores``, and the process's ``cpu_quota`` in cores, or None."""
        return cpu_properties(index, self.device_count())

    def start(self) -> None:
        """Start the chosen executor; for the native one this loads LLVM and, the first time ever, compiles.

        Where the native one fails to start, the portable one is taken, with a warning.

        Raises:
            BackendUnavailableError: the native one was asked for, and fails to start.
        """
        asked, usable = self.settings.cpu_threads, core_watch.cores
        self.adopt(self._make_executor(self._worker_count()))
        self.workers_reason = f"AIODEV_CPU_THREADS={asked}; {usable}" if asked else str(usable)
        core_watch.follow(self._follow)

    def stop(self) -> None:
        """See the ABC."""
        if self._started:
            core_watch.leave(self._follow)
        super().stop()

    def _follow(self, spin: Spin) -> None:
        self.executor.limit_spin(self.settings.worker_spin_ns(spin))
        self.executor.limit_workers(self._worker_count())
        self.executor.coalesce_wake_ups(core_watch.cores.count == 1)
        self.executor.share_core(spin is Spin.NONE)

    def _worker_count(self) -> int:
        return worker_count(core_watch.cores, self.device_count(), self.settings.cpu_threads)

    def _make_executor(self, threads: int) -> HostExecutor:
        if self.executor_kind == "native":
            try:
                return self._make_native(threads)
            except Exception as error:  # of numba, of LLVM, of the system: whatever it is, Python runs
                reason = f"{type(error).__name__}: {error}"
                if self.settings.executor == "native":
                    raise BackendUnavailableError(self.name, f"AIODEV_EXECUTOR=native, but {reason}") from error
                self.executor_kind, self.executor_reason = "python", f"native code cannot be had: {reason}"
                logger.warning(
                    "the native executor cannot be had (%s): Python threads run the CPU's work, slower and with the GIL. "
                    "AIODEV_EXECUTOR=python chooses them without this warning",
                    reason,
                )
        return PortableExecutor(self.device_count(), threads)

    def _make_native(self, threads: int) -> HostExecutor:
        load_llvm()
        from aiodev._backends.cpu.compile import kernel_code, prebuilt
        from aiodev._backends.cpu.executor.executor import NativeExecutor

        prebuilt.look_for_folder()
        kernel_code.target()  # reads the compiler's sources, which the first kernel would
        reserve = 0 if self.settings.cpu_threads else RESERVE
        return NativeExecutor(self.device_count(), threads, self.settings.worker_spin_ns(core_watch.spin), reserve)

    # Kernels that are compiled ahead

    def has_compiled(self, directory: str) -> bool:
        """Whether anything was ever compiled into the disk cache at ``directory``. Blocks; called before ``start``."""
        if self.executor_kind != "native" or has_kernels(directory):
            return True
        from aiodev._backends.cpu.compile import prebuilt  # which imports LLVM

        return prebuilt.are_there()

    def baselines(self) -> dict[str, Mapping[str, str]]:
        """Baselines that kernels can be compiled for ahead; for each, the environment variables that tell workers so."""
        from aiodev._backends.cpu.compile import prebuilt

        return {name: prebuilt.target_variables(name) for name in prebuilt.baselines_of_machine()}

    def write_ahead(self, folder: Path, baseline: str, kernels: Mapping[str, Path]) -> int:
        """Keep kernels compiled for a baseline: by key, the folder that ``compile`` was given. Returns how many."""
        from aiodev._backends.cpu.compile import prebuilt

        return prebuilt.write_pack(folder, baseline, kernels)

    # Memory

    def allocate(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of fresh device memory, aligned to 256. Raises MemoryError."""
        return self._memory[index].allocate(nbytes)

    def deallocate(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``allocate`` gave."""
        self._memory[index].deallocate(address)

    def memory_info(self, index: int) -> tuple[int, int]:
        """Bytes free and in total."""
        return self._memory[index].free(), self._memory[index].total

    def granularity(self, index: int) -> int:
        """A huge page, where the system has what ranges need."""
        return GRANULARITY

    def reserve_range(self, index: int, nbytes: int) -> int:
        """First of ``nbytes`` addresses, a multiple of the granularity, with no memory behind them. Raises MemoryError."""
        return self._memory[index].reserve(nbytes)

    def map_range(self, index: int, address: int, nbytes: int) -> None:
        """Put fresh memory behind a part of a range that has none. Raises MemoryError; then nothing has changed."""
        self._memory[index].map(address, nbytes)

    def unmap_range(self, index: int, address: int, nbytes: int) -> None:
        """Give the memory behind a part of a range back, however it was mapped; its addresses stay reserved."""
        self._memory[index].unmap(address, nbytes)

    def release_range(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``reserve_range`` gave, when no memory is behind it."""
        self._memory[index].release(address, nbytes)

    def allocate_pinned(self, index: int, nbytes: int) -> int:
        """Ordinary memory: the device's memory is the host's."""
        return self._memory[index].allocate(nbytes)

    def deallocate_pinned(self, index: int, address: int) -> None:
        """Give back what ``allocate_pinned`` gave."""
        self._memory[index].deallocate(address)


def choose_executor(configuration: Settings) -> tuple[str, str]:
    """(``native`` or ``python``, why), from settings and platform alone; imports nothing.

    Raises:
        BackendUnavailableError: the native one was asked for and cannot run here.
    """
    if configuration.executor == "python":
        return "python", "AIODEV_EXECUTOR=python"
    obstacle = _native_obstacle()
    if obstacle is None:
        asked = "AIODEV_EXECUTOR=native" if configuration.executor == "native" else "native code runs here"
        return "native", asked
    if configuration.executor == "native":
        raise BackendUnavailableError("cpu", f"AIODEV_EXECUTOR=native, but {obstacle}")
    return "python", obstacle


def _native_obstacle() -> str | None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "NUMBA_DISABLE_JIT is set"
    if sys.platform != "linux":
        return f"native code needs Linux, this is {sys.platform}"
    if platform.machine() not in _NATIVE_MACHINES:
        return f"native code needs x86-64 or aarch64, this is {platform.machine()}"
    return None
