"""Kernels behind softmax and the normalisations.

A launch's index stands for some thousand elements, whatever the shape: for several short rows, for one row, or for a block of
a long one. Sums are of several partial sums that the compiler keeps in vectors, in an order that the shape alone fixes.
Columns are worked on side by side. Where there are few, several rows are taken for one, so that loops are long enough for
vectors; and short rows become columns for a while.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.reductions.accumulators import larger
from aiodev.kernels.reductions.bodies import AHEAD
from aiodev.lang import exp, fma, log, moments, sum_squares

__all__ = [
    "BLOCK",
    "layer_norm_gradient_rows",
    "layer_norm_gradient_sums",
    "layer_norm_rows",
    "layer_norm_scaled_rows",
    "rms_norm_rows",
    "rms_norm_scaled_rows",
    "softmax_blocks",
    "softmax_columns",
    "softmax_of_blocks",
    "softmax_rows",
    "softmax_short_rows",
    "softmax_statistics",
]

#: Elements of a row that one index takes at most.
BLOCK = 1 << 14

#: Elements that are added up before their sum is added to others', so that errors do not grow with a row's length.
CHUNK = 1 << 10
#: The same for a column's.
ROWS = 16

_SUMS = frozenset({"reassoc", "contract"})


# Loops are over whole slices: an index that may be negative, as far as the compiler knows, would keep them out of vectors.


def largest(x: Any) -> Any:
    """The largest of some elements; eight are compared at a time. A NaN counts as absent."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = x[0]
    eights = x.size // 8
    for q in range(eights):
        e = x[8 * q : 8 * q + 8]
        m0 = e[0] if e[0] > m0 else m0
        m1 = e[1] if e[1] > m1 else m1
        m2 = e[2] if e[2] > m2 else m2
        m3 = e[3] if e[3] > m3 else m3
        m4 = e[4] if e[4] > m4 else m4
        m5 = e[5] if e[5] > m5 else m5
        m6 = e[6] if e[6] > m6 else m6
        m7 = e[7] if e[7] > m7 else m7
    for k in range(8 * eights, x.size):
        m0 = x[k] if x[k] > m0 else m0
    m0, m1, m2, m3 = larger(m4, m0), larger(m5, m1), larger(m6, m2), larger(m7, m3)
    return larger(larger(m1, m0), larger(m3, m2))


# A result may be the array itself. A loop that reads one array and writes another is in vectors where the two do not overlap,
# as far as compilers can tell; so there are others, over the result alone, for where it is the same.


def replace_by_exponentials(out: Any, top: Any) -> Any:
    """Write ``exp(out - top)``; returns their sum."""
    total = out.dtype.type(0)
    for first in range(0, out.size, CHUNK):
        target = out[first : min(out.size, first + CHUNK)]
        part = out.dtype.type(0)
        for k in range(target.size):
            value = exp(target[k] - top)
            target[k] = value
            part += value
        total += part
    return total


def exponentials(x: Any, out: Any, same: bool, top: Any) -> Any:
    """Write ``exp(x - top)``; returns their sum."""
    if same:
        return replace_by_exponentials(out, top)
    total = out.dtype.type(0)
    for first in range(0, x.size, CHUNK):
        source, target = x[first : min(x.size, first + CHUNK)], out[first : min(x.size, first + CHUNK)]
        part = out.dtype.type(0)
        for k in range(source.size):
            value = exp(source[k] - top)
            target[k] = value
            part += value
        total += part
    return total


def sum_of_exponentials(x: Any, top: Any) -> Any:
    """The sum of ``exp(x - top)``."""
    total = x.dtype.type(0)
    for first in range(0, x.size, CHUNK):
        source = x[first : min(x.size, first + CHUNK)]
        part = x.dtype.type(0)
        for k in range(source.size):
            part += exp(source[k] - top)
        total += part
    return total


