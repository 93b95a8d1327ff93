"""Grids: what is launched for a shape, what a hand-written body may ask for, and bodies that a whole block runs together."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import standin
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev._backends.cuda import CUDABackend, backend as cuda_backend
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import CompileError

ROOT = Path(__file__).parents[2]
#: ns that nothing takes
PATIENCE = 30_000_000_000
Options = tuple[tuple[str, Any], ...]


def _line(i: int, x: Any) -> None:
    x[0] = 1


def _plane(i: int, j: int, x: Any) -> None:
    x[0] = 1


def _volume(i: int, j: int, k: int, x: Any) -> None:
    x[0] = 1


def launched(
    backend: CUDABackend, driver: standin.StandIn, shape: tuple[int, ...], options: Options = ()
) -> tuple[int, ...]:
    """The grid that a launch over a shape gets."""
    body = (_line, _plane, _volume)[len(shape) - 1]
    key = (len(shape), options)
    if key not in _entries:
        spec = KernelSpec(body.__name__, body, len(shape), ("A1i8C",), options)
        _entries[key] = backend.load(spec, "")
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    block = struct.pack(f"<{len(shape)}qqq", *shape, memory, 8)
    size = 1
    for length in shape:
        size *= length
    assert backend.executor.spin(queue, backend.executor.launch(queue, _entries[key], 1 if size else 0, block, 0), PATIENCE)
    assert not backend.executor.faults(queue)
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 64)
    return driver.grid()


def test_what_the_disk_cache_lacks_is_not_compiled(
    backend: CUDABackend, driver: standin.StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``load_cached`` says so, for a worker to compile it; what is there fills the entry, and can be launched."""
    spec = KernelSpec("line", _line, 1, ("A1i8C",), (), "launch" * 10)  # as no other test has it
    made = standin.StandInCompiler().load_image(spec, "", (9, 0))
    monkeypatch.setattr(backend, "_compiler", None)
    entry = backend.reserve_entry()
    assert not backend.load_cached(entry, spec, str(tmp_path))
    monkeypatch.setattr(cuda_backend, "cached_image", lambda *asked: made)
    assert backend.load_cached(entry, spec, str(tmp_path))
    monkeypatch.setitem(_entries, (1, ()), entry)
    assert launched(backend, driver, (5,))


_entries: dict[tuple[int, Options], int] = {}
shapes = st.tuples(st.integers(1, 1 << 18), st.integers(1, 9), st.integers(1, 2)).flatmap(st.permutations)


@settings(max_examples=examples(60), deadline=None)
@given(shapes, st.integers(1, 3))
def test_grids_fit_the_driver_and_the_shape(
    backend: CUDABackend, driver: standin.StandIn, lengths: list[int], ndim: int
) -> None:
    """Within the driver's limits and what occupies the device, whole warps, and no block without an element to begin with."""
    shape = lengths[:ndim]
    *blocks, x, y, z = launched(backend, driver, tuple(shape))
    assert x * y * z <= 256 and x % 32 == 0 and max(blocks[1:]) <= 65535
    assert blocks[0] * blocks[1] * blocks[2] <= 2 * 4 * 8
    across = [1] * (3 - len(shape)) + shape
    assert (blocks[0] - 1) * x < across[2] and (blocks[1] - 1) * y < across[1] and blocks[2] <= across[0]


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((1 << 20,), (("block", 64),), (64, 1, 1, 64, 1, 1)),
        ((1 << 20,), (("block", 512), ("grid", 1000)), (1000, 1, 1, 512, 1, 1)),
        ((100,), (("grid", 1000),), (1, 1, 1, 256, 1, 1)),
        ((100,), (("block", 128), ("team", True)), (64, 1, 1, 128, 1, 1)),
        ((10,), (("block", 128), ("team", True)), (10, 1, 1, 128, 1, 1)),
        ((3, 10), (("block", 128), ("team", True)), (10, 3, 1, 128, 1, 1)),
        ((5, 3, 4), (("block", 32), ("grid", 20), ("team", True)), (4, 3, 1, 32, 1, 1)),
    ],
)
def test_a_body_may_ask_for_its_grid(
    shape: tuple[int, ...], options: Options, expected: tuple[int, ...], backend: CUDABackend, driver: standin.StandIn
) -> None:
    """The block as it is asked for, no more blocks than asked for, and for teams a block for each index."""
    assert launched(backend, driver, shape, options) == expected


