"""Gradients of softmax and of normalisations along an axis."""

from __future__ import annotations

from typing import Any

import aiodev
from aiodev.kernels.elementwise.table import add, divide, multiply, sqrt, subtract
from aiodev.kernels.elementwise.ufunc import differentiable
from aiodev.kernels.linalg.products import vecdot
from aiodev.kernels.manipulation.views import expand_dims
from aiodev.kernels.nn.normalization import layer_norm, log_softmax, rms_norm, softmax
from aiodev.kernels.reductions import mean, sum, var

#: Of a row: its gradient, the result, and what is summed along the axis.
_softmax = differentiable("softmax_gradient", "({g0} - {total}) * {y}", ("g0", "total", "y"))
_log_softmax = differentiable("log_softmax_gradient", "{g0} - lang.exp({y}) * {total}", ("g0", "total", "y"))


def _summed(first: Any, second: Any, axis: int) -> aiodev.Array:
    """The sums of products along an axis, which stays as one of length 1."""
    at = axis % first.ndim
    return expand_dims(vecdot(first, second, axis=at), axis=at)


def _softmax_gradient(g: Any, result: Any, axis: int) -> aiodev.Array:
    return _softmax(g, _summed(g, result, axis), result)


def _log_softmax_gradient(g: Any, result: Any, axis: int) -> aiodev.Array:
    return _log_softmax(g, sum(g, axis=axis, keepdims=True), result)


def _along(factor: Any, x: Any, axis: int) -> Any:
    """A factor of each element along the axis, so that it broadcasts."""
    at = axis % x.ndim
    return factor if at == x.ndim - 1 else factor.reshape(-1, *(1,) * (x.ndim - 1 - at))


def _across(g: Any, axis: int) -> aiodev.Array:
    """The sums over all other axes."""
    at = axis % g.ndim
    others = tuple(own for own in range(g.ndim) if own != at)
    return sum(g, axis=others) if others else g


@layer_norm.operation.gradient
def _layer_norm_gradient(g: Any, x: Any, weight: Any, shapes: Any, axis: int, eps: float) -> Any:
    """With ``n`` the normalised elements: ``(h - mean(h) - n mean(h n)) / σ`` for ``h = g weight``."""
    deviation = sqrt(add(var(x, axis=axis, keepdims=True), eps))
    normal = divide(subtract(x, mean(x, axis=axis, keepdims=True)), deviation)
    inner = g if weight is None else multiply(g, _along(weight, x, axis))
    slope = divide(_summed(inner, normal, axis), float(x.shape[axis]))
    level = mean(inner, axis=axis, keepdims=True)
    of_x = divide(subtract(subtract(inner, level), multiply(normal, slope)), deviation)
    of_weight = None if weight is None else _across(multiply(g, normal), axis)
    of_bias = None if shapes["bias"] is None else _across(g, axis)
    return of_x, of_weight, of_bias


@rms_norm.operation.gradient
def _rms_norm_gradient(g: Any, x: Any, weight: Any, axis: int, eps: float) -> Any:
    """With ``r`` the root: ``h / r - x mean(h x) / r³`` for ``h = g weight``."""
    length = float(x.shape[axis])
    root = sqrt(add(divide(_summed(x, x, axis), length), eps))
    normal = divide(x, root)
    inner = g if weight is None else multiply(g, _along(weight, x, axis))
    of_x = divide(subtract(inner, multiply(normal, divide(_summed(inner, normal, axis), length))), root)
    return of_x, None if weight is None else _across(multiply(g, normal), axis)


softmax.operation.gradient(x=_softmax_gradient)
log_softmax.operation.gradient(x=_log_softmax_gradient)
