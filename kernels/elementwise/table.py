"""Elementwise functions of one and two arrays, from one table.

Results have NumPy's dtypes; Python numbers are weak. Division by zero gives infinities and NaN, as NumPy's does, and of
integers 0; nothing raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.elementwise.docs import describe
from aiodev.kernels.elementwise.ufunc import DType, Elementwise, Operand


def _ordered(first: str, last: str) -> str:
    """Complex numbers in NumPy's order: by their real parts, then by the imaginary ones; none with NaN in either."""
    defined = "({x1}.imag == {x1}.imag) & ({x2}.imag == {x2}.imag)"
    equal = f"({{x1}}.real == {{x2}}.real) & ({{x1}}.imag {last} {{x2}}.imag)"
    return f"(({{x1}}.real {first} {{x2}}.real) & {defined}) | ({equal})"


def _compared(sign: str) -> dict[str, str]:
    """A comparison; that of ``int64`` with ``uint64`` too is of whole numbers, where a common type would be ``float64``."""
    no, yes = "({x} >= 0) & ", "({x} < 0) | "  # what a negative number makes of it
    first, second = yes if sign[0] in "<!" else no, yes if sign[0] in ">!" else no
    return {
        "": f"{{x1}} {sign} {{x2}}",
        "iu": first.replace("x", "x1") + f"(np.uint64({{x1}}) {sign} {{x2}})",
        "ui": second.replace("x", "x2") + f"({{x1}} {sign} np.uint64({{x2}}))",
    }


#: Name: (expression, the NumPy function that has its types); or expressions by the kind of what is computed with.
_UNARY: dict[str, tuple[str | dict[str, str], Any]] = {
    "abs": ({"": "abs({x})", "c": "lang.abs({x})"}, np.absolute),
    "acos": ("lang.acos({x})", np.arccos),
    "acosh": ("lang.acosh({x})", np.arccosh),
    "asin": ("lang.asin({x})", np.arcsin),
    "asinh": ("lang.asinh({x})", np.arcsinh),
    "atan": ("lang.atan({x})", np.arctan),
    "atanh": ("lang.atanh({x})", np.arctanh),
    "bitwise_invert": ("np.invert({x})", np.invert),
    "cbrt": ("lang.cbrt({x})", np.cbrt),
    "ceil": ("np.ceil({x})", np.ceil),
    "cos": ("lang.cos({x})", np.cos),
    "cosh": ("lang.cosh({x})", np.cosh),
    "conj": ({"": "{x}", "c": "np.conjugate({x})"}, np.conjugate),
    "exp": ("lang.exp({x})", np.exp),
    "exp2": ("lang.exp2({x})", np.exp2),
    "expit": ("lang.expit({x})", np.cbrt),  # which takes real numbers only, too
    "expm1": ("lang.expm1({x})", np.expm1),
    "floor": ("np.floor({x})", np.floor),
    "imag": ({"": "{x}.imag", "b": "False"}, np.imag),
    "isfinite": ("np.isfinite({x})", np.isfinite),
    "isinf": ("np.isinf({x})", np.isinf),
    "isnan": ("np.isnan({x})", np.isnan),
    "log": ("lang.log({x})", np.log),
    "log10": ("lang.log10({x})", np.log10),
    "log1p": ("lang.log1p({x})", np.log1p),
    "log2": ("lang.log2({x})", np.log2),
    "logical_not": ("not {x}", np.logical_not),
    "negative": ("-{x}", np.negative),
    "positive": ("{x}", np.positive),
    "real": ("{x}.real", np.real),
    "reciprocal": ({"": "np.reciprocal({x})", "i": "whole_inverse({x})", "u": "whole_inverse({x})"}, np.reciprocal),
    "round": ("np.rint({x})", np.rint),
    "sign": (
        {
            "": "np.sign({x})",
            "c": "direction({x})",
            "f": "np.sign({x}) if {x} != 0 else abs({x})",
            "u": "{x} != 0",
        },
        np.sign,
    ),
    "signbit": ("np.signbit({x})", np.signbit),
    "sin": ("lang.sin({x})", np.sin),
    "sinh": ("lang.sinh({x})", np.sinh),
    "sqrt": ("lang.sqrt({x})", np.sqrt),
    "square": ("{x} * {x}", np.square),
    "tan": ("lang.tan({x})", np.tan),
    "tanh": ("lang.tanh({x})", np.tanh),
    "trunc": ("np.trunc({x})", np.trunc),
}
_BINARY: dict[str, tuple[str | dict[str, str], np.ufunc]] = {
    "add": ("{x1} + {x2}", np.add),
    "atan2": ("lang.atan2({x1}, {x2})", np.arctan2),
    "bitwise_and": ("{x1} & {x2}", np.bitwise_and),
    "bitwise_left_shift": ("moved_up({x1}, {x2})", np.left_shift),
    "bitwise_or": ("{x1} | {x2}", np.bitwise_or),
    "bitwise_right_shift": ("moved_down({x1}, {x2})", np.right_shift),
    "bitwise_xor": ("{x1} ^ {x2}", np.bitwise_xor),
    "copysign": ("np.copysign({x1}, {x2})", np.copysign),
    "divide": ({"": "np.divide({x1}, {x2})", "c": "complex_quotient({x1}, {x2})"}, np.divide),
    "equal": (_compared("=="), np.equal),
    "floor_divide": (
        {
            "": "float_quotient({x1}, {x2})",
            "i": "floor_quotient({x1}, {x2})",
            "u": "unsigned_quotient({x1}, {x2})",
        },
        np.floor_divide,
    ),
    "greater": (_compared(">") | {"c": _ordered(">", ">")}, np.greater),
    "greater_equal": (_compared(">=") | {"c": _ordered(">", ">=")}, np.greater_equal),
    "hypot": ("lang.hypot({x1}, {x2})", np.hypot),
    "less": (_compared("<") | {"c": _ordered("<", "<")}, np.less),
    "less_equal": (_compared("<=") | {"c": _ordered("<", "<=")}, np.less_equal),
    "logaddexp": ("log_sum({x1}, {x2})", np.logaddexp),
    "logical_and": ("({x1} != 0) & ({x2} != 0)", np.logical_and),
    "logical_or": ("({x1} != 0) | ({x2} != 0)", np.logical_or),
    "logical_xor": ("({x1} != 0) != ({x2} != 0)", np.logical_xor),
    "maximum": ("np.maximum({x1}, {x2})", np.maximum),
    "minimum": ("np.minimum({x1}, {x2})", np.minimum),
    "multiply": ("{x1} * {x2}", np.multiply),
    "nextafter": ("np.nextafter({x1}, {x2})", np.nextafter),
    "not_equal": (_compared("!="), np.not_equal),
    "pow": (
        {
            "": "lang.pow({x1}, {x2})",
            "c": "complex_power({x1}, {x2})",
            "i": "whole_power({x1}, {x2})",
            "u": "unsigned_power({x1}, {x2})",
        },
        np.power,
    ),
    "remainder": (
        {"": "float_rest({x1}, {x2})", "i": "floor_rest({x1}, {x2})", "u": "unsigned_rest({x1}, {x2})"},
        np.remainder,
    ),
    "subtract": ("{x1} - {x2}", np.subtract),
}
#: These give the argument back for dtypes of these kinds, as the array API has it.
_KEPT = {"ceil": "biu", "conj": "iuf", "floor": "biu", "real": "biuf", "round": "biu", "trunc": "biu"}
_COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")


