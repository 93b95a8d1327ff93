"""Excinfo: what compiled code says when it fails.

An entry that fails leaves the address of numba's excinfo, ``{char *pickle; int32 size; void *arguments; void *unwrap; int32
count}``. A static one is a constant of the library: its pickle is (class, arguments, location). A dynamic one (its
arguments were computed) is on the heap; ``unwrap`` turns ``arguments`` into a tuple *and frees them*, so it may be
called once, and the struct then says so. The struct itself is never freed.

Where something failed that is not the program's, the entry leaves an excinfo of the place where the program called it. Its
count is :data:`RELOCATED`, its ``arguments`` are the excinfo of the failure, and its pickle is (None, folders, location): what
the failure says of lines in those folders is not to be told.
"""

from __future__ import annotations

import ctypes
import pickle
import threading
from typing import Any

from aiodev._backends.compile.raised import raised, said
from aiodev._backends.cpu.compile.interpreted import described
from aiodev._core.at_fork import first_in_child
from aiodev._core.errors import KernelError
from aiodev._core.source_names import absolute

__all__ = ["RELOCATED", "decode_error"]

#: The count of an excinfo of a place.
RELOCATED = -1


class _ExcInfo(ctypes.Structure):
    _fields_ = (
        ("pickle", ctypes.c_void_p),
        ("size", ctypes.c_int32),
        ("arguments", ctypes.c_void_p),
        ("unwrap", ctypes.c_void_p),
        ("count", ctypes.c_int32),
    )


_Unwrap = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)
_lock = threading.Lock()


def _renew_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


first_in_child(_renew_after_fork)


def decode_error(excinfo: int, kernel: str, location: str | None = None) -> KernelError:
    """The error for an entry that failed with the excinfo at that address; its cause is what the body raised.

    ``location`` is used when the failure does not say where it was. What the body computed for the exception is told once:
    another error for the same failure is without it.
    """
    if not excinfo:
        return KernelError(kernel, "failed without saying why", location=location)
    info = _ExcInfo.from_address(excinfo)
    kind, arguments, where = _pickled(info)
    if info.count == RELOCATED:
        folders, place = arguments, where
        info = _ExcInfo.from_address(info.arguments)
        kind, arguments, where = _pickled(info)
        if where is None or where[1].startswith(folders):
            where = place
    if info.count > 0:
        arguments = _dynamic(info, arguments)
    cause = raised(kind, arguments or ())
    if where is not None:
        location = f"{absolute(where[1])}:{where[2]}"
    error = KernelError(kernel, said(cause), location=location)
    error.__cause__ = cause
    return error


def _pickled(info: _ExcInfo) -> Any:
    return pickle.loads(ctypes.string_at(info.pickle, info.size))


def _dynamic(info: _ExcInfo, static: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a dynamic exception: the static ones, with numba's placeholders filled in order."""
    with _lock:
        unwrap, info.unwrap = info.unwrap, None
    if unwrap is None:
        return tuple(item for item in static if not _is_placeholder(item))
    values = iter(_Unwrap(unwrap)(info.arguments))
    return described(tuple(next(values) if _is_placeholder(item) else item for item in static))


def _is_placeholder(item: Any) -> bool:
    """Whether a value of the compiler's stands for an argument that the code computed."""
    from llvmlite import ir  # which is imported: one of its classes was in the pickle

    return isinstance(item, ir.Value)
