"""bfloat16 in kernels for CUDA: numba-cuda's registries are told what numba's are on the CPU.

numba-cuda's own ``bfloat16`` is a class of CUDA's headers, whose functions compute in itself. Here it is a way of storing
numbers, on every device alike: see :mod:`aiodev._backends.cpu.compile.bfloat16`.
"""

from __future__ import annotations

import numpy
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.core.imputils import Registry
from numba.cuda.datamodel.models import PrimitiveModel
from numba.cuda.descriptor import cuda_target
from numba.cuda.extending import intrinsic, overload
from numba.cuda.models import register_model
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.typeconv.rules import default_casting_rules
from numba.cuda.typing.templates import AbstractTemplate, infer_global
from numba.np.ufunc_db import get_ufuncs

from aiodev import lang
from aiodev._backends.cpu.compile.bfloat16 import (
    add_code,
    add_rules,
    add_typing,
    make_int,
    make_model,
    make_rounding,
    make_type,
)
from aiodev._core.dtypes import DTYPES

__all__ = ["BFLOAT16", "SINGLES", "install", "is_float", "number_type"]

#: The type on CUDA.
BFLOAT16 = make_type(types)
#: What is computed in ``float32``.
SINGLES = frozenset({types.float16, BFLOAT16, types.float32})


def is_float(kind: object) -> bool:
    """Whether it is a floating type."""
    return isinstance(kind, types.Float) or kind == BFLOAT16


def number_type(code: str) -> object:
    """numba-cuda's type of a dtype, by its code in the table of dtypes."""
    row = DTYPES[code]
    return BFLOAT16 if row.name == "bfloat16" else from_dtype(numpy.dtype(row.name))


_installed: list[bool] = []


def install() -> None:
    """Tell numba-cuda of it; again does nothing. Under the compiler's lock, since it imports the rest of numba-cuda."""
    if _installed:
        return
    _installed.append(True)
    register_model(type(BFLOAT16))(make_model(PrimitiveModel))
    add_rules(default_casting_rules, types, BFLOAT16)
    registry = Registry("aiodev bfloat16")
    add_code(registry, types, BFLOAT16)
    cuda_target.target_context.refresh()  # numba-cuda's own come first
    cuda_target.target_context.install_registry(registry)
    add_typing(cuda_target.typing_context, infer_global, AbstractTemplate, (*get_ufuncs(), float), types, BFLOAT16)
    rounding = make_rounding(intrinsic, types, BFLOAT16, TypingError)
    overload(lang.bfloat16)(lambda x: lambda x: rounding(x))
    overload(int)(make_int(BFLOAT16))
