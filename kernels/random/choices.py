"""Choices from a population."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

import aiodev
from aiodev.kernels.arguments import array_of, flags, whole_number, whole_numbers
from aiodev.kernels.random.bounded_integers import bounded_again_64, integers, multiply_64
from aiodev.kernels.random.categoricals import MOST_ON_HOST, Weights, count_weights, draw_categories, table_of
from aiodev.kernels.random.permutations import permute, source, take_rows
from aiodev.kernels.random.philox import HALF, block, double_word
from aiodev.kernels.random.reproducible_math import negative_log_64
from aiodev.kernels.random.sampling import Shape, Sourced, draw_words, prepare
from aiodev.kernels.sorting import argsort
from aiodev.kernels.thread_block import has_teams

__all__ = ["choice"]

_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_HASH = np.uint64(0x9E3779B97F4A7C15)
#: A sample of less than this part of the population is drawn without making the population.
_SPARSE = 16
#: One of less than this part, by weight, is found by one worker that goes through the population once.
_FEW = 64


@aiodev.kernel
def clear(i: Any, value: Any, out: Any) -> None:
    """Fill with a value."""
    out[i] = value


def _slot(key: Any, keys: Any) -> Any:
    """Where a key is in an open-addressing table, or would go. Its length is a power of two; some of it stays empty."""
    mask = keys.shape[0] - 1
    slot = np.int64((np.uint64(key) * _HASH) >> HALF) & mask
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


def _sample(i: Any, seed: Any, offset: Any, population: Any, keys: Any, values: Any, out: Any) -> None:
    """The first exchanges of a shuffle of the population, of which only what was moved is kept."""
    first = offset >> _TWO
    for place in range(out.shape[0]):
        position = np.uint64(place)
        counter, which = first + (position >> _ONE), position & _ONE
        w0, w1, w2, w3 = block(counter, _ZERO, seed)
        span = np.uint64(population) - position
        threshold = (_ZERO - span) % span
        distance, rest = multiply_64(double_word(w0, w1) if which == _ZERO else double_word(w2, w3), span)
        if rest < threshold:
            distance = bounded_again_64(counter, which, seed, span, threshold)
        other = np.int64(place) + np.int64(distance)
        slot, here = _slot(other, keys), _slot(place, keys)
        out[place] = values[slot] if keys[slot] == other else other
        moved = values[here] if keys[here] == place else np.int64(place)
        keys[slot], values[slot] = other, moved


def _replayed_sample(i: Any, words: Any, offset: Any, population: Any, keys: Any, values: Any, out: Any) -> None:
    _sample(i, words[0], words[1] + offset, population, keys, values, out)


def _races(i: Any, seed: Any, offset: Any, weights: Any, times: Any) -> None:
    """When each element would arrive, at a rate that is its weight."""
    w0, w1, w2, w3 = block((offset >> _TWO) + np.uint64(i), _ZERO, seed)
    weight = np.float64(weights[2 * i])
    times[2 * i] = negative_log_64(double_word(w0, w1)) / weight if weight > 0.0 else math.inf
    if 2 * i + 1 < times.shape[0]:
        weight = np.float64(weights[2 * i + 1])
        times[2 * i + 1] = negative_log_64(double_word(w2, w3)) / weight if weight > 0.0 else math.inf


def _replayed_races(i: Any, words: Any, offset: Any, weights: Any, times: Any) -> None:
    _races(i, words[0], words[1] + offset, weights, times)


def _later(one: Any, other: Any, times: Any) -> Any:
    """Whether an element arrives after another; the greater index does where both arrive at once."""
    return times[one] > times[other] or (times[one] == times[other] and one > other)


def _sift(heap: Any, size: Any, times: Any) -> None:
    """Bring the first of a heap, the latest at the top, to its place."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return
        if child + 1 < size and _later(heap[child + 1], heap[child], times):
            child += 1
        if not _later(heap[child], heap[place], times):
            return
        heap[place], heap[child] = heap[child], heap[place]
        place = child


@aiodev.kernel
def first_arrivals(i: Any, times: Any, out: Any) -> None:
    """The elements that arrive first, in their order."""
    size = out.shape[0]
    filled = 0
    for element in range(times.shape[0]):
        if filled < size:  # sift up
            place = filled
            while place > 0 and _later(element, out[(place - 1) >> 1], times):
                out[place] = out[(place - 1) >> 1]
                place = (place - 1) >> 1
            out[place] = element
            filled += 1
        elif _later(out[0], element, times):
            out[0] = element
            _sift(out, size, times)
    if times[out[0]] == math.inf:
        raise ValueError("fewer elements have a weight than were to be chosen")
    for last in range(size - 1, 0, -1):
        out[0], out[last] = out[last], out[0]
        _sift(out, last, times)


@aiodev.kernel
def take_arrivals(i: Any, times: Any, order: Any, out: Any) -> None:
    """The elements that arrive first, taken from the order of all."""
    if times[order[i]] == math.inf:
        raise ValueError("fewer elements have a weight than were to be chosen")
    out[i] = order[i]


_draw_sample = Sourced("choice", _sample, _replayed_sample)
_draw_races = Sourced("choice", _races, _replayed_races)


