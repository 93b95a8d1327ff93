"""Reductions as launches: of rows whose elements lie in one piece, or of columns that lie side by side.

Rows are reduced whole, by one index each, where there are many or where they are short; else in blocks, and then their parts.
Columns are reduced in slabs of rows, and then their parts; where they are few and short, all at once. What is neither, since
other axes lie between those that are reduced, is first copied into rows. Where teams run the kernels
(:mod:`aiodev.kernels.thread_block`), the launches are the same; only the numbers of indices, pieces and slabs differ.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.arguments import (
    array_of,
    as_float,
    checked_axis,
    checked_out,
    flags,
    has_no_gaps,
    real_number,
    whole,
)
from aiodev.kernels.reductions.bodies import BLOCK, COLUMNS, rows_beside, slab_depth
from aiodev.kernels.reductions.plan import Plan, place_plan, spread_plan
from aiodev.kernels.thread_block import has_teams, pieces_of, slabs_of, strips_of, teams_for

__all__ = ["Axis", "find_place", "measure_spread", "reduce", "repeat"]

Axis = int | tuple[int, ...] | None
#: Rows from which on each is reduced by one index, however long.
_MANY_ROWS = 256
#: Blocks of a row up to which it is reduced whole: a second launch takes as long as they do, and the order is the same.
_FEW_BLOCKS = 8
#: Elements whose columns are reduced by one index each: in vectors they would be faster, by less than a second launch takes.
_FEW = 1 << 12
#: Elements of a row, or of a column among so few, up to which their number is a kernel's own, where all are more than ``_FEW``.
_SHORT, _NARROW = 15, 32
_PLACE = np.dtype(np.int64)
#: Under (name, axis, keepdims, whatever else decides).
_launches = aiodev.LaunchCache(1)
#: ``repeat(key, x, out)``: submit what was submitted before for arrays of these layouts; None where that is not known.
repeat = _launches.repeat
#: A launch for the cache: a kernel, its indices, its arguments, and which operand each of them is: 0 is what is reduced, 1 the
#: result, -1 scratch.
_Step = tuple[aiodev.Kernel, int, tuple[Any, ...], tuple[int | None, ...]]
_X, _OUT, _SCRATCH = 0, 1, -1


class _Way(NamedTuple):
    """How the elements of one result lie in packed memory."""

    shape: tuple[int, ...]  #: of the results
    outer: int
    length: int  #: elements of a result
    inner: int  #: results whose elements lie side by side; 1 where each result has its elements in one piece
    moved: tuple[int, ...] | None  #: the axes in the order in which the elements have to be copied first


class _Shares(NamedTuple):
    """How much an index of each launch takes."""

    short: bool  #: whether rows, or few columns at once, are reduced by a kernel for their length
    blocks: int  #: that a row is cut into; 1 where rows are reduced whole
    rows: int  #: indices of a launch over whole rows
    parts: int  #: indices of a launch over rows of parts
    slabs: int  #: that columns are cut into
    strips: int
    columns: int  #: indices of a launch that reduces columns at once; 0 where they are reduced in slabs
    room: int  #: elements of parts that columns need; those of the slabs are the first


@functools.lru_cache(maxsize=4096)
def _shares(way: _Way, teams: bool, beside: bool = True) -> _Shares:
    """``beside`` says whether few elements, and rows of few columns, are reduced side by side."""
    _, outer, length, inner, _ = way
    if teams:
        blocks, slabs = pieces_of(outer, length), slabs_of(outer, length, inner)
        strips, room = strips_of(inner), outer * slabs * inner
        columns = outer * strips if slabs == 1 else 0
        return _Shares(False, blocks, teams_for(outer, length), teams_for(outer, blocks), slabs, strips, columns, room)
    few = outer * length * inner <= _FEW
    blocks = 1 if length <= _FEW_BLOCKS * BLOCK or outer >= _MANY_ROWS else -(-length // BLOCK)
    rows = rows_beside(length, inner) if beside else 1
    slabs = max(1, -(-length // slab_depth(rows)))
    room = outer * slabs * inner * (1 if rows == 1 else 1 + rows)
    short = beside and 0 < length <= _SHORT and inner <= _NARROW and not few
    columns = outer if short else outer * inner if few else 0
    return _Shares(short, blocks, outer, outer, slabs, -(-inner // COLUMNS), columns, room)


@functools.lru_cache(maxsize=4096)
def _way(name: str, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> _Way:
    axes = _axes(name, axis, len(shape))
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
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = tuple(sorted(checked_axis(name, a, ndim) for a in given))
    if len(set(found)) != len(found):
        raise ValueError(f"{name}: axis {axis} names one axis twice")
    return found


class _Launch:
    """What every launch of a reduction needs: the elements in order, and the results in order.

    The results are those of ``out`` where that has no gaps, and else are copied there by :meth:`submit`.
    """

    __slots__ = ("_given", "_made", "_result", "_target", "out", "x")

    def __init__(self, name: str, x: aiodev.Array, way: _Way, dtype: Any, out: aiodev.Array | None) -> None:
        device = x.device
        self._given, self._made = x, out is None
        self._result = self._target = checked_out(name, out, way.shape, dtype, device)
        ndim = len(way.shape)
        if out is not None and ndim and not has_no_gaps(out):
            self._target = aiodev.empty(way.shape, dtype, device)
        self.out = self._target if ndim < 2 else self._target.reshape(self._target.size)
        if way.moved is not None:
            x = x.transpose(*way.moved)
        self.x = x.reshape(x.size)

    def submit(self, key: tuple[Any, ...], *steps: _Step) -> aiodev.Array:
        """Submit the kernels, to be repeated under ``key``; returns what the reduction is to return."""
        _launches.launch_all(key, (self._given,), self._result, steps, made=self._made)
        if self._target is not self._result:
            self._result.copy_from(self._target)
        return self._result


def reduce(
    key: tuple[Any, ...], plan: Plan, x: aiodev.Array, out: aiodev.Array | None, *, empty: bool = True
) -> aiodev.Array:
    """Combine the elements along the axes; ``key`` is that of :func:`repeat`, ``empty`` says whether there may be none."""
    name, axis, keepdims = key[:3]
    way = _way(name, x.shape, axis, keepdims)
    if way.length == 0 and not empty:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    launch = _Launch(name, x, way, plan.result, out)
    return launch.submit(key, *_steps(plan, launch.x, way, launch.out, _OUT))


def _steps(plan: Plan, x: aiodev.Array, way: _Way, out: aiodev.Array, place: int) -> list[_Step]:
    """The launches that reduce to ``out``, whose place among the operands is given: one, or two."""
    kernels, identity, number = plan.kernels, plan.identity, float(way.length)
    _, outer, length, inner, _ = way
    shares = _shares(way, has_teams(x.device))
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner == 1 and blocks == 1:
        rows = kernels.short_rows(length) if shares.short else kernels.rows
        return [(rows, shares.rows, (x, length, identity, number, out), (_X, None, None, None, place))]
    if inner > 1 and shares.columns:
        args = x, length, inner, identity, number, out
        columns = kernels.short_columns(length) if shares.short else kernels.whole_columns
        return [(columns, shares.columns, args, (_X, None, None, None, None, place))]
    if inner > 1:
        parts = aiodev.empty(shares.room, identity.dtype, x.device)
        first = slabs, strips, x, length, inner, identity, parts
        second = strips, parts, slabs, inner, number, out
        return [
            (kernels.columns, outer * slabs * strips, first, (None, None, _X, None, None, None, _SCRATCH)),
            (kernels.strips, outer * strips, second, (None, _SCRATCH, None, None, None, place)),
        ]
    parts = aiodev.empty(outer * blocks, identity.dtype, x.device)
    return [
        (kernels.blocks, outer * blocks, (blocks, x, length, identity, parts), (None, _X, None, None, _SCRATCH)),
        (kernels.parts, shares.parts, (parts, blocks, identity, number, out), (_SCRATCH, None, None, None, place)),
    ]


def measure_spread(
    name: str, x: aiodev.Array, axis: Axis, correction: float, keepdims: bool, out: aiodev.Array | None
) -> aiodev.Array:
    """The variance or the standard deviation along the axes."""
    key = name, whole(name, axis), keepdims, real_number(name, "correction", correction)
    found = repeat(key, x, out)
    if found is not None:
        return found
    array_of(name, x)
    flags(name, keepdims=keepdims)
    plan = spread_plan(name, x.dtype)
    way = _way(name, x.shape, axis, keepdims)
    launch = _Launch(name, x, way, plan.result, out)
    flat, kernels = launch.x, plan.kernels
    _, outer, length, inner, _ = way
    shares = _shares(way, has_teams(x.device), beside=False)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    freedom = max(length - as_float(name, "correction", correction), 0.0)
    if inner == 1 and blocks == 1:
        args: tuple[Any, ...] = flat, length, freedom, launch.out
        return launch.submit(key, (kernels.rows, shares.rows, args, (_X, None, None, _OUT)))
    if inner > 1 and shares.columns:
        args = flat, length, inner, freedom, launch.out
        return launch.submit(key, (kernels.whole_columns, shares.columns, args, (_X, None, None, None, _OUT)))
    count = shares.room if inner > 1 else outer * blocks
    means, squares = (aiodev.empty(count, dtype, x.device) for dtype in (plan.mean, np.float64))
    if inner > 1:
        args = slabs, strips, flat, length, inner, means, squares
        first: _Step = kernels.columns, outer * slabs * strips, args, (None, None, _X, None, None, _SCRATCH, _SCRATCH)
        args = strips, means, squares, slabs, length, inner, freedom, launch.out
        takes = None, _SCRATCH, _SCRATCH, None, None, None, None, _OUT
        return launch.submit(key, first, (kernels.strips, outer * strips, args, takes))
    args = blocks, flat, length, means, squares
    first = kernels.blocks, outer * blocks, args, (None, _X, None, _SCRATCH, _SCRATCH)
    args = means, squares, blocks, length, freedom, launch.out
    return launch.submit(key, first, (kernels.parts, shares.parts, args, (_SCRATCH, _SCRATCH, None, None, None, _OUT)))


def find_place(name: str, x: aiodev.Array, axis: int | None, keepdims: bool, out: aiodev.Array | None) -> aiodev.Array:
    """The first place of the largest or the least element along an axis, or in all."""
    key = name, whole(name, axis), keepdims
    found = repeat(key, x, out)
    if found is not None:
        return found
    array_of(name, x)
    flags(name, keepdims=keepdims)
    plan = place_plan(name, x.dtype)
    kernels = plan.kernels
    if isinstance(axis, tuple):
        raise TypeError(f"{name}: axis {axis}: expected one axis, or None for a place in the flattened array")
    way = _way(name, x.shape, axis, keepdims)
    if way.length == 0:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    launch = _Launch(name, x, way, _PLACE, out)
    flat = launch.x
    _, outer, length, inner, _ = way
    teams = has_teams(x.device)
    shares = _shares(way, teams)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner > 1 and shares.columns and not teams:
        args: tuple[Any, ...] = flat, length, inner, launch.out
        columns = kernels.short_columns(length) if shares.short else kernels.whole_columns
        return launch.submit(key, (columns, shares.columns, args, (_X, None, None, _OUT)))
    if inner == 1 and blocks == 1:
        rows = kernels.short_rows(length) if shares.short else kernels.rows
        return launch.submit(key, (rows, shares.rows, (flat, length, launch.out), (_X, None, _OUT)))
    count = shares.room if inner > 1 else outer * blocks
    parts, places = (aiodev.empty(count, dtype, x.device) for dtype in (plan.key, _PLACE))
    if inner > 1:
        args = slabs, strips, flat, length, inner, parts, places
        takes = None, None, _X, None, None, _SCRATCH, _SCRATCH
        first: _Step = kernels.columns, outer * slabs * strips, args, takes
        args = strips, parts, places, slabs, inner, launch.out
        second: _Step = kernels.strips, outer * strips, args, (None, _SCRATCH, _SCRATCH, None, None, _OUT)
        return launch.submit(key, first, second)
    first = kernels.blocks, outer * blocks, (blocks, flat, length, parts, places), (None, _X, None, _SCRATCH, _SCRATCH)
    args = blocks, parts, places, launch.out
    return launch.submit(key, first, (kernels.parts, shares.parts, args, (None, _SCRATCH, _SCRATCH, _OUT)))
