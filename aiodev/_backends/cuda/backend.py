"""NVIDIA GPUs: memory and streams of the driver, kernels compiled by numba-cuda."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from aiodev._backends.cuda import structs
from aiodev._backends.cuda.code_cache import EXECUTOR
from aiodev._backends.cuda.compile.image import cached_image, made_by, toolkit_of
from aiodev._backends.cuda.compile.image_loader import load_image
from aiodev._backends.cuda.driver import CHANNELS_SETTING, LIBRARY, Driver, DriverError
from aiodev._backends.cuda.properties import count_devices, find_devices, read_devices
from aiodev._backends.cuda.tuning import BLOCK_THREADS, CHANNELS, ROUNDS
from aiodev._backends.executor.arena import arena
from aiodev._core import callsites
from aiodev._core.backend.interface import Backend, Capabilities, DeviceProperties, KernelSpec
from aiodev._core.config import Settings, settings
from aiodev._core.errors import BackendUnavailableError, CompileError, KernelError
from aiodev._core.usable_cores import Spin, core_watch
from aiodev._native.fields import sizeof
from aiodev._native.preload import quiet_import

if TYPE_CHECKING:
    from aiodev._backends.cuda.executor.executor import CUDAExecutor
    from aiodev._backends.cuda.memory import DeviceMemory

__all__ = ["CUDABackend"]

_DLPACK_TYPES = 2, 13  # kDLCUDA, kDLCUDAManaged
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class Image(Protocol):
    """Compiled code of a kernel for one architecture (:class:`aiodev._backends.cuda.compile.compiler.Image`)."""

    @property
    def cubin(self) -> bytes: ...
    @property
    def symbol(self) -> str: ...
    @property
    def exceptions(self) -> Any: ...  # empty when the kernel cannot fail
    def explain(self, kernel: str, status: int) -> KernelError: ...


class Compiler(Protocol):
    """The module that makes images: :mod:`aiodev._backends.cuda.compile.compiler`, or a test's stand-in."""

    def load_image(self, spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Image: ...


_WAIT_BY = {"poll": structs.BY_POLL, "callback": structs.BY_CALLBACK, "event": structs.BY_EVENT}
#: Oldest version of numba-cuda that has the modules which the compiler of kernels imports.
MINIMUM_COMPILER = (0, 30)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable that is not set has a value inside the block; processes that are started later do not inherit it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


def compiler_reason() -> str | None:
    """Why kernels cannot be compiled here; None where they can. Imports no compiler."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: pip install 'aiodev[cuda12]', or 'aiodev[cuda13]' for a toolkit of CUDA 13"
    from importlib import metadata  # costly to import

    try:
        obstacle = metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:  # a tree of its sources, which says nothing of its version
        return None
    numbers = tuple(int(number) for number in re.findall(r"\d+", obstacle)[:2])
    if numbers < MINIMUM_COMPILER:
        wanted = ".".join(map(str, MINIMUM_COMPILER))
        return f"numba-cuda {obstacle} is too old, {wanted} is needed: pip install --upgrade 'numba-cuda>={wanted}'"
    return None


class CUDABackend(Backend):
    """Every CUDA device that is visible (``CUDA_VISIBLE_DEVICES`` is honoured).

    Args:
        configuration: settings; those of the process by default.
        library: file name of the driver's library.
        compiler: makes the images of kernels; numba-cuda by default.
    """

    name = "cuda"
    executor: CUDAExecutor

    def __init__(
        self, configuration: Settings | None = None, *, library: str = LIBRARY, compiler: Compiler | None = None
    ) -> None:
        self.settings = settings if configuration is None else configuration
        self.capabilities = Capabilities(
            host_accessible=False, simt=True, thread_blocks=True, native_streams=True, cuda_interfaces=True,
            dlpack_types=_DLPACK_TYPES,
        )  # fmt: skip
        self._library, self._compiler = library, compiler
        self._started = False
        self._devices: tuple[DeviceProperties, ...] = ()
        self._images: dict[int, tuple[str, dict[tuple[int, int], Image]]] = {}
        self._lock = threading.Lock()

    # What can be known without a start

    def unavailable_reason(self) -> str | None:
        """No compiler, no driver, too old a driver, or no device that will do."""
        if self._started:
            return None
        reason, _ = count_devices(self._library)
        if reason is None and self._compiler is None:
            return compiler_reason()
        return reason

    def device_count(self) -> int:
        """Visible devices; 0 when unavailable. Starts no driver in this process, which may therefore fork."""
        if self._started:
            return len(self._devices)
        return count_devices(self._library)[1] if self.unavailable_reason() is None else 0

    def device_properties(self, index: int) -> DeviceProperties:
        """What device ``index`` is. ``extra`` has the device's ``uuid``, ``driver_version`` and some of its limits."""
        return (self._devices or find_devices(self._library).devices)[index]

    def start(self) -> None:
        """Start the driver, retain the devices' primary contexts and start their threads.

        ``CUDA_DEVICE_MAX_CONNECTIONS`` is in the environment meanwhile, as ``tuning.CHANNELS`` says, unless it is set.
        """
        EXECUTOR.prepare()  # LLVM works while numba is imported
        with quiet_import():
            import numba  # noqa: F401  # which the first kernel would import

            from aiodev._backends.cuda.executor.executor import CUDAExecutor
        made_by()  # reads files for some milliseconds, which the first kernel should not have to wait for
        # Of CUstreams that share a channel, each waits for the others: an operation's number is written behind it. The driver
        # has eight channels unless it is told, before it makes the context, to have more.
        with _environment(CHANNELS_SETTING, str(CHANNELS)):
            self.executor = self._start_driver(CUDAExecutor)
        self._started = True
        core_watch.follow(self._follow)

    def _start_driver(self, executor_type: type[CUDAExecutor]) -> CUDAExecutor:
        driver = Driver(self._library)
        devices = read_devices(driver)
        for device in devices:
            if not device.extra["stream_memory_operations"] or not device.extra["unified_addressing"]:
                raise BackendUnavailableError("cuda", f"cuda:{device.index} has no 64-bit stream memory operations")
        self._devices = devices
        spin, wait_by = self.settings.cuda_spin_ns(core_watch.spin), _WAIT_BY[self.settings.cuda_wait]
        executor = executor_type(driver, len(self._devices), spin, wait_by)
        executor.explain = self._explain
        return executor

    def stop(self) -> None:
        """Let the executor's threads end; a second call does nothing more."""
        if self._started:
            core_watch.leave(self._follow)
            self.executor.stop()

    def _follow(self, spin: Spin) -> None:
        self.executor.limit_spin(self.settings.cuda_spin_ns(spin))

    # Memory

    def allocate(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of fresh device memory, aligned to 256. Raises MemoryError."""
        return self._memory(index).allocate(nbytes)

    def deallocate(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``allocate`` gave."""
        self._memory(index).deallocate(address, nbytes)

    def memory_info(self, index: int) -> tuple[int, int]:
        """Bytes free and in total."""
        return self._memory(index).info()

    def granularity(self, index: int) -> int:
        """Memory is mapped in multiples of so many bytes; 0 for a device without virtual memory management."""
        return self._memory(index).granularity

    def reserve_range(self, index: int, nbytes: int) -> int:
        """First of ``nbytes`` addresses, a multiple of the granularity, with no memory behind them. Raises MemoryError."""
        return self._memory(index).reserve(nbytes)

    def map_range(self, index: int, address: int, nbytes: int) -> None:
        """Put fresh memory behind a part of a range that has none. Raises MemoryError; then nothing has changed."""
        self._memory(index).map(address, nbytes)

    def unmap_range(self, index: int, address: int, nbytes: int) -> None:
        """Give the memory behind a part of a range back, however it was mapped; its addresses stay reserved."""
        self._memory(index).unmap(address, nbytes)

    def release_range(self, index: int, address: int, nbytes: int) -> None:
        """Give back what ``reserve_range`` gave, when no memory is behind it."""
        self._memory(index).release(address, nbytes)

    def allocate_pinned(self, index: int, nbytes: int) -> int:
        """Address of ``nbytes`` of page-locked host memory, aligned to 256. Raises MemoryError. Every device can reach it."""
        return self._memory(index).allocate_pinned(nbytes)

    def deallocate_pinned(self, index: int, address: int) -> None:
        """Give back what ``allocate_pinned`` gave."""
        self._memory(index).deallocate_pinned(address)

    def _memory(self, index: int) -> DeviceMemory:
        return self.executor.devices[index].memory

    # Kernels

    def compile(self, spec: KernelSpec, directory: str) -> None:
        """Compile into the disk cache at ``directory``. For every architecture that is among the visible devices."""
        for architecture in self._architectures():
            self._image(spec, directory, architecture)

    def _architectures(self) -> list[tuple[int, int]]:
        devices = self._devices or find_devices(self._library).devices
        return sorted({device.capability for device in devices})

    def _image(self, spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Image:
        if self._compiler is not None:
            return self._compiler.load_image(spec, directory, architecture)
        return load_image(spec, directory, architecture, self._driver_major())

    def _driver_major(self) -> int:
        if self._started:
            return self.executor.driver.version // 1000
        return find_devices(self._library).driver_version // 1000

    def reserve_entry(self) -> int:
        """An entry without code, before ``start`` too; it may be launched behind a gate that opens after ``load_into``."""
        return arena.allocate(sizeof(structs.Entry))

    def load_into(self, entry: int, spec: KernelSpec, directory: str) -> None:
        """Give an entry its code, from the disk cache, else compiled. The code is loaded on every device."""
        self._fill(entry, spec, {a: self._image(spec, directory, a) for a in self._architectures()})

    def load_cached(self, entry: int, spec: KernelSpec, directory: str) -> bool:
        """Give an entry its code if nothing has to be compiled for that; else False. Blocks; called off every loop."""
        if self._compiler is not None:  # which no worker has
            self.load_into(entry, spec, directory)
            return True
        images: dict[tuple[int, int], Image] = {}
        for architecture in self._architectures():
            image = cached_image(spec, directory, architecture, self._driver_major())
            if image is None:
                return False
            images[architecture] = image
        self._fill(entry, spec, images)
        return True

    def _fill(self, entry: int, spec: KernelSpec, images: dict[tuple[int, int], Image]) -> None:
        executor = self.executor
        code = structs.Entry(entry)
        code.ndim = spec.ndim
        code.fallible = any(bool(image.exceptions) for image in images.values())
        code.team = ("team", True) in spec.options
        self._images[entry] = spec.name, images
        sizes = []
        for device, properties in zip(executor.devices, self._devices, strict=True):
            with device.waiting(), executor.driver.bound(device.context):
                function, threads, blocks = self._load(images[properties.capability], properties, spec)
            sizes.append((threads, blocks))
            code.functions[device.index].value = function
        # One size for every device: each can run the least of a block, and any grid covers any shape.
        code.block, code.grid = map(min, zip(*sizes, strict=True))

    def _load(self, image: Image, properties: DeviceProperties, spec: KernelSpec) -> tuple[int, int, int]:
        """A kernel on the current device: its CUfunction, threads of a block, and the most blocks of a grid."""
        driver, options = self.executor.driver, dict(spec.options)
        doing = f"loading {spec.name} on cuda:{properties.index}"
        try:
            module = driver.number("cuModuleLoadData", ctypes.c_char_p(image.cubin), doing=doing)
        except DriverError as error:
            toolkit, known = toolkit_of(image.cubin), driver.version // 1000
            if toolkit <= known:
                raise
            reason = f"the toolkit of CUDA {toolkit} compiled it, and the NVIDIA driver is for CUDA {known}, and refuses it"
            remedy = f"a toolkit of CUDA {known} (pip install 'aiodev[cuda{known}]') or a driver for CUDA {toolkit}"
            raise CompileError(spec.name, f"{reason} ({error.status_name}): install {remedy}") from error
        function = driver.number("cuModuleGetFunction", module, ctypes.c_char_p(image.symbol.encode()), doing=doing)
        threads = options.get("block")
        if threads is None:
            best = ctypes.c_int()
            driver.number("cuOccupancyMaxPotentialBlockSize", ctypes.byref(best), function, None, 0, 0, doing=doing)
            threads = min(BLOCK_THREADS, max(32, best.value // 32 * 32))
        active = driver.number("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, 0, doing=doing)
        if active == 0:
            reason = f"a block of {threads} threads needs more registers or shared memory than a multiprocessor has"
            raise CompileError(spec.name, f"{reason}; give a smaller block=")
        return function, threads, options.get("grid") or active * properties.multi_processor_count * ROUNDS

    def _explain(self, entry: int, status: int, site: int, index: int) -> BaseException:
        name, images = self._images[entry]
        error = images[self._devices[index].capability].explain(name, status)  # each image has statuses of its own
        error.submitted_at = error.submitted_at or callsites.describe_site(site)
        error.node = callsites.node_of(site)
        return error

    # Memory and threads of other libraries

    def home_of(self, address: int) -> int:
        """Index of the device that has the memory at an address of another library's; needs a start."""
        ordinal, driver = ctypes.c_int(), self.executor.driver
        try:
            with driver.bound(self.executor.devices[0].context):
                driver.call("cuPointerGetAttribute", ctypes.byref(ordinal), _DEVICE_ORDINAL, address, doing="finding memory")
        except DriverError as error:
            raise BufferError(f"the memory at {address:#x} is on no CUDA device: {error}") from None
        return ordinal.value

    def attach_thread(self, index: int) -> None:
        """Make the device's context current on this thread, for as long as nobody makes another so."""
        self.executor.driver.attach(self.executor.devices[index].context)
