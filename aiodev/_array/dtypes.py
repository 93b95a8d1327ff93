"""The element types that devices have: NumPy's booleans, integers, floats and complex numbers, in native byte order."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev._core.arguments import refusal

__all__ = ["DEFAULT", "DType", "numpy_dtype", "parse_dtype"]

DType = np.dtype[Any]

#: Of arrays that are made without one.
DEFAULT: DType = np.dtype(np.float64)

_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
_known: dict[Any, DType] = {None: DEFAULT}


def numpy_dtype(dtype: Any) -> DType:
    """What NumPy takes for a dtype.

    Raises:
        TypeError: it takes it for none.
    """
    try:
        found: DType = np.dtype(dtype)
        return found
    except (TypeError, ValueError, SyntaxError):  # NumPy's own words name no argument
        raise refusal(None, "dtype", "what NumPy takes for a dtype, or None", dtype) from None


def parse_dtype(dtype: Any) -> DType:
    """The dtype that anything which NumPy takes for one means; None is float64.

    Raises:
        TypeError: no device has it.
    """
    try:
        return _known[dtype]
    except (KeyError, TypeError):
        found = numpy_dtype(dtype).newbyteorder("=")
        if found.itemsize not in _SIZES.get(found.kind, ()):
            raise TypeError(
                f"dtype {found}: device arrays hold booleans, integers, floats or complex numbers of at most "
                f"16 bytes"
            ) from None
        if isinstance(dtype, type | str | np.dtype) and len(_known) < 256:
            _known[dtype] = found
        return found
