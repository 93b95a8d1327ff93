"""Integers of a range, every one equally likely.

D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 29 (2019): the upper half of word * span is the result,
unless the lower half is below 2**bits % span, when the word is rejected. An element whose word is rejected takes the
same word of the next block with its own counter (the counter's upper half counts attempts), so every element keeps
to itself, and the common case is a loop without branches.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

import aiodev
from aiodev.kernels.arguments import flags
from aiodev.kernels.random.philox import HALF, LOW, block, double_word
from aiodev.kernels.random.sampling import Body, Shape, Sourced, blocks_of, prepare

__all__ = ["bounded_again", "bounded_again_64", "integers", "multiply_64"]

_ZERO, _ONE, _TWO, _THREE, _FOUR = (np.uint64(number) for number in range(5))


def bounded_again(counter: Any, which: Any, seed: Any, span: Any, threshold: Any) -> Any:
    """The number for an element whose word, the one of that number in its block, was rejected."""
    attempt = _ZERO
    while True:
        attempt += _ONE
        w0, w1, w2, w3 = block(counter, attempt, seed)
        word = (w0 if which == _ZERO else w1) if which < _TWO else (w2 if which == _TWO else w3)
        product = word * span
        if (product & LOW) >= threshold:
            return product >> HALF


def multiply_64(x: Any, y: Any) -> Any:
    """The upper and the lower 64 bits of a product; a ``y`` of 0 stands for 2**64."""
    x0, x1, y0, y1 = x & LOW, x >> HALF, y & LOW, y >> HALF
    low, middle = x0 * y0, x1 * y0
    middle = middle + (low >> HALF)
    other = x0 * y1 + (middle & LOW)
    upper = x1 * y1 + (middle >> HALF) + (other >> HALF)
    return (x if y == _ZERO else upper), (other << HALF) | (low & LOW)


def bounded_again_64(counter: Any, which: Any, seed: Any, span: Any, threshold: Any) -> Any:
    """The number for an element of two words, the pair of that number in its block, that were rejected."""
    attempt = _ZERO
    while True:
        attempt += _ONE
        w0, w1, w2, w3 = block(counter, attempt, seed)
        upper, lower = multiply_64(double_word(w0, w1) if which == _ZERO else double_word(w2, w3), span)
        if lower >= threshold:
            return upper


def _fill_narrow(runs: int) -> Body:
    """For spans of up to 2**32: four elements from each block."""
    run = np.uint64(runs)

    def fill(i: Any, seed: Any, offset: Any, low: Any, span: Any, threshold: Any, out: Any) -> None:
        first = np.uint64(i) * run
        counter = (offset >> _TWO) + first
        size = np.uint64(out.size)
        whole = (first + run) * _FOUR <= size
        rejected = 0
        if whole:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                p0, p1, p2, p3 = w0 * span, w1 * span, w2 * span, w3 * span
                place = (first + np.uint64(lane)) * _FOUR
                out[place] = low + (p0 >> HALF)
                out[place + _ONE] = low + (p1 >> HALF)
                out[place + _TWO] = low + (p2 >> HALF)
                out[place + _THREE] = low + (p3 >> HALF)
                least = min(min(p0 & LOW, p1 & LOW), min(p2 & LOW, p3 & LOW))
                rejected |= least < threshold
        if rejected or not whole:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                for k in range(4):
                    place = (first + np.uint64(lane)) * _FOUR + np.uint64(k)
                    if place < size:
                        product = ((w0 if k == 0 else w1) if k < 2 else (w2 if k == 2 else w3)) * span
                        distance = product >> HALF
                        if (product & LOW) < threshold:
                            distance = bounded_again(counter + np.uint64(lane), np.uint64(k), seed, span, threshold)
                        out[place] = low + distance

    return fill


def _fill_wide(runs: int) -> Body:
    """For spans of more than 2**32: two elements from each block. A span of 0 stands for 2**64."""
    run = np.uint64(runs)

    def fill(i: Any, seed: Any, offset: Any, low: Any, span: Any, threshold: Any, out: Any) -> None:
        first = np.uint64(i) * run
        counter = (offset >> _TWO) + first
        size = np.uint64(out.size)
        whole = (first + run) * _TWO <= size
        rejected = 0
        if whole:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                upper0, lower0 = multiply_64(double_word(w0, w1), span)
                upper1, lower1 = multiply_64(double_word(w2, w3), span)
                place = (first + np.uint64(lane)) * _TWO
                out[place] = low + upper0
                out[place + _ONE] = low + upper1
                rejected |= min(lower0, lower1) < threshold
        if rejected or not whole:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                for k in range(2):
                    place = (first + np.uint64(lane)) * _TWO + np.uint64(k)
                    if place < size:
                        distance, lower = multiply_64(double_word(w0, w1) if k == 0 else double_word(w2, w3), span)
                        if lower < threshold:
                            distance = bounded_again_64(counter + np.uint64(lane), np.uint64(k), seed, span, threshold)
                        out[place] = low + distance

    return fill


_kernels: dict[tuple[bool, int], Sourced] = {}


def _kernel(wide: bool, runs: int) -> Sourced:
    kernel = _kernels.get((wide, runs))
    if kernel is None:
        fill = _fill_wide(runs) if wide else _fill_narrow(runs)

        def replayed(i: Any, words: Any, offset: Any, low: Any, span: Any, threshold: Any, out: Any) -> None:
            fill(i, words[0], words[1] + offset, low, span, threshold, out)

        kernel = _kernels[wide, runs] = Sourced("integers", fill, replayed)
    return kernel


def integers(
    low: SupportsIndex,
    high: SupportsIndex | None = None,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    endpoint: bool = False,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Integers from ``low`` up to ``high``, without it unless ``endpoint``; from 0 up to ``low`` if that is the only bound.

    Each is exactly equally likely. One word for each element, two where the range has more than 2**32 numbers; the numbers do
    not depend on the dtype (int64 by default).

    Raises:
        TypeError: a bound is no integer, or the dtype is not one of integers or bool.
        ValueError: the range is empty, or not within the dtype's.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> dice = random.integers(1, 6, 1000, dtype="int8", endpoint=True, device="cpu").numpy_blocking()
        >>> int(dice.min()), int(dice.max())
        (1, 6)
    """
    try:
        first, last = (0, operator.index(low)) if high is None else (operator.index(low), operator.index(high))
    except TypeError:
        raise TypeError(f"integers: expected integers as bounds, got {low!r} and {high!r}") from None
    flags("integers", endpoint=endpoint)
    last -= not endpoint
    if first > last:
        raise ValueError(f"integers: there is no integer from {first} to {last}")
    target = prepare("integers", shape, dtype, device, generator, out, "iub", np.int64)
    kind = target.array.dtype
    least, greatest = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    if first < least or last > greatest:
        raise ValueError(f"integers: from {first} to {last} was asked for, {kind} goes from {least} to {greatest}")
    span = last - first + 1
    wide = span > 1 << 32
    count = target.flat.size
    if not count:
        return target.array
    bits = 64 if wide else 32
    threshold = (1 << bits) % span
    runs = blocks_of(target.flat.device)
    words = 2 * count if wide else count
    numbers = (np.uint64(number % (1 << 64)) for number in (first, span, threshold))
    return target.fill(_kernel(wide, runs), -(-words // (4 * runs)), words, *numbers)
