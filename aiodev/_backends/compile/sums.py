"""Sums: :func:`aiodev.lang.sum`, ``sum_squares`` and ``moments`` in compiled code are loops over vectors.

**Problem.** From a loop that converts ``float32`` to ``float64`` the compiler makes vectors of half as many elements, and a
conversion and an addition for each. A core that has so many instructions under way for each cache line waits for fewer lines
at once, and so reads less from the last cache and from memory than it could. At the end of each row its prefetcher begins
anew.

**Solution.** Of a long slice thirty-two vectors are added two by two, and their sum is converted: less than half of the
instructions, and no branch. They are read in steps of :data:`_APART`, so that a core asks for the far end of a group at its
beginning. Of a short one, which may be a row, or where the core is asked for vectors that it will read later, groups of four
are. Where each element is to be converted, or squared, a vector at a time is, and added to one of two sums in turn, so that no
addition waits for the one before it. What is left are single vectors, and then one with zeros. Slices that are shorter than a
vector are the compiler's loops'. Moments add distances as well as squares, which costs no more: what takes long is to convert.

These loops are not to be unrolled: with fewer loads in them a core sees in what order they go through memory.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable
from numba.np.arrayobj import make_array
from numba.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.compile.prefetch import ask_for_line
from aiodev._backends.compile.stored import is_stored
from aiodev.lang.summing import WIDE

__all__ = ["install_summing", "make_distance_loop", "make_loop", "make_moments"]

#: Bytes of a vector, as long as a cache line. LLVM makes of it what the processor has.
_BYTES = 64
#: Of what there are such vectors where distances are added.
_WIDENED = frozenset({types.float32, types.float64, types.complex64, types.complex128})
#: Vectors of a group; of one in a long slice, which has so many bytes at least, and how far apart those are that are read one
#: after the other.
_FEW, _MANY, _LONG, _APART = 4, 32, 1 << 16, 8
#: Vectors that are added, and whose squares are, in turn.
_TURNS = 2
#: Moments are from the mean of the first elements, one in so many of all.
_HEAD = 16
#: What loops may do: the squares of imaginary parts that are 0 need not be added.
_SUMS, _SQUARES = {"reassoc", "contract"}, {"reassoc", "contract", "nsz"}
_WORD, _INT, _BIT, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.DoubleType()


class _Vectors:
    """Writes loops over the vectors of an array of floats that has no gaps; complex numbers are two floats each.

    ``ahead`` is how many elements later those are that are asked for, or None. ``wide`` is a vector of sums.
    """

    def __init__(self, context: Any, builder: Any, x: Any, array: Any, ahead: Any) -> None:
        number, nbytes = getattr(x.dtype, "underlying_float", x.dtype), _WORD(x.dtype.bitwidth // 8)
        self._builder, self._itemsize = builder, number.bitwidth // 8
        self.lanes = _BYTES // self._itemsize
        self._read, self.wide = (ir.VectorType(t, self.lanes) for t in (context.get_data_type(number), _DOUBLE))
        view = make_array(x)(context, builder, array)
        self.first = builder.ptrtoint(view.data, _WORD)
        self.size = builder.mul(view.nitems, nbytes)
        self._end = builder.add(self.first, self.size)
        self._ahead = builder.mul(ahead, nbytes) if ahead is not None else None

    def load(self, at: Any) -> Any:
        """The vector there."""
        return self._builder.load(self._builder.inttoptr(at, self._read.as_pointer()), align=self._itemsize)

    def widen(self, value: Any) -> Any:
        return value if self._read == self.wide else self._builder.fpext(value, self.wide)

    def repeat(self, *values: Any) -> Any:
        """A vector that has them again and again."""
        kind, places = ir.VectorType(values[0].type, self.lanes), ir.VectorType(_INT, self.lanes)
        once = kind(ir.Undefined)
        for k, value in enumerate(values):
            once = self._builder.insert_element(once, value, _INT(k))
        return self._builder.shuffle_vector(once, once, places([k % len(values) for k in range(self.lanes)]))

    def write_groups(self, start: Any, vectors: int, body: Callable[[Any], None]) -> Any:
        """``body`` for each group from ``start`` on, as many as there are; returns where they end."""
        builder = self._builder
        end = builder.add(start, builder.and_(builder.sub(self._end, start), _WORD(-vectors * _BYTES)))
        with cgutils.for_range_slice(builder, start, end, _WORD(vectors * _BYTES)) as (at, _):
            nothing = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True)
            builder.call(nothing, [], attrs=["convergent"])  # which keeps LLVM from unrolling
            for k in range(vectors if self._ahead is not None else 0):
                ask_for_line(builder, builder.add(builder.add(at, self._ahead), _WORD(k * _BYTES)))  # may be outside
            body(at)
        return end

    def write_each(self, start: Any, body: Callable[..., None]) -> Any:
        """``body(at, count)`` for :data:`_TURNS` vectors at a time, and for single ones after them; returns where they end."""
        for count in (_TURNS, 1):
            start = self.write_groups(start, count, functools.partial(body, count=count))
        return start

    def write_last(self, at: Any, body: Callable[[Any, Any], None]) -> None:
        """``body`` for what is left, if anything is: a vector that ends with zeros, and where it has elements."""
        builder = self._builder
        left = builder.udiv(builder.sub(self._end, at), _WORD(self._itemsize))
        with builder.if_then(cgutils.is_not_null(builder, left)):
            places = ir.VectorType(_INT, self.lanes)(list(range(self.lanes)))
            there = builder.icmp_unsigned("<", places, self.repeat(builder.trunc(left, _INT)))
            arguments = [self._read.as_pointer(), _INT, ir.VectorType(_BIT, self.lanes), self._read]
            name = f"llvm.masked.load.v{self.lanes}f{8 * self._itemsize}.p0"
            load = cgutils.get_or_insert_function(builder.module, ir.FunctionType(self._read, arguments), name)
            place = builder.inttoptr(at, self._read.as_pointer())
            body(builder.call(load, [place, _INT(self._itemsize), there, self._read(None)]), there)

    def total_of(self, sums: Any, first: int = 0, step: int = 1) -> Any:
        """The sum of a vector of sums, or of each ``step``-th of them from ``first`` on."""
        if step > 1:
            places = list(range(first, self.lanes, step))
            sums = self._builder.shuffle_vector(sums, sums, ir.VectorType(_INT, len(places))(places))
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE, sums.type])
        name = f"llvm.vector.reduce.fadd.v{sums.type.count}f64"
        reduce = cgutils.get_or_insert_function(self._builder.module, kind, name)
        return self._builder.call(reduce, [_DOUBLE(0.0), sums], fastmath=("reassoc",))


@intrinsic
def _sum_vectors(typing_context, x, ahead, wide):
    """The sum of the elements."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _Vectors(context, builder, x, args[0], None if ahead == types.none else args[1])
        totals = [cgutils.alloca_once_value(builder, vectors.wide(None)) for _ in range(_TURNS)]

        def add(value: Any, turn: int) -> None:
            builder.store(builder.fadd(builder.load(totals[turn]), vectors.widen(value)), totals[turn])

        def add_each(at: Any, count: int) -> None:
            for k in range(count):
                add(vectors.load(builder.add(at, _WORD(k * _BYTES))), k)

        def add_group(at: Any, count: int, apart: int) -> None:
            sums: list[tuple[int, Any]] = []  # of so many vectors each
            for k in (k for column in range(apart) for k in range(column, count, apart)):
                added, value = 1, vectors.load(builder.add(at, _WORD(k * _BYTES)))
                while sums and sums[-1][0] == added:
                    added, value = 2 * added, builder.fadd(sums.pop()[1], value)
                sums.append((added, value))
            add(sums[0][1], 0)

        def add_groups(start: Any, count: int, apart: int = 1) -> Any:
            return vectors.write_groups(start, count, functools.partial(add_group, count=count, apart=apart))

        done = cgutils.alloca_once_value(builder, vectors.first)
        with builder.if_then(builder.not_(args[2])):
            if ahead == types.none:
                with builder.if_then(builder.icmp_signed(">=", vectors.size, _WORD(_LONG))):
                    builder.store(add_groups(vectors.first, _MANY, _APART), done)
            builder.store(add_groups(builder.load(done), _FEW), done)
        vectors.write_last(vectors.write_each(builder.load(done), add_each), lambda value, _: add(value, 0))
        return vectors.total_of(functools.reduce(builder.fadd, map(builder.load, totals)))

    return types.float64(x, ahead, types.boolean), generate


