"""Protocols by which other libraries see an array: DLPack, NumPy's array interface, the CUDA array interface.

These protocols are synchronous. Where the consumer names a stream, that stream waits for the work on the array, and nothing
blocks. Where it cannot, they block, for exactly the work that uses the array's memory; in coroutines, ``await
array.numpy()`` or wait for the array's completion first.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array import dlpack
from aiodev._array.dtypes import DType, is_foreign, numpy_dtype
from aiodev._array.layout import Layout, Shape
from aiodev._core.arguments import integer, refusal
from aiodev._core.backend.device import HOST, Device
from aiodev._core.backend.device_info import capabilities
from aiodev._core.errors import CaptureError
from aiodev._core.finalizing import until_exit
from aiodev._core.sigint import sigint_held
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import under_way
from aiodev._core.waiting.blocking import wait_all_blocking

if TYPE_CHECKING:
    from aiodev._array.form import Form
    from aiodev._memory.buffer import Buffer

__all__ = ["Protocols", "address_of", "host_view", "host_window", "interface", "refuse_captured", "wait_for_uses"]

#: Handles of CUDA streams that mean another thing than an address: the legacy default stream, and the thread's own.
LEGACY, PER_THREAD = 1, 2


def refuse_captured(buffer: Buffer) -> None:
    """Refuse what is known only when a graph is replayed, to the task that captures it."""
    recording = current_stream(buffer.source.device).timeline.recording
    if recording is not None and recording.depends_on_replay(buffer):
        recording.refuse("the host cannot read what is known only when the graph is replayed")


def wait_for_uses(buffer: Buffer) -> None:
    """Block until nothing uses the memory, and raise what went wrong with its contents."""
    if under_way:
        refuse_captured(buffer)
    wait_all_blocking(buffer.pending(), None)
    buffer.check()


class Protocols:
    """The protocols of an array, as methods."""

    __slots__ = ()

    if TYPE_CHECKING:
        _address: int
        _buffer: Buffer
        _form: Form

        @property
        def device(self) -> Device: ...

        @property
        def dtype(self) -> DType: ...

        @property
        def shape(self) -> Shape: ...

        @property
        def strides(self) -> Shape: ...

        @property
        def writable(self) -> bool: ...

        @property
        def size(self) -> int: ...

        @property
        def itemsize(self) -> int: ...

        @property
        def nbytes(self) -> int: ...

        @property
        def _layout(self) -> Layout: ...

        def _copied(self, device: Device) -> Protocols: ...

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3, over this memory; blocks until the work on it is done.

        It is read-only where what ``__array__`` gives is.
        """
        self._need_host_access(AttributeError)
        self._need_numpy_dtype()
        wait_for_uses(self._buffer)
        return interface(self, self._is_writable_by_host())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3, of an array on a CUDA device.

        The legacy default stream, which the interface names, is made to wait for the work on the array.
        """
        if not capabilities(self.device).cuda_interfaces:
            raise AttributeError(
                f"the array is on {self.device}; only arrays on CUDA devices have a CUDA array interface"
            )
        self._need_numpy_dtype()
        stream = LEGACY if self._order_foreign(LEGACY) else None
        return interface(self, self.writable) | {"stream": stream}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, DType]:
        """This memory as a NumPy array, not copied unless ``dtype`` or ``copy`` asks for it; blocks.

        It is read-only where the array is, and of a variable that gradients reach (:doc:`/concepts/autograd`).

        Raises:
            TypeError: the host cannot reach the device's memory, or ``copy`` is neither None nor a truth value.
            ValueError: ``copy=False``, and ``dtype`` is another one.
        """
        if copy is not None and not isinstance(copy, bool | np.bool_):
            raise refusal("Array.__array__", "copy", "True, False or None", copy)
        self._need_host_access(TypeError)
        wait_for_uses(self._buffer)
        view = host_view(self, self._is_writable_by_host())
        wanted = view.dtype if dtype is None else numpy_dtype(dtype)
        if copy or (copy is None and wanted != view.dtype):
            return view.astype(wanted)
        if wanted != view.dtype:
            raise ValueError(f"copy=False, but {view.dtype} must be converted to {wanted}")
        return view

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (type, index) of the device.

        Raises:
            BufferError: DLPack has no number for it.
        """
        device = self.device
        if self._buffer.source.host_accessible:
            return dlpack.CPU, 0
        kinds = capabilities(device).dlpack_types
        if not kinds:
            raise BufferError(f"DLPack has no number for devices of type {device.type!r}; `array.to('cpu')` moves it")
        return kinds[0], device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this memory, or over a copy; the consumer keeps the memory alive.

        Args:
            stream: which of the consumer's streams will use it: that one then waits for the work on the array. On the host
                there are none: None blocks until the work is done. -1 leaves the order to the consumer, and waits for nothing.
            max_version: the newest version that the consumer knows; a versioned capsule from (1, 0) on.
            dl_device: the array's device, or the CPU, to which arrays of other devices are then copied.
            copy: True for a copy; False for none; None for one where there must be.

        Raises:
            TypeError: ``dl_device`` or ``max_version`` is no pair of integers, or ``copy`` no truth value.
            BufferError: ``copy=False`` and another device; a device that is neither; a stream that does not exist; negative
                strides; the array is read-only and the consumer too old to be told; or it is a variable that gradients reach,
                and no copy is made (:doc:`/concepts/autograd`).
        """
        with sigint_held:  # the thread that starts a backend may import what this does
            from aiodev._array.capsules import export_capsule

        if copy is not None and not isinstance(copy, bool | np.bool_):
            raise refusal("__dlpack__", "copy", "True, False or None", copy)
        own = self.__dlpack_device__()
        wanted = own if dl_device is None else _pair("dl_device", dl_device)
        if max_version is not None:
            max_version = _pair("max_version", max_version)
        if wanted not in (own, (dlpack.CPU, 0)):
            raise BufferError(f"dl_device={wanted}: the array is on {own}, and is exported there or to the CPU (1, 0)")
        if wanted != own and copy is False:
            raise BufferError(f"copy=False, but dl_device={wanted} is not where the array is, {own}")
        copied = bool(copy) or wanted != own
        if not copied and not self._form.packed and min(self.strides) < 0:
            # Of the consumers, NumPy knows them; PyTorch 2.13 ends the process.
            raise BufferError(
                f"strides {self.strides}: consumers of DLPack need not know negative strides; copy=True exports a copy, "
                f"and NumPy's asarray shares the memory"
            )
        lent = self._lend(copied)
        shown = lent._copied(HOST if wanted != own else self.device) if copied else lent
        owner: Any = shown
        if wanted[0] == dlpack.CPU:
            if stream not in (None, -1):
                raise BufferError(f"stream={stream!r}: host memory has no streams that a consumer could name")
            if copied or stream is None:
                wait_for_uses(shown._buffer)
        elif stream != -1:
            owner = shown._hand_over(LEGACY if stream is None else stream)
        tensor = dlpack.Tensor(
            shown._address, (wanted[0], wanted[1]), shown.dtype, shown.shape, shown.strides,
            not shown.writable, copied,
        )  # fmt: skip
        return export_capsule(tensor, owner, max_version)

    def _is_writable_by_host(self) -> bool:
        return self.writable

    def _lend(self, copied: bool) -> Protocols:
        """The array that a consumer is shown, or is shown a copy of."""
        return self

    def _hand_over(self, stream: int) -> object:
        """Let a consumer's stream use the memory; what is returned is to be held until the consumer is done."""
        if stream == 0:
            raise BufferError("stream=0 is ambiguous: 1 is the legacy default stream, 2 the thread's own")
        if not self._order_foreign(stream):
            return self
        return _Lent(self, stream)

    def _order_foreign(self, stream: int) -> bool:
        """Have another library's stream wait for the work on this array; False if the host has waited instead."""
        follows = True
        for timeline, value in self._buffer.pending():
            follows = timeline.hand_on().foreign_wait(stream, timeline.queue, value) and follows
        if not follows:
            wait_for_uses(self._buffer)
        self._buffer.check()
        return follows

    def _need_numpy_dtype(self) -> None:
        if is_foreign(self.dtype):
            raise AttributeError(
                f"array interfaces have no name for {self.dtype}; DLPack has, and numpy.asarray gives a NumPy array of it"
            )

    def _need_host_access(self, error: type[Exception]) -> None:
        source = self._buffer.source
        if not source.host_accessible:
            raise error(
                f"the host cannot reach memory of {source.device}; `await array.numpy()` copies it, "
                f"`array.to('cpu')` moves it"
            )


