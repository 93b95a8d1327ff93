"""The native code of calls (:mod:`aiodev._kernel.dispatch.native`), which is loaded behind the start of the first backend.

A thread loads it: from the disk cache in some milliseconds, at the very first time made in a second. Until then, and where
it cannot be made, functions of Python launch, which check everything.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from aiodev._array.array import Allocation, Array
from aiodev._core.at_fork import in_child
from aiodev._core.backend.handle import BackendHandle, starting
from aiodev._core.sources import compiled_by
from aiodev._kernel.dispatch.states import KNOWN, VIEWS
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer
from aiodev._native import native_code
from aiodev._native.objects import check_layouts, offsets_of

__all__ = ["SOURCES", "are_there", "as_method", "native_function", "native_key"]

_NATIVE = "aiodev._kernel.dispatch.native"
#: What the code comes from, beside the classes whose offsets it has.
SOURCES = (
    "_native", "_memory/native.py", "_memory/views.py", "_array/native.py", "_array/views.py", "_array/tuning.py",
    "_kernel/dispatch/native", "_kernel/dispatch/states.py", "_kernel/tuning.py",
)  # fmt: skip
_log = logging.getLogger("aiodev")


def native_function(name: str, own: object) -> Callable[..., Any] | None:
    """A function of the native code, which goes by ``own``; None where the code is not there, yet or for good."""
    functions = _code.functions
    if not functions:
        _code.ask()
        return None
    return functions[name](own)


def are_there() -> bool:
    """Whether the code is there."""
    return bool(_code.functions)


def as_method(owner: type, name: str, function: str) -> None:
    """Have a method of a class be a function of the native code when that is there, which then has its instances."""
    _methods.append((owner, name, function))


_methods: list[tuple[type, str, str]] = []
as_method(CachingAllocator, "allocate", "allocate_buffer")
as_method(DeviceBuffer, "__del__", "release_buffer")
as_method(Allocation, "__call__", "allocate_array")
as_method(Array, "__getitem__", "index_array")
as_method(Array, "reshape", "reshape_array")
as_method(Array, "transpose", "transpose_array")
as_method(Array, "_exchanged", "exchange_array")
as_method(Array, "_broadcast_to", "broadcast_array")


class _Code:
    """The native code.

    Attributes:
        functions: by name, from what it goes by to a function; none as long as the code is not there.
    """

    def __init__(self) -> None:
        self.functions: dict[str, Callable[[object], Callable[..., Any]]] = {}
        self._is_asked_for = False

    def ask(self) -> None:
        """Begin to load, in a thread, unless that was done."""
        if not self._is_asked_for:
            self._is_asked_for = True
            try:
                threading.Thread(target=self._load, name="aiodev-native-code", daemon=True).start()
            except RuntimeError:  # there are too many, or the process ends
                self._is_asked_for = False

    def _load(self) -> None:
        try:
            check_layouts()
            code = native_code.load(_NATIVE, native_key(), given=KNOWN)
            module = importlib.import_module(_NATIVE)
            functions = {name: code.method(getattr(module, name)) for name in module.__all__}
            methods = [(owner, name, code.descriptor(getattr(module, own), owner, name)) for owner, name, own in _methods]
        except Exception as error:
            _log.warning("calls take longer than they could, since their native code cannot be made: %s", error)
            return
        self.functions = functions
        for owner, name, method in methods:
            setattr(owner, name, method)


def native_key() -> str:
    """Hash of what the native code is compiled from, and by, and of where the objects that it reads have what."""
    return f"{compiled_by(*SOURCES)[:32]} {offsets_of(*VIEWS)}"


_code = _Code()


def _load_behind(handle: BackendHandle) -> None:
    """Load it when a backend has started, which is waited for, and whose own code is made by the same compiler."""
    handle.start_soon(lambda error: None if error is not None else _code.ask())


starting.append(_load_behind)


@in_child
def _forget_after_fork() -> None:
    if not _code.functions:  # the thread was the parent's
        _code.__init__()  # type: ignore[misc]
