"""Intrinsics of a CUDA entry: arrays and scalars from parameter words, and a thread's place in the grid."""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, nvvmutils, types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic

from aiodev._backends.cuda.compile.arrays import make_array, populate_array

__all__ = ["GRID", "advance", "array_of", "scalar_of"]

_WORD = ir.IntType(64)


def _instance(reference: Any) -> Any:
    """The type that a type argument stands for."""
    instance = getattr(reference, "instance_type", None)
    if instance is None:
        raise TypingError(f"expected a type, got {reference}")
    return instance


def _from_word(builder: Any, word: Any, kind: ir.Type) -> Any:
    """The low bytes of a word as another type."""
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    if isinstance(kind, ir.IntType):
        return word if kind.width == 64 else builder.trunc(word, kind)
    width = {ir.HalfType: 16, ir.FloatType: 32, ir.DoubleType: 64}[type(kind)]
    bits = word if width == 64 else builder.trunc(word, ir.IntType(width))
    return builder.bitcast(bits, kind)


@intrinsic
def scalar_of(typing_context, scalar_type, words):
    """The scalar in ``words``: one word, or two for complex128; complex64 has both parts in one."""
    instance = _instance(scalar_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = cgutils.unpack_tuple(builder, args[1])
        if instance is types.boolean:
            return builder.trunc(given[0], ir.IntType(1))
        if isinstance(instance, types.Complex):
            part = context.get_value_type(instance.underlying_float)
            value = context.make_complex(builder, instance)
            high = given[1] if len(given) == 2 else builder.lshr(given[0], ir.Constant(_WORD, 32))
            value.real, value.imag = _from_word(builder, given[0], part), _from_word(builder, high, part)
            return value._getvalue()
        kind = context.get_value_type(instance)
        return _from_word(builder, given[0], kind)

    return instance(scalar_type, words), generate


@intrinsic
def array_of(typing_context, array_type, data, words):
    """The array at ``data``, of which ``words`` are the shape, and the strides in bytes unless it is contiguous."""
    instance = _instance(array_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = cgutils.unpack_tuple(builder, args[2]) if instance.ndim else []
        itemsize = context.get_abi_sizeof(context.get_data_type(instance.dtype))
        data = builder.bitcast(args[1], context.get_data_type(instance.dtype).as_pointer())
        shape = given[: instance.ndim]
        strides = given[instance.ndim :]
        if instance.layout == "C":
            step: Any = ir.Constant(_WORD, itemsize)
            strides = []
            for length in reversed(shape):
                strides.insert(0, step)
                step = builder.mul(step, length, flags=["nsw"])
        array = make_array(instance)(context, builder)
        populate_array(array, data, shape, strides, itemsize, meminfo=None)
        return array._getvalue()

    return instance(array_type, data, words), generate


@intrinsic
def advance(typing_context, index, step):
    """``index + step``, neither of which is negative, nor the sum out of range: so that no ``x[i]`` tests for that."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(args[0], args[1], flags=["nsw", "nuw"])

    return types.int64(types.int64, types.int64), generate


def _first_index(axis: str) -> Any:
    def first_index(typing_context):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            register = nvvmutils.SRegBuilder(builder)
            block = builder.zext(register.ctaid(axis), _WORD)
            threads = builder.zext(register.ntid(axis), _WORD)
            before = builder.mul(block, threads, flags=["nsw", "nuw"])
            return builder.add(before, builder.zext(register.tid(axis), _WORD), flags=["nsw", "nuw"])

        return types.int64(), generate

    return intrinsic(first_index)


def _stride(axis: str) -> Any:
    def stride(typing_context):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            register = nvvmutils.SRegBuilder(builder)
            threads = builder.zext(register.ntid(axis), _WORD)
            return builder.mul(threads, builder.zext(register.nctaid(axis), _WORD), flags=["nsw", "nuw"])

        return types.int64(), generate

    return intrinsic(stride)


def _register(name: str, axis: str) -> Any:
    def register(typing_context):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(getattr(nvvmutils.SRegBuilder(builder), name)(axis), _WORD)

        return types.int64(), generate

    return intrinsic(register)


#: By name: this thread's number along an axis of the grid, and how many threads there are along it; the same of its block.
GRID = {
    f"{name}_{axis}": function
    for axis in "xyz"
    for name, function in {
        "first": _first_index(axis),
        "stride": _stride(axis),
        "block": _register("ctaid", axis),
        "blocks": _register("nctaid", axis),
    }.items()
}