def write_logarithms(x: Any, out: Any, same: bool, top: Any, total: Any) -> None:
    """Write ``x - top - log(total)``: near the top the first difference is exact, while the sum of the last two is rounded.

    It is an ``fma``, since no compiler that may reorder sums takes that apart.
    """
    rest, one = math.log(total), out.dtype.type(1)
    if same:
        for k in range(out.size):
            out[k] = fma(out[k], one, -top) - rest
    else:
        for k in range(x.size):
            out[k] = fma(x[k], one, -top) - rest


def scale_all(out: Any, scale: Any) -> None:
    """Multiply every element."""
    for k in range(out.size):
        out[k] *= scale


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=["x"])
def softmax_rows(i: int, group: int, logarithm: bool, same: bool, x: Any, out: Any) -> None:
    """Some rows, whole."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, target = x[row], out[row]
        top = largest(source)
        if logarithm:
            write_logarithms(source, target, same, top, sum_of_exponentials(source, top))
        else:
            scale_all(target, out.dtype.type(1) / exponentials(source, target, same, top))


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=["x"])
def softmax_blocks(
    i: int, blocks: int, logarithm: bool, same: bool, x: Any, out: Any, tops: Any, sums: Any
) -> None:
    """The largest element of a block of a row, and the sum of exponentials relative to it; these too, unless of logarithms."""
    row, block = i // blocks, i % blocks
    lo, hi = block * BLOCK, min(x.shape[1], (block + 1) * BLOCK)
    source, target = x[row, lo:hi], out[row, lo:hi]
    top = largest(source)
    tops[row, block] = top
    known = top if top > -math.inf else x.dtype.type(0)  # a block of -inf alone comes to 0 beside others, not to NaN
    if logarithm:
        sums[row, block] = sum_of_exponentials(source, known)
    else:
        sums[row, block] = exponentials(source, target, same, known)


@aiodev.kernel(uniform=True)
def softmax_statistics(i: int, tops: Any, sums: Any, whole: Any) -> None:
    """The largest element of a row, and its sum, from those of its blocks."""
    top = tops[i, 0]
    for k in range(1, tops.shape[1]):
        top = tops[i, k] if tops[i, k] > top or tops[i, k] != tops[i, k] else top
    total = whole.dtype.type(0)
    for k in range(tops.shape[1]):
        total += sums[i, k] * exp(tops[i, k] - top)
    whole[i, 0], whole[i, 1] = top, total


@aiodev.kernel(uniform=True, reads=["x"])
def softmax_of_blocks(
    i: int, blocks: int, logarithm: bool, same: bool, x: Any, out: Any, tops: Any, whole: Any
) -> None:
    """The result in a block, once its row's sum is known."""
    row, block = i // blocks, i % blocks
    lo, hi = block * BLOCK, min(x.shape[1], (block + 1) * BLOCK)
    if logarithm:
        write_logarithms(x[row, lo:hi], out[row, lo:hi], same, whole[row, 0], whole[row, 1])
    else:
        scale_all(out[row, lo:hi], exp(tops[row, block] - whole[row, 0]) / whole[row, 1])


def add_all(x: Any, total: Any) -> None:
    """Add every element to that of ``total``."""
    for j in range(x.size):
        total[j] += x[j]


def fold_lanes(x: Any, period: int, most: bool) -> None:
    """The sums, or the largest, of all elements that are ``period`` apart, in the place of each of them."""
    for at in range(period, x.size, period):
        for j in range(period):
            x[j] = larger(x[at + j], x[j]) if most else x[j] + x[at + j]
    for j in range(period, x.size):
        x[j] = x[j - period]


