"""Accumulators of reductions: from an element to what is combined, its combination, and the way back.

What is combined is wide, so that rounding happens once, at the end. The largest element is found among integers that are in the
order of the floats they stand for, with NaN on top; the least among the same integers, inverted.
"""

# The functions here are numba's to type.

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "add",
    "both",
    "counted",
    "double",
    "double_complex",
    "either",
    "float_of_4",
    "float_of_8",
    "float_of_reversed_4",
    "float_of_reversed_8",
    "four_floats",
    "inverse_of",
    "inverted_signed",
    "inverted_unsigned",
    "key_4",
    "key_8",
    "larger",
    "mean_of",
    "multiply",
    "place_key_4",
    "place_key_8",
    "reversed_key_4",
    "reversed_key_8",
    "reversed_place_key_4",
    "reversed_place_key_8",
    "root_of",
    "signed",
    "variance_of",
    "square",
    "store",
    "total_of",
    "truth",
    "unsigned",
]

#: How far the keys of floats are below the floats' bits, and the key of infinity: those of NaN are above it.
_BELOW_4, _INFINITY_4 = 0x7FFFFF, 0x7F000001
_BELOW_8, _INFINITY_8 = np.int64(0xFFFFFFFFFFFFF), np.int64(0x7FE0000000000001)


def add(a: Any, b: Any) -> Any:
    """Their sum."""
    return a + b


def multiply(a: Any, b: Any) -> Any:
    """Their product."""
    return a * b


def larger(a: Any, b: Any) -> Any:
    """The larger one."""
    return a if a > b else b


def either(a: Any, b: Any) -> Any:
    """1 if one is."""
    return np.uint8(a | b)


def both(a: Any, b: Any) -> Any:
    """1 if both are."""
    return np.uint8(a & b)


def truth(value: Any) -> Any:
    """1 for what is not 0, NaN included."""
    return np.uint8(value != 0)


def counted(value: Any) -> Any:
    """1 for what is not 0, NaN included, to be summed."""
    return np.int64(value != 0)


def signed(value: Any) -> Any:
    """The number as int64."""
    return np.int64(value)


def unsigned(value: Any) -> Any:
    """The number as uint64."""
    return np.uint64(value)


def double(value: Any) -> Any:
    """The number as float64."""
    return np.float64(value)


def four_floats(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The sum of four floats as float64; two by two, with two roundings to their own type on the way."""
    return np.float64((a + b) + (c + d))


def double_complex(value: Any) -> Any:
    """The number as complex128."""
    return np.complex128(value)


def key_4(value: Any) -> Any:
    """An int32 in the order of float32, NaN on top: -infinity is the least one, so that a negative NaN wraps around."""
    bits = np.float32(value).view(np.int32)
    return np.int32((bits ^ ((bits >> 31) & 0x7FFFFFFF)) - _BELOW_4)


def key_8(value: Any) -> Any:
    """An int64 in the order of float64, NaN on top: -infinity is the least one, so that a negative NaN wraps around."""
    bits = np.float64(value).view(np.int64)
    ordered = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    return np.int64(np.uint64(ordered) - np.uint64(_BELOW_8))  # signed, it would be taken not to wrap around


def reversed_key_4(value: Any) -> Any:
    """An int32 in the reverse order of float32, NaN still on top."""
    bits = np.float32(value).view(np.int32)
    return np.int32(~(bits ^ ((bits >> 31) & 0x7FFFFFFF)) - _BELOW_4)


def reversed_key_8(value: Any) -> Any:
    """An int64 in the reverse order of float64, NaN still on top."""
    bits = np.float64(value).view(np.int64)
    ordered = ~(bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)))
    return np.int64(np.uint64(ordered) - np.uint64(_BELOW_8))


def place_key_4(value: Any) -> Any:
    """``key_4`` with one key for 0 and -0, and one for every NaN: of equal elements the first is found."""
    return np.int32(min(key_4(np.float32(value) + np.float32(0)), np.int32(_INFINITY_4 + 1)))


def place_key_8(value: Any) -> Any:
    """``key_8`` with one key for 0 and -0, and one for every NaN: of equal elements the first is found."""
    return min(key_8(np.float64(value) + np.float64(0)), _INFINITY_8 + 1)


def reversed_place_key_4(value: Any) -> Any:
    """``reversed_key_4`` with one key for 0 and -0, and one for every NaN."""
    return np.int32(min(reversed_key_4(np.float32(value) + np.float32(0)), np.int32(_INFINITY_4 + 1)))


def reversed_place_key_8(value: Any) -> Any:
    """``reversed_key_8`` with one key for 0 and -0, and one for every NaN."""
    return min(reversed_key_8(np.float64(value) + np.float64(0)), _INFINITY_8 + 1)


def float_of_4(key: Any, number: Any) -> Any:
    """The float32 that a key stands for."""
    if key > _INFINITY_4:
        return np.float32(np.nan)
    ordered = np.int32(key + _BELOW_4)
    return np.int32(ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(np.float32)


def float_of_8(key: Any, number: Any) -> Any:
    """The float64 that a key stands for."""
    if key > _INFINITY_8:
        return np.float64(np.nan)
    ordered = key + _BELOW_8
    return np.int64(ordered ^ ((ordered >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)


def float_of_reversed_4(key: Any, number: Any) -> Any:
    """The float32 that a reversed key stands for."""
    if key > _INFINITY_4:
        return np.float32(np.nan)
    ordered = np.int32(~(key + _BELOW_4))
    return np.int32(ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(np.float32)


def float_of_reversed_8(key: Any, number: Any) -> Any:
    """The float64 that a reversed key stands for."""
    if key > _INFINITY_8:
        return np.float64(np.nan)
    ordered = ~(key + _BELOW_8)
    return np.int64(ordered ^ ((ordered >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)


def inverted_signed(value: Any) -> Any:
    """An int64, in the other order."""
    return ~np.int64(value)


def inverted_unsigned(value: Any) -> Any:
    """A uint64, in the other order."""
    return ~np.uint64(value)


def total_of(total: Any, number: Any) -> Any:
    """The combined value."""
    return total


def inverse_of(total: Any, number: Any) -> Any:
    """What was inverted, as it was."""
    return ~total


def mean_of(total: Any, number: Any) -> Any:
    """Divided by the count."""
    return np.divide(total, number)


def variance_of(total: Any, number: Any) -> Any:
    """A variance from a sum of squares."""
    return np.divide(total, number)


def root_of(total: Any, number: Any) -> Any:
    """A deviation from a sum of squares."""
    return np.sqrt(np.divide(total, number))


def square(value: Any) -> Any:
    """Its absolute value, squared."""
    return value.real * value.real + value.imag * value.imag


def store(out: Any, i: int, value: Any) -> None:
    """Write result ``i``, which is the only one of an array of no dimensions."""
    if out.ndim == 0:
        out[()] = value
    else:
        out[i] = value
