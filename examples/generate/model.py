"""The transformer: its kernels, its weights on a device, and a step for a batch of texts.

A step takes each text of the batch one character further. Whatever a text needs lies on the device, in a *slot*: its
characters, and the keys and values of the last ``LENGTH`` of them, as a ring of ``float16``. Which slots a batch consists of,
and how far their texts are, the kernels read from memory. So one graph serves every length, and texts join and leave between
its replays.

Each number is the same, to the last bit, in a batch of any size: sums are in an order that does not depend on it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from text import SYMBOLS

import aiodev
from aiodev import kernels, lang
from aiodev.kernels import random

__all__ = ["HEADS", "LENGTH", "LONGEST", "NOTHING", "Model", "Slots", "load_weights", "save_weights"]

HEADS = 4
#: Characters that attention looks back at.
LENGTH = 128
#: Characters of a text, what was given included, at most.
LONGEST = 1 << 11
#: Columns of a matrix that lie together, and are the work of one index.
BLOCK = 64
#: In place of a slot where the batch has no text, and of a character where none was chosen.
NOTHING = -1


def save_weights(weights: dict[str, np.ndarray], path: Path) -> None:
    """Keep matrices as integers of 8 bits, and for each column the factor that they are to be multiplied with."""
    kept = {}
    for name, matrix in weights.items():
        factors = np.abs(matrix).max(axis=-2, keepdims=True) / 127
        kept |= {name: np.round(matrix / factors).astype(np.int8), f"{name}_factors": factors.astype(np.float32)}
    np.savez(path, **kept)


def load_weights(path: Path = Path(__file__).parent / "weights.npz") -> dict[str, np.ndarray]:
    """The matrices, in ``float32``: ``table`` and ``head``, and of each layer ``qkv``, ``out``, ``up`` and ``down``."""
    with np.load(path) as kept:
        names = [name for name in kept.files if not name.endswith("_factors")]
        return {name: kept[name] * kept[f"{name}_factors"] for name in names}


# Kernels


@aiodev.kernel(uniform=True)
def project(i: int, x: Any, weights: Any, out: Any) -> None:
    """A block of columns of ``x @ weights``."""
    lang.matmul(x, weights[i], out[:, i * BLOCK : (i + 1) * BLOCK])


@aiodev.kernel(uniform=True)
def expand(i: int, x: Any, weights: Any, out: Any) -> None:
    """A block of columns of ``maximum(x @ weights, 0) ** 2``."""
    lang.matmul(x, weights[i], out[:, i * BLOCK : (i + 1) * BLOCK])
    for row in range(out.shape[0]):
        own = out[row, i * BLOCK : (i + 1) * BLOCK]
        for j in range(BLOCK):
            own[j] = max(own[j], np.float32(0)) ** 2


@aiodev.kernel(uniform=True)
def add_product(i: int, x: Any, weights: Any, product: Any, out: Any) -> None:
    """``x @ weights`` is added to a block of columns."""
    lang.matmul(x, weights[i], product[i])
    for row in range(out.shape[0]):
        own, added = out[row, i * BLOCK : (i + 1) * BLOCK], product[i, row]
        for j in range(BLOCK):
            own[j] += added[j]


@aiodev.kernel(uniform=True)
def embed(row: int, slots: Any, position: Any, text: Any, table: Any, x: Any) -> None:
    """The vector of each text's present character; zeros where the batch has no text."""
    slot = slots[row]
    for j in range(x.shape[1]):
        x[row, j] = table[text[slot, position[slot]], j] if slot != NOTHING else np.float32(0)


@aiodev.kernel(ndim=2, uniform=True, fastmath=True)
def attend(row: int, head: int, slots: Any, position: Any, qkv: Any, keys: Any, values: Any, scores: Any, out: Any) -> None:
    """Take the key and the value of one head into the ring, and mix the values there by how the query fits the keys."""
    slot, length, width = slots[row], values.shape[2], values.shape[3]
    mixed, query, key, value = out[row, head], qkv[row, 0, head : head + 1], qkv[row, 1, head], qkv[row, 2, head]
    if slot == NOTHING:
        mixed[:] = 0
        return
    at, count = position[slot] % length, min(position[slot] + 1, length)
    for k in range(width):
        keys[slot, head, k, at], values[slot, head, at, k] = key[k], value[k]
    lang.matmul(query, keys[slot, head, :, :count], scores[row, head, :, :count])
    fits = scores[row, head, 0, :count]
    scale, slope = np.float32(1 / math.sqrt(width)), np.float32(2.0 ** (-8 * (head + 1) / keys.shape[1]))
    for place in range(count):  # the further back, the less (ALiBi)
        back = at - place + (length if place > at else 0)
        fits[place] = fits[place] * scale - slope * np.float32(back)
    most, total = fits[0], np.float32(0)
    for place in range(count):
        most = max(most, fits[place])
    for place in range(count):
        fits[place] = lang.exp(fits[place] - most)
        total += fits[place]
    lang.matmul(scores[row, head, :, :count], values[slot, head, :count], out[row, head : head + 1])
    for k in range(width):
        mixed[k] /= total


