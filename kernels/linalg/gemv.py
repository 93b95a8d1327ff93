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
from aiodev.kernels.arguments import has_no_gaps, packed
from aiodev.kernels.reductions.bodies import AHEAD, NEAR

__all__ = ["repeat", "submit", "submit_one"]

#: Elements of a matrix that are multiplied for one index, and rows of a slab, at least.
_GROUP, _SLAB = 1 << 14, 1 << 6
#: Columns of a slab, at most: as many sums stay in the first-level cache. And those whose sums are added up for one index.
_STRIP, _SUMS = 1 << 12, 1 << 8
#: Elements from which on it is worth sharing; rows that are shorter than this are for BLAS.
_LEAST, _SHORT = 1 << 18, 1 << 6
#: Where there are fewer rows than this each block of so many columns is an index's work. Else blocks only bound the errors.
_FEW, _BLOCK = 1 << 6, 1 << 12
#: Bytes of the rows of far matrices up to which some ahead are asked for: the processor foresees longer ones by itself.
_NARROW = 1 << 13
_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_launches = aiodev.LaunchCache(2)
#: A launch: a kernel, its indices and arguments, and which of those are matrix, vector, result or scratch.
_Step = tuple[aiodev.Kernel, int, tuple[Any, ...], tuple[int | None, ...]]
_MATRIX, _VECTOR, _OUT, _SCRATCH = 0, 1, 2, -1
_TURNED: dict[int | None, int | None] = {_MATRIX: _VECTOR, _VECTOR: _MATRIX}
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


def repeat(x1: aiodev.Array, x2: aiodev.Array, out: aiodev.Array | None) -> aiodev.Array | None:
    """Submit what a product of arrays of these layouts has submitted before; None where that is not known."""
    return _launches.repeat(None, x1, x2, out)


def submit_one(x1: aiodev.Array, x2: aiodev.Array, out: aiodev.Array, *, made: bool) -> bool:
    """Submit a large product of a matrix and a vector on the CPU, to be repeated; False, and nothing is, if it is not that.

    ``made`` says whether ``out`` is new.
    """
    if aiodev.capabilities(out.device).simt or not x1.dtype == x2.dtype == out.dtype or max(out.shape) < out.size:
        return False
    turned = x1.ndim == 1 or x1.shape[0] == 1
    matrix, vector = (x2.T, x1) if turned else (x1, x2)
    if matrix.ndim != 2 or vector.size != matrix.shape[1] or not (has_no_gaps(vector) and has_no_gaps(out)):
        return False
    steps = _steps(matrix[None], vector.reshape(1, vector.size), out.reshape(1, out.size))
    if not steps:
        return False
    if turned:
        steps = [(*step[:3], tuple(_TURNED.get(take, take) for take in step[3])) for step in steps]
    _launches.launch_all(None, (x1, x2), out, steps, made=made)
    return True


def submit(stream: aiodev.Stream, matrix: aiodev.Array, vector: aiodev.Array, out: aiodev.Array) -> bool:
    """Submit a batch of matrices times vectors; False, and nothing is, for what is better left to BLAS.

    Args:
        stream: of the arrays' device.
        matrix: of the shape (batch, rows, columns); a single one may stand for the batch.
        vector: (batch, columns), the same goes for it.
        out: (batch, rows).
    """
    target = out if has_no_gaps(out) else aiodev.empty(out.shape, out.dtype, out.device)
    steps = _steps(matrix, packed(vector), target)
    for kernel, count, args, _ in steps:
        kernel[count, stream](*args)
    if steps and target is not out:
        out.copy_from(target)
    return bool(steps)


def _steps(matrix: aiodev.Array, vector: aiodev.Array, out: aiodev.Array) -> list[_Step]:
    """The launches, one or two; none for what is better left to BLAS."""
    batch, length = out.shape
    by_rows = has_no_gaps(matrix)
    source = matrix if by_rows else matrix.transpose(0, 2, 1)
    _, rows, columns = source.shape
    if out.dtype not in _DTYPES or rows * columns < _LEAST or columns < _SHORT or not has_no_gaps(source):
        return []
    arrays, steps = (source, vector), (int(matrix.shape[0] > 1), int(vector.shape[0] > 1))
    taken = None, None, _MATRIX, _VECTOR
    size = columns * out.itemsize
    ahead = -(-AHEAD // size) if size <= _NARROW and source.nbytes > NEAR else 0
    if by_rows and rows < _FEW:
        blocks = -(-columns // _BLOCK)
        parts = aiodev.empty((batch, blocks, length), out.dtype, out.device)
        first = multiply_blocks, batch * blocks, (blocks, *steps, *arrays, parts), (None, *taken, _SCRATCH)
        return [first, _sum_of(parts, out)]
    if by_rows:
        group = max(4, _GROUP // columns // 4 * 4)
        groups = -(-rows // group)
        numbers = groups, group, ahead, *steps
        return [(multiply_rows, batch * groups, (*numbers, *arrays, out), (None, None, None, *taken, _OUT))]
    slab = max(_SLAB, 4 * _GROUP // columns)
    slabs, strips = -(-rows // slab), -(-columns // _STRIP)
    args, takes = (slabs, strips, slab, ahead, *steps, *arrays), (None, None, None, None, *taken)
    count = batch * slabs * strips
    if slabs == 1:
        return [(multiply_slabs, count, (*args, out.reshape(batch, 1, length)), (*takes, _OUT))]
    parts = aiodev.empty((batch, slabs, length), out.dtype, out.device)
    return [(multiply_slabs, count, (*args, parts), (*takes, _SCRATCH)), _sum_of(parts, out)]


def _sum_of(parts: aiodev.Array, out: aiodev.Array) -> _Step:
    """The launch that adds up parts."""
    batch, length = out.shape
    strips = -(-length // _SUMS)
    return sum_slabs, batch * strips, (strips, parts, out), (None, _SCRATCH, _OUT)
