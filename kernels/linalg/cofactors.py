"""Cofactor matrices, which are the gradients of determinants: of regular matrices by their inverses, of others by elimination.

The cofactors ``C`` of ``A`` are its adjugate, transposed: ``C = det(A) A^-T`` where ``A`` is regular, 0 where the rank is below
``n - 1``, and of rank 1 between. See Higham, What Is the Adjugate of a Matrix?, 2020.

By LU factors with complete pivoting, ``P A Q = L U``, it is ``adj(A) = det(P) det(Q) Q adj(U) L^-1 P``. Only the last pivot
``u`` is 0 where the rank is ``n - 1``, and nothing has to be divided by it::

    U = [V c]    adj(U) = det(V) [u V^-1  -V^-1 c]
        [0 u]                    [0             1]

With partial pivoting any pivot may be the one that is 0. These are functions for the kernels of each device.
"""

from __future__ import annotations

from typing import Any

__all__ = ["cofactors_by_elimination", "is_safe"]


def is_safe(a: Any, least: Any) -> bool:
    """Whether no number on the diagonal of LU factors is so small that its reciprocal may overflow; NaN is not small."""
    safe = True
    for k in range(a.shape[0]):
        safe = safe and not abs(a[k, k]) < least
    return safe


def _eliminate(a: Any, order: Any) -> Any:
    """Put LU factors with complete pivoting into ``a``; which rows and columns were swapped into ``order``; gives the rank."""
    n = a.shape[0]
    for step in range(n):
        largest, row, column = abs(a[step, step]), step, step
        for i in range(step, n):
            for j in range(step, n):
                size = abs(a[i, j])
                if size > largest or (size != size and largest == largest):  # NaN is kept once it is found
                    largest, row, column = size, i, j
        if largest == 0:
            return step
        order[step], order[n + step] = row, column
        for j in range(n):
            a[step, j], a[row, j] = a[row, j], a[step, j]
        for i in range(n):
            a[i, step], a[i, column] = a[i, column], a[i, step]
        for i in range(step + 1, n):
            factor = a[i, step] / a[step, step]
            a[i, step] = factor
            for j in range(step + 1, n):
                a[i, j] -= factor * a[step, j]
    return n


def _product(a: Any, order: Any, total: Any) -> Any:
    """That of all pivots but the last, with the sign of the swaps: from either end, so that it overflows only if it must."""
    n = a.shape[0]
    first, last = 0, n - 2
    while first <= last:
        if abs(total) < 1:
            total *= a[first, first]
            first += 1
        else:
            total *= a[last, last]
            last -= 1
    for k in range(2 * (n - 1)):
        step = k % (n - 1)
        if order[k if k < n - 1 else n + step] != step:
            total = -total
    return total


def cofactors_by_elimination(a: Any, order: Any, out: Any) -> None:
    """The cofactors of any square matrix ``a``, which is overwritten; ``order`` has scratch for two integers a row."""
    n = a.shape[0]
    rank = _eliminate(a, order)
    if rank < n - 1:
        for i in range(n):
            for j in range(n):
                out[i, j] = 0
        return
    last = a[n - 1, n - 1]
    scale = _product(a, order, out.dtype.type(1))
    # Row i is column i of adj(U) L^-1, over det(V): a row of its transpose.
    for i in range(n):
        for k in range(n):
            value = out.dtype.type(1 if k == i else 0)
            for j in range(i, k):
                value -= a[k, j] * out[i, j]
            out[i, k] = value
        for back in range(1, n):
            k = n - 1 - back
            value = last * out[i, k]
            for j in range(k + 1, n):
                value -= a[k, j] * out[i, j]
            out[i, k] = value / a[k, k]
    for back in range(1, n):
        step = n - 1 - back
        row, column = order[step], order[n + step]
        for j in range(n):
            out[step, j], out[row, j] = out[row, j], out[step, j]
        for i in range(n):
            out[i, step], out[i, column] = out[i, column], out[i, step]
    for i in range(n):
        for j in range(n):
            out[i, j] *= scale
