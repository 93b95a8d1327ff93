"""Sorting, running sums and histograms next to NumPy, numba and PyTorch, in 10⁹ elements a second; and small ones, awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numba
import numpy as np
from harness import Figure, Run
from library_peers import NUMBA, NUMPY, TORCH, Call, awaited_small, has_torch, rates, tensors

import aiodev
from aiodev import kernels

__all__ = ["FIGURES", "figure_of"]


@numba.njit(parallel=True)
def _sum_blocks(x, totals):
    size = -(-len(x) // len(totals))
    for block in numba.prange(len(totals)):
        total = 0.0
        for k in range(block * size, min((block + 1) * size, len(x))):
            total += x[k]
        totals[block] = total


@numba.njit(parallel=True)
def _sum_on(x, totals, out):
    size = -(-len(x) // len(totals))
    for block in numba.prange(len(totals)):
        total = totals[block]
        for k in range(block * size, min((block + 1) * size, len(x))):
            total += x[k]
            out[k] = total


def _cumulative_sum(x: Any, out: Any) -> None:
    totals = np.zeros(16)
    _sum_blocks(x, totals)
    _sum_on(x, np.concatenate([[0.0], np.cumsum(totals)[:-1]]), out)


@numba.njit(parallel=True)
def _count(x, low, high, parts):
    pieces, bins = parts.shape
    size = -(-len(x) // pieces)
    for piece in numba.prange(pieces):
        for b in range(bins):
            parts[piece, b] = 0
        for k in range(piece * size, min((piece + 1) * size, len(x))):
            value = x[k]
            if low <= value <= high:
                parts[piece, min(int((value - low) / (high - low) * bins), bins - 1)] += 1


def figure_of(name: str, shown: str, dtype: str, elements: int) -> Callable[[Run], Awaitable[Figure]]:
    async def figure(run: Run) -> Figure:
        size = run.scale(elements)
        host = (np.random.default_rng(1).normal(size=size) * 1e6).astype(dtype)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(size, dtype, "cpu")
        target, parts = np.empty_like(host), np.zeros((16, 100), np.int64)
        ends = (-2e6, 2e6)
        ours: dict[str, Call] = {
            "sort": lambda: kernels.sort(x),
            "argsort": lambda: kernels.argsort(x),
            "cumulative_sum": lambda: kernels.cumulative_sum(x, out=out),
            "histogram": lambda: kernels.histogram(x, 100, range=ends),
        }
        peers: dict[str, dict[str, Call]] = {
            "sort": {NUMPY: lambda: np.sort(host)},
            "argsort": {NUMPY: lambda: np.argsort(host, kind="stable")},
            "cumulative_sum": {NUMPY: lambda: np.cumsum(host, out=target), NUMBA: lambda: _cumulative_sum(host, target)},
            "histogram": {NUMPY: lambda: np.histogram(host, 100, ends), NUMBA: lambda: _count(host, *ends, parts)},
        }
        if has_torch():
            peers[name][TORCH] = _torch(name, host, ends)
        note, count = f"{size:,} {dtype}", 2 if elements > 10**6 else 7
        calls = ours[name], peers[name]
        return await rates(run, shown, "G elements/s", size, *calls, note, count=count, elements=elements)

    return figure


def _torch(name: str, host: Any, ends: tuple[float, float]) -> Call:
    import torch

    (x,) = tensors(host)
    calls: dict[str, Call] = {
        "sort": lambda: torch.sort(x, stable=True),
        "argsort": lambda: torch.argsort(x, stable=True),
        "cumulative_sum": lambda: torch.cumsum(x, 0),
        "histogram": lambda: torch.histc(x, 100, *ends),
    }
    return calls[name]


def _small(name: str, shown: str) -> Callable[[Run], Awaitable[Figure]]:
    async def figure(run: Run) -> Figure:
        host = np.random.default_rng(1).normal(size=1000).astype(np.float32)
        x, out, ends = aiodev.asarray(host, device="cpu"), aiodev.empty(1000, np.float32, "cpu"), (-3.0, 3.0)
        ours: dict[str, Call] = {
            "sort": lambda: kernels.sort(x, out=out),
            "cumsum": lambda: kernels.cumulative_sum(x, out=out),
            "histogram": lambda: kernels.histogram(x, 100, range=ends),
        }
        more = (100, ends) if name == "histogram" else ()
        shown_fully = f"{shown} of 1,000 elements, awaited"
        return await awaited_small(run, shown_fully, ours[name], f"np.{name}", getattr(np, name), host, *more)

    return figure


FIGURES = {
    **{f"sort-{dtype}-1e{n}": figure_of("sort", "sort", dtype, 10**n) for dtype in ("float32", "int64") for n in (6, 7)},
    "argsort-float32-1e6": figure_of("argsort", "argsort, stable", "float32", 10**6),
    "cumulative-sum-1e6": figure_of("cumulative_sum", "running sum", "float32", 10**6),
    "cumulative-sum-1e7": figure_of("cumulative_sum", "running sum", "float32", 10**7),
    "histogram-1e6": figure_of("histogram", "histogram of 100 bins", "float32", 10**6),
    "histogram-1e7": figure_of("histogram", "histogram of 100 bins", "float32", 10**7),
    "sort-small": _small("sort", "sort"),
    "cumulative-sum-small": _small("cumsum", "running sum"),
    "histogram-small": _small("histogram", "histogram in 100 bins"),
}
