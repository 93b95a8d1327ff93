"""Reductions next to NumPy with ``out=``, numba's ``prange`` and PyTorch: of all elements, along the axes of matrices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numba
import numpy as np
from harness import Figure, Run
from library_peers import COPY, NUMBA, NUMPY, TORCH, Call, awaited_small, copying, has_torch, rates, tensors

import aiodev
from aiodev import kernels

__all__ = ["FIGURES", "reduction"]

#: Columns of a matrix.
_COLUMNS = 1000


@numba.njit(parallel=True, fastmath=True)
def _sum(x, out):
    total = np.float32(0)
    for i in numba.prange(len(x)):
        total += x[i]
    out[0] = total


@numba.njit(parallel=True, fastmath=True)
def _sum_rows(x, out):
    for i in numba.prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


@numba.njit(parallel=True, fastmath=True)
def _sum_columns(x, out):
    parts = np.zeros((2, x.shape[1]), np.float32)
    half = x.shape[0] // 2
    for part in numba.prange(2):
        for i in range(part * half, half if part == 0 else x.shape[0]):
            for j in range(x.shape[1]):
                parts[part, j] += x[i, j]
    out[:] = parts[0] + parts[1]


@numba.njit(parallel=True, fastmath=True)
def _mean(x, out):
    total = np.float32(0)
    for i in numba.prange(len(x)):
        total += x[i]
    out[0] = total / len(x)


@numba.njit(parallel=True, fastmath=True)
def _var(x, out):
    total = np.float32(0)
    for i in numba.prange(len(x)):
        total += x[i]
    mean = np.float32(total / len(x))
    squares = np.float32(0)
    for i in numba.prange(len(x)):
        squares += (x[i] - mean) * (x[i] - mean)
    out[0] = squares / len(x)


@numba.njit(parallel=True, fastmath=True)
def _min(x, out):
    least = x[0]
    for i in numba.prange(len(x)):
        least = min(least, x[i])
    out[0] = least


_NUMBA = {"sum": _sum, "sum-rows": _sum_rows, "sum-columns": _sum_columns, "mean": _mean, "var": _var, "min": _min}


def reduction(
    case: str,
    shown: str,
    size: int,
    dtype: str = "float32",
    axis: int | None = None,
    in_a_row: int | None = None,
) -> Callable[[Run], Awaitable[Figure]]:
    """A reduction of ``size`` elements; along an axis, of a matrix with 1000 columns. Rates are of bytes that there are."""

    async def figure(run: Run) -> Figure:
        rows = max(2, run.scale(size) // _COLUMNS)
        name = case.partition("-")[0]
        host = np.random.default_rng(1).uniform(-1, 1, rows * _COLUMNS).astype(dtype)
        host = host if axis is None else host.reshape(rows, _COLUMNS)
        target = getattr(np, name)(host, axis=axis)
        result = np.empty(target.shape, target.dtype)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(result.shape, result.dtype, "cpu")
        ours, numpys = getattr(kernels, name), getattr(np, name)
        peers: dict[str, Call] = {NUMPY: lambda: numpys(host, axis=axis, out=result)}
        if case in _NUMBA and dtype == "float32":
            flat = result if axis is not None else np.empty(1, result.dtype)
            peers[NUMBA] = lambda: _NUMBA[case](host, flat)
        if has_torch():
            peers[TORCH] = _torch(name, host, result, axis)
        moved = host.view(np.uint8).reshape(-1)
        peers[COPY] = copying(moved[: moved.size // 2], np.empty_like(moved[: moved.size // 2]))
        return await rates(
            run,
            shown,
            "GB/s",
            host.nbytes,
            lambda: ours(x, axis=axis, out=out),
            peers,
            note=f"{' × '.join(f'{n:,}' for n in host.shape)} {dtype}",
            elements=size,
            in_a_row=in_a_row,
        )

    return figure


def _torch(name: str, host: np.ndarray[Any, Any], result: np.ndarray[Any, Any], axis: int | None) -> Call:
    import torch

    x, out = tensors(host, result)
    if name == "var":  # without ``out`` for all elements
        return lambda: torch.var(x, correction=0)
    if name == "min":
        return lambda: torch.amin(x, dim=(0,), out=out)
    if name == "argmax":
        return lambda: torch.argmax(x, out=out)
    reduce: Any = getattr(torch, name)
    return lambda: reduce(x, dim=(0,) if axis is None else (axis,), out=out)


def _small(name: str) -> Callable[[Run], Awaitable[Figure]]:
    async def figure(run: Run) -> Figure:
        host = np.ones(1000, np.float32)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty((), np.float32, "cpu")
        ours = getattr(kernels, name)
        return await awaited_small(
            run, f"{name} of 1,000 elements, awaited", lambda: ours(x, out=out), f"np.{name}", getattr(np, name), host
        )

    return figure


FIGURES = {
    "sum-1e6": reduction("sum", "sum", 10**6),
    "sum-1e7": reduction("sum", "sum", 10**7),
    "sum-float64": reduction("sum", "sum", 10**7, "float64"),
    "sum-rows": reduction("sum-rows", "sum of each row", 10**7, axis=1),
    "sum-columns": reduction("sum-columns", "sum of each column", 10**7, axis=0),
    "mean": reduction("mean", "mean", 10**7),
    "var": reduction("var", "variance", 10**7),
    "min": reduction("min", "least element", 10**7),
    "argmax": reduction("argmax", "place of the largest", 10**7),
    "sum-small": _small("sum"),
    "min-small": _small("min"),
}
