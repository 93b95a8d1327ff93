"""How products are cut: into batches of matrices that the kernels take, and into panels that are worth a launch's index."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product as pairs

import aiodev
from aiodev.kernels.tuning import LONG_SIDE, MULTIPLIED_EACH, PANEL_EACH, PANEL_SIDE, PANELS, VECTOR_EACH, VECTOR_STRIP

__all__ = ["batches_of", "cores_of", "fitting", "is_fit", "least_for", "panel_of"]


def is_fit(x: aiodev.Array, packed: bool) -> bool:
    """Whether a kernel takes these strides: rows or columns that are contiguous, or no gaps at all if ``packed``."""
    rows, columns = x.shape[-2:]
    down, across = x.strides[-2:]
    size = x.itemsize
    by_rows = (columns == 1 or across == size) and (rows == 1 or down >= columns * size)
    if packed:
        return by_rows and x.is_contiguous
    return by_rows or ((rows == 1 or down == size) and (columns == 1 or across >= rows * size))


def fitting(call: aiodev.Call, x: aiodev.Array, packed: bool) -> aiodev.Array:
    """The array, or a copy of it with other strides."""
    return x if is_fit(x, packed) else call.packed(x)


def batches_of(a: aiodev.Array, b: aiodev.Array, out: aiodev.Array) -> Iterator[tuple[aiodev.Array, ...]]:
    """The product as one of three-dimensional arrays, or as several where an operand is repeated in some dimensions only."""
    batch = out.shape[:-2]
    if b.ndim == 2 and len(batch) and is_fit(out, packed=True) and is_fit(a, packed=True):
        stacked = math.prod(a.shape[:-1])
        yield a.reshape(1, stacked, a.shape[-1]), b[None], out.reshape(1, stacked, out.shape[-1])
        return
    if a.ndim == b.ndim == out.ndim == 3 and a.shape[0] in (1, *batch) and b.shape[0] in (1, *batch):
        yield a, b, out
        return
    left, right = (x[(None,) * (out.ndim - x.ndim)] for x in (a, b))
    if all(math.prod(x.shape[:-2]) == 1 or x.shape[:-2] == batch for x in (left, right)):
        yield tuple(x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) for x in (left, right, out))
        return
    for index in pairs(*map(range, batch[:-1])):
        parts = [x[tuple(i if n != 1 else 0 for i, n in zip(index, x.shape, strict=False))] for x in (left, right)]
        yield *parts, out[index]


def least_for(rows: int, columns: int) -> int:
    """Multiplications for one index, at least."""
    return VECTOR_EACH if rows == 1 or columns == 1 else MULTIPLIED_EACH


def panel_of(rows: int, columns: int, inner: int) -> tuple[int, int]:
    """The rows and columns of the panels that a product is cut into.

    They follow from the shape alone: where an element lies in its panel decides how BLAS rounds it, and that is to be the same
    on any number of cores.
    """
    if columns == 1:
        return max(1, min(rows, VECTOR_EACH // max(1, inner))), 1
    if rows == 1:
        return 1, min(columns, max(VECTOR_STRIP, VECTOR_EACH // max(1, inner)))
    wanted = min(PANELS, rows * columns * inner // PANEL_EACH)
    height, width, count = rows, columns, 1
    while count < wanted and max(height, width) >= 2 * PANEL_SIDE or (
        max(height, width) > LONG_SIDE and height * width * inner >= 2 * MULTIPLIED_EACH
    ):
        if height >= max(2 * PANEL_SIDE, width):  # square panels pack the least
            height = -(-height // 32) * 16  # BLAS's innermost loops are over some 16 rows or columns
        else:
            width = -(-width // 32) * 16
        count *= 2
    return height, width


@functools.cache
def cores_of(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count
