"""Standard kernels, with the array API's names.

Each function submits to the current stream of its arrays' device and waits for nothing. It allocates its result, or writes to
``out=`` and returns that. The folder uses what any program may use of aiodev, and no more.

``out`` may be an operand of the result's shape in elementwise functions, as in ``exp(x, out=x)``, and the array itself in
running totals, sorts, softmax and normalisations: what is written at a place follows from what was read there, or its row was
read before.
Everywhere else, and with any other view of the same memory, such as ``x.T`` or ``x[1:]``, it must not overlap what is read:
elements may be written before they are read. Nothing checks that.
"""

from __future__ import annotations

if __name__ != "aiodev.kernels":
    raise ImportError(f"this folder is the package aiodev.kernels, not {__name__!r}; `import aiodev.kernels`")

from typing import TYPE_CHECKING

import aiodev
from aiodev.kernels import linalg, random
from aiodev.kernels.elementwise import table as _elementwise
from aiodev.kernels.elementwise.conversion import astype, clip, where
from aiodev.kernels.elementwise.fusion import Fused, binary_transform, fused, unary_transform
from aiodev.kernels.elementwise.table import *  # noqa: F403  # the table says what there is
from aiodev.kernels.indexing.put import put, scatter_add
from aiodev.kernels.indexing.search import nonzero, searchsorted, select
from aiodev.kernels.indexing.take import take, take_along_axis
from aiodev.kernels.linalg.products import matmul, matrix_transpose, tensordot, vecdot
from aiodev.kernels.manipulation.joining import concat, pad, repeat, roll, stack, tile
from aiodev.kernels.manipulation.views import (
    broadcast_arrays,
    broadcast_to,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    reshape,
    squeeze,
)
from aiodev.kernels.nn.normalization import layer_norm, log_softmax, rms_norm, softmax
from aiodev.kernels.reductions import all, any, argmax, argmin, max, mean, min, prod, std, sum, var
from aiodev.kernels.reductions.histogram import histogram
from aiodev.kernels.scans import cumulative_prod, cumulative_sum
from aiodev.kernels.sorting import argsort, sort
from aiodev.kernels.sorting.unique import (
    UniqueAll,
    UniqueCounts,
    UniqueInverse,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from aiodev.kernels.warmup import warm_up

aiodev.register_library(__name__)

__all__ = [
    "Fused",
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "binary_transform",
    "fused",
    "unary_transform",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "astype",
    "broadcast_arrays",
    "broadcast_to",
    "clip",
    "concat",
    "cumulative_prod",
    "cumulative_sum",
    "expand_dims",
    "flip",
    "histogram",
    "layer_norm",
    "linalg",
    "log_softmax",
    "matmul",
    "matrix_transpose",
    "max",
    "mean",
    "min",
    "moveaxis",
    "nonzero",
    "pad",
    "permute_dims",
    "prod",
    "put",
    "random",
    "repeat",
    "reshape",
    "rms_norm",
    "roll",
    "scatter_add",
    "searchsorted",
    "select",
    "softmax",
    "sort",
    "squeeze",
    "stack",
    "std",
    "sum",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "var",
    "vecdot",
    "warm_up",
    "where",
]
if not TYPE_CHECKING:  # as type checkers have it from the import
    __all__ += _elementwise.__all__


def __dir__() -> list[str]:
    return __all__
