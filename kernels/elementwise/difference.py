"""Differences of neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import arrays_of, checked_axis, whole_number
from aiodev.kernels.elementwise.table import not_equal, subtract
from aiodev.kernels.manipulation.joining import concat

__all__ = ["diff", "differences"]


@aiodev.kernel(ndim=2, reads=("x",), uniform=True)
def subtract_neighbours(i: int, k: int, step: int, x: Any, out: Any) -> None:
    """An element from the one that lies ``step`` behind it."""
    out[i, k] = x[i, np.uint64(k + step)] - x[i, k]


@aiodev.operation(reads=["x"])
def differences(call: aiodev.Call, x: aiodev.Array, /, *, axis: int) -> aiodev.Array:
    """Each element minus the one before it along an axis, counted from the first, of numbers without gaps.

    Compilers make vector code of it. Views of all elements but one have gaps, and theirs is a loop over any distances.
    """
    before, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = *x.shape[:axis], x.shape[axis] - 1, *x.shape[axis + 1 :]
    result = call.new(shape, x.dtype)
    if result.size:
        own, target = call.packed(x).reshape(before, x.size // before), result.reshape(before, result.size // before)
        call.launch(subtract_neighbours, target.shape, inner, own, target)
    return result


def diff(
    x: aiodev.Array,
    /,
    n: int = 1,
    *,
    axis: int = -1,
    prepend: aiodev.Array | None = None,
    append: aiodev.Array | None = None,
) -> aiodev.Array:
    """Each element minus the one before it along ``axis``, ``n`` times; of booleans, whether they differ.

    Args:
        x: the elements.
        n: how often; 0 gives the elements themselves, in an array of their own.
        axis: along which they are neighbours.
        prepend: what comes before them along the axis; of the other dimensions of ``x``.
        append: what comes behind them.

    Raises:
        ValueError: there is no such axis, ``n`` is negative, or the other dimensions differ.
        TypeError: ``n`` is no integer, or something is no array.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1, 2, 4, 7], device="cpu")
        >>> aiodev.kernels.diff(x).numpy_blocking(), aiodev.kernels.diff(x, n=2, append=x[-1:]).numpy_blocking()
        (array([1, 2, 3]), array([ 1,  1, -3]))
    """
    beside = {name: part for name, part in (("prepend", prepend), ("append", append)) if part is not None}
    arrays_of("diff", x=x, **beside)
    at = checked_axis("diff", axis, x.ndim)
    times = whole_number("diff", "n", n, 0)
    if not times:
        return aiodev.asarray(x, copy=True)
    if beside:
        x = concat([part for part in (prepend, x, append) if part is not None], axis=at)
    before = (slice(None),) * at
    for _ in range(max(1, min(times, x.shape[at]))):  # then nothing is left
        if x.dtype.kind in "iufc" and x.size and x.is_contiguous and not dtypes.is_stored_only(x.dtype):
            x = differences(x, axis=at)
            continue
        compute = not_equal if x.dtype.kind == "b" else subtract
        x = compute(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x
