"""Kernels that convert dtypes for :func:`aiodev.asarray`. The array layer asks for them by a hook, as for copies."""

from __future__ import annotations

from typing import Any

from aiodev._array import creation
from aiodev._array.array import Array, allocate
from aiodev._array.dtypes import DType
from aiodev._core.streams.current import current_stream
from aiodev._kernel.kernel import kernel

__all__ = ["convert", "convert_to_truth", "converted"]


@kernel(uniform=True, reads=["x"])
def convert(i: int, x: Any, out: Any) -> None:
    """Convert one element; assignment converts."""
    out[i] = x[i]


@kernel(uniform=True, reads=["x"])
def convert_to_truth(i: int, x: Any, out: Any) -> None:
    """Whether an element is not 0."""
    out[i] = x[i] != 0


def converted(x: Array, dtype: DType) -> Array:
    """A new array of the elements in another dtype, submitted to the current stream of the array's device.

    Raises:
        TypeError: complex numbers cannot become real ones.
    """
    if x.dtype.kind == "c" and dtype.kind not in "bc":
        raise TypeError(f"asarray: {x.dtype} cannot become {dtype}; complex numbers have no order and two parts")
    flat, stream = x.reshape(x.size), current_stream(x.device)
    out = allocate(x.shape, dtype, stream)
    if x.size:
        (convert_to_truth if dtype.kind == "b" else convert)[x.size, stream](flat, out.reshape(x.size))
    return out


creation.convert.provide(converted)
