"""The network, its data, and one step of its training."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import aiodev
from aiodev import autograd, kernels, optim

__all__ = ["BATCH", "Data", "Model", "load_data"]

BATCH = 64
CHANNELS, HIDDEN, CLASSES = (16, 32), 64, 10
UNSEEN = 360  #: digits that are kept for the test


class Data:
    """Images, float32 (n, 1, 8, 8) from 0 to 1, and which digits they are, int64 (n,): to train with, and for the test."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, seed: int = 0) -> None:
        order = np.random.default_rng(seed).permutation(len(images))
        images = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        labels = labels[order].astype(np.int64)
        self.test, self.train = (images[:UNSEEN], labels[:UNSEEN]), (images[UNSEEN:], labels[UNSEEN:])


def load_data() -> Data:
    """scikit-learn's handwritten digits."""
    return Data(*load_digits(return_X_y=True))


class Model:
    """A small convolutional network. Its data stay on the device; a step is told which images to take."""

    def __init__(self, data: Data, seed: int) -> None:
        random = np.random.default_rng(seed)
        first, second = CHANNELS
        shapes = [(first, 1, 3, 3), (second, first, 3, 3), (second * 16, HIDDEN), (HIDDEN, CLASSES)]
        self.parameters = []
        for shape in shapes:
            inputs, outputs = (int(np.prod(shape[1:])), shape[0]) if len(shape) == 4 else shape
            weights = random.standard_normal(shape) * np.sqrt(2 / inputs)
            for host in (weights, np.zeros(outputs)):
                self.parameters.append(autograd.Variable(aiodev.asarray(host.astype(np.float32))))
        self.optimizer = optim.AdamW(self.parameters)
        self.images, self.labels = map(aiodev.asarray, data.train)
        self.unseen, self.answers = map(aiodev.asarray, data.test)
        self.step = aiodev.make_graphed(self._step)  # forward, backward and update: one submission from the second on

    def scores(self, x: aiodev.Array) -> aiodev.Array:
        """(n, 10) of images (n, 1, 8, 8): the largest says which digit it is."""
        filters, offsets, more, others, weights, bias, last, shift = self.parameters
        x = kernels.relu(kernels.conv2d(x, filters, offsets, padding=1))
        x = kernels.max_pool2d(kernels.relu(kernels.conv2d(x, more, others, padding=1)), 2)
        x = kernels.relu(x.reshape(len(x), -1) @ weights + bias)
        return x @ last + shift

    async def _step(self, chosen: aiodev.Array, lr: np.float64) -> aiodev.Array:
        """Train with some of the images; the loss."""
        self.optimizer.lr = lr
        self.optimizer.zero_grad()
        images, labels = kernels.take(self.images, chosen, axis=0), kernels.take(self.labels, chosen, axis=0)
        loss = kernels.cross_entropy(self.scores(images), labels)
        await loss.backward()
        self.optimizer.step()
        return loss

    def test(self) -> tuple[aiodev.Array, aiodev.Array]:
        """What it takes the digits of the test for, and how many of these are right; submitted."""
        with autograd.no_grad():
            found = kernels.argmax(self.scores(self.unseen), axis=1)
            return found, kernels.sum(kernels.equal(found, self.answers))
