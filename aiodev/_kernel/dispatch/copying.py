"""The kernels that copy arrays with gaps, and which of them a copy takes.

On the CPU elements that lie side by side are copied as rows, of memory that is seen as flat: where the compiler does not know
that a step is 1, it copies one by one. Where they lie side by side along one axis in the target and along another in the
source, as in a transpose, they are copied by blocks, and in those by squares: what a core has read into its cache is then
still there when the next elements of it are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aiodev._array.array import Array
from aiodev._array.copy import boxes
from aiodev._array.dtypes import word_dtype
from aiodev._core.backend.device import Device
from aiodev._core.backend.device_info import capabilities
from aiodev._kernel.kernel import Kernel, kernel

__all__ = ["copies"]

#: Elements of a row, at least, and of the rows that are copied by one index, about.
_ROW, _PIECE = 4, 1 << 12
#: Elements of a square's side; rows and columns of a block, which one index copies.
_SQUARE, _ROWS, _COLUMNS = 4, 1 << 7, 1 << 8
_1, _2, _3 = np.uint64(1), np.uint64(2), np.uint64(3)


@kernel(ndim=3, reads=["src"])
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """One element."""
    dst[i, j, k] = src[i, j, k]


@kernel(uniform=True, reads=["src"])
def copy_row(i: int, dst: Any, src: Any) -> None:
    """One element of flat memory."""
    dst[i] = src[i]


@kernel(uniform=True, reads=["src"])
def copy_turned(i: int, rows: int, columns: int, to: int, step: int, fro: int, pace: int, dst: Any, src: Any) -> None:
    """A block of a plane: rows of the flat ``dst``, and columns of ``src``, have no gaps.

    Planes of ``dst`` are ``to`` elements apart, rows ``step``; of ``src`` planes are ``fro``, columns ``pace``.
    """
    down, across = (rows + _ROWS - 1) // _ROWS, (columns + _COLUMNS - 1) // _COLUMNS
    if down <= 0 or across <= 0:  # never; so dividing cannot raise
        return
    there, here = i // (down * across) * to, i // (down * across) * fro
    top, left = i // across % down * _ROWS, i % across * _COLUMNS
    bottom, right = min(top + _ROWS, rows), min(left + _COLUMNS, columns)
    low, far = bottom - (bottom - top) % _SQUARE, right - (right - left) % _SQUARE
    for r in range(top, low, _SQUARE):
        for k in range(left, far, _SQUARE):
            a, p = np.uint64(there + r * step + k), np.uint64(here + k * pace + r)
            b, q = a + np.uint64(step), p + np.uint64(pace)
            c, s = b + np.uint64(step), q + np.uint64(pace)
            d, t = c + np.uint64(step), s + np.uint64(pace)
            p0, p1, p2, p3 = src[p], src[p + _1], src[p + _2], src[p + _3]
            q0, q1, q2, q3 = src[q], src[q + _1], src[q + _2], src[q + _3]
            s0, s1, s2, s3 = src[s], src[s + _1], src[s + _2], src[s + _3]
            t0, t1, t2, t3 = src[t], src[t + _1], src[t + _2], src[t + _3]
            dst[a], dst[a + _1], dst[a + _2], dst[a + _3] = p0, q0, s0, t0
            dst[b], dst[b + _1], dst[b + _2], dst[b + _3] = p1, q1, s1, t1
            dst[c], dst[c + _1], dst[c + _2], dst[c + _3] = p2, q2, s2, t2
            dst[d], dst[d + _1], dst[d + _2], dst[d + _3] = p3, q3, s3, t3
    for r in range(top, bottom):
        for k in range(far if r < low else left, right):
            dst[np.uint64(there + r * step + k)] = src[np.uint64(here + k * pace + r)]


@kernel(uniform=True, reads=["src"])
def copy_rows(
    i: int, group: int, outer: int, rows: int, width: int, to: int, step: int, fro: int, pace: int, dst: Any, src: Any
) -> None:
    """``group`` rows of ``width`` elements, ``rows`` of which are in each of ``outer`` planes.

    Planes of the flat ``dst`` are ``to`` elements apart, rows ``step``; of ``src`` it is ``fro`` and ``pace``.
    """
    first = i * group
    plane, row = first // rows, first % rows
    for _ in range(first, min(first + group, outer * rows)):
        there, here = np.uint64(plane * to + row * step), np.uint64(plane * fro + row * pace)
        for k in range(np.uint64(width)):
            dst[there + k] = src[here + k]
        row += 1
        if row == rows:
            plane, row = plane + 1, 0


def copies(device: Device, dst: Array, src: Array) -> Iterator[tuple[Kernel, tuple[int, ...], tuple[Any, ...]]]:
    """The launches that copy between arrays which a device reaches: a kernel, over what, and its arguments."""
    inner, to, fro, places = boxes(dst.shape, dst.strides, src.strides)
    size, word = dst.itemsize, word_dtype(dst.dtype.itemsize)
    plan = None if capabilities(device).simt else _flat_plan(inner, to, fro, size)
    for there, here in places:
        sides = (dst, there, to), (src, here, fro)
        if plan is None:
            yield copy_strided, inner, tuple([x._seen_from(begin, inner, strides, word) for x, begin, strides in sides])
        else:
            flat = [x._seen_from(begin, (_extent(inner, strides, size),), None, word) for x, begin, strides in sides]
            run, count, numbers = plan
            yield run, (count,), (*numbers, *flat)


def _flat_plan(
    shape: tuple[int, ...], to: tuple[int, ...], fro: tuple[int, ...], size: int
) -> tuple[Kernel, int, tuple[int, ...]] | None:
    """The kernel for three dimensions of memory that is seen as flat, its indices, and its numbers; None if none will do."""
    if not all(stride >= 0 == stride % size for stride in (*to, *fro)):
        return None
    outer, rows, width = shape
    (to_outer, to_row, to_last), (fro_outer, fro_row, fro_last) = ([n // size for n in own] for own in (to, fro))
    if to_last == 1 == fro_last and width >= _ROW:
        if outer == rows == 1:
            return copy_row, width, ()
        group = max(1, _PIECE // width)
        return copy_rows, -(-outer * rows // group), (group, outer, rows, width, to_outer, to_row, fro_outer, fro_row)
    if rows < _SQUARE or width < _SQUARE:
        return None
    if to_last == 1 == fro_row:
        numbers = rows, width, to_outer, to_row, fro_outer, fro_last
    elif to_row == 1 == fro_last:
        numbers = width, rows, to_outer, to_last, fro_outer, fro_row
    else:
        return None
    down, across, *_ = numbers
    return copy_turned, outer * -(-down // _ROWS) * -(-across // _COLUMNS), numbers


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> int:
    """The elements from the first to the last."""
    return sum((length - 1) * (stride // size) for length, stride in zip(shape, strides, strict=True)) + 1
