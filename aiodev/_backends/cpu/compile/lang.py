""":mod:`aiodev.lang` on the CPU: LLVM's atomic instructions, and intrinsics that become one instruction.

Atomics are relaxed (LLVM's ``monotonic``), as they are on a GPU: they order nothing but the element itself.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from aiodev import lang
from aiodev._backends.compile.prefetch import install_prefetch
from aiodev._backends.compile.products import install_products
from aiodev._backends.compile.stored import SINGLES, is_float, is_stored
from aiodev._backends.compile.sums import install_summing
from aiodev._backends.cpu.compile.math.elementary import install_elementary
from aiodev._backends.cpu.compile.native_calls import install_native
from aiodev._backends.cpu.compile.sort.sort import install_sorting

__all__ = ["install"]

_ORDER = "monotonic"


def _checked_index(name: str, array: Any, index: Any) -> None:
    """Refuse what cannot be updated atomically.

    Raises:
        TypingError: it becomes a CompileError.
    """
    if not isinstance(array, types.Array):
        raise TypingError(f"{name}: the first argument must be an array, not {array}")
    if not array.mutable:
        raise TypingError(f"{name}: the array is read-only")
    if not isinstance(array.dtype, types.Integer | types.Float) and (not is_stored(array.dtype) or name == "atomic_cas"):
        raise TypingError(f"{name}: elements of {array.dtype} cannot be updated atomically")
    indices = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    if len(indices) != array.ndim or not all(isinstance(i, types.Integer) for i in indices):
        raise TypingError(f"{name}: expected {array.ndim} integer(s) to index with, got {index}")


def _element(context: Any, builder: Any, array_type: Any, array: Any, index_type: Any, index: Any) -> Any:
    """Pointer to ``array[index]``."""
    if isinstance(index_type, types.BaseTuple):
        pairs = list(zip(index_type, cgutils.unpack_tuple(builder, index, len(index_type)), strict=True))
    else:
        pairs = [(index_type, index)]
    indices = [context.cast(builder, value, kind, types.intp) for kind, value in pairs]
    view = make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(
        context, builder, array_type, view, indices, wraparound=True, boundscheck=context.enable_boundscheck
    )


def _updater(name: str, signed: str, unsigned: str, floating: str) -> Any:
    """The intrinsic for one read-modify-write instruction, by kind of element."""

    def update(typing_context, array, index, value):
        _checked_index(name, array, index)
        dtype = array.dtype
        if is_stored(dtype):
            return dtype(array, index, value), _update_stored(array, index, value, floating)
        operation = floating if isinstance(dtype, types.Float) else signed if dtype.signed else unsigned

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _element(context, builder, array, args[0], index, args[1])
            operand = context.cast(builder, args[2], value, dtype)
            return builder.atomic_rmw(operation, place, operand, _ORDER)

        return dtype(array, index, value), generate

    update.__name__ = name
    return intrinsic(update)


def _update_stored(array: Any, index: Any, value: Any, operation: str) -> Any:
    """Code that updates an element that is computed in ``float32``: again and again, until nobody has changed it meanwhile."""
    dtype = array.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _element(context, builder, array, args[0], index, args[1])
        operand = context.cast(builder, args[2], value, types.float32)
        model = context.data_model_manager[dtype]
        first = builder.load_atomic(place, _ORDER, dtype.bitwidth // 8)
        before, again, after = builder.block, builder.append_basic_block("again"), builder.append_basic_block("after")
        builder.branch(again)
        builder.position_at_end(again)
        data = builder.phi(first.type)
        data.add_incoming(first, before)
        old = model.from_data(builder, data)
        if operation == "fadd":
            number = builder.fadd(old, operand)
        else:
            kind = ir.FunctionType(old.type, [old.type] * 2)
            name = f"llvm.{operation[1:]}num.f32"
            number = builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [old, operand])
        rounded = context.cast(builder, number, types.float32, dtype)
        pair = builder.cmpxchg(place, data, model.as_data(builder, rounded), _ORDER, _ORDER)
        data.add_incoming(builder.extract_value(pair, 0), again)
        builder.cbranch(builder.extract_value(pair, 1), after, again)
        builder.position_at_end(after)
        return old

    return generate


_add = _updater("atomic_add", "add", "add", "fadd")
_min = _updater("atomic_min", "min", "umin", "fmin")
_max = _updater("atomic_max", "max", "umax", "fmax")


@intrinsic
def _cas(typing_context, array, index, expected, value):
    _checked_index("atomic_cas", array, index)
    dtype = array.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _element(context, builder, array, args[0], index, args[1])
        before = context.cast(builder, args[2], expected, dtype)
        after = context.cast(builder, args[3], value, dtype)
        element = before.type
        if isinstance(dtype, types.Float):  # compared as bits
            bits = ir.IntType(dtype.bitwidth)
            place = builder.bitcast(place, bits.as_pointer())
            before, after = builder.bitcast(before, bits), builder.bitcast(after, bits)
        old = builder.extract_value(builder.cmpxchg(place, before, after, _ORDER, _ORDER), 0)
        return builder.bitcast(old, element) if isinstance(dtype, types.Float) else old

    return dtype(array, index, expected, value), generate


def _floating(name: str, llvm: str, arity: int) -> Any:
    """An intrinsic over LLVM's one for the common floating type of its arguments."""

    def generate_for(found: Any, given: tuple[Any, ...]) -> Callable[..., Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [context.cast(builder, arg, old, found) for arg, old in zip(args, given, strict=True)]
            kind = values[0].type
            function_type = ir.FunctionType(kind, [kind] * arity)
            suffix = "f32" if found is types.float32 else "f64"
            function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{llvm}.{suffix}")
            return builder.call(function, values)

        return generate

    def common(*given: Any) -> Any:
        if not all(is_float(g) or isinstance(g, types.Integer) for g in given):
            raise TypingError(f"{name}: expected real numbers, got {', '.join(map(str, given))}")
        return types.float32 if SINGLES.issuperset(given) else types.float64

    return common, generate_for


_fma_type, _fma_code = _floating("fma", "fma", 3)
_sqrt_type, _sqrt_code = _floating("rsqrt", "sqrt", 1)


@intrinsic
def _fma(typing_context, a, b, c):
    kind = _fma_type(a, b, c)
    return kind(a, b, c), _fma_code(kind, (a, b, c))


@intrinsic
def _rsqrt(typing_context, x):
    kind = _sqrt_type(x)
    root = _sqrt_code(kind, (x,))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = root(context, builder, signature, args)
        return builder.fdiv(ir.Constant(value.type, 1.0), value)

    return kind(x), generate


@intrinsic
def _popcount(typing_context, x):
    if not isinstance(x, types.Integer):
        raise TypingError(f"popcount: expected an integer, got {x}")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(
            builder, builder.ctpop(args[0]), types.Integer.from_bitwidth(x.bitwidth, False), types.int64
        )

    return types.int64(x), generate


@functools.cache
def install() -> None:
    """Tell numba of it; again does nothing."""
    for function, code in (
        (lang.atomic_add, _add),
        (lang.atomic_min, _min),
        (lang.atomic_max, _max),
    ):
        overload(function, target="cpu", inline="always")(_update_overload(code))  # else it has no bounds checks
    overload(lang.atomic_cas, target="cpu", inline="always")(
        lambda array, index, expected, value: lambda array, index, expected, value: _cas(array, index, expected, value)
    )
    overload(lang.fma, target="cpu")(lambda a, b, c: lambda a, b, c: _fma(a, b, c))
    overload(lang.rsqrt, target="cpu")(lambda x: lambda x: _rsqrt(x))
    overload(lang.popcount, target="cpu")(lambda x: lambda x: _popcount(x))
    install_elementary()
    install_native()
    install_prefetch()
    install_products()
    install_sorting()
    install_summing()


def _update_overload(code: Any) -> Callable[..., Any]:
    def choose(array, index, value):
        return lambda array, index, value: code(array, index, value)

    return choose
