"""Norms of vectors and matrices against NumPy's: orders, axes, types, and elements that are not ordinary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from comparing import check, numbers, on_device

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels import linalg


def test_largest_and_least_sizes_with_nan_infinity_and_both_zeros() -> None:
    """A NaN is the result wherever it is, of either sign; infinity and zero are sizes like others."""
    host = np.tile(np.linspace(-5, 7, 9000), (6, 1))
    host[0, 8999], host[1, 0], host[2, 4096] = np.nan, -np.nan, np.inf
    host[3, 17], host[4] = -0.0, -np.inf
    for ord in (math.inf, -math.inf):
        found = kernels.linalg.vector_norm(on_device(host), axis=1, ord=ord).numpy_blocking()
        np.testing.assert_array_equal(found, np.linalg.norm(host, ord, axis=1))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3.5, -1, math.inf, -math.inf])
def test_vector_norms(dtype: str, ord: Any) -> None:
    """Each order, along an axis, short and long."""
    for shape, axis in [((3, 4), 1), ((3, 4), 0), ((2, 9001), -1), ((6,), None)]:
        host = numbers(shape, dtype)
        host = np.where(host == 0, 1, host).astype(dtype)
        expected = np.linalg.norm(host, ord, axis)
        found = linalg.norm(on_device(host), ord, axis)
        assert found.shape == expected.shape
        tolerance = 1e-4 if found.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "value"), [("f2", 100.0), ("f4", 1e30), ("c8", 1e30j), ("f4", 1e-30), ("f4", 0.1)])
@pytest.mark.parametrize("size", [50, 100_000])
def test_squares_are_wide(dtype: str, value: complex, size: int) -> None:
    """What the type cannot hold is rounded once, at the end; long sums do not grow inaccurate."""
    host = np.full(size, value, dtype)
    found = linalg.vector_norm(on_device(host)).numpy_blocking()
    expected = np.sqrt(np.float64(size)) * np.abs(host[0].astype("c16"))
    assert found.dtype == host.real.dtype
    np.testing.assert_array_equal(found, expected.astype(found.dtype))


def test_matrix_norms() -> None:
    """Those that need no factorisation, of batches, of swapped axes, with dimensions kept."""
    host = numbers((2, 3, 4), "f8")
    for ord in ("fro", 1, -1, math.inf, -math.inf):
        expected = np.linalg.norm(host, ord, (1, 2))
        check(linalg.matrix_norm(on_device(host), ord=ord), expected, 10)
        check(linalg.norm(on_device(host), ord, (2, 0), True), np.linalg.norm(host, ord, (2, 0), True), 10)
    check(linalg.norm(on_device(host)), np.linalg.norm(host), 10)
    check(linalg.vector_norm(on_device(host), axis=(0, 2)), np.sqrt((host**2).sum((0, 2))), 10)


def test_norms_of_axes() -> None:
    """NumPy's integers name an axis; the same one twice is refused."""
    host = np.arange(6.0).reshape(2, 3)
    found = linalg.norm(on_device(host), axis=np.int64(1))
    check(found, np.linalg.norm(host, axis=1), 10)
    with pytest.raises(ValueError, match="twice"):
        linalg.vector_norm(on_device(host), axis=(0, -2))


def test_norms_of_what_is_not_ordinary() -> None:
    """NaN is the largest and the least; the largest of no elements is 0, but there is no least."""
    host = np.array([1.0, np.nan, 2.0])
    for ord in (1, 2, math.inf, -math.inf):
        assert np.isnan(linalg.vector_norm(on_device(host), ord=ord).numpy_blocking())
    assert linalg.vector_norm(on_device(np.zeros((0, 3))), axis=0).numpy_blocking().tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="no elements"):
        linalg.vector_norm(on_device(np.zeros(0)), ord=-math.inf)
    assert linalg.vector_norm(on_device(np.zeros(0)), ord=math.inf).numpy_blocking() == 0
    assert linalg.matrix_norm(on_device(np.zeros((2, 5, 0))), ord=1).numpy_blocking().tolist() == [0, 0]
    with pytest.raises(ValueError, match="no matrix norm ord='neck'"):
        linalg.norm(on_device(np.ones((2, 2))), "neck")
    assert linalg.vector_norm(on_device(np.ones(4)), ord=np.int64(1)).numpy_blocking() == 4


def test_a_matrix_norm_that_is_not_known() -> None:
    """It is refused by the function that was called."""
    x = aiodev.ones((2, 2), device="cpu")
    for name in ("norm", "matrix_norm"):
        with pytest.raises(ValueError, match=f"^{name}: no matrix norm ord=3"):
            getattr(kernels.linalg, name)(x, ord=3)
