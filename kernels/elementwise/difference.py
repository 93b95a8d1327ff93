"""Differences of neighbours."""

from __future__ import annotations

import aiodev
from aiodev.kernels.arguments import arrays_of, checked_axis, whole_number
from aiodev.kernels.elementwise.table import not_equal, subtract
from aiodev.kernels.manipulation.joining import concat

__all__ = ["diff"]


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
        compute = not_equal if x.dtype.kind == "b" else subtract
        x = compute(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x
