"""float16 on the CPU, which numba leaves to GPUs: elements are loaded, stored and converted; arithmetic is float32's.

Conversions are one instruction where the processor has it (F16C), else some on integers. They round to the nearest, ties to
even, keep infinities, NaN and subnormal numbers, and turn into vector code.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import datamodel
from numba.core.datamodel.models import FloatModel, PrimitiveModel
from numba.core.imputils import Registry
from numba.core.registry import cpu_target

__all__ = ["install"]

_HALF, _SINGLE, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_I16, _I32 = ir.IntType(16), ir.IntType(32)
#: Bits of float32: 2**16, where float16 ends; 2**-14, its least normal number; 1/2, whose last place is its least number.
_END, _NORMAL, _MAGIC = 0x47800000, 0x38800000, 0x3F000000
_REBIAS = (127 - 15) << 23


class _FloatModel(FloatModel):
    """Numba's model of floats, with float16."""

    def __init__(self, manager: Any, kind: Any) -> None:
        if kind == types.float16:
            PrimitiveModel.__init__(self, manager, kind, _HALF)
        else:
            super().__init__(manager, kind)


def _is_native() -> bool:
    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return "+f16c" in features


def _i32(value: int) -> ir.Constant:
    return ir.Constant(_I32, value)


def _to_half(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """float32 to float16."""
    if _is_native():
        return builder.fptrunc(value, _HALF)
    bits = builder.bitcast(value, _I32)
    sign = builder.and_(builder.lshr(bits, _i32(16)), _i32(0x8000))
    size = builder.and_(bits, _i32(0x7FFFFFFF))
    # Normal: add less than half a last place, or half of one where the last bit is odd, and cut.
    odd = builder.and_(builder.lshr(size, _i32(13)), _i32(1))
    normal = builder.lshr(builder.add(builder.add(size, _i32(0xFFF - _REBIAS)), odd), _i32(13))
    # Subnormal: the sum with 1/2 is rounded where float16's last place is.
    magic = builder.bitcast(_i32(_MAGIC), _SINGLE)
    small = builder.sub(builder.bitcast(builder.fadd(builder.bitcast(size, _SINGLE), magic), _I32), _i32(_MAGIC))
    is_nan = builder.icmp_unsigned(">", size, _i32(0x7F800000))
    large = builder.select(is_nan, _i32(0x7E00), _i32(0x7C00))
    result = builder.select(builder.icmp_unsigned("<", size, _i32(_NORMAL)), small, normal)
    result = builder.select(builder.icmp_unsigned(">=", size, _i32(_END)), large, result)
    return builder.bitcast(builder.trunc(builder.or_(result, sign), _I16), _HALF)


def _from_half(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """float16 to float32."""
    if _is_native():
        return builder.fpext(value, _SINGLE)
    bits = builder.zext(builder.bitcast(value, _I16), _I32)
    sign = builder.shl(builder.and_(bits, _i32(0x8000)), _i32(16))
    size = builder.shl(builder.and_(bits, _i32(0x7FFF)), _i32(13))
    exponent = builder.and_(size, _i32(0x0F800000))
    normal = builder.add(size, _i32(_REBIAS))
    large = builder.add(normal, _i32((128 - 16) << 23))
    least = builder.bitcast(_i32(_NORMAL), _SINGLE)
    raised = builder.bitcast(builder.add(normal, _i32(1 << 23)), _SINGLE)
    small = builder.bitcast(builder.fsub(raised, least), _I32)
    result = builder.select(builder.icmp_unsigned("==", exponent, _i32(0)), small, normal)
    result = builder.select(builder.icmp_unsigned("==", exponent, _i32(0x0F800000)), large, result)
    return builder.bitcast(builder.or_(result, sign), _SINGLE)


def _to_single_odd(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """float64 to a float32 that rounds to float16 as the number itself would: what is cut off leaves the last bit set."""
    single = builder.fptrunc(value, _SINGLE)
    error = builder.fsub(value, builder.fpext(single, _DOUBLE))
    zero = ir.Constant(_DOUBLE, 0.0)
    bits = builder.bitcast(single, _I32)
    inexact = builder.fcmp_ordered("!=", error, zero)
    even = builder.icmp_signed("==", builder.and_(bits, _i32(1)), _i32(0))
    outwards = builder.xor(builder.fcmp_ordered(">", error, zero), builder.icmp_signed("<", bits, _i32(0)))
    step = builder.select(outwards, _i32(1), _i32(-1))
    finite = builder.icmp_unsigned("<", builder.and_(bits, _i32(0x7FFFFFFF)), _i32(0x7F800000))
    moved = builder.select(builder.and_(builder.and_(inexact, even), finite), builder.add(bits, step), bits)
    return builder.bitcast(moved, _SINGLE)


def _cast_to_half(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    if given == types.float64:
        return _to_half(builder, _to_single_odd(builder, value))
    return _to_half(builder, context.cast(builder, value, given, types.float32))


def _cast_from_half(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    single = _from_half(builder, value)
    return context.cast(builder, single, types.float32, wanted)


@functools.cache
def install() -> None:
    """Tell numba of it; again does nothing."""
    datamodel.register_default(types.Float)(_FloatModel)
    registry = Registry("aiodev float16")  # numba's own is shared with CUDA's target, where a float16 is another thing
    for kind in (types.float32, types.float64, types.Integer, types.Boolean):
        registry.lower_cast(kind, types.float16)(_cast_to_half)
    for kind in (types.float32, types.float64, types.Integer, types.Boolean, types.Complex):
        registry.lower_cast(types.float16, kind)(_cast_from_half)
    cpu_target.target_context.refresh()  # numba's own come first
    cpu_target.target_context.install_registry(registry)
