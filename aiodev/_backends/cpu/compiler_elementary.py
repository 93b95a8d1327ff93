"""The elementary functions of :mod:`aiodev.lang` on the CPU: code without branches, inlined where they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic, overload

from aiodev import lang
from aiodev._backends.cpu import compiler_exp, compiler_hyperbolic, compiler_log, compiler_trigonometric
from aiodev._backends.cpu.compiler_power import pow_single
from aiodev._backends.cpu.compiler_values import Value

__all__ = ["install_elementary"]

_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    **compiler_exp.FUNCTIONS,
    **compiler_hyperbolic.FUNCTIONS,
    **compiler_log.FUNCTIONS,
    **compiler_trigonometric.FUNCTIONS,
}


def install_elementary() -> None:
    """Tell numba of them."""
    for name, emit in _FUNCTIONS.items():
        function = getattr(lang, name)
        overload(function, target="cpu")(_overload(function, _intrinsic(name, emit)))
    overload(lang.pow, target="cpu")(_choose_pow)


@intrinsic
def _pow(typing_context, x, y):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = [context.cast(builder, arg, given, types.float32) for arg, given in zip(args, (x, y), strict=True)]
        return pow_single(Value(builder, values[0]), Value(builder, values[1])).ir

    return types.float32(x, y), generate


def _single_pow(x: Any, y: Any) -> Any:
    return _pow(x, y)


def _choose_pow(x: Any, y: Any) -> Any:
    """Single precision has vector code; the rest is NumPy's."""
    single = (types.float16, types.float32)
    return _single_pow if x in single and y in single else lang.pow


def _intrinsic(name: str, emit: Callable[[Value], Value]) -> Any:
    def function(typing_context, x):  # type: ignore[no-untyped-def]
        found = types.float32 if x in (types.float16, types.float32) else types.float64

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(Value(builder, context.cast(builder, args[0], x, found))).ir

        return found(x), generate

    function.__name__ = name
    return intrinsic(function)


def _overload(function: Any, code: Any) -> Callable[..., Any]:
    def real(x: Any) -> Any:
        return code(x)

    def choose(x: Any) -> Any:  # with the annotations of what it gives: numba compares signatures
        if isinstance(x, types.Float | types.Integer | types.Boolean):
            return real
        return function if isinstance(x, types.Complex) else None  # NumPy's

    return choose
