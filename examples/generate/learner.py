"""Training while the service serves: on the same device and loop, behind what clients wait for.

The learner's stream has a low priority, and that of the texts a high one: between two kernels of a step of training, and
between the chunks of one, the steps of the texts have their turn. What was learnt reaches the service in two moves, of which
neither has the service wait for training: a copy on the learner's stream, which the loop awaits; and one of that to the
weights that the texts read, between two steps of theirs.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from fit import DECAY, HIGHEST, WARM_UP, attention_bias, loss_of
from model import BLOCK, LENGTH, Model
from text import encode, read_paragraphs

import aiodev
from aiodev import autograd, optim

__all__ = ["Learner"]

SEED = 28
#: Texts of a step. More: learns better by a step; fewer: the loss is known more often.
BATCH = 8
#: Steps between two moves of what was learnt.
EVERY = 5


class Learner:
    """Learns from paragraphs, and has a served model follow.

    Args:
        weights: to begin with, as the model was made of.
        model: what is served.
        serving: the stream that the model's steps run on.

    Attributes:
        news: of each step its number, its loss, and when it was taken, in seconds.
    """

    def __init__(self, weights: dict[str, np.ndarray], model: Model, serving: aiodev.Stream) -> None:
        self.news: list[dict[str, Any]] = []
        self._model, self._serving = model, serving
        self._stream = aiodev.Stream(serving.device, priority=1)
        with self._stream:
            stacked = {name: host if host.ndim == 3 else host[None] for name, host in weights.items()}
            self.parameters = {
                name: [autograd.Variable(aiodev.asarray(matrix)) for matrix in host] for name, host in stacked.items()
            }
            self._everything = [one for own in self.parameters.values() for one in own]
            self._optimizer = optim.AdamW(self._everything, betas=(0.9, 0.98), weight_decay=DECAY)
            self._bias = aiodev.asarray(attention_bias())
            self._learnt = {name: [aiodev.empty_like(one) for one in own] for name, own in self.parameters.items()}
        self._step = aiodev.make_graphed(self._train)

    async def _train(self, codes: aiodev.Array, lr: np.float64) -> aiodev.Array:
        """Forward, backward and update, for texts of ``LENGTH`` characters and one more; the loss."""
        self._optimizer.lr = lr
        self._optimizer.zero_grad()
        loss = loss_of(self.parameters, self._bias, codes)
        await loss.backward()
        optim.clip_grad_norm(self._everything, 1.0)
        self._optimizer.step()
        return loss

    async def learn(self) -> None:
        """Learn what ships with Python, which another process looks for, until the task is cancelled."""
        loop = asyncio.get_running_loop()
        processes = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            paragraphs = await loop.run_in_executor(processes, read_paragraphs)
        finally:
            processes.shutdown(wait=False, cancel_futures=True)
        np.random.default_rng(SEED).shuffle(paragraphs)
        await self.run(paragraphs)

    async def run(self, paragraphs: list[str], steps: int | None = None) -> None:
        """Learn, for so many steps, or until the task is cancelled."""
        random = np.random.default_rng(SEED)
        codes = encode("\n" + "\n".join(paragraphs) + "\n")
        async with self._stream:
            began = time.perf_counter()
            for step in itertools.count(1) if steps is None else range(1, steps + 1):
                places = random.integers(0, len(codes) - LENGTH, BATCH)
                texts = aiodev.asarray(np.stack([codes[place : place + LENGTH + 1] for place in places]))
                loss = await self._step(texts, np.float64(HIGHEST * min(step / WARM_UP, 1.0)))
                self.news.append({"step": step, "loss": await loss.item(), "seconds": time.perf_counter() - began})
                if step % EVERY == 0 or step == steps:
                    await self.publish()

    async def publish(self) -> None:
        """Have the service go on with what was learnt so far."""
        with self._stream:
            for name, own in self.parameters.items():
                for copy, one in zip(self._learnt[name], own, strict=True):
                    copy.copy_from(one.detach())
            await self._stream.synchronize()
        with self._serving:
            learnt, model = self._learnt, self._model
            model.table.copy_from(learnt["table"][0])
            _copy_blocks(model.head, learnt["head"][0])
            for place, blocks in enumerate(model.layers):
                for name, block in zip(("qkv", "out", "up", "down"), blocks, strict=True):
                    _copy_blocks(block, learnt[name][place])
            await self._serving.record_event()


def _copy_blocks(blocks: aiodev.Array, matrix: aiodev.Array) -> None:
    """Columns of a matrix to where the model has them, in blocks; the last one may have room left."""
    for place, block in enumerate(blocks):
        own = matrix[:, place * BLOCK : (place + 1) * BLOCK]
        block[:, : own.shape[1]].copy_from(own)
