"""Stored floats: dtypes that numba does not know, ``float32`` in registers and fewer bits in memory.

**Problem.** No compiler here knows ``bfloat16``: it is not one of numba's types nor of llvmlite's.

**How.** numba tells what a value is in registers from what it is in memory. A load makes a ``float32`` of the bits in memory, a
store bits of the ``float32``, as the type's :class:`Format` says. Only a conversion to the type rounds. So what is moved is not
changed, and a value of the type is always one that memory can hold. A ``bfloat16`` is the upper half of a ``float32``: its
load shifts bits up, its store shifts them down, and both turn into vector code.

**Another one** is a row in the table of dtypes, its format in :data:`FORMATS`, which serves all backends, and a function of
:mod:`aiodev.lang` that rounds a number to it.

**Typing.** No function takes such a type. It is promoted to ``float32``, in which whatever has to be computed is. Where numba
would ask NumPy for a dtype, for NumPy's scalar functions and for a variable that is one type here and another there, it is
told to take ``float32``.

What makes all this serves numba-cuda, too, which has types, models and registries of its own.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
    "FORMATS",
    "SINGLES",
    "Format",
    "add_code",
    "add_rules",
    "add_typing",
    "install",
    "is_float",
    "is_stored",
    "make_int",
    "make_model",
    "make_roundings",
    "make_types",
    "number_type",
]

_SINGLE = ir.FloatType()
_I16, _I32 = ir.IntType(16), ir.IntType(32)
_QUIET = 0x400000


class Format(NamedTuple):
    """How a float is stored: each function makes instructions of a builder and a value.

    Attributes:
        data: LLVM's type of its bits.
        load: the ``float32`` that bits mean, or a vector of those that a vector of bits does.
        round: a ``float32`` rounded to one that bits can mean.
        store: the bits of a ``float32`` that is rounded.
    """

    data: ir.IntType
    load: Callable[[ir.IRBuilder, ir.Value], ir.Value]
    round: Callable[[ir.IRBuilder, ir.Value], ir.Value]
    store: Callable[[ir.IRBuilder, ir.Value], ir.Value]


def _round_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """To the nearest, ties to even, beyond the largest number to infinity. NaN stays NaN, quiet, with its sign."""

    def number(bits: int) -> ir.Constant:
        return ir.Constant(_I32, bits)

    bits = builder.bitcast(value, _I32)
    even = builder.icmp_unsigned("==", builder.and_(bits, number(0x10000)), number(0))
    rounded = builder.add(bits, builder.select(even, number(0x7FFF), number(0x8000)))
    is_nan = builder.fcmp_unordered("uno", value, value)
    quiet = builder.or_(bits, number(_QUIET))
    upper = builder.and_(builder.select(is_nan, quiet, rounded), number(0xFFFF0000))
    return builder.bitcast(upper, _SINGLE)


def _store_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    bits = builder.bitcast(value, _I32)
    return builder.trunc(builder.lshr(bits, ir.Constant(_I32, 16)), _I16)


def _load_bfloat16(builder: ir.IRBuilder, data: ir.Value) -> ir.Value:
    if not isinstance(data.type, ir.VectorType):
        return builder.bitcast(builder.shl(builder.zext(data, _I32), ir.Constant(_I32, 16)), _SINGLE)
    lanes = data.type.count
    words = ir.VectorType(_I32, lanes)
    bits = builder.shl(builder.zext(data, words), ir.Constant(words, [16] * lanes))
    return builder.bitcast(bits, ir.VectorType(_SINGLE, lanes))


#: By the dtype's name: of all those in the table that another package than NumPy defines.
FORMATS = {"bfloat16": Format(_I16, _load_bfloat16, _round_bfloat16, _store_bfloat16)}


def make_types(types: Any) -> dict[str, Any]:
    """numba's types by the dtypes' names, made of the types of a target; all are of one class."""

    class Stored(types.Number):
        """A number, and no ``Float``: what numba has for those asks NumPy for their dtype."""

        def __init__(self, name: str) -> None:
            super().__init__(name=name)
            self.bitwidth = FORMATS[name].data.width

    return {name: Stored(name) for name in FORMATS}


def make_model(primitive: Any) -> Any:
    """The model of those types, made of a target's model of numbers."""

    class Model(primitive):
        """``float32`` as a value, bits as data."""

        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, _SINGLE)
            self._format = FORMATS[kind.name]

        def get_data_type(self) -> Any:
            return self._format.data

        def as_data(self, builder: Any, value: Any) -> Any:
            return self._format.store(builder, value)

        def from_data(self, builder: Any, data: Any) -> Any:
            return self._format.load(builder, data)

    return Model


