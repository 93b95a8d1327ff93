"""What each elementwise function says of itself: a sentence, and an example of operands and result."""

from __future__ import annotations

__all__ = ["describe"]

#: Name: (what it gives, the operands of the example, its result as NumPy prints it).
_SHOWN: dict[str, tuple[str, str, str]] = {
    "abs": ("The absolute value; of complex numbers the modulus, which is real.", "[-1.5, 2.0]", "[1.5, 2. ]"),
    "acos": ("The angle, from 0 to π, that has this cosine; NaN beyond -1 and 1.", "[1.0]", "[0.]"),
    "acosh": ("The inverse of the hyperbolic cosine; NaN below 1.", "[1.0]", "[0.]"),
    "asin": ("The angle, from -π/2 to π/2, that has this sine; NaN beyond -1 and 1.", "[0.0]", "[0.]"),
    "asinh": ("The inverse of the hyperbolic sine.", "[0.0]", "[0.]"),
    "atan": ("The angle, from -π/2 to π/2, that has this tangent.", "[0.0]", "[0.]"),
    "atanh": ("The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN beyond.", "[0.0, 1.0]", "[ 0., inf]"),
    "bitwise_invert": ("Every bit turned over; of booleans the opposite.", "[0, 5]", "[-1, -6]"),
    "cbrt": ("The cube root, of negative numbers too.", "[-8.0, 27.0]", "[-2.,  3.]"),
    "ceil": ("The least whole number that is not less.", "[-1.5, 1.5]", "[-1.,  2.]"),
    "conj": ("The complex conjugate; of real numbers the number.", "[1 + 2j]", "[1.-2.j]"),
    "cos": ("The cosine of an angle in radians, of any size.", "[0.0]", "[1.]"),
    "cosh": ("The hyperbolic cosine.", "[0.0]", "[1.]"),
    "exp": ("e to this power.", "[0.0, -np.inf]", "[1., 0.]"),
    "exp2": ("2 to this power.", "[3.0, -1.0]", "[8. , 0.5]"),
    "expit": ("The logistic function 1 / (1 + exp(-x)), also called sigmoid; of real numbers.", "[0.0]", "[0.5]"),
    "expm1": ("exp(x) - 1, accurate near 0 too.", "[1e-20]", "[1.e-20]"),
    "floor": ("The greatest whole number that is not greater.", "[-1.5, 1.5]", "[-2.,  1.]"),
    "imag": ("The imaginary part; of real numbers 0.", "[1 + 2j]", "[2.]"),
    "isfinite": ("Whether it is neither infinite nor NaN.", "[1.0, np.inf, np.nan]", "[ True, False, False]"),
    "isinf": ("Whether it is infinite.", "[1.0, -np.inf, np.nan]", "[False,  True, False]"),
    "isnan": ("Whether it is NaN.", "[1.0, np.inf, np.nan]", "[False, False,  True]"),
    "log": ("The natural logarithm; of 0 minus infinity, of less NaN.", "[1.0, 0.0]", "[  0., -inf]"),
    "log10": ("The logarithm to base 10.", "[100.0]", "[2.]"),
    "log1p": ("log(1 + x), accurate near 0 too.", "[1e-20]", "[1.e-20]"),
    "log2": ("The logarithm to base 2.", "[8.0]", "[3.]"),
    "logical_not": ("Whether it is 0.", "[0.0, 2.0]", "[ True, False]"),
    "negative": ("The number with the opposite sign; of unsigned integers modulo their range.", "[1.0, -2.0]", "[-1.,  2.]"),
    "positive": ("The number itself, in new memory.", "[-1.0]", "[-1.]"),
    "real": ("The real part; of real numbers the number.", "[1 + 2j]", "[1.]"),
    "reciprocal": ("1 / x, in the dtype of x: of integers rounded towards 0, and of 0 it is 0.", "[4.0, 0.5]", "[0.25, 2.  ]"),
    "round": ("The nearest whole number; halves go to the even one.", "[0.5, 1.5, 2.6]", "[0., 2., 3.]"),
    "sign": ("-1, 0 or 1; of complex numbers x / abs(x).", "[-2.0, 0.0, 5.0]", "[-1.,  0.,  1.]"),
    "signbit": ("Whether the sign is negative, that of zero and NaN too.", "[-1.0, 0.0, -0.0]", "[ True, False,  True]"),
    "sin": ("The sine of an angle in radians, of any size.", "[0.0]", "[0.]"),
    "sinh": ("The hyperbolic sine.", "[0.0]", "[0.]"),
    "sqrt": ("The square root; of negative real numbers NaN.", "[9.0, 2.25]", "[3. , 1.5]"),
    "square": ("x * x.", "[3.0, -0.5]", "[9.  , 0.25]"),
    "tan": ("The tangent of an angle in radians, of any size.", "[0.0]", "[0.]"),
    "tanh": ("The hyperbolic tangent.", "[0.0, np.inf]", "[0., 1.]"),
    "trunc": ("The whole number next to it on the side of 0.", "[-1.5, 1.5]", "[-1.,  1.]"),
    "add": ("x1 + x2; of booleans, or.", "[1.0, 2.0], 10.0", "[11., 12.]"),
    "atan2": ("The angle, from -π to π, of the point (x2, x1).", "[0.0], [1.0]", "[0.]"),
    "bitwise_and": ("The bits that both have.", "[12], 10", "[8]"),
    "bitwise_left_shift": ("x1 with its bits moved up by x2 places; 0 if there are no more.", "[1, 3], 2", "[ 4, 12]"),
    "bitwise_or": ("The bits that one of them has.", "[12], 10", "[14]"),
    "bitwise_right_shift": ("x1 with its bits moved down by x2 places; a sign is kept.", "[5, -8], 1", "[ 2, -4]"),
    "bitwise_xor": ("The bits in which they differ.", "[12], 10", "[6]"),
    "copysign": ("x1 with the sign of x2.", "[1.0, 2.0], -0.0", "[-1., -2.]"),
    "divide": ("x1 / x2; of integers a float64. By 0 it is infinite, or NaN of 0.", "[1.0, 3.0], 2", "[0.5, 1.5]"),
    "equal": ("Whether they are equal; NaN is not, even to itself.", "[1.0, 2.0], 2", "[False,  True]"),
    "floor_divide": ("The greatest whole number not above x1 / x2; of integers by 0 it is 0.", "[7, -7], 2", "[ 3, -4]"),
    "greater": ("Whether x1 is greater than x2.", "[1.0, 3.0], 2", "[False,  True]"),
    "greater_equal": ("Whether x1 is x2 or greater.", "[1.0, 2.0], 2", "[False,  True]"),
    "hypot": ("sqrt(x1² + x2²), without overflow in between.", "[3.0], [4.0]", "[5.]"),
    "less": ("Whether x1 is less than x2.", "[1.0, 3.0], 2", "[ True, False]"),
    "less_equal": ("Whether x1 is x2 or less.", "[2.0, 3.0], 2", "[ True, False]"),
    "logaddexp": ("log(exp(x1) + exp(x2)), without overflow in between.", "[0.0], [-np.inf]", "[0.]"),
    "logical_and": ("Whether neither is 0.", "[0.0, 2.0], 1", "[False,  True]"),
    "logical_or": ("Whether one of them is not 0.", "[0.0, 2.0], 0", "[False,  True]"),
    "logical_xor": ("Whether exactly one of them is 0.", "[0.0, 2.0], 1", "[ True, False]"),
    "maximum": ("The greater of the two; NaN if one is NaN.", "[1.0, 3.0], 2", "[2., 3.]"),
    "minimum": ("The lesser of the two; NaN if one is NaN.", "[1.0, 3.0], 2", "[1., 2.]"),
    "multiply": ("x1 * x2; of booleans, and.", "[1.0, 2.0], 10.0", "[10., 20.]"),
    "nextafter": ("The floating-point number next to x1 on the side of x2.", "[0.0], [1.0]", "[5.e-324]"),
    "not_equal": ("Whether they differ; NaN does, even from itself.", "[1.0, 2.0], 2", "[ True, False]"),
    "pow": ("x1 to the power of x2. Powers of integers wrap around.", "[2.0, 3.0], 2", "[4., 9.]"),
    "remainder": ("What floor_divide leaves over, with the sign of x2; of integers by 0 it is 0.", "[7, -7], 4", "[3, 1]"),
    "subtract": ("x1 - x2.", "[1.0, 2.0], 10.0", "[-9., -8.]"),
}  # fmt: skip


_COMMON = """{summary}

Submits to the current stream; writes to ``out`` if given, else to a new array of NumPy's result type.

Raises:
    TypeError: NumPy has no such function of these dtypes, an operand is neither an array nor a number, or ``out`` has a dtype
        that the result cannot become.
    OverflowError: a Python integer is beyond the dtype that it is computed with in.
    ValueError: the shapes do not fit.

Example:
    >>> import {modules}
    >>> x = aiodev.asarray({x}, device="cpu")
    >>> aiodev.kernels.{name}({call}).numpy_blocking()
    array({found})"""


def describe(name: str) -> str:
    """The docstring of the function of this name."""
    summary, given, found = _SHOWN[name]
    first, _, second = given.partition("], ")
    call = "x"
    if second:
        call = f'x, aiodev.asarray({second}, device="cpu")' if second.startswith("[") else f"x, {second}"
    modules = "aiodev, aiodev.kernels, numpy as np" if "np." in given else "aiodev, aiodev.kernels"
    return _COMMON.format(
        modules=modules, summary=summary, x=first.rstrip("]") + "]", name=name, call=call, found=found
    )
