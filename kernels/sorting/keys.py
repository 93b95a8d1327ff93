"""Sort keys: unsigned integers of as many bytes as elements, in the same order, NaN on top; and the way back.

Floats: see Terdiman, Radix Sort Revisited (2000).
"""

# The functions that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "equal_float_key_4",
    "equal_float_key_8",
    "float_key_4",
    "float_key_8",
    "float_of_4",
    "float_of_8",
    "reversed_from",
    "reversed_to",
    "signed_key_1",
    "signed_key_2",
    "signed_key_4",
    "signed_key_8",
    "signed_of_1",
    "signed_of_2",
    "signed_of_4",
    "signed_of_8",
    "truth_key",
    "truth_of",
    "unsigned_key",
]

Plain = Callable[..., Any]


def unsigned_key(value: Any) -> Any:
    """Unsigned integers are their own keys."""
    return value


def truth_key(value: Any) -> Any:
    """0 or 1."""
    return np.uint8(value)


def truth_of(key: Any) -> Any:
    """The truth value."""
    return key != 0


def signed_key_1(value: Any) -> Any:
    """The least becomes 0."""
    return np.uint8(np.int16(value) + np.int16(0x80))


def signed_key_2(value: Any) -> Any:
    """The least becomes 0."""
    return np.uint16(np.int32(value) + np.int32(0x8000))


def signed_key_4(value: Any) -> Any:
    """The least becomes 0."""
    return np.uint32(np.int64(value) + np.int64(0x80000000))


def signed_key_8(value: Any) -> Any:
    """The least becomes 0."""
    return np.uint64(value) ^ np.uint64(0x8000000000000000)


def signed_of_1(key: Any) -> Any:
    """The integer that a key stands for."""
    return np.int8(np.int16(key) - np.int16(0x80))


def signed_of_2(key: Any) -> Any:
    """The integer that a key stands for."""
    return np.int16(np.int32(key) - np.int32(0x8000))


def signed_of_4(key: Any) -> Any:
    """The integer that a key stands for."""
    return np.int32(np.int64(key) - np.int64(0x80000000))


def signed_of_8(key: Any) -> Any:
    """The integer that a key stands for."""
    return np.int64(key ^ np.uint64(0x8000000000000000))


def float_key_4(value: Any) -> Any:
    """Negative numbers the other way round, below the others; NaN on top."""
    bits = np.float32(value).view(np.uint32)
    mask = np.uint32(np.uint32(0x80000000) | np.uint32(np.uint32(0) - np.uint32(bits >> np.uint32(31))))
    return np.uint32(0xFFFFFFFF) if value != value else np.uint32(bits ^ mask)


def float_key_8(value: Any) -> Any:
    """Negative numbers the other way round, below the others; NaN on top."""
    bits = np.float64(value).view(np.uint64)
    mask = np.uint64(0x8000000000000000) | (np.uint64(0) - (bits >> np.uint64(63)))
    return np.uint64(0xFFFFFFFFFFFFFFFF) if value != value else bits ^ mask


def equal_float_key_4(value: Any) -> Any:
    """``float_key_4`` with 0 for -0, which it equals."""
    return float_key_4(np.float32(value + np.float32(0)))


def equal_float_key_8(value: Any) -> Any:
    """``float_key_8`` with 0 for -0, which it equals."""
    return float_key_8(np.float64(value + np.float64(0)))


def float_of_4(key: Any) -> Any:
    """The float32 that a key stands for."""
    mask = np.uint32(np.uint32(0x80000000) | np.uint32(np.uint32(key >> np.uint32(31)) - np.uint32(1)))
    return np.uint32(key ^ mask).view(np.float32)


def float_of_8(key: Any) -> Any:
    """The float64 that a key stands for."""
    mask = np.uint64(0x8000000000000000) | ((key >> np.uint64(63)) - np.uint64(1))
    return np.uint64(key ^ mask).view(np.float64)


def reversed_to(to_key: Plain, dtype: Any) -> Plain:
    """Keys in the reverse order."""

    def key(value):
        return dtype(~to_key(value))

    return key


def reversed_from(from_key: Plain, dtype: Any) -> Plain:
    """The values that keys in the reverse order stand for."""

    def value(key):
        return from_key(dtype(~key))

    return value
