"""Floats that numba-cuda does not know: its registries are told what numba's are on the CPU.

numba-cuda's own ``bfloat16`` is a class of CUDA's headers, whose functions compute in itself. Here it is a way of storing
numbers, on every device alike: see :mod:`aiodev._backends.compile.stored`.
"""

from __future__ import annotations

import functools

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

from aiodev._backends.compile.stored import (
    add_code,
    add_rules,
    add_typing,
    make_int,
    make_model,
    make_roundings,
    make_types,
)
from aiodev._core.dtypes import DTYPES

__all__ = ["SINGLES", "install", "is_float", "is_stored", "number_type"]

#: The types on CUDA.
_STORED = make_types(types)
_KINDS = frozenset(_STORED.values())
#: What is computed in ``float32``.
SINGLES = _KINDS | {types.float16, types.float32}


def is_stored(kind: object) -> bool:
    """Whether it is one of these types."""
    return kind in _KINDS


def is_float(kind: object) -> bool:
    """Whether it is a floating type."""
    return isinstance(kind, types.Float) or kind in _KINDS


def number_type(code: str) -> object:
    """numba-cuda's type of a dtype, by its code in the table of dtypes."""
    row = DTYPES[code]
    return _STORED[row.name] if row.package else from_dtype(numpy.dtype(row.name))


@functools.cache
def install() -> None:
    """Tell numba-cuda of them; again does nothing. Under the compiler's lock, since it imports the rest of numba-cuda."""
    for kind in {type(kind) for kind in _KINDS}:
        register_model(kind)(make_model(PrimitiveModel))
    add_rules(default_casting_rules, types, _STORED)
    registry = Registry("aiodev stored floats")
    add_code(registry, types, _STORED)
    cuda_target.target_context.refresh()  # numba-cuda's own come first
    cuda_target.target_context.install_registry(registry)
    add_typing(cuda_target.typing_context, infer_global, AbstractTemplate, (*get_ufuncs(), float), types, _STORED)
    for function, rounding in make_roundings(intrinsic, types, _STORED, TypingError).items():
        overload(function)(rounding)
    overload(int)(make_int(_STORED))
