"""Arguments of the library's functions: checks before anything is submitted."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.tuning import COUNTED_HERE

__all__ = [
    "array_of",
    "arrays_of",
    "as_float",
    "broadcast",
    "checked_axis",
    "delivered",
    "dtype_of",
    "flags",
    "known",
    "move_last",
    "packed_out",
    "real_number",
    "repeated",
    "shared",
    "whole",
    "whole_number",
    "whole_numbers",
    "written",
]

DType = np.dtype[Any]
HostArray = np.ndarray[Any, Any]


def array_of(function: str, x: Any, name: str = "x") -> None:
    """Check that an argument is an array.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(x, aiodev.Array):
        arrays_of(function, **{name: x})


def arrays_of(function: str, **values: Any) -> tuple[aiodev.Array, ...]:
    """The arguments, which must be arrays of one device.

    Raises:
        TypeError: one is something else.
        LaunchError: one is elsewhere than the first.
    """
    device = None
    for name, value in values.items():
        if not isinstance(value, aiodev.Array):
            advice = "; aiodev.asarray(value) copies it to the device" if isinstance(value, np.ndarray) else ""
            raise TypeError(f"{function}: argument {name}: expected an array, got {type(value).__name__}{advice}")
        device = device or value.device
        if value.device != device:
            raise aiodev.LaunchError(function, name, f"an array on {device}", str(value.device))
    return tuple(values.values())


