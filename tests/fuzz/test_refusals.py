"""Whatever a public function is given: it takes it, or says by name what is wrong with it; it never hangs, crashes or leaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from selection import examples, some

PROGRAM = Path(__file__).parent / "calls.py"
SOAK = Path(__file__).parents[1] / "soak.py"


def fuzz(tmp_path: Path, seed: int, calls: int, *arguments: str) -> None:
    """Run the program in a process of its own, and show what it found, or what was called last."""
    last = tmp_path / "last"
    command = [sys.executable, str(PROGRAM), f"--seed={seed}", f"--calls={calls}", f"--last={last}", *arguments]
    environment = {**os.environ, "AIODEV_CPU_DEVICES": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    called = last.read_text(errors="replace").strip() if last.exists() else "nothing"
    assert done.returncode == 0, f"exit status {done.returncode}; called last: {called}\n{done.stdout}{done.stderr[-20000:]}"


@pytest.mark.parametrize("seed", some([1, 2]))
def test_refusals_name_the_function_or_the_argument(tmp_path: Path, seed: int) -> None:
    """Many calls of all that is public, of a fixed seed; kernels of the library are not compiled for it."""
    fuzz(tmp_path, seed, examples(3000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 104))
def test_refusals_at_length(tmp_path: Path, seed: int) -> None:
    """The same, of many seeds."""
    fuzz(tmp_path, seed, 25_000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [200])
def test_refusals_with_kernels_that_run(tmp_path: Path, seed: int) -> None:
    """The same, with kernels of the library compiled and run, for what calls that are taken do afterwards."""
    fuzz(tmp_path, seed, 500, "--compile")


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 5))
def test_soak(seed: int) -> None:
    """A minute of everything at once, of each seed: what comes out follows a sequential model, and nothing is left."""
    command = [sys.executable, str(SOAK), "--seconds=60", f"--seed={seed}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr[:6000]}"
