"""Factorisations on the CPU: kernels that call LAPACK, a matrix at a time, and what submits them.

An index of a launch takes some matrices of a stack, one after the other, with scratch memory of its own; so a stack is shared
by the device's cores, and each call stays on its worker, without the GIL. A single matrix is one worker's.

**Order of elements.** LAPACK has columns where arrays have rows: what lies in memory as ``A`` is ``A.T`` to it. Matrices are
factorised so, as transposes, and the factors are, read by rows, the ones that are asked for:

-   ``A = L @ L^H`` with the lower triangle is ``A.T = U^H @ U`` with the upper one.
-   ``A.T = L @ Q`` gives ``A = Q.T @ L.T``: an LQ factorisation is the QR factorisation.
-   ``A.T = U @ S @ V^H`` gives ``A = conj(V) @ S @ U.T``: left and right singular vectors change places.
-   The eigenvectors of ``A.T`` are conjugates of those of ``A``; they are transposed where they lie.

**Arguments** of LAPACK's functions are addresses. Integers and characters are put into ``words``, a row of scratch for each
index; those that a function gives are read there. A library whose integers have 4 bytes reads and writes the lower halves of
words, which are cleared before. Its pivots are the one thing that has to be told apart.

What a function finds wrong with a matrix is raised as LinAlgError, which arrives as the cause of a KernelError.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

import aiodev
from aiodev.kernels.linalg import openblas
from aiodev.kernels.linalg.cofactors import cofactors_by_elimination, is_safe
from aiodev.kernels.linalg.tiling import cores_of
from aiodev.kernels.tuning import FACTORISED_EACH, FACTORISED_LARGE, FACTORISED_SHARES
from aiodev.lang import call_native

__all__ = [
    "cholesky",
    "cofactors",
    "determinants",
    "eigenvalues",
    "invert",
    "qr",
    "signs_and_logarithms",
    "singular_values",
    "solve",
    "svd",
]

DType = np.dtype[Any]

_CODES = {np.dtype(code): place for place, code in enumerate("fdFD")}
_POTRF, _GETRF, _GETRS, _GETRI = (openblas.LAPACK[name] for name in ("potrf", "getrf", "getrs", "getri"))
_GELQF, _ORGLQ, _GESDD, _SYEVD = (openblas.LAPACK[name] for name in ("gelqf", "orglq", "gesdd", "syevd"))
_WIDTH = openblas.WIDTH
#: Words of an index for integers, before pivots and the like.
_HEAD = 8
#: Columns that LAPACK's functions take at a time, for which they are given memory.
_BLOCK = 64
_LOWER, _TRANSPOSED, _UPPER, _VECTORS = (ord(letter) for letter in "LTUV")
_ALL, _NONE, _SOME = (ord(letter) for letter in "ANS")


def _need(lapack: Any) -> None:
    if lapack[_WIDTH] == 0:
        raise NotImplementedError("NumPy has been built without a LAPACK whose functions can be called")


def _copy(x: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a[i, j] = x[i, j]


def _identity(a: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = 1 if i == j else 0


@aiodev.kernel(reads=("lapack", "x"))
def cholesky_stack(i: int, lapack: Any, code: int, group: int, upper: bool, x: Any, words: Any, out: Any) -> None:
    """Factors of matrices, in the triangle that is read, and zeros in the other one."""
    _need(lapack)
    w, n = words[i], x.shape[1]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        source, a = x[k], out[k]
        for row in range(n):
            for column in range(n):
                a[row, column] = source[row, column] if (column >= row if upper else column <= row) else 0
        w[0], w[1], w[2] = _LOWER if upper else _UPPER, n, 0
        call_native(lapack[_POTRF + code], w, w[1:], a, w[1:], w[2:], 1)
        if w[2] != 0:
            raise LinAlgError("cholesky: a matrix is not positive definite")


def _factorise(lapack: Any, code: int, x: Any, a: Any, w: Any) -> Any:
    """Put the LU factors of a matrix into ``a``, the pivots behind the head of ``w``, n and info in front; gives info."""
    _copy(x, a)
    w[0], w[1] = x.shape[0], 0
    if x.shape[0] > 0:
        call_native(lapack[_GETRF + code], w, w, a, w, w[_HEAD:], w[1:])
    return w[1]


@aiodev.kernel(reads=("lapack", "x"))
def invert_stack(i: int, lapack: Any, code: int, group: int, x: Any, words: Any, work: Any, out: Any) -> None:
    """Inverses, in place in the result."""
    _need(lapack)
    w = words[i]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        a = out[k]
        if _factorise(lapack, code, x[k], a, w) == 0:
            w[2] = work.shape[1]
            call_native(lapack[_GETRI + code], w, a, w, w[_HEAD:], work[i], w[2:], w[1:])
        if w[1] != 0:
            raise LinAlgError("inv: a matrix is singular")


@aiodev.kernel(reads=("lapack", "x", "y"))
def solve_stack(
    i: int, lapack: Any, code: int, group: int, x: Any, y: Any, words: Any, factors: Any, columns: Any, out: Any
) -> None:
    """Solutions; right sides lie in ``columns`` one after the other."""
    _need(lapack)
    w, sides = words[i], columns[i]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        if _factorise(lapack, code, x[k], factors[i], w) != 0:
            raise LinAlgError("solve: argument x1: a matrix is singular")
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                sides[column, row] = y[k, row, column]
        w[2], w[3] = _TRANSPOSED, y.shape[2]
        call_native(lapack[_GETRS + code], w[2:], w, w[3:], factors[i], w, w[_HEAD:], sides, w, w[1:], 1)
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                out[k, row, column] = sides[column, row]


def _has_odd_pivots(lapack: Any, w: Any, n: int) -> bool:
    """Whether rows were swapped an odd number of times."""
    odd, wide = False, lapack[_WIDTH] == 8
    for k in range(n):
        pivot = w[_HEAD + k] if wide else (w[_HEAD + (k >> 1)] >> ((k & 1) << 5)) & 0xFFFFFFFF
        odd = odd != (pivot != k + 1)
    return odd


def _logarithm(a: Any) -> float:
    """That of the absolute value of the product of a diagonal."""
    total = 0.0
    for k in range(a.shape[0]):
        total += math.log(abs(a[k, k]))
    return total


def _sign(a: Any, one: Any) -> Any:
    """Of the product of a diagonal."""
    for k in range(a.shape[0]):
        one *= a[k, k] / abs(a[k, k])
    return one


@aiodev.kernel(reads=("lapack", "x"))
def slogdet_stack(
    i: int, lapack: Any, code: int, group: int, x: Any, words: Any, factors: Any, signs: Any, sizes: Any
) -> None:
    """Signs of determinants and logarithms of their sizes."""
    _need(lapack)
    w, a, n = words[i], factors[i], x.shape[1]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        if _factorise(lapack, code, x[k], a, w) != 0:
            signs[k], sizes[k] = 0, -np.inf
        else:
            sign = _sign(a, signs.dtype.type(1))
            signs[k], sizes[k] = -sign if _has_odd_pivots(lapack, w, n) else sign, _logarithm(a)


@aiodev.kernel(reads=("lapack", "x"))
def det_stack(i: int, lapack: Any, code: int, group: int, x: Any, words: Any, factors: Any, out: Any) -> None:
    """Determinants; one whose product is beyond the type on the way is made by logarithms."""
    _need(lapack)
    w, a, n = words[i], factors[i], x.shape[1]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        if _factorise(lapack, code, x[k], a, w) != 0:
            out[k] = 0
            continue
        total = out.dtype.type(1)
        for row in range(n):
            total *= a[row, row]
        if not (0 < abs(total) < np.inf):
            total = _sign(a, out.dtype.type(1)) * out.dtype.type(math.exp(_logarithm(a)))
        out[k] = -total if _has_odd_pivots(lapack, w, n) else total


@aiodev.kernel(reads=("lapack", "x"))
def cofactors_stack(
    i: int, lapack: Any, code: int, group: int, least: Any, x: Any, words: Any, factors: Any, work: Any, out: Any
) -> None:
    """Cofactors: by inverses, in place in the result; of matrices that have none, or one beyond the type, by elimination."""
    _need(lapack)
    w, n = words[i], x.shape[1]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        a = out[k]
        if _factorise(lapack, code, x[k], a, w) != 0 or not is_safe(a, least):
            _copy(x[k], factors[i])
            cofactors_by_elimination(factors[i], w[_HEAD:], a)
            continue
        total, more = out.dtype.type(1), out.dtype.type(1)
        for row in range(n):
            total *= a[row, row]
        if abs(total) < least or abs(total) == np.inf or total != total:
            total, more = _sign(a, out.dtype.type(1)), out.dtype.type(math.exp(0.5 * _logarithm(a)))
            total *= more
        if _has_odd_pivots(lapack, w, n):
            total = -total
        w[2] = work.shape[1]
        call_native(lapack[_GETRI + code], w, a, w, w[_HEAD:], work[i], w[2:], w[1:])
        for row in range(n):
            for column in range(row + 1):
                first, second = a[row, column], a[column, row]
                a[row, column], a[column, row] = second * total * more, first * total * more


@aiodev.kernel(reads=("lapack", "x"))
def qr_stack(
    i: int, lapack: Any, code: int, group: int, x: Any, words: Any, factors: Any, tau: Any, work: Any, q: Any, r: Any
) -> None:
    """Orthonormal columns, as many as ``q`` has, and upper triangles."""
    _need(lapack)
    w, a, least = words[i], factors[i], min(x.shape[1], x.shape[2])
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        if least == 0:
            _identity(q[k])
            continue
        _copy(x[k], a)
        w[0], w[1], w[2], w[3], w[4], w[5] = x.shape[2], x.shape[1], work.shape[1], 0, q.shape[2], least
        call_native(lapack[_GELQF + code], w, w[1:], a, w, tau[i], work[i], w[2:], w[3:])
        for row in range(r.shape[1]):
            for column in range(r.shape[2]):
                r[k, row, column] = a[row, column] if column >= row else 0
        for row in range(q.shape[1]):
            for column in range(q.shape[2]):
                q[k, row, column] = a[row, column] if column < least else 0
        call_native(lapack[_ORGLQ + code], w[4:], w[1:], w[5:], q[k], w[4:], tau[i], work[i], w[2:], w[3:])
        if w[3] != 0:
            raise LinAlgError("qr: a matrix has no factors")


@aiodev.kernel(reads=("lapack", "x"))
def svdvals_stack(
    i: int, lapack: Any, code: int, group: int, x: Any, words: Any, factors: Any, work: Any, more: Any, s: Any
) -> None:
    """Singular values, the largest first."""
    _need(lapack)
    w, a = words[i], factors[i]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        _copy(x[k], a)
        w[0], w[1], w[2], w[3], w[4] = _NONE, x.shape[2], x.shape[1], work.shape[1], 0
        if code < 2:
            call_native(
                lapack[_GESDD + code], w, w[1:], w[2:], a, w[1:], s[k], a, w[1:], a, w[2:], work[i], w[3:], w[_HEAD:], w[4:], 1
            )
        else:
            call_native(
                lapack[_GESDD + code], w, w[1:], w[2:], a, w[1:], s[k], a, w[1:], a, w[2:], work[i], w[3:], more[i], w[_HEAD:],
                w[4:], 1,
            )  # fmt: skip
        if w[4] != 0:
            raise LinAlgError("svdvals: the singular values of a matrix did not converge")


@aiodev.kernel(reads=("lapack", "x"))
def svd_stack(
    i: int, lapack: Any, code: int, group: int, x: Any, words: Any, factors: Any, work: Any, more: Any,
    u: Any, s: Any, vh: Any,
) -> None:  # fmt: skip
    """Singular values and vectors, as many as ``u`` and ``vh`` have."""
    _need(lapack)
    w, a, least = words[i], factors[i], min(x.shape[1], x.shape[2])
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        if least == 0:
            _identity(u[k])
            _identity(vh[k])
            continue
        _copy(x[k], a)
        full = u.shape[2] > least or vh.shape[1] > least
        w[0], w[1], w[2], w[3], w[4] = _ALL if full else _SOME, x.shape[2], x.shape[1], work.shape[1], 0
        w[5] = u.shape[2]
        if code < 2:
            call_native(
                lapack[_GESDD + code], w, w[1:], w[2:], a, w[1:], s[k], vh[k], w[1:], u[k], w[5:], work[i], w[3:], w[_HEAD:],
                w[4:], 1,
            )  # fmt: skip
        else:
            call_native(
                lapack[_GESDD + code], w, w[1:], w[2:], a, w[1:], s[k], vh[k], w[1:], u[k], w[5:], work[i], w[3:], more[i],
                w[_HEAD:], w[4:], 1,
            )  # fmt: skip
        if w[4] != 0:
            raise LinAlgError("svd: the singular values of a matrix did not converge")


@aiodev.kernel(reads=("lapack", "x"))
def eigh_stack(
    i: int, lapack: Any, code: int, group: int, vectors: bool, x: Any, words: Any, work: Any, more: Any,
    values: Any, out: Any,
) -> None:  # fmt: skip
    """Eigenvalues in ascending order; and if ``vectors`` those, else ``out`` has a matrix of scratch for each index."""
    _need(lapack)
    w, n = words[i], x.shape[1]
    for k in range(i * group, min(x.shape[0], (i + 1) * group)):
        a = out[k if vectors else i]
        _copy(x[k], a)
        w[0], w[1], w[2], w[3], w[4] = _VECTORS if vectors else _NONE, _UPPER, n, work.shape[1], more.shape[1]
        w[5], w[6] = w.size - _HEAD, 0
        if code < 2:
            call_native(
                lapack[_SYEVD + code], w, w[1:], w[2:], a, w[2:], values[k], work[i], w[3:], w[_HEAD:], w[5:], w[6:], 1, 1
            )
        else:
            call_native(
                lapack[_SYEVD + code], w, w[1:], w[2:], a, w[2:], values[k], work[i], w[3:], more[i], w[4:], w[_HEAD:], w[5:],
                w[6:], 1, 1,
            )  # fmt: skip
        if w[6] != 0:
            raise LinAlgError("eigh: the eigenvalues of a matrix did not converge")
        if vectors:
            for row in range(n):
                a[row, row] = np.conj(a[row, row])
                for column in range(row):
                    upper, lower = a[row, column], a[column, row]
                    a[row, column], a[column, row] = np.conj(lower), np.conj(upper)


# What submits them: stacks of matrices in, of one dtype of LAPACK's, and results without gaps


class _Plan:
    """How a launch over a stack is shared, and its scratch."""

    def __init__(self, call: aiodev.Call, x: aiodev.Array, words: int) -> None:
        self.call, self.dtype = call, x.dtype
        self.real = np.dtype(x.dtype.type(0).real.dtype)
        batch, rows, columns = x.shape
        work = rows * columns * min(rows, columns)
        most = cores_of(x.device) * (FACTORISED_SHARES if rows * columns <= FACTORISED_LARGE else 1)
        self.group = max(-(-batch // most), min(batch, -(-FACTORISED_EACH // max(1, work))), 1)
        self.slots = -(-batch // self.group)
        self.words = call.scratch((self.slots, _HEAD + words), np.int64)

    def scratch(self, *shape: int, real: bool = False) -> aiodev.Array:
        """Memory of that shape for each index."""
        return self.call.scratch((self.slots, *shape), self.real if real else self.dtype)

    def launch(self, kernel: aiodev.Kernel, *args: Any) -> None:
        """Submit it, behind the loading of the library."""
        call = self.call
        table, done = openblas.functions(call.device)
        if not done.query():
            call.wait(done)
        call.launch(kernel, self.slots, call.constant(table), _CODES[self.dtype], self.group, *args)


def cholesky(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, upper: bool) -> None:
    """Factors of Hermitian matrices."""
    plan = _Plan(call, x, 0)
    plan.launch(cholesky_stack, upper, x, plan.words, out)


def invert(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Inverses."""
    n = x.shape[1]
    plan = _Plan(call, x, n)
    plan.launch(invert_stack, x, plan.words, plan.scratch(n * _BLOCK), out)


