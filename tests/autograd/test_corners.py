"""Gradients where functions have corners, or no slope: singular matrices, zeros, ties and NaN; PyTorch's conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from selection import some

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev.kernels import linalg

pytestmark = pytest.mark.anyio

HostArray = np.ndarray[Any, Any]
NAN = float("nan")


def on_device(values: Any) -> Any:
    return aiodev.asarray(np.asarray(values), device="cpu")


def variable(values: Any) -> Any:
    return autograd.Variable(on_device(values))


async def first_and_second(function: Callable[..., Any], values: list[Any]) -> tuple[list[HostArray], list[HostArray]]:
    """Gradients of a weighted sum of a function, and those of the sum of their real parts; 0 where there are none."""
    own = [variable(value) for value in values]
    result = function(*own)
    weights = np.arange(1.0, result.size + 1).reshape(result.shape).astype(result.dtype)
    found = await autograd.grad(result, own, on_device(weights), create_graph=True)
    total = kernels.concat([kernels.real(one).reshape(-1) for one in found]).sum()
    again = await autograd.grad(total, own, allow_unused=True)
    zeros = [np.zeros_like(value) for value in values]
    return [await one.numpy() for one in found], [
        zero if one is None else await one.numpy() for one, zero in zip(again, zeros, strict=True)
    ]


# Determinants


def cofactors(x: HostArray) -> HostArray:
    """Determinants of what is left without a row and a column, with signs."""
    made = np.zeros_like(x)
    for i, j in np.ndindex(x.shape):
        made[i, j] = (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1))
    return made


def of_rank(n: int, rank: int, dtype: str) -> HostArray:
    """A matrix of small whole numbers, so that elimination finds its rank."""
    random = np.random.default_rng(n * 10 + rank)
    left, right = random.integers(-3, 4, (2, n, rank)).astype(dtype)
    if left.dtype.kind == "c":
        left += 1j * random.integers(-3, 4, (n, rank))
    made: HostArray = left @ right.T
    return made


@pytest.mark.parametrize("dtype", some(["f8", "c16", "f4", "c8"], 2))
async def test_gradients_of_determinants_of_any_rank(dtype: str) -> None:
    """They are the cofactors: 1 of a matrix of one element, all 0 where the rank is lower than by 1."""
    for n in (1, 2, 3, 4, 6):
        x = np.stack([of_rank(n, rank, dtype) for rank in range(n + 1)])
        own = variable(x)
        direction = np.arange(1, n + 2).astype(dtype)
        await autograd.backward(linalg.det(own), on_device(direction))
        expected = direction[:, None, None] * np.conj([cofactors(one) for one in x])
        least = 1e2 * np.finfo(dtype).eps * max(1, np.abs(x).max()) ** n
        np.testing.assert_allclose(await own.grad.numpy(), expected, 0, least)
        assert own.grad.dtype == dtype


SINGULAR: dict[str, Any] = {
    "zeros": np.zeros((3, 3)),
    "zeros of two rows": np.zeros((2, 2)),
    "the first pivot": [[0.0, 1.0], [0.0, 0.0]],
    "a column": [[0.0, 2.0, 5.0], [0.0, 3.0, 1.0], [0.0, 1.0, 4.0]],
    "a row in the middle": [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 5.0, 7.0]],
    "rounding": np.arange(9.0).reshape(3, 3),
    "permuted": [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
}


@pytest.mark.parametrize("name", SINGULAR)
async def test_gradients_of_determinants_of_singular_matrices(name: str) -> None:
    """Whatever pivot is 0, or hardly more."""
    x = np.asarray(SINGULAR[name])
    own = variable(x)
    await linalg.det(own).backward()
    np.testing.assert_allclose(await own.grad.numpy(), cofactors(x), 1e-12, 1e-12)


async def test_gradients_of_determinants_far_from_1() -> None:
    """Determinants and inverses may be beyond the type where cofactors are not; NaN stays."""
    for diagonal in ([1e-200, 1e-200, 1.0], [1e-200, 1e-200, 1e-150, 1e200], [1e200, 1e200, 1e-300, 0.0], [1.0, 1e-320]):
        own = variable(np.diag(diagonal))
        await linalg.det(own).backward()
        with np.errstate(divide="ignore"):
            others = [np.exp(np.log(np.delete(diagonal, k)).sum()) for k in range(len(diagonal))]
        np.testing.assert_allclose(await own.grad.numpy(), np.diag(others), 1e-9)
    own = variable([[0.0, 0.0, 1.0], [0.0, NAN, 0.0], [0.0, 1.0, 0.0]])
    await linalg.det(own).backward()
    assert np.isnan(await own.grad.numpy()).any()


@pytest.mark.parametrize("n", [1, 2])
async def test_second_gradients_of_determinants_of_small_singular_matrices(n: int) -> None:
    """The cofactors of up to two rows are the elements, in other places."""
    await autograd.gradgradcheck(linalg.det, [variable(np.zeros((2, n, n)))])


async def test_second_gradients_of_determinants_of_larger_singular_matrices() -> None:
    """They say what is wrong when they are read; the gradients themselves are right, with a graph too."""
    own = variable(np.diag([2.0, 3.0, 0.0]))
    (found,) = await autograd.grad(linalg.det(own), [own], create_graph=True)
    np.testing.assert_allclose(await found.numpy(), np.diag([0.0, 0.0, 6.0]))
    (again,) = await autograd.grad(found.sum(), [own])
    with pytest.raises(aiodev.DependencyError, match="inv: a matrix is singular"):
        await again.numpy()


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("axis", [None, 1])
async def test_gradients_of_variances_that_are_none(name: str, axis: int | None) -> None:
    """Where a correction leaves no elements to divide by they are infinite, or NaN, as the variance is, and not an error."""
    function = getattr(kernels, name)
    for correction in (4, 5, 2.5):
        own = variable([[1.0, 2.0], [3.0, 3.0]])
        await function(own, axis=axis, correction=correction).sum().backward()
        found = await own.grad.numpy()
        if axis is not None or correction != 2.5:
            assert not np.isfinite(found).any()
            assert np.isinf(found[0]).all() or name == "std"


async def test_the_gradient_of_the_spread_of_equal_numbers() -> None:
    """It is 0, as in PyTorch, and so are those of it; beside it are others."""
    own = variable([[3.0, 3.0, 3.0], [1.0, 2.0, 4.0]])
    (found,) = await autograd.grad(kernels.std(own, axis=1).sum(), [own], create_graph=True)
    values = np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(await found.numpy(), [[0.0] * 3, (values - values.mean()) / (3 * values.std())], 1e-12)
    await autograd.gradgradcheck(lambda x: kernels.std(x, axis=1), [variable([[1.0, 2.0, 4.0]])])
    (again,) = await autograd.grad((found * found).sum(), [own])
    assert await again[0].tolist() == [0.0] * 3 and np.allclose(await again.numpy(), 0.0)


# What PyTorch has

Case = tuple[Callable[..., Any], Callable[[Any], Callable[..., Any]], list[Any]]


def norm(ord: float, *values: complex) -> Case:
    return (
        lambda x: linalg.vector_norm(x, ord=ord), lambda torch: lambda x: torch.linalg.vector_norm(x, ord=ord), [list(values)],
    )  # fmt: skip


@kernels.fused
def doubled(x: Any, y: Any) -> Any:
    return kernels.maximum(x, y) * 2.0


TIES = [[NAN, 1.0, NAN, 2.0, 3.0, 1.0], [1.0, NAN, NAN, 2.0, 1.0, 3.0]]
#: By name: a function, the same one of torch, and its operands.
CASES: dict[str, Case] = {
    "maximum": (kernels.maximum, lambda torch: torch.maximum, TIES),
    "minimum": (kernels.minimum, lambda torch: torch.minimum, TIES),
    "maximum, fused": (doubled, lambda torch: lambda x, y: torch.maximum(x, y) * 2.0, TIES),
    "atan2": (kernels.atan2, lambda torch: torch.atan2, [[0.0, -0.0, 1.0, 0.0], [0.0, -0.0, 0.0, -1.0]]),
    "sign of complex numbers": (kernels.sign, lambda torch: torch.sgn, [[0j, 1 + 2j]]),
    "abs of complex numbers": (kernels.abs, lambda torch: torch.abs, [[0j, 1 + 2j]]),
    "norm of roots": norm(0.5, 0.0, 3.0, -2.0),
    "norm of reciprocals": norm(-1, 0.0, 3.0, -2.0),
    "norm between": norm(1.5, 0.0, 3.0, -2.0),
    "norm of cubes": norm(3, 0.0, 3.0, -2.0),
    "norm of zeros": norm(0.5, 0.0, 0.0),
    "norm of complex numbers": norm(0.5, 0j, 3 - 4j),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_gradients_at_corners_are_those_of_pytorch(name: str) -> None:
    """Half at a tie, all of it to both where one is NaN, and 0 where there is no slope; their own gradients are never NaN."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function, make, given = CASES[name]
    values = [np.asarray(value) for value in given]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    result = make(torch)(*theirs)
    weights = torch.arange(1.0, result.numel() + 1).reshape(result.shape).to(result.dtype)
    expected = torch.autograd.grad(result, theirs, weights, create_graph=True)
    found, again = await first_and_second(function, values)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other.detach().resolve_conj().numpy(), 1e-12, 1e-12)
    assert not any(np.isnan(one).any() for one in again)
    total = sum(one.real.sum() for one in expected)
    if not total.requires_grad:
        return
    for own, other in zip(again, torch.autograd.grad(total, theirs), strict=True):
        wanted = other.resolve_conj().numpy()
        np.testing.assert_allclose(np.where(np.isnan(wanted), 0, own), np.nan_to_num(wanted), 1e-9, 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
async def test_the_gradient_of_a_remainder_by_an_infinity_is_that_of_its_result(dtype: str) -> None:
    """Of the other sign it leaves the divisor itself, as one does whose quotient is too small for a number; unlike PyTorch."""
    tiny, huge = np.finfo(dtype).tiny, np.finfo(dtype).max
    x1 = np.array([1, -1, -1, 1, 0, tiny, -tiny, 7, -7], dtype)
    x2 = np.array([-np.inf, np.inf, -np.inf, np.inf, -np.inf, -huge, huge, 3, 3], dtype)
    for function in (kernels.remainder, lambda a, b: a % b, kernels.fused(lambda a, b: a % b)):
        own = [variable(x1), variable(x2)]
        found = function(*own)
        np.testing.assert_array_equal(await found.numpy(), np.remainder(x1, x2))
        await found.sum().backward()
        np.testing.assert_array_equal(await own[0].grad.numpy(), np.ones(9))
        np.testing.assert_array_equal(await own[1].grad.numpy(), [1, 1, 0, 0, 0, 1, 1, -2, 3])
