"""Attention: means of values, weighted by how well each query fits the values' keys."""

# What is called in bodies is numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Any

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import as_float, broadcast, flags, repeated
from aiodev.kernels.elementwise.conversion import astype, convert, convert_elements
from aiodev.kernels.linalg.products import multiply_into
from aiodev.kernels.nn.bodies import exponentials, largest, scale_all
from aiodev.kernels.nn.normalization import softmax_of_rows
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import ATTENDED_EACH
from aiodev.kernels.warmup import register_sample

__all__ = ["attention_weights", "scale_of", "scaled_dot_product_attention", "widened"]

#: What a mask is: none, of truth values, of numbers that are added.
NONE, CHOSEN, ADDED = range(3)
_SUMS = frozenset({"reassoc", "contract"})


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=["mask"])
def weigh_rows(i: int, group: int, causal: bool, kind: int, mask: Any, scores: Any) -> None:
    """Some rows of scores, of queries in turn, to weights: a row where nothing may be seen is 0."""
    queries = scores.shape[1]
    for at in range(i * group, min(scores.shape[0] * queries, (i + 1) * group)):
        row = scores[at // queries, at % queries]
        count = min(row.size, at % queries + 1) if causal else row.size
        seen, rest = row[:count], row[count:]
        for k in range(rest.size):
            rest[k] = 0
        if kind != NONE:
            own = mask[at // queries, at % queries]
            for k in range(seen.size):
                if kind == ADDED:
                    seen[k] += own[k]
                elif own[k] == 0:
                    seen[k] = -math.inf
        top = largest(seen)
        if top == -math.inf:
            for k in range(seen.size):
                seen[k] = 0
        else:
            scale_all(seen, 1 / exponentials(seen, seen, True, top))


def is_hidden(causal, kind, mask, stack, query, key):
    """Whether a query may not see a key."""
    if causal and key > query:
        return True
    return kind != NONE and mask[stack, query, key] == (0 if kind == CHOSEN else -math.inf)


@aiodev.kernel(ndim=3, reads=["mask"])
def hide_scores(stack: int, query: int, key: int, causal: bool, kind: int, mask: Any, scores: Any) -> None:
    """One score, with what is added to it, or infinitely small."""
    if is_hidden(causal, kind, mask, stack, query, key):
        scores[stack, query, key] = -math.inf
    elif kind == ADDED:
        scores[stack, query, key] += mask[stack, query, key]


@aiodev.kernel(ndim=3, reads=["mask"])
def clear_hidden(stack: int, query: int, key: int, causal: bool, kind: int, mask: Any, weights: Any) -> None:
    """One weight: 0 where it is hidden, also in a row where nothing else is."""
    if is_hidden(causal, kind, mask, stack, query, key):
        weights[stack, query, key] = 0


@aiodev.kernel(uniform=True)
def scale_elements(i: int, factor: Any, x: Any, out: Any) -> None:
    """One feature of a query."""
    out[i] = x[i] * factor


@aiodev.operation(reads=["query", "key", "mask"])
def attention_weights(
    call: aiodev.Call,
    query: aiodev.Array,
    key: aiodev.Array,
    mask: aiodev.Array | None = None,
    /,
    *,
    is_causal: bool,
    scale: float,
) -> aiodev.Array:
    """The weights, a matrix for each of the stack: rows are of queries, columns of keys."""
    weights = call.new(_shape_of_weights(call, query, key, mask), query.dtype)
    _weigh(call, query, key, mask, is_causal, scale, weights)
    return weights


def _shape_of_weights(
    call: aiodev.Call, query: aiodev.Array, key: aiodev.Array, mask: aiodev.Array | None
) -> tuple[int, ...]:
    masked = () if mask is None else mask.shape[:-2]
    return *broadcast(call.name, query.shape[:-2], key.shape[:-2], masked), query.shape[-2], key.shape[-2]


def _weigh(
    call: aiodev.Call,
    query: aiodev.Array,
    key: aiodev.Array,
    mask: aiodev.Array | None,
    is_causal: bool,
    scale: float,
    weights: aiodev.Array,
) -> None:
    """Compute the weights of queries into an array of the dtype that they are computed with, without gaps."""
    if not weights.size:
        return
    dtype, (queries, keys) = weights.dtype, weights.shape[-2:]
    scaled = call.scratch(query.shape, dtype)
    if query.size:
        given = call.reshape(convert(call, query, dtype), query.size)
        call.launch(scale_elements, query.size, dtype.type(scale), given, scaled.reshape(query.size))
    if mask is not None:
        scaled = repeated(scaled, (*weights.shape[:-1], query.shape[-1]))
    multiply_into(call, scaled, convert(call, key.mT, dtype), weights, dtype)
    rows = math.prod(weights.shape[:-1])
    flat = weights.reshape(rows // queries, queries, keys)
    kind, given = NONE, flat
    if mask is not None:
        kind = CHOSEN if mask.dtype.kind == "b" else ADDED
        given = mask if kind == CHOSEN else convert(call, mask, dtype)
        given = call.reshape(repeated(given, weights.shape), flat.shape)
    if has_teams(call.device):
        if is_causal or kind != NONE:
            call.launch(hide_scores, flat.shape, is_causal, kind, given, flat)
        matrix = flat.reshape(rows, keys)
        softmax_of_rows(call, matrix, matrix, False, True)
        if kind != NONE:
            call.launch(clear_hidden, flat.shape, is_causal, kind, given, flat)
        return
    group = max(1, ATTENDED_EACH // keys)
    call.launch(weigh_rows, -(-rows // group), group, is_causal, kind, given, flat)


@aiodev.operation(reads=["query", "key", "value", "attn_mask"])
def scaled_dot_product_attention(
    call: aiodev.Call,
    query: aiodev.Array,
    key: aiodev.Array,
    value: aiodev.Array,
    /,
    attn_mask: aiodev.Array | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> aiodev.Array:
    """``softmax(query @ key.mT * scale + attn_mask) @ value``, of stacks of matrices, with PyTorch's names.

    The softmax is relative to the largest score, so it cannot overflow. ``float16`` and ``bfloat16`` are computed with in
    ``float32``. A query that may see no key gets 0. For the gradient
    nothing is kept but the operands: the weights, of which there are as many as queries times keys, are computed again.

    Args:
        query: of the shape (…, queries, features).
        key: of the shape (…, keys, features).
        value: of the shape (…, keys, results).
        attn_mask: broadcasts to (…, queries, keys): truth values, where a key may be seen, or numbers that are added to scores.
        is_causal: whether a query sees the keys up to its own place only; beside a mask both hold.
        scale: what products are multiplied with; by default one over the square root of the number of features.

    Raises:
        ValueError: shapes do not fit, or there are fewer than two dimensions.
        TypeError: the dtypes differ, or are of no real floating point; ``scale`` is no real number.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, 0.0], [0.0, 1.0]], device="cpu")
        >>> aiodev.kernels.scaled_dot_product_attention(x, x, x, is_causal=True, scale=1.0).numpy_blocking().round(3)
        array([[1.   , 0.   ],
               [0.269, 0.731]])
    """
    flags(call.name, is_causal=is_causal)
    dtype = query.dtype
    for own, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise ValueError(f"{call.name}: argument {own}: expected at least 2 dimensions, got the shape {x.shape}")
        if dtypes.kind(x.dtype) != "f" or x.dtype != query.dtype:
            raise TypeError(
                f"{call.name}: argument {own}: expected real numbers of floating point, all of one dtype, got {x.dtype}; "
                f"aiodev.kernels.astype converts"
            )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(f"{call.name}: the shapes {query.shape}, {key.shape} and {value.shape} do not fit")
    stack = broadcast(call.name, query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if attn_mask is not None:
        shape = *stack, query.shape[-2], key.shape[-2]
        if broadcast(f"{call.name}: attn_mask", attn_mask.shape, shape) != shape:
            raise ValueError(f"{call.name}: attn_mask has the shape {attn_mask.shape}, which does not broadcast to {shape}")
        if attn_mask.dtype.kind != "b" and attn_mask.dtype != query.dtype:
            raise TypeError(f"{call.name}: attn_mask is {attn_mask.dtype}: expected truth values, or {query.dtype}")
    factor, computed = scale_of(call.name, scale, query.shape[-1]), dtypes.compute_dtype(dtype)
    result = call.new((*stack, query.shape[-2], value.shape[-1]), dtype)
    if result.size:
        weights = call.scratch(_shape_of_weights(call, query, key, attn_mask), computed)
        _weigh(call, query, key, attn_mask, bool(is_causal), factor, weights)
        sums = result if dtype == computed else call.scratch(result.shape, computed)
        multiply_into(call, weights, convert(call, value, computed), sums, computed)
        if sums is not result:
            call.launch(convert_elements, sums.size, sums.reshape(sums.size), result.reshape(sums.size))
    return result


def widened(*arrays: Any) -> Any:
    """What is stored in two bytes as what it is computed with: scores are large, and their differences count."""
    return [
        x if x is None or x.dtype.kind == "b" else astype(x, dtypes.compute_dtype(x.dtype), copy=False) for x in arrays
    ]


def scale_of(function: str, scale: float | None, features: int) -> float:
    """What products are multiplied with.

    Raises:
        TypeError: it is no real number.
    """
    return 1 / math.sqrt(max(1, features)) if scale is None else as_float(function, "scale", scale)


def _sample(dtype: Any) -> None:
    x = aiodev.ones((2, 4, 4), dtype=dtype)
    scaled_dot_product_attention(x, x, x)


register_sample("scaled_dot_product_attention", _sample)
