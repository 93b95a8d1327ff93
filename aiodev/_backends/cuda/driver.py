"""The CUDA driver's C interface: functions found by name, statuses made into exceptions, contexts bound.

Nothing but ``libcuda.so.1`` is needed for this, so it can be loaded, and asked, without any other library of CUDA's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiodev._backends.cuda.structs import RELAXED
from aiodev._core.errors import BackendUnavailableError, DeviceError

__all__ = [
    "CHANNELS_SETTING", "DEFAULT_CHANNELS", "LIBRARY", "MINIMUM_VERSION", "MOST_CHANNELS", "Driver", "DriverError", "needs",
]  # fmt: skip

LIBRARY = "libcuda.so.1"
#: 12.0: stream memory operations without conditions, and what the toolkit's cubins need.
MINIMUM_VERSION = 12000
OUT_OF_MEMORY = 2
#: Where the driver, when it makes a context, finds in the environment how many of the device's channels that has.
CHANNELS_SETTING = "CUDA_DEVICE_MAX_CONNECTIONS"
#: How many it has where the variable is not set, and at most.
DEFAULT_CHANNELS, MOST_CHANNELS = 8, 32


class DriverError(DeviceError):
    """The CUDA driver refused a call.

    Attributes:
        status: the driver's number for it.
        status_name: its name, such as ``CUDA_ERROR_INVALID_VALUE``.
        doing: what was being done.
    """

    def __init__(self, status: int, status_name: str, text: str, doing: str) -> None:
        self.status = status
        self.status_name = status_name
        self.text = text
        self.doing = doing
        super().__init__(status, status_name, text, doing)

    def __str__(self) -> str:
        return f"{self.doing}: the CUDA driver says {self.status_name} ({self.status}): {self.text}"


class Driver:
    """The driver, loaded and initialized.

    Args:
        library: file name of the driver's library.

    Raises:
        BackendUnavailableError: there is none, it is too old, or it does not start.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise BackendUnavailableError("cuda", f"no NVIDIA driver: {error}") from None
        self._addresses: dict[str, int] = {}
        lookup = getattr(self._library, "cuGetProcAddress_v2", None)
        if lookup is None:
            raise BackendUnavailableError("cuda", f"the NVIDIA driver is too old: {needs(0)}")
        lookup.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
        self._lookup = lookup
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version), doing="asking for the driver's version")
        self.version = version.value
        if self.version < MINIMUM_VERSION:
            raise BackendUnavailableError("cuda", f"the NVIDIA driver is too old: {needs(self.version)}")
        try:
            self.call("cuInit", 0, doing="starting the driver")
        except DriverError as error:
            raise BackendUnavailableError("cuda", str(error)) from error

    def address(self, name: str) -> int:
        """Address of a function of the driver.

        Raises:
            BackendUnavailableError: the driver has no such function.
        """
        known = self._addresses.get(name)
        if known is None:
            pointer = ctypes.c_void_p()
            self._lookup(name.encode(), ctypes.byref(pointer), MINIMUM_VERSION, 0, None)
            if not pointer.value:
                raise BackendUnavailableError("cuda", f"the NVIDIA driver is too old: it has no {name}")
            known = self._addresses[name] = pointer.value
        return known

    def has(self, name: str, version: int) -> bool:
        """Whether the driver has a function that came with a later version than the one that is needed."""
        if name not in self._addresses and self.version >= version:
            pointer = ctypes.c_void_p()
            self._lookup(name.encode(), ctypes.byref(pointer), version, 0, None)
            if pointer.value:
                self._addresses[name] = pointer.value
        return name in self._addresses

    def call(self, name: str, *arguments: Any, doing: str) -> None:
        """Call a function of the driver; an int is passed as 64 bits.

        Raises:
            MemoryError: it had no memory.
            DriverError: it refused for another reason.
        """
        words = [ctypes.c_int64(a) if isinstance(a, int) else a for a in arguments]
        self.check(ctypes.CFUNCTYPE(ctypes.c_int)(self.address(name))(*words), doing)

    def check(self, status: int, doing: str) -> None:
        """Raise what :meth:`call` does if a status says that the driver has refused."""
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"{doing}: the CUDA driver has no memory left")
        if status != 0:
            raise self.error(status, doing)

    def error(self, status: int, doing: str) -> DriverError:
        """The exception for a status."""
        return DriverError(status, self._text("cuGetErrorName", status), self._text("cuGetErrorString", status), doing)

    def _text(self, name: str, status: int) -> str:
        text = ctypes.c_char_p()
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(self.address(name))(status, ctypes.byref(text))
        return text.value.decode(errors="replace") if text.value else f"status {status}"

    def number(self, name: str, *arguments: Any, doing: str) -> int:
        """Call a function whose first argument is where it writes a number."""
        number = ctypes.c_int64()
        self.call(name, ctypes.byref(number), *arguments, doing=doing)
        return number.value

    def attach(self, context: int) -> None:
        """Make a context current on this thread."""
        self.call("cuCtxSetCurrent", context, doing="making a context current")

    @contextmanager
    def bound(self, context: int) -> Iterator[None]:
        """Make a context current on this thread inside the block.

        What is called in it does not invalidate the graphs that other threads are capturing, as allocating or loading would.
        """
        before = self.number("cuCtxGetCurrent", doing="asking for the current context")
        self.attach(context)
        mode = ctypes.c_int(RELAXED)
        self._exchange_capture_mode(mode)
        try:
            yield
        finally:
            self._exchange_capture_mode(mode)
            self.attach(before)

    def _exchange_capture_mode(self, mode: ctypes.c_int) -> None:
        # Whatever the status, which may be an error of work done before: what is called next says it.
        ctypes.CFUNCTYPE(ctypes.c_int)(self.address("cuThreadExchangeStreamCaptureMode"))(ctypes.byref(mode))


def needs(version: int) -> str:
    """The message about a driver of this version: what it lacks."""
    obstacle = f"it is for CUDA {version // 1000}.{version % 1000 // 10}" if version else "it cannot look functions up"
    return f"{obstacle}, {MINIMUM_VERSION // 1000}.{MINIMUM_VERSION % 1000 // 10} is needed"
