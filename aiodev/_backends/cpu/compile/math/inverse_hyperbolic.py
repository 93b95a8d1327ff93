"""Inverse hyperbolic functions of :class:`Value`: logarithms of sums of two numbers.

asinh x = log(√(x² + 1) + x), acosh x = log(√(x² - 1) + x) and atanh x = log((1 + x) / (1 - x)) / 2. What their arguments lack
when they are rounded goes into the logarithm with them, so that near 1, where it is all there is, it counts.
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.log import log_of_sum
from aiodev._backends.cpu.compile.math.values import Value, choose, fma, two_sum

__all__ = ["FUNCTIONS"]

#: Beyond, x² ± 1 is x², as far as the logarithm goes; and x² would overflow where x does not.
_LARGE = {False: 2.0**13, True: 2.0**28}


def _log_of_double(large: Value, x: Value, u: Value, lost: Value) -> Value:
    """log(u + lost), or log 2x, which is more than the largest number's, where x is large."""
    zero = x.like(0.0)
    return log_of_sum(choose(large, x * 0.5, u), choose(large, zero, lost), choose(large, x.like(2.0), zero))


def asinh(x: Value) -> Value:
    """The number with this hyperbolic sine."""
    size = abs(x)
    large = size > _LARGE[x.is_double]
    square = size * size
    u, lost = two_sum(x.like(1.0), size)
    u, more = two_sum(u, square / ((square + 1.0).root() + 1.0))
    result = _log_of_double(large, size, u, lost + more).with_sign_of(x)
    return choose(size < float("inf"), result, x)


def acosh(x: Value) -> Value:
    """The number, not negative, with this hyperbolic cosine."""
    large = x > _LARGE[x.is_double]
    t = x - 1.0
    u, lost = two_sum(x, fma(t, t, t + t).root())
    result = choose(x < float("inf"), _log_of_double(large, x, u, lost), x)
    return choose(x < 1.0, x.like(float("nan")), result)


def atanh(x: Value) -> Value:
    """The number with this hyperbolic tangent."""
    size = abs(x)
    one = x.like(1.0)
    above, more_above = two_sum(one, size)
    below, more_below = two_sum(one, -size)
    inverse = 1.0 / below
    u = above * inverse
    lost = inverse * (fma(-u, below, above) + fma(-u, more_below, more_above))
    result = log_of_sum(u, lost, x.like(0.0)) * 0.5
    beyond = choose(size.equals(1.0), x.like(float("inf")), x.like(float("nan")))
    return choose(size < 1.0, result, beyond).with_sign_of(x)


#: By name.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {"acosh": acosh, "asinh": asinh, "atanh": atanh}
