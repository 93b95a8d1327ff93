"""Losses: how far scores are from what they should say."""

from __future__ import annotations

import numpy as np

import aiodev
from aiodev.kernels.arguments import arrays_of, whole_number
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import astype, where
from aiodev.kernels.elementwise.table import divide, negative, not_equal
from aiodev.kernels.indexing.take import take_along_axis
from aiodev.kernels.manipulation.views import expand_dims, squeeze
from aiodev.kernels.nn.normalization import log_softmax
from aiodev.kernels.reductions import count_nonzero, mean, sum

__all__ = ["cross_entropy"]


_REDUCTIONS = "mean", "sum", "none"


@composed
def cross_entropy(
    logits: aiodev.Array, labels: aiodev.Array, /, *, reduction: str = "mean", ignore_index: int | None = None
) -> aiodev.Array:
    """The negative logarithms of the probabilities of classes, which :func:`softmax` makes of scores; their mean.

    Computed by :func:`log_softmax`, so neither large scores nor small probabilities overflow. A label that is no class is an
    ``IndexError`` of :func:`take_along_axis`, the first cause of what waiters get.

    Args:
        logits: scores, of which the last dimension is that of the classes.
        labels: which class it is, of the other dimensions; negative ones count from the end.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for one loss for each label.
        ignore_index: a label, of no class as a rule, where nothing is to be learnt, such as behind the end of a text. Its loss
            is 0, it has no gradient, and the mean is that of the others, NaN where there are none.

    Raises:
        TypeError: something is no array, ``labels`` are no integers, or ``ignore_index`` is none.
        ValueError: the shapes do not fit, or there is no such reduction.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> scores = aiodev.asarray([[0.0, 0.0], [1000.0, 0.0]], device="cpu")
        >>> labels = aiodev.asarray([1, 1], device="cpu")
        >>> aiodev.kernels.cross_entropy(scores, labels, reduction="none").numpy_blocking().round(3).tolist()
        [0.693, 1000.0]
        >>> labels = aiodev.asarray([1, -100], device="cpu")
        >>> aiodev.kernels.cross_entropy(scores, labels, ignore_index=-100).numpy_blocking().round(3).tolist()
        0.693
    """
    arrays_of("cross_entropy", logits=logits, labels=labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: argument labels: expected integers, got {labels.dtype}")
    if not logits.ndim or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"cross_entropy: argument labels: expected the shape of logits, {logits.shape}, without the last dimension, "
            f"got {labels.shape}"
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"cross_entropy: argument reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
    if ignore_index is None:
        losses = _losses(logits, labels)
        return mean(losses) if reduction == "mean" else sum(losses) if reduction == "sum" else losses
    ignored = whole_number("cross_entropy", "ignore_index", ignore_index)
    counts = not_equal(labels, ignored)
    losses = where(counts, _losses(logits, where(counts, labels, 0)), 0.0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return sum(losses)
    total = sum(losses, dtype=np.float64)  # which the dtype of the losses may not have, nor their number
    return astype(divide(total, astype(count_nonzero(counts), np.float64)), losses.dtype, copy=False)


def _losses(logits: aiodev.Array, labels: aiodev.Array) -> aiodev.Array:
    """The loss of each label."""
    return negative(squeeze(take_along_axis(log_softmax(logits), expand_dims(labels, axis=-1), axis=-1), axis=-1))
