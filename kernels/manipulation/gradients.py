"""Gradients of arrays that are put together of elements of others: taken apart again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import checked_axis, whole_numbers
from aiodev.kernels.creation import tril, triu
from aiodev.kernels.elementwise.difference import differences
from aiodev.kernels.elementwise.table import negative
from aiodev.kernels.indexing.gradients import scattered_places
from aiodev.kernels.manipulation import joining
from aiodev.kernels.manipulation.joining import concat, pad, roll, stack, tile
from aiodev.kernels.manipulation.views import unstack
from aiodev.kernels.reductions import sum


def _concat_gradient(g: Any, shapes: Any, axis: int | None) -> Sequence[aiodev.Array]:
    given = shapes["arrays"]
    at = 0 if axis is None else checked_axis("concat", axis, len(given[0]))
    parts, begin = [], 0
    for shape in given:
        end = begin + (math.prod(shape) if axis is None else shape[at])
        part = g[(slice(None),) * at + (slice(begin, end),)]
        parts.append(part.reshape(shape) if axis is None else part)
        begin = end
    return parts


def _roll_gradient(g: Any, shift: Any, axis: Any) -> aiodev.Array:
    back = [-own for own in whole_numbers("roll: shift", shift)]
    return roll(g, back if isinstance(shift, tuple | list) or np.ndim(shift) else back[0], axis=axis)


def _repeat_gradient(g: Any, shapes: Any, repeats: int, axis: int | None) -> aiodev.Array:
    shape = shapes["x"]
    seen = (math.prod(shape),) if axis is None else shape
    at = 0 if axis is None else checked_axis("repeat", axis, len(shape))
    if not g.size:
        return aiodev.zeros(shape, g.dtype, g.device)
    return sum(g.reshape(*seen[: at + 1], repeats, *seen[at + 1 :]), axis=at + 1).reshape(shape)


def _tile_gradient(g: Any, shapes: Any, repetitions: Any) -> aiodev.Array:
    shape = shapes["x"]
    times = whole_numbers("tile: repetitions", repetitions)
    times = (1,) * (len(shape) - len(times)) + times
    seen = (1,) * (len(times) - len(shape)) + shape
    if not g.size:
        return aiodev.zeros(shape, g.dtype, g.device)
    apart = g.reshape([length for pair in zip(times, seen, strict=True) for length in pair])
    return sum(apart, axis=tuple(range(0, 2 * len(times), 2))).reshape(shape) if times else g


def _pad_gradient(g: Any, shapes: Any, width: Any, mode: str) -> aiodev.Array:
    shape = shapes["x"]
    if mode == "constant":
        sides = np.broadcast_to(np.asarray(width), (len(shape), 2))
        middle: aiodev.Array = g[tuple(slice(int(b), int(b) + n) for n, (b, _) in zip(shape, sides, strict=True))]
        return middle
    return scattered_places(g, shape, lambda places: pad(places, width, mode))


def _differences_gradient(g: Any, axis: int) -> aiodev.Array:
    """What is before an element, minus what is behind it: differences of the opposite, with zeros around it."""
    widths = [(1, 1) if own == axis else (0, 0) for own in range(g.ndim)]
    return differences(pad(negative(g), widths), axis=axis)


concat.operation.gradient(arrays=_concat_gradient)
stack.operation.gradient(arrays=lambda g, axis: unstack(g, axis=axis))
roll.operation.gradient(x=_roll_gradient)
joining._repeat_all.operation.gradient(x=_repeat_gradient)
tile.operation.gradient(x=_tile_gradient)
differences.operation.gradient(x=_differences_gradient)
pad.operation.gradient(x=_pad_gradient)
tril.operation.gradient(x=lambda g, k: tril(g, k=k))
triu.operation.gradient(x=lambda g, k: triu(g, k=k))
