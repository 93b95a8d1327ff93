"""Code of different kernels never mixes, however alike their names are and wherever they were compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import aiodev

PROGRAM = """
import sys
import aiodev

def make(constant):
    def climb(n):  # recursive, so that it stays a function of its own in the compiled code
        return constant if n <= 0 else climb(n - 1) + constant

    @aiodev.kernel
    def body(i, x):
        x[i] = climb(i)

    return body

x = aiodev.zeros(4)
for constant in map(float, sys.argv[1:]):
    make(constant)[4](x).synchronize_blocking(60)
    print(x.numpy_blocking().tolist())
"""


def test_kernels_of_one_name_from_two_processes(cache_without_kernels: Path) -> None:
    """Each was compiled by a process of its own, under the same names; a third one loads both."""
    environment = {"PYTHONPATH": str(Path(aiodev.__file__).parents[1]), "AIODEV_CACHE_DIR": str(cache_without_kernels)}

    def run(*constants: str) -> list[str]:
        command = [sys.executable, "-c", PROGRAM, *constants]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    order = ["2", "1"]
    alone = {constant: run(constant) for constant in order}
    assert alone["2"] == ["[2.0, 4.0, 6.0, 8.0]"]
    assert run(*order) == alone[order[0]] + alone[order[1]]
