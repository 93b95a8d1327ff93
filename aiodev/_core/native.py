"""Calls of native functions that submit to a device's own stream, as the words that a backend takes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["CELL", "HANDLE", "MOST_ARGUMENTS", "VALUE", "pack"]

#: What a word is: itself, the device's own stream, or the address of the word that is meant when the call is made.
VALUE, HANDLE, CELL = 0, 1, 2
MOST_ARGUMENTS = 24


def pack(calls: Sequence[Sequence[Any]], lock: Any) -> bytes:
    """The block of :meth:`Backend.call_native`: a lock's address or 0, how many calls; of each, how many arguments, then
    (kind, word) of the function and of each argument.

    Raises:
        TypeError: what is no integer, array, None or writable buffer of 8 bytes.
        ValueError: a call of nothing, or with too many arguments.
    """
    words = [0 if lock is None else _address(lock), len(calls)]
    for call in calls:
        if not 1 <= len(call) <= 1 + MOST_ARGUMENTS:
            raise ValueError(f"call_native: a call is a function and up to {MOST_ARGUMENTS} arguments, here are {len(call)}")
        words.append(len(call) - 1)
        for item in call:
            if item is None:
                words += HANDLE, 0
            elif isinstance(item, int):
                words += VALUE, item
            elif hasattr(item, "record_stream"):  # an array
                words += VALUE, item.address
            else:
                words += CELL, _address(item)
    return struct.pack(f"<{len(words)}Q", *(word & 0xFFFFFFFFFFFFFFFF for word in words))


def _address(cell: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_int64.from_buffer(cell))
    except (TypeError, ValueError) as error:
        wanted = "an integer, an array, None or a writable buffer of 8 bytes"
        raise TypeError(f"call_native: expected {wanted}, got {cell!r}") from error
