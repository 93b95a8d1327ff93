"""The native code of calls (:mod:`aiodev._kernel.dispatch.native`), which is loaded behind the start of the first backend.

A thread loads it: from the disk cache in some milliseconds, at the very first time made in a second. Until then, and where
it cannot be made, functions of Python launch, which check everything.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any

from aiodev._array.array import Allocation, Array
from aiodev._core.backend.background import in_background, load_in_background
from aiodev._core.finalizing import program
from aiodev._kernel.dispatch.states import KNOWN, VIEWS
from aiodev._memory.allocator import CachingAllocator, DeviceBuffer
from aiodev._native.objects import check_layouts, offsets_of
from aiodev._native.package import NativePackage

__all__ = ["CALLS", "are_there", "as_method", "native_function"]

#: Its code has offsets of classes.
CALLS = NativePackage(
    "aiodev._kernel.dispatch.native",
    "_memory/native.py", "_memory/views.py", "_array/native.py", "_array/views.py", "_array/tuning.py",
    "_kernel/dispatch/native", "_kernel/dispatch/signature.py", "_kernel/dispatch/states.py", "_kernel/tuning.py",
    "_core/callsites.py",
    layout=lambda: offsets_of(*VIEWS), given=KNOWN,
)  # fmt: skip
_log = logging.getLogger("aiodev")


def native_function(name: str, own: object) -> Callable[..., Any] | None:
    """A function of the native code, which goes by ``own``; None where the code is not there, yet or for good."""
    functions = _code.functions
    if not functions:
        load_in_background()
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

    def load(self) -> None:
        """Load it, unless that was done: by the process that was forked."""
        if self.functions:
            return
        try:
            check_layouts()
            code = CALLS.load()
            module = importlib.import_module(CALLS.name)
            functions = {name: code.method(getattr(module, name)) for name in module.__all__}
            methods = [(owner, name, code.descriptor(getattr(module, own), owner, name)) for owner, name, own in _methods]
        except Exception as error:
            if not program.ends:  # which takes finalizers from classes that this looks at
                _log.warning("calls take longer than they could, since their native code cannot be made: %s", error)
            return
        if program.ends:
            return
        self.functions = functions
        for owner, name, method in methods:
            setattr(owner, name, method)


_code = _Code()


@in_background
def _load() -> None:
    _code.load()
