"""The kernel that copies arrays with gaps; the array layer asks for it by a hook, since kernels stand above arrays.

A copy between two arrays of one device, on its current stream, is remembered for arrays of these layouts. They must be of
different memory of ours: whether other arrays overlap does not follow from their layouts.
"""

from __future__ import annotations

import math
from typing import Any

from aiodev._array.array import Array
from aiodev._array.carrying import set_repeat_copy
from aiodev._array.copy import set_strided_kernel
from aiodev._core.completion import Completion
from aiodev._core.current import current_stream
from aiodev._core.stream import Stream
from aiodev._kernel.kernel import kernel
from aiodev._kernel.launch_cache import LaunchCache
from aiodev._memory.buffer import ForeignBuffer

__all__ = ["copy_strided"]

_launches = LaunchCache(operands=1)


@kernel(ndim=3, reads=["src"])
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """One element."""
    dst[i, j, k] = src[i, j, k]


def _launch(
    stream: Stream, shape: tuple[int, ...], dst: Array, src: Array, whole: tuple[Array, Array] | None
) -> Completion:
    if whole is not None and _are_apart(*whole) and stream is current_stream(stream.device):
        out, x = whole
        return _launches.launch(None, (x,), out, copy_strided, shape, (dst, src), (1, 0), made=False)
    return copy_strided._call((math.prod(shape), shape, stream), dst, src)


def _repeat(dst: Array, src: Array) -> Completion | None:
    if not _are_apart(dst, src) or _launches.repeat(None, src, dst) is None:
        return None
    return Completion(dst._buffer._timeline, dst._buffer._value)


def _are_apart(dst: Array, src: Array) -> bool:
    """Whether both are memory of ours, which is not the same, on one device."""
    to, fro = dst._buffer, src._buffer
    apart = to is not fro and not isinstance(to, ForeignBuffer) and not isinstance(fro, ForeignBuffer)
    return apart and to.source.device is fro.source.device


set_strided_kernel(_launch)
set_repeat_copy(_repeat)
