"""Launches of reductions: of rows whose elements lie in one piece, or of columns that lie side by side.

Rows are reduced whole, by one index each, where there are many or where they are short; else in blocks, and then their parts.
Columns are reduced in slabs of rows, and then their parts; where they are few and short, all at once. Where other axes lie
between those that are reduced, the last neighbours are reduced first, and then what they come to, before it is rounded; of a
variance the elements are copied into rows first. Where teams run the kernels
(:mod:`aiodev.kernels.thread_block`), the launches are the same; only the numbers of indices, pieces and slabs differ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.arguments import as_float, checked_axis, delivered, flags, packed_out, whole
from aiodev.kernels.per_length import launch
from aiodev.kernels.reductions.bodies import BLOCK, COLUMNS, rows_beside, slab_depth
from aiodev.kernels.reductions.plan import Plan, arg_extreme_plan, variance_plan
from aiodev.kernels.thread_block import has_teams, pieces_of, slabs_of, strips_of, teams_for
from aiodev.kernels.tuning import FEW_REDUCED, IN_ORDER, IN_ORDER_BESIDE, MANY_REDUCED, WHOLE_BLOCKS

__all__ = ["Axis", "reduce_arg_extreme", "reduce_variance", "reduce"]

Axis = int | tuple[int, ...] | None
_PLACE = np.dtype(np.int64)
_MOST_CORRECTED = 1 << 32


class _Way(NamedTuple):
    """How the elements of one result lie in packed memory."""

    shape: tuple[int, ...]  #: of the results
    outer: int
    length: int  #: elements of a result
    inner: int  #: results whose elements lie side by side; 1 where each result has its elements in one piece
    moved: tuple[int, ...] | None  #: the axes in the order in which the elements have to be copied first


class _Shares(NamedTuple):
    """How much an index of each launch takes."""

    short: bool  #: whether rows, or few columns at once, are reduced in order, by a kernel that may be for their length
    blocks: int  #: that a row is cut into; 1 where rows are reduced whole, and for columns
    rows: int  #: indices of a launch over whole rows
    parts: int  #: indices of a launch over rows of parts
    slabs: int  #: that columns are cut into, where they are not reduced at once
    strips: int
    columns: int  #: indices of a launch that reduces columns at once; 0 where they are reduced in slabs
    room: int  #: elements of parts that columns need; those of the slabs are the first


def _shares(way: _Way, teams: bool, beside: bool = True) -> _Shares:
    """``beside`` says whether few elements, and rows of few columns, are reduced side by side."""
    _, outer, length, inner, _ = way
    if teams:
        blocks, slabs = pieces_of(outer, length), slabs_of(outer, length, inner)
        strips, room = strips_of(inner), outer * slabs * inner
        columns = outer * strips if slabs == 1 else 0
        return _Shares(False, blocks, teams_for(outer, length), teams_for(outer, blocks), slabs, strips, columns, room)
    few = outer * length * inner <= FEW_REDUCED
    short = beside and 0 < length <= IN_ORDER and inner <= IN_ORDER_BESIDE and not few
    columns = outer if short else outer * inner if few else 0
    blocks = slabs = 1
    room = 0
    if inner == 1:
        blocks = 1 if length <= WHOLE_BLOCKS * BLOCK or outer >= MANY_REDUCED else -(-length // BLOCK)
    elif not columns:  # else nobody asks, and a plan for all lengths would depend on the answer
        rows = rows_beside(length, inner) if beside else 1
        slabs = max(1, -(-length // slab_depth(rows)))
        room = outer * slabs * inner * (1 if rows == 1 else 1 + rows)
    return _Shares(short, blocks, outer, outer, slabs, -(-inner // COLUMNS), columns, room)


def _way(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> _Way:
    result = tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes)
    kept = tuple(d for d in range(len(shape)) if d not in axes)
    length = math.prod(shape[d] for d in axes)
    inner = math.prod(shape[d] for d in kept if axes and d > axes[0])
    if inner <= 1:
        return _Way(result, math.prod(shape[d] for d in kept), length, 1, None)
    if axes[-1] - axes[0] == len(axes) - 1:
        return _Way(result, math.prod(shape[: axes[0]]), length, inner, None)
    return _Way(result, math.prod(shape[d] for d in kept), length, 1, (*kept, *axes))


def _axes(name: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    axis = whole(name, axis)
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    checked = tuple(sorted(checked_axis(name, a, ndim) for a in given))
    if len(set(checked)) != len(checked):
        raise ValueError(f"{name}: axis {axis} names one axis twice")
    return checked


def _last_neighbours(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The last of the axes, and those right before it."""
    start = len(axes) - 1
    while axes[start - 1] == axes[start] - 1:
        start -= 1
    return axes[start:]