def choice(
    a: SupportsIndex | aiodev.Array,
    shape: Shape | None = None,
    replace: bool = True,
    p: Weights | None = None,
    *,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Elements of a population: of the numbers below ``a``, as int64, or of the rows of an array.

    With ``replace`` each choice is made from all of them, else from those that were not chosen before; the order is that of
    choosing. Without weights each is exactly equally likely. With weights ``p``, which are those of
    :func:`categorical`, each choice falls on an element with a probability in proportion to its weight among those that
    are left.

    Raises:
        KernelError: (where the array is waited for) weights on the device as for :func:`categorical`, or, without ``replace``,
            fewer that are not 0 than are to be chosen.
        ValueError: the population is empty, or too small to choose so many from without ``replace``, or the number of
            weights is another; weights on the host as for :func:`categorical`.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> hand = random.choice(52, 5, replace=False, device="cpu").numpy_blocking()
        >>> len(set(hand.tolist()))
        5
    """
    if out is not None:
        array_of("choice", out, "out")
    flags("choice", replace=replace)
    rows = a if isinstance(a, aiodev.Array) else None
    if rows is not None and rows.ndim == 0:
        raise ValueError("choice: an array of no dimensions has no rows to choose from")
    population = a.shape[0] if isinstance(a, aiodev.Array) else whole_number("choice", "a", a)
    if device is None:
        device = next((x.device for x in (rows, out, p if generator is None else None) if isinstance(x, aiodev.Array)), None)
    generator = source("choice", device, generator)
    if shape is None and out is not None:
        lengths = out.shape[: out.ndim - (0 if rows is None else rows.ndim - 1)]
    else:
        lengths = () if shape is None else whole_numbers("choice: shape", shape)
    count = math.prod(lengths)
    _check("choice", population, count, replace, p)
    if rows is None:
        target = prepare("choice", lengths, np.int64, None, generator, out, "i")
        with target.as_one():
            _choose(population, replace, p, generator, target.flat)
            return target.finish()
    target = prepare("choice", (*lengths, *rows.shape[1:]), rows.dtype, None, generator, out, "biufc")
    chosen = aiodev.empty(count, np.int64, generator.device)
    with target.as_one():
        _choose(population, replace, p, generator, chosen)
        take_rows(rows, chosen, target.flat)
        return target.finish()


def _check(name: str, population: int, count: int, replace: bool, p: Weights | None) -> None:
    if population < 0 or (population == 0 and count):
        raise ValueError(f"{name}: there is nothing to choose from among {population}")
    if not replace and count > population:
        raise ValueError(f"{name}: {count} of {population} cannot be chosen without replacement")
    if p is None:
        return
    weights = count_weights(name, "p", p)
    if weights != population:
        raise ValueError(f"{name}: p: expected {population} weights, one for each element, got {weights}")
    if replace or isinstance(p, aiodev.Array) or weights > MOST_ON_HOST:
        return
    if count > (able := int(np.count_nonzero(np.asarray(p)))):
        raise ValueError(f"{name}: {count} cannot be chosen without replacement: only {able} weights are not 0")


def _choose(population: int, replace: bool, p: Weights | None, generator: aiodev.Generator, out: aiodev.Array) -> None:
    """Fill ``out``, of one dimension, with indices."""
    count = out.size
    if not count:
        return
    if p is not None and replace:
        draw_categories(table_of("choice", p, out.device), generator, out)
    elif p is not None:
        _choose_by_weight(p, generator, out)
    elif replace:
        integers(population, generator=generator, out=out)
    elif count * _SPARSE < population:
        _choose_few(*draw_words(generator, 2 * count), population, out)
    else:
        out.copy_from(permute(population, generator)[:count])


def _choose_by_weight(p: Weights, generator: aiodev.Generator, out: aiodev.Array) -> None:
    """The first arrivals of a race in which each element's time is exponential, at the rate of its weight.

    P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    table_of("choice", p, out.device)  # checks the weights
    weights = p if isinstance(p, aiodev.Array) else aiodev.asarray(np.asarray(p, np.float64), device=out.device)
    population = weights.size
    times = aiodev.empty(population, np.float64, out.device)
    _draw_races.submit(-(-population // 2), generator, 2 * population, weights, times)
    if out.size * _FEW < population and not has_teams(out.device):
        _find_first(times, out)
    else:
        _take_first(times, argsort(times), out)


@aiodev.operation(reads=["source"], numbers=["source", "offset", "population"], writes="out", name="choice")
def _choose_few(call: aiodev.Call, source: Any, offset: Any, population: int, out: aiodev.Array) -> aiodev.Array:
    """Few of many, without replacement."""
    slots = 1 << (2 * out.size).bit_length()
    keys, values = (call.scratch(slots, np.int64) for _ in range(2))
    call.launch(clear, slots, -1, keys)
    _draw_sample.launch(call, 1, source, offset, population, keys, values, out)
    return out


@aiodev.operation(reads=["times"], writes="out", name="choice")
def _find_first(call: aiodev.Call, times: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
    call.launch(first_arrivals, 1, times, out)
    return out


@aiodev.operation(reads=["times", "order"], writes="out", name="choice")
def _take_first(call: aiodev.Call, times: aiodev.Array, order: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
    call.launch(take_arrivals, out.size, times, order, out)
    return out
