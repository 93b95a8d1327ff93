"""Runs a program with the stand-in as its driver: ``python tests/cuda/dry.py [-m MODULE | FILE] ARGUMENT…``.

So that what is to run on a GPU, for a few minutes of a lent machine, runs to its end here first:
``PYTHON='python tests/cuda/dry.py' tests/bench/gpu_check.sh``.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1] / "support")

import standin  # noqa: E402  # found through the line above

import aiodev  # noqa: E402
from aiodev._backends.cuda import CUDABackend  # noqa: E402


def main() -> None:
    """Register the backend and run what was asked for, as Python would."""
    library = standin.build()
    if library is None:
        raise SystemExit("no compiler for C is installed, to build the stand-in for the CUDA driver")
    os.environ.update(PROBE_LIBCUDA=library, PROBE_SCALE="0.1")
    backend = CUDABackend(library=library, compiler=standin.StandInCompiler())
    aiodev.register_backend("cuda", lambda: backend)
    kind, *sys.argv = sys.argv[1:]
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, kind)
        sys.path[0] = str(Path(kind).absolute().parent)
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
