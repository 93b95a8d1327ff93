"""Arrays on the device, and results next to NumPy's, to the error that sums of products have."""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev

#: Error of a sum of n products, in units of the last place of the sum of their absolute values.
ULPS = 4


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def check(found: aiodev.Array, expected: Any, terms: Any = None) -> None:
    """The same shape, dtype, and values, to ``ULPS`` of ``terms``, the sums of the products' absolute values."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    values = found.numpy_blocking()
    if expected.dtype.kind in "fc":
        allowed = ULPS * np.finfo(expected.dtype).eps * (abs(expected) if terms is None else terms)
        assert np.all(abs(values - expected) <= allowed)
    else:
        np.testing.assert_array_equal(values, expected)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random elements; complex ones with both parts."""
    rng = np.random.default_rng([seed, *shape])
    values = rng.integers(-9, 9, shape) if np.dtype(dtype).kind in "biu" else rng.standard_normal(shape)
    return (
        values.astype(dtype) + (1j * rng.standard_normal(shape)).astype(dtype)
        if dtype[0] == "c"
        else values.astype(dtype)
    )
