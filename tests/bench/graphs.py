"""Figures of graphs: what capturing and replaying cost, and a step of a small model captured, submitted anew, and in NumPy."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from core_submit import nothing
from harness import Bar, Figure, Run
from peers import numpy_add

import aiodev
from aiodev import kernels

__all__ = ["FIGURES"]

LAUNCHES, NODES = 50, 1000
#: Of the model: layers, width, heads, longest text, vocabulary.
LAYERS, WIDTH, HEADS, LENGTH, WORDS = 4, 128, 4, 64, 256
_HEAD = WIDTH // HEADS
_PER_HEAD = np.float32(1 / math.sqrt(_HEAD))


@aiodev.kernel
def axpy(i, a, x, y, out):
    """A small kernel of three arrays."""
    out[i] = a * x[i] + y[i]


async def _eight(count: int = 3) -> list[aiodev.Array]:
    arrays = [aiodev.zeros(8, np.float32, "cpu") for _ in range(count)]
    await aiodev.synchronize("cpu")
    return arrays


async def replay_node(run: Run) -> Figure:
    """An empty node of a graph of 1,000, replayed and awaited."""
    stream = aiodev.Stream("cpu")
    await nothing[1, stream]()
    async with aiodev.capture(stream) as graph:
        for _ in range(NODES):
            nothing[1]()
    count = run.scale(200)

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await graph.replay(stream)
        return (time.perf_counter() - began) / count / NODES * 1e6

    values = await run.medians({"aiodev": ours, "np.add": lambda: numpy_add(run.scale(20_000))})
    return Figure("replay of 1,000 empty nodes, each", "µs", values, [Bar("np.add", at_most=0.25)])


async def replay_launches(run: Run) -> Figure:
    """A graph of 50 kernels on 8 elements, and its launches, both awaited."""
    stream = aiodev.Stream("cpu")
    x, y, out = await _eight()

    def launch() -> aiodev.Completion[None]:
        for _ in range(LAUNCHES):
            done = axpy[8, stream](2.0, x, y, out)
        return done

    await launch()
    async with aiodev.capture(stream) as graph:
        launch()
    count = run.scale(500)

    async def awaited(submit: Callable[[], Awaitable[None]]) -> float:
        began = time.perf_counter()
        for _ in range(count):
            await submit()
        return (time.perf_counter() - began) / count * 1e6

    values = await run.medians(
        {"aiodev": lambda: awaited(lambda: graph.replay(stream)), "50 launches": lambda: awaited(launch)}
    )
    return Figure("replay of 50 small kernels + await", "µs", values, [Bar("50 launches", at_most=1 / 5)])


async def capture_launches(run: Run) -> Figure:
    """The capture of 50 launches, and the launches."""
    stream = aiodev.Stream("cpu")
    x, y, out = await _eight()
    await axpy[8, stream](2.0, x, y, out)
    count = run.scale(200)

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            async with aiodev.capture(stream):
                for _ in range(LAUNCHES):
                    axpy[8, stream](2.0, x, y, out)
        return (time.perf_counter() - began) / count * 1e6

    async def launches() -> float:
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(LAUNCHES):
                axpy[8, stream](2.0, x, y, out)
        took = time.perf_counter() - began
        await stream.synchronize()
        return took / count * 1e6

    values = await run.medians({"aiodev": ours, "50 launches": launches})
    return Figure("capture of 50 small kernels", "µs", values, [Bar("50 launches", at_most=2)])


# A step of a small transformer, batch 1: NumPy, and aiodev with a cache of keys and values on the device


@aiodev.kernel
def embed(i, token, table, x):
    x[0, i] = table[token[0], i]


@aiodev.kernel
def put(i, position, key, value, keys, values):
    """A new row of the cache, of keys and of values."""
    head, column = i // keys.shape[2], i % keys.shape[2]
    keys[head, position[()], column] = key[0, i]
    values[head, position[()], column] = value[0, i]


@aiodev.kernel
def attend(head, position, scale, query, keys, values, scores, out):
    """Attention of one head over what the cache holds so far."""
    width, count = keys.shape[2], position[()] + 1
    first = head * width
    most = -np.inf
    for row in range(count):
        score = np.float32(0)
        for k in range(width):
            score += query[0, first + k] * keys[head, row, k]
        score *= scale
        scores[head, row] = score
        most = max(most, score)
    total = np.float32(0)
    for row in range(count):
        weight = np.float32(math.exp(scores[head, row] - most))
        scores[head, row] = weight
        total += weight
    for k in range(width):
        out[0, first + k] = 0
    for row in range(count):
        share = scores[head, row] / total
        for k in range(width):
            out[0, first + k] += share * values[head, row, k]


def _model() -> tuple[np.ndarray[Any, Any], list[dict[str, np.ndarray[Any, Any]]], np.ndarray[Any, Any]]:
    chance = np.random.default_rng(0)
    shapes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}

    def weights(shape: tuple[int, int]) -> np.ndarray[Any, Any]:
        return (chance.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    layers = [{name: weights(shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    return chance.standard_normal((WORDS, WIDTH)).astype(np.float32), layers, weights((WIDTH, WORDS))


class _NumPySession:
    def __init__(self, model: Any) -> None:
        self.table, self.layers, self.head = model
        self.caches = [np.zeros((2, HEADS, LENGTH, _HEAD), np.float32) for _ in self.layers]

    def step(self, token: int, position: int) -> int:
        x = self.table[token]
        for layer, (keys, values) in zip(self.layers, self.caches, strict=True):
            h = x / np.sqrt((x * x).mean() + 1e-6)
            keys[:, position] = (h @ layer["k"]).reshape(HEADS, -1)
            values[:, position] = (h @ layer["v"]).reshape(HEADS, -1)
            query = (h @ layer["q"]).reshape(HEADS, -1)
            scores = np.einsum("hd,htd->ht", query, keys[:, : position + 1]) * _PER_HEAD
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            x = x + np.einsum("ht,htd->hd", scores, values[:, : position + 1]).reshape(-1) @ layer["o"]
            h = x / np.sqrt((x * x).mean() + 1e-6)
            x = x + np.maximum(h @ layer["up"], 0) @ layer["down"]
        return int((x @ self.head).argmax())

    async def run(self) -> list[int]:
        tokens = [1]
        for position in range(LENGTH):
            tokens.append(await asyncio.to_thread(self.step, tokens[-1], position))
        return tokens


class _Session:
    def __init__(self, model: Any) -> None:
        self.model, self.stream = model, aiodev.Stream("cpu")
        with self.stream:
            self.token, self.position = aiodev.ones(1, np.int64), aiodev.zeros((), np.int64)
            self.caches = [[aiodev.zeros((HEADS, LENGTH, _HEAD), np.float32) for _ in range(2)] for _ in model[1]]
        self.graph: aiodev.Graph | None = None

    async def capture(self) -> _Session:
        async with aiodev.capture(self.stream) as graph:
            self.position = graph.input("position", 0)
            self.submit()
        self.graph = graph
        return self

    def submit(self) -> None:
        table, layers, head = self.model
        x = aiodev.empty((1, WIDTH), np.float32)
        embed[WIDTH](self.token, table, x)
        for layer, (keys, values) in zip(layers, self.caches, strict=True):
            h = kernels.rms_norm(x)
            query, key, value = (kernels.matmul(h, layer[name]) for name in "qkv")
            put[WIDTH](self.position, key, value, keys, values)
            attended, scores = aiodev.empty((1, WIDTH), np.float32), aiodev.empty((HEADS, LENGTH), np.float32)
            attend[HEADS](self.position, _PER_HEAD, query, keys, values, scores, attended)
            x = kernels.add(x, kernels.matmul(attended, layer["o"]))
            h = kernels.maximum(kernels.matmul(kernels.rms_norm(x), layer["up"]), np.float32(0))
            x = kernels.add(x, kernels.matmul(h, layer["down"]))
        self.token[:] = kernels.argmax(kernels.matmul(x, head))

    async def run(self) -> list[int]:
        tokens = [1]
        with self.stream:
            self.token[:] = 1
            for position in range(LENGTH):
                if self.graph is None:
                    self.position[...] = position
                    self.submit()
                else:
                    self.graph.update(position=position)
                    self.graph.replay(self.stream)
                tokens.append((await self.token.numpy()).item())
        return tokens


async def _tokens(run: Run, sessions: int) -> Figure:
    model = _model()
    table, layers, head = model
    on_device = (aiodev.asarray(table, device="cpu"), [], aiodev.asarray(head, device="cpu"))
    on_device[1].extend({name: aiodev.asarray(w, device="cpu") for name, w in layer.items()} for layer in layers)
    await aiodev.synchronize("cpu")
    with aiodev.device("cpu"):
        contestants: dict[str, list[Any]] = {
            "aiodev": [await _Session(on_device).capture() for _ in range(sessions)],
            "aiodev, not captured": [_Session(on_device) for _ in range(sessions)],
            "NumPy, to_thread": [_NumPySession(model) for _ in range(sessions)],
        }
        said = {name: await found[0].run() for name, found in contestants.items()}
        assert all(tokens == said["NumPy, to_thread"] for tokens in said.values()), said

        async def rate(found: list[Any]) -> float:
            began = time.perf_counter()
            for _ in range(run.scale(4)):
                await asyncio.gather(*(session.run() for session in found))
            return run.scale(4) * sessions * LENGTH / (time.perf_counter() - began)

        values = await run.medians({name: (lambda found=found: rate(found)) for name, found in contestants.items()})
    bars = [Bar("NumPy, to_thread", at_least=2.5 if sessions == 1 else 2), Bar("aiodev, not captured", at_least=2)]
    plural = "session" if sessions == 1 else "sessions"
    return Figure(f"steps of a small transformer, {sessions} {plural}", "tokens/s", values, bars)


async def tokens_of_one(run: Run) -> Figure:
    """One session, each token awaited."""
    return await _tokens(run, 1)


async def tokens_of_eight(run: Run) -> Figure:
    """Eight sessions at once."""
    return await _tokens(run, 8)


FIGURES = {
    "replay_node": replay_node,
    "replay_launches": replay_launches,
    "capture_launches": capture_launches,
    "tokens_1": tokens_of_one,
    "tokens_8": tokens_of_eight,
}