def solve(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, out: aiodev.Array) -> None:
    """Solutions of ``x @ out = y``, all three stacks of matrices."""
    _, n, columns = y.shape
    plan = _Plan(call, x, n)
    plan.launch(solve_stack, x, y, plan.words, plan.scratch(n, n), plan.scratch(columns, n), out)


def determinants(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Determinants."""
    n = x.shape[1]
    plan = _Plan(call, x, n)
    plan.launch(det_stack, x, plan.words, plan.scratch(n, n), out)


def cofactors(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Cofactors."""
    n, least = x.shape[1], x.dtype.type(np.finfo(x.dtype).tiny).real
    plan = _Plan(call, x, 2 * n)
    plan.launch(cofactors_stack, least, x, plan.words, plan.scratch(n, n), plan.scratch(n * _BLOCK), out)


def signs_and_logarithms(call: aiodev.Call, x: aiodev.Array, signs: aiodev.Array, sizes: aiodev.Array) -> None:
    """Of determinants: signs, and logarithms of absolute values."""
    n = x.shape[1]
    plan = _Plan(call, x, n)
    plan.launch(slogdet_stack, x, plan.words, plan.scratch(n, n), signs, sizes)


def qr(call: aiodev.Call, x: aiodev.Array, q: aiodev.Array, r: aiodev.Array) -> None:
    """QR factors, as many columns of ``q`` as it has."""
    _, rows, columns = x.shape
    plan = _Plan(call, x, 0)
    factors, tau = plan.scratch(rows, columns), plan.scratch(min(rows, columns))
    plan.launch(qr_stack, x, plan.words, factors, tau, plan.scratch(max(1, columns, q.shape[2]) * _BLOCK), q, r)


def svd(call: aiodev.Call, x: aiodev.Array, u: aiodev.Array, s: aiodev.Array, vh: aiodev.Array) -> None:
    """Singular values and vectors, as many of these as ``u`` and ``vh`` have room for."""
    _, rows, columns = x.shape
    least, most = min(rows, columns), max(rows, columns)
    plan = _Plan(call, x, 8 * least)
    if plan.dtype.kind == "c":
        work, more = least * least + 3 * least + most, max(5 * least * least + 5 * least, 2 * (most + least) * least + least)
    else:
        work, more = 4 * least * least + 7 * least + most, 1
    work += _BLOCK * (rows + columns) + 1
    parts = plan.words, plan.scratch(rows, columns), plan.scratch(work), plan.scratch(more + 1, real=True)
    plan.launch(svd_stack, x, *parts, u, s, vh)


def singular_values(call: aiodev.Call, x: aiodev.Array, s: aiodev.Array) -> None:
    """Singular values."""
    _, rows, columns = x.shape
    least, most = min(rows, columns), max(rows, columns)
    plan = _Plan(call, x, 8 * least)
    work = 3 * least + max(most, 7 * least) + _BLOCK * (rows + columns)
    parts = plan.words, plan.scratch(rows, columns), plan.scratch(work), plan.scratch(7 * least, real=True)
    plan.launch(svdvals_stack, x, *parts, s)


def eigenvalues(call: aiodev.Call, x: aiodev.Array, values: aiodev.Array, vectors: aiodev.Array | None) -> None:
    """Eigenvalues of Hermitian matrices, whose lower triangles are read, and their eigenvectors if those are given."""
    n = x.shape[1]
    plan = _Plan(call, x, 1 if vectors is None else 3 + 5 * n)
    if plan.dtype.kind == "c":
        work, more = (n + 1, n) if vectors is None else (2 * n + n * n, 1 + 5 * n + 2 * n * n)
    else:
        work, more = (2 * n + 1 if vectors is None else 1 + 6 * n + 2 * n * n), 1
    work = max(work, (2 + _BLOCK) * n)
    out = plan.scratch(n, n) if vectors is None else vectors
    parts = plan.words, plan.scratch(work), plan.scratch(more, real=True)
    plan.launch(eigh_stack, vectors is not None, x, *parts, values, out)
