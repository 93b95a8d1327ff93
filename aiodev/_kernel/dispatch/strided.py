"""Copies of arrays with gaps; the array layer asks for them by a hook, since kernels stand above arrays.

A copy between two arrays of one device is an operation, which is remembered for arrays of these forms, or has a plan for them,
and is found there by :mod:`aiodev._array.copy`. They must be of memory of ours: whether two of other memory overlap nobody
knows. Of two in one buffer the operation looks at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiodev._array.array import Array
from aiodev._array.copy import known_copy, strided_kernel
from aiodev._array.form import Form
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


def _find(forms: tuple[Form, Form]) -> Callable[..., Any] | None:
    """What copies arrays of two forms as such were copied before, or as a plan says."""
    launch = _known.get(forms)
    if launch is None:
        one, other = forms
        family = _families.get((one.key, other.key))
        if family is not None and family.is_plain_turn():
            family.served += 1
            return family.plan
    return launch


_known, _families = copy_apart.operation.known, copy_apart.operation.families
strided_kernel.provide(_launch)
known_copy.provide(_find)
