"""The kernels behind matrix products: through BLAS where there is one for the type, else by loops of their own.

A launch's index stands for about as much work as is worth handing to a worker. Small products are one index; large ones are cut
into panels of the result, each a call of BLAS by itself.
"""

from __future__ import annotations

from typing import Any

import aiodev
from aiodev.lang import call_native

__all__ = ["multiply_elements", "multiply_once", "multiply_panels", "multiply_plain", "multiply_tiles"]

_ROWS, _COLUMNS = 101, 102
_PLAIN, _TRANSPOSED = 111, 112
_NONE = -1
#: Elements of ``b`` in a block that stays in the first-level cache while rows of ``a`` pass by.
_DEPTH = 64


def leading(x: Any, by_rows: bool) -> Any:
    """The distance of rows (or of columns) in elements, if those are contiguous and a BLAS takes them; else -1."""
    size = x.itemsize
    length, count = (x.shape[1], x.shape[0]) if by_rows else (x.shape[0], x.shape[1])
    step, distance = (x.strides[1], x.strides[0]) if by_rows else (x.strides[0], x.strides[1])
    if length > 1 and step != size:
        return _NONE
    if count <= 1:
        return max(1, length)
    if distance % size != 0 or distance < size * max(1, length):
        return _NONE
    return distance // size


def increment(stride: int, size: int, length: int) -> int:
    """The distance of a vector's elements, if a BLAS takes it; else -1."""
    if length <= 1:
        return 1
    return stride // size if stride > 0 and stride % size == 0 else _NONE


def product_by_blas(blas: Any, where: int, one: Any, zero: Any, a: Any, b: Any, out: Any) -> bool:
    """``a @ b`` by one call; False where there is no BLAS, or none for these strides."""
    rows, columns = out.shape
    if blas[where] == 0 or a.shape[1] == 0:
        return False
    if columns == 1:
        step, to = increment(b.strides[0], b.itemsize, b.shape[0]), increment(out.strides[0], out.itemsize, rows)
        return vector_by_blas(blas[where + 4], one, zero, a, False, b, step, out, to)
    if rows == 1:
        step, to = increment(a.strides[1], a.itemsize, a.shape[1]), increment(out.strides[1], out.itemsize, columns)
        return vector_by_blas(blas[where + 4], one, zero, b, True, a, step, out, to)
    order, ldc = _ROWS, leading(out, True)
    if ldc < 0:
        order, ldc = _COLUMNS, leading(out, False)
    by_rows = order == _ROWS
    flag_a, lda = _PLAIN, leading(a, by_rows)
    if lda < 0:
        flag_a, lda = _TRANSPOSED, leading(a, not by_rows)
    flag_b, ldb = _PLAIN, leading(b, by_rows)
    if ldb < 0:
        flag_b, ldb = _TRANSPOSED, leading(b, not by_rows)
    if ldc < 0 or lda < 0 or ldb < 0:
        return False
    inner = a.shape[1]
    call_native(blas[where], order, flag_a, flag_b, rows, columns, inner, one, a, lda, b, ldb, zero, out, ldc)
    return True


def vector_by_blas(
    function: Any, one: Any, zero: Any, matrix: Any, flip: bool, x: Any, step: int, out: Any, to: int
) -> bool:
    """``matrix @ x``, or with its transpose if ``flip``; False for strides that BLAS does not take."""
    order, distance = _ROWS, leading(matrix, True)
    if distance < 0:
        order, distance = _COLUMNS, leading(matrix, False)
    if distance < 0 or step < 0 or to < 0:
        return False
    flag = _TRANSPOSED if flip else _PLAIN
    rows, columns = matrix.shape
    call_native(function, order, flag, rows, columns, one, matrix, distance, x, step, zero, out, to)
    return True


def product_by_loops(a: Any, b: Any, out: Any, top: int, bottom: int, left: int, right: int) -> None:
    """Rows ``top`` … ``bottom - 1`` and columns ``left`` … ``right - 1`` of ``a @ b``; rows of ``b`` are read in order."""
    if top < 0 or left < 0:  # never; so the compiler knows that no index is negative
        return
    depth = a.shape[1]
    for i in range(top, bottom):
        for j in range(left, right):
            out[i, j] = 0
    for first in range(0, depth, _DEPTH):
        for i in range(top, bottom):
            for k in range(first, min(depth, first + _DEPTH)):
                x = a[i, k]
                for j in range(left, right):
                    out[i, j] += x * b[k, j]


@aiodev.kernel(reads=("blas", "where", "one", "zero", "a", "b"), uniform=("a", "b"))
def multiply_once(i: int, blas: Any, where: Any, one: Any, zero: Any, a: Any, b: Any, out: Any) -> None:
    """A product of two matrices, whole."""
    product_by_loops(a, b, out, 0, out.shape[0], 0, out.shape[1])


@multiply_once.implementation("cpu")
def multiply_once_cpu(i: int, blas: Any, where: Any, one: Any, zero: Any, a: Any, b: Any, out: Any) -> None:
    """A product of two matrices, whole, by BLAS."""
    if not product_by_blas(blas, where, one, zero, a, b, out):
        product_by_loops(a, b, out, 0, out.shape[0], 0, out.shape[1])