def test_a_block_that_cannot_run(backend: CUDABackend, driver: standin.StandIn) -> None:
    """More threads than the kernel's registers leave room for are refused, with what to do."""
    with pytest.raises(CompileError, match="block of 1024 threads .* smaller block="):
        launched(backend, driver, (10,), (("block", 1024),))


def test_what_makes_no_sense_is_refused() -> None:
    """Where it is written, not where it is launched."""
    kernel = aiodev.kernel(_line)
    for wrong in ({"block": 0}, {"grid": -1}, {"block": 2.5}, {"team": True}):
        with pytest.raises(ValueError, match="block=|grid=|team="):
            kernel.implementation("cuda", **wrong)


async def test_other_devices_refuse_what_they_do_not_have() -> None:
    """No option is ignored: the CPU says that it has no blocks."""
    kernel = aiodev.kernel(_line)
    kernel.implementation("cpu", block=64)(_line)
    with pytest.raises(CompileError, match="'block'"):
        await kernel[1](aiodev.zeros(1, "i8", "cpu"))


TEAM = """
import numpy as np
from numba import cuda, float64
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._backends.cuda.compile.entry_source import entry_source, parameters

def row_sum(i, x, out):
    part = cuda.shared.array(32, float64)
    t = cuda.threadIdx.x
    total = 0.0
    k = t
    while k < x.shape[1]:
        total += x[i, k]
        k += cuda.blockDim.x
    part[t] = total
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            part[t] += part[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[i] = part[0]
"""

SIMULATED = (
    TEAM
    + """
on_device = cuda.jit(device=True)
names = {
    "body": on_device(row_sum),
    "array_of": lambda kind, data, words: data,
    "barrier": on_device(lambda: cuda.syncthreads()),
    "advance": lambda index, step: index + step,
    "block_x": on_device(lambda: cuda.blockIdx.x),
    "blocks_x": on_device(lambda: cuda.gridDim.x),
    "T0": None,
    "T1": None,
}
arguments = parse_arguments(1, ("A2f8C", "A1f8C"))
exec(entry_source("entry", 1, arguments, team=True), names)
x = np.random.default_rng(1).random((7, 100))
for grid in (1, 3, 7):
    out = np.zeros(7)
    words = [7] + [0] * (len(parameters(1, arguments)) - 1)
    words[arguments[0].offset // 8], words[arguments[1].offset // 8] = x, out
    cuda.jit(names["entry"])[grid, 32](*words)
    assert np.allclose(out, x.sum(1)), grid
print("done")
"""
)

COMPILED = (
    TEAM
    + """
from aiodev._backends.cuda.compile.compiler import compile_image
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import CompileError
types = ("A2f8C", "A1f8C")
made = compile_image(KernelSpec("row_sum", row_sum, 1, types, (("block", 32), ("team", True))), (9, 0))
assert made.cubin.startswith(b"\\x7fELF") and made.exceptions == {}
for block in (33, 2048):
    try:
        compile_image(KernelSpec("row_sum", row_sum, 1, types, (("block", block),)), (9, 0))
    except CompileError as error:
        assert "multiple of 32" in str(error)
    else:
        raise AssertionError(block)
print("done")
"""
)


@pytest.mark.parametrize(("program", "simulated"), [(SIMULATED, "1"), (COMPILED, "0")], ids=["simulated", "compiled"])
def test_teams_share_memory_and_meet_at_barriers(program: str, simulated: str) -> None:
    """A reduction by rows in shared memory: right in the simulator for any grid, and a cubin for sm_90."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": simulated, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=environment)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
