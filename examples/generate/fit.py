"""``python examples/generate/fit.py``: how weights.npz was made, in some minutes of two cores, by aiodev itself.

The losses are in nats per character: 4.6 knows nothing, 1.2 writes English.

The weights follow from the seed and the text to the last bit, whatever number of cores there is and whatever else they do. The
text is that of one version of Python, which is why its digest is printed; and processors of another kind may round otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import time
from pathlib import Path

import numpy as np
from model import HEADS, LENGTH, save_weights
from text import SYMBOLS, encode, read_paragraphs

import aiodev
from aiodev import autograd, kernels, optim

LAYERS, WIDTH = 4, 128
BATCH, HIGHEST, WARM_UP, DECAY = 8, 3e-3, 100, 0.1
SEED = 28

Parameters = dict[str, list[autograd.Variable]]


def initial() -> dict[str, np.ndarray]:
    """Weights before anything is learnt; each layer's matrices in one array."""
    random = np.random.default_rng(SEED)

    def normal(*shape: int, deviation: float) -> np.ndarray:
        return (random.standard_normal(shape) * deviation).astype(np.float32)

    narrow, wide = 1 / math.sqrt(WIDTH), 1 / math.sqrt(4 * WIDTH)
    last = 1 / math.sqrt(2 * LAYERS)  # so many parts add up
    return {
        "table": normal(len(SYMBOLS), WIDTH, deviation=1.0),
        "qkv": normal(LAYERS, WIDTH, 3 * WIDTH, deviation=narrow),
        "out": normal(LAYERS, WIDTH, WIDTH, deviation=narrow * last),
        "up": normal(LAYERS, WIDTH, 4 * WIDTH, deviation=narrow),
        "down": normal(LAYERS, 4 * WIDTH, WIDTH, deviation=wide * last),
        "head": normal(WIDTH, len(SYMBOLS), deviation=0.1 * narrow),
    }


def on_device(weights: dict[str, np.ndarray]) -> Parameters:
    """A variable for each matrix."""
    return {
        name: [autograd.Variable(aiodev.asarray(one)) for one in (host if host.ndim == 3 else host[None])]
        for name, host in weights.items()
    }


def attention_bias() -> np.ndarray:
    """What is added to scores: the further back, the less, by a slope of each head's own (ALiBi); the future not at all."""
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    slopes = 2.0 ** (-8 * (np.arange(HEADS) + 1) / HEADS)
    return np.where(distance < 0, -1e9, -slopes[:, None, None] * distance).astype(np.float32)


def scores_of(parameters: Parameters, bias: aiodev.Array, codes: aiodev.Array) -> aiodev.Array:
    """The logarithms of the probabilities of each next character, for texts of ``LENGTH`` characters: a row for each of all."""
    x = kernels.take(parameters["table"][0], codes, axis=0).reshape(-1, WIDTH)
    scale = np.float32(1 / math.sqrt(WIDTH // HEADS))
    for qkv, out, up, down in zip(*(parameters[name] for name in ("qkv", "out", "up", "down")), strict=True):
        heads = (kernels.rms_norm(x) @ qkv).reshape(*codes.shape, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        shares = kernels.softmax((query * scale) @ key.transpose(0, 1, 3, 2) + bias)
        x = x + (shares @ value).transpose(0, 2, 1, 3).reshape(-1, WIDTH) @ out
        x = x + kernels.square(kernels.relu(kernels.rms_norm(x) @ up)) @ down
    return kernels.log_softmax(kernels.rms_norm(x) @ parameters["head"][0])


def loss_of(parameters: Parameters, bias: aiodev.Array, codes: aiodev.Array) -> aiodev.Array:
    """The mean loss over texts of ``LENGTH`` characters and one more."""
    scores = scores_of(parameters, bias, codes[:, :-1])
    return -kernels.take_along_axis(scores, codes[:, 1:].reshape(-1, 1), axis=1).mean()


def rate(step: int, steps: int) -> float:
    """How fast to learn: rises for a while, and falls as a line."""
    return HIGHEST * min(step / WARM_UP, 1.0, 1.02 - step / steps)


async def fit(steps: int) -> dict[str, np.ndarray]:
    """The weights after so many steps."""
    paragraphs = await asyncio.to_thread(read_paragraphs)
    random = np.random.default_rng(SEED)
    random.shuffle(paragraphs)
    codes = encode("\n" + "\n".join(paragraphs) + "\n")
    held = len(codes) // 50
    digest = hashlib.sha256(codes.tobytes()).hexdigest()[:16]
    print(f"{len(codes):,} characters of {len(paragraphs):,} paragraphs, with the digest {digest}")
    async with aiodev.device("cpu"), aiodev.Stream():
        parameters = on_device(initial())
        everything = [one for own in parameters.values() for one in own]
        optimizer = optim.AdamW(everything, betas=(0.9, 0.98), weight_decay=DECAY)
        bias = aiodev.asarray(attention_bias())

        def batch(first: int, last: int) -> aiodev.Array:
            places = random.integers(first, last - LENGTH, BATCH)
            return aiodev.asarray(np.stack([codes[place : place + LENGTH + 1] for place in places]))

        began, lately = time.perf_counter(), []
        for step in range(1, steps + 1):
            optimizer.lr = rate(step, steps)
            optimizer.zero_grad()
            loss = loss_of(parameters, bias, batch(held, len(codes)))
            await loss.backward()
            optim.clip_grad_norm(everything, 1.0)
            optimizer.step()
            lately.append(await loss.item())
            if step % 100 == 0 or step == steps:
                with autograd.no_grad():
                    unseen = await loss_of(parameters, bias, batch(0, held)).item()
                minutes = (time.perf_counter() - began) / 60
                print(f"step {step}, {minutes:.1f} min: loss {np.mean(lately):.3f}, of unseen text {unseen:.3f}", flush=True)
                lately.clear()
        learnt = {name: np.stack([await one.numpy() for one in own]) for name, own in parameters.items()}
    return learnt | {name: learnt[name][0] for name in ("table", "head")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3900)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "weights.npz")
    options = parser.parse_args()
    save_weights(asyncio.run(fit(options.steps)), options.output)
