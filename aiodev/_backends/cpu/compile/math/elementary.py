"""The elementary functions of :mod:`aiodev.lang` on the CPU: code without branches, inlined where they are called."""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from aiodev import lang
from aiodev._backends.compile.complex import make_absolutes, make_functions
from aiodev._backends.compile.complex_power import make_power
from aiodev._backends.compile.stored import SINGLES, is_float
from aiodev._backends.cpu.compile.math import (
    exp,
    hyperbolic,
    inverse_hyperbolic,
    inverse_trigonometric,
    log,
    roots,
    trigonometric,
)
from aiodev._backends.cpu.compile.math.power import pow_double, pow_single
from aiodev._backends.cpu.compile.math.values import Value

__all__ = ["install_elementary"]

_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    **inverse_hyperbolic.FUNCTIONS,
    **exp.FUNCTIONS,
    **hyperbolic.FUNCTIONS,
    **inverse_trigonometric.FUNCTIONS,
    **log.FUNCTIONS,
    **roots.FUNCTIONS,
    **trigonometric.FUNCTIONS,
}
_COMPLEX = make_functions(register_jitable)


def _is_real(kind: Any) -> bool:
    return is_float(kind) or isinstance(kind, types.Integer | types.Boolean)


def install_elementary() -> None:
    """Tell numba of them."""
    for name, emit in _FUNCTIONS.items():
        function = getattr(lang, name)
        overload(function, target="cpu")(_overload(name, _intrinsic(name, emit)))
    overload(lang.sqrt, target="cpu")(_overload("sqrt", register_jitable(lambda x: np.sqrt(x))))
    for name, choose in make_absolutes(register_jitable, types, SINGLES).items():
        overload(getattr(lang, name), target="cpu")(choose)
    overload(lang.atan2, target="cpu")(_choose_atan2)
    overload(lang.pow, target="cpu")(_choose_pow)


def _of_two(single: Callable[[Value, Value], Value], double: Callable[[Value, Value], Value]) -> Any:
    """The intrinsic of two numbers, in the precision that has both."""

    @intrinsic
    def function(typing_context, x, y):
        is_single = {x, y} <= SINGLES
        kind, emit = (types.float32, single) if is_single else (types.float64, double)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [context.cast(builder, arg, given, kind) for arg, given in zip(args, (x, y), strict=True)]
            return emit(Value(builder, values[0]), Value(builder, values[1])).ir

        return kind(x, y), generate

    return function


_atan2 = _of_two(inverse_trigonometric.atan2, inverse_trigonometric.atan2)
_pow = _of_two(pow_single, pow_double)
_choose_complex_pow = make_power(register_jitable, types, SINGLES)


def _choose_atan2(y: Any, x: Any) -> Any:
    def real(y: Any, x: Any) -> Any:
        return _atan2(y, x)

    return real if _is_real(x) and _is_real(y) else None


def _choose_pow(x: Any, y: Any) -> Any:
    """Of integers it is NumPy's."""

    def real(x: Any, y: Any) -> Any:
        return _pow(x, y)

    plain = real if (is_float(x) or is_float(y)) and _is_real(x) and _is_real(y) else lang.pow
    return _choose_complex_pow(x, y) or plain


def _intrinsic(name: str, emit: Callable[[Value], Value]) -> Any:
    def function(typing_context, x):
        kind = types.float32 if x in SINGLES else types.float64

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(Value(builder, context.cast(builder, args[0], x, kind))).ir

        return kind(x), generate

    function.__name__ = name
    return intrinsic(function)


def _overload(name: str, code: Any) -> Callable[..., Any]:
    def real(x: Any) -> Any:
        return code(x)

    ours: Any = _COMPLEX.get(name)

    def narrow(x: Any) -> Any:
        return np.complex64(ours(x))

    def wide(x: Any) -> Any:
        return ours(x)

    def choose(x: Any) -> Any:  # with the annotations of what it gives: numba compares signatures
        if _is_real(x):
            return real
        if ours is None or not isinstance(x, types.Complex):
            return None
        return narrow if x is types.complex64 else wide

    return choose
