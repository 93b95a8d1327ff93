"""Permutations, every one equally likely, and shuffles.

The method is that of C. R. Rao ("Generation of random permutations of given number of elements using random sampling numbers",
1961) and M. Sandelius (1962), in one level: each element goes to a bucket that is drawn for it, elements of a bucket keep
their order, and then each bucket is shuffled by itself (R. A. Fisher and F. Yates; R. Durstenfeld, 1964). The result is
exactly uniform, which sorting by random keys is only but for ties, and a cipher over the indices is not at all. Counting,
distributing and shuffling run in parallel, over pieces whose number depends on the length alone, and so do the words that
they take: element i's bucket is word i, and the exchange at position p takes word p of a second series.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

import aiodev
from aiodev.kernels.arguments import checked_axis, whole_number, written
from aiodev.kernels.random.bounded_integers import bounded_again
from aiodev.kernels.random.philox import HALF, LOW, block
from aiodev.kernels.random.sampling import Sourced, prepare
from aiodev.kernels.random.uniforms import random_raw

__all__ = ["permutation", "permute", "shuffle", "source", "take_rows"]

#: Elements in a bucket, about: they stay in a core's cache while they are shuffled.
_BUCKET = 4096
_MOST_BUCKETS = 4096
_PIECES = 64
_ZERO, _ONE, _TWO, _THREE = (np.uint64(small) for small in range(4))
_SPAN_LIMIT = np.uint64(1 << 32)


@aiodev.kernel
def count_buckets(i: Any, length: Any, shift: Any, words: Any, counts: Any) -> None:
    """How many elements of piece ``i`` go to each bucket."""
    for bucket in range(counts.shape[1]):
        counts[i, bucket] = 0
    for element in range(i * length, min((i + 1) * length, words.shape[0])):
        counts[i, words[element] >> shift] += 1


@aiodev.kernel
def place_buckets(i: Any, counts: Any, starts: Any) -> None:
    """Where each bucket begins, and where in it each piece's elements go."""
    total = 0
    for bucket in range(counts.shape[1]):
        starts[bucket] = total
        for piece in range(counts.shape[0]):
            count = counts[piece, bucket]
            counts[piece, bucket] = total
            total += count
    starts[counts.shape[1]] = total


@aiodev.kernel
def distribute(i: Any, length: Any, shift: Any, words: Any, counts: Any, out: Any) -> None:
    """Write the indices of piece ``i`` to their buckets."""
    for element in range(i * length, min((i + 1) * length, words.shape[0])):
        bucket = words[element] >> shift
        place = counts[i, bucket]
        out[place] = element
        counts[i, bucket] = place + 1


def _exchange(start: Any, end: Any, seed: Any, offset: Any, out: Any) -> None:
    """Shuffle the elements from ``start`` up to ``end``; a word that is rejected is replaced as for integers."""
    first = offset >> _TWO
    counter = first - _ONE  # no block yet
    w0 = w1 = w2 = w3 = _ZERO
    for place in range(end - 1, start, -1):
        position = np.uint64(place)
        which = position & _THREE
        if first + (position >> _TWO) != counter:
            counter = first + (position >> _TWO)
            w0, w1, w2, w3 = block(counter, _ZERO, seed)
        span = np.uint64(place - start + 1)
        product = ((w0 if which == _ZERO else w1) if which < _TWO else (w2 if which == _TWO else w3)) * span
        distance = product >> HALF
        if (product & LOW) < span:
            threshold = _SPAN_LIMIT % span
            if (product & LOW) < threshold:
                distance = bounded_again(counter, which, seed, span, threshold)
        other = start + np.int64(distance)
        here = out[place]
        out[place] = out[other]
        out[other] = here


def _shuffle_bucket(i: Any, seed: Any, offset: Any, starts: Any, out: Any) -> None:
    _exchange(starts[i], starts[i + 1], seed, offset, out)


def _replayed_bucket(i: Any, words: Any, offset: Any, starts: Any, out: Any) -> None:
    _shuffle_bucket(i, words[0], words[1] + offset, starts, out)


def _order(i: Any, seed: Any, offset: Any, out: Any) -> None:
    """A permutation of one bucket; there is one index."""
    for place in range(out.shape[0]):
        out[place] = place
    _exchange(0, out.shape[0], seed, offset, out)


def _replayed_order(i: Any, words: Any, offset: Any, out: Any) -> None:
    _order(i, words[0], words[1] + offset, out)


_shuffle_buckets = Sourced("permutation", _shuffle_bucket, _replayed_bucket)
_shuffle_all = Sourced("permutation", _order, _replayed_order)


@aiodev.kernel
def take_elements(i: Any, x: Any, indices: Any, out: Any) -> None:
    """One element."""
    out[i] = x[indices[i]]


