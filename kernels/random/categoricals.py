"""Categorical and multinomial draws: classes by given weights, and how often each comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import whole_number, whole_numbers
from aiodev.kernels.random.philox import block, double_word
from aiodev.kernels.random.sampling import Shape, Sourced, prepare
from aiodev.lang import atomic_add

__all__ = ["MOST_ON_HOST", "Weights", "categorical", "count_weights", "draw_categories", "multinomial", "table_of"]

Weights = Sequence[float] | np.ndarray[Any, Any] | aiodev.Array
_ZERO, _TWO, _ELEVEN = np.uint64(0), np.uint64(2), np.uint64(11)
_ULP = np.float64(2.0**-53)
#: Weights that are summed and checked at the call; more are by a kernel.
MOST_ON_HOST = 1 << 16


@aiodev.kernel
def cumulate(i: Any, weights: Any, table: Any) -> None:
    """The running sums of the weights, and behind them the greatest number below the last."""
    total = 0.0
    for category in range(weights.shape[0]):
        weight = np.float64(weights[category])
        if not weight >= 0.0:
            raise ValueError("a weight is negative or NaN")
        total += weight
        table[category] = total
    if not (total > 0.0 and total < math.inf):
        raise ValueError("the weights' sum is not positive and finite")
    table[weights.shape[0]] = np.int64(np.float64(total).view(np.int64) - 1).view(np.float64)


def _find(word: Any, table: Any) -> Any:
    """The first category whose running sum exceeds a uniform part of the total; its weight is not 0."""
    categories = table.shape[0] - 1
    x = min(np.float64(np.int64(word >> _ELEVEN)) * _ULP * table[categories - 1], table[categories])
    low, high = 0, categories - 1
    while low < high:
        middle = (low + high) >> 1
        if table[middle] > x:
            high = middle
        else:
            low = middle + 1
    return low


def _categories(i: Any, seed: Any, offset: Any, table: Any, out: Any) -> None:
    w0, w1, w2, w3 = block((offset >> _TWO) + np.uint64(i), _ZERO, seed)
    out[2 * i] = _find(double_word(w0, w1), table)
    if 2 * i + 1 < out.shape[0]:
        out[2 * i + 1] = _find(double_word(w2, w3), table)


def _replayed_categories(i: Any, words: Any, offset: Any, table: Any, out: Any) -> None:
    _categories(i, words[0], words[1] + offset, table, out)


def _counts(i: Any, seed: Any, offset: Any, n: Any, total: Any, table: Any, out: Any) -> None:
    categories = table.shape[0] - 1
    w0, w1, w2, w3 = block((offset >> _TWO) + np.uint64(i), _ZERO, seed)
    atomic_add(out, 2 * i // n * categories + _find(double_word(w0, w1), table), 1)
    if 2 * i + 1 < total:
        atomic_add(out, (2 * i + 1) // n * categories + _find(double_word(w2, w3), table), 1)


def _replayed_counts(i: Any, words: Any, offset: Any, n: Any, total: Any, table: Any, out: Any) -> None:
    _counts(i, words[0], words[1] + offset, n, total, table, out)


_draw = Sourced("categorical", _categories, _replayed_categories)
_count = Sourced("multinomial", _counts, _replayed_counts)


@aiodev.operation(reads=["weights"], name="categorical")
def _cumulate(call: aiodev.Call, weights: aiodev.Array) -> aiodev.Array:
    table = call.new(weights.size + 1, np.float64)
    call.launch(cumulate, 1, weights, table)
    return table


def table_of(name: str, weights: Weights, device: aiodev.Device) -> aiodev.Array:
    """The running sums of weights, in device memory, and the number below their sum.

    Weights in host memory are checked here, unless they are so many that the loop would feel it; those on the device, when the
    kernel that sums them runs.
    """
    if isinstance(weights, aiodev.Array):
        if weights.ndim != 1 or weights.size == 0 or dtypes.kind(weights.dtype) not in "biuf":
            raise ValueError(
                f"{name}: p: expected real numbers in one dimension, got the shape {weights.shape} of {weights.dtype}"
            )
        if weights.device is not device:
            raise ValueError(f"{name}: p: expected an array on {device}, got one on {weights.device}")
        return _cumulate(weights)
    try:
        host = np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}: p: expected real numbers in one dimension, got {type(weights).__name__}") from None
    if host.ndim != 1 or host.size == 0:
        raise ValueError(f"{name}: p: expected weights in one dimension, got the shape {host.shape}")
    if host.size > MOST_ON_HOST:
        return table_of(name, aiodev.asarray(host, device=device), device)
    if not (host >= 0).all():
        raise ValueError(f"{name}: p: expected weights of 0 or more, got {host[~(host >= 0)][0]}")
    sums = np.cumsum(host)
    total = sums[-1]
    if not 0 < total < math.inf:
        raise ValueError(f"{name}: p: expected weights with a positive, finite sum, got {total}")
    return aiodev.asarray(np.append(sums, np.nextafter(total, 0)), device=device)


def count_weights(name: str, argument: str, weights: Weights) -> int:
    """How many there are.

    Raises:
        TypeError: there is nothing to count.
    """
    if isinstance(weights, aiodev.Array):
        return weights.size
    try:
        return len(weights)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {argument}: expected a sequence of numbers, got {type(weights).__name__}") from None


def draw_categories(table: aiodev.Array, generator: aiodev.Generator, out: aiodev.Array) -> None:
    """Fill ``out``, of one dimension, with categories."""
    count = out.size
    if count:
        _draw.submit(-(-count // 2), generator, 2 * count, table, out)


def categorical(
    p: Weights,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Numbers of categories, each with a probability in proportion to its weight in ``p``; int64 by default.

    The weights, on the host or the device, need not have the sum 1. They are summed in double precision; a uniform number
    of 53 bits is looked up among the sums. Two words for each element.

    Raises:
        KernelError: (where the array is waited for) weights on the device, or more than 65,536, are negative, NaN, or have no
            positive finite sum. They are added up ahead of the draw, so it is a :class:`~aiodev.DependencyError` mostly, whose
            first cause is a ``ValueError``.
        TypeError: the dtype is not one of integers.
        ValueError: fewer weights on the host are that; or the weights are not in one dimension.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> drawn = random.categorical([0, 3, 0, 1], 100, device="cpu").numpy_blocking()
        >>> sorted(set(drawn.tolist()))
        [1, 3]
    """
    target = prepare("categorical", shape, dtype, device, generator, out, "iu", np.int64, beside=p)
    with target.as_one():
        draw_categories(table_of("categorical", p, target.flat.device), target.generator, target.flat)
        return target.finish()


