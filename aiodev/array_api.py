"""The Python array API standard, 2024.12, as a namespace: what ``x.__array_namespace__()`` gives, for libraries that speak it.

Its functions are those of :mod:`aiodev.kernels`: submissions, which wait for nothing. Some give arrays whose size only the
device knows. Those are awaited in :mod:`aiodev.kernels`; the standard knows no ``await``, so here they block: ``nonzero``,
``unique_all``, ``unique_counts``, ``unique_inverse``, ``unique_values``, and ``repeat`` with counts that are on a device.
:func:`aiodev.set_sync_debug_mode` tells of those that hold an event loop.

Example:
    >>> import aiodev
    >>> x = aiodev.asarray([3, 0, 3], device="cpu")
    >>> xp = x.__array_namespace__()
    >>> xp.unique_values(x).numpy_blocking(), xp.add is aiodev.kernels.add
    (array([0, 3]), True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import kernels
from aiodev.dtypes import isdtype
from aiodev.kernels.indexing.search import nonzero_blocking
from aiodev.kernels.sorting.unique import (
    UniqueAll,
    UniqueCounts,
    UniqueInverse,
    submit_unique_all,
    submit_unique_counts,
    submit_unique_inverse,
    submit_unique_values,
    unique_blocking,
)

aiodev.register_library(__name__)

__array_api_version__ = "2024.12"

#: Dtypes that the standard names; arrays have ``float16`` and ``bfloat16`` as well.
_DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip

#: Names of the standard that are what they are in aiodev.kernels.
_SHARED = (
    # creation
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
    # dtypes, constants, extensions
    "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type", "e", "inf", "nan", "newaxis", "pi",
    *(name for name in ("linalg", "fft") if name in kernels.__all__),
    # elementwise
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos", "cosh",
    "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag", "isfinite",
    "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow",
    "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh",
    "trunc",
    # indexing, linear algebra
    "take", "take_along_axis", "matmul", "matrix_transpose", "tensordot", "vecdot",
    # manipulation
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "reshape", "roll",
    "squeeze", "stack", "tile", "unstack",
    # searching, sorting, statistics
    "argmax", "argmin", "argsort", "count_nonzero", "searchsorted", "sort", "where", "all", "any", "cumulative_prod",
    "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
)  # fmt: skip
_OWN = (
    "__array_api_version__", "__array_namespace_info__", "nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
)  # fmt: skip

__all__ = [*_SHARED, *_OWN, *_DTYPES]
globals().update(_DTYPES)
globals().update({name: getattr(kernels, name) for name in _SHARED})


def __dir__() -> list[str]:
    return __all__


class NamespaceInfo:
    """What :func:`__array_namespace_info__` gives: what libraries ask of a namespace before they use it."""

    def __repr__(self) -> str:
        return "<aiodev.array_api.NamespaceInfo>"

    def capabilities(self) -> dict[str, Any]:
        """Whether masks can be indices, whether sizes may depend on values, and how many dimensions arrays have at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> aiodev.Device:
        """Where arrays are made that nothing says the device of: the running task's current one."""
        return aiodev.current_device()

    def default_dtypes(self, *, device: aiodev.DeviceLike | None = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of what is made of Python's numbers."""
        _check_device("default_dtypes", device)
        names = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {kind: _DTYPES[name] for kind, name in names.items()}

    def dtypes(
        self, *, device: aiodev.DeviceLike | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes by name: all devices have all of them. ``kind`` is as in :func:`aiodev.dtypes.isdtype`."""
        _check_device("dtypes", device)
        return {name: dtype for name, dtype in _DTYPES.items() if kind is None or isdtype(dtype, kind)}

    def devices(self) -> list[aiodev.Device]:
        """All that can start here. It starts none."""
        types = aiodev.available_backends()
        return [aiodev.Device(own, index) for own in types for index in range(aiodev.device_count(own))]


def _check_device(function: str, device: aiodev.DeviceLike | None) -> None:
    if device is not None and not isinstance(device, aiodev.Device | str | int):
        raise TypeError(f"{function}: argument device: expected a device, got {type(device).__name__}")


_info = NamespaceInfo()


def __array_namespace_info__() -> NamespaceInfo:
    """Capabilities, dtypes and devices, as the standard asks for them.

    Example:
        >>> from aiodev import array_api
        >>> info = array_api.__array_namespace_info__()
        >>> info.default_dtypes()["real floating"], sorted(info.dtypes(kind="complex floating"))
        (dtype('float64'), ['complex128', 'complex64'])
    """
    return _info


# What only the device knows the size of


def nonzero(x: aiodev.Array, /) -> tuple[aiodev.Array, ...]:
    """What :func:`aiodev.kernels.nonzero` waits for; blocks until the device has counted.

    Raises:
        ValueError: an array of no dimensions has no indices.
        KernelError: what computed the array failed.
        SyncError: it has to wait, in a thread whose loop runs, and :func:`aiodev.set_sync_debug_mode` forbids it.

    Example:
        >>> from aiodev import array_api
        >>> array_api.nonzero(array_api.asarray([0, 2, 3], device="cpu"))[0].numpy_blocking()
        array([1, 2])
    """
    return nonzero_blocking(x)


def unique_all(x: aiodev.Array, /) -> UniqueAll:
    """What :func:`aiodev.kernels.unique_all` waits for; blocks until the device has counted. Errors as of :func:`nonzero`.

    Example:
        >>> from aiodev import array_api
        >>> parts = array_api.unique_all(array_api.asarray([30, 10, 30], device="cpu"))
        >>> parts.values.numpy_blocking(), parts.indices.numpy_blocking()
        (array([10, 30]), array([1, 0]))
    """
    return unique_blocking(x, submit_unique_all, lambda found: found)


def unique_counts(x: aiodev.Array, /) -> UniqueCounts:
    """What :func:`aiodev.kernels.unique_counts` waits for; blocks until the device has counted. Errors as of :func:`nonzero`.

    Example:
        >>> from aiodev import array_api
        >>> array_api.unique_counts(array_api.asarray([30, 10, 30], device="cpu")).counts.numpy_blocking()
        array([1, 2])
    """
    return unique_blocking(x, submit_unique_counts, lambda found: UniqueCounts(found.values, found.counts))


def unique_inverse(x: aiodev.Array, /) -> UniqueInverse:
    """What :func:`aiodev.kernels.unique_inverse` waits for; blocks until the device has counted. Errors as of :func:`nonzero`.

    Example:
        >>> from aiodev import array_api
        >>> array_api.unique_inverse(array_api.asarray([30, 10, 30], device="cpu")).inverse_indices.numpy_blocking()
        array([1, 0, 1])
    """
    return unique_blocking(x, submit_unique_inverse, lambda found: UniqueInverse(found.values, found.inverse_indices))


def unique_values(x: aiodev.Array, /) -> aiodev.Array:
    """What :func:`aiodev.kernels.unique_values` waits for; blocks until the device has counted. Errors as of :func:`nonzero`.

    Example:
        >>> from aiodev import array_api
        >>> array_api.unique_values(array_api.asarray([30, 10, 30], device="cpu")).numpy_blocking()
        array([10, 30])
    """
    return unique_blocking(x, submit_unique_values, lambda found: found.values)


def repeat(
    x: aiodev.Array, repeats: int | Sequence[int] | aiodev.Array, /, *, axis: int | None = None
) -> aiodev.Array:
    """What :func:`aiodev.kernels.repeat` gives; counts that are on a device are waited for, and block.

    Raises:
        TypeError: ``repeats`` are no integers.
        ValueError: one is negative, there are not as many as places along the axis, or there is no such axis.
        KernelError: what computed the counts failed.
        SyncError: it has to wait, in a thread whose loop runs, and :func:`aiodev.set_sync_debug_mode` forbids it.

    Example:
        >>> from aiodev import array_api
        >>> x = array_api.arange(3, device="cpu")
        >>> array_api.repeat(x, x).numpy_blocking()
        array([1, 2, 2])
    """
    return kernels.repeat(x, repeats.numpy_blocking() if isinstance(repeats, aiodev.Array) else repeats, axis=axis)