@aiodev.kernel(reads=("a", "b"))
def multiply_plain(
    i: int, group: int, items: int, across: int, panels: int, height: int, width: int, step_a: int, step_b: int,
    a: Any, b: Any, out: Any,
) -> None:  # fmt: skip
    """Panels ``i * group`` and on of a batch of products: ``height`` rows and ``width`` columns, ``across`` side by side."""
    for item in range(i * group, min(items, (i + 1) * group)):
        batch, panel = item // panels, item % panels
        top, left = panel // across * height, panel % across * width
        bottom, right = min(out.shape[1], top + height), min(out.shape[2], left + width)
        product_by_loops(a[batch * step_a], b[batch * step_b], out[batch], top, bottom, left, right)


@aiodev.kernel(reads=("blas", "where", "one", "zero", "a", "b"))
def multiply_panels(
    i: int, blas: Any, where: Any, one: Any, zero: Any,
    group: int, items: int, across: int, panels: int, height: int, width: int, step_a: int, step_b: int,
    a: Any, b: Any, out: Any,
) -> None:  # fmt: skip
    """Panels of a batch of products as :func:`multiply_plain` takes them; the CPU's body calls BLAS."""
    multiply_plain(i, group, items, across, panels, height, width, step_a, step_b, a, b, out)


@multiply_panels.implementation("cpu")
def multiply_panels_cpu(
    i: int, blas: Any, where: Any, one: Any, zero: Any,
    group: int, items: int, across: int, panels: int, height: int, width: int, step_a: int, step_b: int,
    a: Any, b: Any, out: Any,
) -> None:  # fmt: skip
    """One call of BLAS a panel."""
    for item in range(i * group, min(items, (i + 1) * group)):
        batch, panel = item // panels, item % panels
        top, left = panel // across * height, panel % across * width
        bottom, right = min(out.shape[1], top + height), min(out.shape[2], left + width)
        rows, columns = a[batch * step_a, top:bottom, :], b[batch * step_b, :, left:right]
        if not product_by_blas(blas, where, one, zero, rows, columns, out[batch, top:bottom, left:right]):
            product_by_loops(a[batch * step_a], b[batch * step_b], out[batch], top, bottom, left, right)


@aiodev.kernel(ndim=3, reads=("a", "b"))
def multiply_elements(batch: int, i: int, j: int, step_a: int, step_b: int, a: Any, b: Any, out: Any) -> None:
    """One element of a batch of products: the form for devices with a thread for each."""
    total = a[batch * step_a, i, 0] * b[batch * step_b, 0, j]
    for k in range(1, a.shape[2]):
        total += a[batch * step_a, i, k] * b[batch * step_b, k, j]
    out[batch, i, j] = total


@aiodev.kernel(ndim=3, reads=("a", "b"))
def multiply_tiles(batch: int, i: int, j: int, step_a: int, step_b: int, a: Any, b: Any, out: Any) -> None:
    """Sixteen elements of a batch of products, a quarter of the rows and of the columns apart, of eight loads for each step.

    So neighbouring indices read and write neighbouring columns. At the edges several compute the last row or column, alike.
    """
    x, y, z = a[batch * step_a], b[batch * step_b], out[batch]
    down, across = (z.shape[0] + 3) >> 2, (z.shape[1] + 3) >> 2
    bottom, right = z.shape[0] - 1, z.shape[1] - 1
    i1, i2, i3 = min(i + down, bottom), min(i + 2 * down, bottom), min(i + 3 * down, bottom)
    j1, j2, j3 = min(j + across, right), min(j + 2 * across, right), min(j + 3 * across, right)
    t00 = t01 = t02 = t03 = t10 = t11 = t12 = t13 = out.dtype.type(0)
    t20 = t21 = t22 = t23 = t30 = t31 = t32 = t33 = out.dtype.type(0)
    for k in range(x.shape[1]):
        p0, p1, p2, p3 = x[i, k], x[i1, k], x[i2, k], x[i3, k]
        q0, q1, q2, q3 = y[k, j], y[k, j1], y[k, j2], y[k, j3]
        t00 += p0 * q0
        t01 += p0 * q1
        t02 += p0 * q2
        t03 += p0 * q3
        t10 += p1 * q0
        t11 += p1 * q1
        t12 += p1 * q2
        t13 += p1 * q3
        t20 += p2 * q0
        t21 += p2 * q1
        t22 += p2 * q2
        t23 += p2 * q3
        t30 += p3 * q0
        t31 += p3 * q1
        t32 += p3 * q2
        t33 += p3 * q3
    z[i, j] = t00
    z[i, j1] = t01
    z[i, j2] = t02
    z[i, j3] = t03
    z[i1, j] = t10
    z[i1, j1] = t11
    z[i1, j2] = t12
    z[i1, j3] = t13
    z[i2, j] = t20
    z[i2, j1] = t21
    z[i2, j2] = t22
    z[i2, j3] = t23
    z[i3, j] = t30
    z[i3, j1] = t31
    z[i3, j2] = t32
    z[i3, j3] = t33
