"""Conversion of dtypes; ``where`` and ``clip``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, dtype_of
from aiodev.kernels.elementwise.ufunc import DType, Elementwise, Operand
from aiodev.kernels.warmup import COMMON_DTYPES, register_sample

__all__ = ["astype", "clip", "convert", "convert_elements", "of_parts", "where"]


def _types_of_where(*kinds: Any) -> Sequence[DType]:
    """The common type of what is chosen from; Python numbers are weak."""
    weak = all(isinstance(kind, type) for kind in kinds[1:])
    result = dtypes.result_type(*kinds[1:]) if weak else dtypes.resolve(np.add, *kinds[1:])[2]
    return np.dtype(bool), result, result, result


def _types_of_clip(*kinds: Any) -> Sequence[DType]:
    """The common type of what is limited and its bounds."""
    result = functools.reduce(lambda one, other: dtypes.resolve(np.maximum, one, other)[2], kinds)
    return [result] * (len(kinds) + 1)


def _types_of_parts(*kinds: Any) -> Sequence[DType]:
    """The common type of both parts, and that of the complex number."""
    part = dtypes.result_type(*kinds)
    return part, part, np.result_type(part, np.complex64)


_where = Elementwise(
    "where", "{x1} if {condition} else {x2}", ("condition", "x1", "x2"), _types_of_where,
    derivatives={
        "condition": None,
        "x1": "{g} if {condition} else np.float32(0)",
        "x2": "np.float32(0) if {condition} else {g}",
    },
).function  # fmt: skip
_clip = Elementwise(
    "clip", "np.minimum(np.maximum({x}, {min}), {max})", ("x", "min", "max"), _types_of_clip,
    derivatives={
        "x": "{g} if {min} <= {x} and {x} <= {max} else np.float32(0)",
        "min": "{g} if {x} < {min} and {min} < {max} else np.float32(0)",
        "max": "{g} if {x} > {max} or {min} > {max} or ({min} == {max} and {x} < {max}) else np.float32(0)",
    },
).function  # fmt: skip
_clip_below = Elementwise(
    "clip", "np.maximum({x}, {min})", ("x", "min"), _types_of_clip,
    derivatives={"x": "{g} if {x} >= {min} else np.float32(0)", "min": "np.float32(0) if {x} >= {min} else {g}"},
).function  # fmt: skip
_clip_above = Elementwise(
    "clip", "np.minimum({x}, {max})", ("x", "max"), _types_of_clip,
    derivatives={"x": "{g} if {x} <= {max} else np.float32(0)", "max": "np.float32(0) if {x} <= {max} else {g}"},
).function  # fmt: skip
_copy = Elementwise("clip", "{x}", ("x",), _types_of_clip, derivatives={"x": "{g}"}).function
#: A complex number of its parts, either of which may be infinite: nothing is multiplied.
of_parts = Elementwise("of_parts", "complex({x1}, {x2})", ("x1", "x2"), _types_of_parts).function
_conversions: dict[DType, Callable[..., aiodev.Array]] = {}


def where(condition: aiodev.Array, x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """Elements of ``x1`` where ``condition`` is true, else of ``x2``; shapes broadcast, types are promoted.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([-1.0, 2.0], device="cpu")
        >>> aiodev.kernels.where(aiodev.kernels.less(x, 0), 0.0, x).numpy_blocking()
        array([0., 2.])
    """
    return _where(condition, x1, x2, out=out)


def clip(
    x: aiodev.Array,
    /,
    min: Operand | None = None,
    max: Operand | None = None,
    *,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Elements of ``x``, at least ``min`` and at most ``max``; NaN stays. A bound may be None.

    Types are promoted as NumPy does: bounds of the dtype of ``x``, and Python numbers of its kind, leave it as it is; integers
    with fractional bounds become floats. Where ``min`` is above ``max``, that is the result.

    Raises:
        OverflowError: a Python integer is beyond the dtype of ``x``, and all of that is on its wrong side.
        TypeError: ``out`` is of a lower kind than the result.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([-1.0, 0.5, 2.0], device="cpu")
        >>> aiodev.kernels.clip(x, 0, 1).numpy_blocking()
        array([0. , 0.5, 1. ])
        >>> aiodev.kernels.clip(aiodev.asarray([0, 1, 4], device="cpu"), 0.5, 2.5).numpy_blocking()
        array([0.5, 1. , 2.5])
    """
    try:
        if min is not None and max is not None:
            return _clip(x, min, max, out=out)
        if min is not None:
            return _clip_below(x, min, out=out)
        if max is not None:
            return _clip_above(x, max, out=out)
    except OverflowError:
        if not isinstance(x, aiodev.Array) or x.dtype.kind not in "iu":
            raise
        limits = np.iinfo(x.dtype)
        if type(min) is int and min < limits.min:
            return clip(x, None, max, out=out)
        if type(max) is int and max > limits.max:
            return clip(x, min, None, out=out)
        raise
    array_of("clip", x)
    return _copy(x, out=out)