def softmax_lanes(
    x: Any, out: Any, first: int, stride: int, period: int, logarithm: bool, same: bool, top: Any, part: Any, total: Any
) -> None:
    """Down lanes side by side, as many as ``top`` has, whose elements are ``stride`` apart, from ``first`` on.

    Those that are ``period`` apart are one column: of a few columns several rows are worked on at once. The last row may be
    shorter then. ``total`` is in double precision: what :data:`ROWS` elements come to is added up one after the other.
    """
    lanes = top.size
    source = x[first : first + lanes]
    for j in range(top.size):
        top[j] = source[j]
        total[j] = 0
    for at in range(first + stride, x.size, stride):
        source = x[at : min(at + lanes, x.size)]
        for j in range(source.size):
            top[j] = source[j] if source[j] > top[j] else top[j]
    fold_lanes(top, period, True)
    for block in range(first, x.size, ROWS * stride):
        for j in range(part.size):
            part[j] = 0
        for at in range(block, min(block + ROWS * stride, x.size), stride):
            source, target = x[at : min(at + lanes, x.size)], out[at : min(at + lanes, x.size)]
            if logarithm:
                for j in range(source.size):
                    part[j] += exp(source[j] - top[j])
            elif same:
                for j in range(target.size):
                    value = exp(target[j] - top[j])
                    part[j] += value
                    target[j] = value
            else:
                for j in range(source.size):
                    value = exp(source[j] - top[j])
                    part[j] += value
                    target[j] = value
        add_all(part, total)
    fold_lanes(total, period, False)
    if logarithm:
        for j in range(total.size):
            total[j] = log(total[j])
    else:
        for j in range(total.size):
            total[j] = 1 / total[j]
    for at in range(first, x.size, stride):
        source, target = x[at : min(at + lanes, x.size)], out[at : min(at + lanes, x.size)]
        if logarithm and same:
            for j in range(target.size):
                target[j] = target[j] - top[j] - total[j]
        elif logarithm:
            for j in range(source.size):
                target[j] = source[j] - top[j] - total[j]
        else:
            for j in range(target.size):
                target[j] *= total[j]


@aiodev.kernel(uniform=True, reads=["x"])
def softmax_columns(
    i: int, chunks: int, width: int, period: int, logarithm: bool, same: bool, x: Any, out: Any, tops: Any, sums: Any
) -> None:
    """Down columns of flat matrices, ``width`` lanes of them: row after row, so all are read in order."""
    matrix, first, lanes = i // chunks, i % chunks * width, tops.shape[2]
    last = min(lanes, first + width)
    top, part, total = tops[matrix, 0, first:last], tops[matrix, 1, first:last], sums[matrix, first:last]
    softmax_lanes(x[matrix], out[matrix], first, lanes, min(period, top.size), logarithm, same, top, part, total)


@aiodev.kernel(uniform=True, reads=["x"])
def softmax_short_rows(i: int, group: int, logarithm: bool, x: Any, out: Any, room: Any, tops: Any, sums: Any) -> None:
    """Some short rows, which become columns in ``room`` and rows again, as many at once as there are lanes."""
    for first in range(i * group, min(x.shape[0], (i + 1) * group), tops.shape[2]):
        source, target = x[first : first + tops.shape[2]], out[first : first + tops.shape[2]]
        rows, length = source.shape
        columns = room[i, : rows * length]
        for k in range(length):
            column = columns[k * rows : (k + 1) * rows]
            for row in range(column.size):
                column[row] = source[row, k]
        top, part, total = tops[i, 0, :rows], tops[i, 1, :rows], sums[i, :rows]
        softmax_lanes(columns, columns, 0, rows, rows, logarithm, True, top, part, total)
        for k in range(length):
            column = columns[k * rows : (k + 1) * rows]
            for row in range(column.size):
                target[row, k] = column[row]


