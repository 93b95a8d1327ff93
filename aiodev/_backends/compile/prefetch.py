"""Prefetching: :func:`aiodev.lang.prefetch` in compiled code is an instruction for each cache line."""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from aiodev import lang

__all__ = ["ask_for_line", "install_prefetch"]

#: Bytes of a cache line, on every processor that numba knows but some that have longer ones.
_LINE = 64
_WORD, _INT = ir.IntType(64), ir.IntType(32)
#: For reading, into every level, of data: LLVM's words.
_HOW = (0, 3, 1)


def ask_for_line(builder: Any, address: Any) -> None:
    """Write the instruction."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(address, pointer), *(ir.Constant(_INT, word) for word in _HOW)])


@intrinsic
def _fetch_line(typing_context, x, k):
    """The cache line that has element ``k``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = make_array(x)(context, builder, args[0])
        (step,) = cgutils.unpack_tuple(builder, view.strides, 1)
        place = builder.add(builder.ptrtoint(view.data, _WORD), builder.mul(args[1], step))  # may be outside
        ask_for_line(builder, place)
        return context.get_dummy_value()

    return types.none(x, types.int64), generate


def _choose(x: Any, at: Any = None) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1:
        raise TypingError(f"prefetch: expected a one-dimensional array, got {x}")
    if isinstance(at, types.Integer):

        def one(x: Any, at: Any = None) -> None:
            _fetch_line(x, at)

        return one
    if not (at is None or isinstance(at, types.NoneType | types.Omitted)):
        raise TypingError(f"prefetch: expected an integer for the place, got {at}")
    size = x.dtype.bitwidth // 8 if hasattr(x.dtype, "bitwidth") else 1
    step = max(1, _LINE // size) if x.layout == "C" else 1

    def code(x: Any, at: Any = None) -> None:
        for k in range(0, x.size, step):
            _fetch_line(x, k)

    return code


def install_prefetch() -> None:
    """Tell numba of it."""
    overload(lang.prefetch, target="cpu")(_choose)
