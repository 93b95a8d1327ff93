"""The array API's linear algebra: norms here, products, factorisations and what is made of them in the modules beside.

All submit to the current stream and wait for nothing, factorisations too: results' shapes follow from the arguments' ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import arrays_of, checked_axis, delivered, flags, packed_out
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.linalg import norms
from aiodev.kernels.linalg.factorizations import (
    EighResult,
    QRResult,
    SVDResult,
    cholesky,
    eigh,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from aiodev.kernels.linalg.inverses import SlogdetResult, det, inv, matrix_power, matrix_rank, pinv, slogdet, solve
from aiodev.kernels.linalg.products import matmul, matrix_transpose, tensordot, vecdot
from aiodev.kernels.linalg.vector_products import cross, diagonal, outer, trace
from aiodev.kernels.thread_block import has_teams

__all__ = [
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

Axes = int | tuple[int, ...] | None
#: Norms of matrices that are norms of their singular values.
_OF_VALUES: dict[float | str, float] = {2: math.inf, -2: -math.inf, "nuc": 1}


def __dir__() -> list[str]:
    return __all__


def norm(
    x: aiodev.Array,
    /,
    ord: float | str | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """NumPy's ``linalg.norm``: of vectors along one axis, of matrices in two, of all elements if neither is said.

    Raises:
        ValueError: an order that is not known.
        TypeError: LAPACK has not the dtype whose spectral or nuclear norm is asked for.
        NotImplementedError: that is asked for, and there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[3.0, 4.0], [0.0, 12.0]], device="cpu")
        >>> aiodev.kernels.linalg.norm(x).numpy_blocking(), aiodev.kernels.linalg.norm(x, axis=1).numpy_blocking()
        (array(13.), array([ 5., 12.]))
    """
    (x,) = arrays_of("norm", x=x)
    axes = axis if axis is None or isinstance(axis, tuple) else (axis,)
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims, out=out)
    if axes is None:
        axes = tuple(range(x.ndim))
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"norm: a vector has no norm called {ord!r}")
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord, out=out)
    if len(axes) == 2:
        return _matrix_norm("norm", x, axes, ord, keepdims, out)
    raise ValueError(f"norm: ord={ord!r} is of vectors (one axis) or matrices (two); here are {len(axes)} axes")


@aiodev.operation(reads=["x"], writes="out")
def vector_norm(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    ord: float = 2,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The ``ord``-norm of the elements along the axes, of all by default; real, ``float64`` of integers.

    Sums are of blocks of 4096 elements, then of the blocks: the same on every run. Squares, and the sums of blocks, are of
    ``float64``, other powers of the array's own precision. Nothing is scaled: squares of numbers beyond 10¹⁵⁴ overflow.

    Args:
        ord: a power, ``inf`` for the largest absolute value, ``-inf`` for the least, 0 for how many are not 0.

    Raises:
        ValueError: the least of no elements (the largest of none is 0), an axis that is not there, or one that is named twice.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[3.0, 4.0], [0.0, 12.0]], device="cpu")
        >>> aiodev.kernels.linalg.vector_norm(x, axis=1, ord=1).numpy_blocking()
        array([ 7., 12.])
    """
    flags("vector_norm", keepdims=keepdims)
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(checked_axis("vector_norm", a, x.ndim) for a in given)
    if len(set(axes)) != len(axes):
        raise ValueError(f"vector_norm: axis {axis} names one axis twice")
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    rows, length = math.prod(shape), math.prod(x.shape[a] for a in axes)
    mode = _mode(ord)
    if not length and rows and mode == norms.MINIMUM:
        raise ValueError(f"vector_norm: ord={ord} of no elements is not defined")
    shown = tuple(1 if a in axes else n for a, n in enumerate(x.shape)) if keepdims else shape
    computed = np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    dtype = np.empty(0, computed).real.dtype
    result, target = packed_out(call, shown, dtype)
    if not rows:
        return result
    blocks, first, second = norms.shares_of(rows, length, x.device)
    power = dtypes.compute_dtype(dtype).type(ord)
    flat = convert(call, call.reshape(x.transpose(*kept, *axes), (rows, length)), computed)
    row_norms = target.reshape(rows)
    if blocks == 1 and not has_teams(x.device):
        call.launch(norms.norm_short, rows, mode, power, flat, row_norms)
    else:
        parts = call.scratch((rows, blocks), np.float64)
        call.launch(norms.norm_blocks, first, blocks, mode, power, flat, parts)
        call.launch(norms.norm_rows, second, mode, power, parts, row_norms)
    return delivered(call, result, target)


