"""Calling a compiled entry by hand, as a worker does."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiodev._backends.cpu.compile import kernel_code
from aiodev._backends.cpu.compile.excinfo import decode_error
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import KernelError
from aiodev.dtypes import DTYPES

#: For what only compiled code does.
needs_compiler = pytest.mark.skipif(kernel_code.is_interpreted(), reason="NUMBA_DISABLE_JIT is set: nothing is compiled")

PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
)
_SCALARS = {"b1": "?7x", "i1": "b7x", "u1": "B7x", "i2": "h6x", "u2": "H6x", "i4": "i4x", "u4": "I4x"}
_SCALARS |= {"i8": "q", "u8": "Q", "f2": "e6x", "f4": "f4x", "f8": "d"}


def descriptor(value: Any) -> str:
    """The descriptor of a NumPy array, or of a NumPy scalar."""
    code = next(row.code for row in DTYPES.values() if row.name == value.dtype.name)
    if not isinstance(value, np.ndarray):
        return code
    readonly = "" if value.flags.writeable else "r"
    return f"A{value.ndim}{code}{'C' if value.flags.c_contiguous else 'A'}{readonly}"


def block(shape: tuple[int, ...], values: tuple[Any, ...]) -> bytes:
    """The argument block of a launch."""
    parts = [struct.pack(f"<{len(shape)}q", *shape)]
    for value in values:
        if isinstance(value, np.complexfloating):
            parts.append(struct.pack("<ff" if value.itemsize == 8 else "<dd", value.real, value.imag))
        elif not isinstance(value, np.ndarray):
            parts.append(struct.pack("<" + _SCALARS[descriptor(value)], value))
    for value in values:
        if isinstance(value, np.ndarray):
            words = (value.ctypes.data, *value.shape, *(() if value.flags.c_contiguous else value.strides))
            parts.append(struct.pack(f"<{len(words)}q", *words))
    return b"".join(parts)


def spec_of(
    function: Callable[..., None], ndim: int, values: tuple[Any, ...], key: str = "", **options: Any
) -> KernelSpec:
    """The spec for NumPy arguments."""
    descriptors = tuple(descriptor(value) for value in values)
    return KernelSpec(function.__name__, function, ndim, descriptors, tuple(sorted(options.items())), key)


class Entry:
    """A kernel for the types of ``values``: compiled, or interpreted where numba may not compile."""

    def __init__(
        self, function: Callable[..., None], shape: int | tuple[int, ...], *values: Any, **options: Any
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else shape
        self.spec = spec_of(function, len(self.shape), values, **options)
        code = kernel_code.load_kernel(self.spec, "")
        self.code = native(self.spec.name, code) if isinstance(code, int) else code

    def __call__(self, *values: Any, lo: int = 0, hi: int | None = None, shape: tuple[int, ...] | None = None) -> None:
        """Run ``lo`` … ``hi - 1``, all by default, of this shape or of another one; raises what a waiter would get."""
        launched = self.shape if shape is None else shape
        end = int(np.prod(launched)) if hi is None else hi
        self.code(block(launched, values), lo, end)


def native(name: str, address: int) -> Callable[[bytes, int, int], None]:
    """Compiled code at an address, as a Python function."""
    code = PROTOTYPE(address)

    def call(arguments: bytes, lo: int, hi: int) -> None:
        result, excinfo = (ctypes.c_void_p * 2)(), ctypes.c_void_p()
        if code(ctypes.byref(result), ctypes.byref(excinfo), arguments, lo, hi):
            error: KernelError = decode_error(excinfo.value or 0, name)
            raise error

    return call


def run(function: Callable[..., None], shape: int | tuple[int, ...], *values: Any, **options: Any) -> None:
    """Compile and run at once."""
    Entry(function, shape, *values, **options)(*values)
