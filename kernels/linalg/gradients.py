"""Gradients of products, solutions and norms.

Of inverses, solutions and determinants: Giles, Collected Matrix Derivative Results for Forward and Reverse Mode AD, 2008; what
singular matrices have in place of ``det(A) A^-T``: :mod:`aiodev.kernels.linalg.cofactors`; of Cholesky factors: Murray,
Differentiation of the Cholesky Decomposition, 2016.
"""

from __future__ import annotations

import math
from typing import Any

import aiodev
from aiodev.kernels.arguments import checked_axis
from aiodev.kernels.creation import eye, tril
from aiodev.kernels.elementwise.conversion import astype, of_parts, where
from aiodev.kernels.elementwise.table import (
    abs,
    add,
    conj,
    divide,
    equal,
    imag,
    multiply,
    negative,
    pow,
    sign,
    subtract,
)
from aiodev.kernels.indexing.gradients import scattered_places
from aiodev.kernels.linalg import inverses, vector_norm
from aiodev.kernels.linalg.decompositions import adjoint
from aiodev.kernels.linalg.factorizations import cholesky
from aiodev.kernels.linalg.inverses import det, inv, solve
from aiodev.kernels.linalg.products import matmul, tensordot, vecdot
from aiodev.kernels.linalg.vector_products import cross, diagonal
from aiodev.kernels.manipulation.views import expand_dims, moveaxis
from aiodev.kernels.reductions import sum
from aiodev.kernels.reductions.gradients import broadcast_back


def _first_factor(g: Any, x2: Any, shapes: Any) -> aiodev.Array:
    """Of ``x1 @ x2``: ``g @ x2^T``, vectors as matrices of one row or column."""
    first, second = shapes["x1"], shapes["x2"]
    if len(first) == len(second) == 1:
        return multiply(g, x2)
    if len(second) == 1:  # a column
        return multiply(expand_dims(g, axis=-1), x2) if len(first) > 1 else multiply(g, x2)
    if len(first) == 1:  # a row
        return matmul(x2, expand_dims(g, axis=-1))[..., 0]
    return matmul(g, x2.mT)


def _second_factor(g: Any, x1: Any, shapes: Any) -> aiodev.Array:
    first, second = shapes["x1"], shapes["x2"]
    if len(first) == len(second) == 1:
        return multiply(g, x1)
    if len(first) == 1:
        return multiply(expand_dims(x1, axis=-1), expand_dims(g, axis=-2))
    if len(second) == 1:
        rows = x1.reshape(math.prod(first[:-1]), first[-1])
        return matmul(rows.mT, g.reshape(g.size))
    return matmul(x1.mT, g)


def _vecdot_gradient(g: Any, other: Any, own: tuple[int, ...], axis: int) -> aiodev.Array:
    if axis < 0 or other.ndim == len(own):
        return multiply(expand_dims(g, axis=axis), other)
    # Counted from the first it is another place of each; so vectors are last, and then where the operand's are.
    return moveaxis(multiply(expand_dims(g, axis=-1), moveaxis(other, axis, -1)), -1, axis - len(own))


