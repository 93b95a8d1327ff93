"""Launch configuration: the shape and the stream between the brackets of a launch."""

from __future__ import annotations

import math
import operator
from typing import Any

from aiodev._core.errors import LaunchError
from aiodev._core.streams.stream import Stream

__all__ = ["LineConfig", "LaunchConfig", "parse_config"]

#: (number of indices, lengths, stream or None for the current one).
LaunchConfig = tuple[int, tuple[int, ...], Stream | None]
#: What a launch over one dimension is told instead, since it is cheaper to make: a length, with a stream or without.
LineConfig = int | tuple[int, Stream]

_MOST = 2**63 - 1


def parse_config(kernel: str, ndim: int, asked: Any) -> LaunchConfig:
    """Read ``shape`` or ``(shape, stream)``; a shape is an int or a tuple of ``ndim`` ints.

    Raises:
        LaunchError: it is neither, or has another number of dimensions, or a negative length, or 2**63 indices or more.
    """
    stream: Stream | None = None
    if asked.__class__ is tuple:  # as usual: what follows takes four times as long
        lengths = asked
        if asked and asked[-1].__class__ is Stream:
            stream, lengths = asked[-1], asked[:-1]
            if len(lengths) == 1 and lengths[0].__class__ is tuple:
                lengths = lengths[0]
        if len(lengths) == ndim:
            for length in lengths:
                if length.__class__ is not int or length < 0:
                    break
            else:
                size = math.prod(lengths)
                if 0 < size <= _MOST:
                    return size, lengths, stream
        stream = None
    shape = asked
    if isinstance(asked, tuple) and asked and isinstance(asked[-1], Stream):
        stream, shape = asked[-1], asked[:-1]
        if len(shape) == 1:
            shape = shape[0]
    given = shape if isinstance(shape, tuple | list) else (shape,)
    try:
        lengths = tuple(operator.index(length) for length in given)
    except TypeError:
        raise LaunchError(kernel, "shape", _expected(ndim), repr(asked)) from None
    if len(lengths) != ndim:
        raise LaunchError(kernel, "shape", _expected(ndim), f"{len(lengths)} dimension(s): {asked!r}")
    if any(length < 0 for length in lengths):
        raise LaunchError(kernel, "shape", "lengths of 0 or more", repr(shape))
    size = math.prod(lengths)
    if max(size, *lengths) > _MOST:
        raise LaunchError(kernel, "shape", "fewer than 2**63 indices", repr(shape))
    return size, lengths, stream


def _expected(ndim: int) -> str:
    return "an int" if ndim == 1 else f"a tuple of {ndim} ints"