def add_rules(rules: Any, types: Any, stored: Mapping[str, Any]) -> None:
    """Add the conversion rules of stored floats, as numba has them for ``float16``."""
    for kind in stored.values():
        rules.promote_unsafe(kind, types.float32)
        rules.safe_unsafe(types.int8, kind)
        rules.unsafe_unsafe(types.int16, kind)
        rules.unsafe_unsafe(types.float16, kind)
    for one, other in itertools.combinations(stored.values(), 2):
        rules.unsafe_unsafe(one, other)


def add_code(registry: Any, types: Any, stored: Mapping[str, Any]) -> None:
    """Add the code that numba asks for of a number. Conversions go by way of ``float32``, as in ``ml_dtypes`` and PyTorch."""
    kind = type(next(iter(stored.values())))

    def to(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
        return FORMATS[wanted.name].round(builder, context.cast(builder, value, given, types.float32))

    def fro(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
        return context.cast(builder, value, types.float32, wanted)

    def between(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
        return FORMATS[wanted.name].round(builder, value)

    registry.lower_cast(kind, kind)(between)
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


def add_typing(
    context: Any, infer: Any, template: type, functions: Iterable[Any], types: Any, stored: Mapping[str, Any]
) -> None:
    """Add the typing of functions that take them as ``float32``, and of variables; of other types nothing changes."""
    kinds = frozenset(stored.values())

    def generic(self: Any, args: Any, kws: Any) -> Any:
        if kinds.isdisjoint(args):
            return None
        return self.context.resolve_function_type(self.key, [types.float32 if arg in kinds else arg for arg in args], kws)

    for function in functions:
        typing = type("StoredTyping", (template,), {"key": function, "generic": generic})
        infer(function, types.Function(typing))  # as a decorator it asks for the module, and ufuncs of NumPy 2.0 have none
    unify_pairs = context.unify_pairs

    def unify(first: Any, second: Any) -> Any:
        if first != second and isinstance(first, types.Number) and isinstance(second, types.Number):
            first, second = (types.float32 if one in kinds else one for one in (first, second))
        return unify_pairs(first, second)

    context.unify_pairs = unify


def make_int(stored: Mapping[str, Any]) -> Any:
    """The overload of ``int``, of which there is none by conversion."""

    kinds = frozenset(stored.values())

    def whole(x: Any) -> Any:
        return int(numpy.float32(x))

    def choose(x: Any) -> Any:
        return whole if x in kinds else None

    return choose


def make_roundings(intrinsic: Any, types: Any, stored: Mapping[str, Any], error: type[Exception]) -> dict[Any, Any]:
    """Overloads of the functions that round, such as :func:`aiodev.lang.bfloat16`, by the function."""
    kinds = frozenset(stored.values())
    return {getattr(lang, name): _make_rounding(name, intrinsic, types, kinds, error) for name in stored}


def _make_rounding(name: str, intrinsic: Any, types: Any, kinds: frozenset[Any], error: type[Exception]) -> Any:
    @intrinsic
    def rounding(typing_context: Any, x: Any) -> Any:
        if not isinstance(x, types.Float | types.Integer | types.Boolean) and x not in kinds:
            raise error(f"{name}: expected a real number, got {x}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return FORMATS[name].round(builder, context.cast(builder, args[0], x, types.float32))

        return types.float32(x), generate

    return lambda x: lambda x: rounding(x)


#: The types on the CPU.
_STORED = make_types(types)
_KINDS = frozenset(_STORED.values())
#: Types that are computed in ``float32``.
SINGLES = _KINDS | {types.float16, types.float32}


def is_stored(kind: Any) -> bool:
    """Whether it is one of these types."""
    return kind in _KINDS


def is_float(kind: Any) -> bool:
    """Whether it is a floating type."""
    return isinstance(kind, types.Float) or kind in _KINDS


def number_type(code: str) -> Any:
    """numba's type of a dtype, by its code in the table of dtypes."""
    row = DTYPES[code]
    return _STORED[row.name] if row.package else from_dtype(numpy.dtype(row.name))


@functools.cache
def install() -> None:
    """Tell numba of them; again does nothing."""
    for kind in {type(kind) for kind in _KINDS}:
        datamodel.register_default(kind)(make_model(PrimitiveModel))
    add_rules(default_casting_rules, types, _STORED)
    registry = Registry("aiodev stored floats")
    add_code(registry, types, _STORED)
    cpu_target.target_context.refresh()  # numba's own come first
    cpu_target.target_context.install_registry(registry)
    add_typing(cpu_target.typing_context, infer_global, AbstractTemplate, (*get_ufuncs(), float), types, _STORED)
    for function, rounding in make_roundings(intrinsic, types, _STORED, TypingError).items():
        overload(function, target="cpu")(rounding)
    overload(int, target="cpu")(make_int(_STORED))
