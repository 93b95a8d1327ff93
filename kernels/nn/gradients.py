"""Gradients of softmax, of normalisations along an axis, of convolutions, pooling, embedding and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.elementwise.table import add, divide, multiply, sqrt, subtract
from aiodev.kernels.elementwise.ufunc import differentiable
from aiodev.kernels.linalg.products import matmul, vecdot
from aiodev.kernels.manipulation.views import expand_dims
from aiodev.kernels.nn.attention import attention_weights, scale_of, scaled_dot_product_attention, widened
from aiodev.kernels.nn.convolution import conv2d, conv2d_of_input, conv2d_of_weight, pair
from aiodev.kernels.nn.embedding import embedding, embedding_of_weight
from aiodev.kernels.nn.normalization import layer_norm, layer_norm_gradients, log_softmax, rms_norm, softmax
from aiodev.kernels.nn.pooling import (
    avg_pool2d,
    avg_pool2d_of_input,
    largest_of_windows,
    max_pool2d,
    max_pool2d_of_input,
)
from aiodev.kernels.reductions import mean, sum, var

#: Of a row: its gradient, the result, and what is summed along the axis.
_softmax = differentiable("softmax_gradient", "({g0} - {total}) * {y}", ("g0", "total", "y"))
_log_softmax = differentiable("log_softmax_gradient", "{g0} - lang.exp({y}) * {total}", ("g0", "total", "y"))

#: Of a row that is divided by the root of its mean square; the mean of the former is the slope of the latter.
_rms_slope = differentiable(
    "rms_norm_slope", "{g0} * {weight} * np.divide({x}, {root})", ("g0", "weight", "x", "root")
)
_rms_row = differentiable(
    "rms_norm_gradient",
    "np.divide({g0} * {weight} - np.divide({x}, {root}) * {slope}, {root})",
    ("g0", "weight", "x", "root", "slope"),
)


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


def _for_squares(x: Any) -> tuple[Any, Any]:
    """The array as results are computed with, and in a dtype that has the squares of its elements and their sums, too."""
    (wide,) = widened(x)
    return wide, wide if x.dtype == np.float16 else astype(wide, np.float64, copy=False)


def _root(square: Any, eps: float, dtype: Any) -> aiodev.Array:
    """The root of a mean square, in the dtype of what it divides."""
    return astype(sqrt(add(square, eps)), dtype, copy=False)


def _normal(x: Any, axis: int, eps: float) -> tuple[aiodev.Array, aiodev.Array]:
    """The elements of layer normalisation, and the deviation that they were divided by."""
    x, spread = _for_squares(x)
    deviation = _root(var(spread, axis=axis, keepdims=True), eps, x.dtype)
    return divide(subtract(x, mean(x, axis=axis, keepdims=True)), deviation), deviation


@layer_norm.operation.gradient
def _layer_norm_gradient(g: Any, x: Any, weight: Any, shapes: Any, axis: int, eps: float) -> Any:
    """With ``n`` the normalised elements: ``(h - mean(h) - n mean(h n)) / σ`` for ``h = g weight``.

    Workers compute it in one pass over rows; on devices with a thread for each element that would have too few of them.
    """
    if x.size and not aiodev.capabilities(x.device).simt:
        made = layer_norm_gradients(g, x, weight, axis=axis, eps=eps)
        return made[0], None if weight is None else made[1], None if shapes["bias"] is None else made[2]
    normal, deviation = _normal(x, axis, eps)
    inner = widened(g)[0] if weight is None else multiply(g, _along(widened(weight)[0], x, axis))
    slope = divide(_summed(inner, normal, axis), float(x.shape[axis]))
    level = mean(inner, axis=axis, keepdims=True)
    of_x = divide(subtract(subtract(inner, level), multiply(normal, slope)), deviation)
    of_weight = None if weight is None else _across(multiply(g, normal), axis)
    of_bias = None if shapes["bias"] is None else _across(g, axis)
    return of_x, of_weight, of_bias


@layer_norm_gradients.operation.gradient
def _layer_norm_second_gradient(g: Any, grads: Any, x: Any, weight: Any, axis: int, eps: float) -> Any:
    """With ``F h`` what ``x`` gets from ``h``, linear and symmetric, and varying with ``n`` and ``σ``: ``dn = F dx``."""
    outer, g_weight, g_bias, grads, x, weight = widened(*g, grads, x, weight)
    g_weight, g_bias = _along(g_weight, x, axis), _along(g_bias, x, axis)
    inner = grads if weight is None else multiply(grads, _along(weight, x, axis))
    normal, deviation = _normal(x, axis, eps)
    back = layer_norm_gradients(outer, x, axis=axis, eps=eps)[0]
    length = float(x.shape[axis])
    slope, other, size = (divide(_summed(*both, axis), length) for both in ((inner, normal), (outer, normal), (inner, back)))
    turned = divide(add(multiply(outer, slope), multiply(inner, other)), deviation)
    of_x = layer_norm_gradients(subtract(multiply(grads, g_weight), turned), x, axis=axis, eps=eps)[0]
    of_x = subtract(of_x, divide(multiply(normal, size), deviation))
    of_grads = add(add(back if weight is None else multiply(back, _along(weight, x, axis)), multiply(normal, g_weight)), g_bias)
    return of_grads, of_x, None if weight is None else _across(multiply(grads, back), axis)


@rms_norm.operation.gradient
def _rms_norm_gradient(g: Any, x: Any, weight: Any, axis: int, eps: float) -> Any:
    """With ``r`` the root: ``h / r - x mean(h x) / r³`` for ``h = g weight``."""
    length = float(x.shape[axis])
    wide, spread = _for_squares(x)
    root = _root(divide(_summed(spread, spread, axis), length), eps, wide.dtype)
    factor = 1.0 if weight is None else _along(weight, x, axis)
    slope = mean(_rms_slope(g, factor, x, root), axis=axis, keepdims=True)
    return _rms_row(g, factor, x, root, slope), None if weight is None else _across(multiply(g, divide(x, root)), axis)


softmax.operation.gradient(x=_softmax_gradient)
log_softmax.operation.gradient(x=_log_softmax_gradient)


def _options(stride: Any, padding: Any, dilation: Any, groups: Any) -> dict[str, Any]:
    given = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1)}
    return {"groups": groups, **{name: pair("conv2d", name, value, least) for name, (value, least) in given.items()}}


def _conv2d_input(g: Any, weight: Any, shapes: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> aiodev.Array:
    return conv2d_of_input(g, weight, size=shapes["x"][2:], **_options(stride, padding, dilation, groups))


def _conv2d_weight(g: Any, x: Any, shapes: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> aiodev.Array:
    return conv2d_of_weight(g, x, window=shapes["weight"][2:], **_options(stride, padding, dilation, groups))


# The convolution, and what goes back to its images and to its windows, are each linear in two of three arrays: the gradients of
# each are the other two.
conv2d.operation.gradient(x=_conv2d_input, weight=_conv2d_weight, bias=lambda g: sum(g, axis=(0, 2, 3)))
conv2d_of_input.operation.gradient(
    grads=lambda g, weight, stride, padding, dilation, groups: conv2d(g, weight, **_options(stride, padding, dilation, groups)),
    weight=lambda g, grads, shapes, stride, padding, dilation, groups: conv2d_of_weight(
        grads, g, window=shapes["weight"][2:], **_options(stride, padding, dilation, groups)
    ),
)
conv2d_of_weight.operation.gradient(
    grads=lambda g, x, stride, padding, dilation, groups: conv2d(x, g, **_options(stride, padding, dilation, groups)),
    x=lambda g, grads, shapes, stride, padding, dilation, groups: conv2d_of_input(
        grads, g, size=shapes["x"][2:], **_options(stride, padding, dilation, groups)
    ),
)

# Where an element is the largest does not change by little.
max_pool2d.operation.gradient(
    x=lambda g, x, kernel_size, stride, padding, dilation: max_pool2d_of_input(
        g, x, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation
    )
)
max_pool2d_of_input.operation.gradient(
    grads=lambda g, x, kernel_size, stride, padding, dilation: largest_of_windows(
        g, x, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation
    )
)
largest_of_windows.operation.gradient(
    values=lambda g, x, kernel_size, stride, padding, dilation: max_pool2d_of_input(
        g, x, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation
    )
)
avg_pool2d.operation.gradient(
    x=lambda g, shapes, kernel_size, stride, padding, count_include_pad: avg_pool2d_of_input(
        g, size=shapes["x"][2:], kernel_size=kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
    )
)
avg_pool2d_of_input.operation.gradient(
    grads=lambda g, kernel_size, stride, padding, count_include_pad: avg_pool2d(
        g, kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
    )
)

embedding.operation.gradient(
    indices=None, weight=lambda g, indices, shapes: embedding_of_weight(g, indices, shape=shapes["weight"])
)
embedding_of_weight.operation.gradient(grads=lambda g, indices: embedding(indices, g), indices=None)


def _scores(g: Any, weights: Any) -> aiodev.Array:
    """The gradient of scores, from that of their weights."""
    return _softmax(g, _summed(g, weights, -1), weights)


@attention_weights.operation.gradient
def _weights_gradient(g: Any, query: Any, key: Any, mask: Any, result: Any, scale: float) -> Any:
    scores = _scores(g, result)
    scaled = multiply(scores, scale)
    added = scores if mask is not None and mask.dtype.kind != "b" else None
    return matmul(scaled, key), matmul(scaled.mT, query), added


@scaled_dot_product_attention.operation.gradient
def _attention_gradient(
    g: Any, query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None
) -> Any:
    """By way of the weights, which are computed again."""
    factor = scale_of("scaled_dot_product_attention", scale, query.shape[-1])
    g, query, key, value, attn_mask = widened(g, query, key, value, attn_mask)
    weights = attention_weights(query, key, attn_mask, is_causal=bool(is_causal), scale=factor)
    scores = _scores(matmul(g, value.mT), weights)
    scaled = multiply(scores, factor)
    added = scores if attn_mask is not None and attn_mask.dtype.kind != "b" else None
    return matmul(scaled, key), matmul(scaled.mT, query), matmul(weights.mT, g), added
