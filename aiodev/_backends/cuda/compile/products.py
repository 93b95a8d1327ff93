"""Products of small matrices on a GPU: for :func:`aiodev.lang.matmul` each thread computes its own, element by element."""

from __future__ import annotations

from typing import Any

from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import overload
from numba.cuda.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.compile.products import check_product, make_product_loop
from aiodev._backends.cuda.compile.stored import SINGLES, is_stored

__all__ = ["install"]


def _choose_product(a: Any, b: Any, out: Any) -> Any:
    check_product(types, SINGLES, TypingError, a, b, out)
    return make_product_loop(out, is_stored(out.dtype), as_dtype)


def install() -> None:
    """Tell numba-cuda of it."""
    overload(lang.matmul)(_choose_product)
