"""numba-cuda, told what it would ask a driver, and with the errors that the CPU has.

Left alone it asks the driver which architecture to compile for, has 0 for an integer division by zero, cannot check bounds,
and numbers the exceptions of each function from 1 again. :func:`compiling_for` changes that for what is compiled inside its
block, under the compiler's lock; nothing is changed for other users of numba-cuda.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.cuda import dispatcher, lowering
from numba.cuda.core import callconv
from numba.cuda.target import CUDATargetContext

__all__ = ["compiling_for", "exceptions"]


class _Exceptions(callconv._MinimalCallHelper):  # type: ignore[misc]
    """Every exception of every function, each under a status of its own.

    One for the process, since a function that two kernels call is compiled once.
    """

    def _add_exception(self, kind: Any, arguments: Any, location: Any) -> int:
        if location is None and _place:
            location = (None, _place[-1].filename, _place[-1].line)
        entry = (kind, arguments, location)
        for status, known in self.exceptions.items():
            if known == entry and [type(a) for a in known[1] or ()] == [type(a) for a in arguments or ()]:
                return int(status)
        return int(super()._add_exception(*entry))


class _ErrorModel(callconv.ErrorModel):  # type: ignore[misc]
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


_exceptions = _Exceptions()
_place: list[Any] = []  #: locations of the instructions that are being lowered, which nest; under the compiler's lock
_lower_inst = lowering.Lower.lower_inst


def _lower_located(lower: Any, inst: Any) -> None:
    """Lower an instruction; exceptions of numba's own making (an index, a zero division) say its line."""
    _place.append(inst.loc)
    try:
        _lower_inst(lower, inst)
    finally:
        _place.pop()


def exceptions() -> dict[int, tuple[Any, Any, Any]]:
    """What the statuses given out so far mean: (class, arguments, (function, file, line) or None)."""
    return dict(_exceptions.exceptions)


@contextmanager
def compiling_for(architecture: tuple[int, int], boundscheck: bool) -> Iterator[None]:
    """Compile for an architecture inside the block; needs the compiler's lock."""
    changes: list[tuple[Any, str, Any]] = [
        (dispatcher, "get_current_device", lambda: _Device(architecture)),
        (callconv.MinimalCallConv, "_make_call_helper", lambda convention, builder: _exceptions),
        (lowering.Lower, "lower_inst", _lower_located),
        (CUDATargetContext, "enable_boundscheck", property(lambda context: boundscheck)),
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
