"""Elementary functions whose vector code is right for most arguments, and that must be right for all.

A loop becomes vector code if nothing in it branches. So the common case is computed without a branch, and its result goes
through a function that computes it anew where the argument is out of the range of the common case. Its forms for vectors
test all elements at once, and hardly ever do more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from aiodev._backends.cpu.compiler_values import Value
from aiodev._backends.cpu.compiler_variants import call_variants

__all__ = ["rescued"]


def rescued(name: str, x: Value, found: Value, low: float, high: float, slowly: Callable[[Value], Value]) -> Value:
    """``found`` where ``low <= x <= high``, else ``slowly(x)``, which is hardly ever computed."""

    def inside(value: Value) -> Value:
        return (value >= low) & (value <= high)

    def scalar(builder: Any, args: Sequence[Any], function: Any) -> Any:
        value = Value(builder, args[0])
        with builder.if_then(inside(value).ir, likely=True):
            builder.ret(args[1])
        return slowly(value).ir

    def vector(builder: Any, args: Sequence[Any], function: Any) -> Any:
        result, width = args[1], args[0].type.count
        tests = ir.IntType(width)
        every = builder.bitcast(inside(Value(builder, args[0])).ir, tests)
        with builder.if_then(builder.icmp_unsigned("==", every, ir.Constant(tests, -1)), likely=True):
            builder.ret(result)
        for lane in range(width):
            place = ir.Constant(ir.IntType(32), lane)
            one = builder.call(function, [builder.extract_element(value, place) for value in args])
            result = builder.insert_element(result, one, place)
        return result

    return call_variants(f"rescued_{name}", (x, found), scalar, vector)