def astype(
    x: aiodev.Array, dtype: Any, /, *, copy: bool = True, device: aiodev.DeviceLike | None = None
) -> aiodev.Array:
    """The elements converted to another dtype; ``copy=False`` gives ``x`` itself where it has that dtype already.

    Floats are cut to integers; of what is not 0, NaN and complex numbers too, ``True`` is made. The standard leaves open what
    becomes of a float beyond the integer's range. On the CPU one that ``int32`` has wraps in integers of at most 32 bits, as it
    does in NumPy (``-1.0`` becomes the ``uint8`` 255); what others become, and NaN, depends on the processor alone.

    Args:
        device: where to; elements are converted there.

    Raises:
        TypeError: complex numbers cannot become real ones; or ``x`` is no array, ``copy`` no truth value, or no device has
            the dtype.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([0.0, 2.7], device="cpu")
        >>> aiodev.kernels.astype(x, "int64").numpy_blocking(), aiodev.kernels.astype(x, bool).numpy_blocking()
        (array([0, 2]), array([False,  True]))
    """
    if hasattr(x, "__aiodev_operation__"):  # it stands for an array
        return x.astype(dtype)
    array_of("astype", x)
    wanted = dtype_of("astype", np.float64 if dtype is None else dtype)
    assert wanted is not None
    if copy is not True and not isinstance(copy, bool | np.bool_):
        raise TypeError(f"astype: argument copy: expected True or False, got {type(copy).__name__}")
    there = x if device is None else x.to(device)
    if wanted == x.dtype:
        if there is not x or not copy:
            return there
        return aiodev.asarray(x, copy=True)
    if x.dtype.kind == "c" and wanted.kind not in "bc":
        raise TypeError(f"astype: {x.dtype} cannot become {wanted}; complex numbers have no order and two parts")
    function = _conversions.get(wanted)
    if function is None:
        expression = "{x} != 0" if wanted.kind == "b" else "{x}"
        derivatives = {"x": "{g}"} if dtypes.kind(wanted) in "fc" else None
        made = Elementwise("astype", expression, ("x",), lambda kind: (kind, wanted), derivatives=derivatives)
        made.function.operation.holomorphic = True  # type: ignore[attr-defined]
        function = _conversions[wanted] = made.function
    return function(there)


@aiodev.kernel(reads=["x"])
def convert_elements(i: int, x: Any, out: Any) -> None:
    """One element; assignment converts."""
    out[i] = x[i]


def convert(call: aiodev.Call, x: aiodev.Array, dtype: DType) -> aiodev.Array:
    """An operand in another dtype, converted as a part of the call.

    It is converted to scratch without gaps, so that the call can be remembered; to truth values by an operation of its own.
    """
    if x.dtype == dtype:
        return x
    if not x.size or dtype.kind == "b":
        return astype(x, dtype)
    made = call.scratch(x.shape, dtype)
    call.launch(convert_elements, x.size, call.reshape(x, x.size), made.reshape(x.size))
    return made


def _sample_conversions(dtype: Any) -> None:
    x = aiodev.ones((4, 4), dtype=dtype)
    for wanted in (*COMMON_DTYPES, "bool"):
        with contextlib.suppress(TypeError):  # complex numbers become no real ones
            astype(x, wanted)
    if x.dtype.name not in COMMON_DTYPES:  # as programs compute with it
        astype(aiodev.ones((4, 4), dtype="float32"), dtype)


register_sample("astype", _sample_conversions)