def _as_it_lies(x: aiodev.Array, axes: tuple[int, ...]) -> tuple[aiodev.Array, tuple[int, ...]]:
    """The array and the axes in the order of memory, if it has no gaps, as a transpose, and results keep their order."""
    if x.is_contiguous:
        return x, axes
    order = sorted(range(x.ndim), key=lambda d: x.strides[d], reverse=True)
    lies, kept = x.transpose(*order), [d for d in order if d not in axes]
    if kept != sorted(kept) or not lies.is_contiguous:
        return x, axes
    return lies, tuple(sorted(order.index(d) for d in axes))


def _in_order(call: aiodev.Call, x: aiodev.Array, way: _Way) -> aiodev.Array:
    """The elements in the order in which they are reduced."""
    return call.reshape(x if way.moved is None else x.transpose(*way.moved), x.size)


def _line(x: aiodev.Array) -> aiodev.Array:
    """Results in order; a single one stays an array of no dimensions."""
    return x if x.ndim < 2 else x.reshape(x.size)


def reduce(
    call: aiodev.Call, plan: Plan, x: aiodev.Array, axis: Axis, keepdims: bool, *, empty: bool = True
) -> aiodev.Array:
    """Combine the elements along the axes; ``empty`` says whether there may be none."""
    flags(call.name, keepdims=keepdims)
    axes = _axes(call.name, axis, x.ndim)
    way = _way(x.shape, axes, keepdims)
    if way.length == 0 and not empty:
        raise ValueError(f"{call.name}: an array of shape {x.shape} has no elements along axis {axis}")
    result, target = packed_out(call, way.shape, plan.result)
    number = way.length
    x, axes = _as_it_lies(x, axes)
    shape = x.shape
    way = _way(shape, axes, keepdims)
    while way.moved is not None:
        near = _last_neighbours(axes)
        first = _way(shape, near, keepdims=True)
        parts = call.scratch(math.prod(first.shape), plan.parts)
        _launch(call, plan, call.reshape(x, x.size), first, 1, parts)
        x, shape, axes, plan = parts, first.shape, axes[: -len(near)], plan.next()
        way = _way(shape, axes, keepdims)
    _launch(call, plan, call.reshape(x, x.size), way, number, _line(target))
    return delivered(call, result, target)


def _launch(call: aiodev.Call, plan: Plan, x: aiodev.Array, way: _Way, number: int, out: aiodev.Array) -> None:
    """Reduce to ``out``, by one launch or two."""
    kernels, identity = plan.kernels, plan.identity
    _, outer, length, inner, _ = way
    shares = _shares(way, has_teams(x.device))
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner == 1 and blocks == 1:
        rows = kernels.short_rows if shares.short else kernels.rows
        launch(call, rows, length, shares.rows, x, length, identity, number, out)
    elif inner > 1 and shares.columns:
        columns = kernels.short_columns if shares.short else kernels.whole_columns
        launch(call, columns, length, shares.columns, x, length, inner, identity, number, out)
    elif inner > 1:
        parts = call.scratch(shares.room, identity.dtype)
        call.launch(kernels.columns, outer * slabs * strips, slabs, strips, x, length, inner, identity, parts)
        call.launch(kernels.strips, outer * strips, strips, parts, slabs, inner, number, out)
    else:
        parts = call.scratch(outer * blocks, identity.dtype)
        call.launch(kernels.blocks, outer * blocks, blocks, x, length, identity, parts)
        call.launch(kernels.parts, shares.parts, parts, blocks, identity, number, out)


