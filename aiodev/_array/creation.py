"""Functions that make arrays. They submit to the current stream and wait for nothing."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aiodev._array import host_values
from aiodev._array.array import Array, allocate, fill_array
from aiodev._array.copy import copy_arrays
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.foreign import from_dlpack, is_elsewhere, share_elsewhere
from aiodev._array.layout import parse_shape
from aiodev._array.protocols import host_view
from aiodev._array.tuning import HERE
from aiodev._core import arguments, context
from aiodev._core.backend.registry import DeviceLike
from aiodev._core.hooks import Hook
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream

__all__ = [
    "arange",
    "asarray",
    "convert",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

#: Types of which NumPy makes a fresh array, in memory that nobody else has.
_PLAIN = (list, tuple, bool, int, float, complex, np.generic)


def empty(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array whose elements are not defined.

    Args:
        shape: a length, or a tuple of lengths.
        dtype: what NumPy takes for one: booleans, integers, floats and complex numbers; float64 by default.
        device: where; the current device by default.

    Raises:
        OutOfMemoryError: there is no room for it, even after all cached memory that can be was given back.
        TypeError: no device has that dtype.
        ValueError: a length is negative, or there are more than 64.

    Example:
        >>> import aiodev
        >>> aiodev.empty((2, 3), dtype="float32", device="cpu").nbytes
        24
    """
    stream = (context.current().stream or current_stream()) if device is None else current_stream(device)
    return _empty(shape, parse_dtype(dtype), stream)


def _empty(shape: Any, dtype: DType, stream: Stream) -> Array:
    lengths: tuple[int, ...] = (shape,) if type(shape) is int and shape >= 0 else parse_shape(shape)
    return allocate(lengths, dtype, stream)