class Unary(Protocol):
    """A function of one array."""

    def __call__(self, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


class Binary(Protocol):
    """A function of two arrays of shapes that broadcast, or of an array and a number."""

    def __call__(self, x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


def _types_of(name: str, ufunc: Any, kinds: Sequence[Any]) -> tuple[Sequence[DType], DType]:
    """What a NumPy function takes and gives for these types."""
    if ufunc in (np.real, np.imag):
        return kinds, np.empty(0, kinds[0]).real.dtype
    try:
        *inputs, result = dtypes.resolve(ufunc, *kinds)
    except TypeError as error:
        shown = " and ".join(kind.name if isinstance(kind, np.dtype) else kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: not defined for {shown}; aiodev.kernels.astype converts") from error
    if ufunc is np.nextafter and dtypes.is_stored_only(result):
        raise TypeError(f"nextafter: {result} is computed with in {dtypes.compute_dtype(result)}, which has other neighbours")
    return inputs, result


def _unary(name: str) -> Unary:
    expression, ufunc = _UNARY[name]
    operation = Elementwise(name, expression, ("x",), lambda kinds: _types_of(name, ufunc, kinds))
    copied = Elementwise(name, "{x}", ("x",), lambda kinds: (kinds, kinds[0]))
    kept, repeat = _KEPT.get(name), operation.repeat

    def function(x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        found = repeat(None, x, out)
        if found is not None:
            return found
        if kept is not None and isinstance(x, aiodev.Array) and dtypes.kind(x.dtype) in kept:
            return copied((x,), out)
        return operation.find_out((x,), out)

    _name(function, name)
    return function


def _binary(name: str) -> Binary:
    expression, ufunc = _BINARY[name]
    operation = Elementwise(name, expression, ("x1", "x2"), lambda kinds: _types_of(name, ufunc, kinds))
    repeat, compares = operation.repeat, name in _COMPARISONS

    def function(x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        found = repeat(None, x1, x2, out)
        if found is not None:
            return found
        return operation.find_out((_comparable(x1, x2), _comparable(x2, x1)) if compares else (x1, x2), out)

    _name(function, name)
    return function


def _comparable(x: Operand, other: Operand) -> Operand:
    """The operand; for an integer beyond the integers that it is compared with an infinity, which compares with them alike."""
    if type(x) is int and isinstance(other, aiodev.Array) and other.dtype.kind in "iu":
        limits = np.iinfo(other.dtype)
        if not limits.min <= x <= limits.max:
            return math.copysign(math.inf, x)
    return x


def _name(function: Any, name: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = describe(name)


abs = _unary("abs")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_invert = _unary("bitwise_invert")
cbrt = _unary("cbrt")
ceil = _unary("ceil")
conj = _unary("conj")
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
exp2 = _unary("exp2")
expit = _unary("expit")
expm1 = _unary("expm1")
floor = _unary("floor")
imag = _unary("imag")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
log = _unary("log")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative")
positive = _unary("positive")
real = _unary("real")
reciprocal = _unary("reciprocal")
round = _unary("round")
sign = _unary("sign")
signbit = _unary("signbit")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc")

add = _binary("add")
atan2 = _binary("atan2")
bitwise_and = _binary("bitwise_and")
bitwise_left_shift = _binary("bitwise_left_shift")
bitwise_or = _binary("bitwise_or")
bitwise_right_shift = _binary("bitwise_right_shift")
bitwise_xor = _binary("bitwise_xor")
copysign = _binary("copysign")
divide = _binary("divide")
equal = _binary("equal")
floor_divide = _binary("floor_divide")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
hypot = _binary("hypot")
less = _binary("less")
less_equal = _binary("less_equal")
logaddexp = _binary("logaddexp")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
nextafter = _binary("nextafter")
not_equal = _binary("not_equal")
pow = _binary("pow")
remainder = _binary("remainder")
subtract = _binary("subtract")