@intrinsic
def _sum_distances(typing_context, x, center, ahead):
    """The sum of what the elements are more than ``center``, which is complex where they are, and that of the squares."""
    kind = types.Tuple([center, types.float64])

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _Vectors(context, builder, x, args[0], None if ahead == types.none else args[2])
        parts = [builder.extract_value(args[1], k) for k in range(2)] if center == types.complex128 else [args[1]]
        middle = vectors.repeat(*parts)
        sums, squares = ([cgutils.alloca_once_value(builder, vectors.wide(None)) for _ in range(_TURNS)] for _ in range(2))

        def add(distance: Any, turn: int) -> None:
            builder.store(builder.fadd(builder.load(sums[turn]), distance), sums[turn])
            builder.store(builder.fadd(builder.load(squares[turn]), builder.fmul(distance, distance)), squares[turn])

        def distance_of(value: Any) -> Any:
            return builder.fsub(vectors.widen(value), middle)

        def add_each(at: Any, count: int) -> None:
            for k in range(count):
                add(distance_of(vectors.load(builder.add(at, _WORD(k * _BYTES)))), k)

        def add_last(value: Any, there: Any) -> None:
            add(builder.select(there, distance_of(value), vectors.wide(None)), 0)

        vectors.write_last(vectors.write_each(vectors.first, add_each), add_last)
        total, squared = (functools.reduce(builder.fadd, map(builder.load, turns)) for turns in (sums, squares))
        totals = [vectors.total_of(total, k, len(parts)) for k in range(len(parts))]
        first = totals[0] if center == types.float64 else cgutils.pack_struct(builder, totals)
        return context.make_tuple(builder, kind, [first, vectors.total_of(squared)])

    return kind(x, center, ahead), generate


