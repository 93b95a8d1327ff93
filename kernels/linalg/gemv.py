"""Products of a large matrix with a vector: each element is read once, so memory decides, and all cores should read.

Where rows are contiguous, a matrix times a vector is a dot product for each row, four at a time, or of few rows one for each
block of columns. A vector times a matrix is a sum of multiples of rows, in slabs of rows. Parts are added up afterwards. So
memory is read in order, and what is added up in which order follows from the shape alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.reductions.bodies import AHEAD, NEAR
from aiodev.kernels.tuning import GEMV_EACH, GEMV_LEAST, GEMV_NARROW, GEMV_ROWS, GEMV_SHORTEST, GEMV_SLAB

__all__ = ["multiply", "multiply_one"]

#: Columns of a slab, at most: as many sums stay in the first-level cache. And those whose sums are added up for one index.
_STRIP, _SUMS = 1 << 12, 1 << 8
#: Elements of a block of a row, whose sum is added to the others': it bounds the errors.
_BLOCK = 1 << 12
_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_REORDERED = frozenset({"reassoc", "contract"})


# Loops are over whole slices: an index that may be negative, as far as the compiler knows, would keep them out of vectors.


def dot_four(p: Any, q: Any, r: Any, s: Any, y: Any) -> Any:
    """The dot products of four rows with a vector."""
    t0 = t1 = t2 = t3 = y.dtype.type(0)
    for k in range(min(min(p.size, q.size), min(min(r.size, s.size), y.size))):
        t0 += p[k] * y[k]
        t1 += q[k] * y[k]
        t2 += r[k] * y[k]
        t3 += s[k] * y[k]
    return t0, t1, t2, t3


def dot_one(p: Any, y: Any) -> Any:
    """That of one."""
    total = y.dtype.type(0)
    for k in range(min(p.size, y.size)):
        total += p[k] * y[k]
    return total


def add_eight(totals: Any, x: Any, left: int, right: int, y: Any) -> None:
    """Add multiples of some columns of eight rows."""
    a, b, c, d = x[0, left:right], x[1, left:right], x[2, left:right], x[3, left:right]
    e, f, g, h = x[4, left:right], x[5, left:right], x[6, left:right], x[7, left:right]
    y0, y1, y2, y3, y4, y5, y6, y7 = y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7]
    for k in range(totals.size):
        first = (a[k] * y0 + b[k] * y1) + (c[k] * y2 + d[k] * y3)
        totals[k] += first + ((e[k] * y4 + f[k] * y5) + (g[k] * y6 + h[k] * y7))


def add_one(totals: Any, p: Any, factor: Any) -> None:
    """Add a multiple of one."""
    for k in range(totals.size):
        totals[k] += p[k] * factor


@aiodev.kernel(fastmath=_REORDERED, uniform=True)
def multiply_rows(
    i: int, groups: int, group: int, ahead: int, step_a: int, step_b: int, a: Any, b: Any, out: Any
) -> None:
    """``group`` rows of matrices, times vectors, block after block; ``groups`` of them in a matrix.

    Rows that are so many ``ahead`` are asked for, if any.
    """
    batch, first = i // groups, i % groups * group
    x, y, z = a[batch * step_a], b[batch * step_b], out[batch]
    last = min(first + group, x.shape[0])
    fours = last - (last - first) % 4
    for row in range(first, fours, 4):
        if 0 < ahead <= x.shape[0] - 4 - row:
            for k in range(4):
                lang.prefetch(x[row + ahead + k])
        t0 = t1 = t2 = t3 = out.dtype.type(0)
        for left in range(0, y.size, _BLOCK):
            right = min(left + _BLOCK, y.size)
            p, q = x[row, left:right], x[row + 1, left:right]
            r, s = x[row + 2, left:right], x[row + 3, left:right]
            s0, s1, s2, s3 = dot_four(p, q, r, s, y[left:right])
            t0 += s0
            t1 += s1
            t2 += s2
            t3 += s3
        z[row], z[row + 1], z[row + 2], z[row + 3] = t0, t1, t2, t3
    for row in range(fours, last):
        total = out.dtype.type(0)
        for left in range(0, y.size, _BLOCK):
            right = min(left + _BLOCK, y.size)
            total += dot_one(x[row, left:right], y[left:right])
        z[row] = total


@aiodev.kernel(fastmath=_REORDERED, uniform=True)
def multiply_blocks(i: int, blocks: int, step_a: int, step_b: int, a: Any, b: Any, parts: Any) -> None:
    """Some columns of few rows of matrices, times vectors."""
    batch, block = i // blocks, i % blocks
    x, y = a[batch * step_a], b[batch * step_b]
    left, right = block * _BLOCK, min((block + 1) * _BLOCK, x.shape[1])
    for row in range(x.shape[0]):
        parts[batch, block, row] = dot_one(x[row, left:right], y[left:right])


@aiodev.kernel(fastmath=_REORDERED, uniform=True)
def multiply_slabs(
    i: int, slabs: int, strips: int, slab: int, ahead: int, step_a: int, step_b: int, a: Any, b: Any, parts: Any
) -> None:
    """Vectors times matrices: the sums of ``slab`` multiples of rows, in some columns; ``ahead`` as above."""
    batch, item = i // (slabs * strips), i % (slabs * strips)
    x, y = a[batch * step_a], b[batch * step_b]
    left, right = item % strips * _STRIP, min((item % strips + 1) * _STRIP, x.shape[1])
    first, last = item // strips * slab, min((item // strips + 1) * slab, x.shape[0])
    totals = parts[batch, item // strips, left:right]
    for k in range(totals.size):
        totals[k] = 0
    eights = last - (last - first) % 8
    for row in range(first, eights, 8):
        if 0 < ahead <= x.shape[0] - 8 - row:
            for k in range(8):
                lang.prefetch(x[row + ahead + k, left:right])
        add_eight(totals, x[row : row + 8], left, right, y[row : row + 8])
    for row in range(eights, last):
        add_one(totals, x[row, left:right], y[row])


@aiodev.kernel(uniform=True)
def sum_slabs(i: int, strips: int, parts: Any, out: Any) -> None:
    """The sums of all slabs, in some columns."""
    batch, left, right = i // strips, i % strips * _SUMS, min((i % strips + 1) * _SUMS, out.shape[1])
    totals = out[batch, left:right]
    for k in range(totals.size):
        totals[k] = 0
    for slab in range(parts.shape[1]):
        own = parts[batch, slab, left:right]
        for k in range(totals.size):
            totals[k] += own[k]


def multiply_one(call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, out: aiodev.Array) -> bool:
    """Compute a large product of a matrix and a vector on the CPU; False, and nothing is, if it is not that."""
    if aiodev.capabilities(out.device).simt or not x1.dtype == x2.dtype == out.dtype or max(out.shape) < out.size:
        return False
    matrix, vector = (x2.T, x1) if x1.ndim == 1 or x1.shape[0] == 1 else (x1, x2)
    if matrix.ndim != 2 or vector.size != matrix.shape[1] or not (vector.is_contiguous and out.is_contiguous):
        return False
    return _launch(call, matrix[None], vector.reshape(1, vector.size), out.reshape(1, out.size))


def multiply(call: aiodev.Call, matrix: aiodev.Array, vector: aiodev.Array, out: aiodev.Array) -> bool:
    """Compute a batch of matrices times vectors; False, and nothing is, for what is better left to BLAS.

    Args:
        call: what launches.
        matrix: of the shape (batch, rows, columns); a single one may stand for the batch.
        vector: (batch, columns), the same goes for it.
        out: (batch, rows).
    """
    if not _is_worth_it(matrix, out):
        return False
    target = out if out.is_contiguous else call.scratch(out.shape, out.dtype)
    _launch(call, matrix, call.packed(vector), target)
    if target is not out:
        call.copy(out, target)
    return True


def is_large(matrix: aiodev.Array) -> bool:
    """Whether a matrix of a stack, or its transpose, may be worth it, as far as the number of its elements goes."""
    _, rows, columns = matrix.shape
    return rows * columns >= GEMV_LEAST


def _is_worth_it(matrix: aiodev.Array, out: aiodev.Array) -> bool:
    source = matrix if matrix.is_contiguous else matrix.transpose(0, 2, 1)
    _, rows, columns = source.shape
    return out.dtype in _DTYPES and rows * columns >= GEMV_LEAST and columns >= GEMV_SHORTEST and source.is_contiguous


def _launch(call: aiodev.Call, matrix: aiodev.Array, vector: aiodev.Array, out: aiodev.Array) -> bool:
    """By one launch or two; False, and nothing is, for what is better left to BLAS."""
    if not _is_worth_it(matrix, out):
        return False
    batch, length = out.shape
    by_rows = matrix.is_contiguous
    source = matrix if by_rows else matrix.transpose(0, 2, 1)
    _, rows, columns = source.shape
    steps = int(matrix.shape[0] > 1), int(vector.shape[0] > 1)
    size = columns * out.itemsize
    ahead = -(-AHEAD // size) if size <= GEMV_NARROW and source.nbytes > NEAR else 0
    if by_rows and rows < GEMV_ROWS:
        blocks = -(-columns // _BLOCK)
        parts = call.scratch((batch, blocks, length), out.dtype)
        call.launch(multiply_blocks, batch * blocks, blocks, *steps, source, vector, parts)
        _add_up(call, parts, out)
        return True
    if by_rows:
        group = max(4, GEMV_EACH // columns // 4 * 4)
        groups = -(-rows // group)
        call.launch(multiply_rows, batch * groups, groups, group, ahead, *steps, source, vector, out)
        return True
    slab = max(GEMV_SLAB, 4 * GEMV_EACH // columns)
    slabs, strips = -(-rows // slab), -(-columns // _STRIP)
    sizes = slabs, strips, slab, ahead, *steps
    parts = out.reshape(batch, 1, length) if slabs == 1 else call.scratch((batch, slabs, length), out.dtype)
    call.launch(multiply_slabs, batch * slabs * strips, *sizes, source, vector, parts)
    if slabs > 1:
        _add_up(call, parts, out)
    return True


def _add_up(call: aiodev.Call, parts: aiodev.Array, out: aiodev.Array) -> None:
    batch, length = out.shape
    strips = -(-length // _SUMS)
    call.launch(sum_slabs, batch * strips, strips, parts, out)
