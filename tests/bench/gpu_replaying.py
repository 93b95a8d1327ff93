"""On a GPU: replays of graphs next to what they save, factorisations by cuSOLVER, and transforms by cuFFT."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_launching import four
from gpu_peers import DEVICE, bars, finish, join, peer
from harness import Bar, Case, Figure, Run

import aiodev
from aiodev.kernels import fft, linalg

__all__ = ["FIGURES"]


def _each(function: Callable[[], object], after: Callable[[], object], count: int = 5) -> float:
    """ms of a call, several in a row, to the end of their work."""
    function()
    after()
    began = time.perf_counter()
    for _ in range(count):
        function()
    after()
    return (time.perf_counter() - began) / count * 1e3


async def replay(run: Run) -> Figure:
    """A graph of fifty kernels on eight elements, replayed; its launches one by one; and with an array changed each time."""
    count = 5 if run.smoke else 50
    stream = aiodev.Stream(DEVICE)
    x, y, other, out = (aiodev.ones(8, "f4", DEVICE) for _ in range(4))
    await four[8, stream](0.5, x, y, out)
    await aiodev.synchronize(DEVICE)

    def launches() -> None:
        for _ in range(count):
            four[8, stream](0.5, x, y, out)

    async with aiodev.capture(stream) as graph:
        graph.input("x", x)
        launches()
    for _ in range(3):
        await graph.replay(stream)
    for obstacle in graph.obstacles:
        print(f"    not one submission: {obstacle}")
    turns = [x, other]

    def updated() -> None:
        turns.reverse()
        graph.update(x=turns[0])
        graph.replay(stream)

    cases: dict[str, Case] = {
        "aiodev": lambda: _each(lambda: graph.replay(stream), finish, 20),
        "aiodev, an array changed": lambda: _each(updated, finish, 20),
        "launches": lambda: _each(launches, finish, 20),
    }

    def theirs() -> Case:
        torch = peer("torch")
        a, b = (torch.ones(8, device="cuda") for _ in range(2))
        torch.add(a, b)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for _ in range(count):
                torch.add(a, b, out=a)
        return lambda: _each(captured.replay, torch.cuda.synchronize, 20)

    await join(cases, "torch.cuda.CUDAGraph", theirs)
    values = await run.medians(cases)
    wanted = (Bar("launches", at_most=0.2), Bar("torch.cuda.CUDAGraph", at_most=1.1))
    return Figure(f"a graph of {count} kernels", "ms", values, bars(values, *wanted))


def _factors(name: str, ours: Callable[[Any], object], theirs: Callable[[Any, Any], object]) -> Any:
    async def figure(run: Run) -> Figure:
        side, batch = (16, 2) if run.smoke else (1024, 64)
        chance = np.random.default_rng(0)

        def matrices(*shape: int) -> np.ndarray[Any, Any]:
            host = chance.standard_normal((*shape, shape[-1])).astype("f4")
            return host @ np.swapaxes(host, -1, -2) / shape[-1] + np.eye(shape[-1], dtype="f4")

        cases: dict[str, Case] = {}
        for label, host in (("", matrices(side)), (", a stack", matrices(batch, 64 if not run.smoke else 4))):

            def own(host: Any = host) -> Case:
                x = aiodev.asarray(host, device=DEVICE)
                return lambda: _each(lambda: ours(x), finish)

            def other(module: str, host: Any = host) -> Case:
                found = peer(module)
                if module == "torch":
                    t, after = found.asarray(host, device="cuda"), found.cuda.synchronize
                else:
                    t, after = found.asarray(host), found.cuda.runtime.deviceSynchronize
                return lambda: _each(lambda: theirs(found, t), after)

            await join(cases, "aiodev" + label, own)
            await join(cases, "torch" + label, lambda other=other: other("torch"))
            await join(cases, "CuPy" + label, lambda other=other: other("cupy"))
        values = await run.medians(cases, repeats=3)
        wanted = [Bar(peer_name, at_most=1.2) for peer_name in ("torch", "CuPy")]
        wanted += [Bar(f"{name}, a stack", at_most=1.5, case="aiodev, a stack") for name in ("torch", "CuPy")]
        return Figure(f"{name} of {side} × {side} float32, and of {batch} small ones", "ms", values, bars(values, *wanted))

    return figure


async def transforms(run: Run) -> Figure:
    """Complex transforms of rows, real ones, and of both axes of a square."""
    rows, length = (4, 64) if run.smoke else (1024, 16384)
    host = np.random.default_rng(0).standard_normal((rows, length)).astype("F")
    cases: dict[str, Case] = {}
    for label, name in (("", "fft"), (", rfft", "rfft"), (", fftn", "fftn")):

        def given(name: str = name) -> np.ndarray[Any, Any]:
            return np.ascontiguousarray(host.real) if name == "rfft" else host

        def ours(name: str = name) -> Case:
            x = aiodev.asarray(given(name), device=DEVICE)
            return lambda: _each(lambda: getattr(fft, name)(x), finish)

        def torchs(name: str = name) -> Case:
            torch = peer("torch")
            t = torch.asarray(given(name), device="cuda")
            return lambda: _each(lambda: getattr(torch.fft, name)(t), torch.cuda.synchronize)

        def cupys(name: str = name) -> Case:
            cupy = peer("cupy")
            x = cupy.asarray(given(name))
            return lambda: _each(lambda: getattr(cupy.fft, name)(x), cupy.cuda.runtime.deviceSynchronize)

        await join(cases, "aiodev" + label, ours)
        await join(cases, "torch" + label, torchs)
        await join(cases, "CuPy" + label, cupys)
    values = await run.medians(cases, repeats=3)
    kinds = [(name, label) for name in ("torch", "CuPy") for label in ("", ", rfft")]
    wanted = [Bar(f"{name}{label}", at_most=1.2, case=f"aiodev{label}") for name, label in kinds]
    return Figure(f"transforms of {rows:,} rows of {length:,} complex64", "ms", values, bars(values, *wanted))


FIGURES = {
    "replay": replay,
    "solve": _factors("solutions", lambda x: linalg.solve(x, x), lambda m, t: m.linalg.solve(t, t)),
    "cholesky": _factors("Cholesky factors", linalg.cholesky, lambda m, t: m.linalg.cholesky(t)),
    "qr": _factors("QR factors", linalg.qr, lambda m, t: m.linalg.qr(t)),
    "svd": _factors("singular values and vectors", linalg.svd, lambda m, t: m.linalg.svd(t)),
    "eigh": _factors("eigenvalues and eigenvectors", linalg.eigh, lambda m, t: m.linalg.eigh(t)),
    "transforms": transforms,
}
