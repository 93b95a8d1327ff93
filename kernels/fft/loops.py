"""NumPy's pocketfft on the CPU: the inner loops of its generalised ufuncs, called by address.

NumPy has transforms as ufuncs over the last dimension, in C++, for ``float32`` and ``float64``. A ufunc holds the addresses of its
loops in a structure that NumPy's C interface publishes (``PyUFuncObject``). Kernels call those, without the GIL, each index for some
of the rows. A loop takes addresses and the distances of rows and elements, so transforms along any axis read and write where
elements lie; it pads rows or cuts them, and may write where it reads.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import shared
from aiodev.kernels.linalg.tiling import cores_of
from aiodev.lang import call_native

__all__ = ["FORWARD", "HERMITIAN", "INVERSE", "REAL_EVEN", "REAL_ODD", "transform"]

#: Transforms, in the table's order: complex ones, those of an even and an odd number of real elements, and back to real ones.
FORWARD, INVERSE, REAL_EVEN, REAL_ODD, HERMITIAN = range(5)
#: Of each the ufunc's name, and its types for single and for double precision: elements, factor, result.
_LOOPS = (
    ("fft", ("Ff->F", "Dd->D")),
    ("ifft", ("Ff->F", "Dd->D")),
    ("rfft_n_even", ("ff->F", "dd->D")),
    ("rfft_n_odd", ("ff->F", "dd->D")),
    ("irfft", ("Ff->f", "Dd->d")),
)
#: Words of an index: three addresses, three lengths, the distances of rows, and those of elements.
_WORDS = 11
#: Elements for one index, at least: some tens of µs. And indices for each core: several even out when they start.
_PIECE, _SHARES = 1 << 12, 4


class _UFunc(ctypes.Structure):
    """The head of ``PyUFuncObject`` behind that of any object (numpy/ufuncobject.h)."""

    _fields_ = (
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


@functools.cache
def _addresses() -> np.ndarray[Any, Any]:
    """Of each loop, and of what it is given; for each transform in single precision, then in double.

    Raises:
        NotImplementedError: this NumPy has its transforms in another way.
    """
    try:
        from numpy.fft import _pocketfft_umath  # loads a library: not before it is needed

        found = [_loop(getattr(_pocketfft_umath, name), types) for name, both in _LOOPS for types in both]
    except (ImportError, AttributeError, ValueError) as error:
        raise NotImplementedError(f"fft: NumPy {np.__version__} has no loops of pocketfft that can be called: {error}") from error
    return np.array(found, np.uint64).reshape(-1)


def _loop(ufunc: np.ufunc, types: str) -> tuple[int, int]:
    head = _UFunc.from_address(id(ufunc) + object.__basicsize__)
    if (head.nin, head.nout, head.nargs, head.ntypes) != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
        raise ValueError(f"{ufunc} is no structure as NumPy's header has it")
    place = ufunc.types.index(types)
    return head.functions[place] or 0, (head.data[place] or 0) if head.data else 0


@aiodev.kernel(reads=("loops", "x"))
def transform_rows(i: int, loops: Any, place: int, group: int, factor: Any, x: Any, words: Any, factors: Any, out: Any) -> None:
    """Rows ``i * group`` and on: those of one outer index lie as far apart as the inner dimension says, and are one call."""
    w, inner = words[i], x.shape[1]
    factors[i] = factor
    row, end = i * group, min(x.shape[0] * inner, (i + 1) * group)
    while row < end:
        first, second = row // inner, row % inner
        count = min(inner - second, end - row)
        w[0], w[1], w[2] = x[first, second:].ctypes.data, factors[i:].ctypes.data, out[first, second:].ctypes.data
        w[3], w[4], w[5] = count, x.shape[2], out.shape[2]
        w[6], w[7], w[8] = x.strides[1], 0, out.strides[1]
        w[9], w[10] = x.strides[2], out.strides[2]
        call_native(loops[place], w, w[3:], w[6:], loops[place + 1])
        row += count


def transform(call: aiodev.Call, kind: int, x: aiodev.Array, out: aiodev.Array, factor: float) -> None:
    """Submit the transforms of the last of three dimensions, times ``factor``; the other two are of the same lengths.

    ``out`` may be ``x``. Elements are of one precision.
    """
    table = shared(_addresses(), call.device)
    assert table is not None  # the device's kernels run in this process
    double = x.dtype.char in "dD"
    real = np.dtype(np.float64 if double else np.float32)
    rows, length = x.shape[0] * x.shape[1], max(x.shape[2], out.shape[2])
    group = max(-(-rows // (_SHARES * cores_of(call.device))), min(rows, -(-_PIECE // length)))
    indices = -(-rows // group)
    words, factors = call.scratch((indices, _WORDS), np.int64), call.scratch(indices, real)
    place = 4 * kind + 2 * double
    call.launch(transform_rows, indices, call.constant(table), place, group, real.type(factor), x, words, factors, out)
