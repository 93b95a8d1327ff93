"""Gradients of running totals: sums, and a recurrence, that run from the last element to the first."""

from __future__ import annotations

import math
from typing import Any

import aiodev
from aiodev.kernels.arguments import checked_axis
from aiodev.kernels.elementwise.table import multiply
from aiodev.kernels.manipulation.joining import concat
from aiodev.kernels.manipulation.views import flip
from aiodev.kernels.scans import cumulative_prod, cumulative_sum


def _part(x: Any, axis: int, part: slice) -> Any:
    return x[(slice(None),) * axis + (part,)]


def _axis_of(axis: int | None, ndim: int) -> int:
    return 0 if axis is None else checked_axis("gradient", axis, ndim)


def _sum_gradient(g: Any, shapes: Any, axis: int | None, include_initial: bool, exclusive: bool) -> aiodev.Array:
    at = _axis_of(axis, len(shapes["x"]))
    if include_initial:
        g = _part(g, at, slice(1, None))
    return flip(cumulative_sum(flip(g, axis=at), axis=at, exclusive=exclusive), axis=at)


@aiodev.kernel(reads=("factors", "x"))
def recur_rows(i: int, factors: Any, x: Any, out: Any) -> None:
    """One row: each result is its element, plus the result before it times its factor."""
    total = x.dtype.type(0)
    for k in range(x.shape[1]):
        total = x[i, k] + factors[i, k] * total
        out[i, k] = total


@aiodev.operation(reads=["factors", "x"], name="recurrence")
def recurrence(call: aiodev.Call, factors: aiodev.Array, x: aiodev.Array, /) -> aiodev.Array:
    """``y[k] = x[k] + factors[k] * y[k - 1]`` along the rows of matrices, the first of which has none before it."""
    result = call.new(x.shape, x.dtype)
    if result.size:
        call.launch(recur_rows, x.shape[0], factors, x, result)
    return result


def _recurrence_before(g: Any, factors: Any) -> aiodev.Array:
    """The gradient of ``x``: the recurrence from the last to the first, by the factors of what comes behind."""
    zero = aiodev.zeros((factors.shape[0], 1), factors.dtype, factors.device)
    behind = concat([zero, flip(factors[:, 1:], axis=1)], axis=1)
    return flip(recurrence(behind, flip(g, axis=1)), axis=1)


def _recurrence_factors(g: Any, factors: Any, result: Any) -> aiodev.Array:
    zero = aiodev.zeros((factors.shape[0], 1), factors.dtype, factors.device)
    return multiply(_recurrence_before(g, factors), concat([zero, result[:, :-1]], axis=1))


def _prod_gradient(g: Any, x: Any, axis: int | None, include_initial: bool, exclusive: bool) -> aiodev.Array:
    """``before[k] * s[k]`` with the products before each element, and ``s[k] = g[k] + x[k + 1] * s[k + 1]``; no division."""
    at = _axis_of(axis, x.ndim)
    if include_initial:
        g = _part(g, at, slice(1, None))
    order = [*(own for own in range(x.ndim) if own != at), at]
    rows, given = (a.transpose(*order) for a in (x, g))
    shape = rows.shape
    rows, given = (a.reshape(math.prod(shape[:-1]), shape[-1]) for a in (rows, given))
    if exclusive:  # what is behind an element by one
        given = concat([given[:, 1:], aiodev.zeros((given.shape[0], 1), g.dtype, g.device)], axis=1)
    gradient = multiply(cumulative_prod(rows, axis=1, exclusive=True), _recurrence_before(given, rows))
    gradient = gradient.reshape(shape)
    return gradient.transpose(*(order.index(own) for own in range(x.ndim)))


recurrence.operation.gradient(factors=_recurrence_factors, x=_recurrence_before)
cumulative_sum.operation.gradient(x=_sum_gradient)
cumulative_prod.operation.gradient(x=_prod_gradient)
