"""Selecting, searching and bins against NumPy's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev.testing import Latch


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


async def same(found: Any, expected: Any) -> None:
    """Arrays, or tuples of them, with the same types and values."""
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(await one.numpy(), other)


@pytest.mark.parametrize("size", [0, 1, 10, 16_384, 70_000])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
async def test_unique_complex_numbers(size: int, dtype: str) -> None:
    """In NumPy's order, by real parts and then by imaginary ones."""
    rng = np.random.default_rng(size)
    host = (rng.integers(-4, 4, size) + 1j * rng.integers(-4, 4, size)).astype(dtype)
    x = on_device(host)
    await same(await kernels.unique_values(x), np.unique(host))
    await same(await kernels.unique_counts(x), np.unique_counts(host))
    await same(await kernels.unique_inverse(x), np.unique_inverse(host))
    await same(await kernels.unique_all(x), np.unique_all(host))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
async def test_unique_complex_numbers_with_nans(dtype: str) -> None:
    """In NumPy's order: no NaN, an imaginary one, a real one, both. Each is a value of its own; both zeros are one."""
    parts = (-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan)
    host = np.array([complex(re, im) for re in parts for im in parts] * 2, dtype)
    np.random.default_rng(0).shuffle(host)
    found = await kernels.unique_all(on_device(host))
    expected = np.unique(host, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    await same(tuple(found), expected)
    await same(await kernels.unique_values(on_device(host)), expected[0])


@pytest.mark.parametrize("size", [0, 1, 10, 16_384, 70_000])
@pytest.mark.parametrize("dtype", ["f4", "?"])
async def test_selection_and_unique_values(size: int, dtype: str) -> None:
    """In blocks and in one; nothing at all."""
    rng = np.random.default_rng(size)
    host = rng.integers(0, 50, size) - 25
    host = host > 0 if dtype == "?" else host.astype(dtype)
    mask = rng.random(size) < 0.3
    x = on_device(host)
    await same(await kernels.select(on_device(mask), x), host[mask])
    await same(await kernels.nonzero(x), np.nonzero(host))
    await same(await kernels.unique_values(x), np.unique(host))
    await same(await kernels.unique_counts(x), np.unique_counts(host))
    await same(await kernels.unique_all(x), np.unique_all(host))


def test_unique_elements_where_the_array_is() -> None:
    """Whatever device is current, everything is launched on the array's."""
    program = """
import asyncio, aiodev, numpy
from aiodev import kernels

async def main():
    x = aiodev.asarray(numpy.array([3, 1, 3, 2, 1]), device="cpu:1")
    async with aiodev.device("cpu:0"):
        print((await (await kernels.unique_values(x)).numpy()).tolist())
        print((await (await kernels.unique_counts(x)).counts.numpy()).tolist())
        print((await (await kernels.unique_inverse(x)).inverse_indices.numpy()).tolist())

asyncio.run(main())
"""
    environment = {**os.environ, "AIODEV_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["[1, 2, 3]", "[2, 1, 2]", "[2, 0, 2, 1, 0]"]


async def test_several_dimensions() -> None:
    """Indices for each; the inverse in the shape of the array; views."""
    host = np.random.default_rng(0).integers(0, 4, (5, 6, 7))
    x = on_device(host)
    await same(await kernels.nonzero(x.T[::-1]), np.nonzero(host.T[::-1]))
    await same(await kernels.unique_inverse(x), np.unique_inverse(host))
    await same(await kernels.select(kernels.greater(x, 2), x), host[host > 2])
    with pytest.raises(ValueError, match="no dimensions has no indices"):
        await kernels.nonzero(aiodev.ones((), device="cpu"))
    with pytest.raises(ValueError, match=r"x's shape \(5, 6, 7\), got \(5,\); x\[mask\] takes others"):
        await kernels.select(aiodev.ones(5, dtype="?", device="cpu"), x)


async def test_each_nan_is_a_value_of_its_own() -> None:
    """As the array API has it."""
    found = await kernels.unique_counts(on_device([np.nan, 1.0, np.nan, 1.0]))
    np.testing.assert_array_equal(await found.values.numpy(), [1.0, np.nan, np.nan])
    assert (await found.counts.numpy()).tolist() == [2, 1, 1]


@pytest.mark.parametrize("function", ["select", "nonzero", "unique_values", "unique_all"])
async def test_arguments_may_be_written_to_after_the_call(function: str) -> None:
    """What is submitted later, before the count is there, changes nothing of the result, nor other memory."""
    n = 1 << 12
    stream = aiodev.Stream("cpu")
    with stream:
        host = np.zeros(n, "i8")
        host[5] = 7
        x, later = aiodev.asarray(host), aiodev.ones(n, dtype="i8")
        others = [aiodev.full(64, 5, dtype="i8") for _ in range(100)]
        del others[::2]  # what is selected is allocated between these
        with Latch(stream):
            pending = getattr(kernels, function)(*((x, x) if function == "select" else (x,)))
            x.copy_from(later)
        found = await pending
        first = found if isinstance(found, aiodev.Array) else found[0]
        expected = {"select": [7], "nonzero": [5]}.get(function, [0, 7])
        assert (await first.numpy()).tolist() == expected
        for other in others:
            assert ((await other.numpy()) == 5).all()


async def test_the_loop_goes_on_while_the_device_counts() -> None:
    """The count is awaited, and cancelled, as any other wait."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.asarray([3, 1, 3])
        with Latch(stream):
            found = asyncio.create_task(kernels.unique_values(x))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not found.done()
            found.cancel()
            await asyncio.wait([found])
        assert found.cancelled()
        assert (await (await kernels.unique_values(x)).numpy()).tolist() == [1, 3]


@given(st.integers(0, 300), st.integers(0, 2**32 - 1), st.sampled_from(["left", "right"]))
@settings(deadline=None, max_examples=examples(30))
def test_search(size: int, seed: int, side: Any) -> None:
    """Between any numbers, beside NaN, with a sorter, of two types."""
    rng = np.random.default_rng(seed)
    host = rng.integers(0, 60, size).astype("f8")
    host[rng.random(size) < 0.1] = np.nan
    wanted = rng.integers(-5, 65, (4, 9)).astype("f4")
    wanted[0, 0] = np.nan
    expected = np.searchsorted(np.sort(host), wanted, side)
    found = kernels.searchsorted(kernels.sort(on_device(host)), on_device(wanted), side=side)
    np.testing.assert_array_equal(found.numpy_blocking(), expected)
    if size:
        x = on_device(host)
        sorter = kernels.argsort(x)
        found = kernels.searchsorted(x, on_device(wanted), side=side, sorter=sorter)
        np.testing.assert_array_equal(found.numpy_blocking(), expected)


def test_search_errors() -> None:
    """Named arguments in the messages."""
    x = aiodev.ones(3, device="cpu")
    with pytest.raises(ValueError, match="side='middle'"):
        kernels.searchsorted(x, x, side="middle")
    with pytest.raises(ValueError, match="x1 has 2 dimensions"):
        kernels.searchsorted(aiodev.ones((2, 2), device="cpu"), x)
    with pytest.raises(TypeError, match="complex"):
        kernels.searchsorted(aiodev.ones(3, dtype="c8", device="cpu"), x)
    with pytest.raises(TypeError, match="searchsorted: argument sorter"):
        kernels.searchsorted(x, x, sorter=[0, 1, 2])


@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_searchsorted_of_every_length(dtype: str) -> None:
    """Up to a power of two and beyond it, with values that are equal, below, above and NaN; of any number of values."""
    rng = np.random.default_rng(4)
    for size in (*range(12), 31, 32, 33, 1000, 1023, 1024, 1025):
        host, values = np.sort(rng.integers(-9, 9, size).astype(dtype)), rng.integers(-11, 11, 13).astype(dtype)
        if dtype == "f4":
            values[::5], values[1::7], values[2::7] = np.nan, np.inf, -np.inf
            host[size - size // 4 :] = np.nan
        for count in (1, 2, 3, 4, 13):
            for side in ("left", "right"):
                found = kernels.searchsorted(on_device(host), on_device(values[:count]), side=side)
                np.testing.assert_array_equal(found.numpy_blocking(), np.searchsorted(host, values[:count], side))



@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_histograms(size: int, dtype: str) -> None:
    """Even and uneven bins, given and found ends, weights, densities; one piece and several."""
    rng = np.random.default_rng(size)
    host = (rng.normal(size=size) * 10).astype(dtype)
    weights = rng.random(size)
    ways: list[dict[str, Any]] = [
        {}, {"bins": 7, "range": (-10, 20)}, {"bins": np.array([-20.0, -1, 0, 5, 30])}, {"bins": 1000},
        {"weights": weights}, {"bins": [0, 1, 1, 2], "weights": weights}, {"bins": 3, "range": (2, 2)},
    ]  # fmt: skip
    if size > 1:
        ways += [{"density": True}, {"bins": 5, "density": True, "weights": weights}]
    for way in ways:
        counts, edges = np.histogram(host.astype("f8"), **way)
        ours = {name: on_device(value) if name == "weights" else value for name, value in way.items()}
        found, where = kernels.histogram(on_device(host), **ours)
        assert found.dtype == counts.dtype and where.dtype == np.float64
        np.testing.assert_allclose(found.numpy_blocking(), counts, rtol=1e-12)
        np.testing.assert_allclose(where.numpy_blocking(), edges, rtol=1e-14, atol=1e-12)


def test_histograms_of_what_is_in_no_bin() -> None:
    """NaN and values beyond the ends are left out; edges on the device; views."""
    host = np.array([[0.0, 1.0, np.nan], [2.0, -5.0, 9.0]])
    edges = on_device(np.array([0.0, 1.0, 2.0]))
    found, where = kernels.histogram(on_device(host)[:, ::-1], edges)
    assert found.numpy_blocking().tolist() == [1, 2]
    assert where.numpy_blocking().tolist() == [0, 1, 2]


@pytest.mark.parametrize(("low", "high", "bins"), [(0.0, 100.0, 100), (-0.3, 0.9, 12), (1e9, 1e9 + 1e-4, 7), (0, 1e-310, 3)])
def test_values_at_edges_are_right_of_them(low: float, high: float, bins: int) -> None:
    """Edges, their neighbours, and the ends: however they were rounded, the edge decides."""
    edges = np.linspace(low, high, bins + 1)
    host = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), [np.nan, np.inf, -np.inf]])
    found, where = kernels.histogram(on_device(host), bins, range=(low, high))
    assert where.numpy_blocking().tolist() == edges.tolist()
    inside = host[(low <= host) & (host <= high)]
    expected = np.bincount(np.minimum(np.searchsorted(edges, inside, "right") - 1, bins - 1), minlength=bins)
    assert found.numpy_blocking().tolist() == expected.tolist()


def test_histogram_between_infinite_ends_counts_nothing() -> None:
    """Edges are found from the elements, and one is infinite."""
    for last in (np.inf, -np.inf, np.nan):
        found, _ = kernels.histogram(on_device(np.array([1.0, 2.0, last])), 3)
        assert found.numpy_blocking().tolist() == [0, 0, 0]


def test_histogram_errors() -> None:
    """What was asked for, and what is possible."""
    x = aiodev.ones(3, device="cpu")
    for arguments, message in (
        ({"bins": 0}, "bins=0"),
        ({"bins": [1, 0]}, "ascending order"),
        ({"bins": [1]}, "two or more edges"),
        ({"bins": 2.5}, "bins=2.5; expected how many"),
        ({"range": (1,)}, r"range=\(1,\); expected two"),
        ({"range": "ab"}, "range='ab'; expected two"),
        ({"range": (0, np.inf)}, "two finite numbers"),
        ({"bins": [0, 1], "range": (0, 1)}, "range is for a number of bins"),
        ({"weights": aiodev.ones(4, device="cpu")}, r"weights have the shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            kernels.histogram(x, **arguments)
    with pytest.raises(TypeError, match="complex"):
        kernels.histogram(aiodev.ones(3, dtype="c8", device="cpu"))
