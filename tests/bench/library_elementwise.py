"""Elementwise functions next to NumPy with ``out=``, numba's ``prange`` and PyTorch: bandwidth, one core, small arrays."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numba
import numpy as np
from harness import Bar, Figure, Run

import aiodev
from aiodev import kernels

__all__ = ["FIGURES"]

Case = Callable[[], object]
_TORCH = importlib.util.find_spec("torch") is not None


@numba.njit(parallel=True)
def _add(x, y, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(x)):
        out[i] = x[i] + y[i]


@numba.njit(parallel=True)
def _saxpy(a, x, y, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(x)):
        out[i] = a * x[i] + y[i]


@numba.njit(parallel=True)
def _exp(x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(x)):
        out[i] = math.exp(x[i])


@kernels.fused
def _fused(a: Any, x: Any, y: Any) -> Any:
    return a * x + y


def _copy_by_two(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    """A copy by two threads: what the machine's memory gives."""
    half = len(source) // 2
    other = threading.Thread(target=np.copyto, args=(target[:half], source[:half]))
    other.start()
    np.copyto(target[half:], source[half:])
    other.join()


def _rate(nbytes: int, count: int, function: Case) -> Callable[[], float]:
    """GB/s, from the best of ``count`` calls: others use the memory, too."""

    def case() -> float:
        best = math.inf
        for _ in range(count):
            began = time.perf_counter()
            function()
            best = min(best, time.perf_counter() - began)
        return nbytes / best / 1e9

    return case


def _submitted(nbytes: int, count: int, submit: Case) -> Callable[[], Awaitable[float]]:
    """The same of something that is submitted to the current stream, and awaited."""

    async def case() -> float:
        stream, best = aiodev.current_stream("cpu"), math.inf
        for _ in range(count):
            began = time.perf_counter()
            submit()
            await stream.synchronize()
            best = min(best, time.perf_counter() - began)
        return nbytes / best / 1e9

    return case


def _bandwidth(name: str, shown: str, arrays: int) -> Callable[[Run], Awaitable[Figure]]:
    """A function of ``arrays`` arrays, the result among them, at 10⁷ ``float32`` elements."""

    async def figure(run: Run) -> Figure:
        size = run.scale(10_000_000)
        hosts = [np.linspace(-2, 2, size, dtype=np.float32) + k for k in range(3)]
        x, y, out = (aiodev.asarray(host, device="cpu") for host in hosts)
        hx, hy, ho = hosts
        ours: dict[str, Case] = {
            "add": lambda: kernels.add(x, y, out=out),
            "saxpy": lambda: _fused(2.0, x, y, out=out),
            "exp": lambda: kernels.exp(x, out=out),
        }
        two = np.float32(2)
        numpys: dict[str, Case] = {
            "add": lambda: np.add(hx, hy, out=ho),
            "saxpy": lambda: np.add(np.multiply(hx, two, out=ho), hy, out=ho),
            "exp": lambda: np.exp(hx, out=ho),
        }
        numbas: dict[str, Case] = {
            "add": lambda: _add(hx, hy, ho),
            "saxpy": lambda: _saxpy(two, hx, hy, ho),
            "exp": lambda: _exp(hx, ho),
        }
        nbytes = 4 * size * arrays
        cases: dict[str, Any] = {
            "aiodev": _submitted(nbytes, 5, ours[name]),
            "NumPy, out=": _rate(nbytes, 5, numpys[name]),
            "numba prange": _rate(nbytes, 5, numbas[name]),
            "copy by two threads": _rate(8 * size, 5, lambda: _copy_by_two(hx, ho)),
        }
        if _TORCH:
            cases["PyTorch, 2 threads"] = _rate(nbytes, 5, _torch(name, hosts))
        async with aiodev.Stream("cpu"):
            values = await run.medians(cases)
        bars = [
            Bar("NumPy, out=", at_least=1.0),
            Bar("numba prange", at_least=1.0),
            Bar("copy by two threads", at_least=0.9),
        ]
        if _TORCH:
            bars.append(Bar("PyTorch, 2 threads", at_least=1.0))
        return Figure(shown, "GB/s", values, bars, note=f"{size:,} float32")

    return figure


def _torch(name: str, hosts: list[np.ndarray[Any, Any]]) -> Case:
    import torch

    torch.set_num_threads(2)
    x, y, out = (torch.from_numpy(host.copy()) for host in hosts)
    return {
        "add": lambda: torch.add(x, y, out=out),
        "saxpy": lambda: torch.add(y, x, alpha=2.0, out=out),
        "exp": lambda: torch.exp(x, out=out),
    }[name]


def _per_core(name: str, dtype: str) -> Callable[[Run], Awaitable[Figure]]:
    """ns an element on one core: 16,384 elements at a time stay in the cache, and with one worker."""

    async def figure(run: Run) -> Figure:
        size, count = 16_384, run.scale(400)
        host = np.random.default_rng(0).uniform(0.1, 8, size).astype(dtype)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(size, dtype, "cpu")
        ours, peer, target = getattr(kernels, name), getattr(np, name), np.empty_like(host)
        stream = aiodev.Stream("cpu")

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
    stream, count = aiodev.Stream("cpu"), run.scale(2000)

    async def ours() -> float:
        began = time.perf_counter()
        async with stream:
            for _ in range(count):
                kernels.add(x, y, out=out)
                await stream.synchronize()
        return (time.perf_counter() - began) / count * 1e6

    async def threads() -> float:
        calls = max(8, count // 10)
        began = time.perf_counter()
        for _ in range(calls):
            await asyncio.to_thread(np.add, hosts[0], hosts[1], hosts[2])
        return (time.perf_counter() - began) / calls * 1e6

    values = await run.medians({"aiodev": ours, "asyncio.to_thread(np.add)": threads})
    return Figure("add of 1,000 elements, awaited", "µs", values, [Bar("asyncio.to_thread(np.add)", at_most=0.05)])


FIGURES = {
    "add": _bandwidth("add", "sum of two arrays", 3),
    "saxpy": _bandwidth("saxpy", "a * x + y, fused", 3),
    "exp": _bandwidth("exp", "exponential function", 2),
    **{
        f"{name}-{dtype}": _per_core(name, dtype)
        for name in ("exp", "log", "sin", "tanh")
        for dtype in ("float32", "float64")
    },
    "add-small": small,
}
