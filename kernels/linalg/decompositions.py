"""Gradients of decompositions: of eigenvalues and vectors, of singular ones, of QR and of pseudo-inverses.

Products of elements are written ``∘``. What of a factor is free, as the sign or phase of a vector, must not matter for what is
differentiated. Where two values are equal, their vectors are not determined, and gradients of vectors are infinite or NaN.

See Giles, Collected Matrix Derivative Results for Forward and Reverse Mode AD, 2008; Townsend, Differentiating the Singular
Value Decomposition, 2016; Golub and Pereyra, The Differentiation of Pseudo-Inverses, 1973.
"""

from __future__ import annotations

from typing import Any

import aiodev
from aiodev.kernels.creation import eye, triu
from aiodev.kernels.elementwise.conversion import where
from aiodev.kernels.elementwise.table import add, conj, divide, multiply, negative, subtract
from aiodev.kernels.linalg import factorizations, inverses
from aiodev.kernels.linalg.factorizations import eigh, eigvalsh, svd, svdvals
from aiodev.kernels.linalg.inverses import solve
from aiodev.kernels.linalg.products import matmul
from aiodev.kernels.manipulation.joining import concat
from aiodev.kernels.manipulation.views import expand_dims

__all__ = ["adjoint"]


def adjoint(x: Any) -> Any:
    """Matrices transposed, and conjugated if they are complex."""
    return conj(x.mT) if x.dtype.kind == "c" else x.mT


def _row(x: Any) -> Any:
    return expand_dims(x, axis=-2)


def _column(x: Any) -> Any:
    return expand_dims(x, axis=-1)


def _diagonal_mask(x: Any) -> aiodev.Array:
    """Whether an element of a square matrix is on its diagonal."""
    return eye(x.shape[-1], dtype="bool", device=x.device)


def _gaps(values: Any) -> Any:
    """What each value of a row is more than that of a column; 1 on the diagonal."""
    return where(_diagonal_mask(_row(values)), 1.0, subtract(_row(values), _column(values)))


def _scaled_columns(x: Any, values: Any) -> Any:
    return multiply(x, _row(values))


def _eigh_gradient(g: Any, result: Any) -> aiodev.Array:
    """``V (diag(g) + (V^H gV) ∘ 1 / (λ_j - λ_i)) V^H``."""
    values, vectors = result
    turned = matmul(adjoint(vectors), g[1])
    mask = _diagonal_mask(turned)
    inner = where(mask, _row(g[0]), divide(turned, _gaps(values)))
    return matmul(matmul(vectors, inner), adjoint(vectors))


def _eigvalsh_gradient(g: Any, x: Any) -> aiodev.Array:
    _, vectors = eigh(x)
    return matmul(_scaled_columns(vectors, g), adjoint(vectors))


def _svd_gradient(g: Any, x: Any, result: Any, full_matrices: bool) -> aiodev.Array:
    """``U (((skew(U^H gU) S + S skew(V^H gV)) / (s_j² - s_i²)) + diag(gS)) V^H``, and what leaves the spaces of U and of V."""
    rows, columns = x.shape[-2:]
    if full_matrices and rows != columns:
        raise NotImplementedError(
            f"svd: no gradient for matrices of {rows} rows and {columns} columns with full_matrices=True: not all vectors are "
            f"determined; full_matrices=False has those that are, and svdvals the values"
        )
    u, s, vh = result
    gu, gs, gvh = g
    left, right = _skew(matmul(adjoint(u), gu)), _skew(matmul(vh, adjoint(gvh)))
    apart = divide(add(_scaled_columns(left, s), multiply(_column(s), right)), _gaps(multiply(s, s)))
    mask = _diagonal_mask(apart)
    phases = 0.0 if x.dtype.kind != "c" else divide(left, _row(multiply(s, 2.0)))  # which are the vectors' own, turned together
    inner = where(mask, add(_row(gs), phases), apart)
    gradient = matmul(matmul(u, inner), vh)
    if rows > columns:
        beyond = divide(gu, _row(s))
        gradient = add(gradient, matmul(subtract(beyond, matmul(u, matmul(adjoint(u), beyond))), vh))
    if columns > rows:
        beyond = divide(gvh, _column(s))
        gradient = add(gradient, matmul(u, subtract(beyond, matmul(matmul(beyond, adjoint(vh)), vh))))
    return gradient


def _skew(x: Any) -> Any:
    return subtract(x, adjoint(x))


def _svdvals_gradient(g: Any, x: Any) -> aiodev.Array:
    u, _, vh = svd(x, full_matrices=False)
    return matmul(_scaled_columns(u, g), vh)


def _qr_gradient(g: Any, x: Any, result: Any, mode: str) -> aiodev.Array:
    """Of a square ``R``: ``(gQ + Q sym(triu(gR R^H - Q^H gQ))) R^-H``; columns beyond are ``Q`` times those of ``R``."""
    rows, columns = x.shape[-2:]
    if mode == "complete" and rows > columns:
        raise NotImplementedError(
            f"qr: no gradient for matrices of {rows} rows and {columns} columns with mode='complete': not all columns of Q are "
            f"determined; mode='reduced' has those that are"
        )
    q, r = result
    gq, gr = g
    if columns > rows:
        beyond = gr[..., rows:]
        gq = add(gq, matmul(x[..., rows:], adjoint(beyond)))
        r, gr = r[..., :rows], gr[..., :rows]
    inner = triu(subtract(matmul(gr, adjoint(r)), matmul(adjoint(q), gq)))
    both = add(inner, adjoint(inner))
    halved = where(_diagonal_mask(both), multiply(both, 0.5), both)
    gradient = adjoint(solve(r, adjoint(add(gq, matmul(q, halved)))))
    return concat([gradient, matmul(q, beyond)], axis=-1) if columns > rows else gradient


def _pinv_gradient(g: Any, x: Any, result: Any) -> aiodev.Array:
    """Where the rank does not change: of ``P = A^+``, ``-(P K)^H + …``, with two terms for what ``A`` does not reach."""
    back, inverse = adjoint(g), adjoint(result)
    if x.shape[-2] <= x.shape[-1]:
        inner = matmul(back, result)
        outer = matmul(inner, inverse)
        gradient = subtract(outer, adjoint(matmul(result, inner)))
        gradient = subtract(gradient, matmul(matmul(x, result), outer))
        return add(gradient, matmul(matmul(inverse, result), subtract(back, matmul(inner, x))))
    inner = matmul(result, back)
    outer = matmul(inverse, inner)
    gradient = subtract(outer, adjoint(matmul(inner, result)))
    gradient = add(gradient, matmul(matmul(subtract(back, matmul(x, inner)), result), inverse))
    return subtract(gradient, matmul(matmul(outer, result), x))


factorizations._eigh.operation.gradient(x=_eigh_gradient)
eigvalsh.operation.gradient(x=_eigvalsh_gradient)
factorizations._svd.operation.gradient(x=_svd_gradient)
svdvals.operation.gradient(x=_svdvals_gradient)
factorizations._qr.operation.gradient(x=_qr_gradient)
inverses._pinv.operation.gradient(x=_pinv_gradient, least=None)
inverses._reciprocals.operation.gradient(s=lambda g, result: negative(multiply(g, multiply(result, result))), rtol=None)
inverses._rank.operation.gradient(s=None, rtol=None)
