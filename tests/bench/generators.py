"""Random numbers: filling arrays of ten million, next to NumPy's and torch's generators; what taking words costs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Bar, Case, Figure, Run
from peers import timed

import aiodev
from aiodev.kernels import random

__all__ = ["FIGURES"]

COUNT = 10_000_000


def _timed(function: Callable[[], object]) -> float:
    """ms of one call."""
    began = time.perf_counter()
    function()
    return (time.perf_counter() - began) * 1e3


async def _fill(
    run: Run, name: str, dtype: Any, ours: Any, numpy_call: Any, torch_call: Any, at_most: float = 1 / 3
) -> Figure:
    """Fill an array again and again; everyone into memory that is there."""
    count = run.scale(COUNT)
    generator = aiodev.Generator("cpu").manual_seed(1)
    out = aiodev.empty(count, dtype, "cpu")
    host = np.empty(count, dtype)
    philox, pcg = np.random.Generator(np.random.Philox(1)), np.random.Generator(np.random.PCG64(1))
    stream = aiodev.Stream("cpu")

    async def fill() -> float:
        began = time.perf_counter()
        async with stream:
            ours(generator, out)
            await stream.synchronize()
        return (time.perf_counter() - began) * 1e3

    cases: dict[str, Case] = {
        "aiodev": fill,
        "NumPy Philox": lambda: _timed(lambda: numpy_call(philox, host)),
        "NumPy PCG64": lambda: _timed(lambda: numpy_call(pcg, host)),
    }
    bars = [Bar("NumPy Philox", at_most=at_most)]
    if torch_call is not None and importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.from_numpy(np.empty(count, dtype))
        cases["torch CPU"] = lambda: _timed(lambda: torch_call(tensor))
        bars.append(Bar("torch CPU", at_most=1))
    return Figure(f"{name}, {count:,}", "ms", await run.medians(cases), bars)


async def uniform(run: Run) -> Figure:
    """Uniform float32."""
    return await _fill(
        run,
        "uniform float32",
        np.float32,
        lambda g, out: random.random(out=out, generator=g),
        lambda g, out: g.random(dtype=np.float32, out=out),
        lambda out: out.uniform_(),
    )


async def normal(run: Run) -> Figure:
    """Normal float32."""
    return await _fill(
        run,
        "normal float32",
        np.float32,
        lambda g, out: random.standard_normal(out=out, generator=g),
        lambda g, out: g.standard_normal(dtype=np.float32, out=out),
        lambda out: out.normal_(),
    )


async def integers(run: Run) -> Figure:
    """Integers below 1000; NumPy has no ``out`` for them."""
    return await _fill(
        run,
        "integers below 1000, int64",
        np.int64,
        lambda g, out: random.integers(1000, out=out, generator=g),
        lambda g, out: g.integers(1000, size=out.size),
        lambda out: out.random_(1000),
    )


async def permutation(run: Run) -> Figure:
    """A permutation."""
    return await _fill(
        run,
        "permutation",
        np.int64,
        lambda g, out: random.permutation(out.size, out=out, generator=g),
        lambda g, out: g.permutation(out.size),
        None,
        at_most=1,
    )


async def reserve(run: Run) -> Figure:
    """Taking a draw's words, next to the shortest launch that could use them."""
    stream = aiodev.Stream("cpu")
    generator = aiodev.Generator("cpu").manual_seed(1)
    out = aiodev.empty(4, np.uint32, "cpu")
    zero = np.uint64(0)
    await use[1, stream](zero, zero, out)
    count = run.scale(20_000)

    async def launch() -> float:
        value = timed(lambda: use[1, stream](zero, zero, out), count)
        await stream.synchronize()
        return value

    async def draw() -> float:
        with stream:
            value = timed(lambda: random.random_raw(out=out, generator=generator), count)
        await stream.synchronize()
        return value

    ours = {"aiodev": lambda: timed(lambda: generator.reserve(4), count), "launch": launch, "a whole draw": draw}
    return Figure("reserving a draw's words", "µs", await run.medians(ours), [Bar("launch", at_most=1)])


@aiodev.kernel
def use(i: Any, seed: Any, offset: Any, out: Any) -> None:
    """As many arguments as a draw has."""
    out[i] = np.uint32(seed + offset)


FIGURES = {
    "uniform": uniform,
    "normal": normal,
    "integers": integers,
    "permutation": permutation,
    "reserve": reserve,
}
