"""Memory by address, for libraries that take pointers."""

from __future__ import annotations

from aiodev._core import arguments
from aiodev._core.at_fork import in_child
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._memory.allocators import allocator_of
from aiodev._memory.buffer import Buffer

__all__ = ["allocate", "free"]

_held: dict[int, tuple[Buffer, Stream]] = {}
in_child(_held.clear)


def allocate(nbytes: int, device: DeviceLike | None = None, stream: Stream | None = None) -> int:
    """Address of device memory, a multiple of 256, to be given back by :func:`free`.

    It comes from the same cache as arrays' memory, and is for work that is submitted to ``stream`` from now on: what was
    submitted there before may still use it.

    Args:
        nbytes: how much.
        device: whose memory; the current device by default.
        stream: in whose order it is used; the device's current stream by default.

    Raises:
        OutOfMemoryError: there is no more.
        TypeError: ``nbytes`` is no integer, or ``stream`` no stream.
        ValueError: ``nbytes`` is negative, or ``device`` is not the stream's.

    Example:
        >>> import aiodev
        >>> address = aiodev.memory.allocate(1 << 20, "cpu")
        >>> address % 256
        0
        >>> aiodev.memory.free(address)
    """
    nbytes = arguments.integer("allocate", "nbytes", nbytes, least=0)
    if stream is None:
        stream = current_stream(device)
    elif not isinstance(stream, Stream):
        raise arguments.refusal("allocate", "stream", "a Stream, or None", stream)
    elif device is not None and registry.resolve(device)[1] is not stream.device:
        raise ValueError(f"allocate: device={device!s} is asked for, but the stream is of {stream.device}")
    buffer = allocator_of(stream.timeline).allocate(nbytes, stream.timeline)
    _held[buffer.address] = buffer, stream
    return buffer.address


def free(address: int) -> None:
    """Give back what :func:`allocate` gave, in stream order: what its stream was given so far may still use it.

    Raises:
        TypeError: it is no integer.
        ValueError: nothing is allocated at that address; it was freed before, or is not ours, or lies inside of an allocation.

    Example:
        >>> import aiodev
        >>> address = aiodev.memory.allocate(100, "cpu")
        >>> aiodev.memory.free(address)
        >>> try:
        ...     aiodev.memory.free(address)
        ... except ValueError as error:
        ...     print("freed twice" in str(error))
        True
    """
    address = arguments.integer("free", "address", address)
    try:
        buffer, stream = _held.pop(address)
    except KeyError:
        raise ValueError(_why_not(address)) from None
    buffer.record_foreign(stream.timeline, stream.timeline.submitted)


def _why_not(address: int) -> str:
    for start, (buffer, _) in _held.copy().items():
        if start < address < start + buffer.block.size:
            return f"free({address:#x}): that lies {address - start:,} bytes inside of the allocation at {start:#x}"
    return f"free({address:#x}): memory.allocate has given nothing that is still held there; is it freed twice, or not ours?"
