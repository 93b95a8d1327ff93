"""``sort`` within a kernel, against NumPy's: any length, any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
from aiodev import lang
from aiodev._backends.cpu.compile import kernel_code
from aiodev._backends.cpu.compile.sort import networks as compiler_sorting_networks

#: Shares of a power of two among them: networks of some rows are for these.
_LONG = [511, 512, 513, 640, 1000, 1024, 1025, 1280, 1281, 1700, 2047, 2500, 3000, 3100, 3500, 5000, 7000, 8192, 12000, 16384]
LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from(_LONG))


@aiodev.kernel
def sort_parts(i: int, step: int, size: int, x: Any) -> None:
    """Sort ``size`` elements from every ``step`` on."""
    lang.sort(x[i * step : i * step + size])


def numbers(rng: np.random.Generator, size: int, dtype: str) -> Any:
    """All bits at random, or few of them: NaN and both zeros among them."""
    info = np.iinfo(f"i{dtype[1]}")
    given = rng.integers(info.min, info.max, size, info.dtype, endpoint=True)
    if dtype[0] == "f" and rng.random() < 0.5:
        return rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5, 5e-324], dtype), size)
    return (given % 3 if rng.random() < 0.3 else given).view(dtype)


@pytest.mark.parametrize("dtype", some(["f4", "f8", "i4"]))  # each takes some seconds to compile; kernels.sort has others
@given(LENGTHS, st.integers(1, 3), st.integers(0, 2**32 - 1), st.sampled_from(["any", "up", "down"]))
@settings(deadline=None, max_examples=examples(40))
def test_parts_are_sorted_and_nothing_else_is_touched(dtype: str, size: int, parts: int, seed: int, order: str) -> None:
    """Whatever is behind a part stays as it was."""
    rng = np.random.default_rng(seed)
    host = numbers(rng, parts * (size + 3), dtype).reshape(parts, size + 3)
    if order != "any":
        host = np.sort(host)[:, :: 1 if order == "up" else -1].copy()
    x = aiodev.asarray(host.reshape(-1), device="cpu")
    sort_parts[parts](size + 3, size, x).synchronize_blocking()
    found = x.numpy_blocking().reshape(host.shape)
    np.testing.assert_array_equal(found[:, :size], np.sort(host[:, :size]))
    np.testing.assert_array_equal(found[:, size:], host[:, size:])


def test_plain_function_does_the_same() -> None:
    """Where a body is read or debugged."""
    x = np.array([2.0, np.nan, -1.0])
    lang.sort(x[:2])
    np.testing.assert_array_equal(x, [2.0, np.nan, -1.0])
    lang.sort(x)
    np.testing.assert_array_equal(x, [-1.0, 2.0, np.nan])


@pytest.mark.skipif(kernel_code.is_interpreted(), reason="NUMBA_DISABLE_JIT is set: nothing is compiled")
def test_what_is_refused() -> None:
    """More than fits; columns, and numbers of other sizes."""
    x = aiodev.zeros((1 << 15) + 1, dtype="f4", device="cpu")
    with pytest.raises(aiodev.KernelError, match="sort: more than 128 KiB"):
        sort_parts[1](0, x.size, x).synchronize_blocking()
    sort_parts[1](0, x.size - 1, x).synchronize_blocking()

    @aiodev.kernel
    def sort_columns(i: int, x: Any) -> None:
        lang.sort(x[:, i])

    with pytest.raises(aiodev.CompileError, match="sort: expected a one-dimensional array without gaps"):
        sort_columns[1](x[:4].reshape(2, 2)).synchronize_blocking()
    with pytest.raises(aiodev.CompileError, match="sort: expected numbers of four or eight bytes, got int16"):
        sort_parts[1](0, 4, aiodev.zeros(4, dtype="i2", device="cpu")).synchronize_blocking()


def sorts(network: Any, keys: Any) -> bool:
    """Whether a network sorts columns."""
    keys = list(keys)
    for level in network:
        for a, b in level:
            keys[a], keys[b] = np.minimum(keys[a], keys[b]), np.maximum(keys[a], keys[b])
    return all((a <= b).all() for a, b in zip(keys[:-1], keys[1:], strict=True))


@pytest.mark.parametrize("count", [4, 12, 16, 20, 28])
def test_networks_sort(count: int) -> None:
    """They do if they sort all zeros and ones (Knuth, 5.3.4, theorem Z); a part of these, of the largest one."""
    numbers = np.arange(1 << min(count, 20))
    if count > 20:
        numbers = numbers * np.random.default_rng(0).integers(1 << 20, size=numbers.size)
    assert sorts(compiler_sorting_networks.NETWORKS[count], [(numbers >> k & 1).astype(bool) for k in range(count)])


@pytest.mark.parametrize("count", [3, 5, 7])
def test_networks_merge(count: int) -> None:
    """All zeros and ones that change twice, going round."""
    turns = [np.roll(np.arange(count) < ones, by) for ones in range(count + 1) for by in range(count)]
    assert sorts(compiler_sorting_networks.MERGES[count], np.array(turns).T)