@aiodev.kernel(uniform=True, fastmath=True)
def sample(
    row: int, slots: Any, given: Any, temperature: Any, noise: Any, scores: Any, position: Any, text: Any, tokens: Any
) -> None:
    """Go on to the next character: the one that was given, or the best at temperature 0, or else one by chance."""
    slot, tokens[row] = slots[row], NOTHING
    if slot == NOTHING:
        return
    after = position[slot] + 1
    position[slot] = after
    if after < given[slot]:
        return
    own, code = scores[row, : len(SYMBOLS)], 0
    for other in range(own.size):
        if own[other] > own[code]:
            code = other
    if temperature[slot] > 0:
        most, total = own[code], np.float32(0)
        for other in range(own.size):
            own[other] = lang.exp((own[other] - most) / temperature[slot])
            total += own[other]
        left, code = noise[slot, after] * total, 0
        while left >= own[code] and code < own.size - 1:
            left -= own[code]
            code += 1
    text[slot, after] = tokens[row] = code


@aiodev.kernel
def begin(i: int, slot: int, length: int, warmth: float, position: Any, given: Any, temperature: Any) -> None:
    """A new text in a slot."""
    position[slot], given[slot], temperature[slot] = 0, length, warmth


# On a device


class Slots:
    """Room for texts on the device.

    Args:
        model: which continues them.
        count: how many there is room for.
    """

    def __init__(self, model: Model, count: int) -> None:
        self.model, of_head = model, model.width // HEADS
        # Keys are columns. Rows of a power of two would fall on the same lines of the cache: they are one line longer. In
        # halves, as those of 32 texts would else not fit into a cache of 16 MiB.
        self.keys = [aiodev.zeros((count, HEADS, of_head, LENGTH + 32), np.float16) for _ in model.layers]
        self.values = [aiodev.zeros((count, HEADS, LENGTH, of_head), np.float16) for _ in model.layers]
        self.text, self.noise = aiodev.zeros((count, LONGEST), np.int32), aiodev.zeros((count, LONGEST), np.float32)
        self.position, self.given = aiodev.zeros(count, np.int32), aiodev.zeros(count, np.int32)
        self.temperature = aiodev.zeros(count, np.float32)

    def begin(self, slot: int, prompt: np.ndarray, temperature: float, seed: int) -> None:
        """Begin a text with the codes of a prompt. What is drawn for it depends on the seed alone."""
        self.text[slot, : prompt.size].copy_from(prompt)
        random.random(generator=aiodev.Generator().manual_seed(seed), out=self.noise[slot])
        begin[1](slot, prompt.size, temperature, self.position, self.given, self.temperature)


class Model:
    """The weights on the current device."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.width = weights["table"].shape[1]
        self.table = aiodev.asarray(weights["table"])
        self.head = _in_blocks(weights["head"])
        names = "qkv", "out", "up", "down"
        self.layers = [tuple(map(_in_blocks, matrices)) for matrices in zip(*map(weights.get, names), strict=True)]

    def submit(self, rows: aiodev.Array, slots: Slots) -> aiodev.Array:
        """One character for each text of a batch.

        Args:
            rows: the slot of each, int32; -1 where there is none.
            slots: where the texts are.

        Returns:
            The codes that were added, int32; -1 where none was chosen.
        """
        batch, of_head = rows.size, self.width // HEADS
        x = self._new(batch, self.width)
        embed[batch](rows, slots.position, slots.text, self.table, x)
        for (qkv, out, up, down), keys, values in zip(self.layers, slots.keys, slots.values, strict=True):
            heads = self._product(project, kernels.rms_norm(x), qkv).reshape(batch, 3, HEADS, of_head)
            mixed, scores = self._new(batch, HEADS, of_head), self._new(batch, HEADS, 1, LENGTH)
            attend[batch, HEADS](rows, slots.position, heads, keys, values, scores, mixed)
            self._add_product(mixed.reshape(x.shape), out, x)
            self._add_product(self._product(expand, kernels.rms_norm(x), up), down, x)
        scores, tokens = self._product(project, kernels.rms_norm(x), self.head), aiodev.empty(batch, np.int32)
        sample[batch](rows, slots.given, slots.temperature, slots.noise, scores, slots.position, slots.text, tokens)
        return tokens

    def _new(self, *shape: int) -> aiodev.Array:
        return aiodev.empty(shape, np.float32)

    def _product(self, kernel: aiodev.Kernel, x: aiodev.Array, weights: aiodev.Array) -> aiodev.Array:
        blocks = weights.shape[0]
        out = self._new(x.shape[0], blocks * BLOCK)
        kernel[blocks](x, weights, out)
        return out

    def _add_product(self, x: aiodev.Array, weights: aiodev.Array, out: aiodev.Array) -> None:
        blocks = weights.shape[0]
        add_product[blocks](x, weights, self._new(blocks, x.shape[0], BLOCK), out)


def _in_blocks(matrix: np.ndarray) -> aiodev.Array:
    """A matrix on the device, cut into blocks of columns, the last one filled up with zeros."""
    inner, columns = matrix.shape
    filled = np.pad(matrix, ((0, 0), (0, -columns % BLOCK)))
    return aiodev.asarray(np.ascontiguousarray(filled.reshape(inner, -1, BLOCK).transpose(1, 0, 2)))
