"""Bound launches: a kernel with its arguments, shape and stream fixed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch.launch import bound_call_maker
from aiodev._kernel.dispatch.signature import ARRAYS

if TYPE_CHECKING:
    from aiodev._kernel.dispatch.specializations import Specialization
    from aiodev._kernel.kernel import Kernel

__all__ = ["BoundLaunch"]


# Calling a ``partial`` costs less than calling an object with a ``__call__`` in Python, by about a tenth of a launch.
class BoundLaunch(functools.partial[Completion[None]]):
    """A kernel bound to its arguments, a shape and a stream by :meth:`Kernel.bind`; ``bound()`` launches it.

    It may be called by any thread, any number of times, while earlier launches of it are pending. A call returns a
    :class:`Completion` as a plain launch does, raises what that raises where the stream is full or closed, and fails with the
    stream where that has failed. An error names the place of the call.

    Attributes:
        kernel: what is launched.
        shape: over how many indices, a tuple.
        stream: where.
        arguments: of the kernel; the arrays among them live as long as this does.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel
        ... def increment(i, x):
        ...     x[i] += 1
        >>> x = aiodev.zeros(3, device="cpu")
        >>> step = increment.bind(3, x)
        >>> done = [step() for _ in range(10)]
        >>> x.numpy_blocking()
        array([10., 10., 10.])
    """

    kernel: Kernel
    shape: tuple[int, ...]
    stream: Stream
    arguments: tuple[Any, ...]

    def __new__(
        cls,
        kernel: Kernel,
        specialization: Specialization,
        stream: Stream,
        shape: tuple[int, ...],
        arguments: tuple[Any, ...],
        block: bytes,
        slow: Callable[[int], Completion[None]],
    ) -> BoundLaunch:
        pattern = specialization.signature.pattern
        kinds = "".join(kind for kind in pattern if kind in ARRAYS)
        buffers = [a._buffer for a, kind in zip(arguments, pattern, strict=True) if kind in ARRAYS]
        loading = specialization.loading
        make = bound_call_maker(kinds)
        call = make(loading, stream, loading.entry, math.prod(shape), block, slow, *buffers)
        made = super().__new__(cls, call)
        made.kernel, made.shape, made.stream, made.arguments = kernel, shape, stream, arguments
        return made

    def __repr__(self) -> str:
        lengths = ", ".join(map(str, self.shape))
        return f"<aiodev.BoundLaunch {self.kernel.name}[{lengths}] on {self.stream!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a bound launch belongs to its process: it holds device memory and a stream")
