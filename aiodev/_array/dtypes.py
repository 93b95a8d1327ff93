"""The element types that devices have: NumPy's booleans, integers, floats and complex numbers, in native byte order."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DEFAULT", "DType", "parse_dtype"]

DType = np.dtype[Any]

#: Of arrays that are made without one.
DEFAULT: DType = np.dtype(np.float64)

_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
_known: dict[Any, DType] = {None: DEFAULT}


def parse_dtype(dtype: Any) -> DType:
    """The dtype that anything which NumPy takes for one means; None is float64.

    Raises:
        TypeError: no device has it.
    """
    try:
        return _known[dtype]
    except (KeyError, TypeError):
        found: DType = np.dtype(dtype).newbyteorder("=")
        if found.itemsize not in _SIZES.get(found.kind, ()):
            raise TypeError(
                f"dtype {np.dtype(dtype)}: device arrays hold booleans, integers, floats or complex numbers of at most "
                f"16 bytes"
            ) from None
        if isinstance(dtype, type | str | np.dtype) and len(_known) < 256:
            _known[dtype] = found
        return found
