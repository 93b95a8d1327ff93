"""What numbers a dtype has, and which kinds it is of, as the array API standard asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aiodev._array.dtypes import DType, kind, kind_of_operand, numpy_dtype, parse_dtype, row_of
from aiodev._core.arguments import refusal

__all__ = ["FloatInfo", "IntegerInfo", "finfo", "iinfo", "isdtype"]

#: The standard's names of kinds, and the kinds of the table.
_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating dtype, as Python's numbers; of a complex one, those of its parts.

    Attributes:
        bits: of a number.
        eps: from 1 to the next larger number.
        max: the largest number.
        min: the least number, ``-max``.
        smallest_normal: the least positive number that has all its digits.
        dtype: the dtype, or that of the parts.

    Example:
        >>> import aiodev.dtypes
        >>> aiodev.dtypes.finfo(aiodev.bfloat16)
        FloatInfo(bits=16, eps=0.0078125, max=3.3895313892515355e+38, min=-3.3895313892515355e+38, smallest_normal=1.1754943508222875e-38, dtype=dtype(bfloat16))
    """  # noqa: E501  # what repr gives is one line

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer dtype.

    Attributes:
        bits: of a number.
        max: the largest number.
        min: the least number.
        dtype: the dtype.

    Example:
        >>> import aiodev.dtypes
        >>> aiodev.dtypes.iinfo("int8")
        IntegerInfo(bits=8, max=127, min=-128, dtype=dtype('int8'))
    """

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating or complex dtype, or of that of an array.

    Raises:
        TypeError: it is no dtype, or one of integers or booleans.

    Example:
        >>> import aiodev, aiodev.dtypes
        >>> info = aiodev.dtypes.finfo(aiodev.ones(3, "complex64", "cpu"))
        >>> info.bits, info.dtype, info.eps == 2**-23
        (32, dtype('float32'), True)
    """
    dtype = _dtype_of("finfo", type)
    row = row_of(dtype)
    if row.kind == "c":
        dtype = parse_dtype(f"f{row.itemsize // 2}")
        row = row_of(dtype)
    if row.kind != "f":
        raise refusal("finfo", "type", "a floating or complex dtype, or an array of one", dtype)
    bits = 8 * row.itemsize
    exponent = (1 << (bits - row.digits - 1)) - 1  # the largest; what is not of digits is the sign and the exponent
    most = (2.0 - 2.0 ** (1 - row.digits)) * 2.0**exponent
    return FloatInfo(bits, 2.0 ** (1 - row.digits), most, -most, 2.0 ** (1 - exponent), dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of that of an array.

    Raises:
        TypeError: it is no dtype, or one of other numbers than integers.

    Example:
        >>> import aiodev.dtypes
        >>> aiodev.dtypes.iinfo("uint16").max
        65535
    """
    dtype = _dtype_of("iinfo", type)
    row = row_of(dtype)
    if row.kind not in "iu":
        raise refusal("iinfo", "type", "an integer dtype, or an array of one", dtype)
    return IntegerInfo(8 * row.itemsize, (1 << row.digits) - 1, -(1 << row.digits) if row.kind == "i" else 0, dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, or of one of several.

    Args:
        dtype: what NumPy takes for one.
        kind: a dtype; ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``, ``"complex
            floating"`` or ``"numeric"``; or a tuple of these.

    Raises:
        TypeError: one is no dtype.
        ValueError: there is no kind of that name.

    Example:
        >>> import aiodev.dtypes
        >>> aiodev.dtypes.isdtype(aiodev.bfloat16, "real floating"), aiodev.dtypes.isdtype("int8", ("bool", "float32"))
        (True, False)
    """
    given = numpy_dtype(dtype)
    return any(_is_of(given, one) for one in (kind if isinstance(kind, tuple) else (kind,)))


def _is_of(dtype: DType, wanted: Any) -> bool:
    if not isinstance(wanted, str):
        return numpy_dtype(wanted) == dtype
    if wanted in _KINDS:
        return kind(dtype) in _KINDS[wanted]
    try:
        return parse_dtype(wanted) == dtype
    except TypeError:
        expected = f"a dtype, or one of {', '.join(map(repr, _KINDS))}"
        raise ValueError(f"isdtype: argument kind: expected {expected}, got {wanted!r}") from None


def _dtype_of(function: str, given: Any) -> DType:
    dtype = kind_of_operand(given)
    try:
        if dtype is not None and (dtype is given or isinstance(dtype, np.dtype)):  # a number's class is none that it has
            return parse_dtype(dtype)
    except TypeError:
        pass
    raise refusal(function, "type", "a dtype, or an array", given)
