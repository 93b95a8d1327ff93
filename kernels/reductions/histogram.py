"""Counting in bins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, arrays_of, flags
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.indexing.search import flat
from aiodev.kernels.reductions import histogram_bodies as bodies, max as _max, min as _min, sum as _sum
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.warmup import register_sample

__all__ = ["histogram"]

#: Elements that are counted in bins of their own, at least; and how many bins there may be in all.
_PIECE, _MOST_BINS = 1 << 16, 1 << 22
#: Of one piece, under (how many bins, whether their range is that of the elements, whether densities are wanted): of the
#: elements, the weights, and the ends of the range; or of the edges and nothing, under (None, False, …).
_launches = aiodev.LaunchCache(4)
_repeat: Any = _launches.repeat  # it returns two arrays where it is to make edges
_UNIT = 0.0, 1.0
_SCRATCH = -1


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
    found: tuple[aiodev.Array, aiodev.Array] | None
    if bins.__class__ is int:
        try:
            low, high = _UNIT if range is None else range
            plain = bins > 0 and 0 < high - low < math.inf
        except (TypeError, ValueError):
            plain = False
        if plain:
            found = _repeat((bins, range is None, density), x, weights, low, high, None)
            if found is not None:
                return found
    elif bins.__class__ is aiodev.Array and range is None:
        known = _repeat((None, False, density), x, weights, bins, None, None)
        if known is not None:
            return known, bins
    if weights is None:
        array_of("histogram", x)
    else:
        arrays_of("histogram", x=x, weights=weights)
    flags("histogram", density=density)
    if x.dtype.kind == "c" or (weights is not None and weights.dtype.kind == "c"):
        raise TypeError("histogram: complex numbers have no order")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"histogram: weights have the shape {weights.shape}, x {x.shape}")
    if even := isinstance(bins, int | np.integer):
        bins = int(bins)
    if x.size <= _PIECE and not has_teams(x.device):
        return _count_few(x, bins, range, weights, bool(density))
    edges = _even_edges(x, bins, range) if isinstance(bins, int) else _given_edges(x, bins, range)
    stream, number = aiodev.current_stream(x.device), edges.size - 1
    pieces = max(1, min(math.ceil(x.size / _PIECE), _MOST_BINS // number))
    piece = max(1, math.ceil(x.size / pieces))
    total = np.dtype(np.int64 if weights is None else np.float64)
    first, room = (1, bodies.ROOM) if even and weights is None else (0, 0)
    parts = aiodev.empty(pieces * (number + room), total, x.device)
    elements = flat(astype(x, dtypes.compute_dtype(x.dtype), copy=False))
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


def _count_few(
    x: aiodev.Array, bins: Any, limits: Any, weights: aiodev.Array | None, density: bool
) -> tuple[aiodev.Array, aiodev.Array]:
    """By one index, which makes the edges too; and by another where densities are wanted."""
    even = bins.__class__ is int
    low: Any
    high: Any
    low, high = _ends(bins, limits) if even else (_given_edges(x, bins, limits), None)
    x = astype(x, dtypes.compute_dtype(x.dtype), copy=False)
    if weights is not None:
        weights = astype(weights, dtypes.compute_dtype(weights.dtype), copy=False)
    key, operands = (bins if even else None, even and limits is None, density), (x, weights, low, high)
    found: Any = _repeat(key, *operands, None)
    if found is not None:
        return found if even else (found, low)
    edges = aiodev.empty(bins + 1, np.float64, x.device) if even else low
    counts = aiodev.empty(edges.size - 1, np.int64 if weights is None else np.float64, x.device)
    result = aiodev.empty(counts.size, np.float64, x.device) if density else counts
    counts_are, edges_are = _SCRATCH if density else 4, 5 if even else 2
    sizes: tuple[Any, ...] = (bins, limits is None, low, high) if even else (x.size, counts.size)
    arrays, takes = [flat(x)], [*((None, None, 2, 3) if even else (None, None)), 0]
    if weights is not None:
        kernel = bodies.weigh_few if even else bodies.weigh_uneven
        arrays, takes = [*arrays, flat(weights), edges], [*takes, 1, edges_are]
    elif even:
        parts = aiodev.empty(bins + bodies.ROOM, np.int64, x.device)
        kernel, arrays, takes = bodies.count_few, [*arrays, edges, parts], [*takes, edges_are, _SCRATCH]
    else:
        kernel, arrays, takes = bodies.count_uneven, [*arrays, edges], [*takes, edges_are]
    steps: list[Any] = [(kernel, 1, (*sizes, *arrays, counts), (*takes, counts_are))]
    if density:
        steps.append((bodies.densities_few, 1, (counts, edges, result), (_SCRATCH, edges_are, 4)))
    _launches.launch_all(key, operands, result, steps, made=True, more=[edges] if even else [])
    return result, edges


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
    x = astype(x, dtypes.compute_dtype(x.dtype), copy=False)
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
    try:
        host = np.asarray(bins, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"histogram: bins: expected how many, or their edges, got {type(bins).__name__}") from None
    if host.ndim != 1 or host.size < 2 or not (host[:-1] <= host[1:]).all():
        raise ValueError(f"histogram: bins={bins!r}; expected how many, or two or more edges in ascending order")
    return aiodev.asarray(host, device=x.device)


def _sample_histogram(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    many = aiodev.ones(_PIECE + 1, dtype=dtype)
    for bins in (2, [0.0, 1.0, 2.0]):
        histogram(x, bins)
        histogram(x, bins, weights=x, density=True)
        histogram(many, bins)
        histogram(many, bins, weights=many, density=True)


register_sample("histogram", _sample_histogram)