def empty_like(x: Array, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of the same shape, and of the same dtype and device unless given, whose elements are not defined.

    Example:
        >>> import aiodev
        >>> x = aiodev.ones((2, 3), "int32", "cpu")
        >>> y = aiodev.empty_like(x, dtype="float32")
        >>> y.shape, y.dtype
        ((2, 3), dtype('float32'))
    """
    return empty(*_like("empty_like", x, dtype, device))


def zeros_like(x: Array, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """Zeros in the shape of an array; arguments as for :func:`empty_like`.

    Example:
        >>> import aiodev
        >>> aiodev.zeros_like(aiodev.ones(3, "int32", "cpu")).numpy_blocking()
        array([0, 0, 0], dtype=int32)
    """
    shape, kind, where = _like("zeros_like", x, dtype, device)
    return full(shape, 0, kind, where)


def ones_like(x: Array, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """Ones in the shape of an array; arguments as for :func:`empty_like`.

    Example:
        >>> import aiodev
        >>> aiodev.ones_like(aiodev.zeros(3, "int32", "cpu")).numpy_blocking()
        array([1, 1, 1], dtype=int32)
    """
    shape, kind, where = _like("ones_like", x, dtype, device)
    return full(shape, 1, kind, where)


def full_like(x: Array, fill_value: complex, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """One value in the shape of an array, and in its dtype unless given; otherwise as :func:`full`.

    Example:
        >>> import aiodev
        >>> aiodev.full_like(aiodev.zeros(3, "int32", "cpu"), 7).numpy_blocking()
        array([7, 7, 7], dtype=int32)
    """
    shape, kind, where = _like("full_like", x, dtype, device)
    return _filled(shape, _pattern_of("full_like", fill_value, parse_dtype(kind)), where)


def _like(function: str, x: Any, dtype: Any, device: DeviceLike | None) -> tuple[tuple[int, ...], Any, DeviceLike]:
    """Shape, dtype and device of an array like another one."""
    arguments.instance(function, "x", x, Array, "an array")
    return x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device


def zeros(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of zeros; arguments as for :func:`empty`.

    Example:
        >>> import aiodev
        >>> aiodev.zeros((2, 2), "int64", "cpu").numpy_blocking()
        array([[0, 0],
               [0, 0]])
    """
    return _filled(shape, _pattern(0, parse_dtype(dtype)), device)


def ones(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of ones; arguments as for :func:`empty`.

    Example:
        >>> import aiodev
        >>> aiodev.ones(3, device="cpu").numpy_blocking()
        array([1., 1., 1.])
    """
    return _filled(shape, _pattern(1, parse_dtype(dtype)), device)


def full(shape: Any, fill_value: complex, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array filled with one value; its dtype is that of the value unless given.

    Raises:
        TypeError: ``fill_value`` is no number, or none that can become one of that dtype.
        ValueError: it is an array, or too large for the dtype, or without one for every dtype of integers.

    Example:
        >>> import aiodev
        >>> aiodev.full(3, 1.5, device="cpu").numpy_blocking()
        array([1.5, 1.5, 1.5])
    """
    return _filled(shape, _pattern_of("full", fill_value, None if dtype is None else parse_dtype(dtype)), device)


def _pattern_of(function: str, fill_value: Any, wanted: DType | None) -> np.ndarray[Any, DType]:
    """One value as NumPy's array of no dimensions; what is no number is refused when its dtype is looked at."""
    if isinstance(fill_value, Array):
        fill_value = fill_value._plainly(f"{function} of a variable")
    try:
        pattern = np.asarray(fill_value, wanted)
    except OverflowError:
        expected = f"a number that {wanted or 'a dtype'} has"
        raise ValueError(arguments.message(function, "fill_value", expected, fill_value)) from None
    except (TypeError, ValueError):
        raise arguments.refusal(function, "fill_value", f"one number, as of {wanted or 'some dtype'}", fill_value) from None
    if pattern.ndim:
        raise ValueError(f"{function}: argument fill_value: expected one number, got the shape {pattern.shape}")
    if pattern.dtype.kind == "O" and isinstance(fill_value, int):
        raise ValueError(arguments.message(function, "fill_value", "a number that fits a dtype of integers", fill_value))
    return pattern


@functools.cache
def _pattern(value: int, dtype: DType) -> np.ndarray[Any, DType]:
    return np.asarray(value, dtype)


def _filled(shape: Any, pattern: np.ndarray[Any, DType], device: DeviceLike | None) -> Array:
    """An array filled with the one element of a pattern."""
    stream = (context.current().stream or current_stream()) if device is None else current_stream(device)
    array = _empty(shape, pattern.dtype, stream)
    count = array.size
    if count:
        # Who watches what the host writes would have it as a constant, and is to repeat the operation.
        is_here = count * pattern.dtype.itemsize <= HERE and not host_values.watching
        if not (is_here and host_values.write_fresh(array, stream.timeline, pattern)):
            fill_array(array, stream, count, pattern.tobytes())
    return array


def _bound_of(name: str, bound: Any) -> Any:
    """A bound that is no Python number: NumPy's keep their dtype, others become floats."""
    scalar = bound[()] if isinstance(bound, np.ndarray) and not bound.ndim else bound
    real = arguments.number("arange", name, scalar)
    return scalar if isinstance(scalar, np.generic) else real


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: Any = None, device: DeviceLike | None = None
) -> Array:
    """Evenly spaced values from ``start`` (0 if only one number is given) up to ``stop``, without it, as NumPy's.

    They are counted on from the first two, in ``dtype``. So beyond what a dtype of integers has they wrap around, as NumPy's
    and PyTorch's do: ``arange(0, 300, dtype="uint8")`` ends with 43.

    Raises:
        TypeError: one of them is no real number.
        ValueError: ``step`` is 0, or a number is NaN or infinite.
        OverflowError: one of the first two values is beyond a dtype of integers; of an array of more than some KiB, where it is
            waited for.

    Example:
        >>> import aiodev
        >>> aiodev.arange(2, 10, 3, device="cpu").numpy_blocking()
        array([2, 5, 8])
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = (
        bound if isinstance(bound, int | float) else _bound_of(name, bound)
        for name, bound in (("start", start), ("stop", stop), ("step", step))
    )
    if not step:
        raise ValueError(f"arange: step={step!r}: expected a number other than 0")
    resolved = parse_dtype(np.result_type(start, stop, step) if dtype is None else dtype)
    try:
        length = max(0, math.ceil((stop - start) / step))
    except (OverflowError, ValueError):
        between = f"from {arguments.shown(start)} to {arguments.shown(stop)} by {arguments.shown(step)}"
        raise ValueError(f"arange: expected numbers with a finite number of steps between them, got {between}") from None
    stream = current_stream(device)
    if length * resolved.itemsize <= HERE:
        values = _values(start, stop, step, resolved)[:length] if length else np.empty(0, resolved)
        return host_values.array_of(values, resolved, stream, ours=True)
    bounds: list[Any] = [start, stop, step, resolved]
    bounds = [number[()] if isinstance(number, np.ndarray) else number for number in bounds]  # as they are now
    array, values = allocate((length,), resolved, stream), np.empty(length, resolved)
    stream.call(lambda: np.copyto(values, _values(*bounds)[:length]))
    copy_arrays(stream, array, values)
    return array


def _values(start: Any, stop: Any, step: Any, dtype: Any) -> np.ndarray[Any, DType]:
    spaced: Any = np.arange
    values: np.ndarray[Any, DType] = spaced(start, stop, step, dtype)
    return values


def asarray(obj: Any, dtype: Any = None, device: DeviceLike | None = None, *, copy: bool | None = None) -> Array:
    """An array of what NumPy can make one of, or of another library's array on a device.

    What the host holds is copied, before the call returns: the array has the values of that moment, and ``obj`` may change at
    once. So the call takes as long as NumPy's copy does, without the GIL, and a task that makes arrays of many MiB holds its
    loop for that time; ``x = aiodev.empty(…)`` and ``await x.copy_from(host)`` does not. Arrays of aiodev, and those of other
    libraries on a device, are taken as they are, or moved.

    Args:
        obj: numbers, nested sequences of them, an array.
        dtype: what its elements are converted to: on the host, or on the device where they are.
        device: where; the current device by default, or where a device's array is.
        copy: True for memory of its own in any case. False for shared memory in any case (see :func:`from_dlpack`). By default
            what the host holds is copied always, any other array only where the dtype or the device is another.

    Raises:
        OverflowError: a Python integer is beyond ``dtype``.
        TypeError: no device has its dtype, or complex numbers would have to become real.
        ValueError: ``copy=False``, and there must be a copy; or NumPy can make no array of it.

    Example:
        >>> import aiodev
        >>> aiodev.asarray([[1, 2], [3, 4]], device="cpu").T.numpy_blocking()
        array([[1, 3],
               [2, 4]])
    """
    if copy is not None:
        arguments.instance("asarray", "copy", copy, bool, "True, False or None")
    elif obj.__class__ is np.ndarray and dtype is None:  # as mostly, where it counts
        return host_values.array_of(obj, parse_dtype(obj.dtype), current_stream(device))
    if isinstance(obj, Array) or is_elsewhere(obj):
        array = obj if isinstance(obj, Array) else _taken(share_elsewhere, obj)
        if dtype is None or (other := parse_dtype(dtype)) == array.dtype:
            return _shared(array, device, copy)
        if copy is False:
            raise ValueError(f"copy=False, but the array is {array.dtype}, and must be copied to be {other}")
        return _shared(convert.call(array, other) if array.__class__ is Array else array.astype(other), device, None)
    wanted = None if dtype is None else parse_dtype(dtype)
    obj = _seen_by_numpy(obj)
    if isinstance(obj, list | tuple) and "aiodev._autograd.variable" in sys.modules:  # else there are no variables
        _refuse_recorded(obj)
    if copy is False:
        host = _on_host(obj, wanted)
        if host is not obj:
            raise ValueError(f"copy=False, but {type(obj).__name__} must be copied to be an array of {host.dtype}")
        try:
            return from_dlpack(host, device=current_stream(device).device, copy=False)
        except BufferError as error:
            raise ValueError(str(error)) from error
    # What is an array already is converted when it is taken; of anything else, NumPy makes one.
    host = _on_host(obj, None if isinstance(obj, np.ndarray) else wanted)
    if host.dtype.kind == "O" and wanted is None:
        raise arguments.refusal("asarray", "obj", "an array, a number, or sequences of numbers that devices have", obj)
    if wanted is not None and host.dtype.kind not in "biufc":
        host = _on_host(host, wanted)  # of texts and the like, as NumPy can
    if wanted is not None and host.dtype.kind == "c" and wanted.kind not in "bc":
        raise TypeError(f"asarray: argument obj: {host.dtype} cannot become {wanted}; complex numbers have two parts")
    stream = current_stream(device)
    return host_values.array_of(host, wanted or parse_dtype(host.dtype), stream, isinstance(obj, _PLAIN))


def _refuse_recorded(sequence: Sequence[Any]) -> None:
    """Raise RuntimeError where there are variables, at any depth, whose numbers alone the array would have."""
    kinds = set(map(type, sequence))
    if any(issubclass(kind, Array | list | tuple) for kind in kinds):
        for one in sequence:
            if isinstance(one, Array):
                one._plainly("asarray of variables, unlike kernels.stack of them,")
            elif isinstance(one, list | tuple):
                _refuse_recorded(one)


def _on_host(obj: Any, dtype: DType | None) -> np.ndarray[Any, DType]:
    try:
        return np.asarray(obj, dtype)
    except arguments.UNCONVERTED as error:
        raise arguments.named("asarray", "obj", error) from error


def _taken(share: Callable[[Any], Array], obj: Any) -> Array:
    try:
        return share(obj)
    except TypeError as error:
        raise arguments.named("asarray", "obj", error) from error


def _seen_by_numpy(obj: Any) -> Any:
    """The object, or a NumPy array over its memory where it has a dtype that NumPy has not, and only DLPack has a name for."""
    if hasattr(obj, "__dlpack__") and not isinstance(obj, np.ndarray | np.generic):
        try:
            np.asarray(obj)
        except TypeError:
            shared = _taken(from_dlpack, obj)
            return host_view(shared, shared.writable)
    return obj


#: Gives an array on the same device in another dtype.
convert: Hook[[Array, DType], Array] = Hook("aiodev._kernel.dispatch.conversion")


def _shared(array: Array, device: DeviceLike | None, copy: bool | None) -> Array:
    """An array as it is, elsewhere, or as a copy, as asked."""
    wanted = array.device if device is None else current_stream(device).device
    if copy is False and wanted is not array.device:
        raise ValueError(f"copy=False, but the array is on {array.device}, not on {wanted}")
    return array._copied(wanted) if copy or wanted is not array.device else array
