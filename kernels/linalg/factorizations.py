"""Factorisations: of Cholesky, QR, eigenvalues and singular values."""

from __future__ import annotations

from typing import NamedTuple

import aiodev
from aiodev.kernels.arguments import delivered, flags
from aiodev.kernels.linalg.stacks import batch_of, checked, factorising, real_of, result_for, square, stacked

__all__ = ["EighResult", "QRResult", "SVDResult", "cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]


class EighResult(NamedTuple):
    """What :func:`eigh` gives.

    Example:
        >>> from aiodev.kernels.linalg import EighResult
        >>> EighResult._fields
        ('eigenvalues', 'eigenvectors')
    """

    eigenvalues: aiodev.Array
    eigenvectors: aiodev.Array


class QRResult(NamedTuple):
    """What :func:`qr` gives.

    Example:
        >>> from aiodev.kernels.linalg import QRResult
        >>> QRResult._fields
        ('Q', 'R')
    """

    Q: aiodev.Array
    R: aiodev.Array


class SVDResult(NamedTuple):
    """What :func:`svd` gives.

    Example:
        >>> from aiodev.kernels.linalg import SVDResult
        >>> SVDResult._fields
        ('U', 'S', 'Vh')
    """

    U: aiodev.Array
    S: aiodev.Array
    Vh: aiodev.Array


@aiodev.operation(reads=["x"], writes="out")
def cholesky(
    call: aiodev.Call, x: aiodev.Array, /, *, upper: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The Cholesky factors of Hermitian positive definite matrices: ``L`` with ``x = L @ L^H``, or ``U`` with ``x = U^H @ U``.

    Only the lower triangle of ``x`` is read, or the upper one if ``upper``. Who waits for the result of a matrix that is not
    positive definite gets a :class:`~aiodev.KernelError` whose cause is ``numpy.linalg.LinAlgError``.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[4.0, 2.0], [2.0, 5.0]], device="cpu")
        >>> aiodev.kernels.linalg.cholesky(x).numpy_blocking()
        array([[2., 0.],
               [1., 2.]])
    """
    flags("cholesky", upper=upper)
    dtype = square("cholesky", x)
    library = factorising(call)
    result, target, stack = result_for(call, x.shape, dtype)
    if result.size:
        library.cholesky(call, stacked(call, x, dtype), stack, bool(upper))
    return delivered(call, result, target)


def eigh(x: aiodev.Array, /) -> EighResult:
    """The eigenvalues of Hermitian matrices in ascending order, and their eigenvectors, which are columns.

    Only the lower triangle of ``x`` is read. Eigenvalues are real. Where LAPACK does not converge, who waits for a result gets
    a :class:`~aiodev.KernelError` whose cause is ``numpy.linalg.LinAlgError``.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> values, vectors = aiodev.kernels.linalg.eigh(aiodev.asarray([[2.0, 0.0], [0.0, 1.0]], device="cpu"))
        >>> values.numpy_blocking(), abs(vectors.numpy_blocking())
        (array([1., 2.]), array([[0., 1.],
               [1., 0.]]))
    """
    return EighResult(*_eigh(x))


@aiodev.operation(reads=["x"], name="eigh")
def _eigh(call: aiodev.Call, x: aiodev.Array, /) -> tuple[aiodev.Array, aiodev.Array]:
    dtype = square("eigh", x)
    library = factorising(call)
    values, vectors = call.new(x.shape[:-1], real_of(dtype)), call.new(x.shape, dtype)
    if x.size:
        batch, n = batch_of(x), x.shape[-1]
        library.eigenvalues(call, stacked(call, x, dtype), values.reshape(batch, n), vectors.reshape(batch, n, n))
    return values, vectors


@aiodev.operation(reads=["x"], writes="out")
def eigvalsh(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """The eigenvalues of Hermitian matrices in ascending order; otherwise as :func:`eigh`.

    Raises:
        ValueError: the matrices are not square.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[2.0, 1.0], [1.0, 2.0]], device="cpu")
        >>> aiodev.kernels.linalg.eigvalsh(x).numpy_blocking().round(6)
        array([1., 3.])
    """
    dtype = square("eigvalsh", x)
    library = factorising(call)
    result, target, stack = result_for(call, x.shape[:-1], real_of(dtype), 1)
    if result.size:
        library.eigenvalues(call, stacked(call, x, dtype), stack, None)
    return delivered(call, result, target)


def qr(x: aiodev.Array, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns ``Q`` and upper triangles ``R`` with ``x = Q @ R``.

    Args:
        mode: ``"reduced"``: as many columns as the lesser of the matrices' sides; ``"complete"``: as many as rows.

    Raises:
        ValueError: there is no such mode, or ``x`` has fewer than 2 dimensions.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> q, r = aiodev.kernels.linalg.qr(aiodev.asarray([[0.0, 2.0], [1.0, 3.0], [0.0, 0.0]], device="cpu"))
        >>> abs(q.numpy_blocking()), abs(r.numpy_blocking())
        (array([[0., 1.],
               [1., 0.],
               [0., 0.]]), array([[1., 3.],
               [0., 2.]]))
    """
    return QRResult(*_qr(x, mode=mode))


