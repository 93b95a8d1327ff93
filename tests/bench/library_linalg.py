"""Products of matrices, softmax and layer normalisation next to NumPy with ``out=``, numba's ``prange`` and PyTorch."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import numba
import numpy as np
from harness import Figure, Run
from library_peers import NUMBA, NUMPY, TORCH, Call, awaited_small, has_torch, rates, tensors

import aiodev
from aiodev import kernels

__all__ = ["FIGURES", "over_rows", "product"]

HostArray = np.ndarray[Any, Any]


# Rows


@numba.njit(parallel=True, fastmath={"reassoc", "contract"})
def _numba_softmax(x, out):
    for i in numba.prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


@numba.njit(parallel=True, fastmath={"reassoc", "contract"})
def _numba_layer_norm(x, out):
    for i in numba.prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = np.float32(total / x.shape[1])
        squares = np.float32(0)
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = np.float32(1 / math.sqrt(squares / x.shape[1] + 1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale


def _numpy_softmax(x: HostArray, out: HostArray) -> HostArray:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    return np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def _numpy_layer_norm(x: HostArray, out: HostArray) -> None:
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    np.divide(out, np.sqrt(np.square(out).mean(axis=-1, keepdims=True) + np.float32(1e-5)), out=out)


_ROWS: dict[str, tuple[Any, Any]] = {
    "softmax": (_numpy_softmax, _numba_softmax),
    "layer_norm": (_numpy_layer_norm, _numba_layer_norm),
}


def over_rows(name: str, size: int, columns: int) -> Callable[[Run], Awaitable[Figure]]:
    """Read and written once each, as far as the rate is concerned."""

    async def figure(run: Run) -> Figure:
        rows = max(1, run.scale(size) // columns)
        host = np.random.default_rng(2).standard_normal((rows, columns), np.float32)
        target = np.empty_like(host)
        x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(host.shape, host.dtype, "cpu")
        ours = getattr(kernels, name)
        numpys, numbas = _ROWS[name]
        peers: dict[str, Call] = {NUMPY: lambda: numpys(host, target), NUMBA: lambda: numbas(host, target)}
        if has_torch():
            peers[TORCH] = _torch_rows(name, host)
        note = f"{rows:,} × {columns:,} float32"
        shown = f"{name} of each row"
        return await rates(run, shown, "GB/s", 2 * host.nbytes, lambda: ours(x, out=out), peers, note, elements=size)

    return figure


def _torch_rows(name: str, host: HostArray) -> Call:
    import torch

    x, out = tensors(host, host)
    if name == "softmax":
        return lambda: torch.softmax(x, -1, out=out)
    weight, bias = torch.ones(host.shape[1]), torch.zeros(host.shape[1])
    mean, scale = torch.empty(len(host), 1), torch.empty(len(host), 1)
    norm = torch.ops.aten.native_layer_norm.out
    return lambda: norm(x, [host.shape[1]], weight, bias, 1e-5, out0=out, out1=mean, out2=scale)


# Products


def product(shown: str, dtype: str, rows: int, inner: int, columns: int) -> Callable[[Run], Awaitable[Figure]]:
    async def figure(run: Run) -> Figure:
        n, k, m = (max(16, length // 8) if run.smoke else length for length in (rows, inner, columns))
        generator = np.random.default_rng(3)
        a, b = (generator.standard_normal(shape).astype(dtype) for shape in ((n, k), (k, m)))
        target = np.empty((n, m), dtype)
        x, y = (aiodev.asarray(host, device="cpu") for host in (a, b))
        out = aiodev.empty(target.shape, dtype, "cpu")
        peers: dict[str, Call] = {NUMPY: lambda: np.matmul(a, b, out=target)}
        if has_torch():
            peers[TORCH] = _torch_product(a, b, target)
        note = f"{n:,} × {k:,} by {k:,} × {m:,} {dtype}"
        operations = 2 * n * k * m
        ours = functools.partial(kernels.matmul, x, y, out=out)
        bars = {NUMPY: 0.95, TORCH: 0.95}
        return await rates(run, shown, "GFLOP/s", operations, ours, peers, note, bars, elements=rows * inner)

    return figure


def _torch_product(a: HostArray, b: HostArray, target: HostArray) -> Call:
    import torch

    x, y, out = tensors(a, b, target)
    return lambda: torch.matmul(x, y, out=out)


# Small ones


async def softmax_small(run: Run) -> Figure:
    """µs for a softmax of 1,000 elements, awaited."""
    host = np.ones((1, 1000), np.float32)
    target = np.empty_like(host)
    x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(host.shape, host.dtype, "cpu")
    shown = "softmax of 1,000 elements, awaited"
    return await awaited_small(
        run, shown, lambda: kernels.softmax(x, out=out), "NumPy's softmax", _numpy_softmax, host, target
    )


async def matmul_small(run: Run) -> Figure:
    """µs for a product of matrices of 1,024 elements, awaited."""
    host = np.ones((32, 32), np.float32)
    target = np.empty_like(host)
    x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(host.shape, host.dtype, "cpu")
    shown = "product of matrices of 32 × 32, awaited"
    return await awaited_small(
        run, shown, lambda: kernels.matmul(x, x, out=out), "np.matmul", np.matmul, host, host, target
    )


FIGURES = {
    "softmax-1e6": over_rows("softmax", 10**6, 1000),
    "softmax-1e7": over_rows("softmax", 10**7, 1000),
    "softmax-long": over_rows("softmax", 10**7, 10**6),
    "layer-norm": over_rows("layer_norm", 10**7, 1000),
    "matmul-float32": product("product of square matrices", "float32", 1024, 1024, 1024),
    "matmul-float64": product("product of square matrices", "float64", 1024, 1024, 1024),
    "matmul-tall-float32": product("product with a tall matrix", "float32", 50_000, 128, 64),
    "matmul-tall-float64": product("product with a tall matrix", "float64", 50_000, 128, 64),
    "matmul-vector": product("product with a vector", "float32", 3000, 3000, 1),
    "vector-matmul": product("product of a vector and a matrix", "float32", 1, 3000, 3000),
    "softmax-small": softmax_small,
    "matmul-small": matmul_small,
}
