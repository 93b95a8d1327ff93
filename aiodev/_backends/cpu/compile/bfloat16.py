"""bfloat16 in kernels: a type that is ``float32`` in registers and half of one in memory.

**Problem.** No compiler here knows ``bfloat16``: it is not one of numba's types nor of llvmlite's.

**How.** numba tells what a value is in registers from what it is in memory. A ``bfloat16`` is the upper half of a
``float32``: a load shifts its bits up, a store shifts them down, and both turn into vector code. Only a conversion to it
rounds: to the nearest, ties to even, beyond the largest number to infinity; subnormal numbers stay, and NaN stays NaN,
quiet, with its sign. So what is moved is not changed, and a value of the type is always one that memory can hold.

**Typing.** No function takes the type. It is promoted to ``float32``, in which whatever has to be computed is. Where numba
would ask NumPy for a dtype, for NumPy's scalar functions and for a variable that is one type here and another there, it is
told to take ``float32``.

What makes all this serves numba-cuda, too, which has types, models and registries of its own.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy
from llvmlite import ir
from numba import types
from numba.core import datamodel
from numba.core.datamodel.models import PrimitiveModel
from numba.core.errors import TypingError
from numba.core.imputils import Registry
from numba.core.registry import cpu_target
from numba.core.typeconv.rules import default_casting_rules
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, overload
from numba.np.numpy_support import from_dtype
from numba.np.ufunc_db import get_ufuncs

from aiodev import lang
from aiodev._core.dtypes import DTYPES

__all__ = [
    "BFLOAT16",
    "SINGLES",
    "add_code",
    "add_rules",
    "add_typing",
    "install",
    "is_float",
    "make_int",
    "make_model",
    "make_rounding",
    "make_type",
    "number_type",
]

_SINGLE = ir.FloatType()
_I16, _I32 = ir.IntType(16), ir.IntType(32)
_QUIET = 0x400000


def round_bits(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A ``float32`` rounded to one whose lower half is 0."""

    def number(bits: int) -> ir.Constant:
        return ir.Constant(_I32, bits)

    bits = builder.bitcast(value, _I32)
    even = builder.icmp_unsigned("==", builder.and_(bits, number(0x10000)), number(0))
    rounded = builder.add(bits, builder.select(even, number(0x7FFF), number(0x8000)))
    is_nan = builder.fcmp_unordered("uno", value, value)
    quiet = builder.or_(bits, number(_QUIET))
    upper = builder.and_(builder.select(is_nan, quiet, rounded), number(0xFFFF0000))
    return builder.bitcast(upper, _SINGLE)


def make_type(types: Any) -> Any:
    """numba's type, made of the types of a target."""

    class BFloat16(types.Number):
        """A number, and no ``Float``: what numba has for those asks NumPy for their dtype."""

        bitwidth = 16

        def __init__(self) -> None:
            super().__init__(name="bfloat16")

    return BFloat16()


def make_model(primitive: Any) -> Any:
    """The model of that type, made of a target's model of numbers."""

    class Model(primitive):
        """``float32`` as a value, 16 bits as data."""

        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, _SINGLE)

        def get_data_type(self) -> Any:
            return _I16

        def as_data(self, builder: Any, value: Any) -> Any:
            bits = builder.bitcast(value, _I32)
            return builder.trunc(builder.lshr(bits, ir.Constant(_I32, 16)), _I16)

        def from_data(self, builder: Any, data: Any) -> Any:
            bits = builder.shl(builder.zext(data, _I32), ir.Constant(_I32, 16))
            return builder.bitcast(bits, _SINGLE)

    return Model


def add_rules(rules: Any, types: Any, kind: Any) -> None:
    """Add the conversion rules of ``bfloat16``, as numba has them for ``float16``."""
    rules.promote_unsafe(kind, types.float32)
    rules.safe_unsafe(types.int8, kind)
    rules.unsafe_unsafe(types.int16, kind)
    rules.unsafe_unsafe(types.float16, kind)


