"""Python's operators on arrays: each is a submission, as the function of :mod:`aiodev.kernels` that it stands for.

**Operands.** Arrays of the same device, and Python's and NumPy's numbers, on either side. Types are promoted as NumPy does;
Python's numbers are weak. NumPy arrays and sequences are refused by name: what is on the host is brought to the device by who
wants it there. With anything else an operator is left to the other operand, as Python has it.

**In place.** ``x += y`` writes to the array's memory, in stream order. ``y`` may be another view of that memory: what was there
before is read.

**Values.** ``bool(x)``, ``float(x)`` and their kin need a value here and now. They block, as Python has it; what is there
already is not waited for. :func:`aiodev.set_sync_debug_mode` tells of those that hold an event loop, and ``await x.item()``
does not.

**Identity.** An array is hashed by identity, and ``==`` is of elements, so that dictionaries and sets find arrays by identity.
Weak ones ask for ``==`` of an array and itself, and are not for arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from aiodev._array.computing import indexing, kernels
from aiodev._array.dtypes import can_cast
from aiodev._memory.buffer import why_read_only

__all__ = ["Operators"]


class Operators:
    """The operators of an array, and what NumPy asks for before it computes with one."""

    __slots__ = ()

    if TYPE_CHECKING:
        _buffer: Any

        @property
        def size(self) -> int: ...

        @property
        def ndim(self) -> int: ...

        def copy_from(self, src: Any) -> Any: ...

        def numpy_blocking(self, timeout: float | None = None) -> np.ndarray[Any, Any]: ...

    # NumPy's operators then leave `numpy.ones(3) * x` to the array, and its ufuncs refuse it.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """What NumPy's functions do with an array: tell its shape, which is known. The rest would wait for the device.

        Raises:
            TypeError: the function looks at elements.
        """
        shown = _SHOWN.get(function)
        if shown is not None:
            return shown(*args, **kwargs)
        name = f"{function.__module__}.{function.__name__}"
        raise TypeError(
            f"{name} would wait for the array's device; aiodev.kernels has functions that do not, by the array API's names, "
            f"and {name}(await x.numpy()) computes on the host"
        )

    # Arithmetic

    def __add__(self, other: Any) -> Self:
        return kernels.add(self, other) if _computes(other.__class__) else NotImplemented

    def __radd__(self, other: Any) -> Self:
        return kernels.add(other, self) if _computes(other.__class__) else NotImplemented

    def __iadd__(self, other: Any) -> Self:
        return _in_place(kernels.add, self, other)

    def __sub__(self, other: Any) -> Self:
        return kernels.subtract(self, other) if _computes(other.__class__) else NotImplemented

    def __rsub__(self, other: Any) -> Self:
        return kernels.subtract(other, self) if _computes(other.__class__) else NotImplemented

    def __isub__(self, other: Any) -> Self:
        return _in_place(kernels.subtract, self, other)

    def __mul__(self, other: Any) -> Self:
        return kernels.multiply(self, other) if _computes(other.__class__) else NotImplemented

    def __rmul__(self, other: Any) -> Self:
        return kernels.multiply(other, self) if _computes(other.__class__) else NotImplemented

    def __imul__(self, other: Any) -> Self:
        return _in_place(kernels.multiply, self, other)

    def __truediv__(self, other: Any) -> Self:
        return kernels.divide(self, other) if _computes(other.__class__) else NotImplemented

    def __rtruediv__(self, other: Any) -> Self:
        return kernels.divide(other, self) if _computes(other.__class__) else NotImplemented

    def __itruediv__(self, other: Any) -> Self:
        return _in_place(kernels.divide, self, other)

    def __floordiv__(self, other: Any) -> Self:
        return kernels.floor_divide(self, other) if _computes(other.__class__) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Self:
        return kernels.floor_divide(other, self) if _computes(other.__class__) else NotImplemented

    def __ifloordiv__(self, other: Any) -> Self:
        return _in_place(kernels.floor_divide, self, other)

    def __mod__(self, other: Any) -> Self:
        return kernels.remainder(self, other) if _computes(other.__class__) else NotImplemented

    def __rmod__(self, other: Any) -> Self:
        return kernels.remainder(other, self) if _computes(other.__class__) else NotImplemented

    def __imod__(self, other: Any) -> Self:
        return _in_place(kernels.remainder, self, other)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return (self // other, self % other) if _computes(other.__class__) else NotImplemented

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        return (other // self, other % self) if _computes(other.__class__) else NotImplemented

    def __pow__(self, other: Any) -> Self:
        return _power(self, other) if _computes(other.__class__) else NotImplemented

    def __rpow__(self, other: Any) -> Self:
        return kernels.pow(other, self) if _computes(other.__class__) else NotImplemented

    def __ipow__(self, other: Any) -> Self:
        return _in_place(_power, self, other)

    def __matmul__(self, other: Any) -> Self:
        return kernels.matmul(self, other) if _computes(other.__class__) else NotImplemented

    def __rmatmul__(self, other: Any) -> Self:
        return kernels.matmul(other, self) if _computes(other.__class__) else NotImplemented

    def __imatmul__(self, other: Any) -> Self:
        return _replaced(self, kernels.matmul(self, other)) if _computes(other.__class__) else NotImplemented

    def __neg__(self) -> Self:
        return kernels.negative(self)

    def __pos__(self) -> Self:
        return kernels.positive(self)

    def __abs__(self) -> Self:
        return kernels.abs(self)

    # Bits

    def __and__(self, other: Any) -> Self:
        return kernels.bitwise_and(self, other) if _computes(other.__class__) else NotImplemented

    def __rand__(self, other: Any) -> Self:
        return kernels.bitwise_and(other, self) if _computes(other.__class__) else NotImplemented

    def __iand__(self, other: Any) -> Self:
        return _in_place(kernels.bitwise_and, self, other)

    def __or__(self, other: Any) -> Self:
        return kernels.bitwise_or(self, other) if _computes(other.__class__) else NotImplemented

    def __ror__(self, other: Any) -> Self:
        return kernels.bitwise_or(other, self) if _computes(other.__class__) else NotImplemented

    def __ior__(self, other: Any) -> Self:
        return _in_place(kernels.bitwise_or, self, other)

    def __xor__(self, other: Any) -> Self:
        return kernels.bitwise_xor(self, other) if _computes(other.__class__) else NotImplemented

    def __rxor__(self, other: Any) -> Self:
        return kernels.bitwise_xor(other, self) if _computes(other.__class__) else NotImplemented

    def __ixor__(self, other: Any) -> Self:
        return _in_place(kernels.bitwise_xor, self, other)

    def __lshift__(self, other: Any) -> Self:
        return kernels.bitwise_left_shift(self, other) if _computes(other.__class__) else NotImplemented

    def __rlshift__(self, other: Any) -> Self:
        return kernels.bitwise_left_shift(other, self) if _computes(other.__class__) else NotImplemented

    def __ilshift__(self, other: Any) -> Self:
        return _in_place(kernels.bitwise_left_shift, self, other)

    def __rshift__(self, other: Any) -> Self:
        return kernels.bitwise_right_shift(self, other) if _computes(other.__class__) else NotImplemented

    def __rrshift__(self, other: Any) -> Self:
        return kernels.bitwise_right_shift(other, self) if _computes(other.__class__) else NotImplemented

    def __irshift__(self, other: Any) -> Self:
        return _in_place(kernels.bitwise_right_shift, self, other)

    def __invert__(self) -> Self:
        return kernels.bitwise_invert(self)

    # Comparisons, of elements

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return kernels.equal(self, other) if _computes(other.__class__) else NotImplemented

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return kernels.not_equal(self, other) if _computes(other.__class__) else NotImplemented

    def __lt__(self, other: Any) -> Self:
        return kernels.less(self, other) if _computes(other.__class__) else NotImplemented

    def __le__(self, other: Any) -> Self:
        return kernels.less_equal(self, other) if _computes(other.__class__) else NotImplemented

    def __gt__(self, other: Any) -> Self:
        return kernels.greater(self, other) if _computes(other.__class__) else NotImplemented

    def __ge__(self, other: Any) -> Self:
        return kernels.greater_equal(self, other) if _computes(other.__class__) else NotImplemented

    # Values, here and now: these block

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth of an array of {self.size} elements is not defined; "
                f"`aiodev.kernels.any(x)` and `all(x)` are arrays of one"
            )
        return bool(self.numpy_blocking().item())

    def __int__(self) -> int:
        return int(self._only("int(x)").item())

    def __float__(self) -> float:
        return float(self._only("float(x)").item())

    def __complex__(self) -> complex:
        return complex(self._only("complex(x)").item())

    def __index__(self) -> int:
        only = self._only("operator.index(x)")
        if only.ndim or only.dtype.kind not in "iu":
            shown = f"one of the shape {only.shape} and dtype {only.dtype}"
            raise TypeError(f"only arrays of no dimensions and of an integer type are indices, not {shown}")
        return operator.index(only.item())

    def __format__(self, spec: str) -> str:
        """Of an array of no dimensions, as a number of Python's is formatted, which blocks; without a format, as ``str``."""
        if not spec or self.ndim:
            return object.__format__(self, spec)
        return format(self._only("format(x)").item(), spec)

    def __contains__(self, value: Any) -> bool:
        """Whether an element equals ``value``; blocks."""
        return indexing.contains(self, value)

    def _only(self, asked: str) -> np.ndarray[Any, Any]:
        if self.size != 1:
            raise TypeError(f"{asked}: expected an array of one element, got one of {self.size}")
        return self.numpy_blocking()


