"""Sorting along an axis, stable, in the order of NumPy: NaN after everything else.

Numbers are sorted digit by digit (:mod:`aiodev.kernels.sorting_bodies`), so the time grows with the bytes of an element and,
but for that, is the same for all data. It takes the memory of the keys twice, and that of the places where those are wanted.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels import sorting_bodies as bodies, sorting_keys as keys_of
from aiodev.kernels.conversion import astype
from aiodev.kernels.operands import arrays_of, checked_axis, checked_out, has_no_gaps, move_last, packed
from aiodev.kernels.sorting_bodies import BITS, COUNTERS, LANES, WIDE_BITS, Kernels
from aiodev.kernels.sorting_teams import BYTES, SERIAL, STATES, cut_rows
from aiodev.kernels.teams import TEAM, has_teams

__all__ = ["argsort", "sort"]

DType = np.dtype[Any]
#: The longest row that is sorted by one worker, at least, and times the cores. Several, which sort a row if there are few, wait
#: for each other three times a pass; it takes many of them, or a long row, to make up for that.
_LONG, _LONG_ALONE, _FEW = 1 << 15, 1 << 21, 8
#: Rows for which more counters are worth it: they have more keys than that, and their keys are in the caches.
_WIDE, _WIDE_BYTES = 1 << 14, 1 << 22
#: Groups of rows: each sorts its rows one by one.
_GROUPS = 64
#: Of groups of rows, under (name, axis, descending).
_launches = aiodev.LaunchCache(1)


class _Plan(NamedTuple):
    """How to sort one dtype."""

    key: DType
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
    return _Plan(key, bodies.make_kernels("sort", to_key, to_place_key, from_key, key.type))


def _sort_rows(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    """Sort to the array that is given, if it can be done there, or to another one, which is returned."""
    plan, moved = _plan(x.dtype, descending), move_last("sort", x, axis)
    result = _room_for(moved, x, x.dtype, given)
    if result.size and has_teams(x.device):
        _sort_by_teams(plan, packed(moved).reshape(x.size), result.reshape(x.size), x.shape[axis])
    elif result.size:
        work = _Work(plan, x.shape[axis], x.size // x.shape[axis], x.device)
        flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        if not work.by_blocks:
            call = _Call(key, x, given is None) if moved is x else None
            work.sort_rows(plan.kernels.rows, flat, (keys, other), result, call)
        for row in work.long_rows():
            plan.kernels.encode[work.length, work.stream](flat[row], keys)
            for p in range(work.passes):
                work.count(p, keys, other)
                plan.kernels.move[work.blocks, work.stream](*work.block_of(p), keys, other, work.state, work.counts)
            plan.kernels.decode[work.blocks, work.stream](
                *work.block_of(work.passes), keys, other, work.state, out[row]
            )
    return _moved_back(result, axis)


def _sort_places(key: Any, x: aiodev.Array, axis: int, descending: bool, given: aiodev.Array | None) -> aiodev.Array:
    plan, moved = _plan(x.dtype, descending), move_last("argsort", x, axis)
    result = _room_for(moved, x, np.dtype(np.int64), given)
    if result.size and has_teams(x.device):
        _sort_places_by_teams(plan, packed(moved).reshape(x.size), result.reshape(x.size), x.shape[axis])
    elif result.size:
        work = _Work(plan, x.shape[axis], x.size // x.shape[axis], x.device)
        flat, out = packed(moved).reshape(x.size), result.reshape(x.size)
        keys, other = work.scratch(plan.key), work.scratch(plan.key)
        number = np.uint32 if work.length < 1 << 32 else np.int64
        places, others = work.scratch(number), work.scratch(number)
        if not work.by_blocks:
            scratch = keys, other, places, others
            call = _Call(key, x, given is None) if moved is x else None
            work.sort_rows(plan.kernels.rows_places, flat, scratch, result, call)
        for row in work.long_rows():
            plan.kernels.encode_places[work.length, work.stream](flat[row], keys, places)
            for p in range(work.passes):
                work.count(p, keys, other)
                plan.kernels.move_places[work.blocks, work.stream](
                    *work.block_of(p), keys, other, places, others, work.state, work.counts
                )
            bodies.choose_places[work.blocks, work.stream](
                *work.block_of(work.passes), places, others, work.state, out[row]
            )
    return _moved_back(result, axis)


def _sort_by_teams(plan: _Plan, x: aiodev.Array, out: aiodev.Array, length: int) -> None:
    work = _TeamWork(plan, length, x.size // length, x.device)
    cut, stream, kernels = work.cut, work.stream, plan.kernels
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        kernels.rows[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    kernels.encode[x.size, stream](x, keys)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move[work.teams, stream](length, cut.block, p, keys, other, work.state, work.counts)
    kernels.decode[work.teams, stream](length, cut.block, work.passes, keys, other, work.state, out)


def _sort_places_by_teams(plan: _Plan, x: aiodev.Array, out: aiodev.Array, length: int) -> None:
    work = _TeamWork(plan, length, x.size // length, x.device)
    cut, stream, kernels = work.cut, work.stream, plan.kernels
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        kernels.rows_places[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    number = np.uint32 if length < 1 << 32 else np.int64
    places, others = (aiodev.empty(x.size, number, x.device) for _ in range(2))
    kernels.encode_places[x.size, stream](x, keys, places)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move_places[work.teams, stream](
            length, cut.block, p, keys, other, places, others, work.state, work.counts
        )
    bodies.choose_places[work.teams, stream](length, cut.block, work.passes, places, others, work.state, out)


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
def _long(device: aiodev.Device) -> int:
    """Elements above which several workers sort a row."""
    return max(_LONG, _LONG_ALONE // aiodev.get_device_properties(device).multi_processor_count)


class _Work:
    """How rows are shared out, and the memory that it takes.

    Attributes:
        by_blocks: one row after the other, several workers on each; else groups of rows, each sorted whole.
        counts: of each byte, for each block or group.
        state: see :class:`~aiodev.kernels.sorting_bodies.Kernels`; of rows that are sorted by blocks.
    """

    def __init__(self, plan: _Plan, length: int, rows: int, device: aiodev.Device) -> None:
        self.stream = aiodev.current_stream(device)
        self.length, self.rows = length, rows
        self.by_blocks = length > _long(device) and rows < _FEW
        self.passes = -(-8 * plan.key.itemsize // BITS)
        self._plan = plan
        each = math.ceil(rows / _GROUPS)
        self.groups = math.ceil(rows / each)
        size = plan.key.itemsize
        bits = WIDE_BITS if size >= 4 and length >= _WIDE and length * size <= _WIDE_BYTES else BITS
        self.sizes = rows, each, length, bits
        self._block = min(max(1 << 14, length // 16), 1 << 17)
        self.blocks = math.ceil(length / self._block)
        if self.by_blocks:
            self.counts = aiodev.empty(self.blocks * COUNTERS, np.int64, device)
            self.state = aiodev.zeros(self.passes + 1, np.int64, device)
        else:
            self.counts = aiodev.empty(
                self.groups * (max(LANES, size) << bits), np.uint32 if length < 1 << 32 else np.int64, device
            )

    def scratch(self, dtype: Any) -> aiodev.Array:
        """Room for one long row, or for a row of each group."""
        return aiodev.empty(self.length * (1 if self.by_blocks else self.groups), dtype, self.stream.device)

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

    def long_rows(self) -> list[slice]:
        """Where the rows are that are sorted by blocks."""
        return [slice(k * self.length, (k + 1) * self.length) for k in range(self.rows)] if self.by_blocks else []

    def block_of(self, p: int) -> tuple[int, int, int]:
        """What kernels that work on blocks begin with."""
        return self.length, self._block, p

    def count(self, p: int, keys: aiodev.Array, other: aiodev.Array) -> None:
        """Find out where pass ``p`` moves the keys of each block."""
        self._plan.kernels.count[self.blocks, self.stream](*self.block_of(p), keys, other, self.state, self.counts)
        bodies.sum_up[1, self.stream](self.length, self.blocks, p, self.state, self.counts)


class _TeamWork:
    """The same where teams sort: all rows at once, each whole or in blocks; see :mod:`aiodev.kernels.sorting_teams`.

    Attributes:
        teams: as many as there are blocks, of all rows.
        sums: how many sum up the counts.
        counts: for each row and byte, of each block, and of all.
    """

    def __init__(self, plan: _Plan, length: int, rows: int, device: aiodev.Device) -> None:
        self.stream = aiodev.current_stream(device)
        self.length, self.rows = length, rows
        self.passes = -(-8 * plan.key.itemsize // BITS)
        self.cut = cut_rows(rows, length)
        self._plan = plan
        if self.cut.blocks:
            self.teams = rows * self.cut.blocks
            self.sums = rows * BYTES if self.cut.blocks > SERIAL else -(-rows * BYTES // TEAM)
            self.counts = aiodev.empty(rows * BYTES * (self.cut.blocks + 1), np.int64, device)
            self.state = aiodev.zeros(rows * STATES, np.int64, device)

    def count(self, p: int, keys: aiodev.Array, other: aiodev.Array) -> None:
        """Find out where pass ``p`` moves the keys of each block."""
        sizes = self.length, self.cut.block, p
        self._plan.kernels.count[self.teams, self.stream](*sizes, keys, other, self.state, self.counts)
        bodies.sum_up[self.sums, self.stream](self.length, self.cut.blocks, p, self.state, self.counts)
