""":mod:`aiodev.lang` on CUDA: atomic instructions of 4 and 8 bytes, and intrinsics that become one instruction.

Atomics are relaxed, as on the CPU. The hardware has none for elements of 1 and 2 bytes: those are refused.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.cuda import cgutils, nvvmutils, types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic, overload, register_jitable

from aiodev import lang
from aiodev._backends.compile.complex import make_absolutes, make_functions
from aiodev._backends.compile.complex_power import make_power
from aiodev._backends.cuda.compile import products, sort, sums, thread_block, ufuncs
from aiodev._backends.cuda.compile.arrays import make_array
from aiodev._backends.cuda.compile.stored import SINGLES, is_float
from aiodev.lang import elementary

__all__ = ["install"]

_ORDER = "monotonic"
_FLOATING = {
    ("add", 32): nvvmutils.declare_atomic_add_float32,
    ("add", 64): nvvmutils.declare_atomic_add_float64,
    ("min", 32): nvvmutils.declare_atomic_nanmin_float32,
    ("min", 64): nvvmutils.declare_atomic_nanmin_float64,
    ("max", 32): nvvmutils.declare_atomic_nanmax_float32,
    ("max", 64): nvvmutils.declare_atomic_nanmax_float64,
}


def _checked_index(name: str, array: Any, index: Any) -> None:
    """Refuse what cannot be updated atomically.

    Raises:
        TypingError: it becomes a CompileError.
    """
    if not isinstance(array, types.Array):
        raise TypingError(f"{name}: the first argument must be an array, not {array}")
    if not array.mutable:
        raise TypingError(f"{name}: the array is read-only")
    if not isinstance(array.dtype, types.Integer | types.Float) or array.dtype.bitwidth < 32:
        raise TypingError(f"{name}: elements of {array.dtype} cannot be updated atomically on CUDA")
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
    return cgutils.get_item_pointer(context, builder, array_type, view, indices, wraparound=True)


def _updater(operation: str) -> Any:
    """The intrinsic for one read-modify-write instruction."""
    name = f"atomic_{operation}"

    def update(typing_context, array, index, value):
        _checked_index(name, array, index)
        dtype = array.dtype

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _element(context, builder, array, args[0], index, args[1])
            operand = context.cast(builder, args[2], value, dtype)
            if isinstance(dtype, types.Float):
                return builder.call(_FLOATING[operation, dtype.bitwidth](builder.module), (place, operand))
            unsigned = operation != "add" and not dtype.signed
            return builder.atomic_rmw(f"u{operation}" if unsigned else operation, place, operand, _ORDER)

        return dtype(array, index, value), generate

    update.__name__ = name
    return intrinsic(update)


_add, _min, _max = _updater("add"), _updater("min"), _updater("max")


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


def _common_float(name: str, *given: Any) -> Any:
    if not all(is_float(g) or isinstance(g, types.Integer) for g in given):
        raise TypingError(f"{name}: expected real numbers, got {', '.join(map(str, given))}")
    return types.float32 if SINGLES.issuperset(given) else types.float64


def _call_float(names: tuple[str, str], found: Any, given: tuple[Any, ...]) -> Callable[..., Any]:
    """Code that calls a function for float32 or float64 on arguments of other types."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = [context.cast(builder, arg, old, found) for arg, old in zip(args, given, strict=True)]
        kind = ir.FunctionType(values[0].type, [value.type for value in values])
        name = names[0] if found is types.float32 else names[1]
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)

    return generate


@intrinsic
def _fma(typing_context, a, b, c):
    kind = _common_float("fma", a, b, c)
    return kind(a, b, c), _call_float(("llvm.fma.f32", "llvm.fma.f64"), kind, (a, b, c))


@intrinsic
def _rsqrt(typing_context, x):
    kind = _common_float("rsqrt", x)
    return kind(x), _call_float(("__nv_rsqrtf", "__nv_rsqrt"), kind, (x,))


@intrinsic
def _popcount(typing_context, x):
    if not isinstance(x, types.Integer):
        raise TypingError(f"popcount: expected an integer, got {x}")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        wide = args[0] if args[0].type == word else builder.zext(args[0], word)
        return builder.ctpop(wide)

    return types.int64(x), generate


@functools.cache
def install() -> None:
    """Tell numba-cuda of it; again does nothing."""
    ufuncs.install()
    thread_block.install()
    sort.install()
    products.install()
    sums.install()
    for function, code in ((lang.atomic_add, _add), (lang.atomic_min, _min), (lang.atomic_max, _max)):
        overload(function)(_update_overload(code))
    overload(lang.atomic_cas)(
        lambda array, index, expected, value: lambda array, index, expected, value: _cas(array, index, expected, value)
    )
    overload(lang.fma)(lambda a, b, c: lambda a, b, c: _fma(a, b, c))
    overload(lang.rsqrt)(lambda x: lambda x: _rsqrt(x))
    overload(lang.popcount)(lambda x: lambda x: _popcount(x))
    overload(lang.prefetch)(lambda x, at=None: lambda x, at=None: None)
    of_complex = make_functions(register_jitable)
    for name in elementary.__all__:
        overload(getattr(lang, name))(_elementary_overload(getattr(lang, name), of_complex.get(name)))
    overload(lang.pow)(_pow_overload(make_power(register_jitable, types, SINGLES)))
    overload(lang.atan2)(_plain_atan2)
    for name, choose in make_absolutes(register_jitable, types, SINGLES).items():
        overload(getattr(lang, name))(choose)


def _plain_atan2(y: Any, x: Any) -> Any:
    return lang.atan2


def _pow_overload(of_complex: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Of complex numbers ours, of others the function's own body."""

    def choose(x: Any, y: Any) -> Any:
        return of_complex(x, y) or lang.pow

    return choose


def _elementary_overload(function: Callable[..., Any], ours: Any) -> Callable[..., Any]:
    """Of real numbers the function's own body, which calls NumPy's functions: these are libdevice's; of complex ones ours."""

    def narrow(x: Any) -> Any:
        return np.complex64(ours(x))

    def wide(x: Any) -> Any:
        return ours(x)

    def choose(x: Any) -> Any:  # with the function's own annotations: numba compares signatures
        if ours is None or not isinstance(x, types.Complex):
            return function
        return narrow if x is types.complex64 else wide

    return choose


def _update_overload(code: Any) -> Callable[..., Any]:
    def choose(array, index, value):
        return lambda array, index, value: code(array, index, value)

    return choose
