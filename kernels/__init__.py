"""Kernels that programs reach for first, with the array API's names: all functions and constants that the standard has.

Each function submits to the current stream of its arrays' device and waits for nothing. It allocates its result, or writes to
``out=`` and returns that. The folder uses what any program may use of aiodev, and no more.

``out`` may be any view of memory that an operand is in, too: what is read is what was there before, as in NumPy. Elementwise
functions, running totals, sorts, triangles, softmax and normalisations write over an operand in the very same place, as in
``exp(x, out=x)``. Of every other operand that has elements of ``out``, as in ``add(x[1:], x[:-1], out=x[1:])``, a copy is made
first, and read.
"""

from __future__ import annotations

if __name__ != "aiodev.kernels":
    raise ImportError(f"this folder is the package aiodev.kernels, not {__name__!r}; `import aiodev.kernels`")

from math import e, inf, nan, pi
from typing import TYPE_CHECKING

import aiodev
from aiodev import (
    arange,
    asarray,
    empty,
    empty_like,
    from_dlpack,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from aiodev.dtypes import can_cast, finfo, iinfo, isdtype, result_type

# Behind the functions themselves: gradients are computed by functions of other families, too.
from aiodev.kernels import (
    complex_gradients as _of_complex_numbers,  # noqa: F401
    fft,
    linalg,
    random,
)
from aiodev.kernels.creation import eye, linspace, meshgrid, tril, triu
from aiodev.kernels.elementwise import table as _elementwise
from aiodev.kernels.elementwise.conversion import astype, clip, where
from aiodev.kernels.elementwise.difference import diff
from aiodev.kernels.elementwise.fusion import Fused, binary_transform, fused, unary_transform
from aiodev.kernels.elementwise.table import *  # noqa: F403  # the table says what there is
from aiodev.kernels.fft import gradients as _of_fft  # noqa: F401
from aiodev.kernels.indexing import gradients as _of_indexing  # noqa: F401
from aiodev.kernels.indexing.put import put, scatter_add
from aiodev.kernels.indexing.search import nonzero, searchsorted, select
from aiodev.kernels.indexing.take import take, take_along_axis
from aiodev.kernels.linalg import decompositions as _of_decompositions, gradients as _of_linalg  # noqa: F401
from aiodev.kernels.linalg.products import matmul, matrix_transpose, tensordot, vecdot
from aiodev.kernels.manipulation import gradients as _of_manipulation  # noqa: F401
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
    unstack,
)
from aiodev.kernels.nn import gradients as _of_nn  # noqa: F401
from aiodev.kernels.nn.attention import scaled_dot_product_attention
from aiodev.kernels.nn.convolution import conv2d
from aiodev.kernels.nn.embedding import embedding
from aiodev.kernels.nn.losses import cross_entropy
from aiodev.kernels.nn.normalization import layer_norm, log_softmax, rms_norm, softmax
from aiodev.kernels.nn.pooling import avg_pool2d, max_pool2d
from aiodev.kernels.reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    gradients as _of_reductions,  # noqa: F401
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from aiodev.kernels.reductions.histogram import histogram
from aiodev.kernels.scans import (
    cumulative_prod,
    cumulative_sum,
    gradients as _of_scans,  # noqa: F401
)
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

newaxis = None

__all__ = [
    "Fused",
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "astype",
    "avg_pool2d",
    "binary_transform",
    "broadcast_arrays",
    "broadcast_to",
    "can_cast",
    "clip",
    "concat",
    "conv2d",
    "count_nonzero",
    "cross_entropy",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "e",
    "embedding",
    "empty",
    "empty_like",
    "expand_dims",
    "eye",
    "fft",
    "finfo",
    "flip",
    "from_dlpack",
    "full",
    "full_like",
    "fused",
    "histogram",
    "iinfo",
    "inf",
    "isdtype",
    "layer_norm",
    "linalg",
    "linspace",
    "log_softmax",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool2d",
    "mean",
    "meshgrid",
    "min",
    "moveaxis",
    "nan",
    "newaxis",
    "nonzero",
    "ones",
    "ones_like",
    "pad",
    "permute_dims",
    "pi",
    "prod",
    "put",
    "random",
    "repeat",
    "reshape",
    "result_type",
    "rms_norm",
    "roll",
    "scaled_dot_product_attention",
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
    "tril",
    "triu",
    "unary_transform",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "vecdot",
    "warm_up",
    "where",
    "zeros",
    "zeros_like",
]
if not TYPE_CHECKING:  # as type checkers have it from the import
    __all__ += _elementwise.__all__


def __dir__() -> list[str]:
    return __all__
