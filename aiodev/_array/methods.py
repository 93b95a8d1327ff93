"""Functions of :mod:`aiodev.kernels` as methods, where NumPy's users expect them: conversion and reductions."""

from __future__ import annotations

from typing import Any, Self

from aiodev._array.computing import kernels

__all__ = ["Methods"]


class Methods:
    """What an array's users call on it; each submits what the function of that name in :mod:`aiodev.kernels` does."""

    __slots__ = ()

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Self:
        """The elements converted to another dtype; ``copy=False`` gives the array itself where it has that dtype already.

        Raises:
            TypeError: complex numbers cannot become real ones, or no device has the dtype.

        Example:
            >>> import aiodev
            >>> aiodev.asarray([0.5, 2.7], device="cpu").astype("int64").numpy_blocking()
            array([0, 2])
        """
        return kernels.astype(self, dtype, copy=copy)

    def sum(self, axis: int | tuple[int, ...] | None = None, *, dtype: Any = None, keepdims: bool = False) -> Self:
        """The sum along ``axis`` (an integer, several, or None for all); see :func:`aiodev.kernels.sum`.

        Raises:
            ValueError: there is no such axis, or one is named twice.

        Example:
            >>> import aiodev
            >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
            >>> x.sum(axis=0).numpy_blocking(), x.max().numpy_blocking()
            (array([3, 5, 7]), array(5))
        """
        return kernels.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: int | tuple[int, ...] | None = None, *, dtype: Any = None, keepdims: bool = False) -> Self:
        """The product along ``axis``; see :func:`aiodev.kernels.prod`."""
        return kernels.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Self:
        """The mean along ``axis``; see :func:`aiodev.kernels.mean`."""
        return kernels.mean(self, axis=axis, keepdims=keepdims)

    def var(self, axis: int | tuple[int, ...] | None = None, *, correction: float = 0.0, keepdims: bool = False) -> Self:
        """The variance along ``axis``; ``correction`` is NumPy's ``ddof``; see :func:`aiodev.kernels.var`."""
        return kernels.var(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: int | tuple[int, ...] | None = None, *, correction: float = 0.0, keepdims: bool = False) -> Self:
        """The standard deviation along ``axis``; ``correction`` is NumPy's ``ddof``; see :func:`aiodev.kernels.std`."""
        return kernels.std(self, axis=axis, correction=correction, keepdims=keepdims)

    def min(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Self:
        """The least element along ``axis``; see :func:`aiodev.kernels.min`."""
        return kernels.min(self, axis=axis, keepdims=keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Self:
        """The largest element along ``axis``; see :func:`aiodev.kernels.max`."""
        return kernels.max(self, axis=axis, keepdims=keepdims)

    def any(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Self:
        """Whether an element along ``axis`` is not 0; see :func:`aiodev.kernels.any`."""
        return kernels.any(self, axis=axis, keepdims=keepdims)

    def all(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Self:
        """Whether no element along ``axis`` is 0; see :func:`aiodev.kernels.all`."""
        return kernels.all(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """The place of the least element along ``axis``, or of the flattened array; see :func:`aiodev.kernels.argmin`."""
        return kernels.argmin(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """The place of the largest element along ``axis``, or of the flattened array; see :func:`aiodev.kernels.argmax`."""
        return kernels.argmax(self, axis=axis, keepdims=keepdims)


for _name, _method in vars(Methods).items():
    if not _name.startswith("_"):
        _method.__qualname__ = f"Array.{_name}"  # what Python says of arguments that it has not
