"""Arrays whose elements follow from where they are: ones on a diagonal, triangles, evenly spaced numbers, grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import array_of, delivered, dtype_of, flags, whole_number
from aiodev.kernels.manipulation.views import broadcast_arrays
from aiodev.kernels.warmup import register_sample

__all__ = ["eye", "linspace", "meshgrid", "tril", "triu"]


@aiodev.kernel(ndim=2)
def mark_diagonal(i: int, j: int, k: int, out: Any) -> None:
    """1 on a diagonal, 0 elsewhere."""
    out[i, j] = 1 if j - i == k else 0


@aiodev.kernel(ndim=3, reads=["x"])
def keep_lower(n: int, i: int, j: int, k: int, zero: Any, x: Any, out: Any) -> None:
    """An element on the diagonal or below it; 0 above."""
    out[n, i, j] = x[n, i, j] if j - i <= k else zero


@aiodev.kernel(ndim=3, reads=["x"])
def keep_upper(n: int, i: int, j: int, k: int, zero: Any, x: Any, out: Any) -> None:
    """An element on the diagonal or above it; 0 below."""
    out[n, i, j] = x[n, i, j] if j - i >= k else zero


@aiodev.kernel
def space_evenly(i: int, steps: float, count: int, start: Any, stop: Any, out: Any) -> None:
    """A number between two, as NumPy computes it; the last one exactly."""
    width = stop - start
    step = width / steps
    if i == count:
        out[i] = stop
    else:
        out[i] = i * step + start if step != 0 else i / steps * width + start


@aiodev.kernel
def space_whole(i: int, steps: float, count: int, start: Any, stop: Any, out: Any) -> None:
    """A number between two, as NumPy computes it, rounded down; the last one exactly."""
    width = stop - start
    step = width / steps
    if i == count:
        out[i] = math.floor(stop)
    else:
        out[i] = math.floor(i * step + start if step != 0 else i / steps * width + start)


@aiodev.operation(writes="out", name="eye")
def _mark(call: aiodev.Call, k: int, out: aiodev.Array) -> aiodev.Array:
    call.launch(mark_diagonal, out.shape, k, out)
    return out


@aiodev.operation(numbers=["start", "stop"], writes="out", name="linspace")
def _space(call: aiodev.Call, start: complex, stop: complex, steps: int, count: int, out: aiodev.Array) -> aiodev.Array:
    computed = np.complex128 if out.dtype.kind == "c" else np.float64
    kernel = space_whole if out.dtype.kind in "iu" else space_evenly
    bounds = [call.number(bound).astype(computed) for bound in (start, stop)]
    call.launch(kernel, out.size, float(steps), count, *bounds, out)
    return out


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
) -> aiodev.Array:
    """A matrix with ones on a diagonal, and zeros elsewhere.

    Args:
        n_rows: how many rows.
        n_cols: how many columns; as many as rows by default.
        k: which diagonal: above the main one if positive, below it if negative.
        dtype: of the elements, ``float64`` by default.
        device: where; the current device by default.

    Raises:
        TypeError: a length or ``k`` is no integer.
        ValueError: a length is negative.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.eye(2, 3, k=1, dtype="int64", device="cpu").numpy_blocking()
        array([[0, 1, 0],
               [0, 0, 1]])
    """
    rows = whole_number("eye", "n_rows", n_rows, 0)
    columns = rows if n_cols is None else whole_number("eye", "n_cols", n_cols, 0)
    above = max(-rows, min(columns, whole_number("eye", "k", k)))  # no further diagonal has an element
    out = aiodev.empty((rows, columns), dtype_of("eye", dtype), device)
    return _mark(above, out) if out.size else out


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    endpoint: bool = True,
) -> aiodev.Array:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, of which that is the last one unless ``endpoint=False``.

    They are computed in ``float64`` or ``complex128``, and rounded once; of integers rounded down, as NumPy does.

    Args:
        start: the first number.
        stop: the last one, or where the next one would be.
        num: how many.
        dtype: ``float64`` by default, ``complex128`` of complex bounds.
        device: where; the current device by default.
        endpoint: whether ``stop`` is among them.

    Raises:
        TypeError: a bound is no number, ``num`` is no integer, or the bounds are complex and the dtype is not.
        ValueError: ``num`` is negative.
        OverflowError: a bound is beyond ``float64``.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linspace(0, 1, 5, device="cpu").numpy_blocking()
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    flags("linspace", endpoint=endpoint)
    count = whole_number("linspace", "num", num, 0)
    first, last = _bound("start", start), _bound("stop", stop)
    is_complex = isinstance(first, complex) or isinstance(last, complex)
    wanted = dtype_of("linspace", dtype)
    wanted = wanted or np.dtype(np.complex128 if is_complex else np.float64)
    if is_complex and wanted.kind != "c":
        raise TypeError(f"linspace: dtype {wanted}: the bounds are complex, and the dtype is not")
    out = aiodev.empty(count, wanted, device)
    if not count:
        return out
    steps = count - 1 if endpoint else count
    return _space(first, last, max(1, steps), steps if endpoint and steps else count, out)


def _bound(name: str, value: Any) -> complex:
    if not isinstance(value, int | float | complex | np.number):
        raise TypeError(f"linspace: argument {name}: expected a number, got {type(value).__name__}")
    try:
        return complex(value) if isinstance(value, complex | np.complexfloating) else float(value)
    except OverflowError:
        raise OverflowError(f"linspace: argument {name}: expected a number that a float can be, got a larger one") from None


def meshgrid(*arrays: aiodev.Array, indexing: str = "xy") -> list[aiodev.Array]:
    """The coordinates of a grid's points, from those along each axis: read-only views, in which elements are repeated.

    Args:
        arrays: the coordinates along each axis, of one dimension.
        indexing: ``"ij"``: the first one goes along the first dimension. ``"xy"``: the first one goes along the second, and the
            second one along the first.

    Raises:
        ValueError: an array has several dimensions, or ``indexing`` is something else.
        TypeError: one is no array.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x, y = aiodev.kernels.meshgrid(aiodev.arange(3, device="cpu"), aiodev.arange(2, device="cpu"))
        >>> x.numpy_blocking(), y.numpy_blocking()
        (array([[0, 1, 2],
               [0, 1, 2]]), array([[0, 0, 0],
               [1, 1, 1]]))
    """
    if not isinstance(indexing, str) or indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing={indexing!r}; expected 'xy' or 'ij'")
    laid = []
    for number, x in enumerate(arrays):
        array_of("meshgrid", x, f"arrays[{number}]")
        if x.ndim > 1:
            raise ValueError(f"meshgrid: argument arrays[{number}]: expected one dimension, got the shape {x.shape}")
        place = 1 - number if indexing == "xy" and number < 2 <= len(arrays) else number
        laid.append(x.reshape(*(-1 if d == place else 1 for d in range(len(arrays)))))
    return broadcast_arrays(*laid)


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def tril(call: aiodev.Call, x: aiodev.Array, /, *, k: int = 0, out: aiodev.Array | None = None) -> aiodev.Array:
    """The lower triangles of matrices, in the last two dimensions; zeros above a diagonal.

    Args:
        x: of two dimensions or more.
        k: which diagonal is the last that is kept: above the main one if positive, below it if negative.
        out: where to write; returned. It may be ``x``.

    Raises:
        ValueError: ``x`` has fewer than two dimensions, or ``out`` has another shape.
        TypeError: ``k`` is no integer, or ``out`` has another dtype.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.tril(aiodev.ones((2, 3), "int64", "cpu")).numpy_blocking()
        array([[1, 0, 0],
               [1, 1, 0]])
    """
    return _keep(call, keep_lower, x, k)


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def triu(call: aiodev.Call, x: aiodev.Array, /, *, k: int = 0, out: aiodev.Array | None = None) -> aiodev.Array:
    """The upper triangles of matrices, in the last two dimensions; zeros below a diagonal. Otherwise as :func:`tril`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.triu(aiodev.ones((2, 3), "int64", "cpu")).numpy_blocking()
        array([[1, 1, 1],
               [0, 1, 1]])
    """
    return _keep(call, keep_upper, x, k)


def _keep(call: aiodev.Call, kernel: aiodev.Kernel, x: aiodev.Array, k: int) -> aiodev.Array:
    if x.ndim < 2:
        raise ValueError(f"{call.name}: expected at least 2 dimensions, got the shape {x.shape}")
    rows, columns = x.shape[-2:]
    diagonal = max(-rows, min(columns, whole_number(call.name, "k", k)))
    result = call.out(x.shape, x.dtype)
    if x.size:
        matrices = x.size // (rows * columns), rows, columns
        target = result if result.ndim <= 3 or result.is_contiguous else call.scratch(x.shape, x.dtype)
        seen = [array[None] if array.ndim == 2 else call.reshape(array, matrices) for array in (x, target)]
        call.launch(kernel, matrices, diagonal, x.dtype.type(0), *seen)
        delivered(call, result, target)
    return result


def _sample_eye(dtype: Any) -> None:
    eye(4, dtype=dtype)


def _sample_linspace(dtype: Any) -> None:
    linspace(0, 1, 4, dtype=dtype)


register_sample("eye", _sample_eye)
register_sample("linspace", _sample_linspace)
