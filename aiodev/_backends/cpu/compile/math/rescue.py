"""Rescue: elementary functions whose vector code is right for most arguments, computed anew for the others.

A loop becomes vector code if nothing in it branches. So the common case is computed without a branch, and its result goes
through a function that computes it anew where the argument is out of the range of the common case. Its forms for vectors
test all elements at once, and mostly do no more. They do not go through the elements one by one, if they can help it: nobody
can guess which those are that the common case is not for, and NaN or 0 may well be a third of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from aiodev._backends.cpu.compile.math.values import Value, choose
from aiodev._backends.cpu.compile.vector_variants import call_variants

__all__ = ["rescued"]


def rescued(
    name: str,
    x: Value,
    found: Value,
    low: float,
    high: float,
    slowly: Callable[[Value], Value],
    ends: Callable[[Value], Value] | None = None,
) -> Value:
    """``found`` where ``low <= x <= high``, else ``slowly(x)``, which is rarely computed.

    Args:
        ends: what comes of infinities and NaN, where ``slowly`` is no code for vectors.
    """

    def inside(value: Value) -> Value:
        return (value >= low) & (value <= high)

    def scalar(builder: Any, args: Sequence[Any], function: Any) -> Any:
        value = Value(builder, args[0])
        with builder.if_then(inside(value).ir, likely=True):
            builder.ret(args[1])
        return slowly(value).ir

    def vector(builder: Any, args: Sequence[Any], function: Any) -> Any:
        value, result, width = Value(builder, args[0]), Value(builder, args[1]), args[0].type.count
        fits = inside(value)
        _return_where_all(fits, result)
        if ends is None:
            return choose(fits, result, slowly(value)).ir
        is_finite = abs(value) < float("inf")
        result = choose(is_finite, result, ends(value))
        _return_where_all(fits | (is_finite ^ 1), result)
        for lane in range(width):
            place = ir.Constant(ir.IntType(32), lane)
            one = builder.call(function, [builder.extract_element(part, place) for part in (value.ir, result.ir)])
            result = Value(builder, builder.insert_element(result.ir, one, place))
        return result.ir

    return call_variants(f"rescued_{name}", (x, found), scalar, vector)


def _return_where_all(conditions: Value, result: Value) -> None:
    """Leave the function with a result if all conditions hold."""
    builder, bits = result.builder, ir.IntType(conditions.ir.type.count)
    every = builder.bitcast(conditions.ir, bits)
    with builder.if_then(builder.icmp_unsigned("==", every, ir.Constant(bits, -1)), likely=True):
        builder.ret(result.ir)