def reduce_variance(
    call: aiodev.Call, x: aiodev.Array, axis: Axis, correction: float, keepdims: bool
) -> aiodev.Array:
    """The variance or the standard deviation along the axes."""
    name = call.name
    flags(name, keepdims=keepdims)
    plan, corrected = variance_plan(name, x.dtype), as_float(name, "correction", correction)
    axes = _axes(name, axis, x.ndim)
    result, target = packed_out(call, _way(x.shape, axes, keepdims).shape, plan.result)
    x, axes = _as_it_lies(x, axes)
    way = _way(x.shape, axes, keepdims)
    flat, out, kernels = _in_order(call, x, way), _line(target), plan.kernels
    _, outer, length, inner, _ = way
    shares = _shares(way, has_teams(x.device), beside=False)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    # An integer where it can be: it may follow from a symbolic length, and divides like the float.
    whole_one = corrected.is_integer() and abs(corrected) < _MOST_CORRECTED
    freedom = max(length - int(corrected), 0) if whole_one else max(length - corrected, 0.0)
    if inner == 1 and blocks == 1:
        call.launch(kernels.rows, shares.rows, flat, length, freedom, out)
    elif inner > 1 and shares.columns:
        call.launch(kernels.whole_columns, shares.columns, flat, length, inner, freedom, out)
    else:
        count = shares.room if inner > 1 else outer * blocks
        means, squares = (call.scratch(count, dtype) for dtype in (plan.mean, np.float64))
        if inner > 1:
            call.launch(
                kernels.columns, outer * slabs * strips, slabs, strips, flat, length, inner, means, squares
            )
            call.launch(kernels.strips, outer * strips, strips, means, squares, slabs, length, inner, freedom, out)
        else:
            call.launch(kernels.blocks, outer * blocks, blocks, flat, length, means, squares)
            call.launch(kernels.parts, shares.parts, means, squares, blocks, length, freedom, out)
    return delivered(call, result, target)


def reduce_arg_extreme(call: aiodev.Call, x: aiodev.Array, axis: int | None, keepdims: bool) -> aiodev.Array:
    """The first place of the largest or the least element along an axis, or in all."""
    name = call.name
    flags(name, keepdims=keepdims)
    plan = arg_extreme_plan(name, x.dtype)
    kernels = plan.kernels
    if isinstance(axis, tuple):
        raise TypeError(f"{name}: axis {axis}: expected one axis, or None for a place in the flattened array")
    way = _way(x.shape, _axes(name, axis, x.ndim), keepdims)
    if way.length == 0:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    result, target = packed_out(call, way.shape, _PLACE)
    if axis is not None:  # else the places are those of its own order
        x, axes = _as_it_lies(x, _axes(name, axis, x.ndim))
        way = _way(x.shape, axes, keepdims)
    flat, out = _in_order(call, x, way), _line(target)
    _, outer, length, inner, _ = way
    teams = has_teams(x.device)
    shares = _shares(way, teams)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner > 1 and shares.columns and not teams:
        columns = kernels.short_columns if shares.short else kernels.whole_columns
        launch(call, columns, length, shares.columns, flat, length, inner, out)
    elif inner == 1 and blocks == 1:
        rows = kernels.short_rows if shares.short else kernels.rows
        launch(call, rows, length, shares.rows, flat, length, out)
    else:
        count = shares.room if inner > 1 else outer * blocks
        parts, places = (call.scratch(count, dtype) for dtype in (plan.key, _PLACE))
        if inner > 1:
            call.launch(kernels.columns, outer * slabs * strips, slabs, strips, flat, length, inner, parts, places)
            call.launch(kernels.strips, outer * strips, strips, parts, places, slabs, inner, out)
        else:
            call.launch(kernels.blocks, outer * blocks, blocks, flat, length, parts, places)
            call.launch(kernels.parts, shares.parts, blocks, parts, places, out)
    return delivered(call, result, target)