def _tensordot_axes(axes: Any, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[list[int], list[int]]:
    if hasattr(axes, "__index__"):
        return list(range(len(first) - int(axes), len(first))), list(range(int(axes)))
    own, other = (
        [checked_axis("tensordot", a, len(shape)) for a in ([given] if isinstance(given, int) else given)]
        for given, shape in zip(axes, (first, second), strict=True)
    )
    return own, other


def _tensordot_first(g: Any, x2: Any, shapes: Any, axes: Any) -> aiodev.Array:
    """Of ``x1``: the gradient, with the dimensions of ``x2`` that were left contracted with it."""
    first, second = shapes["x1"], shapes["x2"]
    own, other = _tensordot_axes(axes, first, second)
    kept = [a for a in range(len(second)) if a not in other]
    before = len(first) - len(own)
    product = tensordot(g, x2, axes=(list(range(before, g.ndim)), kept))
    # The dimensions are the kept ones of x1, and those of x2 that were contracted, in its order.
    order = [a for a in range(len(first)) if a not in own] + [own[other.index(a)] for a in sorted(other)]
    return product.transpose(*(order.index(a) for a in range(len(first)))) if order else product


def _tensordot_second(g: Any, x1: Any, shapes: Any, axes: Any) -> aiodev.Array:
    first, second = shapes["x1"], shapes["x2"]
    own, other = _tensordot_axes(axes, first, second)
    kept = [a for a in range(len(first)) if a not in own]
    product = tensordot(x1, g, axes=(kept, list(range(len(kept)))))
    order = [other[own.index(a)] for a in sorted(own)] + [a for a in range(len(second)) if a not in other]
    return product.transpose(*(order.index(a) for a in range(len(second)))) if order else product


def _norm_gradient(g: Any, x: Any, result: Any, axis: Any, keepdims: bool, ord: float) -> aiodev.Array:
    """0 where the norm is 0, and where it has none, as at a single 0 of the sum of absolute values, or of powers below 1."""
    if ord == 0:
        return aiodev.zeros(x.shape, g.dtype, g.device)
    if ord == 1:
        return multiply(broadcast_back(g, x.shape, axis, keepdims), sign(x))
    if ord in (math.inf, -math.inf):
        chosen = astype(equal(abs(x), broadcast_back(result, x.shape, axis, keepdims)), g.dtype)
        share = divide(g, sum(chosen, axis=axis, keepdims=keepdims))
        return multiply(multiply(chosen, sign(x)), broadcast_back(share, x.shape, axis, keepdims))
    is_zero = equal(result, 0.0)
    scale = where(is_zero, 0.0, divide(g, where(is_zero, 1.0, result if ord == 2 else pow(result, ord - 1.0))))
    own = x if ord == 2 else multiply(sign(x), _power_of_size(x, ord - 1.0))
    return multiply(broadcast_back(scale, x.shape, axis, keepdims), own)


def _power_of_size(x: Any, power: float) -> aiodev.Array:
    """Of absolute values; 1 of those that are 0 where they, or their slopes, were infinite."""
    size = abs(x)
    return pow(size if power >= 1.0 else where(equal(size, 0.0), 1.0, size), power)


def _solved_back(g: Any, x1: Any, shapes: Any) -> aiodev.Array:
    """``x1^-T g``; of a vector that was solved for, ``g`` is one of each matrix, and :func:`solve` has no stacks of vectors."""
    return solve(x1.mT, expand_dims(g, axis=-1))[..., 0] if len(shapes["x2"]) == 1 else solve(x1.mT, g)


def _solve_first(g: Any, x1: Any, result: Any, shapes: Any) -> aiodev.Array:
    back = _solved_back(g, x1, shapes)
    if len(shapes["x2"]) == 1:
        return negative(multiply(expand_dims(back, axis=-1), expand_dims(result, axis=-2)))
    return negative(matmul(back, result.mT))


def _inv_gradient(g: Any, result: Any) -> aiodev.Array:
    back = result.mT
    return negative(matmul(matmul(back, g), back))


def _det_gradient(g: Any, x: Any) -> aiodev.Array:
    """The cofactors (Jacobi's formula), which singular matrices have as well."""
    return multiply(expand_dims(expand_dims(g, axis=-1), axis=-1), inverses._cofactors(x))


def _cofactors_gradient(g: Any, x: Any, result: Any) -> aiodev.Array | None:
    """Of ``C = det(A) A^-T``: ``tr(g^T C) A^-T - A^-T g^T C``; those of two rows are the elements, in other places."""
    if x.shape[-1] < 2:
        return None
    if x.shape[-1] == 2:
        return inverses._cofactors(g)
    inverse = inv(x).mT
    trace = sum(multiply(g, result), axis=(-2, -1), keepdims=True)
    return subtract(multiply(trace, inverse), matmul(matmul(inverse, g.mT), result))


def _slogdet_gradient(g: Any, x: Any, result: Any) -> aiodev.Array:
    """The logarithm follows the real part of ``tr(A^-1 dA)``, and the sign of a complex determinant the imaginary one."""
    whole = g[1]
    if x.dtype.kind == "c":
        whole = of_parts(whole, imag(multiply(g[0], conj(result[0]))))
    return multiply(expand_dims(expand_dims(whole, axis=-1), axis=-1), adjoint(inv(x)))


def _cholesky_gradient(g: Any, result: Any, upper: bool) -> aiodev.Array:
    """Of the symmetric matrix: ``L^-T Φ(L^T g) L^-1``, made symmetric, with Φ the lower triangle and half of the diagonal."""
    factor = adjoint(result) if upper else result
    given = adjoint(g) if upper else g
    product = tril(matmul(adjoint(factor), given))
    half = multiply(product, _halved(product))
    first = solve(adjoint(factor), half)
    whole = adjoint(solve(adjoint(factor), adjoint(first)))
    return multiply(add(whole, adjoint(whole)), 0.5)


def _halved(x: Any) -> aiodev.Array:
    """Ones, and halves on the diagonal."""
    n = x.shape[-1]
    return aiodev.ones((n, n), x.dtype, x.device) - 0.5 * eye(n, dtype=x.dtype, device=x.device)


matmul.operation.gradient(x1=_first_factor, x2=_second_factor)
vecdot.operation.gradient(
    x1=lambda g, x2, shapes, axis: _vecdot_gradient(conj(g) if g.dtype.kind == "c" else g, x2, shapes["x1"], axis),
    x2=lambda g, x1, shapes, axis: _vecdot_gradient(g, x1, shapes["x2"], axis),
)
tensordot.operation.gradient(x1=_tensordot_first, x2=_tensordot_second)
vector_norm.operation.gradient(x=_norm_gradient)
cross.operation.gradient(
    x1=lambda g, x2, axis: cross(x2, g, axis=axis), x2=lambda g, x1, axis: cross(g, x1, axis=axis)
)
diagonal.operation.gradient(
    x=lambda g, shapes, offset: scattered_places(g, shapes["x"], lambda places: diagonal(places, offset=offset))
)
inv.operation.gradient(x=_inv_gradient)
solve.operation.gradient(x1=_solve_first, x2=_solved_back)
det.operation.gradient(x=_det_gradient)
inverses._cofactors.operation.gradient(x=_cofactors_gradient)
inverses._slogdet.operation.gradient(x=_slogdet_gradient)
inverses._identities.operation.gradient(x=None)
cholesky.operation.gradient(x=_cholesky_gradient)
