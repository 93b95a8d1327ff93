"""Running sums and products.

Rows of no more than a block, and columns where these are few, are run through four at a time, since each sum waits for the one
before it. Where there are many columns, these are run through side by side.
A long row is cut into blocks of fixed length: each is summed, the sums are summed up, and then each block's totals follow
from what comes before it. So the result does not depend on the number of threads. It is computed in ``float64``,
``complex128`` or 64-bit integers, as in :func:`aiodev.kernels.sum`, and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import aiodev
from aiodev.kernels.arguments import arrays_of, checked_axis, checked_out, dtype_of, flags, has_no_gaps
from aiodev.kernels.reductions import sum_plan
from aiodev.kernels.reductions.bodies import BLOCK
from aiodev.kernels.scans.cpu import STRIP, make_columns, make_scan
from aiodev.kernels.scans.cuda import pieces_and_teams
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.warmup import register_sample

__all__ = ["cumulative_prod", "cumulative_sum"]

#: Bytes of rows whose columns are run through four at a time, whose totals are in registers, if there are more than four;
#: and elements of arrays whose columns all are.
_NARROW, _FEW = 40, 1 << 12
#: Elements for one index of a launch, about: some µs of work.
_PIECE = 1 << 13
#: By one launch, under (name, axis, dtype and both options).
_launches = aiodev.LaunchCache(1)


def cumulative_sum(
    x: aiodev.Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The sum of all elements up to each one along ``axis``, which may be left out for one dimension.

    Args:
        dtype: of the result; as of :func:`sum` by default.
        include_initial: put a 0 before the rest; the axis becomes longer by one.
        exclusive: leave each element out of its own sum; the first is 0.
        out: where to write; returned.

    Raises:
        ValueError: there is no such axis, none is given for several dimensions, both options are asked for at once, or ``out``
            has another shape.
        TypeError: ``out`` has another dtype.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1, 2, 3], device="cpu")
        >>> aiodev.kernels.cumulative_sum(x).numpy_blocking()
        array([1, 3, 6])
        >>> aiodev.kernels.cumulative_sum(x, exclusive=True).numpy_blocking()
        array([0, 1, 3])
    """
    return _scan("cumulative_sum", "sum", x, axis, dtype, include_initial, exclusive, out)


