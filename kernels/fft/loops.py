"""NumPy's pocketfft on the CPU: the inner loops of its generalised ufuncs, called by address.

NumPy has transforms as ufuncs over the last dimension, in C++, for ``float32`` and ``float64``. A ufunc holds the addresses of
its loops in a structure that NumPy's C interface publishes (``PyUFuncObject``). Kernels call those, without the GIL, each index
for some of the rows. A loop takes addresses and the distances of rows and elements, so transforms along any axis read and write
where elements lie; it pads rows or cuts them, and may write where it reads.

A loop that has no memory takes the GIL, to set an exception that nobody looks at, and leaves its result as it is. So an index
whose loop needs much asks for as much itself before, and raises MemoryError where it is not to be had.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import shared
from aiodev.kernels.linalg.tiling import cores_of
from aiodev.kernels.tuning import TRANSFORMED_EACH, TRANSFORMED_SHARES, UNASKED
from aiodev.lang import call_native

__all__ = ["FORWARD", "HERMITIAN", "INVERSE", "REAL_EVEN", "REAL_ODD", "are_callable", "transform"]

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
#: Behind these in the table: C's functions for memory.
_ALLOCATE, _FREE = 4 * len(_LOOPS), 4 * len(_LOOPS) + 1
#: Elements that pocketfft has for each of a row at most, for lengths with small factors only and for others; rows at a time.
_SMOOTH, _OTHERS, _TOGETHER = 4, 10, 4
#: Words of an index: three addresses, three lengths, the distances of rows, and those of elements.
_WORDS = 11


_C = ctypes.CDLL(None)


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
def are_callable() -> bool:
    """Whether this NumPy has its transforms in a way that is known here: its module is private."""
    try:
        _addresses()
    except NotImplementedError:
        return False
    return True


@functools.cache
def _addresses() -> np.ndarray[Any, Any]:
    """Of each loop, and of what it is given, for each transform in single precision, then in double; of C's functions.

    Raises:
        NotImplementedError: this NumPy has its transforms in another way.
    """
    try:
        module = importlib.import_module("numpy.fft._pocketfft_umath")  # loads a library: not before it is needed
        pairs = [_loop(getattr(module, name), types) for name, both in _LOOPS for types in both]
    except (ImportError, AttributeError, ValueError) as error:
        text = f"fft: NumPy {np.__version__} has no loops of pocketfft that can be called: {error}"
        raise NotImplementedError(text) from error
    memory = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (_C.posix_memalign, _C.free)]
    return np.array([*(word for pair in pairs for word in pair), *memory], np.uint64)


def process_table(device: aiodev.Device) -> tuple[aiodev.Array, aiodev.Completion[None] | None]:
    """The table, for graphs that were saved by another process, where the addresses are others.

    Raises:
        NotImplementedError: this NumPy has no such loops.
    """
    table = shared(_addresses(), device)
    assert table is not None  # the device's kernels run in this process
    return table, None


def _loop(ufunc: np.ufunc, types: str) -> tuple[int, int]:
    head = _UFunc.from_address(id(ufunc) + object.__basicsize__)
    if (head.nin, head.nout, head.nargs, head.ntypes) != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
        raise ValueError(f"{ufunc} is no structure as NumPy's header has it")
    place = ufunc.types.index(types)
    return head.functions[place] or 0, (head.data[place] or 0) if head.data else 0


@aiodev.kernel(reads=("loops", "x"))
def transform_rows(
    i: int, loops: Any, place: int, group: int, room: int, factor: Any, x: Any, words: Any, factors: Any, out: Any
) -> None:
    """Rows ``i * group`` and on: those of one outer index lie as far apart as the inner dimension says, and are one call."""
    w, inner = words[i], x.shape[1]
    factors[i] = factor
    if room > 0:
        w[0] = 0
        call_native(loops[_ALLOCATE], w, 64, room)
        if w[0] == 0:
            raise MemoryError("fft: there is no memory for the factors of a transform of this length")
        call_native(loops[_FREE], w[0])
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
    rows, length = x.shape[0] * x.shape[1], out.shape[2]
    if kind in (REAL_EVEN, REAL_ODD):
        length = 2 * length - (2 if kind == REAL_EVEN else 1)
    group = max(-(-rows // (TRANSFORMED_SHARES * cores_of(call.device))), min(rows, -(-TRANSFORMED_EACH // length)))
    indices = -(-rows // group)
    words, factors = call.scratch((indices, _WORDS), np.int64), call.scratch(indices, real)
    place, room = 4 * kind + 2 * double, _room_for(length, group) * 2 * real.itemsize
    constants = call.constant(table), place, group, room if room > UNASKED else 0, real.type(factor)
    call.launch(transform_rows, indices, *constants, x, words, factors, out)


@functools.lru_cache(1024)
def _room_for(length: int, rows: int) -> int:
    """Elements that pocketfft has memory for, at most."""
    rest = length
    for factor in (2, 3, 5, 7, 11):
        while rest % factor == 0:
            rest //= factor
    return length * (_SMOOTH if rest == 1 else _OTHERS) * (1 if rows == 1 else _TOGETHER)
