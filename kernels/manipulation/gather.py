"""Gather kernels behind concat, stack, roll, tile, repeat and pad: one launch, driven by an index table.

Rows are joined (:func:`lay`) and rolled (:func:`turn`) as they lie in memory. Else the launch goes by a table of where each
element of the result comes from. NumPy makes it, of the places in the arguments, when the launch is not known yet; so such a
result is what NumPy's is. A table takes half as much memory as the result, so it is for few elements, for which copies piece by
piece would cost Python tens of µs; and for devices that reach NumPy's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import HostArray, shared
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import GATHERED, MOVED_EACH, SHORT_MOVED

__all__ = ["join", "lay", "move", "turn"]

#: Arrays that are joined by one launch, at most; :func:`lay` takes so many at a time.
_MOST_JOINED = 4
#: Dimensions of an array whose places NumPy can find, in all of its versions.
_MOST_DIMENSIONS = 32
#: Elements of a row that one index takes at most.
_BLOCK = 1 << 14
#: Elements of rows that are copied column by column.
_SHORTEST = 3


@aiodev.kernel(uniform=True)
def take_or_fill(i: int, value: Any, places: Any, x: Any, out: Any) -> None:
    """An element from its place, or the value if that is -1."""
    place = places[i]
    out[i] = x[place] if place >= 0 else value


def lay_line(x: Any, row: int, width: int, out: Any, target: int) -> None:
    """Copy a row."""
    for k in range(np.uint64(width)):
        out[np.uint64(target) + k] = x[np.uint64(row * width) + k]


@aiodev.kernel
def lay_lines(
    i: int, rows: int, step: int, one: int, two: int, three: int, four: int, a: Any, b: Any, c: Any, d: Any, out: Any
) -> None:
    """``rows`` rows of so many elements of each of four arrays, one behind another; rows of the result are ``step`` apart.

    Flat arrays, whose slices have no gaps.
    """
    target = 0
    for row in range(i * rows, (i + 1) * rows):
        lay_line(a, row, one, out, target)
        lay_line(b, row, two, out, target + one)
        lay_line(c, row, three, out, target + one + two)
        lay_line(d, row, four, out, target + one + two + three)
        target += step


@aiodev.kernel(uniform=True)
def take_from_four(i: int, one: int, two: int, three: int, places: Any, a: Any, b: Any, c: Any, d: Any, out: Any) -> None:
    """An element of four arrays whose places are numbered one after the other; so many are in one, two and three of them."""
    place = places[i]
    if place < one:
        out[i] = a[place]
    elif place < two:
        out[i] = b[place - one]
    elif place < three:
        out[i] = c[place - two]
    else:
        out[i] = d[place - three]


@aiodev.kernel(reads=["x"])
def copy_line(i: int, x: Any, out: Any) -> None:
    """An element of an array that is laid behind others."""
    out[i] = x[i]


@aiodev.kernel(uniform=True, reads=["x"])
def copy_lines(i: int, group: int, width: int, begin: int, step: int, x: Any, out: Any) -> None:
    """Rows of ``width`` elements that are; rows of the result are ``step`` apart. Flat arrays, whose slices have no gaps."""
    first, last = i * group, min((i + 1) * group, x.size // width)
    source, target = np.uint64(first * width), np.uint64(first * step + begin)
    if width <= _SHORTEST:
        for k in range(np.uint64(width)):
            for row in range(np.uint64(last - first)):
                out[target + row * np.uint64(step) + k] = x[source + row * np.uint64(width) + k]
        return
    for _ in range(first, last):
        for k in range(np.uint64(width)):
            out[target + k] = x[source + k]
        source += np.uint64(width)
        target += np.uint64(step)


@aiodev.kernel(uniform=True, reads=["x"])
def roll_lines(i: int, group: int, blocks: int, width: int, shift: int, x: Any, out: Any) -> None:
    """Rows of ``width`` elements, or a block of one, of which the last ``shift`` come first. Flat arrays again."""
    lo = i % blocks * _BLOCK
    hi = min(lo + _BLOCK, width) if blocks > 1 else width
    middle, first = min(max(lo, shift), hi), i // blocks * group
    for row in range(first, min(first + group, x.size // width)):
        begin = row * width
        target, source = out[begin + lo : begin + middle], x[begin + lo + width - shift : begin + middle + width - shift]
        for k in range(target.size):
            target[k] = source[k]
        target, source = out[begin + middle : begin + hi], x[begin + middle - shift : begin + hi - shift]
        for k in range(target.size):
            target[k] = source[k]


@aiodev.kernel(uniform=True, reads=["x"])
def roll_short_lines(i: int, group: int, width: int, ahead: int, back: int, x: Any, out: Any) -> None:
    """Roll short rows: as one long row; then the elements from other rows, ``ahead`` first or ``back`` last, anew."""
    first, last = i * group, min((i + 1) * group, x.size // width)
    lo, hi = first * width, last * width
    target, source = out[lo + ahead : hi - back], x[lo + back : hi - ahead]
    for k in range(target.size):
        target[k] = source[k]
    moved = np.uint64(ahead + back)
    begin, there = (lo, lo + width - ahead) if ahead else (lo + width - back, lo)
    to, fro = np.uint64(begin), np.uint64(there)
    if moved <= _SHORTEST:
        for k in range(moved):
            for row in range(np.uint64(last - first)):
                out[to + row * np.uint64(width) + k] = x[fro + row * np.uint64(width) + k]
        return
    for _ in range(first, last):
        for k in range(moved):
            out[to + k] = x[fro + k]
        to += np.uint64(width)
        fro += np.uint64(width)


def _are_few(size: int, *arrays: aiodev.Array) -> bool:
    """Whether a result of ``size`` elements is made here of arrays, or written to them."""
    return 0 < size <= GATHERED and all(x.ndim > 0 for x in arrays)


def move(
    call: aiodev.Call, x: aiodev.Array, value: Any, result: aiodev.Array, places: Callable[[HostArray], HostArray]
) -> bool:
    """Fill the result; ``places`` makes of the places in ``x`` those for the result, or -1 for ``value``.

    False, and nothing is done, where it cannot be done here.
    """
    if not _are_few(result.size, x) or not result.is_contiguous or max(x.ndim, result.ndim) > _MOST_DIMENSIONS:
        return False
    table = _table(call, places(np.arange(x.size, dtype=np.int32).reshape(x.shape)))
    if table is None:
        return False
    args = value, table, call.reshape(x, x.size), result.reshape(result.size)
    call.launch(take_or_fill, result.size, *args)
    return True


def join(
    call: aiodev.Call,
    arrays: Sequence[aiodev.Array],
    result: aiodev.Array,
    places: Callable[[list[HostArray]], HostArray],
) -> bool:
    """Fill the result from several arrays of its dtype; ``places`` makes of the places in all of them those for the result.

    False, and nothing is done, where it cannot be done here.
    """
    if len(arrays) > _MOST_JOINED or any(x.dtype != result.dtype for x in arrays):
        return False
    if not _are_few(result.size, *arrays) or not result.is_contiguous or result.ndim > _MOST_DIMENSIONS:
        return False
    parts, ends = [], [0]
    for x in arrays:
        parts.append(np.arange(ends[-1], ends[-1] + x.size, dtype=np.int32).reshape(x.shape))
        ends.append(ends[-1] + x.size)
    counts = (ends[1:] + ends[-1:] * _MOST_JOINED)[: _MOST_JOINED - 1]
    table = _table(call, places(parts))
    if table is None:
        return False
    flat = [call.reshape(x, x.size) for x in arrays]
    args = *counts, table, *flat, *flat[-1:] * (_MOST_JOINED - len(flat)), result.reshape(result.size)
    call.launch(take_from_four, result.size, *args)
    return True


def lay(call: aiodev.Call, arrays: Sequence[aiodev.Array], result: aiodev.Array, axis: int) -> bool:
    """Fill the result with arrays one after another along an axis; False if it cannot be done so.

    By a launch over one index for several arrays of few elements, else by a launch for each array.
    """
    if not result.size or has_teams(result.device):
        return False
    if any(x.dtype != result.dtype for x in arrays) or not all(array.is_contiguous for array in (*arrays, result)):
        return False
    outer, begin, out = math.prod(result.shape[:axis]), 0, result.reshape(result.size)
    step = result.size // outer
    for at in range(0, len(arrays), _MOST_JOINED):
        flat = [x.reshape(x.size) for x in arrays[at : at + _MOST_JOINED]]
        widths = [x.size // outer for x in flat]
        if sum(x.size for x in flat) <= GATHERED:
            rest = _MOST_JOINED - len(flat)
            call.launch(lay_lines, 1, outer, step, *widths, *[0] * rest, *flat, *flat[-1:] * rest, out[begin:])
            begin += sum(widths)
            continue
        for x, width in zip(flat, widths, strict=True):
            if width and outer == 1:
                call.launch(copy_line, width, x, out[begin : begin + width])
            elif width:
                group = max(1, MOVED_EACH // width)
                call.launch(copy_lines, -(-outer // group), group, width, begin, step, x, out)
            begin += width
    return True


def turn(call: aiodev.Call, x: aiodev.Array, result: aiodev.Array, width: int, shift: int) -> bool:
    """Fill the result with rows of ``width`` elements whose last ``shift`` come first; False if it cannot be done so."""
    if has_teams(result.device) or not (x.is_contiguous and result.is_contiguous):
        return False
    group, rows = max(1, MOVED_EACH // width), x.size // width
    arrays = x.reshape(x.size), result.reshape(x.size)
    if width <= SHORT_MOVED:
        ahead = shift if 2 * shift <= width else 0
        back = 0 if ahead else width - shift
        call.launch(roll_short_lines, -(-rows // group), group, width, ahead, back, *arrays)
    else:
        blocks = -(-width // _BLOCK)
        call.launch(roll_lines, -(-rows // group) * blocks, group, blocks, width, shift, *arrays)
    return True


def _table(call: aiodev.Call, places: HostArray) -> aiodev.Array | None:
    table = shared(np.ascontiguousarray(places.reshape(-1)), call.device)
    return None if table is None else call.constant(table)