_KNOWN = (Operators, bool, int, float, complex, np.number, np.bool_, np.ndarray, list, tuple)


class _Computing(dict[type, bool]):
    """Whether the function behind an operator is to have operands of a class: it computes with them, or refuses them by name.

    Of those that it is to have the classes are kept, so that to ask is a call of C.
    """

    def __missing__(self, kind: type) -> bool:
        computes = issubclass(kind, _KNOWN)
        if computes:
            self[kind] = computes
        return computes


_computes = _Computing().__getitem__


def _power(array: Any, power: Any, **out: Any) -> Any:
    """An array to some power; a square is computed as one, in a tenth of the time, where the array has numbers of its type."""
    if (power.__class__ is int or power.__class__ is float) and power == 2 and array.dtype.kind in "fc":
        return kernels.square(array, **out)
    return kernels.pow(array, power, **out)


def _in_place(function: Callable[..., Any], array: Any, other: Any) -> Any:
    return function(array, other, out=array) if _computes(other.__class__) else NotImplemented


def _replaced(array: Any, values: Any) -> Any:
    """The array, filled with a result that was computed in other memory."""
    if values.shape != array.shape:
        raise ValueError(f"the result has the shape {values.shape}, and cannot be written to an {array._describe()}")
    if not array.writable:
        refused = f"the result cannot be written to an {array._describe()}, which is read-only"
        raise ValueError(f"{refused}{why_read_only(array)}")
    if values.dtype != array.dtype:
        if not can_cast(values.dtype, array.dtype, "same_kind"):
            raise TypeError(f"the result has the dtype {values.dtype}, and cannot be written to an {array._describe()}")
        values = kernels.astype(values, array.dtype)
    array.copy_from(values)
    return array


def _at_least_1d(*arrays: Any) -> Any:
    extended = tuple(map(_extended, arrays))
    return extended[0] if len(extended) == 1 else extended


def _extended(x: Any) -> Any:
    if not isinstance(x, Operators):
        return np.atleast_1d(x)
    array: Any = x
    return array if array.ndim else array[None]


#: Functions of NumPy that look at no element. Libraries call them before they convert: matplotlib, for one.
_SHOWN: dict[Callable[..., Any], Callable[..., Any]] = {
    np.atleast_1d: _at_least_1d,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.ndim: lambda a: a.ndim,
    np.shape: lambda a: a.shape,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}
