"""What :func:`aiodev.lang.sort` means in compiled code: a sorting network of vectors.

**Problem.** A comparison that decides about a branch is guessed wrong every other time, and radix sort spends more on its
counters than on a few hundred keys.

**Solution.** The elements are a matrix whose rows are vectors. Its columns, one in each lane, are sorted side by side: the
smaller and the greater elements of two rows are one instruction each. Sixteen rows are sorted by the best network known for
sixteen keys, in registers; then runs of rows are merged two by two, until columns are in order. Then columns are merged, in
groups of two, four, eight and sixteen, to runs that go down one column after the other; only the steps of a merge that compare
columns move elements between lanes. At last the matrix is transposed. Nothing branches on what elements are.

**Invariants.**

1.  There are 2ⁿ rows, at least 16. What the elements do not fill is filled with the greatest number, which stays at the end.
2.  Merging is bitonic: of two runs the second one is *turned round*, that is compared with the first one from its end on; then
    come the first and the second half of each, and so on. The smaller of two goes to where comes first in the run.
3.  Steps are done together where they are between the same rows, which stay in registers: turning round with the two steps
    after it takes eight rows; the steps after these, two, three or four at a time, take 4, 8 or 16.

Vectors have 64 bytes, whatever the processor's have: LLVM makes several of one.

See Knuth, The Art of Computer Programming, vol. 3, 5.3.4, on networks and Batcher's bitonic merging; Chhugani et al., Efficient
Implementation of Sorting on Multi-Core SIMD CPU Architecture (2008), on columns of vectors. The network for 16 keys, with 60
comparisons in 10 levels, is from Dobbelaere's list (https://bertdobbelaere.github.io/sorting_networks.html).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable
from numba.np.arrayobj import make_array

from aiodev import lang

__all__ = ["NETWORK", "install_sorting"]

#: Bytes of a vector, and of the parts within which processors move elements most cheaply.
_BYTES, _PART = 64, 16
#: What may be sorted: the rows are on the stack.
_MOST_BYTES = 1 << 16
#: Rows that are sorted at once, and the network that does it.
_ROWS = 16
NETWORK = (
    ((0, 13), (1, 12), (2, 15), (3, 14), (4, 8), (5, 6), (7, 11), (9, 10)),
    ((0, 5), (1, 7), (2, 9), (3, 4), (6, 13), (8, 14), (10, 15), (11, 12)),
    ((0, 1), (2, 3), (4, 5), (6, 8), (7, 9), (10, 11), (12, 13), (14, 15)),
    ((0, 2), (1, 3), (4, 10), (5, 11), (6, 7), (8, 9), (12, 14), (13, 15)),
    ((1, 2), (3, 12), (4, 6), (5, 7), (8, 10), (9, 11), (13, 14)),
    ((1, 4), (2, 6), (5, 8), (7, 10), (9, 13), (11, 14)),
    ((2, 4), (3, 6), (9, 12), (11, 13)),
    ((3, 5), (6, 8), (7, 9), (10, 12)),
    ((3, 4), (5, 6), (7, 8), (9, 10), (11, 12)),
    ((6, 7), (8, 9)),
)
_WORD = ir.IntType(32)


class _Rows:
    """Emits what is done to the rows of a matrix: ``x`` is numba's type of the array that has them."""

    def __init__(self, context: Any, builder: Any, x: Any, array: Any) -> None:
        self.builder = builder
        self.lanes = _BYTES * 8 // x.dtype.bitwidth
        self._element = ir.IntType(x.dtype.bitwidth)
        self._kind = ir.VectorType(self._element, self.lanes)
        self._data = make_array(x)(context, builder, array).data
        self._sign = "s" if x.dtype.signed else "u"

    def _place(self, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self._data, [at]), self._kind.as_pointer())

    def load(self, at: Any) -> Any:
        """The vector that begins at an element."""
        return self.builder.load(self._place(at), align=self._element.width // 8)

    def store(self, row: Any, at: Any) -> None:
        """Write it there."""
        self.builder.store(row, self._place(at), align=self._element.width // 8)

    def store_some(self, row: Any, at: Any, size: Any) -> None:
        """Write what of it is not beyond the end of the array."""
        builder, wide = self.builder, ir.VectorType(at.type, self.lanes)
        left = builder.insert_element(ir.Constant(wide, ir.Undefined), builder.sub(size, at), ir.Constant(_WORD, 0))
        left = self.shuffle(left, left, [0] * self.lanes)
        inside = builder.icmp_signed("<", ir.Constant(wide, list(range(self.lanes))), left)
        pointer = self._place(at)
        kind = ir.FunctionType(ir.VoidType(), [self._kind, pointer.type, _WORD, inside.type])
        name = f"llvm.masked.store.v{self.lanes}i{self._element.width}.p0"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [row, pointer, ir.Constant(_WORD, self._element.width // 8), inside])

    def later(self, at: Any, rows: int) -> Any:
        """The place of that many rows further down."""
        return self.builder.add(at, ir.Constant(at.type, rows * self.lanes))

    def exchange(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The smaller elements and the greater ones."""
        return self._call("min", a, b), self._call("max", a, b)

    def _call(self, name: str, a: Any, b: Any) -> Any:
        kind = ir.FunctionType(self._kind, [self._kind, self._kind])
        name = f"llvm.{self._sign}{name}.v{self.lanes}i{self._element.width}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b])

    def shuffle(self, a: Any, b: Any, places: Sequence[int]) -> Any:
        """Elements of both, those of ``b`` numbered behind those of ``a``."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WORD, len(places)), list(places)))

    def _swap(self, a: Any, by: int) -> Any:
        """Swap lanes whose numbers differ by these bits."""
        return self.shuffle(a, a, [lane ^ by for lane in range(self.lanes)])

    def _choose(self, bit: int, a: Any, b: Any) -> Any:
        """``a`` in lanes whose number does not have the bit, ``b`` in the others."""
        truth = ir.VectorType(ir.IntType(1), self.lanes)
        return self.builder.select(ir.Constant(truth, [int(not lane & bit) for lane in range(self.lanes)]), a, b)

    def exchange_columns(self, a: Any, b: Any, group: int) -> tuple[Any, Any]:
        """As :meth:`exchange`, of ``a`` with ``b`` turned round in groups of columns, the smaller in the lower half of each."""
        less, more = self.exchange(a, self._swap(b, group - 1))
        return self._choose(group // 2, less, more), self._swap(self._choose(group // 2, more, less), group - 1)

    def merge_columns(self, a: Any, by: int) -> Any:
        """The smaller elements of columns that differ by a bit in the column without it."""
        return self._choose(by, *self.exchange(a, self._swap(a, by)))

    def transpose(self, rows: list[Any]) -> list[Any]:
        """Make columns of as many rows as there are lanes: within parts of vectors, then part by part."""
        part = _PART * 8 // self._element.width
        for k in range(0, self.lanes, part):
            rows[k : k + part] = self._transpose(rows[k : k + part], 1, part)
        for k in range(part):
            rows[k::part] = self._transpose(rows[k::part], part, self.lanes // part)
        return rows

    def _transpose(self, rows: list[Any], unit: int, count: int) -> list[Any]:
        """The same for units of elements, in each group of ``count`` of them."""
        if len(rows) == 1:
            return rows
        found: list[Any] = [None] * len(rows)
        for odd in range(2):
            places: list[int] = []
            for start in range(0, self.lanes, count * unit):
                own = [start + k for k in range(count * unit) if k // unit % 2 == odd]
                places += own + [self.lanes + k for k in own]
            pairs = zip(rows[::2], rows[1::2], strict=True)
            found[odd::2] = self._transpose([self.shuffle(a, b, places) for a, b in pairs], unit, count)
        return found


@intrinsic
def _sort_columns(typing_context, source, at, x, to):  # type: ignore[no-untyped-def]
    """Sort the columns of 16 rows, read in one array and written to another one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, found = _Rows(context, builder, source, args[0]), _Rows(context, builder, x, args[2])
        rows = [given.load(given.later(args[1], k)) for k in range(_ROWS)]
        for level in NETWORK:
            for a, b in level:
                rows[a], rows[b] = found.exchange(rows[a], rows[b])
        for k in range(_ROWS):
            found.store(rows[k], found.later(args[3], k))
        return context.get_dummy_value()

    return types.none(source, types.int64, x, types.int64), generate


def _make_turn(group: int) -> Any:
    """Steps that merge runs of rows, or of columns in groups: the second half turned round, and two steps down the columns.

    They are for eight rows: four from ``first`` on, each ``step`` on, and four from ``last`` back.
    """

    @intrinsic
    def turn(typing_context, x, first, last, step):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            matrix = _Rows(context, builder, x, args[0])
            first, last, step = args[1:]
            places = [[first], [last]]
            for _ in range(3):
                places[0].append(builder.add(places[0][-1], step))
                places[1].append(builder.sub(places[1][-1], step))
            up, down = [[matrix.load(place) for place in four] for four in places]
            for k in range(4):
                if group == 1:
                    up[k], down[k] = matrix.exchange(up[k], down[k])
                else:
                    up[k], down[k] = matrix.exchange_columns(up[k], down[k], group)
            by = group // 4
            while by:
                up, down = [[matrix.merge_columns(row, by) for row in four] for four in (up, down)]
                by //= 2
            for a, b in ((0, 2), (1, 3), (0, 1), (2, 3)):
                up[a], up[b] = matrix.exchange(up[a], up[b])
                down[b], down[a] = matrix.exchange(down[b], down[a])
            for four, at in zip((up, down), places, strict=True):
                for row, place in zip(four, at, strict=True):
                    matrix.store(row, place)
            return context.get_dummy_value()

        return types.none(x, types.int64, types.int64, types.int64), generate

    return turn


def _make_merge(count: int) -> Any:
    """Steps down the columns, from half of ``count`` rows, each ``step`` from the next, down to one."""

    @intrinsic
    def merge(typing_context, x, first, step):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            matrix = _Rows(context, builder, x, args[0])
            places = [args[1]]
            for _ in range(count - 1):
                places.append(builder.add(places[-1], args[2]))
            rows = [matrix.load(place) for place in places]
            by = count // 2
            while by:
                for k in range(count):
                    if not k & by:
                        rows[k], rows[k + by] = matrix.exchange(rows[k], rows[k + by])
                by //= 2
            for row, place in zip(rows, places, strict=True):
                matrix.store(row, place)
            return context.get_dummy_value()

        return types.none(x, types.int64, types.int64), generate

    return merge


def _make_transposition(whole: bool) -> Any:
    """Write as many rows as there are lanes as columns, of ``height`` elements each; ``whole``: none is beyond the end."""

    @intrinsic
    def transpose(typing_context, room, at, x, to, height, size):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given, found = _Rows(context, builder, room, args[0]), _Rows(context, builder, x, args[2])
            rows = given.transpose([given.load(given.later(args[1], k)) for k in range(given.lanes)])
            place = args[3]
            for row in rows:
                if whole:
                    found.store(row, place)
                else:
                    found.store_some(row, place, args[5])
                place = builder.add(place, args[4])
            return context.get_dummy_value()

        given = types.int64, x, types.int64, types.int64, types.int64
        return types.none(room, *given), generate

    return transpose


_merge_4, _merge_8, _merge_16 = (_make_merge(count) for count in (4, 8, 16))
_turn_1, _turn_2, _turn_4, _turn_8, _turn_16 = (_make_turn(group) for group in (1, 2, 4, 8, 16))
_transpose, _transpose_some = _make_transposition(True), _make_transposition(False)


@intrinsic
def _stack(typing_context, x):  # type: ignore[no-untyped-def]
    """A pointer to room for the elements of an array and what fills the matrix up, for as long as the caller runs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = ir.Constant(ir.IntType(64), _MOST_BYTES * 8 // x.dtype.bitwidth)
        room = cgutils.alloca_once(builder, context.get_data_type(x.dtype), count)
        room.align = _BYTES
        return room

    return types.CPointer(x.dtype)(x), generate


@register_jitable
def _merge(room, size, steps, lanes):  # type: ignore[no-untyped-def]
    """Merge down the columns within blocks of 2ⁿ rows, n being ``steps``, two to four steps at a time."""
    while steps > 0:
        some = 4 if steps % 4 == 0 else 2 if steps == 2 else 3
        step = lanes << (steps - some)
        for block in range(0, size, step << some):
            for k in range(block, block + step, lanes):
                if some == 4:
                    _merge_16(room, k, step)
                elif some == 3:
                    _merge_8(room, k, step)
                else:
                    _merge_4(room, k, step)
        steps -= some


def _make_sort(x: Any) -> Any:
    """The function that sorts arrays of integers of such a type."""
    lanes, top = _BYTES * 8 // x.dtype.bitwidth, x.dtype.maxval
    most, columns = _MOST_BYTES * 8 // x.dtype.bitwidth, _ROWS * lanes

    def sort(x: Any) -> None:
        n = x.size
        if n > most:
            raise ValueError("sort: more than 64 KiB; sort parts, and merge these")
        room = carray(_stack(x), most)
        height, levels = _ROWS, 4
        while height * lanes < n:
            height, levels = 2 * height, levels + 1
        size = height * lanes
        for at in range(0, size, columns):
            if at + columns <= n:
                _sort_columns(x, at, room, at)
            else:
                source, target = x[min(at, n) : n], room[at : at + columns]
                for k in range(source.size):
                    target[k] = source[k]
                rest = target[source.size :]
                for k in range(rest.size):
                    rest[k] = top
                _sort_columns(room, at, room, at)
        for level in range(5, levels + 1):
            rows = 1 << level
            for first in range(0, height, rows):
                for k in range(rows // 8):
                    _turn_1(room, (first + k) * lanes, (first + rows - 1 - k) * lanes, rows // 8 * lanes)
            _merge(room, size, level - 3, lanes)
        group = 2
        while group <= lanes:
            for k in range(height // 8):
                first, last, step = k * lanes, (height - 1 - k) * lanes, height // 4 * lanes
                if group == 2:
                    _turn_2(room, first, last, step)
                elif group == 4:
                    _turn_4(room, first, last, step)
                elif group == 8:
                    _turn_8(room, first, last, step)
                elif lanes == 16:
                    _turn_16(room, first, last, step)
            _merge(room, size, levels - 2, lanes)
            group *= 2
        for row in range(0, height, lanes):
            if size - height + row + lanes <= n:
                _transpose(room, row * lanes, x, row, height, n)
            else:
                _transpose_some(room, row * lanes, x, row, height, n)

    return sort


def _make_float_sort(x: Any) -> Any:
    """The same for floats: their bits are in order as integers, but for those of negative numbers, and NaN."""
    kind: Any = np.int32 if x.dtype.bitwidth == 32 else np.int64
    sign, top = x.dtype.bitwidth - 1, kind(np.iinfo(kind).max)

    def sort(x: Any) -> None:
        keys = x.view(kind)
        for k in range(keys.size):
            key = keys[k]
            keys[k] = top if x[k] != x[k] else key ^ ((key >> sign) & top)
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
    overload(lang.sort, target="cpu")(_choose)
