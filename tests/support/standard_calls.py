"""Calls of the array API's functions as text, with what they gave: the public suite's, to be made again without it.

``recorded_array_api`` writes them down.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import aiodev
from aiodev import array_api

__all__ = ["FILE", "Case", "Unknown", "decode", "encode", "read", "target"]

#: Where recorded calls are kept.
FILE = Path(__file__).resolve().parents[1] / "array" / "standard_calls.json.gz"
#: Elements of the largest array that is kept.
LARGEST = 64
#: A function's name, its arguments, those by name, and what it gave: a value, or the name of the exception's type.
Case = tuple[str, list[Any], dict[str, Any], Any]


class Unknown(Exception):
    """A value that has no form here."""


def encode(value: Any) -> Any:
    """A value in terms of JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, aiodev.Array):
        if value.size > LARGEST:
            raise Unknown(value)
        content = value.numpy_blocking()
        data = base64.b64encode(np.ascontiguousarray(content).tobytes()).decode()
        return {"array": [content.dtype.name, list(content.shape), data]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(item) for item in value]}
    if isinstance(value, slice):
        return {"slice": [encode(item) for item in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": None}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    raise Unknown(value)


def decode(value: Any) -> Any:
    """What :func:`encode` was given; arrays are made on the current device."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "array":
            dtype, shape, data = content
            return aiodev.asarray(np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy())
        case "complex":
            return complex(*content)
        case "tuple" | "list":
            return (tuple if kind == "tuple" else list)(map(decode, content))
        case "slice":
            return slice(*content)
        case "ellipsis":
            return Ellipsis
        case "dtype":
            return np.dtype(content)
    raise ValueError(f"no value is of the kind {kind!r}")


def read() -> list[Case]:
    """What has been recorded, in order."""
    with gzip.open(FILE, "rt") as file:
        return [tuple(case) for case in json.load(file)]


def target(name: str) -> Callable[..., Any]:
    """The function that a case calls; of a method, whose first argument is the array."""
    if name.startswith("__"):
        return getattr(aiodev.Array, name)  # type: ignore[no-any-return]
    return functools.reduce(getattr, name.split("."), array_api)  # type: ignore[return-value]
