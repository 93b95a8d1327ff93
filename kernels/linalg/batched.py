"""Stacks of small matrices on CUDA devices: factorised by one call for all of them, where there is a function for that.

A call for each matrix takes one of 8 by 8 about as long as one of 200 by 200: the device has hardly anything to do. So stacks
of square matrices up to ``BATCHED_ROWS``, of which there are not too few for their size, go to cuSOLVER's ``potrfBatched`` and
``syevjBatched``, which is Jacobi's method, and cuBLAS's ``getrfBatched``, ``getrsBatched`` and ``getriBatched``. All else is
left to :mod:`.cusolver`, which says how matrices lie, and what becomes of what is wrong with them; so are LU factorisations
where cuBLAS is not installed.

Most of these functions take the addresses of the matrices, in the device's memory, which a kernel writes there. A graph may put
other arrays in the place of those that it was captured with, and finds the addresses among arguments, not in memory: so only
scratch memory is given to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

import aiodev
from aiodev.kernels.linalg import cublas, cusolver
from aiodev.kernels.linalg.cusolver import BatchedRoutine, Given, qr, singular_values, svd
from aiodev.kernels.tuning import BATCHED_ROWS, BATCHED_ROWS_EACH, JACOBI_ROWS

__all__ = [
    "cholesky",
    "cofactors",
    "determinants",
    "eigenvalues",
    "find_library",
    "invert",
    "qr",
    "signs_and_logarithms",
    "singular_values",
    "solve",
    "svd",
]

_LETTERS = {np.dtype(code): letter for code, letter in zip("fdFD", "SDCZ", strict=True)}
_LOWER, _UPPER = 0, 1  # cublasFillMode_t
_TRANSPOSED = 1  # cublasOperation_t
_NO_VECTORS, _VECTORS = 0, 1  # cusolverEigMode_t


def find_library() -> str | None:
    """The file of cuSOLVER; None where it is not installed."""
    return cusolver.find_library()


@aiodev.kernel
def fill_addresses(k: int, first: int, step: int, out: Any) -> None:
    """Addresses of matrices that lie one after the other."""
    out[k] = first + k * step


@aiodev.kernel(ndim=3, reads=("info", "factors"))
def take_triangle(k: int, i: int, j: int, upper: bool, info: Any, factors: Any, out: Any) -> None:
    """A triangle of factors, and zeros in the one that is no factor's."""
    if info[k] != 0:
        raise LinAlgError("cholesky: a matrix is not positive definite")
    out[k, i, j] = factors[k, i, j] if i == j or (j > i) == upper else 0


@aiodev.kernel(ndim=3, reads=("info", "inverses"))
def take_inverse(k: int, i: int, j: int, info: Any, inverses: Any, out: Any) -> None:
    """Inverses, unless a matrix has none."""
    if info[k] != 0:
        out[k, 0, 0] = np.nan
        raise LinAlgError("inv: a matrix is singular")
    out[k, i, j] = inverses[k, i, j]


def _is_for_one_call(x: aiodev.Array, most: int) -> bool:
    batch, n, _ = x.shape
    return batch > 1 and 0 < n <= min(most, BATCHED_ROWS_EACH * batch)


def _is_lu_for_one_call(x: aiodev.Array) -> bool:
    return _is_for_one_call(x, BATCHED_ROWS) and cublas.find_library() is not None


