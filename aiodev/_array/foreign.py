"""Arrays over memory that other libraries own: through DLPack, NumPy's or the CUDA array interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array import dlpack, host_values, layout
from aiodev._array.array import Array, make_array
from aiodev._array.dtypes import DType, has_dtype, parse_dtype
from aiodev._array.protocols import LEGACY, host_view
from aiodev._core import arguments
from aiodev._core.backend.device import HOST, Device
from aiodev._core.backend.device_info import capabilities
from aiodev._core.backend.interface import DLPACK_HOST
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.sigint import sigint_held
from aiodev._core.streams.current import current_stream
from aiodev._memory.buffer import Foreign, ForeignBuffer

if TYPE_CHECKING:
    from aiodev._core.streams.stream import Stream

__all__ = ["from_dlpack", "is_elsewhere", "share_elsewhere", "wrap_host"]

#: Libraries whose arrays never change, by the packages that their types are of: what they export is read-only on every device,
#: whether they say so or not. JAX (0.10) does not: its capsules have no version, whichever is asked for.
_UNCHANGING = {"jax": "JAX", "jaxlib": "JAX"}
_COPY = "aiodev.from_dlpack(…, copy=True) gives an array that can be written to"
_NEVER_CHANGES = f": arrays of {{}} never change; {_COPY}"
_CANNOT_SAY = f": its DLPack capsule, of before version 1.0, cannot say otherwise; {_COPY}, or a library that exports 1.0"


def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array, which lives as long; read-only if that is.

    A library that exports no version of DLPack from 1.0 on cannot say whether its array is read-only. Its host memory is taken
    for read-only then, as NumPy takes it, and its memory on a device for writable. Arrays of JAX, which never change, are
    read-only everywhere.

    Host memory becomes an array on a CPU device, whichever ``device`` says. What the other library has in flight on the
    array is waited for on the device; host memory must be ready, as libraries with queues see to when they export. A copy of
    host memory has the values of the moment of the call.

    Several arrays of the same memory may be read and written by one operation, as views of one array may. But each of them
    knows only what it was used for itself: another stream, or who reads it back, has to wait for what the others were used for.

    Args:
        x: an object with ``__dlpack__`` and ``__dlpack_device__``.
        device: where the array is to be; where ``x`` is by default. Elsewhere needs a copy.
        copy: True for a copy, False for none, None for one only where there must be.

    Raises:
        TypeError: ``x`` does not have what DLPack asks for.
        BufferError: ``copy=False`` and another device, or memory that no array can be over.

    Example:
        >>> import aiodev, numpy
        >>> host = numpy.zeros(3)
        >>> shared = aiodev.from_dlpack(host)
        >>> host[1] = 7
        >>> shared.numpy_blocking()
        array([0., 7., 0.])
    """
    if copy is not None:
        arguments.instance("from_dlpack", "copy", copy, bool, "True, False or None")
    wanted = None if device is None else registry.resolve(device)[1]
    shared = x[...] if isinstance(x, Array) else _consume(x, wanted)
    home = wanted or shared.device
    if shared.device is home and not copy:
        return shared
    if copy is False:
        raise BufferError(f"copy=False, but the memory is on {shared.device}, not on {home}")
    if not isinstance(x, Array) and shared._buffer.source.host_accessible:
        return host_values.array_of(host_view(shared), shared.dtype, current_stream(home))
    return shared._copied(home)


def _consume(x: Any, wanted: Device | None) -> Array:
    try:
        kind, index = x.__dlpack_device__()
    except (AttributeError, TypeError, ValueError):
        expected = "an object with __dlpack__ and __dlpack_device__, whose numbers are DLPack's"
        raise arguments.refusal("from_dlpack", "x", expected, x) from None
    if kind in DLPACK_HOST:
        home = wanted if wanted is not None and capabilities(wanted).host_accessible else HOST
        stream = current_stream(home)
        # NumPy has no capsules of dtypes that others define, and before 2.1 none that say that an array is read-only; and what
        # reads capsules takes a while to import.
        if isinstance(x, np.ndarray) and has_dtype(x.dtype):
            return wrap_host(x, stream)
        return _array_of(x, _ask(x), stream, 0, host=True)
    name = registry.name_of(lambda has: kind in has.dlpack_types)
    if name is None:
        raise BufferError(f"DLPack device type {kind}: no backend here has such memory, as CUDA's has (2, 13)")
    stream = current_stream(Device(name, index))
    capsule = _ask(x, stream=LEGACY)
    return _array_of(x, capsule, stream, _follow_foreign(stream, LEGACY), host=False)


