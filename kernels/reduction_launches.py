"""Reductions as launches: of rows whose elements lie in one piece, or of columns that lie side by side.

Rows are reduced whole, by one index each, where there are many or where they are short; else in blocks, and then their parts.
Columns are reduced in slabs of rows, and then their parts. What is neither, since other axes lie between those that are
reduced, is first copied into rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.operands import array_of, checked_axis, checked_out, has_no_gaps
from aiodev.kernels.reduction_bodies import BLOCK, COLUMNS, ROWS
from aiodev.kernels.reduction_plans import Plan, place_plan, spread_plan

__all__ = ["Axis", "find_place", "launches", "measure_spread", "reduce"]

Axis = int | tuple[int, ...] | None
#: Rows from which on each is reduced by one index, however long.
_MANY_ROWS = 256
_PLACE = np.dtype(np.int64)
#: Reductions of rows by one launch: of an array and its result, under (name, axis, keepdims, whatever else decides).
launches = aiodev.LaunchCache(2)


class _Way(NamedTuple):
    """How the elements of one result lie in packed memory."""

    shape: tuple[int, ...]  #: of the results
    outer: int
    length: int  #: elements of a result
    inner: int  #: results whose elements lie side by side; 1 where each result has its elements in one piece
    moved: tuple[int, ...] | None  #: the axes in the order in which the elements have to be copied first

    @property
    def whole(self) -> bool:
        """Whether one index reduces a row."""
        return self.length <= 2 * BLOCK or self.outer >= _MANY_ROWS


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
    """What every launch of a reduction needs: the elements in order, the results in order, and the stream.

    The results are those of ``out`` where that has no gaps, and else are copied there by :meth:`finish`.
    """

    __slots__ = ("_given", "_result", "_target", "out", "stream", "x")

    def __init__(self, name: str, x: aiodev.Array, way: _Way, dtype: Any, out: aiodev.Array | None) -> None:
        device = x.device
        self._given = x
        self._result = self._target = checked_out(name, out, way.shape, dtype, device)
        ndim = len(way.shape)
        if out is not None and ndim and not has_no_gaps(out):
            self._target = aiodev.empty(way.shape, dtype, device)
        self.out = self._target if ndim < 2 else self._target.reshape(self._target.size)
        if way.moved is not None:
            x = x.transpose(*way.moved)
        self.x = x.reshape(x.size)
        self.stream = aiodev.current_stream(device)

    def submit_rows(self, key: tuple[Any, ...], kernel: aiodev.Kernel, way: _Way, *numbers: Any) -> None:
        """Submit a kernel of rows, to be repeated under ``key``."""
        takes = 0, *(None for _ in numbers), 1
        operands = self._given, self._result
        launches.launch(key, operands, kernel, way.outer, (self.x, *numbers, self.out), takes)

    def finish(self) -> aiodev.Array:
        """What to return."""
        if self._target is not self._result:
            self._result.copy_from(self._target)
        return self._result


def reduce(
    key: tuple[Any, ...], plan: Plan, x: aiodev.Array, out: aiodev.Array | None, *, empty: bool = True
) -> aiodev.Array:
    """Combine the elements along the axes; ``key`` is that of :data:`launches`, ``empty`` says whether there may be none."""
    name, axis, keepdims = key[:3]
    way = _way(name, x.shape, axis, keepdims)
    if way.length == 0 and not empty:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    launch = _Launch(name, x, way, plan.result, out)
    if way.inner == 1 and way.whole:
        launch.submit_rows(key, plan.kernels.rows, way, way.length, plan.identity, float(way.length))
    else:
        _combine(plan, launch.x, way, launch.out, launch.stream)
    return launch.finish()


def _combine(plan: Plan, x: aiodev.Array, way: _Way, out: aiodev.Array, stream: aiodev.Stream) -> None:
    kernels, identity, length, number = plan.kernels, plan.identity, way.length, float(way.length)
    if way.inner > 1:
        slabs, strips, parts = _column_parts(way, identity.dtype, x.device)
        count = way.outer * slabs * strips
        kernels.columns[count, stream](slabs, strips, x, length, way.inner, identity, parts)
        kernels.strips[way.outer * strips, stream](strips, parts, slabs, way.inner, number, out)
    elif way.whole:
        kernels.rows[way.outer, stream](x, length, identity, number, out)
    else:
        blocks, parts = _row_parts(way, identity.dtype, x.device)
        kernels.blocks[way.outer * blocks, stream](blocks, x, length, identity, parts)
        kernels.parts[way.outer, stream](parts, blocks, identity, number, out)


def _row_parts(way: _Way, dtype: Any, device: aiodev.Device) -> tuple[int, aiodev.Array]:
    """How many blocks a row has, and an array of parts."""
    blocks = -(-way.length // BLOCK)
    return blocks, aiodev.empty(way.outer * blocks, dtype, device)


def _column_parts(way: _Way, dtype: Any, device: aiodev.Device) -> tuple[int, int, aiodev.Array]:
    """How many slabs of rows and strips of columns there are, and an array of parts."""
    slabs, strips = max(1, -(-way.length // ROWS)), -(-way.inner // COLUMNS)
    return slabs, strips, aiodev.empty(way.outer * slabs * way.inner, dtype, device)


def measure_spread(
    name: str, x: aiodev.Array, axis: Axis, correction: float, keepdims: bool, out: aiodev.Array | None
) -> aiodev.Array:
    """The variance or the standard deviation along the axes."""
    key = name, axis, keepdims, correction
    if out is not None and launches.repeat(key, x, out):
        return out
    array_of(name, x)
    plan = spread_plan(name, x.dtype)
    way = _way(name, x.shape, axis, keepdims)
    launch = _Launch(name, x, way, plan.result, out)
    flat, stream, length, inner = launch.x, launch.stream, way.length, way.inner
    freedom = float(max(length - correction, 0))
    if inner == 1 and way.whole:
        launch.submit_rows(key, plan.kernels.rows, way, length, plan.mean.identity, freedom)
        return launch.finish()
    means = aiodev.empty(way.outer * inner, plan.mean.result, x.device)
    _combine(plan.mean, flat, way, means, stream)
    if inner > 1:
        slabs, strips, parts = _column_parts(way, np.float64, x.device)
        count = way.outer * slabs * strips
        plan.kernels.columns[count, stream](slabs, strips, flat, length, inner, means, parts)
        plan.finish.strips[way.outer * strips, stream](strips, parts, slabs, inner, freedom, launch.out)
    else:
        blocks, parts = _row_parts(way, np.float64, x.device)
        plan.kernels.blocks[way.outer * blocks, stream](blocks, flat, length, means, parts)
        plan.finish.parts[way.outer, stream](parts, blocks, np.float64(0), freedom, launch.out)
    return launch.finish()


def find_place(name: str, x: aiodev.Array, axis: int | None, keepdims: bool, out: aiodev.Array | None) -> aiodev.Array:
    """The first place of the largest or the least element along an axis, or in all."""
    key = name, axis, keepdims
    if out is not None and launches.repeat(key, x, out):
        return out
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
    if way.inner > 1:
        slabs, strips, parts = _column_parts(way, plan.key, x.device)
        places = aiodev.empty(parts.size, _PLACE, x.device)
        count = way.outer * slabs * strips
        kernels.columns[count, stream](slabs, strips, flat, way.length, way.inner, parts, places)
        kernels.strips[way.outer * strips, stream](strips, parts, places, slabs, way.inner, launch.out)
    elif way.whole:
        launch.submit_rows(key, kernels.rows, way, way.length)
    else:
        blocks, parts = _row_parts(way, plan.key, x.device)
        places = aiodev.empty(parts.size, _PLACE, x.device)
        kernels.blocks[way.outer * blocks, stream](blocks, flat, way.length, parts, places)
        kernels.parts[way.outer, stream](blocks, parts, places, launch.out)
    return launch.finish()
