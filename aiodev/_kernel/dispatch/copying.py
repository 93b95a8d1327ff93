"""The kernels that copy arrays with gaps, and which of them a copy takes.

On the CPU elements that lie side by side are copied as rows, of memory that is seen as flat: where the compiler does not know
that a step is 1, it copies one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aiodev._array.array import Array, make_array
from aiodev._array.copy import boxes_of
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
    for box in boxes_of(dst, src):
        yield _plan(device, *box)


def _plan(device: Device, dst: Array, src: Array) -> tuple[Kernel, tuple[int, ...], tuple[Any, ...]]:
    """The launch that copies one box: a kernel, over what, and its arguments."""
    if capabilities(device).simt or dst.shape[2] < _ROW or not (_has_rows(dst) and _has_rows(src)):
        return copy_strided, dst.shape, (dst, src)
    outer, rows, width = dst.shape
    if outer == rows == 1:
        return copy_row, (width,), (_flat(dst), _flat(src))
    group = max(1, _PIECE // width)
    size = dst.itemsize
    steps = (n // size for n in (*dst.strides[:2], *src.strides[:2]))
    return copy_rows, (-(-outer * rows // group),), (group, outer, rows, width, *steps, _flat(dst), _flat(src))


def _has_rows(x: Array) -> bool:
    """Whether the last of three dimensions has no gaps, and the others go upwards, by whole elements."""
    size = x.itemsize
    return x.strides[2] == size and all(step >= 0 and step % size == 0 for step in x.strides[:2])


def _flat(x: Array) -> Array:
    """The memory from the first to the last element."""
    size = x.itemsize
    last = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)) // size
    return make_array(x._buffer, x._address, (last + 1,), x.dtype, None, True)
