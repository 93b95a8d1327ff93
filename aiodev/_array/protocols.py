"""How other libraries see an array: as NumPy's array interface, or through DLPack.

These protocols are synchronous, so they block, for exactly the work that uses the array's memory; in coroutines,
``await array.numpy()`` or wait for the array's completion first. They share memory where the host can reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aiodev._array.dtypes import DType
from aiodev._array.layout import Shape
from aiodev._core.reactor import wait_blocking

if TYPE_CHECKING:
    from aiodev._memory.buffer import Buffer

__all__ = ["Protocols", "Unwaited", "wait_for_uses"]

#: DLPack's code for host memory.
DLPACK_CPU = 1


def wait_for_uses(buffer: Buffer, timeout: float | None = None) -> None:
    """Block until nothing uses the memory, and raise what went wrong with its contents."""
    for timeline, value in buffer.pending():
        wait_blocking(timeline, value, timeout)
    buffer.check()


class Protocols:
    """The protocols of an array, as methods."""

    __slots__ = ()

    if TYPE_CHECKING:
        _address: int
        _buffer: Buffer
        _dtype: DType
        _shape: Shape
        _strides: Shape | None
        _writable: bool

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3, over this memory; blocks until the work on it is done."""
        self._need_host_access(AttributeError)
        wait_for_uses(self._buffer)
        return _interface(self, self._writable)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, DType]:
        """This memory as a NumPy array, not copied unless ``dtype`` or ``copy`` asks for it; blocks.

        Raises:
            TypeError: the host cannot reach the device's memory.
        """
        self._need_host_access(TypeError)
        view = np.asarray(_Exported(self))
        if copy or (copy is None and dtype is not None and np.dtype(dtype) != view.dtype):
            return view.astype(dtype or view.dtype)
        if dtype is not None and np.dtype(dtype) != view.dtype:
            raise ValueError(f"copy=False, but {view.dtype} must be converted to {np.dtype(dtype)}")
        return view

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (type, index) of the device."""
        self._need_host_access(BufferError)
        return DLPACK_CPU, 0

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A DLPack capsule over this memory; blocks until the work on it is done.

        ``max_version``, ``dl_device`` and ``copy`` are as the array API has them, where NumPy knows them (2.1 and later).

        Raises:
            BufferError: the host cannot reach the memory, or the array is read-only and the consumer too old to be told.
        """
        self._need_host_access(BufferError)
        if stream not in (None, -1):
            raise BufferError(f"stream={stream!r}: host memory has no streams that a consumer could name")
        given = {name: value for name, value in options.items() if value is not None}
        view = cast("Any", self.__array__())
        return view.__dlpack__(**given)

    def _need_host_access(self, error: type[Exception]) -> None:
        source = self._buffer.source
        if not source.host_accessible:
            raise error(
                f"the host cannot reach memory of {source.device}; `await array.numpy()` copies it, "
                f"`array.to('cpu')` moves it"
            )


class _Exported:
    """What NumPy holds as the base of its view, so that the memory lives as long as the view."""

    def __init__(self, array: Protocols) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Unwaited:
    """An array's memory as NumPy sees it, without waiting for the work on it."""

    def __init__(self, array: Protocols) -> None:
        self._array = array
        self.__array_interface__ = _interface(array, True)


def _interface(array: Protocols, writable: bool) -> dict[str, Any]:
    return {
        "version": 3,
        "data": (array._address, not writable),
        "shape": array._shape,
        "strides": array._strides,
        "typestr": array._dtype.str,
    }