def cumulative_prod(
    x: aiodev.Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The product of all elements up to each one along ``axis``; the initial one is 1. Otherwise as :func:`cumulative_sum`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.cumulative_prod(aiodev.asarray([1, 2, 3, 4], device="cpu")).numpy_blocking()
        array([ 1,  2,  6, 24])
    """
    return _scan("cumulative_prod", "prod", x, axis, dtype, include_initial, exclusive, out)


@functools.cache
def _kernels(name: str, load: Any, combine: Any, identity: Any) -> tuple[aiodev.Kernel, aiodev.Kernel, aiodev.Kernel]:
    return make_scan(name, load, combine, identity)


@functools.cache
def _columns(name: str, load: Any, combine: Any) -> aiodev.Kernel:
    return make_columns(name, load, combine)


def _scan(
    name: str,
    reduction: str,
    x: aiodev.Array,
    axis: int | None,
    dtype: Any,
    include_initial: bool,
    exclusive: bool,
    out: aiodev.Array | None,
) -> aiodev.Array:
    key = name, axis, axis.__class__, dtype, include_initial, exclusive
    found = _launches.repeat(key, x, out)
    if found is not None:
        return found
    (x,) = arrays_of(name, x=x)
    flags(name, include_initial=include_initial, exclusive=exclusive)
    if axis is None and x.ndim != 1:
        raise ValueError(f"{name}: an array of {x.ndim} dimensions needs an axis")
    if include_initial and exclusive:
        raise ValueError(f"{name}: include_initial has the exclusive results already; ask for one of the two")
    at = checked_axis(name, 0 if axis is None else axis, x.ndim)
    plan = sum_plan(reduction, x.dtype, dtype_of(name, dtype))
    length, inner = x.shape[at], math.prod(x.shape[at + 1 :])
    width = length + bool(include_initial)
    shape = *x.shape[:at], width, *x.shape[at + 1 :]
    few = inner <= 4 or inner * plan.result.itemsize <= _NARROW or x.size <= _FEW
    if not few and not has_teams(x.device):
        return _scan_columns(key, name, plan, x, (length, inner, shape), bool(exclusive), out)
    if (inner == 1 and length > BLOCK) or has_teams(x.device):
        if out is not None:
            checked_out(name, out, shape, plan.result, x.device)
        return _scan_rows(name, plan, x, at, width, bool(exclusive), out)
    result = checked_out(name, out, shape, plan.result, x.device)
    if result.size:
        target = result if has_no_gaps(result) else aiodev.empty_like(result)
        lines, fours = result.size // width, max(1, _PIECE // (4 * max(1, length)))
        group = -(-4 * fours // inner) * inner  # columns that share cache lines have one index
        numbers = length, inner, plan.identity, bool(exclusive), width
        args = group, lines, x.reshape(x.size), *numbers, target.reshape(target.size)
        takes = None, None, 0, None, None, None, None, None, 1
        kernel, _, _ = _kernels(name, plan.load, plan.combine, plan.identity)
        _launches.launch(key, (x,), result, kernel, -(-lines // group), args, takes, made=out is None)
        if target is not result:
            result.copy_from(target)
    return result


def _scan_columns(
    key: Any,
    name: str,
    plan: Any,
    x: aiodev.Array,
    lengths: tuple[int, int, tuple[int, ...]],
    before: bool,
    out: aiodev.Array | None,
) -> aiodev.Array:
    """Along another axis than the last one, where the elements are."""
    length, inner, shape = lengths
    result = checked_out(name, out, shape, plan.result, x.device)
    target = result if has_no_gaps(result) else aiodev.empty_like(result)
    matrices, strips = x.size // (length * inner), -(-inner // STRIP)
    parts = x.reshape(matrices, length, inner), target.reshape(matrices, target.size // (matrices * inner), inner)
    totals = aiodev.empty((matrices * strips, min(STRIP, inner)), plan.identity.dtype, x.device)
    args, takes = (strips, parts[0], plan.identity, before, totals, parts[1]), (None, 0, None, None, -1, 1)
    kernel = _columns(name, plan.load, plan.combine)
    _launches.launch(key, (x,), result, kernel, matrices * strips, args, takes, made=out is None)
    if target is not result:
        result.copy_from(target)
    return result


def _scan_rows(
    name: str, plan: Any, x: aiodev.Array, at: int, width: int, exclusive: bool, out: aiodev.Array | None
) -> aiodev.Array:
    """By blocks of rows along the last axis; where ``at`` is another, of a copy."""
    axes = (*(d for d in range(x.ndim) if d != at), at)
    moved = x.transpose(*axes)
    sizes = math.prod(moved.shape[:-1]), x.shape[at], width
    if out is not None and at == x.ndim - 1 and has_no_gaps(out):
        _submit(name, plan, moved.reshape(x.size), sizes, exclusive, out.reshape(out.size))
        return out
    totals = aiodev.empty(sizes[0] * width, plan.result, x.device)
    _submit(name, plan, moved.reshape(x.size), sizes, exclusive, totals)
    result = totals.reshape(*moved.shape[:-1], width).transpose(*(axes.index(d) for d in range(x.ndim)))
    if out is None:
        return result
    out.copy_from(result)
    return out


def _submit(
    name: str, plan: Any, x: aiodev.Array, sizes: tuple[int, int, int], exclusive: bool, totals: aiodev.Array
) -> None:
    rows, length, width = sizes
    stream = aiodev.current_stream(x.device)
    _, offsets, run = _kernels(name, plan.load, plan.combine, plan.identity)
    blocks = max(1, -(-length // BLOCK))
    blocks, count = pieces_and_teams(rows, length, x.device) or (blocks, rows * ((blocks + 3) // 4))
    if blocks == 1:
        parts = aiodev.full(rows, plan.identity.item(), plan.identity.dtype, x.device)
    else:
        parts = aiodev.empty(rows * blocks, plan.identity.dtype, x.device)
        plan.kernels.blocks[rows * blocks, stream](blocks, x, length, plan.identity, parts)
        offsets[rows, stream](blocks, plan.identity, parts)
    run[count, stream](blocks, x, length, parts, exclusive, width, totals)


def _sample_scan(function: Callable[..., aiodev.Array], length: int, dtype: Any) -> None:
    function(aiodev.ones(length, dtype=dtype))


for _function in (cumulative_sum, cumulative_prod):
    for _length in (4, BLOCK + 1):  # at once, and by blocks
        register_sample(_function.__name__, functools.partial(_sample_scan, _function, _length))
