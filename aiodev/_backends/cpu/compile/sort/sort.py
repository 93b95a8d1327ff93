"""Sorting: :func:`aiodev.lang.sort` in compiled code is a sorting network of vectors.

**Problem.** A comparison that decides about a branch is guessed wrong every other time, and radix sort spends more on its
counters than on a few hundred keys.

**Solution.** The elements are a matrix whose rows are vectors. Its columns, one in each lane, are sorted side by side: the
smaller and the greater elements of two rows are one instruction each. Sixteen rows are sorted by the best network known for
sixteen keys; then runs of rows are merged two by two, until columns are in order. Then columns are merged, in
groups of two, four, eight and sixteen, to runs that go down one column after the other; only the steps of a merge that compare
columns move elements between lanes. At last the matrix is transposed. Nothing branches on what elements are.

**Invariants.**

1.  There are 2ⁿ rows, at least 16, where 16 are sorted first; or five, six or seven eighths as many, where 20, 12 or 28 are; or
    4. What the elements do not fill is filled with the greatest number, which stays at the end.
2.  Merging is bitonic: of two runs the second one is *turned round*, that is compared with the first one from its end on; then
    come the first and the second half of each, and so on. The smaller of two goes to where comes first in the run.
3.  Steps between the same rows are done together, so that these stay in registers: turning round with the two steps after it
    takes eight rows; the steps after these, up to four at a time, take up to 16, and the last ones 3, 6 or 12, 5 or 7. What has
    room in 4 or 16 rows stays in registers from beginning to end.

See Knuth, The Art of Computer Programming, vol. 3, 5.3.4, on networks and Batcher's bitonic merging; Chhugani et al., Efficient
Implementation of Sorting on Multi-Core SIMD CPU Architecture (2008), on columns of vectors.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable

from aiodev import lang
from aiodev._backends.cpu.compile.sort.steps import (
    BYTES,
    merge_2,
    merge_3,
    merge_4,
    merge_5,
    merge_6,
    merge_7,
    merge_8,
    merge_12,
    merge_16,
    sort_4,
    sort_16,
    sort_columns_12,
    sort_columns_16,
    sort_columns_20,
    sort_columns_28,
    transpose,
    turn_1,
    turn_2,
    turn_4,
    turn_8,
    turn_16,
)

__all__ = ["install_sorting"]

#: What may be sorted: the rows are on the stack.
_MOST_BYTES = 1 << 17
#: Where in a page of the stack the rows begin. Measured: a thousand numbers take 0.7 µs from there on, but a fifth longer from
#: 0.5 to 2 KiB on, presumably since loads wait for stores to other variables that are in the same place of another page.
_PAGE, _PLACE = 1 << 12, 3 << 10
#: Rows at least, and from how many on there may be three fourths of the next power of two, or five or seven eighths.
_ROWS, _MANY, _MORE = 16, 64, 128


@intrinsic
def _stack(typing_context, x):
    """A pointer to room for the elements of an array and what fills the matrix up, for as long as the caller runs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")  # it is long, and would be compiled again wherever it is called
        word = ir.IntType(64)
        room = cgutils.alloca_once(builder, ir.IntType(8), ir.Constant(word, _PLACE + _MOST_BYTES))
        room.align = _PAGE
        return builder.bitcast(
            builder.gep(room, [ir.Constant(word, _PLACE)]), context.get_data_type(x.dtype).as_pointer()
        )

    return types.CPointer(x.dtype)(x), generate


@register_jitable(inline="always")
def _merge(room, size, steps, odd, lanes):
    """Merge down the columns within blocks of 2ⁿ rows, n being ``steps``, ``odd`` times as many, some steps at a time."""
    unit, last = odd * lanes, 0
    if odd == 3:
        last = 0 if steps == 3 else min(steps, 2)
        unit <<= last
        steps -= last
    while steps > 0:
        some = steps if steps <= 2 else 3 if steps & 3 else 4
        step = unit << (steps - some)
        for block in range(0, size, step << some):
            for k in range(block, block + step, lanes):
                if some == 4:
                    merge_16(room, k, step)
                elif some == 3:
                    merge_8(room, k, step)
                elif some == 2:
                    merge_4(room, k, step)
                else:
                    merge_2(room, k, step)
        steps -= some
    if odd > 1:
        for k in range(0, size, unit):
            if odd == 5:
                merge_5(room, k, lanes)
            elif odd == 7:
                merge_7(room, k, lanes)
            elif last == 2:
                merge_12(room, k, lanes)
            elif last == 1:
                merge_6(room, k, lanes)
            else:
                merge_3(room, k, lanes)


