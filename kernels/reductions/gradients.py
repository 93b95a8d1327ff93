"""Gradients of reductions: what is reduced is spread over the axes again."""

from __future__ import annotations

import functools
import math
from typing import Any

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import checked_axis
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.elementwise.table import divide, equal, multiply, subtract
from aiodev.kernels.elementwise.ufunc import differentiable
from aiodev.kernels.manipulation.joining import concat
from aiodev.kernels.manipulation.views import flip
from aiodev.kernels.reductions import all, any, argmax, argmin, count_nonzero, max, mean, min, prod, std, sum, var
from aiodev.kernels.reductions.launch import Axis
from aiodev.kernels.scans import cumulative_prod

__all__ = ["broadcast_back"]

Shape = tuple[int, ...]


def _axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that are reduced, from the first."""
    given = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(checked_axis("gradient", own, ndim) for own in given)


def broadcast_back(g: aiodev.Array, shape: Shape, axis: Axis, keepdims: bool) -> aiodev.Array:
    """What was reduced, as a view of the shape before, in which each element stands for all that it was made of."""
    if not keepdims and axis is not None and g.ndim != len(shape):
        axes = _axes(axis, len(shape))
        g = g.reshape(tuple(1 if place in axes else length for place, length in enumerate(shape)))
    return aiodev.broadcast_to(g, shape)


@functools.lru_cache(maxsize=1024)
def _count(shape: Shape, axis: Axis) -> int:
    return math.prod(shape[own] for own in _axes(axis, len(shape)))


def _extreme_gradient(g: Any, x: Any, result: Any, axis: Axis, keepdims: bool) -> aiodev.Array:
    """Elements that are the extreme share its gradient."""
    chosen = equal(x, broadcast_back(result, x.shape, axis, keepdims))
    number = count_nonzero(chosen, axis=axis, keepdims=keepdims)
    share = astype(divide(g, number), g.dtype)  # of float64, as a dtype of two bytes may not have the number
    return multiply(astype(chosen, g.dtype), broadcast_back(share, x.shape, axis, keepdims))


def _prod_gradient(g: Any, x: Any, axis: Axis, keepdims: bool) -> aiodev.Array:
    """The products of all other elements: of those before, times those behind. None is divided by, so one may be 0."""
    axes = _axes(axis, x.ndim)
    kept = [own for own in range(x.ndim) if own not in axes]
    order = [*kept, *axes]
    rows = x.transpose(*order) if order else x
    shape = rows.shape
    rows = rows.reshape(math.prod(shape[: len(kept)]), math.prod(shape[len(kept) :]))
    if rows.size:
        first = aiodev.ones((rows.shape[0], 1), x.dtype, x.device)
        before = cumulative_prod(concat([first, rows[:, :-1]], axis=1), axis=1)
        behind = flip(cumulative_prod(concat([first, flip(rows[:, 1:], axis=1)], axis=1), axis=1), axis=1)
        others = multiply(before, behind)
    else:
        others = rows
    others = others.reshape(shape)
    if order:
        others = others.transpose(*(order.index(own) for own in range(x.ndim)))
    return multiply(broadcast_back(g, x.shape, axis, keepdims), others)


def _var_gradient(g: Any, x: Any, axis: Axis, correction: float, keepdims: bool) -> aiodev.Array:
    """Infinite, or NaN, where a correction leaves no elements to divide by, as the variance is."""
    freedom = _count(x.shape, axis) - correction
    scaled = multiply(g, 2.0 / freedom if freedom > 0 else math.inf) if x.size else g
    return multiply(broadcast_back(scaled, x.shape, axis, keepdims), subtract(x, mean(x, axis=axis, keepdims=True)))


#: The gradient of a variance whose root the result is; 0 where that is, as in PyTorch.
_of_root = differentiable(
    "std_gradient", "np.float32(0) if {root} == 0 else np.divide({slope}, {root} + {root})", ("slope", "root")
)


def _std_gradient(g: Any, x: Any, result: Any, axis: Axis, correction: float, keepdims: bool) -> aiodev.Array:
    return _var_gradient(_of_root(g, result), x, axis, correction, keepdims)


def _mean_gradient(g: Any, shapes: Any, axis: Axis, keepdims: bool) -> aiodev.Array:
    """Each element's share, of which the factor is rounded once, with the gradient."""
    count = _count(shapes["x"], axis)
    if g.size and count:
        wide = astype(g, dtypes.compute_dtype(g.dtype), copy=False)
        g = astype(multiply(wide, 1.0 / count), g.dtype, copy=False)
    return broadcast_back(g, shapes["x"], axis, keepdims)


sum.operation.gradient(x=lambda g, shapes, axis, keepdims: broadcast_back(g, shapes["x"], axis, keepdims))
mean.operation.gradient(x=_mean_gradient)
prod.operation.gradient(x=_prod_gradient)
max.operation.gradient(x=_extreme_gradient)
min.operation.gradient(x=_extreme_gradient)
var.operation.gradient(x=_var_gradient)
std.operation.gradient(x=_std_gradient)
for _constant in (all, any, argmax, argmin, count_nonzero):
    _constant.operation.gradient(x=None)
