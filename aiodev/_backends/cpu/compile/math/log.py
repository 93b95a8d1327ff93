"""Logarithms of :class:`Value`: the exponent and the logarithm of what is left, a number between 1/√2 and √2.

With m = 1 + f and s = f / (2 + f), log m = f - (f²/2 - s (f²/2 + R(s²))), as in fdlibm, where R is minimax (Remez); single
precision has a polynomial in f instead. The binary and the decimal logarithm multiply a sum of two numbers, so that they
lose no more than their last rounding; single precision has polynomials for them, whose first term is added last.
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.lookup import has_lookup, log_by_table
from aiodev._backends.cpu.compile.math.rescue import rescued
from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner

__all__ = ["FUNCTIONS", "log_of_sum"]

_LN2 = {
    False: (0.6931471824645996, -1.904654323148236e-09),
    True: (0.6931471805599453, 2.3190468138462996e-17),
}
_PER_LN2 = (1.4426950408889634, 2.0355273740931033e-17)
_PER_LN10 = (0.4342944819032518, 1.098319650216765e-17)
#: log10(2): its first bits, so that products with an exponent are exact, and the rest.
_LOG10_2 = {
    False: (0.301025390625, 4.605038981195214e-06),
    True: (0.30102999566383914, 1.42050232272661e-13),
}
#: (log(1 + f) - f + f²/2) / f³ in single precision; (log((1 + s) / (1 - s)) - 2 s) / s³ in double.
_SINGLE = (
    0.33333312604148063, -0.25000009598867867, 0.20002118651458548, -0.166679958801558, 0.14219552519642414,
    -0.12405588494392832, 0.11888160740393088, -0.11675654137784738, 0.0674664687477174,
)  # fmt: skip
_DOUBLE = (
    0.6666666666666734, 0.39999999999414665, 0.28571428742390675, 0.22222198572905782, 0.18183564338608194,
    0.15314050280901778, 0.14795951982310834,
)  # fmt: skip
#: In single precision: c and the polynomial in f that is log2(1 + f) / f - c; the same for log10.
_SINGLE_LOG2 = 1.4426950216293335, (
    1.9200856016254875e-08, -0.7213473320007324, 0.4808982312679291, -0.3606966435909271, 0.2885674238204956,
    -0.23961743712425232, 0.20460055768489838, -0.19106246531009674, 0.18617527186870575, -0.10995057970285416,
)  # fmt: skip
_SINGLE_LOG10 = 0.4342944920063019, (
    -1.0120742466313004e-08, -0.21714718639850616, 0.14476479589939117, -0.10858050733804703, 0.08686744421720505,
    -0.07213203608989716, 0.061590906232595444, -0.05751553550362587, 0.05604434385895729, -0.03309842199087143,
)  # fmt: skip
#: The bits of 1/√2; the smallest normal number, and what makes the others normal.
_SQRT_HALF = {False: 0x3F3504F3, True: 0x3FE6A09E667F3BCD}
_LARGEST = {False: (2 - 2.0**-23) * 2.0**127, True: (2 - 2.0**-52) * 2.0**1023}
_SUBNORMAL = {False: (2.0**-126, 2.0**25, 25.0), True: (2.0**-1022, 2.0**54, 54.0)}


def _split(x: Value) -> tuple[Value, Value]:
    """n as a float and f, with x = 2**n (1 + f), for positive normal x."""
    shift, bias = (52, 1023) if x.is_double else (23, 127)
    # the exponent, biased, becomes the low bits of a power of two
    moved = x.bits() + ((bias << shift) - _SQRT_HALF[x.is_double])
    f = ((moved & ((1 << shift) - 1)) + _SQRT_HALF[x.is_double]).from_bits() - 1.0
    return ((moved.shifted_down(shift)) | x.like(2.0**shift).bits()).from_bits() - (2.0**shift + bias), f


def _everywhere(name: str, function: Callable[[Value, Value], Value]) -> Callable[[Value], Value]:
    """The function of x, and of what is to be added to n, for any x.

    In single precision what is for rare arguments costs less than to ask whether there are any.
    """

    def slowly(x: Value) -> Value:
        smallest, factor, steps = _SUBNORMAL[x.is_double]
        small = x < smallest
        logarithm = function(choose(small, x * factor, x), choose(small, x.like(-steps), x.like(0.0)))
        return _special(x, logarithm)

    def emit(x: Value) -> Value:
        if not x.is_double:
            return slowly(x)
        return rescued(name, x, function(x, x.like(0.0)), _SUBNORMAL[True][0], _LARGEST[True], slowly)

    return emit


def _rest(f: Value) -> tuple[Value, Value]:
    """f²/2, and what is to be added to f - f²/2 for log(1 + f)."""
    square = f * f
    half = square * 0.5
    if not f.is_double:
        return half, square * f * horner(f, _SINGLE)
    s = f / (f + 2.0)
    z = s * s
    return half, s * (half + z * horner(z, _DOUBLE))


def log(x: Value) -> Value:
    """The natural logarithm."""
    if x.is_double or not has_lookup():
        return _anywhere(x)
    return rescued("log", x, log_by_table(x), _SUBNORMAL[False][0], _LARGEST[False], _anywhere)


def _special(x: Value, result: Value) -> Value:
    """The results at 0, infinity, and for what has no logarithm."""
    beyond = choose(x > 0.0, x, choose(x.equals(0.0), x.like(float("-inf")), x.like(float("nan"))))
    return choose((x > 0.0) & (x < float("inf")), result, beyond)


def _log(x: Value, more: Value) -> Value:
    """The natural logarithm."""
    high, low = _LN2[x.is_double]
    n, f = _split(x)
    n = n + more
    half, rest = _rest(f)
    return fma(n, high, f - (half - fma(n, low, rest)))


_anywhere = _everywhere("log", _log)


def _parts(x: Value, more: Value) -> tuple[Value, Value, Value]:
    """n, and log(1 + f) as a sum of two numbers."""
    n, f = _split(x)
    half, rest = _rest(f)
    head = f - half
    return n + more, head, ((f - head) - half) + rest


def _to_base(
    factor: tuple[float, float], steps: dict[bool, tuple[float, float]], high_single: float, single: tuple[float, ...]
) -> Callable[[Value, Value], Value]:
    """The logarithm to a base: ``factor`` is what its logarithm of e is, ``steps`` what that of 2 is."""

    def function(x: Value, more: Value) -> Value:
        step, rest_of_step = steps[x.is_double]
        if not x.is_double:
            n, f = _split(x)
            n = n + more
            part = fma(f, high_single, f * horner(f, single))
            return fma(n, step, fma(n, rest_of_step, part) if rest_of_step else part)
        n, head, tail = _parts(x, more)
        high, low = factor
        product = head * high
        error = fma(head, high, -product) + fma(head, low, tail * high)
        whole = n * step  # exact, and 0 or greater than the product
        total = whole + product
        rest = (whole - total) + product
        return total + (rest + (fma(n, rest_of_step, error) if rest_of_step else error))

    return function


def _log1p(n: Value, f: Value, lost: Value) -> Value:
    high, low = _LN2[f.is_double]
    half, rest = _rest(f)
    correction = fma(lost, fma(f, f, -f), lost)
    return fma(n, high, f - (half - (fma(n, low, rest) + correction)))


def _inverse_power(u: Value, f: Value) -> Value:
    """2**-n, for u = 2**n (1 + f)."""
    return (u.like(1.0).bits() - (u.bits() - (f + 1.0).bits())).from_bits()


def log_of_sum(u: Value, lost: Value, more: Value) -> Value:
    """log(u + lost) + ``more`` log 2, for u ≥ 1 and a small part that it lacks."""
    n, f = _split(u)
    return _log1p(n + more, f, lost * _inverse_power(u, f))


def _lost(x: Value, u: Value, f: Value) -> Value:
    """The rounding error of u = x + 1, in units of 2**n."""
    error = choose(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    return error * _inverse_power(u, f)


def log1p(x: Value) -> Value:
    """log(1 + x), without the loss of 1 + x."""
    u = x + 1.0
    n, f = _split(u)
    limit = 2.0**60

    def slowly(x: Value) -> Value:
        u = x + 1.0
        n, f = _split(u)
        lost = choose(x > limit, x.like(0.0), _lost(x, u, f))
        return _special(u, _log1p(n, f, lost).with_sign_of(x))

    result = _log1p(n, f, _lost(x, u, f)).with_sign_of(x)
    return rescued("log1p", x, result, -0.999, limit, slowly)


#: Logarithms.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "log": log,
    "log1p": log1p,
    "log2": _everywhere("log2", _to_base(_PER_LN2, {False: (1.0, 0.0), True: (1.0, 0.0)}, *_SINGLE_LOG2)),
    "log10": _everywhere("log10", _to_base(_PER_LN10, _LOG10_2, *_SINGLE_LOG10)),
}
