"""Gradients of what is taken: added up where it was taken from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import checked_axis, repeated
from aiodev.kernels.elementwise.conversion import astype, convert_elements, of_parts, where
from aiodev.kernels.elementwise.table import imag, not_equal, real, subtract
from aiodev.kernels.indexing import bodies, search
from aiodev.kernels.indexing.put import scatter_add
from aiodev.kernels.indexing.search import searchsorted
from aiodev.kernels.indexing.take import middle, mode_of, take, take_along_axis
from aiodev.kernels.scans import cumulative_sum
from aiodev.kernels.sorting import argsort, sort

__all__ = ["scattered", "scattered_places"]


@aiodev.operation(reads=["values", "indices"], name="scatter")
def scattered(
    call: aiodev.Call, values: aiodev.Array, indices: aiodev.Array, /, *, shape: tuple[int, ...], axis: int | None, mode: str
) -> aiodev.Array:
    """Zeros of a shape, with values added at indices along an axis."""
    if not values.size:
        return aiodev.zeros(shape, values.dtype, values.device)
    if values.dtype.kind == "c":  # whose parts are added atomically, by themselves
        parts = [scattered(part(values), indices, shape=shape, axis=axis, mode=mode) for part in (real, imag)]
        return of_parts(*parts)
    result = aiodev.zeros(shape, dtypes.compute_dtype(values.dtype), values.device)  # and rounded once
    return astype(scatter_add(result, indices, values, axis=axis, mode=mode), values.dtype, copy=False)


scattered.operation.gradient(
    values=lambda g, indices, axis, mode: take(g, indices, axis=axis, mode=mode)
)


@aiodev.operation(reads=["values", "indices"], name="scatter_along_axis")
def scattered_along(
    call: aiodev.Call, values: aiodev.Array, indices: aiodev.Array, /, *, length: int, axis: int, mode: str
) -> aiodev.Array:
    """Zeros, of ``length`` along the axis, with values added where their own indices along it say."""
    at = checked_axis("scatter_along_axis", axis, values.ndim)
    out = call.new((*values.shape[:at], length, *values.shape[at + 1 :]), values.dtype)
    if out.size:
        sums = call.scratch(out.shape, dtypes.compute_dtype(out.dtype)) if dtypes.is_stored_only(out.dtype) else out
        arrays = [middle(call, x, at) for x in (repeated(indices, values.shape), values, sums)]
        call.launch(bodies.add_along, (arrays[2].shape[0], arrays[2].shape[2]), mode_of("take_along_axis", mode), *arrays)
        if sums is not out:
            call.launch(convert_elements, out.size, sums.reshape(out.size), out.reshape(out.size))
    return out


scattered_along.operation.gradient(
    values=lambda g, indices, axis, mode: take_along_axis(g, indices, axis=axis, mode=mode)
)


def scattered_places(
    g: aiodev.Array, shape: tuple[int, ...], choose: Callable[[aiodev.Array], aiodev.Array]
) -> aiodev.Array:
    """Zeros of a shape, with a gradient added at the elements of which ``choose`` makes as many as there are gradients."""
    size = math.prod(shape)
    if not g.size:
        return aiodev.zeros(shape, g.dtype, g.device)
    places = choose(aiodev.arange(size, dtype=np.int64, device=g.device).reshape(shape))
    flat = scattered(g.reshape(g.size), places.reshape(g.size), shape=(size,), axis=0, mode="raise")
    return flat.reshape(shape)


def _take_gradient(g: Any, indices: Any, shapes: Any, axis: int | None, mode: str) -> aiodev.Array:
    shape = shapes["x"]
    if axis is None:
        return scattered(g, indices, shape=(math.prod(shape),), axis=0, mode=mode).reshape(shape)
    return scattered(g, indices, shape=shape, axis=checked_axis("take", axis, len(shape)), mode=mode)


def _sort_gradient(g: Any, x: Any, axis: int, descending: bool) -> aiodev.Array:
    """What the order of the elements has moved, moved back: by the order of that order."""
    order = argsort(x, axis=axis, descending=descending)
    return take_along_axis(g, argsort(order, axis=axis), axis=axis)


def _gather_gradient(g: aiodev.Array, mask: aiodev.Array) -> aiodev.Array:
    """Each selected element's, which is where as many were selected as up to it."""
    if not mask.size:
        return g
    chosen = not_equal(mask, 0)
    last = subtract(cumulative_sum(chosen, dtype=np.int64), 1)
    return where(chosen, take(g, last, mode="clip"), 0.0)


search._gather.operation.gradient(mask=None, x=_gather_gradient, starts=None)
search._gather.operation.holomorphic = True
take.operation.gradient(x=_take_gradient)
take_along_axis.operation.gradient(
    x=lambda g, indices, shapes, axis, mode: scattered_along(
        g, indices, length=shapes["x"][axis], axis=axis, mode=mode
    )
)
sort.operation.gradient(x=_sort_gradient)
argsort.operation.gradient(x=None)
searchsorted.operation.gradient(x1=None, x2=None)
