"""Error model: how compiled code says where it failed; :mod:`aiodev._backends.cpu.compile.excinfo` reads that.

**Problem.** An error is to name the line of the kernel that led to it, or of a function of the program's that the kernel calls.
numba knows lines of ``raise`` statements, its own ones included; and what it compiles for an operation, such as a power, serves
all kernels of the process, wherever they are.

**How.** The program's functions are lowered by :class:`LocatedLower`. What fails in one of them says its line, and returns a
code of its own. Anything else that is called returns numba's code when it fails. The function of the program's that gets this
back makes an excinfo of the failure and of the line of the call (:func:`_relocate`), and returns its own code. All of it is
behind the branch that a failure takes, and goes with that where the callee cannot fail.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import callconv, cgutils, lowering

from aiodev._backends.compile.raised import kept
from aiodev._backends.cpu.compile.excinfo import RELOCATED

__all__ = ["ERROR_MODEL", "LocatedLower", "install_error_model", "is_ours"]

#: The name of the error model below among numba's.
ERROR_MODEL = "aiodev"

#: What a function of the program's returns when it fails. numba's own code is one less; it takes both for a sign of an excinfo.
_LOCATED = callconv.errcode_t(callconv.FIRST_USEREXC + 1)

_RELOCATED = callconv.int32_t(RELOCATED)

#: Lines in these folders are none of the program's.
_FOLDERS = tuple(f"{folder}{os.sep}" for folder in (Path(numba.__file__).parent, Path(__file__).parents[3]))


class _ErrorModel(callconv.NumpyErrorModel):
    """Integer division and remainder by zero raise, as they must; ``/`` and floating remainders follow IEEE, as arrays do.

    Raising for those too would keep every loop with a division in it from being vectorised.
    """

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        if not (exc_args and str(exc_args[0]).startswith("integer ")):
            return False
        self.call_conv.return_user_exc(builder, ZeroDivisionError, exc_args, loc)
        return True


def is_ours(context: Any) -> bool:
    """Whether a target context is one of a kernel's, and not of a function that a program has jitted by itself."""
    return isinstance(context.error_model, _ErrorModel)


class _LocatedCallConv(callconv.CPUCallConv):
    """Numba's calling convention, where functions of the program's say their line: their builders have an ``aiodev_place``."""

    def set_static_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: str | None = None
    ) -> None:
        if loc is None:  # of numba's own making: an index, a zero division
            loc, func_name = getattr(builder, "aiodev_place", (None, None))
        exc, exc_args = kept(exc, exc_args)
        super().set_static_user_exc(builder, exc, exc_args=exc_args, loc=loc, func_name=func_name)

    def set_dynamic_user_exc(
        self, builder: Any, exc: Any, exc_args: Any, nb_types: Any, loc: Any = None, func_name: str | None = None
    ) -> None:
        exc, exc_args = kept(exc, exc_args)
        super().set_dynamic_user_exc(builder, exc, exc_args, nb_types, loc=loc, func_name=func_name)

    def return_status_propagate(self, builder: Any, status: Any) -> None:
        place = getattr(builder, "aiodev_place", None)
        if place is not None:
            where = self.build_excinfo_struct(None, _FOLDERS, *place)
            where = self.context.get_python_api(builder).serialize_object(where)
            is_caught = self.check_try_status(builder).in_try
            arguments = [status.code, status.excinfoptr, where, is_caught]
            excinfo = builder.call(_relocate(self.context, builder.module), arguments)
            is_new = builder.icmp_signed("==", status.code, callconv.RETCODE_USEREXC)
            status = status._replace(code=builder.select(is_new, _LOCATED, status.code), excinfoptr=excinfo)
        super().return_status_propagate(builder, status)

    def _return_errcode_raw(self, builder: Any, code: Any) -> None:
        is_new = code is callconv.RETCODE_USEREXC and hasattr(builder, "aiodev_place")
        super()._return_errcode_raw(builder, _LOCATED if is_new else code)


def _relocate(context: Any, module: Any) -> Any:
    """``excinfo *f(code, excinfo *failure, excinfo *place, bool is_caught)``: the failure, at that place unless it has one.

    A failure that is caught needs none, and is freed of one, since nobody will ask. The function is out of line, for it is
    rarely called; C allocates what it makes, for few kernels have numba's allocator.
    """
    pointer, word = callconv.excinfo_ptr_t, callconv.GENERIC_POINTER
    kind = ir.FunctionType(pointer, [callconv.errcode_t, pointer, pointer, ir.IntType(1)])
    function = cgutils.get_or_insert_function(module, kind, "aiodev_relocate")
    if not function.is_declaration:
        return function
    function.linkage = "linkonce_odr"
    function.attributes.add("cold")
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    code, failure, place, is_caught = function.args
    with builder.if_then(is_caught), builder.if_then(builder.icmp_signed("==", code, _LOCATED)):
        fields = builder.load(failure)
        count = builder.extract_value(fields, callconv.ALLOC_FLAG_IDX)
        with builder.if_then(builder.icmp_signed("==", count, _RELOCATED)):
            free = cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), [word]), "free")
            builder.call(free, [builder.bitcast(failure, word)])
            builder.ret(builder.bitcast(builder.extract_value(fields, callconv.HASH_BUF_IDX), pointer))
    is_new = builder.icmp_signed("==", code, callconv.RETCODE_USEREXC)
    with builder.if_then(builder.or_(is_caught, builder.not_(is_new))):
        builder.ret(failure)
    size = ir.Constant(cgutils.intp_t, context.get_abi_sizeof(callconv.excinfo_t))
    malloc = cgutils.get_or_insert_function(module, ir.FunctionType(word, [size.type]), "malloc")
    made = builder.bitcast(builder.call(malloc, [size]), pointer)
    fields = builder.insert_value(builder.load(place), builder.bitcast(failure, word), callconv.HASH_BUF_IDX)
    builder.store(builder.insert_value(fields, _RELOCATED, callconv.ALLOC_FLAG_IDX), made)
    builder.ret(made)
    return function


class LocatedLower(lowering.Lower):
    """Numba's lowering, with :class:`_LocatedCallConv`, of a function of the program's."""

    def __init__(self, context: Any, library: Any, fndesc: Any, func_ir: Any, metadata: Any = None) -> None:
        super().__init__(_located(context), library, fndesc, func_ir, metadata)

    def lower_inst(self, inst: Any) -> None:
        if inst.loc.filename == self.func_ir.loc.filename:  # else what numba has put in the place of a call
            self.builder.aiodev_place = inst.loc, self.func_ir.func_id.func_name
        super().lower_inst(inst)


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
