"""Elementwise functions next to NumPy with ``out=``, numba's ``prange`` and PyTorch: bandwidth, one core, small arrays."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numba
import numpy as np
from harness import Bar, Figure, Run
from library_peers import COPY, NUMBA, NUMPY, TORCH, Call, awaited_small, copying, has_torch, rates, tensors

import aiodev
from aiodev import kernels

__all__ = ["FIGURES", "bandwidth"]


@numba.njit(parallel=True)
def _add(x, y, out):
    for i in numba.prange(len(x)):
        out[i] = x[i] + y[i]


@numba.njit(parallel=True)
def _saxpy(a, x, y, out):
    for i in numba.prange(len(x)):
        out[i] = a * x[i] + y[i]


@numba.njit(parallel=True)
def _exp(x, out):
    for i in numba.prange(len(x)):
        out[i] = math.exp(x[i])


@kernels.fused
def _fused(a: Any, x: Any, y: Any) -> Any:
    return a * x + y


def bandwidth(
    name: str, shown: str, arrays: int, elements: int, in_a_row: int | None = None
) -> Callable[[Run], Awaitable[Figure]]:
    """A function of ``arrays`` arrays of ``float32``, the result among them."""

    async def figure(run: Run) -> Figure:
        size = run.scale(elements)
        hosts = [np.linspace(-2, 2, size, dtype=np.float32) + k for k in range(3)]
        x, y, out = (aiodev.asarray(host, device="cpu") for host in hosts)
        hx, hy, ho = hosts
        ours: dict[str, Call] = {
            "add": lambda: kernels.add(x, y, out=out),
            "saxpy": lambda: _fused(2.0, x, y, out=out),
            "exp": lambda: kernels.exp(x, out=out),
        }
        two = np.float32(2)
        numpys: dict[str, Call] = {
            "add": lambda: np.add(hx, hy, out=ho),
            "saxpy": lambda: np.add(np.multiply(hx, two, out=ho), hy, out=ho),
            "exp": lambda: np.exp(hx, out=ho),
        }
        numbas: dict[str, Call] = {
            "add": lambda: _add(hx, hy, ho),
            "saxpy": lambda: _saxpy(two, hx, hy, ho),
            "exp": lambda: _exp(hx, ho),
        }
        nbytes = 4 * size * arrays
        moved = np.ones(nbytes // 2, np.uint8)  # written: memory that never was is one page of zeros, in a cache
        peers: dict[str, Call] = {
            NUMPY: numpys[name],
            NUMBA: numbas[name],
            COPY: copying(moved, np.empty_like(moved)),
        }
        if has_torch():
            peers[TORCH] = _torch(name, hosts)
        note = f"{size:,} float32"
        return await rates(run, shown, "GB/s", nbytes, ours[name], peers, note, elements=elements, in_a_row=in_a_row)

    return figure


def _torch(name: str, hosts: list[np.ndarray[Any, Any]]) -> Call:
    import torch

    x, y, out = tensors(*hosts)
    return {
        "add": lambda: torch.add(x, y, out=out),
        "saxpy": lambda: torch.add(y, x, alpha=2.0, out=out),
        "exp": lambda: torch.exp(x, out=out),
    }[name]


def _per_core(name: str, dtype: str) -> Callable[[Run], Awaitable[Figure]]:
    """ns an element on one core: 256 KiB at a time stay in its cache, with a stream that has a worker of its own."""

    async def figure(run: Run) -> Figure:
        size, count = (256 << 10) // np.dtype(dtype).itemsize, run.scale(100)
        host = np.random.default_rng(0).uniform(0.1, 8, size).astype(dtype)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(size, dtype, "cpu")
        ours, peer, target = getattr(kernels, name), getattr(np, name), np.empty_like(host)
        stream = aiodev.Stream("cpu", reserve=True)

        async def submitted() -> float:
            began = time.perf_counter()
            with stream:
                for _ in range(count):
                    ours(x, out=out)
            await stream.synchronize()
            return (time.perf_counter() - began) / count / size * 1e9

        def called() -> float:
            began = time.perf_counter()
            for _ in range(count):
                peer(host, out=target)
            return (time.perf_counter() - began) / count / size * 1e9

        values = await run.medians({"aiodev": submitted, "NumPy, out=": called})
        return Figure(f"{name} of {dtype} on one core", "ns", values, [Bar("NumPy, out=", at_most=1.0)])

    return figure


async def small(run: Run) -> Figure:
    """µs to add 1,000 elements and wait for it, next to the same NumPy call in a thread."""
    hosts = [np.ones(1000, np.float32) for _ in range(3)]
    x, y, out = (aiodev.asarray(host, device="cpu") for host in hosts)
    return await awaited_small(
        run, "add of 1,000 elements, awaited", lambda: kernels.add(x, y, out=out), "np.add", np.add, *hosts
    )


async def small_fused(run: Run) -> Figure:
    """The same of a fused expression, which is two calls of NumPy."""
    hosts = [np.ones(1000, np.float32) for _ in range(3)]
    x, y, out = (aiodev.asarray(host, device="cpu") for host in hosts)

    def saxpy(hx: Any, hy: Any, ho: Any) -> None:
        np.add(np.multiply(hx, np.float32(2), out=ho), hy, out=ho)

    return await awaited_small(
        run,
        "a * x + y of 1,000 elements, fused, awaited",
        lambda: _fused(2.0, x, y, out=out),
        "two calls of NumPy",
        saxpy,
        *hosts,
    )


FIGURES = {
    "add-1e6": bandwidth("add", "sum of two arrays", 3, 10**6),
    "add-1e7": bandwidth("add", "sum of two arrays", 3, 10**7),
    "saxpy-1e6": bandwidth("saxpy", "a * x + y, fused", 3, 10**6),
    "saxpy-1e7": bandwidth("saxpy", "a * x + y, fused", 3, 10**7),
    "exp-1e7": bandwidth("exp", "exponential function", 2, 10**7),
    **{
        f"{name}-{dtype}": _per_core(name, dtype)
        for name in ("exp", "log", "sin", "tanh")
        for dtype in ("float32", "float64")
    },
    "add-small": small,
    "saxpy-small": small_fused,
}
