"""The kernel that copies arrays with gaps; the array layer asks for it by a hook, since kernels stand above arrays."""

from __future__ import annotations

from typing import Any

from aiodev._array.array import Array
from aiodev._array.copy import set_strided_kernel
from aiodev._core.completion import Completion
from aiodev._core.stream import Stream
from aiodev._kernel.kernel import kernel

__all__ = ["copy_strided"]


@kernel(ndim=3)
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """One element."""
    dst[i, j, k] = src[i, j, k]


def _launch(stream: Stream, shape: tuple[int, ...], dst: Array, src: Array) -> Completion:
    return copy_strided[shape, stream](dst, src)


set_strided_kernel(_launch)
