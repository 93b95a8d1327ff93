"""Copies of arrays with gaps; the array layer asks for them by a hook, since kernels stand above arrays.

A copy between two arrays of one device is an operation, which is remembered for arrays of these forms, and found there by
:mod:`aiodev._array.copy`. They must be of memory of ours: whether two of other memory overlap nobody knows. Of two in one
buffer the operation looks at each call.
"""

from __future__ import annotations

from aiodev._array.array import Array
from aiodev._array.copy import known_copy, strided_kernel
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch.call import Call
from aiodev._kernel.dispatch.copying import copies
from aiodev._kernel.operation import operation

__all__ = ["copy_apart"]


@operation(reads=["x"], writes="out")
def copy_apart(call: Call, x: Array, /, *, out: Array) -> Array:
    """Copy to an array that has no elements in common with it, of any strides."""
    call.copy(out, x)
    return out


def _launch(stream: Stream, dst: Array, src: Array) -> Completion[None]:
    if _are_apart(dst, src) and dst.device is stream.device:
        with stream:
            copy_apart(src, out=dst)
        return Completion(stream.timeline, dst._buffer.written_by(stream.timeline))
    done: Completion[None] | None = None
    for kernel, lengths, args in copies(stream.device, dst, src):
        done = kernel[(*lengths, stream)](*args)
    assert done is not None
    return done


def _are_apart(dst: Array, src: Array) -> bool:
    """Whether both are memory of ours on one device, and not the same elements."""
    to, fro = dst._buffer, src._buffer
    if to is fro and dst._address == src._address:
        return False
    return to.is_own and fro.is_own and to.source.device is fro.source.device


strided_kernel.provide(_launch)
known_copy.provide(copy_apart.operation.known.get)
