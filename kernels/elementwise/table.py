"""Elementwise functions of one and two arrays: the table, a row for each.

Results have NumPy's dtypes; Python numbers are weak. Division by zero gives infinities and NaN, as NumPy's does, and of
integers 0; nothing raises.

A row says what is computed, what NumPy has for it, what the docstring says: a sentence, and an example's operands and result;
and its gradient, where it has one (:mod:`aiodev.kernels.elementwise.derivatives`). It is all that there is of a function. What
NumPy has for it calls NumPy's functions by their full names: ``abs``,
``pow`` and ``round`` are rows here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev import dtypes
from aiodev.kernels.elementwise.derivatives import declare_call
from aiodev.kernels.elementwise.rows import TABLE, Group


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


def _part_of(kind: Any) -> tuple[Any, Any]:
    """The type of a complex number, and of a part of it."""
    return kind, np.empty(0, kind).real.dtype


# fmt: off
_arithmetic = Group("Arithmetic")
abs = _arithmetic.unary(
    "abs", {"": "abs({x})", "c": "lang.abs({x})"}, np.absolute,
    "The absolute value; of complex numbers the modulus, which is real.", "[-1.5, 2.0]", "[1.5, 2. ]",
    gradient="{g} * np.sign({x})",
)
add = _arithmetic.binary(
    "add", "{x1} + {x2}", np.add, "x1 + x2; of booleans, or.", "[1.0, 2.0], 10.0", "[11., 12.]",
    gradients=("{g}", "{g}"),
)
cbrt = _arithmetic.unary(
    "cbrt", "lang.cbrt({x})", np.cbrt,
    "The cube root, of negative numbers too.", "[-8.0, 27.0]", "[-2.,  3.]",
    gradient="np.divide({g}, np.float32(3) * {result} * {result})",
)
copysign = _arithmetic.binary(
    "copysign", "np.copysign({x1}, {x2})", np.copysign,
    "x1 with the sign of x2.", "[1.0, 2.0], -0.0", "[-1., -2.]",
    gradients=("{g} * np.sign({x1}) * np.copysign(np.float32(1), {x2})", "0"),
)
divide = _arithmetic.binary(
    "divide", {"": "np.divide({x1}, {x2})", "c": "complex_quotient({x1}, {x2})"}, np.divide,
    "x1 / x2; of integers a float64. By 0 it is infinite, or NaN of 0.", "[1.0, 3.0], 2", "[0.5, 1.5]",
    gradients=("np.divide({g}, {x2})", "-np.divide({g} * {result}, {x2})"),
)
floor_divide = _arithmetic.binary(
    "floor_divide",
    {
        "": "float_quotient({x1}, {x2})",
        "i": "floor_quotient({x1}, {x2})",
        "u": "unsigned_quotient({x1}, {x2})",
    },
    np.floor_divide,
    "The greatest whole number not above x1 / x2; of integers by 0 it is 0, of an infinity or by one x1 / x2.",
    "[7, -7], 2", "[ 3, -4]",
    gradients=("0", "0"),
)
hypot = _arithmetic.binary(
    "hypot", "lang.hypot({x1}, {x2})", np.hypot,
    "sqrt(x1² + x2²), without overflow in between.", "[3.0], [4.0]", "[5.]",
    gradients=("{g} * np.divide({x1}, {result})", "{g} * np.divide({x2}, {result})"),
)
maximum = _arithmetic.binary(
    "maximum", "np.maximum({x1}, {x2})", np.maximum,
    "The greater of the two; NaN if one is NaN.", "[1.0, 3.0], 2", "[2., 3.]",
    gradients=(
        "{g} * (np.float32(1) - ({x1} < {x2}) - np.float32(0.5) * ({x1} == {x2}))",
        "{g} * (np.float32(1) - ({x1} > {x2}) - np.float32(0.5) * ({x1} == {x2}))",
    ),
)
minimum = _arithmetic.binary(
    "minimum", "np.minimum({x1}, {x2})", np.minimum,
    "The lesser of the two; NaN if one is NaN.", "[1.0, 3.0], 2", "[1., 2.]",
    gradients=(
        "{g} * (np.float32(1) - ({x1} > {x2}) - np.float32(0.5) * ({x1} == {x2}))",
        "{g} * (np.float32(1) - ({x1} < {x2}) - np.float32(0.5) * ({x1} == {x2}))",
    ),
)
multiply = _arithmetic.binary(
    "multiply", "{x1} * {x2}", np.multiply,
    "x1 * x2; of booleans, and.", "[1.0, 2.0], 10.0", "[10., 20.]",
    gradients=("{g} * {x2}", "{g} * {x1}"),
)
negative = _arithmetic.unary(
    "negative", "-{x}", np.negative,
    "The number with the opposite sign; of unsigned integers modulo their range.", "[1.0, -2.0]", "[-1.,  2.]",
    gradient="-{g}",
)
nextafter = _arithmetic.binary(
    "nextafter", "np.nextafter({x1}, {x2})", np.nextafter,
    "The floating-point number next to x1 on the side of x2; float32 or float64.", "[0.0], [1.0]", "[5.e-324]",
)
positive = _arithmetic.unary(
    "positive", "{x}", np.positive, "The number itself, in new memory.", "[-1.0]", "[-1.]",
    gradient="{g}",
)
pow = _arithmetic.binary(
    "pow",
    {
        "": "lang.pow({x1}, {x2})",
        "c": "complex_power({x1}, {x2})",
        "i": "whole_power({x1}, {x2})",
        "u": "unsigned_power({x1}, {x2})",
    },
    np.power,
    "x1 to the power of x2. Powers of integers wrap around.", "[2.0, 3.0], 2", "[4., 9.]",
    gradients=(
        {
            "": "{g} * {x2} * lang.pow({x1}, {x2} - np.float32(1)) if {x2} != 0 else {g} * np.float32(0)",
            "c": "{g} * {x2} * complex_power({x1}, {x2} - np.float32(1)) if {x2} != 0 else {g} * np.float32(0)",
        },
        {
            "": "{g} * {result} * lang.log({x1}) if {x1} != 0 or {x2} < 0 else {g} * np.float32(0)",
            "c": "{g} * {result} * lang.log({x1}) if {x1} != 0 or ({x2} != 0 and {x2}.real <= 0) else {g} * np.float32(0)",
        },
    ),
)
declare_call(
    "complex_power", ("x1", "x2"),
    {
        "x1": "{g} * {x2} * complex_power({x1}, {x2} - np.float32(1)) if {x2} != 0 else {g} * np.float32(0)",
        "x2": "{g} * {result} * lang.log({x1}) if {x1} != 0 or ({x2} != 0 and {x2}.real <= 0) else {g} * np.float32(0)",
    },
)
reciprocal = _arithmetic.unary(
    "reciprocal", {"": "np.reciprocal({x})", "i": "whole_inverse({x})", "u": "whole_inverse({x})"}, np.reciprocal,
    "1 / x, in the dtype of x: of integers rounded towards 0, and of 0 it is 0.", "[4.0, 0.5]", "[0.25, 2.  ]",
    gradient="-{g} * {result} * {result}",
)
relu = _arithmetic.unary(
    "relu", {"": "np.maximum({x}, np.float32(0))", "i": "np.maximum({x}, 0)", "u": "{x}"}, lambda x: np.maximum(x, 0),
    "max(x, 0), of real numbers; NaN stays. Its gradient at 0 is 0, where ``maximum`` gives half.", "[-1.5, 2.0]", "[0., 2.]",
    types=lambda kind: dtypes.resolve(np.remainder, int, kind)[1:],  # which takes real numbers only, too
    gradient="np.float32(0) if {result} <= 0 else {g}",
)
remainder = _arithmetic.binary(
    "remainder",
    {
        "": "float_rest({x1}, {x2})",
        "i": "floor_rest({x1}, {x2})",
        "u": "unsigned_rest({x1}, {x2})",
    },
    np.remainder,
    "What floor_divide leaves over, with the sign of x2; of integers by 0 it is 0.", "[7, -7], 4", "[3, 1]",
    gradients=("{g}", "-{g} * times_left_out({x1}, {x2})"),
)
declare_call("times_left_out", ("x1", "x2"), {"x1": "0", "x2": "0"})
sign = _arithmetic.unary(
    "sign",
    {
        "": "np.sign({x})",
        "c": "direction({x})",
        "f": "np.sign({x}) if {x} != 0 else abs({x})",
        "u": "{x} != 0",
    },
    np.sign,
    "-1, 0 or 1; of complex numbers x / abs(x).", "[-2.0, 0.0, 5.0]", "[-1.,  0.,  1.]",
    gradient="0",
)
sqrt = _arithmetic.unary(
    "sqrt", "lang.sqrt({x})", np.sqrt,
    "The square root; of negative real numbers NaN.", "[9.0, 2.25]", "[3. , 1.5]",
    gradient="np.divide({g}, {result} + {result})",
)
square = _arithmetic.unary(
    "square", "{x} * {x}", np.square, "x * x.", "[3.0, -0.5]", "[9.  , 0.25]",
    gradient="{g} * ({x} + {x})",
)
subtract = _arithmetic.binary(
    "subtract", "{x1} - {x2}", np.subtract, "x1 - x2.", "[1.0, 2.0], 10.0", "[-9., -8.]",
    gradients=("{g}", "-{g}"),
)

_logic = Group("Comparison and logic", constant=True)
equal = _logic.binary(
    "equal", _compared("=="), np.equal,
    "Whether they are equal; NaN is not, even to itself.", "[1.0, 2.0], 2", "[False,  True]", compares=True,
)
greater = _logic.binary(
    "greater", _compared(">") | {"c": _ordered(">", ">")}, np.greater,
    "Whether x1 is greater than x2.", "[1.0, 3.0], 2", "[False,  True]", compares=True,
)
greater_equal = _logic.binary(
    "greater_equal", _compared(">=") | {"c": _ordered(">", ">=")}, np.greater_equal,
    "Whether x1 is x2 or greater.", "[1.0, 2.0], 2", "[False,  True]", compares=True,
)
isfinite = _logic.unary(
    "isfinite", "np.isfinite({x})", np.isfinite,
    "Whether it is neither infinite nor NaN.", "[1.0, np.inf, np.nan]", "[ True, False, False]",
)
isinf = _logic.unary(
    "isinf", "np.isinf({x})", np.isinf,
    "Whether it is infinite.", "[1.0, -np.inf, np.nan]", "[False,  True, False]",
)
isnan = _logic.unary(
    "isnan", "np.isnan({x})", np.isnan,
    "Whether it is NaN.", "[1.0, np.inf, np.nan]", "[False, False,  True]",
)
less = _logic.binary(
    "less", _compared("<") | {"c": _ordered("<", "<")}, np.less,
    "Whether x1 is less than x2.", "[1.0, 3.0], 2", "[ True, False]", compares=True,
)
less_equal = _logic.binary(
    "less_equal", _compared("<=") | {"c": _ordered("<", "<=")}, np.less_equal,
    "Whether x1 is x2 or less.", "[2.0, 3.0], 2", "[ True, False]", compares=True,
)
logical_and = _logic.binary(
    "logical_and", "({x1} != 0) & ({x2} != 0)", np.logical_and,
    "Whether neither is 0.", "[0.0, 2.0], 1", "[False,  True]",
)
logical_not = _logic.unary("logical_not", "not {x}", np.logical_not, "Whether it is 0.", "[0.0, 2.0]", "[ True, False]")
logical_or = _logic.binary(
    "logical_or", "({x1} != 0) | ({x2} != 0)", np.logical_or,
    "Whether one of them is not 0.", "[0.0, 2.0], 0", "[False,  True]",
)
logical_xor = _logic.binary(
    "logical_xor", "({x1} != 0) != ({x2} != 0)", np.logical_xor,
    "Whether exactly one of them is 0.", "[0.0, 2.0], 1", "[ True, False]",
)
not_equal = _logic.binary(
    "not_equal", _compared("!="), np.not_equal,
    "Whether they differ; NaN does, even from itself.", "[1.0, 2.0], 2", "[ True, False]", compares=True,
)
signbit = _logic.unary(
    "signbit", "np.signbit({x})", np.signbit,
    "Whether the sign is negative, that of zero and NaN too.", "[-1.0, 0.0, -0.0]", "[ True, False,  True]",
)

_bits = Group("Bits", constant=True)
bitwise_and = _bits.binary("bitwise_and", "{x1} & {x2}", np.bitwise_and, "The bits that both have.", "[12], 10", "[8]")
bitwise_invert = _bits.unary(
    "bitwise_invert", "np.invert({x})", np.invert,
    "Every bit turned over; of booleans the opposite.", "[0, 5]", "[-1, -6]",
)
bitwise_left_shift = _bits.binary(
    "bitwise_left_shift", "moved_up({x1}, {x2})", np.left_shift,
    "x1 with its bits moved up by x2 places; 0 if there are no more.", "[1, 3], 2", "[ 4, 12]",
)
bitwise_or = _bits.binary(
    "bitwise_or", "{x1} | {x2}", np.bitwise_or,
    "The bits that one of them has.", "[12], 10", "[14]",
)
bitwise_right_shift = _bits.binary(
    "bitwise_right_shift", "moved_down({x1}, {x2})", np.right_shift,
    "x1 with its bits moved down by x2 places; a sign is kept.", "[5, -8], 1", "[ 2, -4]",
)
bitwise_xor = _bits.binary(
    "bitwise_xor", "{x1} ^ {x2}", np.bitwise_xor,
    "The bits in which they differ.", "[12], 10", "[6]",
)

_rounding = Group("Rounding")
ceil = _rounding.unary(
    "ceil", "np.ceil({x})", np.ceil,
    "The least whole number that is not less.", "[-1.5, 1.5]", "[-1.,  2.]", kept="biu",
    gradient="0",
)
floor = _rounding.unary(
    "floor", "np.floor({x})", np.floor,
    "The greatest whole number that is not greater.", "[-1.5, 1.5]", "[-2.,  1.]", kept="biu",
    gradient="0",
)
round = _rounding.unary(
    "round", "np.rint({x})", np.rint,
    "The nearest whole number; halves go to the even one.", "[0.5, 1.5, 2.6]", "[0., 2., 3.]", kept="biu",
    gradient="0",
)
trunc = _rounding.unary(
    "trunc", "np.trunc({x})", np.trunc,
    "The whole number next to it on the side of 0.", "[-1.5, 1.5]", "[-1.,  1.]", kept="biu",
    gradient="0",
)

_exponentials = Group("Exponentials and logarithms")
exp = _exponentials.unary(
    "exp", "lang.exp({x})", np.exp, "e to this power.", "[0.0, -np.inf]", "[1., 0.]",
    gradient="{g} * {result}",
)
exp2 = _exponentials.unary(
    "exp2", "lang.exp2({x})", np.exp2, "2 to this power.", "[3.0, -1.0]", "[8. , 0.5]",
    gradient="{g} * {result} * 0.6931471805599453",
)
expit = _exponentials.unary(
    "expit", "lang.expit({x})", lambda x: 1 / (1 + np.exp(-x)),
    "The logistic function 1 / (1 + exp(-x)), also called sigmoid; of real numbers.", "[0.0]", "[0.5]",
    types=functools.partial(dtypes.resolve, np.cbrt),  # which takes real numbers only, too
    gradient="{g} * ({result} - {result} * {result})",
)
expm1 = _exponentials.unary(
    "expm1", "lang.expm1({x})", np.expm1,
    "exp(x) - 1, accurate near 0 too.", "[1e-20]", "[1.e-20]",
    gradient="{g} * {result} + {g}",
)
log = _exponentials.unary(
    "log", "lang.log({x})", np.log,
    "The natural logarithm; of 0 minus infinity, of less NaN.", "[1.0, 0.0]", "[  0., -inf]",
    gradient="np.divide({g}, {x})",
)
log10 = _exponentials.unary(
    "log10", "lang.log10({x})", np.log10, "The logarithm to base 10.", "[100.0]", "[2.]",
    gradient="np.divide({g}, {x} * 2.302585092994046)",
)
log1p = _exponentials.unary(
    "log1p", "lang.log1p({x})", np.log1p,
    "log(1 + x), accurate near 0 too.", "[1e-20]", "[1.e-20]",
    gradient="np.divide({g}, {x} + np.float32(1))",
)
log2 = _exponentials.unary(
    "log2", "lang.log2({x})", np.log2, "The logarithm to base 2.", "[8.0]", "[3.]",
    gradient="np.divide({g}, {x} * 0.6931471805599453)",
)
logaddexp = _exponentials.binary(
    "logaddexp", "log_sum({x1}, {x2})", np.logaddexp,
    "log(exp(x1) + exp(x2)), without overflow in between.", "[0.0], [-np.inf]", "[0.]",
    gradients=(
        "np.divide({g}, np.float32(1) + lang.exp({x2} - {x1}))",
        "np.divide({g}, np.float32(1) + lang.exp({x1} - {x2}))",
    ),
)
softplus = _exponentials.unary(
    "softplus",
    "{x} + lang.log1p(lang.exp(-abs({x}))) if {x} > 0 else lang.log1p(lang.exp(-abs({x})))",
    lambda x: np.logaddexp(0, x),
    "log(1 + exp(x)), a smooth max(x, 0), without overflow in between; of real numbers.", "[-np.inf, 100.0]", "[  0., 100.]",
    types=lambda kind: dtypes.resolve(np.logaddexp, int, kind)[1:],
    gradient="{g} * lang.expit({x})",
)

_trigonometry = Group("Trigonometric and hyperbolic functions")
acos = _trigonometry.unary(
    "acos", "lang.acos({x})", np.arccos,
    "The angle, from 0 to π, that has this cosine; NaN beyond -1 and 1.", "[1.0]", "[0.]",
    gradient="-np.divide({g}, lang.sqrt(np.float32(1) - {x} * {x}))",
)
acosh = _trigonometry.unary(
    "acosh", "lang.acosh({x})", np.arccosh,
    "The inverse of the hyperbolic cosine; NaN below 1.", "[1.0]", "[0.]",
    gradient={
        "": "np.divide({g}, lang.sqrt({x} * {x} - np.float32(1)))",
        "c": "np.divide({g}, lang.sqrt({x} - np.float32(1)) * lang.sqrt({x} + np.float32(1)))",
    },
)
asin = _trigonometry.unary(
    "asin", "lang.asin({x})", np.arcsin,
    "The angle, from -π/2 to π/2, that has this sine; NaN beyond -1 and 1.", "[0.0]", "[0.]",
    gradient="np.divide({g}, lang.sqrt(np.float32(1) - {x} * {x}))",
)
asinh = _trigonometry.unary(
    "asinh", "lang.asinh({x})", np.arcsinh,
    "The inverse of the hyperbolic sine.", "[0.0]", "[0.]",
    gradient="np.divide({g}, lang.sqrt({x} * {x} + np.float32(1)))",
)
atan = _trigonometry.unary(
    "atan", "lang.atan({x})", np.arctan,
    "The angle, from -π/2 to π/2, that has this tangent.", "[0.0]", "[0.]",
    gradient="np.divide({g}, {x} * {x} + np.float32(1))",
)
atan2 = _trigonometry.binary(
    "atan2", "lang.atan2({x1}, {x2})", np.arctan2,
    "The angle, from -π to π, of the point (x2, x1).", "[0.0], [1.0]", "[0.]",
    gradients=(
        "turn_of_angle({g}, {x1}, {x2})",
        "-turn_of_angle({g}, {x2}, {x1})",
    ),
)
declare_call(
    "turn_of_angle", ("turned", "x1", "x2"),
    {
        "turned": "turn_of_angle({g}, {x1}, {x2})",
        "x1": "np.float32(-2) * turn_of_angle({g}, {x2}, {x1}) * turn_of_angle({turned}, {x1}, {x2})",
        "x2": "turn_of_angle({g}, {x2}, {x1}) * turn_of_angle({turned}, {x2}, {x1})"
        " - turn_of_angle({g}, {x1}, {x2}) * turn_of_angle({turned}, {x1}, {x2})",
    },
)
atanh = _trigonometry.unary(
    "atanh", "lang.atanh({x})", np.arctanh,
    "The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN beyond.", "[0.0, 1.0]", "[ 0., inf]",
    gradient="np.divide({g}, np.float32(1) - {x} * {x})",
)
cos = _trigonometry.unary(
    "cos", "lang.cos({x})", np.cos,
    "The cosine of an angle in radians, of any size.", "[0.0]", "[1.]",
    gradient="-{g} * lang.sin({x})",
)
cosh = _trigonometry.unary(
    "cosh", "lang.cosh({x})", np.cosh, "The hyperbolic cosine.", "[0.0]", "[1.]",
    gradient="{g} * lang.sinh({x})",
)
sin = _trigonometry.unary(
    "sin", "lang.sin({x})", np.sin,
    "The sine of an angle in radians, of any size.", "[0.0]", "[0.]",
    gradient="{g} * lang.cos({x})",
)
sinh = _trigonometry.unary(
    "sinh", "lang.sinh({x})", np.sinh, "The hyperbolic sine.", "[0.0]", "[0.]",
    gradient="{g} * lang.cosh({x})",
)
tan = _trigonometry.unary(
    "tan", "lang.tan({x})", np.tan,
    "The tangent of an angle in radians, of any size.", "[0.0]", "[0.]",
    gradient="{g} * {result} * {result} + {g}",
)
tanh = _trigonometry.unary(
    "tanh", "lang.tanh({x})", np.tanh, "The hyperbolic tangent.", "[0.0, np.inf]", "[0., 1.]",
    gradient="{g} - {g} * {result} * {result}",
)

_complex = Group("Complex numbers")
conj = _complex.unary(
    "conj", {"": "{x}", "c": "np.conjugate({x})"}, np.conjugate,
    "The complex conjugate; of real numbers the number.", "[1 + 2j]", "[1.-2.j]", kept="iuf",
    gradient="{g}",
)
imag = _complex.unary(
    "imag", {"": "{x}.imag", "b": "False"}, np.imag,
    "The imaginary part; of real numbers 0.", "[1 + 2j]", "[2.]", types=_part_of,
    gradient="0",
)
real = _complex.unary(
    "real", "{x}.real", np.real,
    "The real part; of real numbers the number.", "[1 + 2j]", "[1.]", types=_part_of, kept="biuf",
    gradient="{g}",
)
# fmt: on

if not TYPE_CHECKING:  # a type checker goes by the names above
    __all__ = list(TABLE)
