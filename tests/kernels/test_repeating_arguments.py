"""Functions of the library that are called again: what tells one call's arguments from another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparing import on_device

import aiodev
import aiodev.kernels as kernels


@pytest.mark.parametrize("sizes", [(1, 5, 1, 3), (5, 1, 0, 5)])
def test_lengths_of_one_are_no_rule_for_others(sizes: tuple[int, ...]) -> None:
    """Elementwise functions of a single element, and of many, with an output and without."""
    for size in sizes * 2:
        host = np.arange(size, dtype="f4")
        x, out = on_device(host), aiodev.zeros(size, "f4", "cpu")
        assert np.array_equal(kernels.add(x, x).numpy_blocking(), host + host)
        assert np.array_equal(kernels.add(x, x, out=out).numpy_blocking(), host + host)
        assert np.array_equal(kernels.negative(x).numpy_blocking(), -host)


def test_a_number_is_no_array() -> None:
    """Of the same dtype, and in whatever order and however often they come."""
    host = np.arange(5, dtype="f8")
    x, out = on_device(host), aiodev.zeros(5, "f8", "cpu")
    for _ in range(4):
        for other, value in ((x, host), (np.float64(2), np.float64(2)), (3.0, 3.0)):
            assert np.array_equal(kernels.add(x, other, out=out).numpy_blocking(), host + value)
            assert np.array_equal(kernels.add(other, x).numpy_blocking(), host + value)


def test_wrong_arguments_are_wrong_every_time() -> None:
    """Whatever was called before."""
    x, out, other = (aiodev.zeros(3, "f4", "cpu") for _ in range(3))
    whole = aiodev.zeros(3, "i4", "cpu")
    for _ in range(3):
        kernels.add(x, other, out=out)
        kernels.sum(x, out=out[0])
        with pytest.raises(ValueError, match="out: expected the shape"):
            kernels.add(x, x, out=out[:2])
        with pytest.raises(TypeError, match="cannot be written"):
            kernels.add(x, x, out=whole)
        with pytest.raises(TypeError, match="out: expected an"):
            kernels.add(x, x, out=np.zeros(3, "f4"))
        with pytest.raises(TypeError, match="expected an array or a number"):
            kernels.add(x, "three", out=out)
        with pytest.raises(ValueError, match="axis"):
            kernels.sum(x, axis=1, out=out)
        with pytest.raises(ValueError, match="shape"):
            kernels.softmax(x, out=out[:2])


def test_factors_that_are_not_given_are_none() -> None:
    """A weight without a bias, of arrays with gaps too."""
    rng = np.random.default_rng(10)
    for _ in range(4):
        host, weight = rng.normal(size=(3, 4)), rng.normal(size=4)
        normal = (host - host.mean(-1, keepdims=True)) / np.sqrt(host.var(-1, keepdims=True) + 1e-5)
        for factor in (on_device(weight), on_device(np.repeat(weight, 2))[::2]):
            found = kernels.layer_norm(on_device(host), factor)
            np.testing.assert_allclose(found.numpy_blocking(), normal * weight, rtol=1e-5)
            found = kernels.layer_norm(on_device(host), None, factor)
            np.testing.assert_allclose(found.numpy_blocking(), normal + weight, rtol=1e-5)


_PLACES = on_device([0, 1])


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: kernels.sum(x, axis=n),
        lambda x, n: kernels.max(x, axis=(n, 0)),
        lambda x, n: kernels.cumulative_sum(x, axis=n),
        lambda x, n: kernels.softmax(x, axis=n),
        lambda x, n: kernels.sort(x, axis=n),
        lambda x, n: kernels.take(x, _PLACES, axis=n),
        lambda x, n: kernels.stack([x, x], axis=n),
        lambda x, n: kernels.repeat(x, n),
        lambda x, n: kernels.roll(x, n),
        lambda x, n: kernels.roll(x, (n, 2), axis=(0, 1)),
        lambda x, n: kernels.linalg.vector_norm(x, axis=n),
    ],
)
def test_what_equals_an_integer_is_none(call: Callable[[aiodev.Array, Any], aiodev.Array]) -> None:
    """1.0 is refused by a function that was called with 1 before, too; NumPy's integers and those of Python do the same."""
    x = on_device(np.arange(12.0).reshape(3, 4))
    results = [call(x, n).numpy_blocking() for n in (1, 1, 1, np.int64(1), np.int64(1))]
    assert all(np.array_equal(result, results[0]) for result in results)
    with pytest.raises(TypeError):
        call(x, 1.0)


def test_what_is_true_keeps_dimensions() -> None:
    """Numbers that equal each other say the same of ``keepdims`` and ``correction``; a dtype has several names."""
    host = np.arange(12.0).reshape(3, 4)
    x = on_device(host)
    for keepdims in (1, True, 0, False) * 2:
        assert kernels.sum(x, axis=1, keepdims=keepdims).shape == ((3, 1) if keepdims else (3,))
    for correction in (1, True, 1.0, 0, 0.5) * 2:
        expected = ((host - host.mean()) ** 2).sum() / (12 - correction)
        assert np.allclose(kernels.var(x, correction=correction).numpy_blocking(), expected)
    for dtype in ("f4", np.float32, np.dtype("f4"), "f8", float, None) * 2:
        assert kernels.sum(x, axis=0, dtype=dtype).dtype == np.dtype(dtype)