def mean_and_scale(x: Any, eps: Any) -> Any:
    """The mean of a row, and one over the square root of its variance plus ``eps``."""
    number = type(x.dtype.type(0) + np.float32(0))  # float16 is computed with in single precision
    mean, variance = moments(x, AHEAD // x.itemsize)
    return number(mean), number(1 / math.sqrt(variance + eps))


def root_mean_square_scale(x: Any, eps: Any) -> Any:
    """One over the square root of a row's mean square plus ``eps``."""
    number = type(x.dtype.type(0) + np.float32(0))
    return number(1 / math.sqrt(sum_squares(x, 0.0, AHEAD // x.itemsize) / x.size + eps))


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=["x"])
def layer_norm_rows(i: int, group: int, same: bool, eps: Any, x: Any, out: Any) -> None:
    """Some rows, with mean 0 and variance 1."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, target = x[row], out[row]
        mean, scale = mean_and_scale(source, eps)
        if same:
            for k in range(target.size):
                target[k] = (target[k] - mean) * scale
        else:
            for k in range(source.size):
                target[k] = (source[k] - mean) * scale


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=("x", "weight", "bias"))
def layer_norm_scaled_rows(i: int, group: int, same: bool, eps: Any, x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Some rows, with mean 0 and variance 1, times a weight, plus a bias."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, target = x[row], out[row]
        mean, scale = mean_and_scale(source, eps)
        if same:
            for k in range(target.size):
                target[k] = (target[k] - mean) * scale * weight[k] + bias[k]
        else:
            for k in range(source.size):
                target[k] = (source[k] - mean) * scale * weight[k] + bias[k]


def level_and_slope(grads: Any, x: Any, weight: Any, mean: Any, scale: Any) -> Any:
    """Of a row's gradients times weights: the mean, and that of their products with the normalised elements."""
    zero = x.dtype.type(0) + np.float32(0)
    level, slope = 0.0, 0.0
    for first in range(0, x.size, CHUNK):
        last = min(x.size, first + CHUNK)
        source, given, factor = x[first:last], grads[first:last], weight[first:last]
        one, other = zero, zero
        for k in range(source.size):
            h = (zero + given[k]) * factor[k]
            one += h
            other += h * ((source[k] - mean) * scale)
        level += one
        slope += other
    number = type(zero)
    return number(level / x.size), number(slope / x.size)


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=("grads", "x", "weight"))
def layer_norm_gradient_rows(
    i: int, group: int, eps: Any, grads: Any, x: Any, weight: Any, parts: Any, out: Any
) -> None:
    """The gradients of some rows, and what they give to those of weight and bias."""
    zero = x.dtype.type(0) + np.float32(0)
    of_weight, of_bias = parts[i, 0], parts[i, 1]
    for k in range(of_weight.size):
        of_weight[k] = 0.0
        of_bias[k] = 0.0
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, given, target = x[row], grads[row], out[row]
        mean, scale = mean_and_scale(source, eps)
        level, slope = level_and_slope(given, source, weight, mean, scale)
        for k in range(source.size):
            normal = (source[k] - mean) * scale
            target[k] = ((zero + given[k]) * weight[k] - level - normal * slope) * scale
        for k in range(source.size):
            of_weight[k] += (zero + given[k]) * ((source[k] - mean) * scale)
        for k in range(given.size):
            of_bias[k] += given[k]


@aiodev.kernel(uniform=True)
def layer_norm_gradient_sums(i: int, width: int, parts: Any, weight: Any, bias: Any) -> None:
    """The gradients of some elements of weight and bias, of all parts."""
    first, last = i * width, min(weight.size, (i + 1) * width)
    of_weight, of_bias = parts[0, 0, first:last], parts[0, 1, first:last]
    for part in range(1, parts.shape[0]):
        add_all(parts[part, 0, first:last], of_weight)
        add_all(parts[part, 1, first:last], of_bias)
    target, other = weight[first:last], bias[first:last]
    for k in range(target.size):
        target[k] = of_weight[k]
        other[k] = of_bias[k]


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=["x"])
def rms_norm_rows(i: int, group: int, same: bool, eps: Any, x: Any, out: Any) -> None:
    """Some rows, with a mean square of 1."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, target = x[row], out[row]
        scale = root_mean_square_scale(source, eps)
        if same:
            for k in range(target.size):
                target[k] = target[k] * scale
        else:
            for k in range(source.size):
                target[k] = source[k] * scale


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=("x", "weight"))
def rms_norm_scaled_rows(i: int, group: int, same: bool, eps: Any, x: Any, weight: Any, out: Any) -> None:
    """Some rows, with a mean square of 1, times a weight."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, target = x[row], out[row]
        scale = root_mean_square_scale(source, eps)
        if same:
            for k in range(target.size):
                target[k] = target[k] * scale * weight[k]
        else:
            for k in range(source.size):
                target[k] = source[k] * scale * weight[k]
