"""Scans: running sums and products.

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
from aiodev.kernels.arguments import checked_axis, delivered, dtype_of, flags, packed_out
from aiodev.kernels.reductions import sum_plan
from aiodev.kernels.reductions.bodies import BLOCK
from aiodev.kernels.scans.cpu import STRIP, make_columns, make_scan
from aiodev.kernels.scans.cuda import pieces_and_teams
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import FEW_SCANNED, NARROW_SCANNED, SCANNED_EACH
from aiodev.kernels.warmup import register_sample

__all__ = ["cumulative_prod", "cumulative_sum"]


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def cumulative_sum(
    call: aiodev.Call,
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
    return _scan(call, "sum", x, axis, dtype, include_initial, exclusive, out)


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def cumulative_prod(
    call: aiodev.Call,
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
    return _scan(call, "prod", x, axis, dtype, include_initial, exclusive, out)


@functools.cache
def _kernels(name: str, load: Any, combine: Any, identity: Any) -> tuple[aiodev.Kernel, aiodev.Kernel, aiodev.Kernel]:
    return make_scan(name, load, combine, identity)


@functools.cache
def _columns(name: str, load: Any, combine: Any) -> aiodev.Kernel:
    return make_columns(name, load, combine)


def _scan(
    call: aiodev.Call,
    reduction: str,
    x: aiodev.Array,
    axis: int | None,
    dtype: Any,
    include_initial: bool,
    exclusive: bool,
    out: aiodev.Array | None,
) -> aiodev.Array:
    name = call.name
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
    few = inner <= 4 or inner * plan.result.itemsize <= NARROW_SCANNED or x.size <= FEW_SCANNED
    if not few and not has_teams(x.device):
        return _scan_columns(call, plan, x, (length, inner, shape), bool(exclusive))
    if (inner == 1 and length > BLOCK) or has_teams(x.device):
        return _scan_rows(call, plan, x, at, shape, bool(exclusive), out)
    result, target = packed_out(call, shape, plan.result)
    if not result.size:
        return result
    lines, fours = result.size // width, max(1, SCANNED_EACH // (4 * max(1, length)))
    group = -(-4 * fours // inner) * inner  # columns that share cache lines have one index
    numbers = length, inner, plan.identity, bool(exclusive), width
    kernel, _, _ = _kernels(name, plan.load, plan.combine, plan.identity)
    flat, out = call.reshape(x, x.size), target.reshape(target.size)
    call.launch(kernel, -(-lines // group), group, lines, flat, *numbers, out)
    return delivered(call, result, target)


def _scan_columns(
    call: aiodev.Call, plan: Any, x: aiodev.Array, lengths: tuple[int, int, tuple[int, ...]], before: bool
) -> aiodev.Array:
    """Along another axis than the last one, where the elements are."""
    length, inner, shape = lengths
    result, target = packed_out(call, shape, plan.result)
    matrices, strips = x.size // (length * inner), -(-inner // STRIP)
    source = call.reshape(x, (matrices, length, inner))
    out = target.reshape(matrices, target.size // (matrices * inner), inner)
    totals = call.scratch((matrices * strips, min(STRIP, inner)), plan.identity.dtype)
    kernel = _columns(call.name, plan.load, plan.combine)
    call.launch(kernel, matrices * strips, strips, source, plan.identity, before, totals, out)
    return delivered(call, result, target)


def _scan_rows(
    call: aiodev.Call,
    plan: Any,
    x: aiodev.Array,
    at: int,
    shape: tuple[int, ...],
    exclusive: bool,
    given: aiodev.Array | None,
) -> aiodev.Array:
    """By blocks of rows along the last axis; where ``at`` is another, of a copy."""
    axes = (*(d for d in range(x.ndim) if d != at), at)
    moved, width = x.transpose(*axes), shape[at]
    sizes = math.prod(moved.shape[:-1]), x.shape[at], width
    is_last = at == x.ndim - 1
    result = call.out(shape, plan.result) if is_last or given is not None else None
    if result is not None and is_last and result.is_contiguous:
        target = result
    elif result is None:
        target = aiodev.empty((*moved.shape[:-1], width), plan.result, x.device)
    else:
        target = call.scratch((*moved.shape[:-1], width), plan.result)
    _scan_blocks(call, plan, call.reshape(moved, x.size), sizes, exclusive, target.reshape(target.size))
    if target is result:
        return target
    turned = target.transpose(*(axes.index(d) for d in range(x.ndim)))
    return turned if result is None else delivered(call, result, turned)


def _scan_blocks(
    call: aiodev.Call, plan: Any, x: aiodev.Array, sizes: tuple[int, int, int], exclusive: bool, totals: aiodev.Array
) -> None:
    rows, length, width = sizes
    _, offsets, run = _kernels(call.name, plan.load, plan.combine, plan.identity)
    blocks = max(1, -(-length // BLOCK))
    blocks, count = pieces_and_teams(rows, length, x.device) or (blocks, rows * ((blocks + 3) // 4))
    if blocks == 1:
        parts = aiodev.full(rows, plan.identity.item(), plan.identity.dtype, x.device)
    else:
        parts = call.scratch(rows * blocks, plan.identity.dtype)
        call.launch(plan.kernels.blocks, rows * blocks, blocks, x, length, plan.identity, parts)
        call.launch(offsets, rows, blocks, plan.identity, parts)
    call.launch(run, count, blocks, x, length, parts, exclusive, width, totals)


def _sample_scan(function: Callable[..., aiodev.Array], length: int, dtype: Any) -> None:
    function(aiodev.ones(length, dtype=dtype))


for _function in (cumulative_sum, cumulative_prod):
    for _length in (4, BLOCK + 1):  # at once, and by blocks
        register_sample(_function.__name__, functools.partial(_sample_scan, _function, _length))
