"""Determinants, inverses, and what is made of them and of singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, arrays_of, as_float, broadcast, delivered, repeated, whole_number
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import astype, convert
from aiodev.kernels.elementwise.table import conj, multiply
from aiodev.kernels.linalg.factorizations import svd, svdvals
from aiodev.kernels.linalg.products import matmul
from aiodev.kernels.linalg.stacks import batch_of, checked, factorising, real_of, result_for, square, stacked

__all__ = ["SlogdetResult", "det", "inv", "matrix_power", "matrix_rank", "pinv", "slogdet", "solve"]


class SlogdetResult(NamedTuple):
    """What :func:`slogdet` gives.

    Example:
        >>> from aiodev.kernels.linalg import SlogdetResult
        >>> SlogdetResult._fields
        ('sign', 'logabsdet')
    """

    sign: aiodev.Array
    logabsdet: aiodev.Array


@aiodev.operation(reads=["x"], writes="out")
def inv(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """The inverses of square matrices.

    Who waits for the result of a singular matrix gets a :class:`~aiodev.KernelError` whose cause is
    ``numpy.linalg.LinAlgError``.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.inv(aiodev.asarray([[2.0, 1.0], [1.0, 1.0]], device="cpu")).numpy_blocking()
        array([[ 1., -1.],
               [-1.,  2.]])
    """
    dtype = square("inv", x)
    library = factorising(call)
    result, target, stack = result_for(call, x.shape, dtype)
    if result.size:
        library.invert(call, stacked(call, x, dtype), stack)
    return delivered(call, result, target)


@aiodev.operation(reads=["x1", "x2"], writes="out")
def solve(
    call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, /, *, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The ``x`` with ``x1 @ x = x2``, of square matrices ``x1``.

    ``x2`` is a vector if it has one dimension, else a stack of matrices; stacks broadcast. Who waits for the result of a
    singular matrix gets a :class:`~aiodev.KernelError` whose cause is ``numpy.linalg.LinAlgError``.

    Raises:
        ValueError: the matrices are not square, or ``x2`` has another number of rows.
        TypeError: LAPACK has not these dtypes.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> a = aiodev.asarray([[2.0, 0.0], [1.0, 4.0]], device="cpu")
        >>> aiodev.kernels.linalg.solve(a, aiodev.asarray([2.0, 9.0], device="cpu")).numpy_blocking()
        array([1., 2.])
    """
    shown = x2[:, None] if x2.ndim == 1 else x2
    dtype = dtypes.result_type(square("solve", x1, "x1"), checked("solve", shown, "x2"))
    rows, columns = shown.shape[-2:]
    if x1.shape[-1] != rows:
        raise ValueError(f"solve: argument x2: expected {x1.shape[-1]} rows, as x1 has, got the shape {x2.shape}")
    batch = broadcast("solve", x1.shape[:-2], shown.shape[:-2])
    library = factorising(call)
    shape = (*batch, rows, columns)
    result, target, stack = result_for(call, (*batch, rows) if x2.ndim == 1 else shape, dtype, 1 if x2.ndim == 1 else 2)
    if result.size:
        a, b = repeated(x1, (*batch, rows, rows)), repeated(shown, shape)
        stack = stack.reshape(batch_of(a), rows, columns)
        library.solve(call, stacked(call, a, dtype), stacked(call, b, dtype), stack)
    return delivered(call, result, target)


