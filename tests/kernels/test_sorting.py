"""Sorting against NumPy's, along any axis, short rows and long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels import sorting

FLOATS = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5, 5e-324, -5e-324, 1e-40, 3e38, -3e38]


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Few different ones, so that many are equal, with all kinds of floats; or all bits at random."""
    if dtype == "?":
        return rng.random(shape) < 0.5
    if dtype[0] == "f":
        with np.errstate(over="ignore", under="ignore"):
            some = np.array([*FLOATS, *rng.normal(size=20)]).astype(dtype)
        return rng.choice(some, shape)
    info = np.iinfo(dtype)
    if rng.random() < 0.5:
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.integers(0, 100, shape).astype(dtype)


def check(host: Any, axis: int) -> None:
    """Values and places, both ways round."""
    x = on_device(host)
    expected = np.sort(host, axis, kind="stable")
    np.testing.assert_array_equal(kernels.sort(x, axis=axis).numpy_blocking(), expected)
    np.testing.assert_array_equal(kernels.sort(x, axis=axis, descending=True).numpy_blocking(), np.flip(expected, axis))
    places = kernels.argsort(x, axis=axis)
    assert places.dtype == np.int64
    np.testing.assert_array_equal(places.numpy_blocking(), np.argsort(host, axis, kind="stable"))
    reverse = np.argsort(np.flip(host, axis), axis, kind="stable")  # of equal elements, the last first
    expected = host.shape[axis] - 1 - np.flip(reverse, axis)
    np.testing.assert_array_equal(kernels.argsort(x, axis=axis, descending=True).numpy_blocking(), expected)


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 7, 41, 60]), min_size=1, max_size=3),
    st.sampled_from(some(["f4", "i8"])),
    st.integers(0, 2**32 - 1),
    st.data(),
)
@settings(deadline=None, max_examples=examples(60))
def test_any_shape_and_axis(shape: list[int], dtype: str, seed: int, data: st.DataObject) -> None:
    """Rows of nothing, short ones and longer ones; views with steps of any sign, which are the same for every type."""
    host = values(np.random.default_rng(seed), tuple(shape), dtype)
    if dtype == "f4" and data.draw(st.booleans()):
        host = host[::-1].T
    check(host, data.draw(st.integers(-host.ndim, host.ndim - 1)))


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "u8", "f8", "f2"])
def test_every_type(dtype: str) -> None:
    """All bits count, signs too: each kind of key, and each size."""
    host = values(np.random.default_rng(3), (4, 300), dtype)
    expected = np.sort(host, kind="stable")
    np.testing.assert_array_equal(kernels.sort(on_device(host), descending=True).numpy_blocking(), expected[:, ::-1])
    places = kernels.argsort(on_device(host)).numpy_blocking()
    np.testing.assert_array_equal(places, np.argsort(host, kind="stable"))


@given(
    st.sampled_from(some(["f4", "i8"])),
    st.integers(1, 3),
    st.one_of(st.integers(14, 300), st.sampled_from([512, 1000, 1025, 3000, 4097, 16384, 16385, 32768, 32769])),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(40))
def test_short_rows(dtype: str, rows: int, length: int, seed: int, descending: bool) -> None:
    """About where one way to sort takes the place of another; zeros of both signs in their order; in place too."""
    host = values(np.random.default_rng(seed), (rows, length), dtype)
    expected = np.sort(host)[:, :: -1 if descending else 1]
    x = on_device(host)
    found = kernels.sort(x, descending=descending).numpy_blocking()
    np.testing.assert_array_equal(found, expected)
    if dtype[0] == "f":
        negative = np.signbit(found[0][found[0] == 0])
        assert sorted(negative, reverse=not descending) == negative.tolist()
    assert kernels.sort(x, descending=descending, out=x) is x
    np.testing.assert_array_equal(x.numpy_blocking(), expected)


