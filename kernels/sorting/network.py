"""Sorting network: short rows of numbers of four or eight bytes, as keys in vectors.

Elements become keys in the room of the result, as for radix sort (:mod:`aiodev.kernels.sorting.radix`), so that NaN and the
sign of zero are where they belong, and the order may be turned round. :func:`aiodev.lang.sort` sorts these where they are, and
they become elements again. Equal keys are equal elements, so nobody can tell that this does not keep their order; places have
to be kept in order, and are found by radix sort.

A network's work grows with the square of the logarithm of a row's length, and it takes as long for a row of two as for one of
sixty. So the shortest rows and the long ones are sorted by radix sort too.
"""

# The body that is made here is numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.naming import named_kernel
from aiodev.lang import sort

__all__ = ["LEAST", "longest", "make_short"]

#: Elements of a row at least, and at most by their bytes: where it takes as long as radix sort does.
LEAST, _MOST = 16, {4: 1 << 15, 8: 1 << 14}


def longest(dtype: np.dtype[Any]) -> int:
    """Elements of the longest row that is sorted by this: 0 for types that are not."""
    return _MOST.get(dtype.itemsize, 0)


def make_short(name: str, to_key: Callable[..., Any], from_key: Callable[..., Any], key: Any) -> aiodev.Kernel:
    """``(i, rows, each, length, x, out)``: sort groups of ``each`` rows, whole; ``out`` may be ``x``."""

    def encode_all(source, keys):
        for k in range(source.size):
            keys[k] = to_key(source[k])

    def decode_all(keys, target):
        for k in range(keys.size):
            target[k] = from_key(keys[k])

    def short(i, rows, each, length, x, out):
        for row in range(i * each, min((i + 1) * each, rows)):
            keys = out[row].view(key)
            encode_all(x[row], keys)
            sort(keys)
            decode_all(keys, out[row])

    return named_kernel(name, short)
