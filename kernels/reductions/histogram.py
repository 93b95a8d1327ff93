"""Histograms and counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, flags
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.reductions import histogram_bodies as bodies, max as _max, min as _min, sum as _sum
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import COUNTED_EACH, MOST_BINS
from aiodev.kernels.warmup import register_sample

__all__ = ["histogram"]

_UNIT, _WHOLE = (0.0, 1.0), (int, np.integer)


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
    if isinstance(bins, _WHOLE):
        low, high = _UNIT if range is None else _ends(range)
        return _count_even(x, low, high, weights, bins, range is None, density)
    if range is not None:
        raise ValueError("histogram: range is for a number of bins; here are their edges")
    if bins.__class__ is aiodev.Array:
        return _count_between(x, bins, weights, density)
    array_of("histogram", x)
    return _count_between(x, aiodev.asarray(_checked_edges(bins), device=x.device), weights, density)


@aiodev.operation(reads=["x", "weights"], numbers=["low", "high"], name="histogram")
def _count_even(
    call: aiodev.Call,
    x: aiodev.Array,
    low: float,
    high: float,
    weights: aiodev.Array | None = None,
    bins: int | np.integer[Any] = 10,
    measured: bool = False,
    density: bool = False,
    /,
) -> tuple[aiodev.Array, aiodev.Array]:
    """Count in bins of one width, from the least to the greatest element if they are ``measured``."""
    flags(call.name, density=density)
    bins = int(bins)
    if bins < 1:
        raise ValueError(f"histogram: bins={bins}; expected at least one")
    elements = _elements(call, x, weights)
    if x.size > COUNTED_EACH or has_teams(x.device):
        edges = _even_edges(call, elements, bins, low, high, measured)
        return _count_many(call, elements, edges, weights, even=True, density=density), edges
    edges, total = call.new(bins + 1, np.float64), np.dtype(np.int64 if weights is None else np.float64)
    counts = call.scratch(bins, total) if density else call.new(bins, total)
    sizes = bins, measured, low, high
    if weights is None:
        parts = call.scratch(bins + bodies.ROOM, np.int64)
        call.launch(bodies.count_few, 1, *sizes, elements, edges, parts, counts)
    else:
        call.launch(bodies.weigh_few, 1, *sizes, elements, _single(call, weights), edges, counts)
    return _densities_of_few(call, counts, edges) if density else counts, edges


@aiodev.operation(reads=["x", "bins", "weights"], name="histogram")
def _count_between(
    call: aiodev.Call,
    x: aiodev.Array,
    bins: aiodev.Array,
    weights: aiodev.Array | None = None,
    density: bool = False,
    /,
) -> tuple[aiodev.Array, aiodev.Array]:
    """Count between edges; on the device their order is the caller's to see to."""
    flags(call.name, density=density)
    elements = _elements(call, x, weights)
    if bins.ndim != 1 or bins.size < 2:
        raise ValueError(f"histogram: edges have the shape {bins.shape}; expected two or more, in one dimension")
    edges = call.packed(convert(call, bins, np.dtype(np.float64)))
    if x.size > COUNTED_EACH or has_teams(x.device):
        return _count_many(call, elements, edges, weights, even=False, density=density), edges
    number, total = edges.size - 1, np.dtype(np.int64 if weights is None else np.float64)
    counts = call.scratch(number, total) if density else call.new(number, total)
    if weights is None:
        call.launch(bodies.count_uneven, 1, x.size, number, elements, edges, counts)
    else:
        call.launch(bodies.weigh_uneven, 1, x.size, number, elements, _single(call, weights), edges, counts)
    return _densities_of_few(call, counts, edges) if density else counts, edges


def _elements(call: aiodev.Call, x: aiodev.Array, weights: aiodev.Array | None) -> aiodev.Array:
    """What is counted, in one dimension.

    Raises:
        TypeError: complex numbers.
        ValueError: there are not as many weights.
    """
    if x.dtype.kind == "c" or (weights is not None and weights.dtype.kind == "c"):
        raise TypeError("histogram: complex numbers have no order")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"histogram: weights have the shape {weights.shape}, x {x.shape}")
    return _single(call, x)


def _single(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
    return convert(call, call.reshape(x, x.size), dtypes.compute_dtype(x.dtype))


def _count_many(
    call: aiodev.Call,
    x: aiodev.Array,
    edges: aiodev.Array,
    weights: aiodev.Array | None,
    *,
    even: bool,
    density: bool,
) -> aiodev.Array:
    """By many indices, each of which has bins of its own."""
    number = edges.size - 1
    pieces = max(1, min(math.ceil(x.size / COUNTED_EACH), MOST_BINS // number))
    piece = max(1, math.ceil(x.size / pieces))
    total = np.dtype(np.int64 if weights is None else np.float64)
    first, room = (1, bodies.ROOM) if even and weights is None else (0, 0)
    are_parts = pieces > 1 or room > 0
    parts = call.scratch(pieces * (number + room), total) if are_parts else call.new(number, total)
    if weights is None:
        kernel = bodies.count_even if even else bodies.count_uneven
        call.launch(kernel, pieces, piece, number, x, edges, parts)
    else:
        kernel = bodies.weigh_even if even else bodies.weigh_uneven
        call.launch(kernel, pieces, piece, number, x, convert(call, call.reshape(weights, x.size), total), edges, parts)
    counts = parts
    if are_parts:
        counts = call.new(number, total)
        call.launch(bodies.add_parts, number, pieces, number + room, first, parts, counts)
    if not density:
        return counts
    result = call.new(number, np.float64)
    call.launch(bodies.densities, number, counts, _sum(counts).reshape(1), edges, result)
    return result


def _densities_of_few(call: aiodev.Call, counts: aiodev.Array, edges: aiodev.Array) -> aiodev.Array:
    result = call.new(counts.size, np.float64)
    call.launch(bodies.densities_few, 1, counts, edges, result)
    return result


def _ends(limits: tuple[float, float]) -> tuple[float, float]:
    """The outermost edges."""
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"histogram: range={limits!r}; expected two finite numbers in ascending order")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _even_edges(
    call: aiodev.Call, x: aiodev.Array, bins: int, low: float, high: float, measured: bool
) -> aiodev.Array:
    if not measured or not x.size:
        ends = call.number(low).value, call.number(high).value
        return aiodev.asarray(np.linspace(*ends, bins + 1), device=x.device)
    edges = call.new(bins + 1, np.float64)
    least, most = (extreme(x).reshape(1) for extreme in (_min, _max))
    call.launch(bodies.even_edges, bins + 1, bins, least, most, edges)
    return edges


def _checked_edges(bins: Any) -> np.ndarray[Any, Any]:
    try:
        edges = np.asarray(bins, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"histogram: bins: expected how many, or their edges, got {type(bins).__name__}") from None
    if edges.ndim != 1 or edges.size < 2 or not (edges[:-1] <= edges[1:]).all():
        raise ValueError(f"histogram: bins={bins!r}; expected how many, or two or more edges in ascending order")
    return edges


def _sample_histogram(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    many = aiodev.ones(COUNTED_EACH + 1, dtype=dtype)
    for bins in (2, [0.0, 1.0, 2.0]):
        histogram(x, bins)
        histogram(x, bins, weights=x, density=True)
        histogram(many, bins)
        histogram(many, bins, weights=many, density=True)


register_sample("histogram", _sample_histogram)
