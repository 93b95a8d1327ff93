"""A kernel run by the interpreter, over NumPy views of its arguments: where numba may not compile (NUMBA_DISABLE_JIT)."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy

from aiodev._backends.cpu.compiler_source import WORD, Argument

__all__ = ["interpreted_entry"]


def interpreted_entry(
    function: Callable[..., None], ndim: int, arguments: list[Argument]
) -> Callable[[bytes, int, int], None]:
    """A Python function that does what a range entry does; what the body raises comes through."""

    def entry(block: bytes, lo: int, hi: int) -> None:
        shape = struct.unpack_from(f"<{ndim}q", block)
        values = [_array(block, a) if a.is_array else _scalar(block, a) for a in arguments]
        for flat in range(lo, hi):
            function(*_indices(flat, shape), *values)

    return entry


def _indices(flat: int, shape: tuple[int, ...]) -> list[int]:
    indices: list[int] = []
    for length in reversed(shape[1:]):
        flat, index = divmod(flat, length)
        indices.insert(0, index)
    return [flat, *indices]


def _scalar(block: bytes, argument: Argument) -> Any:
    return numpy.frombuffer(block, argument.dtype, count=1, offset=argument.offset)[0]


def _array(block: bytes, argument: Argument) -> Any:
    """The array that the block describes; it lives where the launch keeps it alive."""
    ndim = argument.ndim
    address, *shape = struct.unpack_from(f"<{1 + ndim}q", block, argument.offset)
    dtype = numpy.dtype(argument.dtype)
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
