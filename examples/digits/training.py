"""A run of training, as a coroutine; who wants to know how it goes follows its news."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from model import BATCH, UNSEEN, Data, Model

import aiodev

__all__ = ["Training", "heartbeat"]

PEAK = 3e-3  #: the learning rate at the beginning
EVERY = 4  #: steps between two looks at the loss; until then nobody waits for the device


def cosine(done: float) -> float:
    """The learning rate, when this part of the steps is done."""
    return PEAK * (1 + np.cos(np.pi * done)) / 2


class Training:
    """A run.

    Attributes:
        news: what there was to tell so far: a dictionary for each look at the loss, and for each epoch.
        is_over: whether there will be no more.
    """

    def __init__(self, data: Data, epochs: int = 20, seed: int = 0) -> None:
        self.data, self.epochs, self.seed = data, epochs, seed
        self.news: list[dict[str, Any]] = []
        self.is_over = False
        self._changed = asyncio.Event()

    async def run(self, lags: deque[float]) -> None:
        """Train, on the current stream."""
        try:
            model, random = Model(self.data, self.seed), np.random.default_rng(self.seed)
            batches = len(model.images) // BATCH
            began, steps = time.perf_counter(), self.epochs * batches
            for step in range(steps):
                if step % batches == 0:
                    order = random.permutation(len(model.images))
                chosen = order[step % batches * BATCH :][:BATCH]
                loss = await model.step(aiodev.asarray(chosen), np.float64(cosine(step / steps)))
                done = step + 1
                if done % EVERY == 0:
                    news = {"loss": await loss.item(), "lag_ms": worst(lags), "seconds": time.perf_counter() - began}
                    self._tell(step=done, steps=steps, **news)
                if done % batches == 0:
                    found, right = model.test()
                    accuracy = await right.item() / UNSEEN
                    self._tell(step=done, epoch=done // batches, accuracy=accuracy, found=await found.tolist())
        finally:
            self.is_over = True
            self._changed.set()

    def _tell(self, **news: Any) -> None:
        self.news.append(news)
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """The news from the beginning, each as soon as there is one, until the run is over."""
        told = 0
        while True:
            changed, is_over = self._changed, self.is_over
            while told < len(self.news):
                yield self.news[told]
                told += 1
            if is_over:
                return
            await changed.wait()

    @property
    def accuracy(self) -> float | None:
        """The part of unseen digits that it was right about last."""
        return next((one["accuracy"] for one in reversed(self.news) if "accuracy" in one), None)


def worst(lags: deque[float]) -> float:
    """The greatest lag since somebody asked, in ms."""
    longest = max(lags, default=0.0)
    lags.clear()
    return 1000 * longest


@contextlib.asynccontextmanager
async def heartbeat() -> AsyncIterator[deque[float]]:
    """Note how late a timer of 1 ms is, in seconds: what any other task of the loop would have to wait."""
    lags: deque[float] = deque(maxlen=10_000)

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(max(0.0, time.perf_counter() - before - 0.001))

    beating = asyncio.create_task(beat())
    try:
        yield lags
    finally:
        beating.cancel()
