"""Reductions as launches: of rows whose elements lie in one piece, or of columns that lie side by side.

Rows are reduced whole, by one index each, where there are many or where they are short; else in blocks, and then their parts.
Columns are reduced in slabs of rows, and then their parts. What is neither, since other axes lie between those that are
reduced, is first copied into rows. Where teams run the kernels (:mod:`aiodev.kernels.teams`), the launches are the same; only
the numbers of indices, pieces and slabs differ.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.operands import array_of, check_whole, checked_axis, checked_out, has_no_gaps
from aiodev.kernels.reduction_bodies import BLOCK, COLUMNS, ROWS
from aiodev.kernels.reduction_plans import Plan, place_plan, spread_plan
from aiodev.kernels.teams import has_teams, pieces_of, slabs_of, strips_of, teams_for

__all__ = ["Axis", "find_place", "measure_spread", "reduce", "repeat"]

Axis = int | tuple[int, ...] | None
#: Rows from which on each is reduced by one index, however long.
_MANY_ROWS = 256
#: Blocks of a row up to which it is reduced whole: a second launch takes as long as they do, and the order is the same.
_FEW_BLOCKS = 8
#: Elements whose columns are reduced by one index each: in vectors they would be faster, by less than a second launch takes.
_FEW = 1 << 12
_PLACE = np.dtype(np.int64)
#: Reductions by one launch, under (name, axis, keepdims, whatever else decides); and of those by two, the launch that makes
#: parts of an array, for an array of results or None, and the one that combines the parts of an array: its type and shape say
#: what follows from them, since those of several types may be alike.
_launches, _firsts, _seconds = aiodev.LaunchCache(1), aiodev.LaunchCache(2), aiodev.LaunchCache(2)


class _Way(NamedTuple):
    """How the elements of one result lie in packed memory."""

    shape: tuple[int, ...]  #: of the results
    outer: int
    length: int  #: elements of a result
    inner: int  #: results whose elements lie side by side; 1 where each result has its elements in one piece
    moved: tuple[int, ...] | None  #: the axes in the order in which the elements have to be copied first


class _Shares(NamedTuple):
    """How much an index of each launch takes."""

    blocks: int  #: that a row is cut into; 1 where rows are reduced whole
    rows: int  #: indices of a launch over whole rows
    parts: int  #: indices of a launch over rows of parts
    slabs: int  #: that columns are cut into
    strips: int
    columns: int  #: indices of a launch that reduces columns at once; 0 where they are reduced in slabs


@functools.lru_cache(maxsize=4096)
def _shares(way: _Way, teams: bool) -> _Shares:
    _, outer, length, inner, _ = way
    if teams:
        blocks, slabs = pieces_of(outer, length), slabs_of(outer, length, inner)
        strips = strips_of(inner)
        columns = outer * strips if slabs == 1 else 0
        return _Shares(blocks, teams_for(outer, length), teams_for(outer, blocks), slabs, strips, columns)
    blocks = 1 if length <= _FEW_BLOCKS * BLOCK or outer >= _MANY_ROWS else -(-length // BLOCK)
    columns = outer * inner if outer * length * inner <= _FEW else 0
    return _Shares(blocks, outer, outer, max(1, -(-length // ROWS)), -(-inner // COLUMNS), columns)


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


class _Step(NamedTuple):
    """One of two launches."""

    kernel: aiodev.Kernel
    indices: int
    args: tuple[Any, ...]
    takes: tuple[int | None, ...]  #: which argument is which operand of the launch that is remembered

    def submit(self, stream: aiodev.Stream) -> None:
        """Submit it once."""
        self.kernel[self.indices, stream](*self.args)


def repeat(key: tuple[Any, ...], x: aiodev.Array, out: aiodev.Array | None) -> aiodev.Array | None:
    """Submit what a reduction of arrays of these layouts has submitted before; None where that is not known.

    ``key`` is the name, the axis, and whatever else decides.
    """
    axis = key[1]
    if axis.__class__ is not int and axis is not None:
        check_whole(key[0], axis)
    found = _launches.repeat(key, x, out)
    if found is None:
        parts = _firsts.repeat(key, x, out, None)
        if parts is not None:
            found = _seconds.repeat(key, parts, x, out)
    return found


class _Launch:
    """What every launch of a reduction needs: the elements in order, the results in order, and the stream.

    The results are those of ``out`` where that has no gaps, and else are copied there by :meth:`finish`.
    """

    __slots__ = ("_given", "_made", "_result", "_target", "out", "stream", "x")

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
        self.stream = aiodev.current_stream(device)

    def submit(self, key: tuple[Any, ...], kernel: aiodev.Kernel, count: int, *numbers: Any) -> None:
        """Submit a kernel that does it all, to be repeated under ``key``."""
        takes = 0, *(None for _ in numbers), 1
        args = self.x, *numbers, self.out
        _launches.launch(key, (self._given,), self._result, kernel, count, args, takes, made=self._made)

    def submit_two(self, key: tuple[Any, ...], plan: Plan, way: _Way) -> None:
        """Submit a kernel that makes parts and one that combines them, to be repeated under ``key``."""
        parts, first, second = _steps(plan, self.x, way, self.out)
        if self._target is not self._result:  # whose copy would not be repeated
            first.submit(self.stream)
            second.submit(self.stream)
            return
        operands = self._given, None if self._made else self._result
        _firsts.launch(key, operands, parts, *first[:3], first.takes, made=True)
        operands = parts, self._given
        _seconds.launch(key, operands, self._result, *second[:3], second.takes, made=self._made)

    def finish(self) -> aiodev.Array:
        """What to return."""
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
    shares = _shares(way, has_teams(x.device))
    if way.inner == 1 and shares.blocks == 1:
        launch.submit(key, plan.kernels.rows, shares.rows, way.length, plan.identity, float(way.length))
    elif way.inner > 1 and shares.columns:
        numbers = way.length, way.inner, plan.identity, float(way.length)
        launch.submit(key, plan.kernels.whole_columns, shares.columns, *numbers)
    else:
        launch.submit_two(key, plan, way)
    return launch.finish()


def _steps(plan: Plan, x: aiodev.Array, way: _Way, out: aiodev.Array) -> tuple[aiodev.Array, _Step, _Step]:
    """The parts, and the two launches, of what one launch does not reduce."""
    kernels, identity, number = plan.kernels, plan.identity, float(way.length)
    _, outer, length, inner, _ = way
    shares = _shares(way, has_teams(x.device))
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner > 1:
        parts = aiodev.empty(outer * slabs * inner, identity.dtype, x.device)
        args: tuple[Any, ...] = slabs, strips, x, length, inner, identity, parts
        first = _Step(kernels.columns, outer * slabs * strips, args, (None, None, 0, None, None, None, 2))
        args = strips, parts, slabs, inner, number, out
        return parts, first, _Step(kernels.strips, outer * strips, args, (None, 0, None, None, None, 2))
    parts = aiodev.empty(outer * blocks, identity.dtype, x.device)
    args = blocks, x, length, identity, parts
    first = _Step(kernels.blocks, outer * blocks, args, (None, 0, None, None, 2))
    args = parts, blocks, identity, number, out
    return parts, first, _Step(kernels.parts, shares.parts, args, (0, None, None, None, 2))


def _combine(plan: Plan, x: aiodev.Array, way: _Way, out: aiodev.Array, stream: aiodev.Stream) -> None:
    """Reduce to ``out``, once."""
    shares = _shares(way, has_teams(x.device))
    numbers = plan.identity, float(way.length)
    if way.inner > 1 and shares.columns:
        plan.kernels.whole_columns[shares.columns, stream](x, way.length, way.inner, *numbers, out)
    elif way.inner == 1 and shares.blocks == 1:
        plan.kernels.rows[shares.rows, stream](x, way.length, *numbers, out)
    else:
        for step in _steps(plan, x, way, out)[1:]:
            step.submit(stream)


def measure_spread(
    name: str, x: aiodev.Array, axis: Axis, correction: float, keepdims: bool, out: aiodev.Array | None
) -> aiodev.Array:
    """The variance or the standard deviation along the axes."""
    key = name, axis, keepdims, correction
    found = repeat(key, x, out)
    if found is not None:
        return found
    array_of(name, x)
    plan = spread_plan(name, x.dtype)
    way = _way(name, x.shape, axis, keepdims)
    launch = _Launch(name, x, way, plan.result, out)
    flat, stream, kernels = launch.x, launch.stream, plan.kernels
    _, outer, length, inner, _ = way
    teams = has_teams(x.device)
    shares = _shares(way, teams)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    freedom = float(max(length - correction, 0))
    if inner == 1 and blocks == 1:
        launch.submit(key, kernels.rows, shares.rows, length, plan.mean.identity, freedom)
        return launch.finish()
    if inner > 1 and shares.columns and not teams:
        launch.submit(key, kernels.whole_columns, shares.columns, length, inner, plan.mean.identity, freedom)
        return launch.finish()
    means = aiodev.empty(outer * inner, plan.mean.result, x.device)
    _combine(plan.mean, flat, way, means, stream)
    if inner > 1:
        parts = aiodev.empty(outer * slabs * inner, np.float64, x.device)
        kernels.columns[outer * slabs * strips, stream](slabs, strips, flat, length, inner, means, parts)
        plan.finish.strips[outer * strips, stream](strips, parts, slabs, inner, freedom, launch.out)
    else:
        parts = aiodev.empty(outer * blocks, np.float64, x.device)
        kernels.blocks[outer * blocks, stream](blocks, flat, length, means, parts)
        plan.finish.parts[shares.parts, stream](parts, blocks, np.float64(0), freedom, launch.out)
    return launch.finish()


def find_place(name: str, x: aiodev.Array, axis: int | None, keepdims: bool, out: aiodev.Array | None) -> aiodev.Array:
    """The first place of the largest or the least element along an axis, or in all."""
    key = name, axis, keepdims
    found = repeat(key, x, out)
    if found is not None:
        return found
    array_of(name, x)
    plan = place_plan(name, x.dtype)
    kernels = plan.kernels
    if isinstance(axis, tuple):
        raise TypeError(f"{name}: axis {axis}: expected one axis, or None for a place in the flattened array")
    way = _way(name, x.shape, axis, keepdims)
    if way.length == 0:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    launch = _Launch(name, x, way, _PLACE, out)
    flat, stream = launch.x, launch.stream
    _, outer, length, inner, _ = way
    teams = has_teams(x.device)
    shares = _shares(way, teams)
    blocks, slabs, strips = shares.blocks, shares.slabs, shares.strips
    if inner > 1 and shares.columns and not teams:
        launch.submit(key, kernels.whole_columns, shares.columns, length, inner)
    elif inner > 1:
        parts, places = (aiodev.empty(outer * slabs * inner, dtype, x.device) for dtype in (plan.key, _PLACE))
        kernels.columns[outer * slabs * strips, stream](slabs, strips, flat, length, inner, parts, places)
        kernels.strips[outer * strips, stream](strips, parts, places, slabs, inner, launch.out)
    elif blocks == 1:
        launch.submit(key, kernels.rows, shares.rows, length)
    else:
        parts, places = (aiodev.empty(outer * blocks, dtype, x.device) for dtype in (plan.key, _PLACE))
        kernels.blocks[outer * blocks, stream](blocks, flat, length, parts, places)
        kernels.parts[shares.parts, stream](blocks, parts, places, launch.out)
    return launch.finish()