def _pair(name: str, value: Any) -> tuple[int, int]:
    if isinstance(value, tuple | list) and len(value) == 2:
        first, second = (integer("__dlpack__", name, own) for own in value)
        return first, second
    raise refusal("__dlpack__", name, "a pair of integers", value)


@until_exit
class _Lent:
    """Device memory in use by another library's stream.

    A consumer may let go of it with work on its stream still to come. So the memory counts as used until that stream's present
    end, by way of a stream of ours, which is made here since a finalizer should make nothing. The consumer may have destroyed
    its stream by then, or this may be another thread than the one whose default stream was named: only the legacy stream,
    which never ends, is waited for by its handle; for any other, all that the device was given is.
    """

    __slots__ = ("_array", "_foreign", "_stream")

    def __init__(self, array: Protocols, foreign: int) -> None:
        self._array = array
        self._foreign = LEGACY if foreign in (LEGACY, PER_THREAD) else 0  # which the threads' own streams are in step with
        self._stream = Stream(array.device)

    def __del__(self) -> None:
        timeline = self._stream.timeline
        if timeline.lost is None:
            with suppress(CaptureError):  # a graph is being made, whose owner keeps what it uses for as long as it is replayed
                value = timeline.operations.wait_foreign(timeline.queue, self._foreign)
                self._array._buffer._record_read(timeline, value)