def add_code(registry: Any, types: Any, kind: Any) -> None:
    """Add the code that numba asks for of a number. Conversions go by way of ``float32``, as in ``ml_dtypes`` and PyTorch."""

    def to(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
        return round_bits(builder, context.cast(builder, value, given, types.float32))

    def fro(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
        return context.cast(builder, value, types.float32, wanted)

    for other in (types.float16, types.float32, types.float64, types.Integer, types.Boolean):
        registry.lower_cast(other, kind)(to)
    for other in (types.float16, types.float32, types.float64, types.Integer, types.Boolean, types.Complex):
        registry.lower_cast(kind, other)(fro)

    def compare(sign: str) -> Any:
        return lambda context, builder, signature, args: builder.fcmp_ordered(sign, *args)

    def is_true(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fcmp_unordered("!=", args[0], ir.Constant(_SINGLE, 0.0))

    def real(context: Any, builder: Any, given: Any, value: Any) -> Any:
        return value

    def imaginary(context: Any, builder: Any, given: Any, value: Any) -> Any:
        return ir.Constant(_SINGLE, 0.0)

    registry.lower_getattr(kind, "real")(real)
    registry.lower_getattr(kind, "imag")(imaginary)
    registry.lower(bool, kind)(is_true)
    for operation, sign in ((operator.lt, "<"), (operator.gt, ">")):  # min and max ask for these
        registry.lower(operation, kind, kind)(compare(sign))


def add_typing(context: Any, infer: Any, template: type, functions: Iterable[Any], types: Any, kind: Any) -> None:
    """The typing of functions that take it as ``float32``, and of variables; of other types nothing changes."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        if kind not in args:
            return None
        return self.context.resolve_function_type(self.key, [types.float32 if arg == kind else arg for arg in args], kws)

    for function in functions:
        typing = type("BFloat16Typing", (template,), {"key": function, "generic": generic})
        infer(function, types.Function(typing))  # as a decorator it asks for the module, and ufuncs of NumPy 2.0 have none
    unify_pairs = context.unify_pairs

    def unify(first: Any, second: Any) -> Any:
        if first != second and isinstance(first, types.Number) and isinstance(second, types.Number):
            first, second = (types.float32 if one == kind else one for one in (first, second))
        return unify_pairs(first, second)

    context.unify_pairs = unify


def make_int(kind: Any) -> Any:
    """The overload of ``int``, of which there is none by conversion."""

    def whole(x: Any) -> Any:
        return int(numpy.float32(x))

    def choose(x: Any) -> Any:
        return whole if x == kind else None

    return choose


def make_rounding(intrinsic: Any, types: Any, kind: Any, error: type[Exception]) -> Any:
    """The code of :func:`aiodev.lang.bfloat16`."""

    @intrinsic
    def rounding(typing_context: Any, x: Any) -> Any:
        if not isinstance(x, types.Float | types.Integer | types.Boolean) and x != kind:
            raise error(f"bfloat16: expected a real number, got {x}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return round_bits(builder, context.cast(builder, args[0], x, types.float32))

        return types.float32(x), generate

    return rounding


#: The type on the CPU.
BFLOAT16 = make_type(types)
#: What is computed in ``float32``.
SINGLES = frozenset({types.float16, BFLOAT16, types.float32})


def is_float(kind: Any) -> bool:
    """Whether it is a floating type."""
    return isinstance(kind, types.Float) or kind == BFLOAT16


def number_type(code: str) -> Any:
    """numba's type of a dtype, by its code in the table of dtypes."""
    row = DTYPES[code]
    return BFLOAT16 if row.name == "bfloat16" else from_dtype(numpy.dtype(row.name))


_installed: list[bool] = []


def install() -> None:
    """Tell numba of it; again does nothing."""
    if _installed:
        return
    _installed.append(True)
    datamodel.register_default(type(BFLOAT16))(make_model(PrimitiveModel))
    add_rules(default_casting_rules, types, BFLOAT16)
    registry = Registry("aiodev bfloat16")
    add_code(registry, types, BFLOAT16)
    cpu_target.target_context.refresh()  # numba's own come first
    cpu_target.target_context.install_registry(registry)
    add_typing(cpu_target.typing_context, infer_global, AbstractTemplate, (*get_ufuncs(), float), types, BFLOAT16)
    rounding = make_rounding(intrinsic, types, BFLOAT16, TypingError)
    overload(lang.bfloat16, target="cpu")(lambda x: lambda x: rounding(x))
    overload(int, target="cpu")(make_int(BFLOAT16))
