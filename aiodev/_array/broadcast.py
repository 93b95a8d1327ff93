"""Broadcasting: views that repeat elements without copies of them."""

from __future__ import annotations

from typing import Any

from aiodev._array.array import Array
from aiodev._core.arguments import instance

__all__ = ["broadcast_to"]


def broadcast_to(x: Array, /, shape: Any) -> Array:
    """A read-only view in which dimensions of length 1, and new ones before the first, are repeated to ``shape``.

    Raises:
        TypeError: ``x`` is no array, or ``shape`` no shape.
        ValueError: the shape does not follow from that of ``x`` by repetition.

    Example:
        >>> import aiodev
        >>> aiodev.broadcast_to(aiodev.arange(3, device="cpu"), (2, 3)).numpy_blocking()
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    instance("broadcast_to", "x", x, Array, "an array")
    return x._broadcast_to(shape)
