"""Native calls: :func:`aiodev.lang.call_native` in compiled code is a plain C call through a pointer."""

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

__all__ = ["install_native"]

_WORD = ir.IntType(64)


def _passed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An argument as C takes it.

    Raises:
        TypingError: it has no C type.
    """
    if isinstance(kind, types.Array):
        return make_array(kind)(context, builder, value).data
    if kind in (types.float32, types.float64):
        return value
    if isinstance(kind, types.Integer | types.Boolean):
        return context.cast(builder, value, kind, types.int64)
    raise TypingError(f"call_native: {kind} cannot be passed to a C function; integers, floats and arrays can")


@intrinsic
def _call(typing_context, address, args):
    kinds = tuple(args)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        items = cgutils.unpack_tuple(builder, values[1], len(kinds))
        passed = [_passed(context, builder, kind, item) for kind, item in zip(kinds, items, strict=True)]
        function = ir.FunctionType(ir.VoidType(), [value.type for value in passed])
        place = context.cast(builder, values[0], address, types.uint64)
        builder.call(builder.inttoptr(place, function.as_pointer()), passed)
        return context.get_dummy_value()

    return types.none(address, args), generate


def install_native() -> None:
    """Tell numba of it."""
    overload(lang.call_native, target="cpu")(lambda address, *args: lambda address, *args: _call(address, args))