@aiodev.operation(reads=["x"], name="qr")
def _qr(call: aiodev.Call, x: aiodev.Array, /, *, mode: str = "reduced") -> tuple[aiodev.Array, aiodev.Array]:
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode {mode!r}: expected 'reduced' or 'complete'")
    dtype = checked("qr", x)
    library = factorising(call)
    batch, (rows, columns) = x.shape[:-2], x.shape[-2:]
    width = rows if mode == "complete" else min(rows, columns)
    q, r = call.new((*batch, rows, width), dtype), call.new((*batch, width, columns), dtype)
    if q.size:
        count = batch_of(x)
        library.qr(call, stacked(call, x, dtype), q.reshape(count, rows, width), r.reshape(count, width, columns))
    return q, r


def svd(x: aiodev.Array, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values, the largest first, and vectors: ``x = U @ diag(S) @ Vh``.

    ``S`` is real. Where LAPACK does not converge, as it does not for NaN, who waits for a result gets a
    :class:`~aiodev.KernelError` whose cause is ``numpy.linalg.LinAlgError``.

    Args:
        full_matrices: whether ``U`` and ``Vh`` are square; else they have as many columns and rows as there are values.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions.
        TypeError: LAPACK has not this dtype; or ``full_matrices`` is no truth value.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> u, s, vh = aiodev.kernels.linalg.svd(aiodev.asarray([[0.0, 2.0], [1.0, 0.0]], device="cpu"))
        >>> s.numpy_blocking(), u.shape, vh.shape
        (array([2., 1.]), (2, 2), (2, 2))
    """
    return SVDResult(*_svd(x, full_matrices=full_matrices))


@aiodev.operation(reads=["x"], name="svd")
def _svd(
    call: aiodev.Call, x: aiodev.Array, /, *, full_matrices: bool = True
) -> tuple[aiodev.Array, aiodev.Array, aiodev.Array]:
    flags("svd", full_matrices=full_matrices)
    dtype = checked("svd", x)
    library = factorising(call)
    batch, (rows, columns) = x.shape[:-2], x.shape[-2:]
    least = min(rows, columns)
    left, right = (rows, columns) if full_matrices else (least, least)
    u, vh = call.new((*batch, rows, left), dtype), call.new((*batch, right, columns), dtype)
    s = call.new((*batch, least), real_of(dtype))
    if u.size or vh.size:
        count = batch_of(x)
        stacks = u.reshape(count, rows, left), s.reshape(count, least), vh.reshape(count, right, columns)
        library.svd(call, stacked(call, x, dtype), *stacks)
    return u, s, vh


@aiodev.operation(reads=["x"], writes="out")
def svdvals(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """Singular values, the largest first; otherwise as :func:`svd`.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions.
        TypeError: LAPACK has not this dtype.
        NotImplementedError: there is no LAPACK for the device, or no cuSOLVER is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.svdvals(aiodev.asarray([[0.0, 2.0], [1.0, 0.0]], device="cpu")).numpy_blocking()
        array([2., 1.])
    """
    dtype = checked("svdvals", x)
    library = factorising(call)
    shape = *x.shape[:-2], min(x.shape[-2:])
    result, target, stack = result_for(call, shape, real_of(dtype), 1)
    if result.size:
        library.singular_values(call, stacked(call, x, dtype), stack)
    return delivered(call, result, target)