def _ask(x: Any, **arguments: Any) -> Any:
    """A capsule of the newest kind that the producer has."""
    try:
        return x.__dlpack__(**arguments, max_version=dlpack.VERSION)
    except TypeError:  # a producer of before there were versions
        return x.__dlpack__(**arguments)


def _home_of(address: int | None) -> Device:
    """The CUDA device that has the memory at an address; the current one for no memory."""
    name = registry.name_of(lambda has: has.cuda_interfaces)
    if name is None:
        raise BufferError("the object has the CUDA array interface, and no backend here has CUDA devices")
    if not address:
        current = registry.resolve(None)[1]
        return current if current.type == name else registry.resolve(name)[1]
    handle = registry.handle(name)
    handle.ensure_started()  # the driver runs already: the memory is there
    return Device(name, handle.backend.home_of(address))


def _follow_foreign(stream: Stream, foreign: int) -> int:
    """Order a stream of ours after another library's; returns the number of the wait."""
    timeline = stream.timeline
    timeline.handle.ensure_started()  # the driver runs already: the memory is there
    return timeline.hand_on().wait_foreign(timeline.queue, foreign)


def _array_of(x: Any, capsule: Any, stream: Stream, value: int, host: bool) -> Array:
    with sigint_held:  # the thread that starts a backend may import what this does
        from aiodev._array.capsules import import_capsule

    imported = import_capsule(capsule)
    tensor = imported.tensor
    why = _unchanging(x)
    if not why and host and not imported.is_versioned:  # CuPy and others have no other capsules, and write to a GPU's memory
        why = _CANNOT_SAY
    return _make(
        stream, tensor.address, tensor.shape, tensor.dtype, tensor.strides, tensor.read_only, imported, value, host, why
    )


def _unchanging(x: Any) -> str:
    """Why an object of another library is read-only, if it is one whose arrays never change."""
    for base in type(x).__mro__:
        library = _UNCHANGING.get(base.__module__.partition(".")[0])
        if library is not None:
            return _NEVER_CHANGES.format(library)
    return ""


def _make(
    stream: Stream, address: int, shape: layout.Shape, dtype: DType, strides: layout.Shape | None, read_only: bool,
    owner: object, value: int, host: bool, why_read_only: str = "",
) -> Array:  # fmt: skip
    if address % dtype.alignment and 0 not in shape:
        raise BufferError(f"the memory at {address:#x} is not aligned for {dtype}; aiodev.asarray copies it")
    if strides is not None and layout.is_contiguous(layout.Layout(shape, strides), dtype.itemsize):
        strides = None
    buffer = ForeignBuffer(address, Foreign(stream.device, owner, host, why_read_only), None, stream.timeline, value)
    return make_array(buffer, address, shape, dtype, strides, not (read_only or why_read_only))


def wrap_host(host: np.ndarray[Any, DType], stream: Stream) -> Array:
    """An array over a host array's memory, as a device sees it that shares the host's.

    Raises:
        BufferError: it is not aligned, or in the other byte order.
    """
    interface = host.__array_interface__
    address, read_only = interface["data"]
    dtype = parse_dtype(host.dtype)
    if dtype != host.dtype:
        raise BufferError(f"dtype {host.dtype} has the other byte order; aiodev.asarray converts it")
    return _make(stream, address, host.shape, dtype, interface["strides"], read_only, host, 0, host=True)


def is_elsewhere(obj: Any) -> bool:
    """Whether an object's elements are where NumPy cannot reach them."""
    ask = getattr(obj, "__dlpack_device__", None)
    if ask is not None:
        return ask()[0] not in DLPACK_HOST
    return hasattr(obj, "__cuda_array_interface__")


def share_elsewhere(obj: Any) -> Array:
    """An array over such an object's memory, by DLPack, else by the CUDA array interface.

    Raises:
        BufferError: what the interface describes is no array of ours.
    """
    if hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise BufferError("a masked array cannot be shared")
    foreign = interface.get("stream")
    if foreign == 0:
        raise BufferError("the CUDA array interface names stream 0, which is ambiguous")
    address, read_only = interface["data"]
    stream = current_stream(_home_of(address))
    value = 0 if foreign is None else _follow_foreign(stream, foreign)
    shape, dtype = tuple(interface["shape"]), parse_dtype(interface["typestr"])
    strides, why = interface.get("strides"), _unchanging(obj)
    return _make(stream, address or 0, shape, dtype, strides, read_only, obj, value, host=False, why_read_only=why)
