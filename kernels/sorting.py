"""Sorting along an axis, stable, in the order of NumPy: NaN after everything else.

Numbers are sorted digit by digit (:mod:`aiodev.kernels.sorting_bodies`), so the time grows with the bits by which they differ.
Few long rows are split into buckets first, which all cores sort (:mod:`aiodev.kernels.sorting_splits`). It takes the memory of
the keys twice, and that of the places where those are wanted.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels import (
    sorting_bodies as bodies,
    sorting_keys as keys_of,
    sorting_splits as splits,
    sorting_teams as teams,
)
from aiodev.kernels.conversion import astype
from aiodev.kernels.operands import arrays_of, checked_axis, checked_out, has_no_gaps, move_last, packed
from aiodev.kernels.sorting_bodies import BITS, LANES, WIDE_BITS, Kernels
from aiodev.kernels.teams import TEAM, has_teams

__all__ = ["argsort", "sort"]

DType = np.dtype[Any]
#: Bytes of the longest row that is sorted by one worker, however few there are, and from how many rows on each is.
_LONG_BYTES, _FEW = 1 << 19, 8
#: Rows for which more counters are worth it: they have more keys than that, and their keys are in the caches.
_WIDE, _WIDE_BYTES = 1 << 14, 1 << 22
#: Groups of rows: each sorts its rows one by one.
_GROUPS = 64
#: Of groups of rows, under (name, axis, descending).
_launches = aiodev.LaunchCache(1)


class _Plan(NamedTuple):
    """How to sort one dtype.

    Attributes:
        functions: from elements to keys, to keys of which those of equal elements are equal, and from keys to elements.
    """

    key: DType
    functions: tuple[Any, Any, Any]
    kernels: Kernels


class _Call(NamedTuple):
    """A call that may be repeated: rows are along the last axis."""

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

    NaN comes after everything else, -0.0 before 0.0; ``descending`` turns all of that round. Submits to the current stream;
    writes to ``out`` if given, which may be ``x``.

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
    key = "sort", axis, descending
    found = _launches.repeat(key, x, out)
    if found is not None:
        return found
    (x,) = arrays_of("sort", x=x)
    at = checked_axis("sort", axis, x.ndim)
    _check_order("sort", x.dtype)
    if out is not None:
        checked_out("sort", out, x.shape, x.dtype, x.device)
    if x.dtype == np.float16:
        result = astype(sort(astype(x, np.float32), axis=at, descending=descending), np.float16)
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
    key = "argsort", axis, descending
    found = _launches.repeat(key, x, out)
    if found is not None:
        return found
    (x,) = arrays_of("argsort", x=x)
    at = checked_axis("argsort", axis, x.ndim)
    _check_order("argsort", x.dtype)
    if out is not None:
        checked_out("argsort", out, x.shape, np.dtype(np.int64), x.device)
    result = _sort_places(key, astype(x, np.float32) if x.dtype == np.float16 else x, at, descending, out)
    if out is None or result is out:
        return result
    out.copy_from(result)
    return out


def _check_order(function: str, dtype: DType) -> None:
    if dtype.kind == "c":
        raise TypeError(f"{function}: complex numbers have no order; sort their abs, or real and imag")


@functools.cache
def _plan(dtype: DType, descending: bool) -> _Plan:
    size, kind = dtype.itemsize, dtype.kind
    key = np.dtype(f"u{size}")
    to_key: Any
    from_key: Any
    to_place_key = None
    if kind == "b":
        to_key, from_key = keys_of.truth_key, keys_of.truth_of
    elif kind == "u":
        to_key, from_key = keys_of.unsigned_key, keys_of.unsigned_key
    elif kind == "i":
        to_key, from_key = getattr(keys_of, f"signed_key_{size}"), getattr(keys_of, f"signed_of_{size}")
    else:
        to_key, from_key = getattr(keys_of, f"float_key_{size}"), getattr(keys_of, f"float_of_{size}")
        to_place_key = getattr(keys_of, f"equal_float_key_{size}")
    to_place_key = to_place_key or to_key
    if descending:
        to_key, to_place_key = keys_of.reversed_to(to_key, key.type), keys_of.reversed_to(to_place_key, key.type)
        from_key = keys_of.reversed_from(from_key, key.type)
    functions = to_key, to_place_key, from_key
    return _Plan(key, functions, bodies.make_kernels("sort", *functions, key.type))


@functools.cache
def _splits(dtype: DType, descending: bool) -> splits.SplitKernels:
    plan = _plan(dtype, descending)
    return splits.make_split_kernels("sort", *plan.functions, plan.key.type)


@functools.cache
def _teams(dtype: DType, descending: bool) -> teams.TeamKernels:
    plan = _plan(dtype, descending)
    return teams.make_team_kernels("sort", *plan.functions, plan.key.type)


def _sort_rows(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    """Sort to the array that is given, if it can be done there, or to another one, which is returned."""
    plan, moved = _plan(x.dtype, descending), move_last("sort", x, axis)
    result = _room_for(moved, x, x.dtype, given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
    if has_teams(x.device):
        _sort_by_teams(plan, _teams(x.dtype, descending), flat, out, length)
    elif length * x.itemsize > _LONG_BYTES and rows < _FEW:
        split = _SplitWork(_splits(x.dtype, descending), plan.key, length, x.device)
        for row in range(0, x.size, length):
            split.sort(flat[row : row + length], out[row : row + length])
    else:
        work = _Work(plan, length, rows, x.device)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        call = _Call(key, x, given is None) if moved is x else None
        work.sort_rows(plan.kernels.rows, flat, (keys, other), result, call)
    return _moved_back(result, axis)


def _sort_places(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    plan, moved = _plan(x.dtype, descending), move_last("argsort", x, axis)
    result = _room_for(moved, x, np.dtype(np.int64), given)
    if not result.size:
        return _moved_back(result, axis)
    length, rows = x.shape[axis], x.size // x.shape[axis]
    flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
    if has_teams(x.device):
        _sort_places_by_teams(plan, _teams(x.dtype, descending), flat, out, length)
    elif length * x.itemsize > _LONG_BYTES and rows < _FEW:
        split = _SplitWork(_splits(x.dtype, descending), plan.key, length, x.device)
        for row in range(0, x.size, length):
            split.sort_places(flat[row : row + length], out[row : row + length])
    else:
        work = _Work(plan, length, rows, x.device)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        places, others = work.scratch(_number(length)), work.scratch(_number(length))
        call = _Call(key, x, given is None) if moved is x else None
        work.sort_rows(plan.kernels.rows_places, flat, (keys, other, places, others), result, call)
    return _moved_back(result, axis)


def _number(length: int) -> Any:
    """The type of places in a row."""
    return np.uint32 if length < 1 << 32 else np.int64


def _sort_by_teams(plan: _Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int) -> None:
    work = _TeamWork(plan, kernels, length, x.size // length, x.device)
    cut, stream = work.cut, work.stream
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        plan.kernels.rows[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    kernels.encode[x.size, stream](x, keys)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move[work.teams, stream](length, cut.block, p, keys, other, work.state, work.counts)
    kernels.decode[work.teams, stream](length, cut.block, work.passes, keys, other, work.state, out)


def _sort_places_by_teams(
    plan: _Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int
) -> None:
    work = _TeamWork(plan, kernels, length, x.size // length, x.device)
    cut, stream = work.cut, work.stream
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        plan.kernels.rows_places[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    places, others = (aiodev.empty(x.size, _number(length), x.device) for _ in range(2))
    kernels.encode_places[x.size, stream](x, keys, places)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move_places[work.teams, stream](
            length, cut.block, p, keys, other, places, others, work.state, work.counts
        )
    teams.choose_places[work.teams, stream](length, cut.block, work.passes, places, others, work.state, out)


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


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


class _Work:
    """How rows are shared out that are sorted whole, and the memory that it takes.

    Attributes:
        counts: of each value of a digit, for each group.
    """

    def __init__(self, plan: _Plan, length: int, rows: int, device: aiodev.Device) -> None:
        self.stream = aiodev.current_stream(device)
        each = math.ceil(rows / _GROUPS)
        self.groups = math.ceil(rows / each)
        size = plan.key.itemsize
        bits = WIDE_BITS if size >= 4 and length >= _WIDE and length * size <= _WIDE_BYTES else BITS
        self.sizes = rows, each, length, bits
        self.counts = aiodev.empty(self.groups * (LANES << bits), _number(length), device)
        self._length = length

    def scratch(self, dtype: Any) -> aiodev.Array:
        """Room for a row of each group."""
        return aiodev.empty(self._length * self.groups, dtype, self.stream.device)

    def sort_rows(
        self,
        kernel: aiodev.Kernel,
        x: aiodev.Array,
        scratch: tuple[aiodev.Array, ...],
        result: aiodev.Array,
        call: _Call | None,
    ) -> None:
        """Have each group sorted, to be repeated for a call like that."""
        args = *self.sizes, x, *scratch, self.counts, result.reshape(result.size)
        if call is None:
            kernel[self.groups, self.stream](*args)
        else:
            takes = None, None, None, None, 0, *(-1 for _ in scratch), -1, 1
            _launches.launch(call.key, (call.x,), result, kernel, self.groups, args, takes, made=call.made)


class _SplitWork:
    """The same of long rows, one after the other, each split into buckets; see :mod:`aiodev.kernels.sorting_splits`."""

    def __init__(self, kernels: splits.SplitKernels, key: DType, length: int, device: aiodev.Device) -> None:
        self._kernels, self._length, self._device = kernels, length, device
        self._stream = aiodev.current_stream(device)
        self._cut = cut = splits.cut_row(length, _cores(device))
        word, number = splits.word_of(key), _number(length)
        self._keys, self._other = self._room(key), self._room(key)
        self._number = number
        self._choice = tuple(
            aiodev.empty(size, dtype, device)
            for size, dtype in ((cut.sample, key), (3, word), (splits.DIGITS, np.uint32))
        )
        self._offsets = aiodev.empty(cut.blocks * splits.CHUNK, word, device)
        self._found = self._room(np.uint16)
        self._counts = aiodev.empty(cut.blocks * cut.buckets, number, device)
        self._starts = aiodev.empty(cut.buckets + 1, np.int64, device)
        self._counters = aiodev.empty(cut.groups * splits.COUNTERS, number, device)

    def _room(self, dtype: Any) -> aiodev.Array:
        return aiodev.empty(self._length, dtype, self._device)

    def _find_buckets(self, x: aiodev.Array) -> tuple[int, int, int]:
        """Choose buckets, and find out where each block's keys of each go; what splitting begins with."""
        cut, stream = self._cut, self._stream
        sizes = self._length, cut.block, cut.buckets
        sample, limits, table = self._choice
        self._kernels.choose[1, stream](self._length, cut.buckets, x, sample, limits, table)
        self._kernels.count[cut.blocks, stream](*sizes, x, limits, table, self._offsets, self._found, self._counts)
        splits.sum_up_buckets[1, stream](cut.blocks, cut.buckets, self._counts, self._starts)
        return sizes

    def sort(self, x: aiodev.Array, out: aiodev.Array) -> None:
        """Sort one row."""
        cut, stream = self._cut, self._stream
        sizes = self._find_buckets(x)
        self._kernels.split[cut.blocks, stream](*sizes, x, self._found, self._counts, self._keys)
        self._kernels.finish[cut.groups, stream](
            cut.each, cut.buckets, self._starts, self._keys, self._other, self._counters, out
        )

    def sort_places(self, x: aiodev.Array, out: aiodev.Array) -> None:
        """Find the places of one row in order."""
        cut, stream = self._cut, self._stream
        sizes = self._find_buckets(x)
        places, others = self._room(self._number), self._room(self._number)
        self._kernels.split_places[cut.blocks, stream](*sizes, x, self._found, self._counts, self._keys, places)
        self._kernels.finish_places[cut.groups, stream](
            cut.each, cut.buckets, self._starts, self._keys, self._other, places, others, self._counters, out
        )


