"""Error model: how compiled code says where it failed; :mod:`aiodev._backends.cpu.compile.excinfo` reads that."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from typing import Any

from numba.core import callconv, lowering

from aiodev._backends.compile.raised import kept

__all__ = ["LocatedLower", "install_error_model"]

#: The name of the error model below among numba's.
ERROR_MODEL = "aiodev"


class _ErrorModel(callconv.NumpyErrorModel):
    """Integer division and remainder by zero raise, as they must; ``/`` and floating remainders follow IEEE, as arrays do.

    Raising for those too would keep every loop with a division in it from being vectorised.
    """

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        if not (exc_args and str(exc_args[0]).startswith("integer ")):
            return False
        self.call_conv.return_user_exc(builder, ZeroDivisionError, exc_args, loc)
        return True


class _Place(threading.local):
    """The line that this thread is lowering."""

    location: Any = None
    function: str | None = None


_place = _Place()


class _LocatedCallConv(callconv.CPUCallConv):
    """Numba's calling convention; exceptions of its own making (an index, a zero division) say their line as well."""

    def set_static_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: str | None = None
    ) -> None:
        if loc is None and _place.location is not None:
            loc, func_name = _place.location, _place.function
        exc, exc_args = kept(exc, exc_args)
        super().set_static_user_exc(builder, exc, exc_args=exc_args, loc=loc, func_name=func_name)

    def set_dynamic_user_exc(
        self, builder: Any, exc: Any, exc_args: Any, nb_types: Any, loc: Any = None, func_name: str | None = None
    ) -> None:
        exc, exc_args = kept(exc, exc_args)
        super().set_dynamic_user_exc(builder, exc, exc_args, nb_types, loc=loc, func_name=func_name)


class LocatedLower(lowering.Lower):
    """Numba's lowering, with :class:`_LocatedCallConv`."""

    def __init__(self, context: Any, library: Any, fndesc: Any, func_ir: Any, metadata: Any = None) -> None:
        super().__init__(_located(context), library, fndesc, func_ir, metadata)

    def lower(self) -> None:
        with _restored():
            super().lower()

    def lower_inst(self, inst: Any) -> None:
        _place.location, _place.function = inst.loc, self.func_ir.func_id.func_name
        super().lower_inst(inst)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Lowering nests: what a function calls may be lowered in the middle of it."""
    outer = _place.location, _place.function
    try:
        yield
    finally:
        _place.location, _place.function = outer


_located_classes: dict[type, type] = {}


def _located(context: Any) -> Any:
    """A target context like ``context`` that uses our calling convention."""
    base = type(context)
    located = _located_classes.get(base)
    if located is None:
        convention = property(_LocatedCallConv)
        located = _located_classes[base] = type(f"Located{base.__name__}", (base,), {"call_conv": convention})
    changed = copy.copy(context)
    changed.__class__ = located
    if context.error_model is not None:
        changed.error_model = type(context.error_model)(changed.call_conv)
    return changed


def install_error_model() -> None:
    """Let numba's compiler flags name our error model."""
    callconv.error_models.setdefault(ERROR_MODEL, _ErrorModel)