def _copied(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
    """The matrices in scratch memory, without gaps."""
    made = call.scratch(x.shape, x.dtype)
    call.copy(made, x)
    return made


def _addresses(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
    """Those of the matrices, for the device."""
    made = call.scratch(x.shape[0], np.int64)
    call.launch(fill_addresses, x.shape[0], x.address, x.nbytes // x.shape[0], made)
    return made


def cholesky(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, upper: bool) -> None:
    """Factors of Hermitian matrices."""
    if not _is_for_one_call(x, BATCHED_ROWS):
        cusolver.cholesky(call, x, out, upper)
        return
    batch, n, _ = x.shape
    factors, info = _copied(call, x), call.scratch(batch, np.int32)
    addresses = _addresses(call, factors)
    words = Given.HANDLE, _LOWER if upper else _UPPER, n, addresses.address, n, info.address, batch
    routine = BatchedRoutine(f"cusolverDn{_LETTERS[x.dtype]}potrfBatched", words)
    cusolver.submit_routines(call, [routine], factors, addresses, info)
    call.launch(take_triangle, out.shape, upper, info, factors, out)


class _Factors:
    """LU factorisations of a stack, by one call, and what goes on with them."""

    def __init__(self, call: aiodev.Call, x: aiodev.Array) -> None:
        batch, n, _ = x.shape
        self._letter, self._batch, self._n = _LETTERS[x.dtype], batch, n
        self.matrices, self.pivots = _copied(call, x), call.scratch((batch, n), np.int32)
        self.info = call.scratch(batch, np.int32)
        self.addresses = _addresses(call, self.matrices)
        self.arrays = self.matrices, self.pivots, self.info, self.addresses
        self.routine = self._named("getrf", n, self.addresses.address, n, self.pivots.address, self.info.address, batch)

    def _named(self, name: str, *words: Any) -> BatchedRoutine:
        return BatchedRoutine(f"cublas{self._letter}{name}Batched", (Given.BLAS, *words))

    def inverting(self, inverses: aiodev.Array, info: aiodev.Array) -> BatchedRoutine:
        """What gives the inverses, by their addresses; it says again what is wrong with a matrix."""
        n, pivots = self._n, self.pivots.address
        return self._named("getri", n, self.addresses.address, n, pivots, inverses.address, n, info.address, self._batch)

    def solving(self, right: aiodev.Array, columns: int) -> BatchedRoutine:
        """What solves for right sides, by their addresses; it says of its arguments alone what is wrong, on the host."""
        n, factors, pivots = self._n, self.addresses.address, self.pivots.address
        given = _TRANSPOSED, n, columns, factors, n, pivots, right.address, n, Given.HOST, self._batch
        return self._named("getrs", *given)


def _inverted(call: aiodev.Call, x: aiodev.Array) -> tuple[_Factors, aiodev.Array]:
    """LU factors and inverses."""
    factors, inverses = _Factors(call, x), call.scratch(x.shape, x.dtype)
    addresses, info = _addresses(call, inverses), call.scratch(x.shape[0], np.int32)
    routines = [factors.routine, factors.inverting(addresses, info)]
    cusolver.submit_routines(call, routines, *factors.arrays, inverses, addresses, info)
    return factors, inverses


def invert(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Inverses."""
    if not _is_lu_for_one_call(x):
        cusolver.invert(call, x, out)
        return
    factors, inverses = _inverted(call, x)
    call.launch(take_inverse, out.shape, factors.info, inverses, out)


def cofactors(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Cofactors."""
    if not _is_lu_for_one_call(x):
        cusolver.cofactors(call, x, out)
        return
    factors, inverses = _inverted(call, x)
    cusolver.finish_cofactors(call, x, factors.arrays[:3], inverses, out)


def solve(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, out: aiodev.Array) -> None:
    """Solutions of ``x @ out = y``, all three stacks of matrices."""
    if not _is_lu_for_one_call(x):
        cusolver.solve(call, x, y, out)
        return
    factors, columns = _Factors(call, x), _copied(call, y.transpose(0, 2, 1))
    addresses = _addresses(call, columns)
    routines = [factors.routine, factors.solving(addresses, y.shape[2])]
    cusolver.submit_routines(call, routines, *factors.arrays, columns, addresses)
    call.launch(cusolver.take_solution, out.shape, factors.info, columns, out)


def determinants(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Determinants."""
    if not _is_lu_for_one_call(x):
        cusolver.determinants(call, x, out)
        return
    factors = _Factors(call, x)
    cusolver.submit_routines(call, [factors.routine], *factors.arrays)
    call.launch(cusolver.take_determinant, x.shape[0], factors.matrices, factors.pivots, factors.info, out)


def signs_and_logarithms(call: aiodev.Call, x: aiodev.Array, signs: aiodev.Array, sizes: aiodev.Array) -> None:
    """Of determinants: signs, and logarithms of absolute values."""
    if not _is_lu_for_one_call(x):
        cusolver.signs_and_logarithms(call, x, signs, sizes)
        return
    factors = _Factors(call, x)
    cusolver.submit_routines(call, [factors.routine], *factors.arrays)
    call.launch(cusolver.take_sign, x.shape[0], factors.matrices, factors.pivots, factors.info, signs, sizes)


def eigenvalues(call: aiodev.Call, x: aiodev.Array, values: aiodev.Array, vectors: aiodev.Array | None) -> None:
    """Eigenvalues of Hermitian matrices, whose lower triangles are read, and their eigenvectors if those are given."""
    if not _is_for_one_call(x, JACOBI_ROWS):
        cusolver.eigenvalues(call, x, values, vectors)
        return
    batch, n, _ = x.shape
    a, info = _copied(call, x), call.scratch(batch, np.int32)
    job, letter = _NO_VECTORS if vectors is None else _VECTORS, _LETTERS[x.dtype]
    asked = Given.HANDLE, job, _UPPER, n, 0, n, 0, Given.FOUND, Given.JACOBI, batch
    room = Given.WORK, Given.WORK_COUNT
    words = Given.HANDLE, job, _UPPER, n, a.address, n, values.address, *room, info.address, Given.JACOBI, batch
    kind = "syevj" if letter in "SD" else "heevj"
    routine = BatchedRoutine(f"cusolverDn{letter}{kind}Batched", words, asked, x.dtype.itemsize)
    cusolver.submit_routines(call, [routine], a, values, info)
    if vectors is None:
        call.launch(cusolver.check_eigenvalues, batch, info, values)
    else:
        call.launch(cusolver.take_eigenvectors, vectors.shape, info, a, values, vectors)