def make_loop(dtype: np.dtype[Any]) -> Any:
    """The function that adds one element of such a type after the other, wide."""
    number: Any = np.dtype(WIDE[dtype.kind]).type

    def code(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        total = number(0)
        for k in range(x.size):
            total += number(x[k])
        return total

    return code


def make_distance_loop(dtype: np.dtype[Any]) -> Any:
    """The function that adds how far one element of such a type after the other is from a center, wide, and the squares."""
    number = number_of(dtype)

    def code(x: Any, center: Any, ahead: Any = None) -> Any:
        total, squares = number(0), 0.0
        for k in range(x.size):
            distance = number(x[k]) - number(center)
            total += distance
            squares += distance.real * distance.real + distance.imag * distance.imag
        return total, squares

    return code


def make_moments(dtype: np.dtype[Any], sums: Any) -> Any:
    """The function behind :func:`aiodev.lang.moments`; ``sums`` is a loop that adds distances and their squares."""
    number = number_of(dtype)

    def code(x: Any, ahead: Any = None, origin: Any = 0.0) -> Any:
        share = np.divide(1.0, np.float64(x.size))
        center = number(x[0]) if x.size > 0 else number(0)
        if x.size > _HEAD:
            head = x[: (x.size + _HEAD - 1) // _HEAD]
            center += sums(head, center, ahead)[0] / np.float64(head.size)
        total, squares = sums(x, center, ahead)
        shift, variance = total * share, squares * share
        if math.isfinite(variance):
            rest = variance - (shift.real * shift.real + shift.imag * shift.imag)
            return (center - number(origin)) + shift, rest if rest > 0.0 else 0.0
        # It overflows from there, or is no number: then as in two passes. Of shares, since a sum may overflow on the way, to
        # infinities of both signs in one order, which would be no number, and not in another.
        mean = number(0) * share  # NaN if there are no elements
        for k in range(x.size):
            mean += number(x[k]) * share
        return mean - number(origin), sums(x, mean, ahead)[1] * share

    return code


def number_of(dtype: np.dtype[Any]) -> Any:
    """The type in which elements of a type are squared."""
    return np.complex128 if dtype.kind == "c" else np.float64


def _checked(name: str, x: Any, ahead: Any) -> bool:
    """Whether anything is asked for.

    Raises:
        TypingError: it becomes a CompileError.
    """
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"{name}: expected a one-dimensional array of numbers, got {x}")
    asks = not (ahead is None or isinstance(ahead, types.NoneType | types.Omitted))
    if asks and not isinstance(ahead, types.Integer):
        raise TypingError(f"{name}: expected an integer for how many elements ahead to ask, got {ahead}")
    return asks


def _check_center(name: str, what: str, x: Any, center: Any) -> None:
    if isinstance(center, types.Complex) and not isinstance(x.dtype, types.Complex):
        raise TypingError(f"{name}: expected a real number as the {what} of elements of {x.dtype}, got {center}")


def _dtype_of(x: Any) -> np.dtype[Any]:
    """The dtype that elements are taken as."""
    return np.dtype(np.float32) if is_stored(x.dtype) else as_dtype(x.dtype)


def _choose_sum(x: Any, ahead: Any = None, wide: Any = False) -> Any:
    asks = _checked("sum", x, ahead)
    loop = make_loop(_dtype_of(x))
    if x.layout != "C" or x.dtype not in (types.float32, types.float64):
        return loop
    few = register_jitable(fastmath=_SUMS)(loop)

    def vectors(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        return few(x) if x.nbytes < _BYTES else _sum_vectors(x, None, bool(wide))

    def vectors_ahead(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        return few(x) if x.nbytes < _BYTES else _sum_vectors(x, np.int64(ahead), bool(wide))

    return vectors_ahead if asks else vectors


def _choose_distances(x: Any, asks: bool) -> Any:
    """The loop that adds distances of the elements of ``x``, and their squares."""
    loop = make_distance_loop(_dtype_of(x))
    few = register_jitable(fastmath=_SQUARES)(loop)
    if x.layout != "C" or x.dtype not in _WIDENED:
        return few
    number = number_of(_dtype_of(x))

    def vectors(x: Any, center: Any, ahead: Any = None) -> Any:
        return few(x, center) if x.nbytes < _BYTES else _sum_distances(x, number(center), None)

    def vectors_ahead(x: Any, center: Any, ahead: Any = None) -> Any:
        return few(x, center) if x.nbytes < _BYTES else _sum_distances(x, number(center), np.int64(ahead))

    return register_jitable(fastmath=_SQUARES)(vectors_ahead if asks else vectors)


def _choose_sum_squares(x: Any, center: Any = 0.0, ahead: Any = None) -> Any:
    asks = _checked("sum_squares", x, ahead)
    _check_center("sum_squares", "center", x, center)
    sums = _choose_distances(x, asks)

    def squares(x: Any, center: Any = 0.0, ahead: Any = None) -> Any:
        return sums(x, center, ahead)[1]

    return squares


def _choose_moments(x: Any, ahead: Any = None, origin: Any = 0.0) -> Any:
    _check_center("moments", "origin", x, origin)
    return make_moments(_dtype_of(x), _choose_distances(x, _checked("moments", x, ahead)))


def install_summing() -> None:
    """Tell numba of them."""
    overload(lang.sum, jit_options={"fastmath": _SUMS}, target="cpu")(_choose_sum)
    overload(lang.sum_squares, jit_options={"fastmath": _SQUARES}, target="cpu")(_choose_sum_squares)
    overload(lang.moments, jit_options={"fastmath": {"contract"}}, target="cpu")(_choose_moments)  # it relies on its order