class _Exported:
    """The base of NumPy's view, so that the memory lives as long as the view."""

    def __init__(self, array: Protocols, writable: bool) -> None:
        self._array = array
        self.__array_interface__ = interface(array, writable)


def host_view(array: Protocols, writable: bool = True) -> np.ndarray[Any, DType]:
    """An array's memory as NumPy sees it, which lives as long; the work on it is not waited for."""
    view = np.asarray(_Exported(array, writable))
    return view.view(array.dtype) if is_foreign(array.dtype) else view


#: All memory from an address on: NumPy looks at no more of it than an array has.
_Window: Any = ctypes.c_char * (1 << 46)


def host_window(array: Protocols) -> np.ndarray[Any, DType]:
    """As :func:`host_view`, in a third of the time, and of use for no longer than the caller holds the array; a packed one."""
    form = array._form
    return np.ndarray(form.shape, form.dtype, _Window.from_address(array._address))


def address_of(host: Any) -> int:
    """Where the bytes of a packed, writable host array begin; NumPy's own protocol takes five times as long."""
    return ctypes.addressof(ctypes.c_char.from_buffer(host))


def interface(array: Protocols, writable: bool) -> dict[str, Any]:
    """What NumPy's and the CUDA array interface have in common; of a dtype that NumPy does not define, as plain bytes."""
    return {
        "version": 3,
        "data": (array._address, not writable),
        "shape": array._form.shape,
        "strides": None if array._form.packed else array._form.strides,
        "typestr": f"|V{array.dtype.itemsize}" if is_foreign(array.dtype) else array.dtype.str,
    }