@pytest.mark.parametrize("shape", [(1 << 15,), ((1 << 15) + 1,), (300_001,), (2, 40_000), (9, 33_000)])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
@pytest.mark.parametrize("alone", [1 << 15, 1 << 20], ids=["shared", "alone"])
def test_long_rows(shape: tuple[int, ...], dtype: str, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By blocks, or each by one worker; all elements equal, and digits that are the same everywhere."""
    monkeypatch.setattr(sorting, "WHOLE_BYTES", alone * np.dtype(dtype).itemsize)
    monkeypatch.setattr(sorting, "longest", lambda dtype: 0)  # no network
    kernels.sort.operation.forget()
    check(values(np.random.default_rng(1), shape, dtype), -1)
    check(np.full(shape, 3, dtype), -1)
    check(np.random.default_rng(2).integers(0, 1000, shape).astype(dtype), -1)


def skewed(dtype: str, n: int) -> dict[str, Any]:
    """Rows of which a sample says little, or whose buckets differ a lot."""
    rng = np.random.default_rng(6)
    top = 30 if dtype == "f4" else 62
    few, many = rng.integers(0, 3, n), rng.integers(0, 1 << 20, n)
    rows = {
        "one far away": np.where(np.arange(n) == n // 3, 1 << top, many),
        "two clusters": (few > 0) * (1 << top) + many,
        "digits in the middle alike": (few << (top - 2)) + many % 1000,
        "all powers": 2.0 ** rng.uniform(0, top, n) * rng.choice([-1, 1], n),
        "one other": np.where(np.arange(n) == n // 2, -1, 0),
        "descending": -np.arange(n),
    }
    return {name: row.astype(dtype) for name, row in rows.items()}


@pytest.mark.parametrize("dtype", ["f4", "i8"])
@pytest.mark.parametrize("alone", [1 << 12, 1 << 20], ids=["shared", "alone"])
def test_skewed_rows(dtype: str, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sample says of them, and however many keys only their lower bits tell apart."""
    monkeypatch.setattr(sorting, "WHOLE_BYTES", alone * np.dtype(dtype).itemsize)
    monkeypatch.setattr(sorting, "longest", lambda dtype: 0)  # no network
    kernels.sort.operation.forget()
    for row in skewed(dtype, 50_000).values():
        check(row, -1)


def test_negative_zero_comes_first_and_keeps_its_place() -> None:
    """As values in order of their bits; as places it equals zero."""
    x = on_device([0.0, -0.0, -1.0, 0.0, -0.0])
    assert np.signbit(kernels.sort(x).numpy_blocking()).tolist() == [True, True, True, False, False]
    assert kernels.argsort(x).numpy_blocking().tolist() == [2, 0, 1, 3, 4]


def test_into_out_and_in_place() -> None:
    """``out`` may be a view, or the array itself."""
    host = np.random.default_rng(4).normal(size=(6, 50)).astype("f4")
    x = on_device(host)
    wide = aiodev.zeros((50, 12), dtype="f4", device="cpu")
    assert kernels.sort(x, axis=0, out=wide[:, ::2].T) is not None
    np.testing.assert_array_equal(wide[:, ::2].T.numpy_blocking(), np.sort(host, 0))
    assert kernels.sort(x, out=x) is x
    np.testing.assert_array_equal(x.numpy_blocking(), np.sort(host))
    places = aiodev.empty((6, 50), dtype="i8", device="cpu")
    assert kernels.argsort(x, descending=True, out=places) is places


def test_blocks_of_any_number_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a row is cut."""
    host = np.random.default_rng(5).integers(0, 50, 5000)
    expected = np.argsort(host, kind="stable")
    for long in (64, 10_000):
        monkeypatch.setattr(sorting, "WHOLE_BYTES", 8 * long)
        kernels.argsort.operation.forget()
        np.testing.assert_array_equal(kernels.argsort(on_device(host)).numpy_blocking(), expected)


def test_what_cannot_be_sorted() -> None:
    """Errors name the function and what to do."""
    x = aiodev.ones((2, 2), dtype="c8", device="cpu")
    with pytest.raises(TypeError, match="sort: complex numbers have no order; sort their abs"):
        kernels.sort(x)
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        kernels.argsort(kernels.real(x), axis=2)
    with pytest.raises(ValueError, match="out of bounds"):
        kernels.sort(aiodev.ones((), device="cpu"))
    with pytest.raises(TypeError, match="sort: out: float32 cannot be written to int64"):
        kernels.sort(kernels.real(x), out=aiodev.empty((2, 2), "i8", "cpu"))
    with pytest.raises(TypeError, match="expected an array, got list"):
        kernels.sort([1, 2])
