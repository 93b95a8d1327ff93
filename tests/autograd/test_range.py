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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
async def test_gradients_of_angles_of_points_near_and_far(dtype: str) -> None:
    """The distance's square need not be a number of the dtype; infinitely far, and where there is no angle, they are 0."""
    info = np.finfo(dtype)
    tiny, huge = float(info.tiny), float(info.max)
    near = [(4 * tiny, 0), (0, 4 * tiny), (-8 * tiny, 8 * tiny), (tiny**0.5, tiny**0.7), (1e-3, 2e-3), (3, -4)]
    far = [(huge / 4, huge / 8), (huge, huge), (huge, -1), (2, huge**0.6)]
    points = np.array([*near, *far], dtype)
    y, x = points.astype(np.longdouble).T
    squares = y * y + x * x  # of which longdouble has all
    found = await angle_gradients(points)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.stack([x / squares, -y / squares], 1).astype(dtype)
    np.testing.assert_allclose(found, expected, 4 * info.eps, 4 * float(info.smallest_subnormal))
    none = [(0, 0), (-0.0, 0), (np.inf, 1), (1, -np.inf), (-np.inf, np.inf)]
    assert not (await angle_gradients(np.array(none, dtype))).any()
    assert np.isnan(await angle_gradients(np.array([(np.nan, 1), (0, np.nan), (np.inf, np.nan)], dtype))).all()


async def angle_gradients(points: HostArray) -> HostArray:
    """Of points, one in each row."""
    own = [variable(points[:, k], points.dtype) for k in range(2)]
    found = await autograd.grad(kernels.atan2(*own).sum(), own)
    return np.stack([await one.numpy() for one in found], 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
async def test_second_gradients_of_angles_of_near_points(dtype: str) -> None:
    """They are finite where the fourth power of the distance is not a number."""
    size = {"float32": 1e-15, "float64": 1e-120}[dtype]
    own = [variable(3 * size, dtype), variable(4 * size, dtype)]
    (found,) = await autograd.grad(kernels.atan2(*own), own[:1], create_graph=True)
    again = [await wide(one) for one in await autograd.grad(found, own)]
    np.testing.assert_allclose(np.array(again) * size**2, [-24 / 625, -7 / 625], 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
async def test_gradients_of_distances_that_are_large(dtype: str) -> None:
    """A gradient times a side need not be a number of the dtype."""
    size = float(np.finfo(dtype).max) / 10
    own = [variable(3 * size, dtype), variable(4 * size, dtype)]
    await kernels.hypot(*own).backward(variable(10.0, dtype).detach())
    np.testing.assert_allclose([await wide(one.grad) for one in own], [6.0, 8.0], 1e-5)


#: By name, what takes rows of a table.
TAKEN: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda table, rows: kernels.embedding(rows, table),
    "take": lambda table, rows: kernels.take(table, rows, axis=0),
    "take_along_axis": lambda table, rows: kernels.take_along_axis(table, rows[:, None], axis=0),
    "getitem": lambda table, rows: table[rows],
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TAKEN)
async def test_gradients_of_rows_that_are_taken_often(name: str, dtype: str) -> None:
    """They are added up in single precision, and rounded once: to a sum in two bytes little ones add nothing."""
    width = 1 if name == "take_along_axis" else 3
    for count in (40, 3000, 20_000):
        table, rows = variable(np.zeros((4, width)), dtype), np.arange(count) % 3 // 2 * 2
        taken = TAKEN[name](table, aiodev.asarray(rows, device="cpu"))
        await taken.backward(kernels.astype(aiodev.ones(taken.shape, device="cpu"), dtype))
        expected = np.bincount(rows, minlength=4)[:, None].repeat(width, 1)
        assert table.grad.dtype == table.dtype
        np.testing.assert_allclose(await wide(table.grad), expected, {"float16": 1e-3, "bfloat16": 1e-2}[dtype])
