"""Interpreted kernels, over NumPy views of their arguments: where numba may not compile (NUMBA_DISABLE_JIT).

Arithmetic is that of NumPy's scalars, which has a few corners of its own: a division of integers by zero gives 0 instead of
raising, a literal integer takes the type of what it meets.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

import numpy

from aiodev._backends.compile.raised import said
from aiodev._backends.compile.refusals import check_host_state, returned_value
from aiodev._core.backend.kernel_arguments import WORD, KernelArgument
from aiodev._core.dtypes import DTYPES
from aiodev._core.errors import KernelError

__all__ = ["described", "interpreted_entry"]


def interpreted_entry(
    name: str, function: Callable[..., object], ndim: int, arguments: list[KernelArgument]
) -> Callable[[bytes, int, int], None]:
    """A Python function that does what the range entry of the kernel ``name`` does.

    What the body raises is the cause of the KernelError that it raises.

    Raises:
        CompileError: the body draws from the state of a host's thread.
    """
    check_host_state(name, function)

    def entry(block: bytes, lo: int, hi: int) -> None:
        shape = struct.unpack_from(f"<{ndim}q", block)
        values = [_array(block, a) if a.is_array else _scalar(block, a) for a in arguments]
        try:
            with numpy.errstate(all="ignore"):  # compiled code does not warn either
                for flat in range(lo, hi):
                    if (returned := function(*_indices(flat, shape), *values)) is not None:
                        raise returned_value(name, function, type(returned).__name__)
        except KernelError:
            raise
        except Exception as error:  # a body may raise anything
            raise _located(name, error, function.__code__) from error

    return entry


def _located(name: str, error: Exception, body: CodeType) -> KernelError:
    """The error for what a body raised, with the last line of its file that was running."""
    line = body.co_firstlineno
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == body.co_filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    error.args = described(error.args)
    return KernelError(name, said(error), location=f"{body.co_filename}:{line}")


def described(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an exception that a body raised, with what arrays are instead of the arrays.

    Those are views of memory that nothing keeps alive once the launch is over.
    """
    return tuple(
        described(value)
        if type(value) is tuple
        else f"<{value.dtype} array of shape {value.shape}>"
        if isinstance(value, numpy.ndarray)
        else value
        for value in arguments
    )


def _indices(flat: int, shape: tuple[int, ...]) -> list[int]:
    indices: list[int] = []
    for length in reversed(shape[1:]):
        flat, index = divmod(flat, length)
        indices.insert(0, index)
    return [flat, *indices]


def _scalar(block: bytes, argument: KernelArgument) -> Any:
    return numpy.frombuffer(block, DTYPES[argument.dtype].name, count=1, offset=argument.offset)[0]


def _array(block: bytes, argument: KernelArgument) -> Any:
    """The array that the block describes; it lives where the launch keeps it alive."""
    ndim = argument.ndim
    address, *shape = struct.unpack_from(f"<{1 + ndim}q", block, argument.offset)
    dtype = numpy.dtype(DTYPES[argument.dtype].name)  # what others define has its name since they were imported
    if argument.layout == "A":
        strides: tuple[int, ...] = struct.unpack_from(f"<{ndim}q", block, argument.offset + WORD * (1 + ndim))
    else:
        strides = tuple(dtype.itemsize * math.prod(shape[d + 1 :]) for d in range(ndim))
    if 0 in shape:
        return numpy.empty(shape, dtype)
    below = sum(step * (length - 1) for step, length in zip(strides, shape, strict=True) if step < 0)
    above = sum(step * (length - 1) for step, length in zip(strides, shape, strict=True) if step > 0)
    memory = (ctypes.c_char * (above - below + dtype.itemsize)).from_address(address + below)
    view = numpy.ndarray(tuple(shape), dtype, memory, -below, strides)
    if argument.readonly:
        view.flags.writeable = False
    return view
