"""Kernels of programs that workers cannot import travel as what they are made of."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import dask_tasks
import numpy as np
import pytest

import aiodev
import aiodev.dask

SOURCE = '''
import aiodev
import aiodev.kernels

SCALE = 3


def twice(value):
    return value + value


@aiodev.kernel(boundscheck=True, reads=("x",))
def scaled(i, factor, x, out):
    """A kernel of a script."""
    out[i] = SCALE * twice(x[i]) * factor


@scaled.implementation("abacus")
def by_hand(i, factor, x, out):
    out[i] = 0


@aiodev.kernels.fused
def doubled(x):
    return x + x


@aiodev.kernel
def failing(i, x):
    raise ValueError("here")
'''


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module in the place of the program's."""
    path = tmp_path / "script.py"
    path.write_text(SOURCE)
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(SOURCE, str(path), "exec"), vars(module))
    return module


def test_a_kernel_of_a_module_is_pickled_by_reference() -> None:
    """As functions are."""
    assert cloudpickle.loads(cloudpickle.dumps(dask_tasks.positive)) is dask_tasks.positive
    assert len(cloudpickle.dumps(dask_tasks.positive)) < 200


def test_a_kernel_of_a_script_is_pickled_by_value(script: types.ModuleType) -> None:
    """With its options, the bodies for other devices, and what it calls."""
    found = cloudpickle.loads(cloudpickle.dumps(script.scaled))
    assert isinstance(found, aiodev.Kernel)
    assert found is not script.scaled
    assert found._parts()[0][1:] == script.scaled._parts()[0][1:]
    assert found.implementations.keys() == {"abacus"}
    x, out = aiodev.arange(4, dtype="float32", device="cpu"), aiodev.empty(4, "float32", "cpu")
    found[4](0.5, x, out)
    assert out.numpy_blocking().tolist() == [0, 3, 6, 9]


def test_a_fused_function_of_a_script_is_pickled_by_value(script: types.ModuleType) -> None:
    """And again the same one."""
    data = cloudpickle.dumps(script.doubled)
    found = cloudpickle.loads(data)
    assert found is not script.doubled
    assert found is cloudpickle.loads(data)
    assert found(aiodev.ones(2, device="cpu")).numpy_blocking().tolist() == [2, 2]


def test_a_kernel_that_was_sent_before_is_the_same_again(script: types.ModuleType) -> None:
    """Each task finds its code loaded; another kernel of the same name is another one."""
    first, second = (cloudpickle.loads(cloudpickle.dumps(script.scaled)) for _ in range(2))
    assert first is second
    exec(compile(SOURCE, script.__file__ or "", "exec"), vars(script))
    assert cloudpickle.loads(cloudpickle.dumps(script.scaled)) is not first


def test_a_worker_without_the_script_runs_its_kernels(script: types.ModuleType, tmp_path: Path) -> None:
    """And an error shows where it was raised, though the file is not there."""

    data = cloudpickle.dumps((script.scaled, script.failing))
    Path(script.__file__ or "").unlink()
    code = f"""
import pickle, aiodev, aiodev.dask
scaled, failing = pickle.loads({data!r})
x, out = aiodev.arange(4, dtype="float32", device="cpu"), aiodev.empty(4, "float32", "cpu")
scaled[4](0.5, x, out)
print(out.numpy_blocking().tolist(), out.dtype)
try:
    failing[1](out).synchronize_blocking()
except aiodev.KernelError as error:
    print(error.location, repr(error.__cause__))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == "[0.0, 3.0, 6.0, 9.0] float32"
    assert second == f"{script.__file__}:{SOURCE[: SOURCE.index('raise')].count(chr(10)) + 1} ValueError('here')"


async def test_a_cluster_runs_a_kernel_of_a_script(client: Any, script: types.ModuleType) -> None:
    """Sent with the function that launches it."""
    code = "def task(x):\n    out = aiodev.empty_like(x)\n    scaled[x.size](1.0, x, out)\n    return out\n"
    exec(code, vars(script))
    found = await client.submit(script.task, aiodev.ones(3, device="cpu"))
    np.testing.assert_array_equal(await found.numpy(), [6, 6, 6])
