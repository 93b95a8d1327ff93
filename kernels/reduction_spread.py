"""The kernels behind variances and standard deviations.

Each block has a mean of its own and a sum of squared distances from that, by :func:`aiodev.lang.moments`, so memory is read
once. Blocks are then merged by their means (Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances, 1979): nothing cancels, wherever the mean is. The order follows from the shape alone.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels import reduction_teams as teams
from aiodev.kernels.named import named_kernel
from aiodev.kernels.reduction_bodies import AHEAD, BLOCK, COLUMNS, KEPT, ROWS, SHORT, WORD, Plain
from aiodev.kernels.reduction_elements import square, store

__all__ = ["Spread", "make_spread"]

#: A real number's imaginary part is 0, which then need not be squared and added.
_LOOSE = frozenset({"reassoc", "contract", "nsz"})


class Spread(NamedTuple):
    """Means, and sums of the squared distances from them, |x - mean|²; for one type of elements. All arrays are flat."""

    rows: aiodev.Kernel  #: (i, x, length, number, out): rows of ``length`` elements to results
    blocks: aiodev.Kernel  #: (i, blocks, x, length, means, squares): blocks of rows to a mean and a sum each
    parts: aiodev.Kernel  #: (i, means, squares, blocks, length, number, out): blocks of rows to results
    #: (i, slabs, strips, x, length, inner, means, squares): slabs of rows, side by side, to a mean and a sum for each column
    columns: aiodev.Kernel
    strips: aiodev.Kernel  #: (i, strips, means, squares, slabs, length, inner, number, out): slabs of columns to results
    whole_columns: aiodev.Kernel  #: (i, x, length, inner, number, out): columns to results, one each


def make_spread(name: str, load: Plain, finish: Plain, wide: Any) -> Spread:
    """The kernels of a variance, or of what ``finish`` makes of it; ``wide`` is the type of means."""

    def measure(x):
        mean, variance = lang.moments(x, AHEAD // x.itemsize)
        return mean, variance * np.float64(x.size)

    def merge(count, mean, squares, further, other, others):
        distance, weight = other - mean, np.divide(further, count + further)
        return mean + distance * weight, squares + others + square(distance) * (count * weight)

    def rows(i, x, length, number, out):
        first, last = i * length, (i + 1) * length
        mean, squares = measure(x[first : min(first + BLOCK, last)])
        for lo in range(first + BLOCK, last, BLOCK):
            hi = min(lo + BLOCK, last)
            other, others = measure(x[lo:hi])
            mean, squares = merge(np.float64(lo - first), mean, squares, np.float64(hi - lo), other, others)
        store(out, i, finish(squares, number))

    def blocks(i, blocks, x, length, means, squares):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        means[i], squares[i] = measure(x[row * length + lo : row * length + hi])

    def parts(i, means, squares, blocks, length, number, out):
        first = i * blocks
        mean, total = means[first], squares[first]
        for k in range(1, blocks):
            size = min(BLOCK, length - k * BLOCK)
            other, others = means[first + k], squares[first + k]
            mean, total = merge(np.float64(k * BLOCK), mean, total, np.float64(size), other, others)
        store(out, i, finish(total, number))

    def add_four(x, inner, center, sums, squared):
        a, b = x[: sums.size], x[inner : inner + sums.size]
        c, d = x[2 * inner : 2 * inner + sums.size], x[3 * inner : 3 * inner + sums.size]
        for j in range(sums.size):
            middle = load(center[j])
            p, q, r, s = load(a[j]) - middle, load(b[j]) - middle, load(c[j]) - middle, load(d[j]) - middle
            sums[j] += (p + q) + (r + s)
            squared[j] += (square(p) + square(q)) + (square(r) + square(s))

    def columns(i, slabs, strips, x, length, inner, means, squares):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = (outer * slabs + slab) * inner
        mean, squared = means[start + left : start + right], squares[start + left : start + right]
        first, last = outer * length + slab * ROWS, outer * length + min((slab + 1) * ROWS, length)
        center = x[first * inner + left : first * inner + right]  # squares lose 7 bits of 53 at most by not being from the mean
        for j in range(mean.size):
            mean[j] = squared[j] = 0.0
        asks = x.itemsize <= WORD and x.nbytes >= KEPT and inner > SHORT
        ahead = max(4 * inner, AHEAD // x.itemsize)
        whole = last - (last - first) % 4
        for r in range(first, whole, 4):
            if asks:
                for k in range(r, r + 4):
                    lang.prefetch(x[k * inner + left + ahead : k * inner + right + ahead])
            add_four(x[r * inner + left :], inner, center, mean, squared)
        for r in range(whole, last):
            row = x[r * inner + left : r * inner + right]
            for j in range(mean.size):
                distance = load(row[j]) - load(center[j])
                mean[j] += distance
                squared[j] += square(distance)
        share = np.divide(1.0, np.float64(last - first))
        for j in range(mean.size):
            shift, total = mean[j] * share, squared[j]
            rest = total - (mean[j].real * shift.real + mean[j].imag * shift.imag)
            squared[j] = (rest if rest > 0.0 else 0.0) if math.isfinite(total) else total + 0.0 * shift.real + 0.0 * shift.imag
            mean[j] = load(center[j]) + shift

    def strips(i, strips, means, squares, slabs, length, inner, number, out):
        outer, strip = i // strips, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = outer * slabs * inner
        mean, total = means[start + left : start + right], squares[start + left : start + right]
        for slab in range(1, slabs):
            start += inner
            other, others = means[start + left : start + right], squares[start + left : start + right]
            count, further = np.float64(slab * ROWS), np.float64(min(ROWS, length - slab * ROWS))
            for j in range(mean.size):
                mean[j], total[j] = merge(count, mean[j], total[j], further, other[j], others[j])
        results = out[outer * inner + left : outer * inner + right]
        for j in range(results.size):
            results[j] = finish(total[j], number)

    def whole_columns(i, x, length, inner, number, out):
        if inner <= 0:  # never; so dividing cannot raise
            return
        start, end = i // inner * length * inner + i % inner, (i // inner + 1) * length * inner
        _, squares = measure(x[start:end:inner])
        store(out, i, finish(squares, number))

    bodies = rows, blocks, parts, columns, strips, whole_columns
    found = Spread(*(named_kernel(name, body, fastmath=_LOOSE, uniform=True) for body in bodies))
    teams.add_spread_teams(found, load, finish, wide)
    return found
