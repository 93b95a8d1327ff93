"""Which gradients hold for complex numbers, in PyTorch's convention.

The gradient of a real loss with respect to ``z = x + iy`` is ``∂L/∂x + i ∂L/∂y``, twice the conjugate Wirtinger derivative: the
direction in which the loss grows fastest. Of a function that is complex differentiable the rules for real numbers hold, of
conjugates: what :attr:`aiodev.Operation.holomorphic` asks for. Others have rules of their own here, or treat both alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import aiodev
from aiodev.kernels.creation import tril, triu
from aiodev.kernels.elementwise import conversion, table
from aiodev.kernels.elementwise.conversion import of_parts, where
from aiodev.kernels.elementwise.difference import differences
from aiodev.kernels.elementwise.table import conj, divide, equal, imag, multiply, real, subtract
from aiodev.kernels.indexing import gradients as indexing
from aiodev.kernels.indexing.take import take, take_along_axis
from aiodev.kernels.linalg import factorizations, inverses, vector_norm
from aiodev.kernels.linalg.factorizations import cholesky, eigvalsh, svdvals
from aiodev.kernels.linalg.inverses import det, inv, solve
from aiodev.kernels.linalg.products import matmul, tensordot, vecdot
from aiodev.kernels.linalg.vector_products import cross, diagonal
from aiodev.kernels.manipulation import joining
from aiodev.kernels.manipulation.joining import concat, pad, roll, stack, tile
from aiodev.kernels.reductions import mean, prod, std, sum, var
from aiodev.kernels.scans import cumulative_prod, cumulative_sum, gradients as scans

__all__: list[str] = []

_HOLOMORPHIC = (
    "acos acosh add asin asinh atan atanh cos cosh divide exp exp2 expm1 log log10 log1p log2 multiply negative positive pow "
    "reciprocal sin sinh sqrt square subtract tan tanh"
)


def _operation(function: Any) -> aiodev.Operation:
    own: aiodev.Operation = function.operation
    return own


def _by_kind(operation: aiodev.Operation, rule: Callable[[Any, Any, Any], Any]) -> None:
    """Give a function of one array another rule where that is complex; it gets the result, too."""
    before = operation.gradients["x"]

    def both(g: Any, x: Any, result: Any) -> Any:
        if x.dtype.kind == "c":
            return rule(g, x, result)
        return None if before is None else before(*[{"g": g, "x": x}[name] for name in names])

    names = [] if before is None else list(inspect.signature(before).parameters)
    operation.gradients = {"x": both}
    operation.forget()


def _sign_gradient(g: Any, x: Any, result: Any) -> Any:
    """What turns it: along the number itself its direction does not change. 0 where there is none, as in PyTorch."""
    size = table.abs(x)
    turned = subtract(g, multiply(result, real(multiply(conj(result), g))))
    is_zero = equal(size, 0.0)
    return where(is_zero, 0.0, divide(turned, where(is_zero, 1.0, size)))


_by_kind(_operation(table.abs), lambda g, x, result: multiply(g, table.sign(x)))
_by_kind(_operation(table.sign), _sign_gradient)
_operation(of_parts).gradient(x1=lambda g: real(g), x2=lambda g: imag(g))
_by_kind(_operation(table.imag), lambda g, x, result: of_parts(0.0, g))
_by_kind(_operation(table.conj), lambda g, x, result: conj(g))

for _name in _HOLOMORPHIC.split():
    getattr(table, _name).operation.holomorphic = True
for _holomorphic in (
    conversion._where, take, take_along_axis, indexing.scattered, indexing.scattered_along, matmul, tensordot, cross, diagonal,
    inv, solve, det, concat, stack, roll, tile, pad, joining._repeat_all, tril, triu, sum, mean, prod, cumulative_sum,
    cumulative_prod, scans.recurrence, inverses._reciprocals, inverses._cofactors, differences,
):  # fmt: skip
    _operation(_holomorphic).holomorphic = True
for _own in (
    table.abs, table.sign, table.imag, table.real, table.conj, of_parts, vecdot, vector_norm, var, std, cholesky, eigvalsh,
    svdvals, factorizations._eigh, factorizations._svd, factorizations._qr, inverses._pinv, inverses._slogdet,
    inverses._identities,
):  # fmt: skip
    _operation(_own).holomorphic = False