def _make_sort(x: Any) -> Any:
    """The function that sorts arrays of integers of such a type."""
    lanes, top = BYTES * 8 // x.dtype.bitwidth, x.dtype.maxval
    most = _MOST_BYTES * 8 // x.dtype.bitwidth

    def sort(x: Any) -> None:
        n = x.size
        if n > most:
            raise ValueError("sort: more than 128 KiB; sort parts, and merge these")
        if n <= 4 * lanes:
            sort_4(x, n)
            return
        if n <= 16 * lanes:
            sort_16(x, n)
            return
        room = carray(_stack(x), most)
        height, base = _ROWS, 16
        while height * lanes < n:
            height *= 2
        odd = 1
        if height >= _MORE and height // 8 * 5 * lanes >= n:
            height, base, odd = height // 8 * 5, 20, 5
        elif height >= _MANY and height // 4 * 3 * lanes >= n:
            height, base, odd = height // 4 * 3, 12, 3
        elif height >= _MORE and height // 8 * 7 * lanes >= n:
            height, base, odd = height // 8 * 7, 28, 7
        size, columns = height * lanes, base * lanes
        for at in range(0, size, columns):
            source = x
            if at + columns > n:
                source = room
                given, target = x[min(at, n) : n], room[at : at + columns]
                for k in range(given.size):
                    target[k] = given[k]
                rest = target[given.size :]
                for k in range(rest.size):
                    rest[k] = top
            if odd == 5:
                sort_columns_20(source, at, room, at)
            elif odd == 3:
                sort_columns_12(source, at, room, at)
            elif odd == 7:
                sort_columns_28(source, at, room, at)
            else:
                sort_columns_16(source, at, room, at)
        group, rows, steps = 1, base, 1 if odd == 1 else -1
        while group < lanes:  # one place that merges, since it is much code
            if rows < height:
                rows, steps = 2 * rows, steps + 1
            elif group == 1:
                group, steps = 2, steps + 1
            else:
                group *= 2
            step = odd * lanes << steps
            for start in range(0, height, rows):
                for k in range(rows // 8):
                    first, last = (start + k) * lanes, (start + rows - 1 - k) * lanes
                    if group == 1:
                        turn_1(room, first, last, step)
                    elif group == 2:
                        turn_2(room, first, last, step)
                    elif group == 4:
                        turn_4(room, first, last, step)
                    elif group == 8:
                        turn_8(room, first, last, step)
                    elif lanes == 16:
                        turn_16(room, first, last, step)
            _merge(room, size, steps, odd, lanes)
        for row in range(0, height, lanes):
            transpose(room, row * lanes, x, row, height, n)

    return sort


def _make_float_sort(x: Any) -> Any:
    """The sort of floats: their bits are in order as integers, but for those of negative numbers, and NaN."""
    kind: Any = np.int32 if x.dtype.bitwidth == 32 else np.int64
    sign, top = x.dtype.bitwidth - 1, kind(np.iinfo(kind).max)
    infinity = kind(np.array(np.inf, f"f{x.dtype.bitwidth // 8}").view(kind))

    def sort(x: Any) -> None:
        keys = x.view(kind)
        for k in range(keys.size):
            key = keys[k]
            keys[k] = top if key & top > infinity else key ^ ((key >> sign) & top)
        lang.sort(keys)
        for k in range(keys.size):
            key = keys[k]
            keys[k] = key ^ ((key >> sign) & top)

    return sort


def _choose(x: Any) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or x.layout != "C" or not x.mutable:
        raise TypingError(f"sort: expected a one-dimensional array without gaps that can be written to, got {x}")
    if x.dtype in (types.float32, types.float64):
        return _make_float_sort(x)
    if not isinstance(x.dtype, types.Integer) or x.dtype.bitwidth not in (32, 64):
        raise TypingError(f"sort: expected numbers of four or eight bytes, got {x.dtype}")
    return _make_sort(x)


def install_sorting() -> None:
    """Tell numba of it."""
    overload(lang.sort, jit_options={"forceinline": False}, target="cpu")(_choose)
