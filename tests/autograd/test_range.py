"""Gradients hold wherever the functions do: also where squares, sums or counts are beyond what a dtype has."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev.kernels.nn import gradients

pytestmark = pytest.mark.anyio

HostArray = np.ndarray[Any, Any]


def variable(values: Any, dtype: Any) -> Any:
    return autograd.Variable(kernels.astype(aiodev.asarray(np.asarray(values), device="cpu"), dtype))


async def wide(x: Any) -> HostArray:
    """Values in double precision."""
    plain = x.detach() if isinstance(x, autograd.Variable) else x
    found: HostArray = await kernels.astype(plain, "float64").numpy()
    return found


async def both_gradients(function: Callable[..., Any], given: list[Any], weights: Any) -> list[HostArray]:
    """The gradients of a weighted sum, and those of a weighted sum of the first one's elements."""
    found = await autograd.grad(function(*given), given, weights, create_graph=True)
    direction = kernels.astype(kernels.arange(weights.size, device="cpu") % 3, weights.dtype)
    again = await autograd.grad(found[0], given, direction.reshape(weights.shape))
    return [await wide(one) for one in (*found, *again)]


#: Sizes of elements of which the dtype has no squares, and of gradients whose own gradients it has.
LARGE = {"float16": (300, 900), "bfloat16": (1e20, 1e25), "float32": (1e20, 1e25)}


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "layer_norm of many threads"])
async def test_gradients_of_normalisations_of_large_numbers(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those that double precision gives for the same numbers; their gradients too."""
    function = getattr(kernels, name.split()[0])
    if "many" in name:  # as on devices that have them
        threads = SimpleNamespace(capabilities=lambda device: SimpleNamespace(simt=True))
        monkeypatch.setattr(gradients, "aiodev", threads)
    random, (size, weight_size) = np.random.default_rng(0), LARGE[dtype]
    given = [variable(random.standard_normal((3, 40)) * size, dtype), variable(random.standard_normal(40), dtype)]
    weights = variable(random.standard_normal((3, 40)) * weight_size, dtype).detach()
    same = [variable(await wide(one), "float64") for one in given]
    found = await both_gradients(function, given, weights)
    expected = await both_gradients(function, same, kernels.astype(weights, "float64"))
    close = {"float16": 5e-3, "bfloat16": 3e-2, "float32": 1e-5}[dtype]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, close, close * np.abs(other).max())


async def test_gradients_of_long_rows_in_half_precision() -> None:
    """Elements are of ordinary sizes; there are enough of them that their squares' sum is beyond the dtype."""
    x = np.random.default_rng(0).standard_normal((2, 4096)) * 6
    found = []
    for dtype in ("float16", "float64"):
        own, weight = variable(x.astype("f2"), dtype), variable(np.ones(4096), dtype)
        await kernels.rms_norm(own, weight).backward(aiodev.ones((2, 4096), dtype=dtype, device="cpu"))
        found.append([await wide(own.grad), await wide(weight.grad)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 2e-3, 2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
async def test_losses_of_many_labels(dtype: str) -> None:
    """Their sum, and their number, may be beyond the dtype; the mean and its gradient are not."""
    count = 70_001
    logits, labels = variable(np.zeros((count, 4)), dtype), np.arange(count) % 4
    labels[0] = -100
    loss = kernels.cross_entropy(logits, aiodev.asarray(labels, device="cpu"), ignore_index=-100)
    assert loss.dtype == logits.dtype and abs(await wide(loss) - np.log(4)) < 0.01
    await loss.backward(kernels.astype(aiodev.asarray(1024.0, device="cpu"), dtype))
    expected = (0.25 - (np.arange(4) == labels[:, None])) * 1024 / (count - 1)
    expected[0] = 0
    np.testing.assert_allclose(await wide(logits.grad), expected, 0.01)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["max", "min", "mean"])
async def test_shares_of_many_elements(name: str, dtype: str) -> None:
    """How many share a gradient may be beyond the dtype, or its reciprocal have few digits in it."""
    count, g = 1_000_003, 60_000.0
    own = variable(np.ones(count), dtype)
    await getattr(kernels, name)(own).backward(variable(g, dtype).detach())
    np.testing.assert_allclose(await wide(own.grad), np.full(count, g / count), 0.005)
