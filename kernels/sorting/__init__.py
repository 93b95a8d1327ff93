"""Sorting along an axis, stable, in the order of NumPy: NaN after everything else.

Numbers are sorted digit by digit (:mod:`aiodev.kernels.sorting.radix`), so the time grows with the bits by which they differ;
short rows in vectors, where it does not matter where elements come from (:mod:`aiodev.kernels.sorting.network`). Few long rows
are split into buckets first, which all cores sort (:mod:`aiodev.kernels.sorting.sample_sort`). Those that are not short take
the memory of the keys twice, and that of the places where those are wanted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import checked_axis, delivered, flags, move_last
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.sorting.launch import SplitWork, sort_by_teams, sort_places_by_teams
from aiodev.kernels.sorting.network import LEAST, longest
from aiodev.kernels.sorting.plan import Plan, place_type, plan_for, split_kernels, team_kernels
from aiodev.kernels.sorting.radix import BITS, LANES, WIDE_BITS
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import FEW_TURNED, MANY_SORTED, SORT_GROUPS, WHOLE_BYTES, WIDE_BYTES, WIDE_FROM

__all__ = ["argsort", "check_order", "sort"]

DType = np.dtype[Any]
_PLACE = np.dtype(np.int64)


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def sort(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The elements along ``axis`` in ascending order.

    NaN comes after everything else, -0.0 before 0.0 (NumPy leaves zeros in their order); ``descending`` turns all of that
    round. Submits to the current stream; writes to ``out`` if given, which may be ``x``.

    Args:
        stable: it always is.

    Raises:
        ValueError: there is no such axis, or ``out`` has another shape.
        TypeError: complex numbers have no order; or ``out`` has another dtype.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[3, 1, 2], [9, 7, 8]], device="cpu")
        >>> aiodev.kernels.sort(x).numpy_blocking()
        array([[1, 2, 3],
               [7, 8, 9]])
        >>> aiodev.kernels.sort(x, axis=0, descending=True).numpy_blocking()
        array([[9, 7, 8],
               [3, 1, 2]])
    """
    flags("sort", descending=descending, stable=stable)
    at = checked_axis("sort", axis, x.ndim)
    check_order("sort", x.dtype)
    given = None if out is None else call.out(x.shape, x.dtype)
    if dtypes.is_stored_only(x.dtype):
        computed = astype(x, dtypes.compute_dtype(x.dtype))
        result = astype(sort(computed, axis=at, descending=descending), x.dtype)
    else:
        result = _sort_rows(call, x, at, descending, given)
    return result if given is None else delivered(call, given, result)


