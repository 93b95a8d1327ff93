"""The network: fitted by scikit-learn at first start, run by aiodev's kernels."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

import aiodev

__all__ = ["LARGEST_BATCH", "Network", "fit", "load_weights", "save_weights"]

LARGEST_BATCH = 64
FEATURES, HIDDEN, CLASSES = 64, 512, 10


@aiodev.kernel(ndim=2, fastmath=True)  # sums in any order: vectorised
def dense(i, j, x, weights, bias, relu, out):
    """One output of a dense layer; ``weights`` is (outputs, inputs), so that its rows lie together."""
    total = bias[j]
    for k in range(weights.shape[1]):
        total += x[i, k] * weights[j, k]
    out[i, j] = max(total, np.float32(0)) if relu else total


@aiodev.kernel
def softmax(i, logits, out):
    """Row ``i`` of the logits as probabilities."""
    largest = logits[i, 0]
    for c in range(1, logits.shape[1]):
        largest = max(largest, logits[i, c])
    total = 0.0
    for c in range(logits.shape[1]):
        total += math.exp(logits[i, c] - largest)
    for c in range(logits.shape[1]):
        out[i, c] = math.exp(logits[i, c] - largest) / total


def fit():
    """scikit-learn's classifier for its own data set of handwritten digits; takes some seconds."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    return MLPClassifier((HIDDEN, HIDDEN), max_iter=60, random_state=0, tol=1e-3).fit(images / 16, labels)


def save_weights(classifier, path: Path) -> None:
    """Keep what the classifier has learnt: for each layer the weights, (outputs, inputs), and the bias."""
    layers = zip(classifier.coefs_, classifier.intercepts_, strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, *(np.ascontiguousarray(a, np.float32) for weights, bias in layers for a in (weights.T, bias)))


def load_weights() -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of each layer; the network is fitted now if it has not been before."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aiodev-examples" / "digits.npz"
    path = Path(os.environ.get("DIGITS_MODEL", default))
    if not path.exists():
        save_weights(fit(), path)
    with np.load(path) as stored:
        arrays = [stored[f"arr_{n}"] for n in range(len(stored.files))]
    return list(zip(arrays[0::2], arrays[1::2], strict=True))


class Network:
    """The weights on a device; ``submit`` queues a batch on the current stream."""

    #: Bytes of device memory that one batch needs while it is under way.
    workspace = LARGEST_BATCH * (FEATURES + 2 * HIDDEN + 2 * CLASSES) * 4

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.layers = [(aiodev.asarray(w), aiodev.asarray(b)) for w, b in weights]

    async def compile(self) -> None:
        """Have every kernel ready before the first request."""
        await self.submit(np.zeros((1, FEATURES), np.float32)).numpy()

    def submit(self, images: np.ndarray) -> aiodev.Array:
        """Probabilities, float32 (n, 10), of images, float32 (n, 64) with values from 0 to 1. Does not wait."""
        values = aiodev.empty(images.shape, dtype=np.float32)
        values.copy_from(images)
        for number, (weights, bias) in enumerate(self.layers):
            out = aiodev.empty((len(images), len(bias)), dtype=np.float32)
            dense[out.shape](values, weights, bias, number < len(self.layers) - 1, out)
            values = out
        probabilities = aiodev.empty(values.shape, dtype=np.float32)
        softmax[len(images)](values, probabilities)
        return probabilities
