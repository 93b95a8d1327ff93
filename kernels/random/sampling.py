"""Sampling: where random numbers go, which words they take, and the kernels that fill an array with them.

An array is filled in C order: so many elements for each block of four words, block after block from the draw's offset. What
an element becomes depends on its words alone. Hence neither the size of a piece of the range nor the number of threads
changes a bit. On the CPU an index of the launch is a run of blocks, whose loop the compiler turns into vector code.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import dtype_of, whole_numbers, written
from aiodev.kernels.random.philox import block

__all__ = ["Fill", "Sourced", "Target", "blocks_of", "draw_words", "is_packed", "prepare"]

DType = np.dtype[Any]
Shape = int | tuple[int, ...]
Body = Callable[..., None]

#: Blocks of four words for each index on the CPU: a multiple of any vector's length. On other devices there is one.
_CPU_BLOCKS = 16
_ZERO, _TWO, _FOUR = np.uint64(0), np.uint64(2), np.uint64(4)
_EXPECTED = {"f": "float16, bfloat16, float32 or float64", "u": "uint32"}


@dataclass(slots=True)
class Target:
    """Where a draw goes.

    Attributes:
        array: what the caller is given.
        flat: what a kernel fills: one dimension, no gaps.
        generator: what to draw from.
        copied: whether ``flat`` is to be copied to ``array``, which has gaps.
    """

    array: aiodev.Array
    flat: aiodev.Array
    generator: aiodev.Generator
    copied: bool

    def as_one(self) -> contextlib.AbstractContextManager[None]:
        """A block for what draws, and finishes: where there is no room for it, nothing is drawn."""
        return aiodev.current_stream(self.array.device).as_one()

    def fill(self, kernel: Sourced, size: int, words: int, *numbers: Any) -> aiodev.Array:
        """Draw by a kernel of ``size`` indices, which takes numbers and what it fills; returns the array."""
        with self.as_one():
            kernel.submit(size, self.generator, words, *numbers, self.flat)
            return self.finish()

    def finish(self) -> aiodev.Array:
        """The array, to which what was filled is copied if need be."""
        if self.copied and self.array.size:
            self.array.copy_from(self.flat.reshape(self.array.shape))
        return self.array


def prepare(
    name: str,
    shape: Shape | None,
    dtype: Any,
    device: aiodev.DeviceLike | None,
    generator: aiodev.Generator | None,
    out: aiodev.Array | None,
    kinds: str = "f",
    default: Any = np.float64,
    beside: Any = None,
) -> Target:
    """Check what a draw was asked for, and make its array if none was given. ``kinds`` are the dtypes that it can fill.

    Where nothing says on which device, it is that of ``beside``, if that is an array.
    """
    if out is not None:
        array = _check_out(name, out, shape, dtype, device)
    else:
        if device is None and generator is not None:
            device = getattr(generator, "device", None)
        if device is None and isinstance(beside, aiodev.Array):
            device = beside.device
        array = aiodev.empty(() if shape is None else shape, default if dtype is None else dtype, device)
    if dtypes.kind(array.dtype) not in kinds:
        raise TypeError(f"{name}: dtype: expected {_EXPECTED.get(kinds, 'a real number')}, got {array.dtype}")
    if generator is None:
        generator = aiodev.default_generator(array.device)
    elif not isinstance(generator, aiodev.Generator):
        raise TypeError(f"{name}: generator: expected an aiodev.Generator, got {type(generator).__name__}")
    elif generator.device is not array.device:
        raise ValueError(
            f"{name}: generator: expected one for {array.device}, got one for {generator.device}; "
            f"set_state() gives a generator for {array.device} its state"
        )
    if is_packed(array):
        return Target(array, array if array.ndim == 1 else array.reshape(array.size), generator, False)
    return Target(array, aiodev.empty(array.size, array.dtype, array.device), generator, True)


def _check_out(name: str, out: Any, shape: Shape | None, dtype: Any, device: aiodev.DeviceLike | None) -> aiodev.Array:
    if not isinstance(out, aiodev.Array):
        raise TypeError(f"{name}: out: expected an aiodev.Array, got {type(out).__name__}")
    if shape is not None and out.shape != whole_numbers(f"{name}: shape", shape):
        raise ValueError(f"{name}: out: expected the shape {shape}, got {out.shape}; leave out the one or the other")
    if (wanted := dtype_of(name, dtype)) is not None and out.dtype != wanted:
        raise TypeError(f"{name}: out: expected {wanted}, got {out.dtype}; leave out the one or the other")
    if device is not None and (asked := aiodev.current_stream(device).device) != out.device:
        raise ValueError(f"{name}: out: expected an array on {asked}, got one on {out.device}")
    written(name, out=out)
    return out


def is_packed(array: aiodev.Array) -> bool:
    """Whether it lies in memory in C order without gaps."""
    expected = array.itemsize
    if array.ndim == 1:
        return array.strides[0] == expected or array.shape[0] <= 1
    for length, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if length != 1 and stride != expected:
            return array.size == 0
        expected *= length
    return True


def blocks_of(device: aiodev.Device) -> int:
    """How many blocks of four words an index of a launch makes."""
    return 1 if aiodev.capabilities(device).simt else _CPU_BLOCKS


class Sourced:
    """An operation that draws, of a kernel in two forms: one is given seed and offset, the other a state on the device.

    What a generator gives is another thing at every call, so it is an operand, and no part of what is remembered.

    Args:
        name: under which errors and traces show it.
        body: takes an index, the seed, the offset, its own arguments, and last what it fills.
        replayed: takes an index, the words of a state, an offset from what they say, and the same arguments.
    """

    def __init__(self, name: str, body: Body, replayed: Body) -> None:
        for function in (body, replayed):
            function.__name__ = function.__qualname__ = name
        self._direct = aiodev.kernel(body)
        self._replayed = aiodev.kernel(replayed)
        *own, out = list(inspect.signature(body).parameters)[3:]

        def draw(call: aiodev.Call, size: int, source: Any, offset: Any, *args: Any) -> aiodev.Array:
            self.launch(call, size, source, offset, *args)
            filled: aiodev.Array = args[-1]
            return filled

        kind = inspect.Parameter.POSITIONAL_ONLY
        names = ("call", "size", "source", "offset", *own, out)
        draw.__signature__ = inspect.Signature([inspect.Parameter(own, kind) for own in names])  # type: ignore[attr-defined]
        numbers = ["source", "offset", *own]
        make = aiodev.operation(reads=["source", *own], numbers=numbers, writes=out, name=name)
        self._draw: Callable[..., aiodev.Array] = make(draw)

    def submit(self, size: int, generator: aiodev.Generator, words: int, *args: Any) -> aiodev.Array:
        """Reserve ``words`` and submit what uses them; gives what is filled."""
        return self._draw(size, *draw_words(generator, words), *args)

    def launch(self, call: aiodev.Call, size: int, source: Any, offset: Any, *args: Any) -> None:
        """Launch it as a part of a call, with what :func:`draw_words` gave."""
        kernel = self._replayed if isinstance(source, aiodev.Array) else self._direct
        call.launch(kernel, size, source, offset, *args)


def draw_words(generator: aiodev.Generator, words: int) -> tuple[Any, Any]:
    """Reserve words of a generator: its seed or where it is on the device, and the offset of the first word there."""
    seed, offset, refilled = generator.reserve(words)
    return np.uint64(seed) if refilled is None else refilled, np.uint64(offset)


class Fill:
    """A distribution whose every element is a function of some words of one block.

    Args:
        name: of the function that users call.
        single: from four words and three numbers to four elements, for dtypes of up to 32 bits.
        double: from four words and three numbers to two elements, for dtypes of 64 bits; None if they need no more words.
        stored: from how many binary digits a dtype has to what is as ``single`` for it; for dtypes that are only stored, where
            their numbers are not to be rounded from single ones.
    """

    def __init__(
        self,
        name: str,
        single: Callable[..., Any],
        double: Callable[..., Any] | None,
        stored: Callable[[int], Callable[..., Any]] | None = None,
    ) -> None:
        self.name = name
        self._single = single
        self._double = double
        self._stored = stored
        self._kernels: dict[tuple[Any, int], Sourced] = {}

    def __call__(self, target: Target, a: Any, b: Any, c: Any) -> aiodev.Array:
        """Submit it; returns the array. The numbers are NumPy scalars."""
        flat = target.flat
        (count,) = flat.shape
        if not count:
            return target.array
        values, per_block = self._single, 4
        if flat.itemsize == 8 and self._double is not None:
            values, per_block = self._double, 2
        elif self._stored is not None and dtypes.is_stored_only(flat.dtype):
            values = self._stored(dtypes.digits(flat.dtype))
        runs = blocks_of(flat.device)
        blocks = -(-count // per_block)
        kernel = self._kernel(values, per_block, runs)
        return target.fill(kernel, -(-blocks // runs), 4 * blocks, a, b, c)

    def _kernel(self, values: Any, per_block: int, runs: int) -> Sourced:
        kernel = self._kernels.get((values, runs))
        if kernel is None:
            fill = _fill_pairs(values, runs) if per_block == 2 else _fill_fours(values, runs)

            def replayed(i: Any, words: Any, offset: Any, a: Any, b: Any, c: Any, out: Any) -> None:
                fill(i, words[0], words[1] + offset, a, b, c, out)

            kernel = self._kernels[values, runs] = Sourced(self.name, fill, replayed)
        return kernel


def _fill_fours(values: Any, runs: int) -> Body:
    run = np.uint64(runs)

    def fill(i: Any, seed: Any, offset: Any, a: Any, b: Any, c: Any, out: Any) -> None:
        first = np.uint64(i) * run
        counter = (offset >> _TWO) + first
        size = np.uint64(out.size)
        if (first + run) * _FOUR <= size:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                v0, v1, v2, v3 = values(w0, w1, w2, w3, a, b, c)
                place = (first + np.uint64(lane)) * _FOUR
                out[place] = v0
                out[place + np.uint64(1)] = v1
                out[place + np.uint64(2)] = v2
                out[place + np.uint64(3)] = v3
        else:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                v0, v1, v2, v3 = values(w0, w1, w2, w3, a, b, c)
                place = (first + np.uint64(lane)) * _FOUR
                if place < size:
                    out[place] = v0
                if place + np.uint64(1) < size:
                    out[place + np.uint64(1)] = v1
                if place + np.uint64(2) < size:
                    out[place + np.uint64(2)] = v2
                if place + np.uint64(3) < size:
                    out[place + np.uint64(3)] = v3

    return fill


def _fill_pairs(values: Any, runs: int) -> Body:
    run = np.uint64(runs)

    def fill(i: Any, seed: Any, offset: Any, a: Any, b: Any, c: Any, out: Any) -> None:
        first = np.uint64(i) * run
        counter = (offset >> _TWO) + first
        size = np.uint64(out.size)
        if (first + run) * _TWO <= size:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                v0, v1 = values(w0, w1, w2, w3, a, b, c)
                place = (first + np.uint64(lane)) * _TWO
                out[place] = v0
                out[place + np.uint64(1)] = v1
        else:
            for lane in range(runs):
                w0, w1, w2, w3 = block(counter + np.uint64(lane), _ZERO, seed)
                v0, v1 = values(w0, w1, w2, w3, a, b, c)
                place = (first + np.uint64(lane)) * _TWO
                if place < size:
                    out[place] = v0
                if place + np.uint64(1) < size:
                    out[place + np.uint64(1)] = v1

    return fill
