"""The steps of sorting by vectors (:mod:`aiodev._backends.cpu.compiler_sorting`): each is on rows that are in registers.

A *row* is a vector of 64 bytes, whatever the processor's have: LLVM makes several of one. Rows lie one after the other in an
array; where they begin is said in elements.

The networks, with as few comparisons as are known for so many keys, are from Dobbelaere's list
(https://bertdobbelaere.github.io/sorting_networks.html).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = [
    "BYTES",
    "NETWORKS",
    "merge_3",
    "merge_4",
    "merge_6",
    "merge_8",
    "merge_12",
    "merge_16",
    "sort_columns_12",
    "sort_columns_16",
    "transpose",
    "transpose_some",
    "turn_1",
    "turn_2",
    "turn_4",
    "turn_8",
    "turn_16",
]

#: Bytes of a vector, and of the parts within which processors move elements most cheaply.
BYTES, _PART = 64, 16
#: The networks for so many rows: comparisons by level.
NETWORKS = {
    12: (
        ((0, 8), (1, 7), (2, 6), (3, 11), (4, 10), (5, 9)),
        ((0, 1), (2, 5), (3, 4), (6, 9), (7, 8), (10, 11)),
        ((0, 2), (1, 6), (5, 10), (9, 11)),
        ((0, 3), (1, 2), (4, 6), (5, 7), (8, 11), (9, 10)),
        ((1, 4), (3, 5), (6, 8), (7, 10)),
        ((1, 3), (2, 5), (6, 9), (8, 10)),
        ((2, 3), (4, 5), (6, 7), (8, 9)),
        ((4, 6), (5, 7)),
        ((3, 4), (5, 6), (7, 8)),
    ),
    16: (
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
    ),
}

_WORD = ir.IntType(32)

Network = Sequence[Sequence[tuple[int, int]]]


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


def _make_sort_columns(count: int) -> Any:
    """Sort the columns of so many rows, read in one array and written to another one."""

    @intrinsic
    def sort_columns(typing_context, source, at, x, to):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given, found = _Rows(context, builder, source, args[0]), _Rows(context, builder, x, args[2])
            rows = [given.load(given.later(args[1], k)) for k in range(count)]
            found.sort(rows, NETWORKS[count])
            for k in range(count):
                found.store(rows[k], found.later(args[3], k))
            return context.get_dummy_value()

        return types.none(source, types.int64, x, types.int64), generate

    return sort_columns


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
            matrix.sort(up, (((0, 2), (1, 3)), ((0, 1), (2, 3))))
            matrix.sort(down, (((2, 0), (3, 1)), ((1, 0), (3, 2))))
            for four, at in zip((up, down), places, strict=True):
                for row, place in zip(four, at, strict=True):
                    matrix.store(row, place)
            return context.get_dummy_value()

        return types.none(x, types.int64, types.int64, types.int64), generate

    return turn


def _make_merge(count: int) -> Any:
    """Steps down the columns, from half of ``count`` rows, each ``step`` from the next, down to one; three are sorted."""

    @intrinsic
    def merge(typing_context, x, first, step):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            matrix = _Rows(context, builder, x, args[0])
            places = [args[1]]
            for _ in range(count - 1):
                places.append(builder.add(places[-1], args[2]))
            rows = [matrix.load(place) for place in places]
            size = count
            while size % 2 == 0:
                halves = [(k, k + size // 2) for k in range(count) if k % size < size // 2]
                matrix.sort(rows, [halves])
                size //= 2
            if size == 3:
                for pair in ((0, 2), (0, 1), (1, 2)):
                    matrix.sort(rows, [[(k + pair[0], k + pair[1]) for k in range(0, count, 3)]])
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


sort_columns_12, sort_columns_16 = (_make_sort_columns(count) for count in (12, 16))
merge_4, merge_8, merge_16 = (_make_merge(count) for count in (4, 8, 16))
merge_3, merge_6, merge_12 = (_make_merge(count) for count in (3, 6, 12))
turn_1, turn_2, turn_4, turn_8, turn_16 = (_make_turn(group) for group in (1, 2, 4, 8, 16))
transpose, transpose_some = _make_transposition(True), _make_transposition(False)
