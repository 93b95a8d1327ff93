"""Sorting along an axis, stable, in the order of NumPy: NaN after everything else.

Numbers are sorted digit by digit (:mod:`aiodev.kernels.sorting.radix`), so the time grows with the bits by which they differ;
short rows in vectors, where it does not matter where elements come from (:mod:`aiodev.kernels.sorting.network`). Few long rows
are split into buckets first, which all cores sort (:mod:`aiodev.kernels.sorting.sample_sort`). Those that are not short take
the memory of the keys twice, and that of the places where those are wanted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import arrays_of, checked_axis, checked_out, flags, has_no_gaps, move_last, packed
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.sorting.launch import SplitWork, Step, sort_by_teams, sort_places_by_teams
from aiodev.kernels.sorting.network import LEAST, longest
from aiodev.kernels.sorting.plan import Plan, place_type, plan_for, split_kernels, team_kernels
from aiodev.kernels.sorting.radix import BITS, LANES, WIDE_BITS
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.warmup import register_sample

__all__ = ["argsort", "check_order", "sort"]

DType = np.dtype[Any]
#: Bytes of the longest row that one worker sorts by radix sort, however few there are; and from how many rows on each is.
_LONG_BYTES, _FEW = 1 << 19, 8
#: Rows for which more counters are worth it: they have more keys than that, and their keys are in the caches.
_WIDE, _WIDE_BYTES = 1 << 14, 1 << 22
#: Elements of a matrix whose columns are sorted without a copy that has them as rows.
_FEW_ELEMENTS = 1 << 12
#: Groups of rows: each sorts its rows one by one.
_GROUPS = 64
#: Under (name, axis, its type, descending).
_launches = aiodev.LaunchCache(1)


class _Call(NamedTuple):
    """A call that may be repeated: its arrays are used as they are."""

    key: tuple[Any, ...]
    x: aiodev.Array
    made: bool  #: no result was given


def sort(
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
    key = "sort", axis, axis.__class__, descending
    found = _launches.repeat(key, x, out)
    if found is not None:
        return found
    (x,) = arrays_of("sort", x=x)
    flags("sort", descending=descending, stable=stable)
    at = checked_axis("sort", axis, x.ndim)
    check_order("sort", x.dtype)
    if out is not None:
        checked_out("sort", out, x.shape, x.dtype, x.device)
    if dtypes.is_stored_only(x.dtype):
        computed = astype(x, dtypes.compute_dtype(x.dtype))
        result = astype(sort(computed, axis=at, descending=descending), x.dtype)
    else:
        result = _sort_rows(key, x, at, descending, out)
    if out is None or result is out:
        return result
    out.copy_from(result)
    return out


def argsort(
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
    key = "argsort", axis, axis.__class__, descending
    found = _launches.repeat(key, x, out)
    if found is not None:
        return found
    (x,) = arrays_of("argsort", x=x)
    flags("argsort", descending=descending, stable=stable)
    at = checked_axis("argsort", axis, x.ndim)
    check_order("argsort", x.dtype)
    if out is not None:
        checked_out("argsort", out, x.shape, np.dtype(np.int64), x.device)
    result = _sort_places(key, astype(x, dtypes.compute_dtype(x.dtype), copy=False), at, descending, out)
    if out is None or result is out:
        return result
    out.copy_from(result)
    return out


def check_order(function: str, dtype: DType) -> None:
    """See that numbers of this type have an order.

    Raises:
        TypeError: they have not.
    """
    if dtype.kind == "c":
        raise TypeError(f"{function}: complex numbers have no order; sort their abs, or real and imag")


def _sort_rows(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    """Sort to the array that is given, if it can be done there, or to another one, which is returned."""
    plan, moved = plan_for(x.dtype, descending), move_last("sort", x, axis)
    if _are_few_columns(x, axis):
        result = aiodev.empty(x.shape, x.dtype, x.device) if given is None else given
        work = _Work(plan, len(x), x.shape[1], x.device)
        scratch = work.scratch(plan.key), work.scratch(plan.key)
        work.sort_rows(plan.kernels.rows, x.T, scratch, result.T, result, _Call(key, x, given is None))
        return result
    result = _room_for(moved, x, x.dtype, given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
    most = longest(x.dtype)
    if has_teams(x.device):
        sort_by_teams(plan, team_kernels(x.dtype, descending), flat, out, length)
    elif length > (most or _LONG_BYTES // x.itemsize) and rows < _FEW:
        split = SplitWork(split_kernels(x.dtype, descending), plan.key, length, x.device, with_places=False)
        for row in range(0, x.size, length):
            call = _Call(key, x, given is None) if moved is x and rows == 1 else None
            _launch_all(split.sort(flat[row : row + length], out[row : row + length]), result, call)
    else:
        call = _Call(key, x, given is None) if moved is x else None
        lines = flat.reshape(rows, length), out.reshape(rows, length)
        if LEAST <= length <= most:
            each, groups = _share(rows)
            args, takes = (rows, each, length, *lines), (None, None, None, 0, 1)
            _launch_all([(plan.short, groups, args, takes)], result, call)
            return _moved_back(result, axis)
        work = _Work(plan, length, rows, x.device)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        work.sort_rows(plan.kernels.rows, lines[0], (keys, other), lines[1], result, call)
    return _moved_back(result, axis)


def _sort_places(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    plan, moved = plan_for(x.dtype, descending), move_last("argsort", x, axis)
    if _are_few_columns(x, axis):
        result = aiodev.empty(x.shape, np.int64, x.device) if given is None else given
        work = _Work(plan, len(x), x.shape[1], x.device)
        scratch = *(work.scratch(plan.key) for _ in range(2)), *(work.scratch(place_type(len(x))) for _ in range(2))
        work.sort_rows(plan.kernels.rows_places, x.T, scratch, result.T, result, _Call(key, x, given is None))
        return result
    result = _room_for(moved, x, np.dtype(np.int64), given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
    if has_teams(x.device):
        sort_places_by_teams(plan, team_kernels(x.dtype, descending), flat, out, length)
    elif length * x.itemsize > _LONG_BYTES and rows < _FEW:
        split = SplitWork(split_kernels(x.dtype, descending), plan.key, length, x.device, with_places=True)
        for row in range(0, x.size, length):
            call = _Call(key, x, given is None) if moved is x and rows == 1 else None
            _launch_all(split.sort_places(flat[row : row + length], out[row : row + length]), result, call)
    else:
        work = _Work(plan, length, rows, x.device)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        places, others = work.scratch(place_type(length)), work.scratch(place_type(length))
        call = _Call(key, x, given is None) if moved is x else None
        lines = flat.reshape(rows, length), out.reshape(rows, length)
        work.sort_rows(plan.kernels.rows_places, lines[0], (keys, other, places, others), lines[1], result, call)
    return _moved_back(result, axis)


def _are_few_columns(x: aiodev.Array, axis: int) -> bool:
    """Whether they are sorted where they are."""
    return x.ndim == 2 and axis == 0 and 0 < x.size <= _FEW_ELEMENTS and not has_teams(x.device)


def _room_for(moved: aiodev.Array, x: aiodev.Array, dtype: DType, given: aiodev.Array | None) -> aiodev.Array:
    """The array that is given, if rows lie there as they are sorted; else a new one."""
    if given is not None and moved is x and has_no_gaps(given) and not has_teams(x.device):
        return given
    return aiodev.empty(moved.shape, dtype, x.device)


def _moved_back(result: aiodev.Array, axis: int) -> aiodev.Array:
    last = result.ndim - 1
    if axis == last:
        return result
    return result.transpose(*range(axis), last, *range(axis, last))


def _share(rows: int) -> tuple[int, int]:
    """How many rows a group has, and how many groups there are."""
    each = math.ceil(rows / _GROUPS)
    return each, math.ceil(rows / each)


def _launch_all(steps: Sequence[Step], result: aiodev.Array, call: _Call | None) -> None:
    """Launch one kernel after the other, to be repeated for a call like that."""
    if call is None:
        stream = aiodev.current_stream(result.device)
        for kernel, count, args, _ in steps:
            kernel[count, stream](*args)
    else:
        _launches.launch_all(call.key, (call.x,), result, steps, made=call.made)


class _Work:
    """How rows are shared out that are sorted whole, and the memory that it takes.

    Attributes:
        counts: of each value of a digit, for each group.
    """

    def __init__(self, plan: Plan, length: int, rows: int, device: aiodev.Device) -> None:
        self._device = device
        each, self.groups = _share(rows)
        size = plan.key.itemsize
        bits = WIDE_BITS if size >= 4 and length >= _WIDE and length * size <= _WIDE_BYTES else BITS
        self.sizes = rows, each, length, bits
        self.counts = aiodev.empty(self.groups * (LANES << bits), place_type(length), device)
        self._length = length

    def scratch(self, dtype: Any) -> aiodev.Array:
        """Room for a row of each group."""
        return aiodev.empty(self._length * self.groups, dtype, self._device)

    def sort_rows(
        self,
        kernel: aiodev.Kernel,
        x: aiodev.Array,
        scratch: tuple[aiodev.Array, ...],
        out: aiodev.Array,
        result: aiodev.Array,
        call: _Call | None,
    ) -> None:
        """Have each group of a matrix's rows sorted, to be repeated for a call like that; ``out`` is ``result`` as a matrix."""
        takes = None, None, None, None, 0, *(-1 for _ in scratch), -1, 1
        args = *self.sizes, x, *scratch, self.counts, out
        _launch_all([(kernel, self.groups, args, takes)], result, call)


def _sample_sort(length: int, dtype: Any) -> None:
    sort(aiodev.ones(length, dtype=dtype))


for _length in (LEAST - 1, LEAST):  # digit by digit, and in vectors
    register_sample("sort", functools.partial(_sample_sort, _length))
