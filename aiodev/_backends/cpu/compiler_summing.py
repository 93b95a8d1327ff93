"""What :func:`aiodev.lang.sum` means in compiled code: vectors, added two by two.

**Problem.** From a loop that converts ``float32`` to ``float64`` the compiler makes vectors of half as many elements, and a
conversion and an addition for each. A core that has so many instructions under way for each cache line waits for fewer lines
at once, and so reads less from the last cache and from memory than it could. At the end of each row its prefetcher begins
anew.

**Solution.** Of a long slice thirty-two vectors are added two by two, and their sum is converted: less than half of the
instructions, and no branch. They are read in steps of :data:`_APART`, so that a core asks for the far end of a group at its
beginning. Of a short one, which may be a row, or where the core is asked for vectors that it will read later, groups of four
are. Where each element is to be converted, a vector at a time is. What is left are single vectors, and then one with zeros.

These loops are not to be unrolled: with fewer loads in them a core sees in what order they go through memory.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array
from numba.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.cpu.compiler_prefetch import ask_for_line
from aiodev.lang.summing import WIDE

__all__ = ["install_summing", "make_loop"]

#: Bytes of a vector, as long as a cache line. LLVM makes of it what the processor has.
_BYTES = 64
#: Vectors of a group; of one in a long slice, which has so many bytes at least, and how far apart those are that are read one
#: after the other.
_FEW, _MANY, _LONG, _APART = 4, 32, 1 << 16, 8
_WORD, _INT, _BIT, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.DoubleType()


@intrinsic
def _sum_vectors(typing_context, x, ahead, wide):
    """The sum of an array of float32 or float64 that has no gaps; ``ahead`` is a number of elements, or None."""
    itemsize = x.dtype.bitwidth // 8
    lanes = _BYTES // itemsize

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = make_array(x)(context, builder, args[0])
        read, summed = ir.VectorType(context.get_data_type(x.dtype), lanes), ir.VectorType(_DOUBLE, lanes)
        first = builder.ptrtoint(view.data, _WORD)
        size = builder.mul(view.nitems, _WORD(itemsize))
        last = builder.add(first, size)
        asked = builder.mul(args[1], _WORD(itemsize)) if ahead != types.none else None
        total = cgutils.alloca_once_value(builder, summed(None))

        def add_to_total(value: Any) -> None:
            value = value if read == summed else builder.fpext(value, summed)
            builder.store(builder.fadd(builder.load(total), value), total)

        def add_group(at: Any, vectors: int, apart: int) -> None:
            sums: list[tuple[int, Any]] = []  # of so many vectors each
            for k in (k for column in range(apart) for k in range(column, vectors, apart)):
                place = builder.inttoptr(builder.add(at, _WORD(k * _BYTES)), read.as_pointer())
                count, value = 1, builder.load(place, align=itemsize)
                while sums and sums[-1][0] == count:
                    count, value = 2 * count, builder.fadd(sums.pop()[1], value)
                sums.append((count, value))
            add_to_total(sums[0][1])

        def add_groups(start: Any, vectors: int, apart: int = 1) -> Any:
            """From ``start`` on, as many as there are; returns where they end."""
            end = builder.add(start, builder.and_(builder.sub(last, start), _WORD(-vectors * _BYTES)))
            with cgutils.for_range_slice(builder, start, end, _WORD(vectors * _BYTES)) as (at, _):
                nothing = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True)
                builder.call(nothing, [], attrs=["convergent"])  # which keeps LLVM from unrolling
                for k in range(vectors if asked is not None else 0):
                    ask_for_line(builder, builder.add(builder.add(at, asked), _WORD(k * _BYTES)))  # may be outside
                add_group(at, vectors, apart)
            return end

        def read_last(at: Any, count: Any) -> Any:
            indices = ir.VectorType(_INT, lanes)
            counts = builder.insert_element(indices(ir.Undefined), count, _INT(0))
            counts = builder.shuffle_vector(counts, indices(ir.Undefined), indices(None))
            there = builder.icmp_unsigned("<", indices(list(range(lanes))), counts)
            kind = ir.FunctionType(read, [read.as_pointer(), _INT, ir.VectorType(_BIT, lanes), read])
            name = f"llvm.masked.load.v{lanes}f{x.dtype.bitwidth}.p0"
            load = cgutils.get_or_insert_function(builder.module, kind, name)
            return builder.call(load, [builder.inttoptr(at, read.as_pointer()), _INT(itemsize), there, read(None)])

        done = cgutils.alloca_once_value(builder, first)
        with builder.if_then(builder.not_(args[2])):
            if asked is None:
                with builder.if_then(builder.icmp_signed(">=", size, _WORD(_LONG))):
                    builder.store(add_groups(first, _MANY, _APART), done)
            builder.store(add_groups(builder.load(done), _FEW), done)
        end = add_groups(builder.load(done), 1)
        left = builder.udiv(builder.sub(last, end), _WORD(itemsize))
        with builder.if_then(cgutils.is_not_null(builder, left)):
            add_to_total(read_last(end, builder.trunc(left, _INT)))
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE, summed])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{lanes}f64")
        return builder.call(reduce, [_DOUBLE(0.0), builder.load(total)], fastmath=("reassoc",))

    return types.float64(x, ahead, types.boolean), generate


def make_loop(dtype: np.dtype[Any]) -> Any:
    """The function that adds one element of such a type after the other, wide."""
    number: Any = np.dtype(WIDE[dtype.kind]).type

    def code(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        total = number(0)
        for k in range(x.size):
            total += number(x[k])
        return total

    return code


def _choose(x: Any, ahead: Any = None, wide: Any = False) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"sum: expected a one-dimensional array of numbers, got {x}")
    asks = not (ahead is None or isinstance(ahead, types.NoneType | types.Omitted))
    if asks and not isinstance(ahead, types.Integer):
        raise TypingError(f"sum: expected an integer for how many elements ahead to ask, got {ahead}")
    if x.layout != "C" or x.dtype not in (types.float32, types.float64):
        return make_loop(as_dtype(x.dtype))

    def vectors(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        return _sum_vectors(x, None, bool(wide))

    def vectors_ahead(x: Any, ahead: Any = None, wide: Any = False) -> Any:
        return _sum_vectors(x, np.int64(ahead), bool(wide))

    return vectors_ahead if asks else vectors


def install_summing() -> None:
    """Tell numba of it."""
    overload(lang.sum, jit_options={"fastmath": {"reassoc", "contract"}}, target="cpu")(_choose)
