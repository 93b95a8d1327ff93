"""Intrinsics by which a range entry reads its arguments: scalars and arrays from addresses, as numba values.

An array that is made here has no owner: whoever launched the kernel keeps its memory alive until the launch has completed.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

__all__ = ["array_at", "counted", "one_by_one", "scalar_at"]

_WORD = ir.IntType(64)


def _instance(reference: Any) -> Any:
    """The type that a type argument stands for."""
    instance = getattr(reference, "instance_type", None)
    if instance is None:
        raise TypingError(f"expected a type, got {reference}")
    return instance


def _load(builder: ir.IRBuilder, address: ir.Value, offset: int) -> ir.Value:
    place = builder.add(address, ir.Constant(_WORD, offset))
    return builder.load(builder.inttoptr(place, _WORD.as_pointer()))


@intrinsic
def scalar_at(typing_context, address, scalar_type):
    """The scalar at ``address``, which is little endian and may be followed by padding."""
    instance = _instance(scalar_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], context.get_data_type(instance).as_pointer())
        return context.unpack_value(builder, instance, pointer)

    return instance(types.int64, scalar_type), generate


@intrinsic
def array_at(typing_context, address, array_type):
    """The array that the words at ``address`` describe: data, shape, and strides in bytes unless contiguous."""
    instance = _instance(array_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        itemsize = context.get_abi_sizeof(context.get_data_type(instance.dtype))
        data = builder.inttoptr(_load(builder, args[0], 0), context.get_data_type(instance.dtype).as_pointer())
        shape = [_load(builder, args[0], 8 + 8 * d) for d in range(instance.ndim)]
        if instance.layout == "C":
            strides = _contiguous_strides(builder, shape, itemsize)
        else:
            strides = [_load(builder, args[0], 8 + 8 * (instance.ndim + d)) for d in range(instance.ndim)]
        array = make_array(instance)(context, builder)
        populate_array(array, data, shape, strides, itemsize, meminfo=None)
        return array._getvalue()

    return instance(types.int64, array_type), generate


def _contiguous_strides(builder: ir.IRBuilder, shape: list[ir.Value], itemsize: int) -> list[ir.Value]:
    strides: list[ir.Value] = []
    step: ir.Value = ir.Constant(_WORD, itemsize)
    for length in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, length, flags=["nsw"])
    return strides


@intrinsic
def counted(typing_context, index):
    """``index``, which the optimiser may take for non-negative.

    Without that, each ``x[i]`` keeps a test for a negative index, which costs the loop its vector form.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Vectors that do not fit the registers go to the stack, a cache line each: across two lines they cost half the speed.
        # llvmlite's own ``alignstack`` is not printed.
        set.add(builder.function.attributes, "alignstack(64)")
        assume_type = ir.FunctionType(ir.VoidType(), [ir.IntType(1)])
        assume = cgutils.get_or_insert_function(builder.module, assume_type, "llvm.assume")
        builder.call(assume, [builder.icmp_signed(">=", args[0], ir.Constant(_WORD, 0))])
        return args[0]

    return types.int64(types.int64), generate


@intrinsic
def one_by_one(typing_context):
    """Nothing, in a loop whose rounds LLVM is to run one after the other, and not as vectors.

    A round then computes the same to the bit, also where sums may be reordered, whichever of the loop's rounds it is.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", (), True)
        return context.get_dummy_value()

    return types.none(), generate
