"""Division by zero within powers and of complex numbers: as NumPy has it.

``/`` of floats follows the error model of the kernel. What numba compiles for a power follows Python's, and its quotient of
complex numbers raises by itself. In kernels, both follow IEEE here, and a power of integers raises.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.callconv import PythonErrorModel
from numba.core.compiler import Flags
from numba.core.imputils import Registry
from numba.core.registry import cpu_target
from numba.cpython import numbers

from aiodev._backends.cpu.compile.errors import ERROR_MODEL, is_ours

__all__ = ["install"]


def _quotient(a: Any, b: Any) -> Any:
    """By R. L. Smith, "Algorithm 116: Complex division", 1962, as NumPy and CPython have it."""
    x, y, u, v = a.real, a.imag, b.real, b.imag
    if abs(u) >= abs(v):
        if u == 0:
            return complex(x / abs(u), y / abs(v))
        ratio = v / u
        below = u + v * ratio
        return complex((x + y * ratio) / below, (y - x * ratio) / below)
    ratio = u / v  # or one of them is NaN, and all is
    below = u * ratio + v
    return complex((x * ratio + y) / below, (y * ratio - x) / below)


def _complex_division(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    if not is_ours(context):
        return numbers.complex_div_impl(context, builder, signature, args)
    return _call(context, builder, _quotient, signature, args)


def _power(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """numba's implementation of a power, that divides as a kernel does."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if is_ours(context):
            original, context = context, copy.copy(context)
            context.compile_internal = functools.partial(_call, original)
            context.error_model = PythonErrorModel(original.call_conv)  # which it asks about integers only
        return implementation(context, builder, signature, args)

    return lower


def _call(context: Any, builder: Any, function: Callable[..., Any], signature: Any, args: Any) -> Any:
    """Call a function that is compiled with the error model of kernels."""
    flags = Flags()
    flags.error_model = ERROR_MODEL
    compiled = context.compile_subroutine(builder, function, signature, flags=flags)
    return context.call_internal(builder, compiled.fndesc, signature, args)


@functools.cache
def install() -> None:
    """Tell numba of it; again does nothing."""
    registry = Registry("aiodev division")  # numba's own is shared with CUDA's target
    for divide in (operator.truediv, operator.itruediv):
        registry.lower(divide, types.Complex, types.Complex)(_complex_division)
    general, constant = _power(numbers.int_power_impl), _power(numbers.static_power_impl)
    for power in (operator.pow, operator.ipow, pow):
        for kind in types.integer_domain:
            registry.lower(power, types.Float, kind)(general)
            registry.lower(power, kind, kind)(general)
    for power in (operator.pow, operator.ipow):
        for base in (types.Float, types.Integer):
            registry.lower(power, base, types.IntegerLiteral)(constant)
    cpu_target.target_context.refresh()  # numba's own come first
    cpu_target.target_context.install_registry(registry)
