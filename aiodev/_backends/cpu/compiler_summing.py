"""What :func:`aiodev.lang.sum` means in compiled code: vectors, read one after the other.

**Problem.** From a loop that converts ``float32`` to ``float64`` the compiler makes vectors of half as many elements, and the
conversions take longer than a cache takes to give the elements. Four slices that are read side by side and added before
they are converted are four streams for the core's prefetcher to find anew in every block.

**Solution.** Four vectors that lie one after the other are added two by two, and the sum is converted. What is left is
converted a vector at a time, the last few elements one by one.
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
from aiodev.lang.summing import WIDE

__all__ = ["install_summing", "make_loop"]

#: Elements of a vector, and vectors that are read together. LLVM makes of it what the processor has.
_LANES, _VECTORS = 16, 4
_WORD, _INT, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
_WIDE = ir.VectorType(_DOUBLE, _LANES)


@intrinsic
def _sum_vectors(typing_context, x):
    """The sum of an array of float32 or float64 that has no gaps."""
    single = x.dtype == types.float32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = make_array(x)(context, builder, args[0])
        element = context.get_data_type(x.dtype)
        narrow = ir.VectorType(element, _LANES)

        def load(index: Any) -> Any:
            place = builder.bitcast(builder.gep(view.data, [index]), narrow.as_pointer())
            return builder.load(place, align=x.dtype.bitwidth // 8)

        def widen(value: Any, wide: Any) -> Any:
            return builder.fpext(value, wide) if single else value

        def add_to(total: Any, value: Any) -> None:
            builder.store(builder.fadd(builder.load(total), value), total)

        def zero(kind: Any) -> Any:
            total = cgutils.alloca_once(builder, kind)
            builder.store(ir.Constant(kind, None), total)
            return total

        totals = [zero(_WIDE) for _ in range(1 if single else _VECTORS)]
        rest = zero(_DOUBLE)
        size = view.nitems
        by_fours, by_vectors = (builder.and_(size, ir.Constant(_WORD, -n)) for n in (_VECTORS * _LANES, _LANES))
        start, step = ir.Constant(_WORD, 0), ir.Constant(_WORD, _VECTORS * _LANES)
        with cgutils.for_range_slice(builder, start, by_fours, step) as (index, _):
            vectors = [load(builder.add(index, ir.Constant(_WORD, k * _LANES))) for k in range(_VECTORS)]
            if single:
                first, second = builder.fadd(*vectors[:2]), builder.fadd(*vectors[2:])
                vectors = [widen(builder.fadd(first, second), _WIDE)]
            for total, vector in zip(totals, vectors, strict=True):
                add_to(total, vector)
        with cgutils.for_range_slice(builder, by_fours, by_vectors, ir.Constant(_WORD, _LANES)) as (index, _):
            add_to(totals[0], widen(load(index), _WIDE))
        with cgutils.for_range_slice(builder, by_vectors, size, ir.Constant(_WORD, 1)) as (index, _):
            add_to(rest, widen(builder.load(builder.gep(view.data, [index])), _DOUBLE))
        for total in totals[1:]:
            add_to(totals[0], builder.load(total))
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE, _WIDE])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{_LANES}f64")
        return builder.call(reduce, [builder.load(rest), builder.load(totals[0])], fastmath=("reassoc",))

    return types.float64(x), generate


def make_loop(dtype: np.dtype[Any]) -> Any:
    """The function that adds one element of such a type after the other, wide."""
    wide: Any = np.dtype(WIDE[dtype.kind]).type

    def code(x: Any) -> Any:
        total = wide(0)
        for k in range(x.size):
            total += wide(x[k])
        return total

    return code


def _choose(x: Any) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"sum: expected a one-dimensional array of numbers, got {x}")
    if x.layout != "C" or x.dtype not in (types.float32, types.float64):
        return make_loop(as_dtype(x.dtype))

    def vectors(x: Any) -> Any:
        return _sum_vectors(x)

    return vectors


def install_summing() -> None:
    """Tell numba of it."""
    overload(lang.sum, jit_options={"fastmath": {"reassoc", "contract"}}, target="cpu")(_choose)
