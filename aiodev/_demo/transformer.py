"""A small transformer with random weights: a token at a time, by aiodev on a stream, and by NumPy.

A step is some 45 operations on a few hundred numbers. Keys and values of the tokens so far are kept, and attention looks at
all of them. What differs from step to step are two numbers, the token and its place, which kernels read from memory. So a step
can be captured once, and replayed at every place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import aiodev
from aiodev import kernels, lang

__all__ = ["FIRST", "LENGTH", "DeviceText", "DeviceWeights", "Floats", "NumPyText", "Weights", "make_weights"]

Floats = npt.NDArray[Any]

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 128, 4, 256
#: Tokens of a text, and the one that it begins with.
LENGTH, FIRST = 64, 1
_OF_HEAD = WIDTH // HEADS
_SCALE = np.float32(1 / math.sqrt(_OF_HEAD))


@dataclass(frozen=True, slots=True)
class Weights:
    """The matrices: of tokens, of each layer, of scores.

    A layer's are of queries, keys and values, of attention's output, and the two of the feed-forward.
    """

    table: Floats
    layers: list[tuple[Floats, Floats, Floats, Floats]]
    head: Floats

    def astype(self, dtype: Any) -> Weights:
        """These weights in another type."""
        qkv, out, up, down = ([one.astype(dtype) for one in own] for own in zip(*self.layers, strict=True))
        return Weights(self.table.astype(dtype), list(zip(qkv, out, up, down, strict=True)), self.head.astype(dtype))


def make_weights(seed: int = 0) -> Weights:
    """Weights by chance, in ``float32``."""
    chance = np.random.default_rng(seed)

    def matrix(inputs: int, outputs: int) -> Floats:
        drawn: Floats = (chance.standard_normal((inputs, outputs)) / math.sqrt(inputs)).astype(np.float32)
        return drawn

    shapes = (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)
    layers = [(matrix(*shapes[0]), matrix(*shapes[1]), matrix(*shapes[2]), matrix(*shapes[3])) for _ in range(LAYERS)]
    return Weights(chance.standard_normal((VOCABULARY, WIDTH)).astype(np.float32), layers, matrix(WIDTH, VOCABULARY))


class NumPyText:
    """A text by NumPy, in the type of the weights."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        shape = LAYERS, HEADS, LENGTH, _OF_HEAD
        self._keys, self._values = np.zeros(shape, weights.head.dtype), np.zeros(shape, weights.head.dtype)

    def scores(self, token: int, place: int) -> Floats:
        """The scores of what may come after a token at its place."""
        x = self._weights.table[token]
        for (qkv, out, up, down), keys, values in zip(self._weights.layers, self._keys, self._values, strict=True):
            query, keys[:, place], values[:, place] = (_normalised(x) @ qkv).reshape(3, HEADS, _OF_HEAD)
            fits = (keys[:, : place + 1] @ query[:, :, None])[:, :, 0] * _SCALE
            shares = np.exp(fits - fits.max(1, keepdims=True))
            mixed = (shares[:, None] @ values[:, : place + 1])[:, 0] / shares.sum(1, keepdims=True)
            x = x + mixed.reshape(WIDTH) @ out
            x = x + np.maximum(_normalised(x) @ up, 0) @ down
        scores: Floats = _normalised(x) @ self._weights.head
        return scores

    def step(self, token: int, place: int) -> int:
        """The token after this one."""
        return int(self.scores(token, place).argmax())


def _normalised(x: Floats) -> Floats:
    scaled: Floats = x / np.sqrt(x @ x / WIDTH + np.float32(1e-6))
    return scaled


@aiodev.kernel(uniform=True)
def embed(i: int, token: Any, table: Any, x: Any) -> None:
    """One number of a token's vector."""
    x[0, i] = table[token[0], i]


@aiodev.kernel(uniform=True, fastmath=True)
def attention(head: int, place: Any, shown: Any, keys: Any, values: Any, fits: Any, mixed: Any) -> None:
    """Keep a head's key and value, and mix all values so far by how the query fits their keys."""
    at, count = place[()], place[()] + 1
    for k in range(keys.shape[1]):
        keys[head, k, at], values[head, at, k] = shown[1, head, k], shown[2, head, k]
    lang.matmul(shown[0, head : head + 1], keys[head, :, :count], fits[head, :, :count])
    own, out = fits[head, 0, :count], mixed[head]
    most, total = own[0], np.float32(0)
    for k in range(count):
        most = max(most, own[k])
    for k in range(count):
        own[k] = lang.exp((own[k] - most) * _SCALE)
        total += own[k]
    lang.matmul(fits[head, :, :count], values[head, :count], mixed[head : head + 1])
    for k in range(out.shape[0]):
        out[k] /= total


class DeviceWeights:
    """Weights on a device."""

    def __init__(self, weights: Weights, device: aiodev.Device) -> None:
        def there(host: Floats) -> aiodev.Array:
            return aiodev.asarray(host, device=device)

        self.table, self.head = there(weights.table), there(weights.head)
        self.layers = [(there(qkv), there(out), there(up), there(down)) for qkv, out, up, down in weights.layers]


class DeviceText:
    """A text on a device, with a stream of its own.

    Attributes:
        graph: the step, if it was captured.
    """

    def __init__(self, weights: DeviceWeights) -> None:
        self._weights = weights
        self.stream = aiodev.Stream(weights.head.device)
        self.graph: aiodev.Graph | None = None
        with self.stream:
            self._token, self._place = aiodev.zeros(1, np.int64), aiodev.zeros((), np.int64)
            self._keys = [aiodev.zeros((HEADS, _OF_HEAD, LENGTH), np.float32) for _ in range(LAYERS)]
            self._values = [aiodev.zeros((HEADS, LENGTH, _OF_HEAD), np.float32) for _ in range(LAYERS)]

    async def capture(self) -> DeviceText:
        """Record a step."""
        async with aiodev.capture(self.stream) as graph:
            self._place = graph.input("place", 0)
            self._submit()
        self.graph = graph
        return self

    async def step(self, token: int, place: int) -> int:
        """The token after this one; the device has it already, unless it is the first one."""
        with self.stream:
            if not place:
                self._token[:] = token
            if self.graph is None:
                self._place[...] = place
                self._submit()
            else:
                self.graph.update(place=place)
                self.graph.replay(self.stream)
            return int((await self._token.numpy())[0])

    def _submit(self) -> None:
        x, mixed = aiodev.empty((1, WIDTH), np.float32), aiodev.empty((HEADS, _OF_HEAD), np.float32)
        embed[WIDTH](self._token, self._weights.table, x)
        for (qkv, out, up, down), keys, values in zip(self._weights.layers, self._keys, self._values, strict=True):
            shown = kernels.matmul(kernels.rms_norm(x), qkv).reshape(3, HEADS, _OF_HEAD)
            attention[HEADS](self._place, shown, keys, values, aiodev.empty((HEADS, 1, LENGTH), np.float32), mixed)
            x = kernels.add(x, kernels.matmul(mixed.reshape(1, WIDTH), out))
            hidden = kernels.maximum(kernels.matmul(kernels.rms_norm(x), up), 0.0)
            x = kernels.add(x, kernels.matmul(hidden, down))
        self._token[:] = kernels.argmax(kernels.matmul(kernels.rms_norm(x), self._weights.head))
