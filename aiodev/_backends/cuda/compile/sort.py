"""Sorting on a GPU: for :func:`aiodev.lang.sort` each thread sorts its own few numbers where they are, as a heap.

A thread has no vectors, and no room on a stack that would be any faster than where the numbers are; this needs none, and never
takes longer than for any other order (Williams, Algorithm 232: Heapsort, 1964).
"""

from __future__ import annotations

from typing import Any

from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import overload

from aiodev import lang

__all__ = ["install", "sort_heap"]


def _choose(x: Any) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or x.layout != "C" or not x.mutable:
        raise TypingError(f"sort: expected a one-dimensional array without gaps that can be written to, got {x}")
    if not isinstance(x.dtype, types.Integer | types.Float) or x.dtype.bitwidth not in (32, 64):
        raise TypingError(f"sort: expected numbers of four or eight bytes, got {x.dtype}")
    return sort_heap


def sort_heap(x: Any) -> None:
    """The heap sort that is compiled."""
    start, end = x.size // 2, x.size
    while end > 1:
        if start > 0:  # the heap grows towards the front, then shrinks from the end
            start -= 1
        else:
            end -= 1
            x[0], x[end] = x[end], x[0]
        root = start
        while 2 * root + 1 < end:
            child = 2 * root + 1
            left = x[child]
            if child + 1 < end and (left < x[child + 1] or (left == left and x[child + 1] != x[child + 1])):
                child += 1
            a, b = x[root], x[child]
            if not (a < b or (a == a and b != b)):
                break
            x[root], x[child] = b, a
            root = child


def install() -> None:
    """Tell numba-cuda of it."""
    overload(lang.sort)(_choose)
