"""The kernels that copy arrays with gaps, and which of them a copy takes.

On the CPU elements that lie side by side are copied as rows, of memory that is seen as flat: where the compiler does not know
that a step is 1, it copies one by one.
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


@kernel(ndim=3, reads=["src"])
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """One element."""
    dst[i, j, k] = src[i, j, k]


@kernel(uniform=True, reads=["src"])
def copy_row(i: int, dst: Any, src: Any) -> None:
    """One element of flat memory."""
    dst[i] = src[i]


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
    by_rows = not capabilities(device).simt and inner[2] >= _ROW and _has_rows(to, size) and _has_rows(fro, size)
    for there, here in places:
        sides = (dst, there, to), (src, here, fro)
        if not by_rows:
            yield copy_strided, inner, tuple([x._seen_from(begin, inner, strides, word) for x, begin, strides in sides])
            continue
        outer, rows, width = inner
        flat = [x._seen_from(begin, (_extent(inner, strides, size),), None, word) for x, begin, strides in sides]
        if outer == rows == 1:
            yield copy_row, (width,), tuple(flat)
        else:
            group = max(1, _PIECE // width)
            steps = [n // size for n in (*to[:2], *fro[:2])]
            yield copy_rows, (-(-outer * rows // group),), (group, outer, rows, width, *steps, *flat)


def _has_rows(strides: tuple[int, ...], size: int) -> bool:
    """Whether the last of three dimensions has no gaps, and the others go upwards, by whole elements."""
    outer, rows, last = strides
    return last == size and outer >= 0 <= rows and outer % size == 0 == rows % size


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> int:
    """The elements from the first to the last."""
    outer, rows, width = shape
    return ((outer - 1) * strides[0] + (rows - 1) * strides[1]) // size + width
