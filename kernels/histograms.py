"""Counting in bins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels import histogram_bodies as bodies
from aiodev.kernels.conversion import astype
from aiodev.kernels.operands import array_of, arrays_of
from aiodev.kernels.reductions import max as _max, min as _min, sum as _sum
from aiodev.kernels.searching import flat
from aiodev.kernels.teams import has_teams
from aiodev.kernels.warming import register_sample

__all__ = ["histogram"]

#: Elements that are counted in bins of their own, at least; and how many bins there may be in all.
_PIECE, _MOST_BINS = 1 << 16, 1 << 22
#: Of one piece in bins of one width, under (how many, whether the range is that of the elements): of the elements and the ends
#: of the range.
_launches = aiodev.LaunchCache(3)
_repeat = _launches.repeat
_UNIT = 0.0, 1.0


def histogram(
    x: aiodev.Array,
    /,
    bins: int | aiodev.Array | Any = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: aiodev.Array | None = None,
    density: bool = False,
) -> tuple[aiodev.Array, aiodev.Array]:
    """How many elements there are in each of some bins, and the edges of the bins.

    A bin has its left edge and not its right one, but for the last, which has both. What is in no bin, NaN too, does not count.
    Without a range, a NaN or an infinity among the elements makes edges of no use: nothing is counted then.
    Values are compared as ``float64``. The result does not depend on the number of threads. Submits to the current stream.

    Args:
        bins: how many, of one width; or their edges, in ascending order.
        range: the outermost edges, where ``bins`` is a number; the least and the largest element by default.
        weights: what each element counts for, in the shape of ``x``.
        density: divide by the widths and by the sum of all, so that the integral is 1.

    Returns:
        The counts, ``int64`` (``float64`` with weights or as densities), and the edges, ``float64``.

    Raises:
        ValueError: there are no bins, or their edges are out of order; or the shapes differ.
        TypeError: complex numbers have no order.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([0.5, 1.5, 1.7, 3.0], device="cpu")
        >>> counts, edges = aiodev.kernels.histogram(x, 3, range=(0, 3))
        >>> counts.numpy_blocking(), edges.numpy_blocking()
        (array([1, 2, 1]), array([0., 1., 2., 3.]))
    """
    if weights is None:
        if not density and bins.__class__ is int and x.__class__ is aiodev.Array:
            try:
                low, high = _UNIT if range is None else range
                plain = bins > 0 and 0 < high - low < math.inf  # of such ends nothing needs to be said
            except (TypeError, ValueError):
                plain = False
            if plain:
                found: Any = _repeat((bins, range is None), x, low, high, None)
                if found is not None:
                    return found  # type: ignore[no-any-return]
        array_of("histogram", x)
    else:
        arrays_of("histogram", x=x, weights=weights)
    if x.dtype.kind == "c" or (weights is not None and weights.dtype.kind == "c"):
        raise TypeError("histogram: complex numbers have no order")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"histogram: weights have the shape {weights.shape}, x {x.shape}")
    if even := isinstance(bins, int | np.integer):
        bins = int(bins)
        if weights is None and x.size <= _PIECE and not has_teams(x.device):
            counts, edges = _count_few(x, bins, range)
            return (_densities(counts, edges), edges) if density else (counts, edges)
        edges = _even_edges(x, bins, range)
    else:
        edges = _given_edges(x, bins, range)
    stream, number = aiodev.current_stream(x.device), edges.size - 1
    pieces = max(1, min(math.ceil(x.size / _PIECE), _MOST_BINS // number))
    piece = max(1, math.ceil(x.size / pieces))
    total = np.dtype(np.int64 if weights is None else np.float64)
    first, room = (1, bodies.ROOM) if even and weights is None else (0, 0)
    parts = aiodev.empty(pieces * (number + room), total, x.device)
    elements = flat(astype(x, np.float32) if x.dtype == np.float16 else x)
    if weights is None:
        kernel = bodies.count_even if even else bodies.count_uneven
        kernel[pieces, stream](piece, number, elements, edges, parts)
    else:
        kernel = bodies.weigh_even if even else bodies.weigh_uneven
        kernel[pieces, stream](piece, number, elements, flat(astype(weights, total)), edges, parts)
    counts = parts
    if pieces > 1 or room:
        counts = aiodev.empty(number, total, x.device)
        bodies.add_parts[number, stream](pieces, number + room, first, parts, counts)
    return (_densities(counts, edges), edges) if density else (counts, edges)


def _count_few(x: aiodev.Array, bins: int, limits: tuple[float, float] | None) -> tuple[aiodev.Array, aiodev.Array]:
    """By one launch, which makes the edges too."""
    low, high = _ends(bins, limits)
    x = astype(x, np.float32) if x.dtype == np.float16 else x
    key = bins, limits is None
    found: Any = _repeat(key, x, low, high, None)
    if found is not None:
        return found  # type: ignore[no-any-return]
    counts, parts = (aiodev.empty(size, np.int64, x.device) for size in (bins, bins + bodies.ROOM))
    edges = aiodev.empty(bins + 1, np.float64, x.device)
    args, takes = (bins, limits is None, low, high, flat(x), edges, parts, counts), (None, None, 1, 2, 0, 4, -1, 3)
    steps = [(bodies.count_few, 1, args, takes)]
    _launches.launch_all(key, (x, low, high), counts, steps, made=True, more=[edges])
    return counts, edges


def _densities(counts: aiodev.Array, edges: aiodev.Array) -> aiodev.Array:
    result = aiodev.empty(counts.size, np.float64, counts.device)
    bodies.densities[counts.size, aiodev.current_stream(counts.device)](counts, _sum(counts).reshape(1), edges, result)
    return result


def _ends(bins: int, limits: tuple[float, float] | None) -> tuple[float, float]:
    """The outermost edges; those of no elements where the elements say."""
    if bins < 1:
        raise ValueError(f"histogram: bins={bins}; expected at least one")
    if limits is None:
        return _UNIT
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"histogram: range={limits!r}; expected two finite numbers in ascending order")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _even_edges(x: aiodev.Array, bins: int, limits: tuple[float, float] | None) -> aiodev.Array:
    low, high = _ends(bins, limits)
    if limits is not None or not x.size:
        return aiodev.asarray(np.linspace(low, high, bins + 1), device=x.device)
    edges = aiodev.empty(bins + 1, np.float64, x.device)
    x = astype(x, np.float32) if x.dtype == np.float16 else x
    least, most = (extreme(x).reshape(1) for extreme in (_min, _max))
    bodies.even_edges[bins + 1, aiodev.current_stream(x.device)](bins, least, most, edges)
    return edges


def _given_edges(x: aiodev.Array, bins: Any, limits: tuple[float, float] | None) -> aiodev.Array:
    if limits is not None:
        raise ValueError("histogram: range is for a number of bins; here are their edges")
    if isinstance(bins, aiodev.Array):  # on the device: its order is the caller's to see to
        (_, edges) = arrays_of("histogram", x=x, bins=bins)
        if edges.ndim != 1 or edges.size < 2:
            raise ValueError(f"histogram: edges have the shape {edges.shape}; expected two or more, in one dimension")
        return flat(edges if edges.dtype == np.float64 else astype(edges, np.float64))
    host = np.asarray(bins, np.float64)
    if host.ndim != 1 or host.size < 2 or not (host[:-1] <= host[1:]).all():
        raise ValueError(f"histogram: bins={bins!r}; expected how many, or two or more edges in ascending order")
    return aiodev.asarray(host, device=x.device)


def _sample_histogram(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    for bins in (2, [0.0, 1.0, 2.0]):
        histogram(x, bins)
        histogram(x, bins, weights=x, density=True)
    histogram(aiodev.ones(_PIECE + 1, dtype=dtype), 2)


register_sample("histogram", _sample_histogram)