def matrix_norm(
    x: aiodev.Array, /, *, keepdims: bool = False, ord: float | str = "fro", out: aiodev.Array | None = None
) -> aiodev.Array:
    """The norm of the matrices in the last two dimensions: ``"fro"``; 1 and -1, of columns; ``inf`` and ``-inf``, of rows.

    2 and -2 are the largest and the least singular value, ``"nuc"`` is their sum. Of NaN who waits for these gets the
    :class:`~aiodev.KernelError` of :func:`svdvals`, as the cause of a :class:`~aiodev.DependencyError`.

    Raises:
        ValueError: fewer than two dimensions, an order that is not known, or the least of no values.
        TypeError: 2, -2 or ``"nuc"``, of a dtype that LAPACK has not.
        NotImplementedError: these, and there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, -2.0], [3.0, 4.0]], device="cpu")
        >>> aiodev.kernels.linalg.matrix_norm(x, ord=1).numpy_blocking()
        array(6.)
    """
    (x,) = arrays_of("matrix_norm", x=x)
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: expected at least 2 dimensions, got the shape {x.shape}")
    return _matrix_norm("matrix_norm", x, (x.ndim - 2, x.ndim - 1), ord, keepdims, out)


@composed
def _matrix_norm(
    name: str, x: aiodev.Array, axes: tuple[int, ...], ord: float | str, keepdims: bool, out: aiodev.Array | None
) -> aiodev.Array:
    row, column = (checked_axis(name, axis, x.ndim) for axis in axes)
    if row == column:
        raise ValueError(f"{name}: axes {axes} are the same one")
    if not isinstance(ord, str | int | float | np.integer | np.floating):
        raise TypeError(f"{name}: ord={ord!r}: expected a number, or 'fro'")
    if ord == "fro":
        return vector_norm(x, axis=(row, column), keepdims=keepdims, out=out)
    if ord in _OF_VALUES:
        kept = [a for a in range(x.ndim) if a not in (row, column)]
        values = svdvals(x.transpose(*kept, row, column))[..., None, :]  # where the matrix was
        places = [*kept, row, column]
        shown = values.transpose(*(places.index(a) for a in range(x.ndim)))
        return vector_norm(shown, axis=(row, column), keepdims=keepdims, ord=_OF_VALUES[ord], out=out)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"{name}: no matrix norm ord={ord!r}; 'fro', 'nuc', 1, -1, 2, -2, inf and -inf are there")
    summed, chosen = (row, column) if ord in (1, -1) else (column, row)
    sums = vector_norm(x, axis=summed, keepdims=True, ord=1)
    both = vector_norm(sums, axis=(summed, chosen), keepdims=keepdims, ord=math.copysign(math.inf, float(ord)), out=out)
    return both


def _mode(ord: Any) -> int:
    known = {1: norms.SUM, 2: norms.SQUARES, 0: norms.COUNT, math.inf: norms.MAXIMUM, -math.inf: norms.MINIMUM}
    if isinstance(ord, bool) or not isinstance(ord, int | float | np.integer | np.floating):
        raise ValueError(f"vector_norm: ord={ord!r}: expected a number")
    return known.get(float(ord), norms.POWER)
