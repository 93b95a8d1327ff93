"""Running sums and products against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?", "c8"])
@pytest.mark.parametrize("shape", [(1,), (7,), (140_000,), (3, 70_000), (5, 4, 3)])
def test_running_sums(shape: tuple[int, ...], dtype: str) -> None:
    """Along every axis, in blocks and in one piece, in NumPy's type."""
    host = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)  # sums are exact
    for axis in range(len(shape)):
        expected = np.cumsum(host, axis)
        found = kernels.cumulative_sum(on_device(host), axis=axis)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy_blocking(), expected)


@pytest.mark.parametrize("dtype", ["f4", "i1"])
@pytest.mark.parametrize("shape", [(0,), (3,), (140_000,), (20, 600), (2, 900, 5)])
def test_truth_values(shape: tuple[int, ...], dtype: str) -> None:
    """Elements become truth values before they are combined, as NumPy has it: 0.6 is one, and 1 and -1 are two."""
    rng = np.random.default_rng(0)
    chances = [0.01, 0.98, 0.01] if dtype == "i1" else [0.0, 0.99, 0.01]
    host = rng.choice(np.array([-1, 0, 1] if dtype == "i1" else [2.0, 0.0, 0.6], dtype), shape, p=chances)
    for given in (host, 1 - host if dtype == "i1" else np.where(host == 0, 0.6, 0.0).astype(dtype)):
        for axis in range(len(shape)):
            for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
                expected = getattr(np, name)(given, axis=axis, dtype=bool)
                found = getattr(kernels, name)(on_device(given), axis=axis, dtype=bool)
                assert found.dtype == bool
                np.testing.assert_array_equal(found.numpy_blocking(), expected)


def test_kinds() -> None:
    """Exclusive, with an initial element, as products, of views, into ``out``."""
    host = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    x = on_device(host)
    assert kernels.cumulative_sum(x, axis=1, exclusive=True).numpy_blocking().tolist() == [[0, 1, 3], [0, 4, 9]]
    initial = kernels.cumulative_sum(x, axis=0, include_initial=True).numpy_blocking()
    assert initial.tolist() == [[0, 0, 0], [1, 2, 3], [5, 7, 9]]
    assert kernels.cumulative_prod(x, axis=-1).numpy_blocking().tolist() == np.cumprod(host, -1).tolist()
    assert kernels.cumulative_prod(x[0], include_initial=True).numpy_blocking().tolist() == [1, 1, 2, 6]
    reversed_columns = kernels.cumulative_sum(x.T[::-1], axis=0).numpy_blocking()
    np.testing.assert_array_equal(reversed_columns, np.cumsum(host.T[::-1], 0))
    assert kernels.cumulative_sum(x[0], out=x[0]) is not None
    np.testing.assert_array_equal(x.numpy_blocking(), [[1, 3, 6], [4, 5, 6]])
    x = on_device(host)
    out = aiodev.empty((2, 3), dtype="f8", device="cpu")
    assert kernels.cumulative_sum(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out.numpy_blocking(), np.cumsum(host, 0))


@pytest.mark.parametrize("shape", [(70, 80), (2, 900, 5), (20, 600)])
def test_many_columns(shape: tuple[int, ...]) -> None:
    """Which are run through side by side, in strips; of gaps, in place and into another layout, too."""
    host = np.random.default_rng(2).integers(-9, 9, shape).astype("f8")
    axis, totals = len(shape) - 2, np.cumsum(host, len(shape) - 2)
    for _ in range(3):
        x = on_device(host)
        np.testing.assert_array_equal(kernels.cumulative_sum(x, axis=axis).numpy_blocking(), totals)
        initial = kernels.cumulative_sum(x, axis=axis, include_initial=True).numpy_blocking()
        np.testing.assert_array_equal(np.diff(initial, axis=axis), host)
        assert not initial.take(0, axis).any()
        out = aiodev.empty(shape[::-1], "f8", "cpu").T
        kernels.cumulative_sum(x[..., ::-1], axis=axis, out=out)
        np.testing.assert_array_equal(out.numpy_blocking()[..., ::-1], totals)
        kernels.cumulative_sum(x, axis=axis, exclusive=True, out=x)
        np.testing.assert_array_equal(x.numpy_blocking(), totals - host)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "u1", "?", "c8", "c16"])
def test_short_rows_and_few_columns(dtype: str) -> None:
    """Of 1 to 20 elements and some more, one by one and four at a time; in place too, and with an element more."""
    for n in (*range(1, 21), 33, 50):
        host = np.random.default_rng(n).integers(0, 2, (2, 601 + n, n)).astype(dtype)  # sums are exact
        for axis in (1, 2):
            x, totals = on_device(host), np.cumsum(host, axis)
            np.testing.assert_array_equal(kernels.cumulative_sum(x, axis=axis).numpy_blocking(), totals)
            initial = kernels.cumulative_sum(x, axis=axis, include_initial=True).numpy_blocking()
            assert not initial.take(0, axis).any()
            np.testing.assert_array_equal(np.delete(initial, 0, axis), totals)
            kernels.cumulative_sum(x, axis=axis, dtype=dtype, exclusive=True, out=x)
            before = np.delete(initial, -1, axis).astype(dtype)
            np.testing.assert_array_equal(x.numpy_blocking(), before)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("length", [40, 131])
def test_many_rows(length: int, dtype: str) -> None:
    """Of more than a cache holds, longer ones of small elements four at a time; the last ones are fewer."""
    host = np.random.default_rng(3).integers(-9, 9, (2_200_000 // length | 1, length)).astype(dtype)
    np.testing.assert_array_equal(kernels.cumulative_sum(on_device(host), axis=1).numpy_blocking(), np.cumsum(host, 1))


def test_precision() -> None:
    """A million float32 are summed in more than their own precision."""
    host = np.random.default_rng(1).random(1_000_000, dtype="f4")
    found = kernels.cumulative_sum(on_device(host)).numpy_blocking()
    np.testing.assert_allclose(found, np.cumsum(host, dtype="f8"), rtol=2 * np.finfo("f4").eps)


def test_nothing_and_errors() -> None:
    """Rows of nothing, and what cannot be."""
    assert kernels.cumulative_sum(aiodev.empty(0, device="cpu")).shape == (0,)
    assert kernels.cumulative_sum(aiodev.empty(0, device="cpu"), include_initial=True).numpy_blocking().tolist() == [0]
    x = aiodev.ones((2, 2), device="cpu")
    with pytest.raises(ValueError, match="needs an axis"):
        kernels.cumulative_sum(x)
    with pytest.raises(ValueError, match="one of the two"):
        kernels.cumulative_sum(x, axis=0, include_initial=True, exclusive=True)
    with pytest.raises(ValueError, match="shape"):
        kernels.cumulative_sum(x, axis=0, out=aiodev.empty(3, device="cpu"))
