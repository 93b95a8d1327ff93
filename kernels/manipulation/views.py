"""Views: elements in another shape or order, without a copy where strides can express it."""

from __future__ import annotations

from collections.abc import Sequence

import aiodev
from aiodev.kernels.arguments import arrays_of, broadcast, checked_axis, flags, whole_numbers

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "reshape",
    "squeeze",
    "unstack",
]

broadcast_to = aiodev.broadcast_to

Axes = int | Sequence[int]


def checked_axes(name: str, axes: Axes, ndim: int) -> list[int]:
    """Axes from the first, each of them once.

    Raises:
        ValueError: one is not there, or there twice.
    """
    given = whole_numbers(f"{name}: axes", axes)
    checked = [checked_axis(name, axis, ndim) for axis in given]
    if len(set(checked)) != len(checked):
        raise ValueError(f"{name}: axes {given} name one twice")
    return checked


def broadcast_arrays(*arrays: aiodev.Array) -> list[aiodev.Array]:
    """Read-only views of all in the shape that they broadcast to.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> [a.shape for a in aiodev.kernels.broadcast_arrays(x, x.reshape(3, 1))]
        [(3, 3), (3, 3)]
    """
    checked = arrays_of("broadcast_arrays", **{f"arrays[{number}]": x for number, x in enumerate(arrays)})
    shape = broadcast("broadcast_arrays", *(x.shape for x in checked))
    return [broadcast_to(x, shape) for x in checked]


def reshape(x: aiodev.Array, /, shape: int | Sequence[int], *, copy: bool | None = None) -> aiodev.Array:
    """The same elements in C order in another shape; one length may be -1. A view, or a copy where no view is that.

    Args:
        copy: True for a copy in any case, False for a view or an error.

    Raises:
        TypeError: ``copy`` is none of True, False and None.
        ValueError: the shape has another number of elements; or ``copy=False``, and no view has it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
        >>> aiodev.kernels.reshape(x, (3, -1)).numpy_blocking()
        array([[0, 1],
               [2, 3],
               [4, 5]])
    """
    (x,) = arrays_of("reshape", x=x)
    if copy is not None:
        flags("reshape", copy=copy)
    view = x.reshape(shape)
    is_copy = view.address != x.address and view.size > 0
    if copy is False and is_copy:
        raise ValueError(f"reshape: copy=False, but no view of the shape {x.shape} with strides {x.strides} is {view.shape}")
    if not copy or is_copy:
        return view
    return aiodev.asarray(view, copy=True)


def permute_dims(x: aiodev.Array, /, axes: Sequence[int]) -> aiodev.Array:
    """The dimensions in another order; a view.

    Raises:
        ValueError: the axes are not all that there are, each once.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
        >>> aiodev.kernels.permute_dims(x, (1, 0)).shape
        (3, 2)
    """
    (x,) = arrays_of("permute_dims", x=x)
    order = checked_axes("permute_dims", axes, x.ndim)
    if len(order) != x.ndim:
        raise ValueError(f"permute_dims: axes {axes}: expected each of {x.ndim} once")
    return x.transpose(*order) if order else x


def moveaxis(x: aiodev.Array, source: Axes, destination: Axes, /) -> aiodev.Array:
    """The dimensions ``source`` at the places ``destination``, the others in their order; a view.

    Raises:
        ValueError: they are not as many.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.empty((2, 3, 4), device="cpu")
        >>> aiodev.kernels.moveaxis(x, 0, -1).shape
        (3, 4, 2)
    """
    (x,) = arrays_of("moveaxis", x=x)
    taken, places = (checked_axes("moveaxis", axes, x.ndim) for axes in (source, destination))
    if len(taken) != len(places):
        raise ValueError(f"moveaxis: {len(taken)} dimensions cannot be put at {len(places)} places")
    order = [axis for axis in range(x.ndim) if axis not in taken]
    for place, axis in sorted(zip(places, taken, strict=True)):
        order.insert(place, axis)
    return x.transpose(*order) if order else x


def expand_dims(x: aiodev.Array, /, axis: int = 0) -> aiodev.Array:
    """A new dimension of length 1 at ``axis`` of the result; a view.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.expand_dims(x, axis=0).shape
        (1, 3)
    """
    (x,) = arrays_of("expand_dims", x=x)
    at = checked_axis("expand_dims", axis, x.ndim + 1)
    return x[(slice(None),) * at + (None,)]


def squeeze(x: aiodev.Array, /, axis: Axes) -> aiodev.Array:
    """Without dimensions of length 1; a view.

    Raises:
        ValueError: one of them is longer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.empty((1, 3, 1), device="cpu")
        >>> aiodev.kernels.squeeze(x, axis=0).shape
        (3, 1)
    """
    (x,) = arrays_of("squeeze", x=x)
    dropped = checked_axes("squeeze", axis, x.ndim)
    if any(x.shape[a] != 1 for a in dropped):
        raise ValueError(f"squeeze: the shape {x.shape} has other lengths than 1 at {tuple(dropped)}")
    return x[tuple(0 if a in dropped else slice(None) for a in range(x.ndim))]


def flip(x: aiodev.Array, /, *, axis: Axes | None = None) -> aiodev.Array:
    """The elements in the opposite order along the axes, along all by default; a view.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
        >>> aiodev.kernels.flip(x, axis=1).numpy_blocking()
        array([[2, 1, 0],
               [5, 4, 3]])
    """
    (x,) = arrays_of("flip", x=x)
    turned = range(x.ndim) if axis is None else checked_axes("flip", axis, x.ndim)
    return x[tuple(slice(None, None, -1) if a in turned else slice(None) for a in range(x.ndim))]


def unstack(x: aiodev.Array, /, *, axis: int = 0) -> tuple[aiodev.Array, ...]:
    """The parts along ``axis``, without it: views, what :func:`stack` has put together.

    Raises:
        ValueError: there is no such axis.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
        >>> [part.numpy_blocking() for part in aiodev.kernels.unstack(x, axis=1)]
        [array([0, 3]), array([1, 4]), array([2, 5])]
    """
    (x,) = arrays_of("unstack", x=x)
    at = checked_axis("unstack", axis, x.ndim)
    return tuple(x[(slice(None),) * at + (place,)] for place in range(x.shape[at]))