@aiodev.kernel(ndim=2)
def take_parts(i: Any, j: Any, x: Any, indices: Any, out: Any) -> None:
    """One element of a row."""
    out[i, j] = x[indices[i], j]


def permute(n: int, generator: aiodev.Generator, out: aiodev.Array | None = None) -> aiodev.Array:
    """A permutation of ``range(n)``, as int64; ``out`` has one dimension and no gaps."""
    if out is None:
        out = aiodev.empty(n, np.int64, generator.device)
    if n == 0:
        return out
    if n <= _BUCKET:
        return _shuffle_all.submit(1, generator, n, out)
    buckets = 2
    while buckets * _BUCKET < n and buckets < _MOST_BUCKETS:
        buckets *= 2
    starts = _fill_buckets(random_raw(n, generator=generator), out, buckets)
    return _shuffle_buckets.submit(buckets, generator, n, starts, out)


@aiodev.operation(reads=["words"], writes="out", name="permutation")
def _fill_buckets(call: aiodev.Call, words: aiodev.Array, out: aiodev.Array, buckets: int) -> aiodev.Array:
    """Write each element to the bucket that its word says; gives where the buckets begin."""
    n = words.size
    starts, counts = call.new(buckets + 1, np.int64), call.scratch((_PIECES, buckets), np.int64)
    length, shift = -(-n // _PIECES), 33 - buckets.bit_length()
    call.launch(count_buckets, _PIECES, length, shift, words, counts)
    call.launch(place_buckets, 1, counts, starts)
    call.launch(distribute, _PIECES, length, shift, words, counts, out)
    return starts


@aiodev.operation(reads=["x", "indices"], writes="out", name="permutation")
def take_rows(call: aiodev.Call, x: aiodev.Array, indices: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
    """Write the rows of ``x`` with these indices, of one dimension, to ``out``, which has no gaps."""
    rows = indices.size
    if out.size and x.ndim == 1:
        call.launch(take_elements, rows, x, indices, out.reshape(rows))
    elif out.size:
        columns = out.size // rows
        parts = x.reshape(x.shape[0], columns), indices, out.reshape(rows, columns)
        call.launch(take_parts, (rows, columns), *parts)
    return out


def source(name: str, device: aiodev.DeviceLike | None, generator: aiodev.Generator | None) -> aiodev.Generator:
    """The generator of a draw that makes more than one array."""
    if generator is None:
        return aiodev.default_generator(device)
    if not isinstance(generator, aiodev.Generator):
        raise TypeError(f"{name}: generator: expected an aiodev.Generator, got {type(generator).__name__}")
    if device is not None and generator.device is not (asked := aiodev.current_stream(device).device):
        raise ValueError(f"{name}: generator: expected one for {asked}, got one for {generator.device}")
    return generator


def permutation(
    x: SupportsIndex | aiodev.Array,
    *,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The numbers below ``x`` in random order, as int64; or a copy of an array with its rows in random order.

    Every order is equally likely.

    Raises:
        ValueError: ``x`` is negative, or an array of no dimensions.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> sorted(random.permutation(5, device="cpu").numpy_blocking().tolist())
        [0, 1, 2, 3, 4]
    """
    if isinstance(x, aiodev.Array):
        if x.ndim == 0:
            raise ValueError("permutation: an array of no dimensions has no rows to permute")
        target = prepare("permutation", x.shape, x.dtype, x.device, generator, out, "biufc")
        with target.as_one():
            take_rows(x, permute(x.shape[0], target.generator), target.flat)
            return target.finish()
    n = whole_number("permutation", "x", x, least=0)
    target = prepare("permutation", n, np.int64, device, generator, out, "i")
    with target.as_one():
        permute(n, target.generator, target.flat)
        return target.finish()


def shuffle(x: aiodev.Array, axis: int = 0, *, generator: aiodev.Generator | None = None) -> aiodev.Array:
    """Put the rows of an array in random order, in place; or its parts along another axis. Returns the array.

    Raises:
        TypeError: it is no array.
        ValueError: it has no such axis.
        LaunchError: it is read-only.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> x = aiodev.arange(6, device="cpu")
        >>> random.shuffle(x, generator=g) is x
        True
        >>> sorted(x.numpy_blocking().tolist())
        [0, 1, 2, 3, 4, 5]
    """
    if not isinstance(x, aiodev.Array):
        raise TypeError(f"shuffle: expected an aiodev.Array, got {type(x).__name__}")
    axis = checked_axis("shuffle", axis, x.ndim)
    written("shuffle", x=x)
    view = x if axis == 0 else x.transpose(axis, *(other for other in range(x.ndim) if other != axis))
    target = prepare("shuffle", None, None, None, generator, view, "biufc")
    before = aiodev.empty_like(view)
    with target.as_one():
        before.copy_from(view)
        take_rows(before, permute(view.shape[0], target.generator), target.flat)
        target.finish()
    return x