@aiodev.operation(reads=["x"], writes="out")
def det(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """The determinants of square matrices; 0 of a singular one, 1 of one without elements.

    The gradient is that of singular matrices as well: it is made of the cofactors. Matrices of more than two rows must be
    regular for gradients of it: who waits for one is told what :func:`inv` says of singular ones.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.det(aiodev.asarray([[0.0, 2.0], [3.0, 0.0]], device="cpu")).numpy_blocking()
        array(-6.)
    """
    dtype = square("det", x)
    library = factorising(call)
    result, target, stack = result_for(call, x.shape[:-2], dtype, 0)
    if result.size:
        library.determinants(call, stacked(call, x, dtype), stack)
    return delivered(call, result, target)


@aiodev.operation(reads=["x"], name="cofactors")
def _cofactors(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
    dtype = square("cofactors", x)
    library = factorising(call)
    result = call.new(x.shape, dtype)
    if result.size:
        library.cofactors(call, stacked(call, x, dtype), result.reshape(batch_of(x), *x.shape[-2:]))
    return result


def slogdet(x: aiodev.Array, /) -> SlogdetResult:
    """The signs of determinants and the logarithms of their absolute values; 0 and ``-inf`` of singular matrices.

    The sign of a complex determinant is a complex number of absolute value 1; the logarithm is real.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> sign, size = aiodev.kernels.linalg.slogdet(aiodev.asarray([[0.0, 1.0], [1.0, 0.0]], device="cpu"))
        >>> sign.numpy_blocking(), size.numpy_blocking()
        (array(-1.), array(0.))
    """
    return SlogdetResult(*_slogdet(x))


@aiodev.operation(reads=["x"], name="slogdet")
def _slogdet(call: aiodev.Call, x: aiodev.Array, /) -> tuple[aiodev.Array, aiodev.Array]:
    dtype = square("slogdet", x)
    library = factorising(call)
    signs, sizes = call.new(x.shape[:-2], dtype), call.new(x.shape[:-2], real_of(dtype))
    if signs.size:
        batch = batch_of(x)
        library.signs_and_logarithms(call, stacked(call, x, dtype), signs.reshape(batch), sizes.reshape(batch))
    return signs, sizes


@aiodev.kernel(ndim=2)
def fill_identity(i: int, j: int, out: Any) -> None:
    """One element of each of the identity matrices."""
    for k in range(out.shape[0]):
        out[k, i, j] = 1 if i == j else 0


@aiodev.operation(reads=["x"])
def _identities(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
    result = call.new(x.shape, x.dtype)
    if result.size:
        call.launch(fill_identity, x.shape[-2:], result.reshape(batch_of(x), *x.shape[-2:]))
    return result


@composed
def matrix_power(x: aiodev.Array, n: int, /) -> aiodev.Array:
    """Square matrices multiplied with themselves: ``n`` factors; of a negative ``n`` of the inverses.

    Multiplies as often as ``n`` has binary digits, and once more for each 1 among them; integers wrap around. Who waits for a
    negative power of a singular matrix gets the :class:`~aiodev.KernelError` of :func:`inv`, as the cause of a
    :class:`~aiodev.DependencyError`.

    Raises:
        ValueError: the matrices are not square.
        TypeError: ``n`` is no integer; or it is negative, and LAPACK has not the dtype.
        NotImplementedError: ``n`` is negative, and there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, 1.0], [0.0, 1.0]], device="cpu")
        >>> aiodev.kernels.linalg.matrix_power(x, 5).numpy_blocking()
        array([[1., 5.],
               [0., 1.]])
    """
    array_of("matrix_power", x)
    n = whole_number("matrix_power", "n", n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power: argument x: expected square matrices, got the shape {x.shape}")
    if n < 0:
        if x.dtype.kind not in "biu":
            checked("matrix_power", x)
        x, n = inv(x), -n
    if n == 0:
        return _identities(x)
    power, square_ = None, x
    while True:
        if n & 1:
            power = square_ if power is None else matmul(power, square_)
        n >>= 1
        if not n:
            break
        square_ = matmul(square_, square_)
    assert power is not None
    return astype(power, power.dtype) if power is x else power


@aiodev.kernel(reads=("s", "rtol"))
def invert_values(i: int, s: Any, rtol: Any, out: Any) -> None:
    """Reciprocals of those that count; of the others 0."""
    for k in range(s.shape[1]):
        out[i, k] = 1 / s[i, k] if s[i, k] > rtol[i] * s[i, 0] else 0


@aiodev.kernel(reads=("s", "rtol"))
def count_values(i: int, s: Any, rtol: Any, out: Any) -> None:
    """How many count."""
    total = 0
    for k in range(s.shape[1]):
        total += 1 if s[i, k] > rtol[i] * s[i, 0] else 0
    out[i] = total


@aiodev.operation(reads=["s", "rtol"])
def _reciprocals(call: aiodev.Call, s: aiodev.Array, rtol: aiodev.Array, /) -> aiodev.Array:
    result = call.new(s.shape, s.dtype)
    if result.size:
        rows, k = rtol.size, s.shape[-1]
        least = convert(call, rtol, s.dtype).reshape(rows)
        call.launch(invert_values, rows, s.reshape(rows, k), least, result.reshape(rows, k))
    return result


@aiodev.operation(reads=["s", "rtol"])
def _rank(call: aiodev.Call, s: aiodev.Array, rtol: aiodev.Array, /) -> aiodev.Array:
    result = call.new(s.shape[:-1], np.int64)
    if result.size:
        rows, k = rtol.size, s.shape[-1]
        least = convert(call, rtol, s.dtype).reshape(rows)
        call.launch(count_values, rows, s.reshape(rows, k), least, result.reshape(rows))
    return result


def _tolerance(function: str, rtol: Any, x: aiodev.Array) -> aiodev.Array:
    """One for each matrix."""
    array_of(function, x)
    batch, dtype = x.shape[:-2], real_of(checked(function, x))
    if isinstance(rtol, aiodev.Array):
        arrays_of(function, x=x, rtol=rtol)
        if rtol.dtype.kind not in "fiu":
            raise TypeError(f"{function}: argument rtol: expected real numbers, got {rtol.dtype}")
        if broadcast(function, rtol.shape, batch) != batch:
            raise ValueError(f"{function}: argument rtol: the shape {rtol.shape} is not one of a stack of the shape {batch}")
        return repeated(rtol, batch)
    value = max(x.shape[-2:]) * np.finfo(dtype).eps if rtol is None else as_float(function, "rtol", rtol)
    return aiodev.full(batch, float(value), dtype, x.device)


@composed
def pinv(x: aiodev.Array, /, *, rtol: float | aiodev.Array | None = None) -> aiodev.Array:
    """The pseudo-inverses of matrices, by singular values: those that are not above ``rtol`` times the largest count as 0.

    Of NaN who waits for the result gets the :class:`~aiodev.KernelError` of :func:`svd`, as the cause of a
    :class:`~aiodev.DependencyError`.

    Args:
        rtol: a number, or an array with one for each matrix; by default the longer side times the dtype's ``eps``.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions, or ``rtol`` has a shape that does not fit.
        TypeError: LAPACK has not this dtype, or ``rtol`` is no real number.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.pinv(aiodev.asarray([[2.0, 0.0], [0.0, 0.0]], device="cpu")).numpy_blocking()
        array([[0.5, 0. ],
               [0. , 0. ]])
    """
    return _pinv(x, _tolerance("pinv", rtol, x))


@aiodev.operation(reads=["x", "least"], name="pinv")
def _pinv(call: aiodev.Call, x: aiodev.Array, least: aiodev.Array, /) -> aiodev.Array:
    u, s, vh = svd(x, full_matrices=False)
    inverse = _reciprocals(s, least)
    left, right = (a.transpose(*range(a.ndim - 2), a.ndim - 1, a.ndim - 2) for a in (vh, u))
    if x.dtype.kind == "c":
        left, right = conj(left), conj(right)
    return matmul(multiply(left, inverse[..., None, :]), right)


@composed
def matrix_rank(x: aiodev.Array, /, *, rtol: float | aiodev.Array | None = None) -> aiodev.Array:
    """How many singular values of each matrix are above ``rtol`` times the largest; ``int64``.

    Of NaN who waits for the result gets the :class:`~aiodev.KernelError` of :func:`svd`, as the cause of a
    :class:`~aiodev.DependencyError`.

    Args:
        rtol: a number, or an array with one for each matrix; by default the longer side times the dtype's ``eps``.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions, or ``rtol`` has a shape that does not fit.
        TypeError: LAPACK has not this dtype, or ``rtol`` is no real number.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.matrix_rank(aiodev.ones((3, 3), device="cpu")).numpy_blocking()
        array(1)
    """
    least = _tolerance("matrix_rank", rtol, x)
    return _rank(svdvals(x), least)
