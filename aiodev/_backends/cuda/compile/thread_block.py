"""Thread blocks: the team's part of :mod:`aiodev.lang` on CUDA, a block's threads, its barrier, its shared memory."""

# Overloads and templates are numba's to type.
# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import nvvmutils, types, typing
from numba.cuda.core.errors import TypingError
from numba.cuda.cudadecl import Cuda_array_decl, registry as declarations
from numba.cuda.extending import intrinsic, overload

from aiodev import lang
from aiodev._backends.cuda.compile.arrays import implementations, shared_array
from aiodev._backends.cuda.compile.stored import is_stored

__all__ = ["install"]

_WORD = ir.IntType(64)


def _register(name: str) -> Any:
    """A special register as an int64 that is not negative."""

    def register(typing_context):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(getattr(nvvmutils.SRegBuilder(builder), name)("x"), _WORD)

        return types.int64(), generate

    return intrinsic(register)


_rank, _size = _register("tid"), _register("ntid")


class _TeamArray(Cuda_array_decl):
    """``cuda.shared.array`` with one dimension; one of a dtype that is computed in ``float32`` has that.

    An overload would have one array for all calls with the same arguments.
    """

    key = lang.team_array

    def generic(self):
        shared = super().generic()

        def typer(size, dtype):
            if not isinstance(size, types.IntegerLiteral) or size.literal_value <= 0:
                raise TypingError(f"team_array: expected a constant size of 1 or more, got {size}")
            return shared(size, types.DType(types.float32) if is_stored(getattr(dtype, "dtype", None)) else dtype)

        return typer


def _lower_array(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """A function that several others call is linked in with each of them: its array is one all the same."""
    module = builder.module
    known = set(module.globals)
    signature = typing.signature(signature.return_type, signature.args[0], types.DType(signature.return_type.dtype))
    made = shared_array(context, builder, signature, args)
    for name in set(module.globals) - known:
        module.globals[name].linkage = "linkonce_odr"
    return made


def install() -> None:
    """Tell numba-cuda of it, once."""
    declarations.register(_TeamArray)
    declarations.register_global(lang.team_array, types.Function(_TeamArray))
    implementations.lower(lang.team_array, types.IntegerLiteral, types.Any)(_lower_array)
    overload(lang.team_rank)(lambda: lambda: _rank())
    overload(lang.team_size)(lambda: lambda: _size())
    overload(lang.team_barrier)(lambda: lambda: cuda.syncthreads())
