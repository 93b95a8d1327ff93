"""Training the transformer of examples/generate: a step of it, and what its clients see of one that goes on meanwhile.

PyTorch takes part where it is installed: with two threads for a step; where it serves, too, one thread of Python serves and
another one trains, each with one thread of PyTorch's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from generate_peers import PEERS
from harness import Bar, Figure, Run
from library_peers import TORCH, has_torch, tensors
from text_generation import GENERATE, Ours, Threaded, write

import aiodev

sys.path.insert(0, str(GENERATE))
try:
    from fit import WIDTH, attention_bias, initial
    from learner import BATCH, Learner
    from model import HEADS, LENGTH, Model
    from text import encode
finally:
    sys.path.remove(str(GENERATE))

__all__ = ["FIGURES"]

#: Texts that are written at once, and the cases that are compared.
TEXTS = 4
CAPTURED, WITHOUT = "captured", "without training"
ALSO, ALONE = "PyTorch, which trains, too", "PyTorch, without training"
PARAGRAPHS = [" ".join(text.split()) for text in topics.values()]
NAMES = "qkv", "out", "up", "down"

Case = Callable[[], Awaitable[float]] | Callable[[], float]


def _batches() -> Iterator[np.ndarray[Any, Any]]:
    """Codes of texts, and one more of each."""
    codes, random = encode("\n".join(PARAGRAPHS)), np.random.default_rng(0)
    while True:
        places = random.integers(0, len(codes) - LENGTH, BATCH)
        yield np.stack([codes[place : place + LENGTH + 1] for place in places])


async def step(run: Run) -> Figure:
    """A step, forward, backward and AdamW, of texts of 128 characters; the end of the last one is waited for."""
    count, batches, rate = run.scale(4), [*itertools.islice(_batches(), 4)], np.float64(1e-3)
    serving = aiodev.Stream("cpu")
    with serving:
        learner = Learner(initial(), Model(initial()), serving)

    def ours(function: Callable[..., Awaitable[Any]]) -> Case:
        stream = aiodev.Stream("cpu")

        async def case() -> float:
            with stream:
                began = time.perf_counter()
                for codes in itertools.islice(itertools.cycle(batches), count):
                    await function(aiodev.asarray(codes, device="cpu"), rate)
                await stream.synchronize()
            return (time.perf_counter() - began) / count * 1e3

        return case

    cases: dict[str, Case] = {"aiodev": ours(learner._train), CAPTURED: ours(learner._step)}
    bars = []
    if has_torch():
        theirs = _torch_step(2)

        def case() -> float:
            began = time.perf_counter()
            for codes in itertools.islice(itertools.cycle(batches), count):
                loss = theirs(codes)
            loss.item()
            return (time.perf_counter() - began) / count * 1e3

        cases[TORCH] = case
        bars = [Bar(TORCH, at_most=1.0), Bar(TORCH, at_most=1.0, case=CAPTURED)]
    return Figure(f"a step of the text model, {BATCH} texts", "ms", await run.medians(cases), bars)


async def pace(run: Run) -> Figure:
    """The time from one character to the next of four texts, its 99th percentile: with a learner that trains, and without."""
    batch = Ours(TEXTS)
    batch.stream = aiodev.Stream("cpu", priority=-1)
    await batch.capture()
    learner = Learner(initial(), batch._slots.model, batch.stream)
    await learner.run(PARAGRAPHS, steps=1)

    @contextlib.asynccontextmanager
    async def trains() -> AsyncIterator[None]:
        learning = asyncio.create_task(learner.run(PARAGRAPHS))
        yield
        learning.cancel()
        await asyncio.wait([learning])
        await aiodev.synchronize("cpu")

    cases: dict[str, Case] = {
        "aiodev": _gaps(batch, run, trains),
        WITHOUT: _gaps(batch, run, contextlib.nullcontext),
    }
    bars = [Bar(WITHOUT, at_most=2.0)]
    if has_torch():
        peer = Threaded(TEXTS, PEERS["PyTorch eager, 1 thread"][1](initial(), HEADS, TEXTS, LENGTH))
        cases |= {ALSO: _gaps(peer, run, _trained_by_torch), ALONE: _gaps(peer, run, contextlib.nullcontext)}
    return Figure(f"between tokens, 99 %, {TEXTS} texts, while it trains", "µs", await run.medians(cases), bars)


def _gaps(batch: Ours | Threaded, run: Run, beside: Callable[[], Any]) -> Case:
    """The 99th percentile of the times from one character to the next, beside something."""

    async def case() -> float:
        times: list[float] = []
        async with beside():
            await write(batch, run, times.append)
        return float(np.percentile(times, 99)) * 1e6

    return case


@contextlib.asynccontextmanager
async def _trained_by_torch() -> AsyncIterator[None]:
    """A thread that trains."""
    ended, train = threading.Event(), _torch_step(1)

    def run() -> None:
        for codes in _batches():
            if ended.is_set():
                return
            train(codes)

    training = asyncio.create_task(asyncio.to_thread(run))
    yield
    ended.set()
    await training


def _torch_step(threads: int) -> Callable[[np.ndarray[Any, Any]], Any]:
    """A step of the same model in PyTorch; the loss."""
    import torch
    from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention

    weights = {name: matrix if matrix.ndim == 3 else matrix[None] for name, matrix in initial().items()}
    parameters = {
        name: [one.requires_grad_() for one in tensors(*matrices)] for name, matrices in weights.items()
    }
    (bias,) = tensors(attention_bias())
    everything = [one for own in parameters.values() for one in own]
    optimizer = torch.optim.AdamW(everything, 1e-3, betas=(0.9, 0.98), weight_decay=0.1)

    def norm(x: Any) -> Any:
        return rms_norm(x, [WIDTH], None, 1e-6)

    def train(host: np.ndarray[Any, Any]) -> Any:
        if torch.get_num_threads() != threads:  # each thread of Python has a number of its own
            torch.set_num_threads(threads)
        optimizer.zero_grad()
        codes = torch.from_numpy(host).long()
        x = parameters["table"][0][codes[:, :-1]].reshape(-1, WIDTH)
        for qkv, out, up, down in zip(*(parameters[name] for name in NAMES), strict=True):
            heads = (norm(x) @ qkv).reshape(len(host), LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = scaled_dot_product_attention(*heads, bias, scale=1 / math.sqrt(WIDTH // HEADS))
            x = x + mixed.transpose(1, 2).reshape(-1, WIDTH) @ out
            x = x + torch.relu(norm(x) @ up).square() @ down
        loss = cross_entropy(norm(x) @ parameters["head"][0], codes[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(everything, 1.0)
        optimizer.step()
        return loss

    return train


FIGURES = {"text-step": step, "text-train-pace": pace}