def multinomial(
    n: SupportsIndex,
    pvals: Weights,
    shape: Shape | None = None,
    *,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
) -> aiodev.Array:
    """How often each category comes in ``n`` draws: an int64 array of ``shape`` and one more dimension, for the categories.

    Weights are those of :func:`categorical`. Every draw is made, so the time is in proportion to ``n``; two words for each.

    Raises:
        KernelError: as :func:`categorical`.
        ValueError: ``n`` is negative, or as :func:`categorical`.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> counts = random.multinomial(100, [1, 2, 1], generator=g).numpy_blocking()
        >>> counts.shape, int(counts.sum())
        ((3,), 100)
    """
    draws = whole_number("multinomial", "n", n, least=0)
    lengths = () if shape is None else whole_numbers("multinomial: shape", shape)
    categories = count_weights("multinomial", "pvals", pvals)
    if device is None and generator is not None:
        device = getattr(generator, "device", None)  # of something else is told below
    if device is None and isinstance(pvals, aiodev.Array):
        device = pvals.device
    total = draws * math.prod(lengths)
    with aiodev.current_stream(device).as_one():
        counts = aiodev.zeros((*lengths, categories), np.int64, device)
        target = prepare("multinomial", None, None, None, generator, counts, "i")
        table = table_of("multinomial", pvals, counts.device)
        return target.fill(_count, -(-total // 2), 2 * total, draws, total, table) if total else counts
