"""Elementwise functions of one and two arrays, from one table.

Results have NumPy's dtypes (Python numbers are weak), except that integers of 8 and 16 bits become ``float32``, not
``float16``, where they become floating-point. Division by zero gives infinities and NaN, as NumPy's does, and raises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import aiodev
from aiodev.kernels.operation import DType, Elementwise, Operand

#: Name: (expression, the NumPy function that has its types).
_UNARY = {
    "abs": ("abs({x})", np.absolute),
    "acos": ("np.arccos({x})", np.arccos),
    "asin": ("np.arcsin({x})", np.arcsin),
    "atan": ("np.arctan({x})", np.arctan),
    "ceil": ("np.ceil({x})", np.ceil),
    "cos": ("lang.cos({x})", np.cos),
    "cosh": ("lang.cosh({x})", np.cosh),
    "exp": ("lang.exp({x})", np.exp),
    "expm1": ("lang.expm1({x})", np.expm1),
    "floor": ("np.floor({x})", np.floor),
    "isfinite": ("np.isfinite({x})", np.isfinite),
    "isinf": ("np.isinf({x})", np.isinf),
    "isnan": ("np.isnan({x})", np.isnan),
    "log": ("lang.log({x})", np.log),
    "log10": ("lang.log10({x})", np.log10),
    "log1p": ("lang.log1p({x})", np.log1p),
    "log2": ("lang.log2({x})", np.log2),
    "logical_not": ("not {x}", np.logical_not),
    "negative": ("-{x}", np.negative),
    "round": ("np.rint({x})", np.rint),
    "sign": ("np.sign({x})", np.sign),
    "sin": ("lang.sin({x})", np.sin),
    "sinh": ("lang.sinh({x})", np.sinh),
    "sqrt": ("np.sqrt({x})", np.sqrt),
    "square": ("{x} * {x}", np.square),
    "tan": ("lang.tan({x})", np.tan),
    "tanh": ("lang.tanh({x})", np.tanh),
    "trunc": ("np.trunc({x})", np.trunc),
}
_BINARY = {
    "add": ("{x1} + {x2}", np.add),
    "atan2": ("np.arctan2({x1}, {x2})", np.arctan2),
    "divide": ("np.divide({x1}, {x2})", np.divide),
    "equal": ("{x1} == {x2}", np.equal),
    "greater": ("{x1} > {x2}", np.greater),
    "greater_equal": ("{x1} >= {x2}", np.greater_equal),
    "less": ("{x1} < {x2}", np.less),
    "less_equal": ("{x1} <= {x2}", np.less_equal),
    "logical_and": ("{x1} != 0 and {x2} != 0", np.logical_and),
    "logical_or": ("{x1} != 0 or {x2} != 0", np.logical_or),
    "logical_xor": ("({x1} != 0) != ({x2} != 0)", np.logical_xor),
    "maximum": ("np.maximum({x1}, {x2})", np.maximum),
    "minimum": ("np.minimum({x1}, {x2})", np.minimum),
    "multiply": ("{x1} * {x2}", np.multiply),
    "not_equal": ("{x1} != {x2}", np.not_equal),
    "pow": ("np.power({x1}, {x2})", np.power),
    "subtract": ("{x1} - {x2}", np.subtract),
}
#: Of integers and booleans these give the argument back, as the array API has it.
_ROUNDING = frozenset({"ceil", "floor", "round", "trunc"})


class Unary(Protocol):
    """A function of one array."""

    def __call__(self, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


class Binary(Protocol):
    """A function of two arrays of shapes that broadcast, or of an array and a number."""

    def __call__(self, x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


def _types_of(ufunc: np.ufunc, kinds: Sequence[Any]) -> tuple[Sequence[DType], DType]:
    """What a NumPy function takes and gives for these types."""
    weak = tuple(int if kind is bool else kind for kind in kinds)
    *inputs, result = ufunc.resolve_dtypes((*weak, None))
    if result == np.float16:
        result = np.dtype(np.float32)
    return [np.dtype(np.float32) if kind == np.float16 else kind for kind in inputs], result


def _unary(name: str) -> Unary:
    expression, ufunc = _UNARY[name]
    operation = Elementwise(name, expression, ("x",), lambda kinds: _types_of(ufunc, kinds))
    copied = Elementwise(name, "{x}", ("x",), lambda kinds: (kinds, kinds[0]))

    def function(x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        if name in _ROUNDING and getattr(x, "dtype", np.dtype(float)).kind in "biu":
            return copied((x,), out)
        return operation((x,), out)

    _name(function, name, f"``{expression.format(x='x')}`` of each element, with NumPy's result type.")
    return function


def _binary(name: str) -> Binary:
    expression, ufunc = _BINARY[name]
    operation = Elementwise(name, expression, ("x1", "x2"), lambda kinds: _types_of(ufunc, kinds))

    def function(x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        return operation((x1, x2), out)

    shown = expression.format(x1="x1", x2="x2")
    _name(function, name, f"``{shown}`` of each pair of elements, with NumPy's result type.")
    return function


def _name(function: Any, name: str, summary: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}\n\nSubmits to the current stream; writes to ``out`` if given."


abs = _unary("abs")
acos = _unary("acos")
asin = _unary("asin")
atan = _unary("atan")
ceil = _unary("ceil")
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
log = _unary("log")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative")
round = _unary("round")
sign = _unary("sign")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc")

add = _binary("add")
atan2 = _binary("atan2")
divide = _binary("divide")
equal = _binary("equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
less = _binary("less")
less_equal = _binary("less_equal")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
not_equal = _binary("not_equal")
pow = _binary("pow")
subtract = _binary("subtract")
