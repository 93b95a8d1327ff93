"""Factorisations and Fourier transforms, awaited, next to the same NumPy calls in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from harness import Bar, Figure, Run

import aiodev
from aiodev.kernels import fft, linalg

__all__ = ["FIGURES"]


def awaited(
    shown: str, shape: tuple[int, ...], ours: Callable[..., Any], numpys: Callable[..., Any], count: int, at_most: float
) -> Callable[[Run], Awaitable[Figure]]:
    """µs from the call to the result, of symmetric positive definite matrices or of rows; the best of some rounds."""

    async def figure(run: Run) -> Figure:
        host = np.random.default_rng(4).standard_normal(shape)
        if shape[-1] == shape[-2]:
            host = host @ np.swapaxes(host, -1, -2) + np.eye(shape[-1])
        x, calls = aiodev.asarray(host, device="cpu"), run.scale(count)
        stream = aiodev.Stream("cpu")

        async def submitted() -> float:
            best = float("inf")
            async with stream:
                for _ in range(calls):
                    began = time.perf_counter()
                    ours(x)
                    await stream.synchronize()
                    best = min(best, time.perf_counter() - began)
            return best * 1e6

        async def threads() -> float:
            best = float("inf")
            for _ in range(calls):
                began = time.perf_counter()
                await asyncio.to_thread(numpys, host)
                best = min(best, time.perf_counter() - began)
            return best * 1e6

        await submitted()  # compiles
        peer = "asyncio.to_thread(NumPy)"
        values = await run.medians({"aiodev": submitted, peer: threads})
        note = " × ".join(f"{length:,}" for length in shape) + " float64"
        return Figure(f"{shown}, awaited", "µs", values, [Bar(peer, at_most=at_most)], note=note)

    return figure


def _solve(x: Any) -> Any:
    return linalg.solve(x, x)


FIGURES = {
    "inv-small": awaited("inverse of a small matrix", (8, 8), linalg.inv, np.linalg.inv, 500, 0.5),
    "cholesky-stack": awaited("Cholesky factors of a stack", (1000, 16, 16), linalg.cholesky, np.linalg.cholesky, 20, 1.0),
    "eigh-stack": awaited("eigenvectors of a stack", (1000, 8, 8), linalg.eigh, np.linalg.eigh, 20, 1.0),
    "svd": awaited("singular vectors", (200, 200), linalg.svd, np.linalg.svd, 8, 1.5),
    "solve": awaited("solution of equations", (512, 512), _solve, lambda x: np.linalg.solve(x, x), 8, 1.5),
    "fft-small": awaited("Fourier transform of a row", (1, 64), fft.fft, np.fft.fft, 500, 0.5),
    "rfft-rows": awaited("Fourier transforms of rows", (1000, 1024), fft.rfft, np.fft.rfft, 20, 1.0),
}
