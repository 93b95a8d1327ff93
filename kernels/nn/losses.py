"""Losses: how far scores are from what they should say."""

from __future__ import annotations

import aiodev
from aiodev.kernels.arguments import arrays_of
from aiodev.kernels.elementwise.table import negative
from aiodev.kernels.indexing.take import take_along_axis
from aiodev.kernels.manipulation.views import expand_dims, squeeze
from aiodev.kernels.nn.normalization import log_softmax
from aiodev.kernels.reductions import mean

__all__ = ["cross_entropy"]


def cross_entropy(logits: aiodev.Array, labels: aiodev.Array, /, *, reduction: str = "mean") -> aiodev.Array:
    """The negative logarithms of the probabilities of classes, which :func:`softmax` makes of scores; their mean.

    Computed by :func:`log_softmax`, so neither large scores nor small probabilities overflow. A label that is no class is an
    ``IndexError`` of :func:`take_along_axis`, the first cause of what waiters get.

    Args:
        logits: scores, of which the last dimension is that of the classes.
        labels: which class it is, of the other dimensions; negative ones count from the end.
        reduction: ``"mean"``, or ``"none"`` for one loss for each label.

    Raises:
        TypeError: something is no array, or ``labels`` are no integers.
        ValueError: the shapes do not fit, or there is no such reduction.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> scores = aiodev.asarray([[0.0, 0.0], [1000.0, 0.0]], device="cpu")
        >>> labels = aiodev.asarray([1, 1], device="cpu")
        >>> aiodev.kernels.cross_entropy(scores, labels, reduction="none").numpy_blocking().round(3).tolist()
        [0.693, 1000.0]
    """
    arrays_of("cross_entropy", logits=logits, labels=labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: argument labels: expected integers, got {labels.dtype}")
    if not logits.ndim or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"cross_entropy: argument labels: expected the shape of logits, {logits.shape}, without the last dimension, "
            f"got {labels.shape}"
        )
    if reduction not in ("mean", "none"):
        raise ValueError(f"cross_entropy: argument reduction: expected 'mean' or 'none', got {reduction!r}")
    chosen = take_along_axis(log_softmax(logits), expand_dims(labels, axis=-1), axis=-1)
    return negative(mean(chosen) if reduction == "mean" else squeeze(chosen, axis=-1))
