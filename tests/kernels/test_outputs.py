"""Results that cannot go where they are asked to: refused at once, by the function's and the argument's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels

WITH_OUT: dict[str, Callable[..., Any]] = {
    "argsort": kernels.argsort,
    "clip": kernels.clip,
    "concat": lambda x, out: kernels.concat([x, x[:0]], out=out),
    "cumulative_sum": lambda x, out: kernels.cumulative_sum(x, axis=0, out=out),
    "exp": kernels.exp,
    "hfft": lambda x, out: kernels.fft.hfft(x, n=3, out=out),
    "solve": lambda x, out: kernels.linalg.solve(aiodev.asarray(np.eye(3), device="cpu"), x, out=out),
    "svdvals": lambda x, out: kernels.linalg.svdvals(aiodev.broadcast_to(x, (3, 3, 3)), out=out),
    "matmul": lambda x, out: kernels.matmul(x, x, out=out),
    "roll": lambda x, out: kernels.roll(x, 1, out=out),
    "softmax": kernels.softmax,
    "sort": lambda x, out: kernels.sort(x, axis=0, out=out),
    "sum": lambda x, out: kernels.sum(x, axis=(), out=out),
    "take": lambda x, out: kernels.take(x, aiodev.asarray([0, 1, 2], device="cpu"), axis=0, out=out),
}


@pytest.mark.parametrize("name", sorted(WITH_OUT))
def test_outputs_that_do_not_fit(name: str) -> None:
    """Another shape, another kind of object, and what cannot be written to."""
    function = WITH_OUT[name]
    x = aiodev.ones((3, 3), device="cpu")
    dtype = np.int64 if name == "argsort" else x.dtype
    with pytest.raises(ValueError, match=f"{name}: out.* shape"):
        function(x, out=aiodev.empty((1, 3, 3), dtype, "cpu"))
    with pytest.raises(TypeError, match=f"{name}: out: expected an .*[aA]rray, got ndarray"):
        function(x, out=np.empty((3, 3), dtype))
    for _ in range(3):
        function(x, out=aiodev.empty((3, 3), dtype, "cpu")).numpy_blocking()  # what is remembered is for what fits
    with pytest.raises(TypeError, match=f"{name}: out: expected an .*[aA]rray, got ndarray"):
        function(x, out=np.empty((3, 3), dtype))
    fixed = aiodev.broadcast_to(aiodev.zeros(3, dtype, "cpu"), (3, 3))
    assert x.writable and not fixed.writable
    with pytest.raises(aiodev.LaunchError, match=f"{name}: argument out: .* read-only"):
        function(x, out=fixed)


def test_arrays_that_are_changed_in_place_can_be_written_to() -> None:
    """The others are refused, with gaps or without."""
    fixed = aiodev.broadcast_to(aiodev.zeros(1, device="cpu"), (3,))
    index = aiodev.asarray([0], device="cpu")
    for change in (kernels.put, kernels.scatter_add):
        with pytest.raises(aiodev.LaunchError, match=r"argument x: .* read-only"):
            change(fixed, index, 1.0)
