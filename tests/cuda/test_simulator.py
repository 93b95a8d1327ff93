"""The generated entry, run by numba's CUDA simulator: every index once, whatever the grid, in up to three dimensions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import numpy as np
from numba import cuda
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._backends.cuda.compile.entry_source import entry_source, parameters

def axpy(i, a, x, y, out):
    out[i] = a * x[i] + y[i]

def number(i, j, out):
    out[i, j] += 100 * i + j + 1

def volume(i, j, k, out):
    out[i, j, k] += 10000 * i + 100 * j + k + 1

def count(i, x, out):
    cuda.atomic.add(out, x[i] % 7, 1)

def along(axis):
    @cuda.jit(device=True)
    def first():
        return getattr(cuda.threadIdx, axis) + getattr(cuda.blockIdx, axis) * getattr(cuda.blockDim, axis)

    @cuda.jit(device=True)
    def stride():
        return getattr(cuda.blockDim, axis) * getattr(cuda.gridDim, axis)

    return {f"first_{axis}": first, f"stride_{axis}": stride}

def run(function, shape, descriptors, values, grid, block):
    arguments = parse_arguments(len(shape), descriptors)
    names = {"body": cuda.jit(device=True)(function), "array_of": lambda kind, data, words: data}
    names |= {"scalar_of": lambda kind, words: words[0]}
    names |= {"advance": lambda index, step: index + step}
    for axis in "xyz":
        names |= along(axis)
    names |= {f"T{position}": None for position in range(len(arguments))}
    words = list(shape) + [0] * (len(parameters(len(shape), arguments)) - len(shape))
    for argument, value in zip(arguments, values):
        words[argument.offset // 8] = value
    exec(entry_source("entry", len(shape), arguments), names)
    cuda.jit(names["entry"])[grid, block](*words)

for grid, block in ((1, 1), (3, 32), (2, 64), (40, 8)):
    x, y, out = np.arange(100.0), np.ones(100), np.zeros(100)
    run(axpy, (100,), ("f8", "A1f8C", "A1f8C", "A1f8C"), (2.0, x, y, out), grid, block)
    assert (out == 2 * x + y).all()
    tally = np.zeros(7, "i8")
    run(count, (100,), ("A1i8C", "A1i8C"), (np.arange(100), tally), grid, block)
    assert (tally == np.bincount(np.arange(100) % 7)).all()
for grid, block in (((1, 1), (1, 1)), ((2, 3), (4, 4)), ((9, 1), (32, 1)), ((1, 5), (8, 2))):
    out = np.zeros((13, 29), "i8")
    run(number, out.shape, ("A2i8C",), (out,), grid, block)
    i, j = np.indices(out.shape)
    assert (out == 100 * i + j + 1).all()
for grid, block in (((1, 1, 1), (2, 2, 2)), ((2, 3, 4), (4, 2, 1))):
    out = np.zeros((3, 7, 11), "i8")
    run(volume, out.shape, ("A3i8A",), (out,), grid, block)
    i, j, k = np.indices(out.shape)
    assert (out == 10000 * i + 100 * j + k + 1).all()
print("done")
"""


def test_entries_cover_every_index_once() -> None:
    """The loops around a body, in the simulator, which has threads but neither streams nor code."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=200, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
