"""Floats to integers of fewer than 64 bits: the same wherever an element stands.

**Problem.** What a float beyond an integer's range becomes, numba leaves to LLVM, and LLVM to whatever instruction it finds. In
vector code ``-1.0`` became the ``uint8`` 0 and ``300.0`` 255, among the last elements of the same array 255 and 44.

**How.** Narrow ones go by way of ``int32``, of which the lower bits are kept: they wrap, as NumPy's do. So does ``uint32`` down
to -2**31; its upper half is lowered by 2**31 first, since few processors have an instruction for it. What is beyond all that,
and NaN, becomes what the processor's conversion to ``int32`` makes of it, the same in vector code.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.imputils import Registry
from numba.core.registry import cpu_target

__all__ = ["install"]

_I32 = ir.IntType(32)
_NARROW = (types.int8, types.uint8, types.int16, types.uint16)


def _cast_to_narrow(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    return builder.trunc(builder.fptosi(value, _I32), context.get_value_type(wanted))


def _cast_to_uint32(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    middle = ir.Constant(value.type, 2.0**31)
    is_upper = builder.fcmp_ordered(">=", value, middle)
    bits = builder.fptosi(builder.select(is_upper, builder.fsub(value, middle), value), _I32)
    return builder.xor(bits, builder.select(is_upper, ir.Constant(_I32, -(2**31)), ir.Constant(_I32, 0)))


@functools.cache
def install() -> None:
    """Tell numba of it; again does nothing."""
    registry = Registry("aiodev casts")  # numba's own is shared with CUDA's target, whose instruction takes the nearest
    for given in (types.float32, types.float64):
        registry.lower_cast(given, types.uint32)(_cast_to_uint32)
        for wanted in _NARROW:
            registry.lower_cast(given, wanted)(_cast_to_narrow)
    cpu_target.target_context.refresh()  # numba's own come first
    cpu_target.target_context.install_registry(registry)
