"""numba-cuda's target, told what it would ask a driver, and with the errors that the CPU has.

Left alone it asks the driver which architecture to compile for, has 0 for an integer division by zero, cannot check bounds,
and numbers the exceptions of each function from 1 again. Arithmetic of ``float16`` it leaves to CUDA's headers, which needs the
driver, and rounds each result; here, as on the CPU, ``float16`` is a way of storing numbers, computed with in ``float32``.
A float beyond a narrow integer's range would become the nearest; here it wraps, as on the CPU.
Of overloads that are to be inlined it takes the CPU's as well as its own, where these have been compiled in this process.
:func:`compiling_for` changes that for what is compiled in its block, under the compiler's lock; nothing is changed for other
users of numba-cuda.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.cuda import cudadecl, cudamath, dispatcher, fp16, lowering, types
from numba.cuda._internal import cuda_fp16
from numba.cuda.core import callconv, typed_passes
from numba.cuda.core.base import BaseContext
from numba.cuda.target import CUDATargetContext
from numba.cuda.typing import signature
from numba.cuda.typing.templates import _OverloadFunctionTemplate

from aiodev._backends.compile.raised import kept

__all__ = ["compiling_for", "exceptions"]


class _Exceptions(callconv._MinimalCallHelper):
    """Every exception of every function, each under a status of its own.

    One for the process, since a function that two kernels call is compiled once.
    """

    def _add_exception(self, kind: Any, arguments: Any, location: Any) -> int:
        if location is None and _place:
            location = (None, _place[-1].filename, _place[-1].line)
        entry = (*kept(kind, arguments), location)
        for status, known in self.exceptions.items():
            if known == entry and [type(a) for a in known[1] or ()] == [type(a) for a in arguments or ()]:
                return int(status)
        return int(super()._add_exception(*entry))


class _ErrorModel(callconv.ErrorModel):
    """Integer division and remainder by zero raise, as they must; ``/`` and floating remainders follow IEEE, as arrays do."""

    raise_on_fp_zero_division = False

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        if not (exc_args and str(exc_args[0]).startswith("integer ")):
            return False
        self.call_conv.return_user_exc(builder, ZeroDivisionError, exc_args, loc)
        return True


class _Device:
    def __init__(self, architecture: tuple[int, int]) -> None:
        self.compute_capability = architecture


def _generic_without_halves(template: Any, args: Any, kws: Any) -> Any:
    """An overload's typing of arguments, without its forms for ``float16``."""
    return None if template._overload_func.__module__ == fp16.__name__ else _generic(template, args, kws)


def _owner(template: type, name: str) -> type:
    """The class that a template has an attribute from."""
    return next(kind for kind in template.__mro__ if name in vars(kind))


def _storage_only() -> list[tuple[Any, str, Any]]:
    """Take ``float16`` out of the typing of operators and functions, which then take it as ``float32``."""
    registered = [kind for value, kind in cuda_fp16.typing_registry.globals if value.__module__ in _PYTHON]
    templates = [template for kind in registered for template in kind.templates]
    owners = dict.fromkeys(_owner(template, "generic") for template in templates)
    changes: list[tuple[Any, str, Any]] = [(owner, "generic", lambda self, args, kws: None) for owner in owners]
    unary: Any = _owner(cudamath.Math_unary_with_fp16, "cases")
    changes.append((unary, "cases", [case for case in unary.cases if types.float16 not in case.args]))
    changes.append((cudadecl.Float, "generic", lambda self, args, kws: _float_of(args[0])))
    changes.append((_OverloadFunctionTemplate, "generic", _generic_without_halves))
    changes.append((BaseContext, "cast", _cast_by_steps))
    return changes


def _float_of(kind: Any) -> Any:
    """The typing of ``float(x)``, where it needs one beside numba's own."""
    return signature(types.float32, types.float32) if kind == types.float16 else None


def _between(given: Any, wanted: Any) -> Any:
    """The type that a cast goes by way of; None where it needs none.

    Between ``float16`` and what is no floating number ``float32``, which truncates to integers. Floats become narrow integers
    through wider ones, of which the lower bits are kept, as on the CPU: the instruction would take the nearest number.
    """
    if types.float16 in (given, wanted) and not (isinstance(given, types.Float) and isinstance(wanted, types.Float)):
        return types.float32
    return _WIDER.get(wanted) if isinstance(given, types.Float) else None


def _cast_by_steps(context: Any, builder: Any, value: Any, given: Any, wanted: Any) -> Any:
    step = _between(given, wanted)
    if step is None:
        return _cast(context, builder, value, given, wanted)
    return _cast_by_steps(context, builder, _cast_by_steps(context, builder, value, given, step), step, wanted)


#: What keeps the bits of narrow integers that floats are cast to.
_WIDER = dict.fromkeys((types.int8, types.uint8, types.int16, types.uint16), types.int32) | {types.uint32: types.int64}
#: Modules of the operators and functions that users write, not those of CUDA's headers.
_PYTHON = frozenset({"_operator", "builtins", "operator"})
_exceptions = _Exceptions()
_place: list[Any] = []  #: locations of the instructions that are being lowered, which nest; under the compiler's lock
_lower_inst = lowering.Lower.lower_inst
_get_callable = typed_passes.InlineOverloads._get_callable_info
_generic = _OverloadFunctionTemplate.generic
_cast = BaseContext.cast


def _lower_located(lower: Any, inst: Any) -> None:
    """Lower an instruction; exceptions of numba's own making (an index, a zero division) say its line."""
    _place.append(inst.loc)
    try:
        _lower_inst(lower, inst)
    finally:
        _place.pop()


def _get_own_callable(inlining: Any, state: Any, expression: Any) -> Any:
    """What a call may be replaced by, without the overloads of other targets."""
    callee = _get_callable(inlining, state, expression)
    if callee is None or callee[0] is None:
        return callee
    templates, *rest = callee
    return ([own for own in templates if getattr(own, "metadata", {}).get("target") != "cpu"], *rest)


def exceptions() -> dict[int, tuple[Any, Any, Any]]:
    """The exceptions of the statuses given out so far: (class, arguments, (function, file, line) or None)."""
    return dict(_exceptions.exceptions)


@contextmanager
def compiling_for(architecture: tuple[int, int], boundscheck: bool) -> Iterator[None]:
    """Compile for an architecture inside the block; needs the compiler's lock."""
    changes: list[tuple[Any, str, Any]] = [
        (dispatcher, "get_current_device", lambda: _Device(architecture)),
        (callconv.MinimalCallConv, "_make_call_helper", lambda convention, builder: _exceptions),
        (lowering.Lower, "lower_inst", _lower_located),
        (typed_passes.InlineOverloads, "_get_callable_info", _get_own_callable),
        (CUDATargetContext, "enable_boundscheck", property(lambda context: boundscheck)),
        *_storage_only(),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    model = callconv.error_models["numpy"]
    callconv.error_models["numpy"] = _ErrorModel
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        callconv.error_models["numpy"] = model
