"""Traces of allocations that look like real use, and their replay.

A trace is a sequence of ``(name, nbytes)`` for an allocation and ``(name, None)`` for a free. Sizes are those of the tensors
that such programs have, not powers of two; what is random is drawn from a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["TRACES", "Outcome", "image_pipeline", "inference_server", "replay", "training"]

Step = tuple[Any, int | None]


def training(steps: int = 8, layers: int = 12, width: int = 768, batch: int = 8) -> Iterator[Step]:
    """Steps of training a transformer with sequences of varying length.

    Weights and both moments of the optimizer live for ever. A forward pass keeps activations for the backward pass, which frees
    them in reverse order and makes gradients; each layer has temporaries.
    """
    rng = random.Random(1)
    square = width * width
    weights = {"qkv": 3 * square, "out": square, "up": 4 * square, "down": 4 * square, "norm": 2 * width}
    for layer in range(layers):
        for name, count in weights.items():
            for copy in ("weight", "first moment", "second moment"):
                yield (layer, name, copy), 4 * count
    for step in range(steps):
        tokens = batch * rng.choice([128, 192, 256, 320, 384, 448, 512])
        hidden = 4 * tokens * width
        kept: list[Any] = []
        yield (step, "input"), hidden
        for layer in range(layers):
            for name, nbytes in (("norm", hidden), ("qkv", 3 * hidden), ("scores", 4 * batch * 12 * (tokens // batch) ** 2)):
                yield (step, layer, name), nbytes
                kept.append((step, layer, name))
            yield (step, layer, "masked"), 4 * batch * 12 * (tokens // batch) ** 2
            yield (step, layer, "attended"), hidden
            yield (step, layer, "masked"), None
            kept.append((step, layer, "attended"))
            for name, nbytes in (("up", 4 * hidden), ("gelu", 4 * hidden), ("hidden", hidden)):
                yield (step, layer, name), nbytes
                kept.append((step, layer, name))
            yield (step, layer, "bias"), 4 * width
            yield (step, layer, "bias"), None
        yield (step, "logits"), 4 * tokens * 5003
        yield (step, "loss"), 4
        yield (step, "gradient", layers), hidden
        yield (step, "logits"), None
        for layer in reversed(range(layers)):
            yield (step, "gradient", layer), hidden
            for _ in range(7):
                name = kept.pop()
                yield (step, "of", name), hidden if name[2] in ("norm", "hidden", "attended") else 2 * hidden
                yield name, None
                yield (step, "of", name), None
            yield (step, "gradient", layer + 1), None
            for name, count in weights.items():
                yield (step, layer, name, "gradient"), 4 * count
        for layer in range(layers):
            for name, count in weights.items():
                yield (step, layer, name, "update"), 4 * count
                yield (step, layer, name, "update"), None
                yield (step, layer, name, "gradient"), None
        yield (step, "gradient", 0), None
        yield (step, "input"), None
        yield (step, "loss"), None


def inference_server(requests: int = 300, at_once: int = 16, layers: int = 12, width: int = 768) -> Iterator[Step]:
    """A language model of GPT-2's size in 16 bits that serves requests of mixed length, many at once.

    Weights live for ever. A prompt has temporaries and a cache of keys and values for each layer, as long as the prompt; what
    is generated extends the caches in pieces of 64 tokens. Each step has temporaries for the whole batch.
    """
    rng = random.Random(2)
    vocabulary, heads = 50257, 12
    yield ("weights", "embedding"), 2 * vocabulary * width
    for layer in range(layers):
        for name, count in (("qkv", 3), ("out", 1), ("up", 4), ("down", 4)):
            yield ("weights", layer, name), 2 * count * width * width
    running: list[tuple[int, int, int]] = []  # request, tokens so far, tokens in the end
    pieces: dict[int, list[Any]] = {}
    number = 0
    while number < requests or running:
        while len(running) < at_once and number < requests:
            prompt = min(900, int(rng.lognormvariate(4.5, 1.0)) + 1)
            yield (number, "ids"), 8 * prompt
            yield (number, "prompt"), 2 * prompt * width
            pieces[number] = []
            for layer in range(layers):
                name = (number, "cache", layer, -1)
                yield name, 2 * 2 * prompt * width
                pieces[number].append(name)
                temporaries = {"qkv": 6 * prompt * width, "scores": 2 * heads * prompt**2, "up": 8 * prompt * width}
                for kind, nbytes in temporaries.items():
                    yield (number, kind), nbytes
                for kind in temporaries:
                    yield (number, kind), None
            yield (number, "prompt"), None
            running.append((number, prompt, prompt + min(120, int(rng.expovariate(1 / 60)) + 1)))
            number += 1
        batch = len(running)
        for turn, nbytes in enumerate((2 * batch * width, 6 * batch * width, 8 * batch * width, 2 * batch * vocabulary)):
            yield ("step", turn), nbytes
        for turn in range(4):
            yield ("step", turn), None
        still: list[tuple[int, int, int]] = []
        for request, tokens, end in running:
            if tokens % 64 == 0:
                for layer in range(layers):
                    pieces[request].append((request, "cache", layer, tokens))
                    yield pieces[request][-1], 2 * 2 * 64 * width
            if tokens + 1 >= end:
                for name in (*pieces.pop(request), (request, "ids")):
                    yield name, None
            else:
                still.append((request, tokens + 1, end))
        running = still


def image_pipeline(images: int = 600, at_once: int = 6) -> Iterator[Step]:
    """Photographs of all sizes through decode, resize, blur and encode, several at once, finished in any order."""
    rng = random.Random(3)
    alive: list[list[Any]] = []
    for image in range(images):
        height = rng.choice([480, 720, 1080, 1440, 2160, rng.randrange(300, 3000)])
        pixels = height * int(height * rng.choice([1.0, 4 / 3, 3 / 2, 16 / 9]))
        yield (image, "bytes"), pixels // rng.randrange(4, 12)
        yield (image, "rgb"), 3 * pixels
        yield (image, "bytes"), None
        yield (image, "float"), 12 * pixels
        yield (image, "rgb"), None
        scale = rng.choice([2, 3, 4])
        yield (image, "small"), 12 * pixels // scale**2
        alive.append([(image, "float"), (image, "small")])
        if len(alive) >= at_once:
            for name in alive.pop(rng.randrange(len(alive))):
                yield name, None
    for names in alive:
        for name in names:
            yield name, None


TRACES = {"training": training, "inference server": inference_server, "image pipeline": image_pipeline}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to; all in bytes but the counts."""

    peak_requested: int
    peak_reserved: int
    allocations: int
    device_allocations: int

    @property
    def fragmentation(self) -> float:
        """Reserved over requested, at their peaks."""
        return self.peak_reserved / self.peak_requested

    @property
    def hit_rate(self) -> float:
        """The part of the allocations for which nothing was taken from the backend."""
        return 1 - self.device_allocations / self.allocations


def replay(trace: Iterable[Step], pool: Any, timeline: Any) -> Outcome:
    """Allocate and free as the trace says; everything is freed in the end."""
    held: dict[Any, tuple[Any, int]] = {}
    requested = peak = 0
    for name, nbytes in trace:
        if nbytes is None:
            requested -= held.pop(name)[1]
        else:
            assert name not in held
            held[name] = pool.allocate(nbytes, timeline), nbytes
            requested += nbytes
            peak = max(peak, requested)
    held.clear()
    totals = pool.totals
    return Outcome(peak, totals.peak_reserved, totals.allocations, totals.device_allocations)