def broadcast(function: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to.

    Raises:
        ValueError: there is none.
    """
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    lengths = []
    for back in range(1, max(map(len, shapes), default=0) + 1):
        length = 1
        for shape in shapes:
            if back <= len(shape) and shape[-back] != 1:
                if length not in (1, shape[-back]):
                    shown = " and ".join(map(str, shapes))
                    raise ValueError(
                        f"{function}: the shapes {shown} do not broadcast; counted from the last, lengths must be equal, or "
                        "one of them 1"
                    )
                length = shape[-back]
        lengths.append(length)
    return tuple(lengths[::-1])


def shared(host: HostArray, device: aiodev.Device) -> aiodev.Array | None:
    """NumPy's array, which nobody writes to, as one of a device that reaches it; None for another device.

    It is there at once, whatever streams do or have failed at. So a launch that is remembered may keep it: one with an array
    that work on some stream fills would run on others without waiting for that.
    """
    try:
        return aiodev.asarray(host, device=device, copy=False)
    except ValueError:
        return None


def known(x: aiodev.Array, few: int = COUNTED_HERE) -> HostArray | None:
    """The values, for who would wait for what the device makes of them: if they are there, and few, or waiting is reported."""
    if isinstance(x, aiodev.Array) and x.size > few and aiodev.get_sync_debug_mode() == "default":
        return None
    return _there(x)


@contextmanager
def ahead_of_others(*arrays: Any) -> Iterator[None]:
    """For what is waited for: a stream of its own if all arrays are there, and what the current one has still to do is not.

    The current stream goes on after it.
    """
    own = None
    with suppress(aiodev.CaptureError):  # which the wait itself is refused by
        if all(_there(x) is not None for x in arrays) and not aiodev.current_stream(arrays[0].device).query():
            own = aiodev.Stream(arrays[0].device)
    if own is None:
        yield
        return
    with own:
        yield
    aiodev.current_stream(own.device).wait_stream(own)


def _there(x: Any) -> HostArray | None:
    """The values, if nobody has to wait for them."""
    if not isinstance(x, aiodev.Array) or x.dtype.kind == "V" or not aiodev.capabilities(x.device).host_accessible:
        return None  # what is no array, is refused by what makes it; of other libraries' dtypes NumPy does not know all
    try:
        return x.numpy_blocking(0)
    except TimeoutError:
        return None


def checked_axis(function: str, axis: Any, ndim: int) -> int:
    """``axis`` counted from the first.

    Raises:
        numpy.exceptions.AxisError: there is none like it; that is an IndexError, as the array API says, and a ValueError.
        TypeError: it is no integer.
    """
    index = _index(function, axis)
    if not -ndim <= index < ndim:
        raise np.exceptions.AxisError(f"{function}: axis {axis} is out of bounds for an array of {ndim} dimensions")
    return index % ndim


def whole(function: str, axis: Any) -> Any:
    """The axis, each of several an integer, or None: to be looked up, where 1.0 and True would be found for 1.

    Raises:
        TypeError: one is something else.
    """
    if axis.__class__ is not int and axis is not None:
        for own in axis if isinstance(axis, tuple) else (axis,):
            _index(function, own)
    return axis


def _index(function: str, axis: Any) -> int:
    try:
        if not isinstance(axis, bool):
            return operator.index(axis)
    except TypeError:
        pass
    raise TypeError(f"{function}: axis {axis!r}: expected an integer, got {type(axis).__name__}")


def real_number(function: str, name: str, value: Any) -> float:
    """A number that is part of a key: real, since a complex one or a decimal would be found for the float that it equals.

    Raises:
        TypeError: it is something else.
    """
    if value.__class__ is float or value.__class__ is int:
        number: float = value
        return number
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{function}: {name} {value!r}: expected a real number, got {type(value).__name__}")
    return float(value)


def as_float(function: str, name: str, value: Any) -> float:
    """A real number as a float.

    Raises:
        TypeError: it is something else.
        ValueError: it is too large.
    """
    try:
        return float(real_number(function, name, value))
    except OverflowError:
        raise ValueError(f"{function}: {name}: expected a real number that a float can be, got a larger one") from None


def dtype_of(function: str, dtype: Any) -> DType | None:
    """The dtype that an argument means to NumPy; None stays.

    Raises:
        TypeError: it is none, or no device has it.
    """
    try:
        return None if dtype is None else dtypes.parse_dtype(dtype)
    except TypeError as error:  # which names no function
        raise TypeError(f"{function}: {error}") from None


def flags(function: str, **values: Any) -> None:
    """Check that the arguments are truth values.

    Raises:
        TypeError: one is something else.
    """
    for name, value in values.items():
        if not isinstance(value, int | np.bool_):
            raise TypeError(f"{function}: {name}: expected True or False, got {type(value).__name__}")


def whole_number(function: str, name: str, value: Any, least: int | None = None) -> int:
    """An integer, of ``least`` or more.

    Raises:
        TypeError: it is something else.
        ValueError: it is less.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {name}: expected an integer, got {type(value).__name__}") from None
    if least is not None and number < least:
        raise ValueError(f"{function}: {name}: expected {least} or more, got {number}")
    return number


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """One integer or several, as ints.

    Raises:
        TypeError: something else is among them, such as a truth value.
    """
    several = isinstance(value, tuple | list | range) or (isinstance(value, np.ndarray) and value.ndim)
    given = value if several else (value,)
    try:
        if not any(isinstance(own, bool) for own in given):
            return tuple(map(operator.index, given))
    except TypeError:
        pass
    raise TypeError(f"{name} {value!r}: expected an integer, or a sequence of integers")


def move_last(function: str, x: aiodev.Array, axis: Any) -> aiodev.Array:
    """A view with one axis behind all others."""
    last = checked_axis(function, axis, x.ndim)
    if last == x.ndim - 1:
        return x
    return x.transpose(*(a for a in range(x.ndim) if a != last), last)


def packed_out(call: aiodev.Call, shape: tuple[int, ...], dtype: DType) -> tuple[aiodev.Array, aiodev.Array]:
    """The result of a call, and what its kernels write: that, or if it has gaps an array without, for :func:`delivered`."""
    result = call.out(shape, dtype)
    return result, result if result.is_contiguous else call.scratch(shape, dtype)


def delivered(call: aiodev.Call, result: aiodev.Array, target: aiodev.Array) -> aiodev.Array:
    """The result, to which what was written instead is copied."""
    if target is not result:
        call.copy(result, target)
    return result


def written(function: str, **values: aiodev.Array) -> None:
    """Check that the arguments can be written to.

    Raises:
        LaunchError: one is read-only.
    """
    for name, value in values.items():
        if not value.writable:
            raise aiodev.LaunchError(function, name, "an array that can be written to", "a read-only one")


def repeated(x: aiodev.Array, shape: tuple[int, ...]) -> aiodev.Array:
    """The array, or a view of it with another shape that it broadcasts to."""
    return x if x.shape == shape else aiodev.broadcast_to(x, shape)
