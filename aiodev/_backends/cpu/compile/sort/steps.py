"""The steps of sorting by vectors (:mod:`aiodev._backends.cpu.compile.sort.sort`): each is on rows that are in registers.

A *row* is a vector of 64 bytes, whatever the processor's have: LLVM makes several of one. Rows lie one after the other in an
array; where they begin is said in elements.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from aiodev._backends.cpu.compile.sort.networks import MERGES, NETWORKS, Network

__all__ = [
    "BYTES",
    "merge_2",
    "merge_3",
    "merge_4",
    "merge_5",
    "merge_6",
    "merge_7",
    "merge_8",
    "merge_12",
    "merge_16",
    "sort_4",
    "sort_16",
    "sort_columns_12",
    "sort_columns_16",
    "sort_columns_20",
    "sort_columns_28",
    "transpose",
    "turn_1",
    "turn_2",
    "turn_4",
    "turn_8",
    "turn_16",
]

#: Bytes of a vector, and of the parts within which processors move elements most cheaply.
BYTES, _PART = 64, 16
_WORD = ir.IntType(32)


class _Rows:
    """Emits what is done to the rows of a matrix: ``x`` is numba's type of the array that has them."""

    def __init__(self, context: Any, builder: Any, x: Any, array: Any) -> None:
        self.builder = builder
        self.lanes = BYTES * 8 // x.dtype.bitwidth
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

    def load_some(self, at: Any, size: Any, rest: int) -> Any:
        """Load rows, with a number in place of what is beyond the end of the array."""
        wide = ir.Constant(self._kind, [rest] * self.lanes)
        return self._call_masked("load", self._kind, at, size, [], [wide])

    def store_some(self, row: Any, at: Any, size: Any) -> None:
        """Write what of it is not beyond the end of the array."""
        self._call_masked("store", ir.VoidType(), at, size, [row], [])

    def _call_masked(self, name: str, result: Any, at: Any, size: Any, before: list[Any], after: list[Any]) -> Any:
        builder, wide, pointer = self.builder, ir.VectorType(_WORD, self.lanes), self._place(at)
        left = builder.trunc(builder.sub(size, at), _WORD)
        left = builder.insert_element(ir.Constant(wide, ir.Undefined), left, ir.Constant(_WORD, 0))
        left = self.shuffle(left, left, [0] * self.lanes)
        inside = builder.icmp_signed("<", ir.Constant(wide, list(range(self.lanes))), left)
        args = [*before, pointer, ir.Constant(_WORD, self._element.width // 8), inside, *after]
        kind = ir.FunctionType(result, [arg.type for arg in args])
        symbol = f"llvm.masked.{name}.v{self.lanes}i{self._element.width}.p0"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, symbol), args)

    def later(self, at: Any, rows: int) -> Any:
        """The place of that many rows further down."""
        return self.builder.add(at, ir.Constant(at.type, rows * self.lanes))

    def exchange(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The smaller elements and the greater ones."""
        return self._call("min", a, b), self._call("max", a, b)

    def sort(self, rows: list[Any], network: Network) -> None:
        """Sort rows by comparisons."""
        for level in network:
            for a, b in level:
                rows[a], rows[b] = self.exchange(rows[a], rows[b])

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
        """Exchange ``a`` with ``b``, turned round in groups of columns; the smaller goes to the lower half of each."""
        less, more = self.exchange(a, self._swap(b, group - 1))
        return self._choose(group // 2, less, more), self._swap(self._choose(group // 2, more, less), group - 1)

    def _merge_columns(self, a: Any, by: int) -> Any:
        """The smaller elements of columns that differ by a bit in the column without it."""
        return self._choose(by, *self.exchange(a, self._swap(a, by)))

    def merge_rows(self, rows: list[Any]) -> None:
        """Halve and halve again what is to be merged down the columns; then merge the odd number of rows that are left."""
        size = len(rows)
        while size % 2 == 0:
            self.sort(rows, [[(k, k + size // 2) for k in range(len(rows)) if k % size < size // 2]])
            size //= 2
        for level in MERGES.get(size, ()):
            self.sort(rows, [[(k + a, k + b) for k in range(0, len(rows), size) for a, b in level]])

    def merge_groups(self, row: Any, group: int) -> Any:
        """Merge within groups after ``exchange_columns``, by comparing columns."""
        by = group // 4
        while by:
            row, by = self._merge_columns(row, by), by // 2
        return row

    def transpose_four(self, rows: list[Any]) -> list[Any]:
        """Make columns of four rows, as many to a vector as it has room for."""
        columns = []
        for first in range(0, 4 * self.lanes, self.lanes):
            places = [(k % 4, k // 4) for k in range(first, first + self.lanes)]
            either = [lane + row % 2 * self.lanes for row, lane in places]
            halves = self.shuffle(rows[0], rows[1], either), self.shuffle(rows[2], rows[3], either)
            columns.append(self.shuffle(*halves, [k + row // 2 * self.lanes for k, (row, _) in enumerate(places)]))
        return columns

    def transpose(self, rows: list[Any]) -> list[Any]:
        """Make columns of as many rows as there are lanes: within parts of vectors, then part by part."""
        part = _PART * 8 // self._element.width
        for k in range(0, self.lanes, part):
            rows[k : k + part] = self._transpose(rows[k : k + part], 1, part)
        for k in range(part):
            rows[k::part] = self._transpose(rows[k::part], part, self.lanes // part)
        return rows

    def _transpose(self, rows: list[Any], unit: int, count: int) -> list[Any]:
        """Transpose units of elements, in each group of ``count`` of them."""
        if len(rows) == 1:
            return rows
        columns: list[Any] = [None] * len(rows)
        for odd in range(2):
            places: list[int] = []
            for start in range(0, self.lanes, count * unit):
                own = [start + k for k in range(count * unit) if k // unit % 2 == odd]
                places += own + [self.lanes + k for k in own]
            pairs = zip(rows[::2], rows[1::2], strict=True)
            columns[odd::2] = self._transpose([self.shuffle(a, b, places) for a, b in pairs], unit, count)
        return columns


def _make_sort_columns(count: int) -> Any:
    """Sort the columns of so many rows, read in one array and written to another one."""

    @intrinsic
    def sort_columns(typing_context, source, at, x, to):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given, target = _Rows(context, builder, source, args[0]), _Rows(context, builder, x, args[2])
            rows = [given.load(given.later(args[1], k)) for k in range(count)]
            target.sort(rows, NETWORKS[count])
            for k in range(count):
                target.store(rows[k], target.later(args[3], k))
            return context.get_dummy_value()

        return types.none(source, types.int64, x, types.int64), generate

    return sort_columns


def _make_turn(group: int) -> Any:
    """Steps that merge runs of rows, or of columns in groups: the second half turned round, and two steps down the columns.

    They are for eight rows: four from ``first`` on, each ``step`` on, and four from ``last`` back.
    """

    @intrinsic
    def turn(typing_context, x, first, last, step):
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
            up, down = [[matrix.merge_groups(row, group) for row in four] for four in (up, down)]
            matrix.sort(up, (((0, 2), (1, 3)), ((0, 1), (2, 3))))
            matrix.sort(down, (((2, 0), (3, 1)), ((1, 0), (3, 2))))
            for four, at in zip((up, down), places, strict=True):
                for row, place in zip(four, at, strict=True):
                    matrix.store(row, place)
            return context.get_dummy_value()

        return types.none(x, types.int64, types.int64, types.int64), generate

    return turn


def _make_merge(count: int) -> Any:
    """Steps down the columns, from half of ``count`` rows, each ``step`` from the next, down to one, or an odd number."""

    @intrinsic
    def merge(typing_context, x, first, step):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            matrix = _Rows(context, builder, x, args[0])
            places = [args[1]]
            for _ in range(count - 1):
                places.append(builder.add(places[-1], args[2]))
            rows = [matrix.load(place) for place in places]
            matrix.merge_rows(rows)
            for row, place in zip(rows, places, strict=True):
                matrix.store(row, place)
            return context.get_dummy_value()

        return types.none(x, types.int64, types.int64), generate

    return merge


@intrinsic
def transpose(typing_context, room, at, x, to, height, size):
    """Write as many rows as there are lanes as columns, each ``height`` elements on; nothing beyond the end."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, target = _Rows(context, builder, room, args[0]), _Rows(context, builder, x, args[2])
        rows = given.transpose([given.load(given.later(args[1], k)) for k in range(given.lanes)])
        places = [args[3]]
        for _ in range(given.lanes):
            places.append(builder.add(places[-1], args[4]))
        last = builder.sub(target.later(places[-1], 1), args[4])
        with builder.if_else(builder.icmp_signed("<=", last, args[5])) as (whole, some):
            with whole:
                for row, place in zip(rows, places, strict=False):
                    target.store(row, place)
            with some:
                for row, place in zip(rows, places, strict=False):
                    target.store_some(row, place, args[5])
        return context.get_dummy_value()

    return types.none(room, types.int64, x, types.int64, types.int64, types.int64), generate


def _make_sort_all(count: int) -> Any:
    """Sort an array that has no more elements than so many rows have."""

    @intrinsic
    def sort_all(typing_context, x, size):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            matrix, zero = _Rows(context, builder, x, args[0]), ir.Constant(args[1].type, 0)
            rows = [matrix.load_some(matrix.later(zero, k), args[1], x.dtype.maxval) for k in range(count)]
            matrix.sort(rows, NETWORKS[count])
            group = 2
            while group <= matrix.lanes:
                for k in range(count // 2):
                    rows[k], rows[-1 - k] = matrix.exchange_columns(rows[k], rows[-1 - k], group)
                rows = [matrix.merge_groups(row, group) for row in rows]
                matrix.merge_rows(rows)
                group *= 2
            if count == 4:
                for k, row in enumerate(matrix.transpose_four(rows)):
                    matrix.store_some(row, matrix.later(zero, k), args[1])
            else:
                for first in range(0, count, matrix.lanes):
                    for k, row in enumerate(matrix.transpose(rows[first : first + matrix.lanes])):
                        matrix.store_some(row, ir.Constant(zero.type, k * count + first), args[1])
            return context.get_dummy_value()

        return types.none(x, types.int64), generate

    return sort_all


sort_4, sort_16 = (_make_sort_all(count) for count in (4, 16))
sort_columns_12, sort_columns_16 = (_make_sort_columns(count) for count in (12, 16))
sort_columns_20, sort_columns_28 = (_make_sort_columns(count) for count in (20, 28))
merge_2, merge_4, merge_8, merge_16 = (_make_merge(count) for count in (2, 4, 8, 16))
merge_3, merge_6, merge_12 = (_make_merge(count) for count in (3, 6, 12))
merge_5, merge_7 = (_make_merge(count) for count in (5, 7))
turn_1, turn_2, turn_4, turn_8, turn_16 = (_make_turn(group) for group in (1, 2, 4, 8, 16))