class _TeamWork:
    """The same where teams sort: all rows at once, each whole or in blocks; see :mod:`aiodev.kernels.sorting_teams`.

    Attributes:
        teams: as many as there are blocks, of all rows.
        sums: how many sum up the counts.
        counts: for each row and byte, of each block, and of all.
    """

    def __init__(self, plan: _Plan, kernels: teams.TeamKernels, length: int, rows: int, device: aiodev.Device) -> None:
        self.stream = aiodev.current_stream(device)
        self.length, self.rows = length, rows
        self.passes = -(-8 * plan.key.itemsize // BITS)
        self.cut = teams.cut_rows(rows, length)
        self._kernels = kernels
        if self.cut.blocks:
            self.teams = rows * self.cut.blocks
            self.sums = rows * teams.BYTES if self.cut.blocks > teams.SERIAL else -(-rows * teams.BYTES // TEAM)
            self.counts = aiodev.empty(rows * teams.BYTES * (self.cut.blocks + 1), np.int64, device)
            self.state = aiodev.zeros(rows * teams.STATES, np.int64, device)

    def count(self, p: int, keys: aiodev.Array, other: aiodev.Array) -> None:
        """Find out where pass ``p`` moves the keys of each block."""
        sizes = self.length, self.cut.block, p
        self._kernels.count[self.teams, self.stream](*sizes, keys, other, self.state, self.counts)
        teams.sum_up[self.sums, self.stream](self.length, self.cut.blocks, p, self.state, self.counts)