@aiodev.operation(reads=["x"], writes="out")
def argsort(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The places, ``int64``, at which the elements along ``axis`` are in ascending order; equal ones by their places.

    Otherwise as :func:`sort`, but that -0.0 equals 0.0, and NaN equals NaN. :func:`take_along_axis` takes what is there.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([2.5, 0.5, 2.5, 1.0], device="cpu")
        >>> aiodev.kernels.argsort(x).numpy_blocking(), aiodev.kernels.argsort(x, descending=True).numpy_blocking()
        (array([1, 3, 0, 2]), array([0, 2, 3, 1]))
    """
    flags("argsort", descending=descending, stable=stable)
    at = checked_axis("argsort", axis, x.ndim)
    check_order("argsort", x.dtype)
    given = None if out is None else call.out(x.shape, _PLACE)
    computed = astype(x, dtypes.compute_dtype(x.dtype), copy=False)
    result = _sort_places(call, computed, at, descending, given)
    return result if given is None else delivered(call, given, result)


def check_order(function: str, dtype: DType) -> None:
    """See that numbers of this type have an order.

    Raises:
        TypeError: they have not.
    """
    if dtype.kind == "c":
        raise TypeError(f"{function}: complex numbers have no order; sort their abs, or real and imag")


def _sort_rows(
    call: aiodev.Call, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None
) -> aiodev.Array:
    """Sort to the array that is given, if it can be done there, or to another one, which is returned."""
    plan, moved = plan_for(x.dtype, descending), move_last("sort", x, axis)
    if _are_few_columns(x, axis):
        result = call.new(x.shape, x.dtype) if given is None else given
        work = _Work(call, plan, len(x), x.shape[1])
        work.sort_rows(plan.kernels.rows, x.T, (plan.key, plan.key), result.T)
        return result
    result = _room_for(call, moved, x, x.dtype, given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = call.packed(moved).reshape(x.size), result.reshape(x.size)
    most = longest(x.dtype)
    if has_teams(x.device):
        sort_by_teams(call, plan, team_kernels(x.dtype, descending), flat, out, length)
    elif length > (most or WHOLE_BYTES // x.itemsize) and rows < MANY_SORTED:
        split = SplitWork(call, split_kernels(x.dtype, descending), plan.key, length, with_places=False)
        for row in range(0, x.size, length):
            split.sort(flat[row : row + length], out[row : row + length])
    elif LEAST <= length <= most:
        each, groups = _share(rows)
        call.launch(plan.short, groups, rows, each, length, flat.reshape(rows, length), out.reshape(rows, length))
    else:
        work = _Work(call, plan, length, rows)
        work.sort_rows(plan.kernels.rows, flat.reshape(rows, length), (plan.key, plan.key), out.reshape(rows, length))
    return _moved_back(result, axis)


def _sort_places(
    call: aiodev.Call, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None
) -> aiodev.Array:
    plan, moved = plan_for(x.dtype, descending), move_last("argsort", x, axis)
    number = place_type(x.shape[axis])
    scratch = plan.key, plan.key, number, number
    if _are_few_columns(x, axis):
        result = call.new(x.shape, _PLACE) if given is None else given
        work = _Work(call, plan, len(x), x.shape[1])
        work.sort_rows(plan.kernels.rows_places, x.T, scratch, result.T)
        return result
    result = _room_for(call, moved, x, _PLACE, given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = call.packed(moved).reshape(x.size), result.reshape(x.size)
    if has_teams(x.device):
        sort_places_by_teams(call, plan, team_kernels(x.dtype, descending), flat, out, length)
    elif length * x.itemsize > WHOLE_BYTES and rows < MANY_SORTED:
        split = SplitWork(call, split_kernels(x.dtype, descending), plan.key, length, with_places=True)
        for row in range(0, x.size, length):
            split.sort_places(flat[row : row + length], out[row : row + length])
    else:
        work = _Work(call, plan, length, rows)
        work.sort_rows(plan.kernels.rows_places, flat.reshape(rows, length), scratch, out.reshape(rows, length))
    return _moved_back(result, axis)


def _are_few_columns(x: aiodev.Array, axis: int) -> bool:
    """Whether they are sorted where they are."""
    return x.ndim == 2 and axis == 0 and 0 < x.size <= FEW_TURNED and not has_teams(x.device)


def _room_for(
    call: aiodev.Call, moved: aiodev.Array, x: aiodev.Array, dtype: DType, given: aiodev.Array | None
) -> aiodev.Array:
    """The array that is given, if rows lie there as they are sorted; else a new one."""
    if given is not None and moved is x and given.is_contiguous and not has_teams(x.device):
        return given
    return call.new(moved.shape, dtype)


def _moved_back(result: aiodev.Array, axis: int) -> aiodev.Array:
    last = result.ndim - 1
    if axis == last:
        return result
    return result.transpose(*range(axis), last, *range(axis, last))


def _share(rows: int) -> tuple[int, int]:
    """How many rows a group has, and how many groups there are."""
    each = math.ceil(rows / SORT_GROUPS)
    return each, math.ceil(rows / each)


class _Work:
    """How rows are shared out that are sorted whole, and the memory that it takes.

    Attributes:
        sizes: what a kernel is told of it.
        groups: indices of a launch.
    """

    def __init__(self, call: aiodev.Call, plan: Plan, length: int, rows: int) -> None:
        self._call, self._length = call, length
        each, self.groups = _share(rows)
        size = plan.key.itemsize
        self._bits = WIDE_BITS if size >= 4 and length >= WIDE_FROM and length * size <= WIDE_BYTES else BITS
        self.sizes = rows, each, length, self._bits

    def sort_rows(
        self, kernel: aiodev.Kernel, x: aiodev.Array, scratch: tuple[Any, ...], out: aiodev.Array
    ) -> None:
        """Have each group of a matrix's rows sorted; ``scratch`` are the types of what has room for a row of each group."""
        call = self._call
        rooms = [call.scratch(self._length * self.groups, dtype) for dtype in scratch]
        counts = call.scratch(self.groups * (LANES << self._bits), place_type(self._length))  # of each value of a digit
        call.launch(kernel, self.groups, *self.sizes, x, *rooms, counts, out)
