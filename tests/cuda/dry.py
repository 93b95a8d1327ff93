"""Runs a program with the stand-in as its driver: ``python tests/cuda/dry.py [-m MODULE | FILE] ARGUMENT…``.

So that what is to run on a GPU, for a few minutes of a lent machine, runs to its end here first:
``PYTHON='python tests/cuda/dry.py' tests/bench/gpu_check.sh``. The stand-in has no thread blocks: the library does without
them, as on the simulated device.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

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
    backend.capabilities = backend.capabilities._replace(thread_blocks=False)
    aiodev.register_backend("cuda", lambda: backend)
    _leave_out_teams()
    kind, *sys.argv = sys.argv[1:]
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, kind)
        sys.path[0] = str(Path(kind).absolute().parent)
        runpy.run_path(kind, run_name="__main__")


def _leave_out_teams() -> None:
    """Have the library's kernels run the bodies that one thread runs, also under CUDA's name."""
    package = types.ModuleType("aiodev.kernels")  # so that its modules are not imported yet, which would have taken the others
    package.__path__ = [str(Path(aiodev.__file__).parent / "kernels")]
    sys.modules["aiodev.kernels"] = package
    teams: Any = importlib.import_module("aiodev.kernels.thread_block")
    teams.on_teams = lambda kernel, body: None
    del sys.modules["aiodev.kernels"]


if __name__ == "__main__":
    main()
