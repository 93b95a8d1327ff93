"""Kernels for single lengths: which serves, and that results do not depend on it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import aiodev
import aiodev.kernels
from aiodev import profiler
from aiodev.kernels import per_length
from aiodev.kernels.per_length import PerLength
from aiodev.kernels.tuning import LONGEST, RECURRING


def made(length: int) -> aiodev.Kernel:
    """A kernel that writes the length that it was made for."""

    def write(i: int, x: Any, out: Any) -> None:
        out[i] = length

    return aiodev.kernel(write)


async def chosen(kernels: PerLength, length: int) -> tuple[int, bool]:
    """What the kernel for a length was made for, and whether it is provisional."""
    x, out = aiodev.zeros(1, device="cpu"), aiodev.zeros(1, np.int64, device="cpu")
    kernel, provisional = kernels.of(length, (x, out))
    kernel[1](x, out)
    return int(await out.item()), provisional


async def test_a_length_that_recurs_gets_a_kernel_of_its_own() -> None:
    """Until that is there the one for all lengths serves, and no call is remembered."""
    kernels = PerLength(made)
    for _ in range(RECURRING):
        assert await chosen(kernels, 3) == (0, True)
    while (found := await chosen(kernels, 3)) != (3, False):
        assert found == (0, True)
        await asyncio.sleep(0.001)
    assert await chosen(kernels, 2) == (0, True)


async def test_long_rows_have_no_kernels_of_their_own() -> None:
    """However often they come; and what serves them is remembered."""
    kernels = PerLength(made)
    for _ in range(RECURRING + 2):
        assert await chosen(kernels, LONGEST + 1) == (0, False)


async def test_a_sequence_that_grows_compiles_one_kernel() -> None:
    """It meets every length, as what lies in a cache that gets longer by one a step."""
    kernels = []
    for length in range(1, 16):
        x = aiodev.ones((5000, length), np.float32, device="cpu")
        assert (await aiodev.kernels.max(x, axis=1).numpy() == 1).all()
        counters = profiler.counters()
        kernels.append(counters["kernels_loaded"] + counters["kernels_compiled"])
    assert kernels[-1] == kernels[0]


@pytest.mark.parametrize("name", ["sum", "max", "mean", "argmin"])
@pytest.mark.parametrize("columns", [False, True])
@given(length=st.integers(1, LONGEST), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=4)
def test_bits_do_not_depend_on_which_serves(name: str, columns: bool, length: int, seed: int) -> None:
    """The kernel for a length does the same in the same order."""
    shape = (700, length, 7) if columns else (5000, length)
    host = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    x, found = aiodev.asarray(host, device="cpu"), []
    for calls in (0, 1 << 60):
        function = getattr(aiodev.kernels, name)
        function.operation.forget()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(per_length, "RECURRING", calls)
            patch.setattr(aiodev.Kernel, "prepare", lambda kernel, *args: True)
            found.append(function(x, axis=1).numpy_blocking())
    function.operation.forget()
    np.testing.assert_array_equal(*found)
