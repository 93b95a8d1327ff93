"""Derivatives of functions, as functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd

pytestmark = pytest.mark.anyio


def on_device(values: Any) -> Any:
    return aiodev.asarray(np.asarray(values), device="cpu")


def both(x: Any, y: Any) -> Any:
    return kernels.sin(x) * y, (x * x).sum()


X, Y = np.array([0.5, -1.0, 2.0]), np.array([1.0, 3.0, -2.0])


async def test_vjp() -> None:
    """Gradients of each result go back to each argument, as often as one likes; what does not matter gets 0."""
    (product, total), back = await autograd.vjp(both, on_device(X), on_device(Y))
    assert type(product) is aiodev.Array and np.allclose(await product.numpy(), np.sin(X) * Y)
    assert await total.item() == (X * X).sum()
    for _ in range(2):
        of_x, of_y = await back(on_device([1.0, 0.0, 2.0]), on_device(3.0))
        assert np.allclose(await of_x.numpy(), [1, 0, 2] * np.cos(X) * Y + 6 * X)
        assert np.allclose(await of_y.numpy(), [1, 0, 2] * np.sin(X))
    _, back = await autograd.vjp(lambda x, y: x * 2.0, on_device(X), on_device(Y))
    assert await (await back(on_device(X)))[1].tolist() == [0.0, 0.0, 0.0]


async def test_jvp() -> None:
    """The change of each result in a direction; 0 where it does not depend on the arguments, or not on how they change."""
    dx, dy = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, -1.0])
    (product, _), changes = await autograd.jvp(both, [on_device(X), on_device(Y)], [on_device(dx), on_device(dy)])
    assert np.allclose(await product.numpy(), np.sin(X) * Y)
    assert np.allclose(await changes[0].numpy(), np.cos(X) * dx * Y + np.sin(X) * dy)
    assert np.isclose(await changes[1].item(), (2 * X * dx).sum())
    value, change = await autograd.jvp(lambda x: 3.0 * x + 1.0, [on_device(X)], [on_device(dx)])
    assert np.allclose(await value.numpy(), 3 * X + 1) and np.allclose(await change.numpy(), 3 * dx)


async def test_jvp_is_the_transpose_of_vjp() -> None:
    """Of a function of matrices."""
    random = np.random.default_rng(0)
    x, direction, weight = (on_device(random.standard_normal((3, 3))) for _ in range(3))

    def function(x: Any) -> Any:
        return kernels.linalg.inv(x @ x.mT + 2.0 * kernels.eye(3, device="cpu"))

    _, change = await autograd.jvp(function, [x], [direction])
    _, back = await autograd.vjp(function, x)
    (gradient,) = await back(weight)
    assert np.isclose(await (change * weight).sum().item(), await (gradient * direction).sum().item())


async def test_hessian() -> None:
    """Of a function of an array of any shape; of a linear one 0."""
    x = on_device(np.array([[0.5, 1.0], [-1.0, 2.0]]))
    found = await autograd.hessian(lambda y, x: (x * x * x).sum() + x[0, 0] * x[1, 1] * y, 1)(on_device(2.0), x)
    expected = np.diag(6 * np.array([0.5, 1.0, -1.0, 2.0]))
    expected[0, 3] = expected[3, 0] = 2.0
    assert np.allclose((await found.numpy()).reshape(4, 4), expected)
    assert not (await (await autograd.hessian(lambda x: x.sum())(x)).numpy()).any()


async def test_a_coroutine_function() -> None:
    """May await what it likes."""

    async def square(x: Any) -> Any:
        await aiodev.current_stream("cpu").synchronize()
        return x * x

    _, change = await autograd.jvp(square, [on_device(X)], [on_device(Y)])
    assert np.allclose(await change.numpy(), 2 * X * Y)


async def test_a_function_of_a_function() -> None:
    """What one gives the other is not recorded: it is refused, and by the gradient that is recorded it can be done."""
    x = on_device(X)

    async def of_value(x: Any) -> Any:
        value, _ = await autograd.value_and_grad(lambda x: (x * x).sum())(x)
        return value + x.sum()

    async def of_back(x: Any) -> Any:
        return await autograd.vjp(kernels.sin, x)

    async def of_change(x: Any) -> Any:
        return await autograd.jvp(kernels.sin, [x + 0.0], [on_device(Y)])

    async def of_second(x: Any) -> Any:
        return await autograd.hessian(kernels.sum)(x)

    for name, inner in {"value_and_grad": of_value, "vjp": of_back, "jvp": of_change, "hessian": of_second}.items():
        with pytest.raises(RuntimeError, match=f"{name}: argument .* depends on variables"):
            await autograd.value_and_grad(inner)(x)
    leaf = autograd.Variable(x)
    _, gradient = await autograd.value_and_grad(kernels.sum)(leaf)  # a leaf is its array
    assert not (await gradient.numpy() - 1).any() and leaf.grad is None

    async def recorded(x: Any) -> Any:
        (inner,) = await autograd.grad((x * x * x).sum(), x, create_graph=True)
        return (inner * inner).sum()

    _, gradient = await autograd.value_and_grad(recorded)(x)
    assert np.allclose(await gradient.numpy(), 36 * X**3)


async def test_what_is_refused() -> None:
    """And is named."""
    x = on_device(X)
    with pytest.raises(TypeError, match=r"jvp: argument function: expected a function"):
        await autograd.jvp(3, [x], [x])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"jvp: primals\[0\]: expected numbers of floating point, or complex ones, got int64"):
        await autograd.jvp(kernels.sin, [on_device([1])], [x])
    with pytest.raises(ValueError, match="vjp: primals: expected an array or more"):
        await autograd.vjp(lambda: x)
    with pytest.raises(ValueError, match="jvp: 2 tangents for 1 primals"):
        await autograd.jvp(kernels.sin, [x], [x, x])
    with pytest.raises(ValueError, match=r"jvp: tangents\[0\]: expected one like"):
        await autograd.jvp(kernels.sin, [x], [x[:2]])
    with pytest.raises(TypeError, match=r"vjp: argument primals\[0\]: expected an array"):
        await autograd.vjp(kernels.sin, 3.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected one that gives an array"):
        await autograd.vjp(lambda x: 3.0, x)
    with pytest.raises(ValueError, match="hessian: argnum 2"):
        await autograd.hessian(kernels.sum, 2)(x)
