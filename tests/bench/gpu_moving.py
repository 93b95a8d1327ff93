"""On a GPU: copies, also beside computing, arithmetic at the speed of memory, sorting, allocation, random numbers, products."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_launching import four, spin
from gpu_peers import DEVICE, bars, burst, finish, join, peer, throughput
from harness import Bar, Case, Figure, Run

import aiodev
from aiodev import kernels

__all__ = ["FIGURES"]


def _size(run: Run, power: int = 28) -> int:
    """Elements of 4 bytes: a gigabyte."""
    return 1 << (14 if run.smoke else power)


def _transfer(up: bool) -> Any:
    async def figure(run: Run) -> Figure:
        size = _size(run, 27)
        on = aiodev.ones(size, "f4", DEVICE)
        ordinary = np.ones(size, "f4")
        pinned = aiodev.memory.empty_pinned(size, "f4", DEVICE)
        pinned[:] = 1
        stream = aiodev.default_stream(DEVICE)

        def ours(host: Any) -> Case:
            pair = (on, host) if up else (host, on)

            async def case() -> float:
                began = time.perf_counter()
                await stream.copy(*pair)
                return 4 * size / (time.perf_counter() - began) / 1e9

            return case

        cases: dict[str, Case] = {"aiodev": ours(pinned), "aiodev, ordinary memory": ours(ordinary)}

        def theirs(is_pinned: bool) -> Case:
            torch = peer("torch")
            t, host = torch.ones(size, device="cuda"), torch.ones(size, pin_memory=is_pinned)
            to, origin = (t, host) if up else (host, t)

            def case() -> float:
                began = time.perf_counter()
                to.copy_(origin, non_blocking=True)
                torch.cuda.synchronize()
                return 4 * size / (time.perf_counter() - began) / 1e9

            return case

        await join(cases, "torch, pinned", lambda: theirs(True))
        await join(cases, "torch, ordinary memory", lambda: theirs(False))
        values = await run.medians(cases)
        wanted = (
            Bar("torch, pinned", at_least=0.95),
            Bar("torch, ordinary memory", at_least=1, case="aiodev, ordinary memory"),
        )
        return Figure("host to device" if up else "device to host", "GB/s", values, bars(values, *wanted))

    return figure


async def overlap(run: Run) -> Figure:
    """A copy in each direction beside a kernel, each on a stream of its own: as long as the longest of the three."""
    size = _size(run, 26)
    rounds = 10 if run.smoke else 5_000_000
    streams = [aiodev.Stream(DEVICE) for _ in range(3)]
    one_way, back = (aiodev.ones(size, "f4", DEVICE) for _ in range(2))
    there, here = (aiodev.memory.empty_pinned(size, "f4", DEVICE) for _ in range(2))
    x = aiodev.ones(32, "f4", DEVICE)
    await aiodev.synchronize(DEVICE)
    submissions: dict[str, Callable[[], object]] = {
        "up alone": lambda: streams[0].copy(one_way, there),
        "down alone": lambda: streams[1].copy(here, back),
        "kernel alone": lambda: spin[32, streams[2]](rounds, x),
    }

    def timed(*wanted: str) -> Case:
        def case() -> float:
            began = time.perf_counter()
            for name in wanted:
                submissions[name]()
            finish()
            return (time.perf_counter() - began) * 1e3

        return case

    cases: dict[str, Case] = {"aiodev": timed(*submissions), **{name: timed(name) for name in submissions}}
    values = await run.medians(cases)
    values["longest alone"] = max(values[name] for name in submissions)
    return Figure("copies both ways beside a kernel", "ms", values, [Bar("longest alone", at_most=1.15)])


async def elementwise(run: Run) -> Figure:
    """Sums of arrays of a gigabyte, next to what the device copies."""
    size = _size(run)
    x, y, out = (aiodev.ones(size, "f4", DEVICE) for _ in range(3))
    stream = aiodev.default_stream(DEVICE)
    await four[size, stream](2.0, x, y, out)
    cases: dict[str, Case] = {
        "copy on the device": lambda: throughput(lambda: stream.copy(out, x), 8 * size),
        "aiodev": lambda: throughput(lambda: kernels.add(x, y, out=out), 12 * size),
        "aiodev, a kernel a * (x + y)": lambda: throughput(lambda: four[size, stream](2.0, x, y, out), 12 * size),
        "aiodev, exp": lambda: throughput(lambda: kernels.exp(x, out=out), 8 * size),
    }

    def theirs(name: str) -> Case:
        torch = peer("torch")
        a, b, c = (torch.ones(size, device="cuda") for _ in range(3))
        function: Callable[[], object] = (
            (lambda: torch.add(a, b, out=c)) if name == "add" else (lambda: torch.exp(a, out=c))
        )
        return lambda: throughput(function, (12 if name == "add" else 8) * size, torch.cuda.synchronize)

    def cupys(name: str) -> Case:
        cupy = peer("cupy")
        a, b, c = (cupy.ones(size, "f4") for _ in range(3))
        function: Callable[[], object] = (lambda: cupy.add(a, b, out=c)) if name == "add" else (lambda: cupy.exp(a, out=c))
        return lambda: throughput(function, (12 if name == "add" else 8) * size, cupy.cuda.runtime.deviceSynchronize)

    await join(cases, "torch", lambda: theirs("add"))
    await join(cases, "torch, exp", lambda: theirs("exp"))
    await join(cases, "CuPy", lambda: cupys("add"))
    await join(cases, "CuPy, exp", lambda: cupys("exp"))
    values = await run.medians(cases)
    ours = [name for name in values if name.startswith("aiodev")]
    wanted = [Bar("copy on the device", at_least=0.9, case=name) for name in ours]
    wanted += [Bar("torch", at_least=1), Bar("CuPy", at_least=1)]
    return Figure(f"elementwise, {size:,} float32", "GB/s", values, bars(values, *wanted))


async def reduction(run: Run) -> Figure:
    """Sums and maxima of a gigabyte, whole and by rows, next to what the device copies."""
    size = _size(run)
    x, out = (aiodev.ones(size, "f4", DEVICE) for _ in range(2))
    rows = x.reshape(-1, 1 << 12)
    stream = aiodev.default_stream(DEVICE)
    cases: dict[str, Case] = {"copy on the device": lambda: throughput(lambda: stream.copy(out, x), 8 * size)}
    for name, ours in {
        "aiodev": lambda: kernels.sum(x),
        "aiodev, max": lambda: kernels.max(x),
        "aiodev, sum of rows": lambda: kernels.sum(rows, axis=1),
        "aiodev, sum of columns": lambda: kernels.sum(rows, axis=0),
    }.items():
        await join(cases, name, lambda ours=ours: lambda: throughput(ours, 4 * size))

    def torch_sum(axis: int | None) -> Case:
        torch = peer("torch")
        t = torch.ones(size, device="cuda").reshape(-1, 1 << 12)
        return lambda: throughput(lambda: t.sum() if axis is None else t.sum(axis), 4 * size, torch.cuda.synchronize)

    def cupy_sum() -> Case:
        cupy = peer("cupy")
        c = cupy.ones(size, "f4")
        return lambda: throughput(lambda: c.sum(), 4 * size, cupy.cuda.runtime.deviceSynchronize)

    await join(cases, "torch", lambda: torch_sum(None))
    await join(cases, "torch, sum of rows", lambda: torch_sum(1))
    await join(cases, "torch, sum of columns", lambda: torch_sum(0))
    await join(cases, "CuPy", cupy_sum)
    values = await run.medians(cases)
    wanted = [Bar("copy on the device", at_least=0.9), Bar("torch", at_least=1), Bar("CuPy", at_least=1)]
    return Figure(f"reductions, {size:,} float32", "GB/s", values, bars(values, *wanted))


async def sorting(run: Run) -> Figure:
    """Random numbers in order, all of them and row by row; torch gives their places as well, and has nothing that does less."""
    size = _size(run, 26)
    x, out = (aiodev.ones(size, "f4", DEVICE) for _ in range(2))
    kernels.random.random((size,), generator=aiodev.Generator(DEVICE).manual_seed(1), out=x)
    rows, rows_out = x.reshape(-1, 1 << 12), out.reshape(-1, 1 << 12)
    cases: dict[str, Case] = {}
    await join(cases, "aiodev", lambda: lambda: throughput(lambda: kernels.sort(x, out=out), size))
    await join(cases, "aiodev, rows", lambda: lambda: throughput(lambda: kernels.sort(rows, out=rows_out), size))

    def torch_sort(*shape: int) -> Case:
        torch = peer("torch")
        t = torch.rand(size, device="cuda").reshape(shape)
        outs = torch.empty_like(t), torch.empty_like(t, dtype=torch.int64)
        return lambda: throughput(lambda: torch.sort(t, out=outs), size, torch.cuda.synchronize)

    def cupy_sort(*shape: int) -> Case:
        cupy = peer("cupy")
        c = cupy.random.default_rng(1).random(size, dtype="f4").reshape(shape)
        return lambda: throughput(lambda: cupy.sort(c), size, cupy.cuda.runtime.deviceSynchronize)

    for label, shape in (("", (size,)), (", rows", (-1, 1 << 12))):
        await join(cases, "torch" + label, lambda shape=shape: torch_sort(*shape))
        await join(cases, "CuPy" + label, lambda shape=shape: cupy_sort(*shape))
    values = await run.medians(cases)
    wanted = [Bar(name, at_least=1) for name in ("torch", "CuPy")]
    wanted += [Bar(f"{name}, rows", at_least=1, case="aiodev, rows") for name in ("torch", "CuPy")]
    return Figure(f"sorting {size:,} float32", "10⁹ elements/s", values, bars(values, *wanted))


async def allocation(run: Run) -> Figure:
    """An array of memory that is cached, made and dropped."""
    count = run.scale(10_000)
    cases: dict[str, Case] = {}
    with aiodev.device(DEVICE):
        for label, nbytes in (("", 4096), (", 64 MiB", 64 << 20)):

            def ours(nbytes: int = nbytes) -> Case:
                def case() -> float:
                    with aiodev.device(DEVICE):
                        return burst(lambda: aiodev.empty(nbytes, "u1"), count)

                return case

            def torch_empty(nbytes: int = nbytes) -> Case:
                torch = peer("torch")
                return lambda: burst(lambda: torch.empty(nbytes, dtype=torch.uint8, device="cuda"), count)

            def cupy_empty(nbytes: int = nbytes) -> Case:
                cupy = peer("cupy")
                return lambda: burst(lambda: cupy.empty(nbytes, "u1"), count)

            cases["aiodev" + label] = ours()
            await join(cases, "torch" + label, torch_empty)
            await join(cases, "CuPy" + label, cupy_empty)
    values = await run.medians(cases)
    wanted = [Bar(name, at_most=1) for name in ("torch", "CuPy")]
    return Figure("an array of cached memory, made and dropped", "µs", values, bars(values, *wanted))


async def growth(run: Run) -> Figure:
    """Memory that is not cached: a gigabyte asked for, and given back."""
    nbytes = (1 << 30) if not run.smoke else (8 << 20)

    def ours() -> float:
        aiodev.memory.empty_cache(DEVICE)
        began = time.perf_counter()
        aiodev.empty(nbytes, "u1", DEVICE)
        elapsed = time.perf_counter() - began
        aiodev.memory.empty_cache(DEVICE)
        return elapsed * 1e3

    def theirs() -> Case:
        torch = peer("torch")

        def case() -> float:
            torch.cuda.empty_cache()
            began = time.perf_counter()
            torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            elapsed = time.perf_counter() - began
            torch.cuda.empty_cache()
            return elapsed * 1e3

        return case

    cases: dict[str, Case] = {"aiodev": ours}
    await join(cases, "torch", theirs)
    return Figure(f"{nbytes >> 20:,} MiB of new memory", "ms", await run.medians(cases))


async def random_bits(run: Run) -> Figure:
    """A gigabyte of uniform and of normal float32."""
    size = _size(run)
    out = aiodev.ones(size, "f4", DEVICE)
    generator = aiodev.Generator(DEVICE).manual_seed(1)
    uniform = functools.partial(kernels.random.random, (size,), generator=generator, out=out)
    normal = functools.partial(kernels.random.standard_normal, (size,), generator=generator, out=out)
    cases: dict[str, Case] = {}
    await join(cases, "aiodev", lambda: lambda: throughput(uniform, 4 * size))
    await join(cases, "aiodev, normal", lambda: lambda: throughput(normal, 4 * size))

    def theirs(method: str) -> Case:
        torch = peer("torch")
        t = torch.ones(size, device="cuda")
        return lambda: throughput(getattr(t, method), 4 * size, torch.cuda.synchronize)

    def cupys(method: str) -> Case:
        cupy = peer("cupy")
        c = cupy.ones(size, "f4")
        draw = getattr(cupy.random.default_rng(1), method)
        return lambda: throughput(lambda: draw(size, dtype="f4", out=c), 4 * size, cupy.cuda.runtime.deviceSynchronize)

    await join(cases, "torch", lambda: theirs("uniform_"))
    await join(cases, "torch, normal", lambda: theirs("normal_"))
    await join(cases, "CuPy", lambda: cupys("random"))
    await join(cases, "CuPy, normal", lambda: cupys("standard_normal"))
    values = await run.medians(cases)
    wanted = [Bar(name, at_least=1) for name in ("torch", "CuPy")]
    wanted += [Bar(f"{name}, normal", at_least=1, case="aiodev, normal") for name in ("torch", "CuPy")]
    return Figure(f"random numbers, {size:,} float32", "GB/s", values, bars(values, *wanted))


async def products(run: Run) -> Figure:
    """Square products; torch with TF32 off, so that all multiply in the same precision."""
    side = 64 if run.smoke else 4096
    cases: dict[str, Case] = {}

    def rate(function: Callable[[], object], after: Callable[[], object] = finish) -> float:
        return throughput(function, 2 * side**3 / 1e3, after)

    for label, code in (("", "f4"), (", float64", "f8")):

        def ours(code: str = code) -> Case:
            x, out = (aiodev.ones((side, side), code, DEVICE) for _ in range(2))
            return lambda: rate(lambda: kernels.matmul(x, x, out=out))

        def theirs(code: str = code) -> Case:
            torch = peer("torch")
            torch.backends.cuda.matmul.allow_tf32 = False
            t = torch.ones(side, side, device="cuda", dtype=torch.float32 if code == "f4" else torch.float64)
            return lambda: rate(lambda: t @ t, torch.cuda.synchronize)

        await join(cases, "aiodev" + label, ours)
        await join(cases, "torch" + label, theirs)
    values = await run.medians(cases, repeats=3)
    wanted = (Bar("torch", at_least=0.95), Bar("torch, float64", at_least=0.95, case="aiodev, float64"))
    return Figure(f"products of {side} × {side} matrices", "TFLOP/s", values, bars(values, *wanted))


FIGURES = {
    "up": _transfer(up=True),
    "down": _transfer(up=False),
    "overlap": overlap,
    "elementwise": elementwise,
    "reduction": reduction,
    "allocation": allocation,
    "growth": growth,
    "random": random_bits,
    "products": products,
    "sorting": sorting,  # last, since its kernels take longest to compile
}
