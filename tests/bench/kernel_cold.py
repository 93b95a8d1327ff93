"""First results with nothing cached: of a device that starts, and of each common function of the library."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from harness import Bar, Figure, Run

__all__ = ["FIGURES", "cold_functions", "cold_start"]

#: Expressions of ``k`` (aiodev.kernels), ``r`` (its random numbers), ``x`` (64 × 64 of float32) and ``n`` (eight indices).
FUNCTIONS = (
    "k.add(x, x)", "k.multiply(x, x)", "k.exp(x)", "k.sum(x)", "k.mean(x, axis=-1)", "k.softmax(x)", "k.layer_norm(x)",
    "k.matmul(x, x)", "k.take(x, n, axis=0)", "k.concat([x, x])", "k.sort(x)", "k.cumulative_sum(x, axis=-1)",
    "k.astype(x, 'float64')", "r.random((64, 64))", "r.standard_normal((64, 64))",
)  # fmt: skip

_START = """
import time; began = time.perf_counter()
import aiodev
aiodev.full(1 << 14, 1.0, device="cpu").numpy_blocking()  # more than the host writes itself
print(time.perf_counter() - began)
"""
_FUNCTIONS = """
import json, sys, time
import numpy as np
import aiodev, aiodev.kernels as k
from aiodev.kernels import random as r
x, n = aiodev.asarray(np.ones((64, 64), "f4"), device="cpu"), aiodev.asarray(np.arange(8), device="cpu")
x.numpy_blocking()
took = []
for function in json.loads(sys.argv[1]):
    began = time.perf_counter()
    eval(function).numpy_blocking()
    took.append(time.perf_counter() - began)
print(json.dumps(took))
"""
#: The least that peers do from nothing to a compiled function: a loop that adds.
_NUMBA = """
import time; began = time.perf_counter()
import numba, numpy as np
if {compiled}:
    began = time.perf_counter()
@numba.njit
def add(x, y, out):
    for i in range(len(x)):
        out[i] = x[i] + y[i]
x = np.ones(64, "f4")
add(x, x, x)
print(time.perf_counter() - began)
"""
_PEERS = {
    "jax": """
import jax, jax.numpy as jnp, time
x = jnp.ones((64, 64)); began = time.perf_counter()
jax.jit(lambda x: x + x)(x).block_until_ready()
print(time.perf_counter() - began)
""",
    "torch": """
import torch, time
x = torch.ones(64, 64); began = time.perf_counter()
torch.compile(lambda x: x + x)(x)
print(time.perf_counter() - began)
""",
}


async def _run(program: str, *arguments: str, **environment: str) -> str:
    """What a new process prints."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", program, *arguments]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=here)
    output, _ = await child.communicate()
    assert child.returncode == 0, program
    return output.decode().splitlines()[-1]


async def _empty(program: str, *arguments: str, folder: str = "", **environment: str) -> str:
    """The same with a cache that is a copy of ``folder``, or empty."""
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch, "cache")
        if folder:
            await asyncio.to_thread(shutil.copytree, Path(folder, "native"), cache / "native")
        return await _run(program, *arguments, AIODEV_CACHE_DIR=str(cache), **environment)


async def _compile_ahead(folder: str, functions: tuple[str, ...]) -> None:
    """Packs of what the functions launch: with float32, and with float64, which random numbers are of by default."""
    called = {function.partition("(")[0] for function in functions}
    names = sorted(name.removeprefix("k.") if name.startswith("k.") else f"random.{name.removeprefix('r.')}" for name in called)
    arguments = ["warm-up", *names, "--dtype", "float32", "--dtype", "float64", "--into", folder]
    await _empty("import sys; from aiodev._cli.main import main; sys.exit(main(sys.argv[1:]))", *arguments)


async def cold_start(run: Run) -> Figure:
    """From the interpreter to a value that the device has made, with nothing cached."""
    values: dict[str, list[float]] = {"aiodev": [], "compiled ahead": [], "numba: import, and a loop compiled": []}
    with tempfile.TemporaryDirectory() as folder:
        await _compile_ahead(folder, FUNCTIONS[:1])
        for _ in range(1 if run.smoke else run.repeats):
            values["aiodev"].append(float(await _empty(_START)))
            values["compiled ahead"].append(float(await _empty(_START, AIODEV_PREBUILT_DIR=folder)))
            values["numba: import, and a loop compiled"].append(float(await _run(_NUMBA.format(compiled=False))))
    found = {name: statistics.median(times) for name, times in values.items()}
    bars = [Bar("numba: import, and a loop compiled", at_most=1.0, case="compiled ahead")]
    return Figure("first value of the CPU device, nothing cached", "s", found, bars)


async def cold_functions(run: Run) -> Figure:
    """The first result of each common function on a running device, in its turn; the median and the longest of them."""
    functions = FUNCTIONS[:2] if run.smoke else FUNCTIONS
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as started:
        await _compile_ahead(folder, functions)
        await _run(_START, AIODEV_CACHE_DIR=started)
        for name, environment in (("aiodev", {}), ("compiled ahead", {"AIODEV_PREBUILT_DIR": folder})):
            took = json.loads(await _empty(_FUNCTIONS, json.dumps(functions), folder=started, **environment))
            values[name], values[f"{name}, longest"] = statistics.median(took), max(took)
    values["numba: a loop"] = float(await _run(_NUMBA.format(compiled=True)))
    for name, program in _PEERS.items():
        if importlib.util.find_spec(name) is not None:
            values[f"{name}: an addition"] = float(await _run(program))
    bars = [Bar("numba: a loop", at_most=1.0, case="compiled ahead")]
    return Figure("first result of a function of the library, nothing cached", "s", values, bars)


FIGURES = {"cold-start": cold_start, "cold-functions": cold_functions}
