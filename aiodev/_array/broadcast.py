"""Broadcasting: views that repeat elements without copies of them."""

from __future__ import annotations

from typing import Any

from aiodev._array.array import Array, are_integers, view_of
from aiodev._core.arguments import instance

__all__ = ["broadcast_to"]

#: In a form's shapes, ahead of lengths: of what is repeated to these, not reshaped.
_REPEATED = None


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
    if x.__class__ is Array and shape.__class__ is tuple and are_integers(shape):
        known = x._form.shapes.get((_REPEATED, shape))
        if known is not None:
            return view_of(x, known)
    instance("broadcast_to", "x", x, Array, "an array")
    wanted = x._parsed(shape)
    fill = len(wanted) - x.ndim
    lengths = (1,) * fill + x.shape
    if fill < 0 or any(old not in (1, new) for old, new in zip(lengths, wanted, strict=True)):
        raise ValueError(f"broadcast_to: the shape {x.shape} cannot be repeated to {wanted}")
    steps = zip(lengths, wanted, (0,) * fill + x.strides, strict=True)
    strides = tuple(0 if old == 1 and new != 1 else stride for old, new, stride in steps)
    repeated = x._broadcast(wanted, strides)
    if x.__class__ is Array:
        x._form = form = x._form.again()
        form.keep_shape((_REPEATED, wanted), repeated._form)
    return repeated
