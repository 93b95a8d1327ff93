"""Traces of allocations that look like real use, and their replay.

A trace is a sequence of ``(name, nbytes)`` for an allocation and ``(name, None)`` for a free. Sizes are those of the tensors
that such programs have, not powers of two; what is random is drawn from a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["COMPARED", "TRACES", "Outcome", "image_pipeline", "inference_server", "replay", "training"]

Step = tuple[Any, int | None]


class On(NamedTuple):
    """The name of something that a stream has; names that are no such are of stream 0."""

    stream: int
    name: Any


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


def on_stream(stream: int, trace: Iterable[Step]) -> Iterator[Step]:
    """The same for a stream: names of :class:`On` say which."""
    for name, nbytes in trace:
        yield On(stream, name), nbytes


def side_by_side(*traces: Iterable[Step], seed: int = 4, turn: int = 40) -> Iterator[Step]:
    """Several traces, each on a stream of its own, in turns of random length."""
    rng = random.Random(seed)
    running = [iter(on_stream(stream, trace)) for stream, trace in enumerate(traces)]
    while running:
        one = rng.choice(running)
        for _ in range(rng.randrange(1, turn)):
            step = next(one, None)
            if step is None:
                running.remove(one)
                break
            yield step


def convolutions(steps: int = 12, sizes: Iterable[int] = (224,), batch: int = 8, frozen: bool = False) -> Iterator[Step]:
    """Steps of training a residual network: activations that shrink with depth, workspaces, gradients in reverse order."""
    rng = random.Random(6)
    channels = [64] * 3 + [128] * 4 + [256] * 6 + [512] * 3
    for layer, width in enumerate(channels):
        for copy in ("weight",) if frozen else ("weight", "momentum"):
            yield (layer, copy), 4 * 9 * width * width
            yield (layer, copy, "norm"), 16 * width
    for step in range(steps):
        size, kept = rng.choice(list(sizes)), []
        yield (step, "images"), 4 * batch * 3 * size * size
        for layer, width in enumerate(channels):
            side = max(1, size // (4 * width // 64))
            nbytes = 4 * batch * width * side * side
            yield (step, layer, "workspace"), min(64 << 20, 9 * nbytes // 4)
            yield (step, layer, "convolved"), nbytes
            yield (step, layer, "workspace"), None
            yield (step, layer, "active"), nbytes
            yield (step, layer, "mean"), 8 * width
            kept += [((step, layer, "convolved"), nbytes), ((step, layer, "active"), nbytes), ((step, layer, "mean"), 0)]
            if frozen:
                for name, _ in kept[:-3]:
                    yield name, None
                kept = kept[-3:]
        yield (step, "loss"), 4
        for name, nbytes in reversed(kept):
            if nbytes and not frozen:
                yield (name, "gradient"), nbytes
            yield name, None
            if nbytes and not frozen:
                yield (name, "gradient"), None
        if not frozen:
            for layer, width in enumerate(channels):
                yield (step, layer, "update"), 4 * 9 * width * width
                yield (step, layer, "update"), None
        yield (step, "loss"), None
        yield (step, "images"), None


def growing_caches(requests: int = 120, at_once: int = 8, layers: int = 16, width: int = 1024) -> Iterator[Step]:
    """Decoding with caches that are copied into larger ones, by a quarter, when they are full; requests come and go."""
    rng = random.Random(7)
    running: list[list[int]] = []  # request, tokens, room, end
    number = 0
    while number < requests or running:
        if len(running) < at_once and number < requests:
            tokens = rng.randrange(16, 700)
            running.append([number, tokens, tokens + 16, tokens + rng.randrange(8, 400)])
            for layer in range(layers):
                yield (number, layer, tokens + 16), 4 * (tokens + 16) * width
            number += 1
        for request in list(running):
            name, tokens, room, end = request
            yield ("logits", name), 2 * 32000
            if tokens >= room:
                larger = room + room // 4
                for layer in range(layers):
                    yield (name, layer, larger), 4 * larger * width
                    yield (name, layer, room), None
                request[2] = larger
            yield ("logits", name), None
            request[1] += rng.randrange(1, 9)
            if request[1] >= end:
                for layer in range(layers):
                    yield (name, layer, request[2]), None
                running.remove(request)


def batches(rounds: int = 400, largest: int = 64, features: int = 3 * 160 * 160) -> Iterator[Step]:
    """Batched inference of a small network: batches of all sizes, results that are kept until they are collected."""
    rng = random.Random(8)
    yield "weights", 90 << 20
    waiting: list[tuple[Any, int]] = []
    for turn in range(rounds):
        size = 1 + int((largest - 1) * rng.random() ** 2)
        before: Any = (turn, "input")
        yield before, 4 * size * features
        for layer, part in enumerate((2.0, 1.0, 0.5, 0.25, 0.1)):
            yield (turn, layer), int(4 * size * features * part)
            yield before, None
            before = (turn, layer)
        yield (turn, "result"), 4 * size * 1000
        yield before, None
        waiting.append(((turn, "result"), turn + rng.randrange(1, 12)))
        for name, until in list(waiting):
            if until <= turn:
                waiting.remove((name, until))
                yield name, None
    for name, _ in waiting:
        yield name, None


def tiles(images: int = 60, keep: int = 3) -> Iterator[Step]:
    """Large pictures that are cut into overlapping tiles of mixed sizes, each filtered at several scales, and blended."""
    rng = random.Random(9)
    pictures: list[Any] = []
    for image in range(images):
        side = rng.choice([1024, 1536, 2048, rng.randrange(700, 2600)])
        yield (image, "out"), 4 * 3 * side * side
        pictures.append((image, "out"))
        for tile in range(rng.randrange(4, 24)):
            edge = rng.choice([128, 192, 256, 384, 512, rng.randrange(64, 600)])
            yield (image, tile), 12 * edge * edge
            for scale in range(4):
                yield (image, tile, scale), 48 * (edge >> scale) ** 2
            for scale in rng.sample(range(4), 4):
                yield (image, tile, scale), None
            yield (image, tile), None
        if len(pictures) > keep:
            yield pictures.pop(rng.randrange(len(pictures))), None
    for name in pictures:
        yield name, None


def detection(images: int = 300) -> Iterator[Step]:
    """A pyramid of features for an image of any size, candidates of any number, masks for those that are left."""
    rng = random.Random(10)
    yield "weights", 170 << 20
    for image in range(images):
        height, width = rng.randrange(400, 1300), rng.randrange(400, 1300)
        names: list[Any] = []
        for level in range(5):
            names.append((image, level))
            yield names[-1], 4 * 256 * (height >> 2 + level) * (width >> 2 + level) + 4
        count = rng.randrange(200, 4000)
        for kind, each in (("boxes", 16), ("scores", 324), ("pooled", 4 * 256 * 7 * 7)):
            names.append((image, kind))
            yield names[-1], each * count
        yield names.pop(), None
        left = rng.randrange(1, 100)
        yield (image, "masks"), 4 * 80 * 28 * 28 * left
        yield (image, "pasted"), left * height * width
        for name in names:
            yield name, None
        yield (image, "masks"), None
        yield (image, "pasted"), None


def random_sizes(seed: int, low: float, high: float, alive: int, steps: int = 5000) -> Iterator[Step]:
    """Sizes over several magnitudes, each alive for a random time."""
    rng = random.Random(seed)
    held: list[int] = []
    for step in range(steps):
        if len(held) >= alive:
            yield held.pop(rng.randrange(len(held))), None
        held.append(step)
        yield step, int(2 ** rng.uniform(low, high))
    for name in held:
        yield name, None


def phases(rounds: int = 6) -> Iterator[Step]:
    """Training, then evaluation with other sizes, over and over: what one caches is of no use to the other as it is."""
    for turn in range(rounds):
        rng = random.Random(turn)
        for _ in range(3):
            sizes = [int(2 ** rng.uniform(18, 24)) for _ in range(40)]
            for place, nbytes in enumerate(sizes):
                yield (turn, "kept", place), nbytes
            for place in reversed(range(len(sizes))):
                yield (turn, "kept", place), None
        for image in range(60):
            nbytes = int(2 ** rng.uniform(20, 25.5))
            yield (turn, image), nbytes
            yield (turn, image, "result"), nbytes // 3
            yield (turn, image), None
            yield (turn, image, "result"), None


TRACES = {"training": training, "inference server": inference_server, "image pipeline": image_pipeline}
#: What is compared with PyTorch's policy.
COMPARED: dict[str, Callable[[], Iterator[Step]]] = {
    **TRACES,
    "training, small": lambda: training(steps=10, layers=4, width=256, batch=16),
    "convolutions": convolutions,
    "convolutions of all sizes": lambda: convolutions(sizes=(128, 160, 192, 224, 256, 288)),
    "convolutions, inference": lambda: convolutions(steps=40, sizes=range(96, 320, 8), frozen=True),
    "growing caches": growing_caches,
    "growing caches, small": lambda: growing_caches(requests=100, at_once=24, layers=6, width=256),
    "batches": batches,
    "tiles": tiles,
    "detection": detection,
    "small sizes": lambda: random_sizes(11, 8, 20, 2000),
    "all sizes": lambda: random_sizes(12, 9, 25, 300),
    "middle sizes": lambda: random_sizes(13, 20, 23.5, 100),
    "phases": phases,
    "training beside inference": lambda: side_by_side(training(4, 6), inference_server(100)),
    "four image pipelines": lambda: side_by_side(*(image_pipeline(150, 3) for _ in range(4))),
    "eight requests": lambda: side_by_side(*(growing_caches(12, 2, 8) for _ in range(8))),
    "tiles beside batches": lambda: side_by_side(tiles(30), batches(150), detection(60)),
    "32 requests": lambda: side_by_side(*(growing_caches(5, 2, 4, 256) for _ in range(32))),
}


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


def stream_of(name: Any) -> int:
    """Whose it is."""
    return name.stream if isinstance(name, On) else 0


def replay(trace: Iterable[Step], pool: Any, *timelines: Any, held: bool = False) -> Outcome:
    """Allocate and free as the trace says; everything is freed in the end.

    Args:
        trace: the trace.
        pool: the allocator.
        timelines: of the streams; one is for all.
        held: each array is used by an operation of its stream that does not complete.
    """
    alive: dict[Any, tuple[Any, int]] = {}
    requested = peak = 0
    for name, nbytes in trace:
        if nbytes is None:
            requested -= alive.pop(name)[1]
        else:
            assert name not in alive
            timeline = timelines[stream_of(name) % len(timelines)]
            alive[name] = pool.allocate(nbytes, timeline), nbytes
            if held:
                alive[name][0]._record_write(timeline, timeline.submit())
            requested += nbytes
            peak = max(peak, requested)
    alive.clear()
    totals = pool.totals
    return Outcome(peak, totals.peak_reserved, totals.allocations, totals.device_allocations)


def replay_reference(trace: Iterable[Step], policy: Any) -> int:
    """What a policy comes to reserve at most."""
    alive: dict[Any, Any] = {}
    for name, nbytes in trace:
        if nbytes is None:
            policy.release(alive.pop(name))
        else:
            alive[name] = policy.allocate(nbytes, stream_of(name))
    return int(policy.peak_reserved)
