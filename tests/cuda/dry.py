"""Runs a program with the stand-in as its driver: ``python tests/cuda/dry.py [-m MODULE | FILE] ARGUMENT…``.

So that what is to run on a GPU, for a few minutes of a lent machine, runs to its end here first:
``PYTHON='python tests/cuda/dry.py' SMOKE=1 tests/bench/gpu_check.sh``. The stand-in has no thread blocks: the library does
without them, as on the simulated device. Its streams are threads of the system, and have one priority. cuSOLVER and cuFFT are
the stand-in's, too, and with ``DRY_BLAS=1`` cuBLAS: products are kernels otherwise, and LU factorisations of stacks a call for
each matrix. With ``DRY_CUBINS=FILE`` each kernel that is loaded is compiled for a GPU, too, and what cannot be is written to
the file: the library's own tests find more kernels than ``tests/cuda/library.py`` does.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

if not sys.flags.safe_path:
    del sys.path[0]  # this file's folder
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import standin  # found through the line above

import aiodev
from aiodev._backends.cuda import CUDABackend
from aiodev._core.backend.interface import KernelSpec


class _Cubins(standin.StandInCompiler):
    """Compiles what it makes images of for a GPU as well."""

    def __init__(self, refused: Path) -> None:
        self._refused = refused

    def load_image(self, spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Any:
        from aiodev._backends.cuda.compile.compiler import compile_image

        line = ""
        try:
            compile_image(spec, (9, 0))
        except Exception as error:  # all that fail are to be listed
            message = " ".join(str(error)[-300:].split())
            line = f"{spec.name} of {spec.arguments} {spec.options}: {type(error).__name__}: {message}\n"
        with self._refused.open("a") as file:
            file.write(line)
        return super().load_image(spec, directory, architecture)


def main() -> None:
    """Register the backend and run what was asked for, as Python would."""
    library = standin.build()
    if library is None:
        raise SystemExit("no compiler for C is installed, to build the stand-in for the CUDA driver")
    os.environ.update(PROBE_LIBCUDA=library, PROBE_SCALE="0.1")
    cubins = os.environ.get("DRY_CUBINS")
    compiler = _Cubins(Path(cubins)) if cubins else standin.StandInCompiler()
    backend = CUDABackend(library=library, compiler=compiler)
    backend.capabilities = backend.capabilities._replace(thread_blocks=False, priorities=(0, 0))
    aiodev.register_backend("cuda", lambda: backend)
    _leave_out_teams()
    _give_libraries(library)
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


def _give_libraries(library: str) -> None:
    """Have factorisations and transforms be the stand-in's."""
    solver: Any = importlib.import_module("aiodev.kernels.linalg.cusolver")
    transforms: Any = importlib.import_module("aiodev.kernels.fft.cufft")
    solver.find_library = transforms.find_library = lambda: library
    blas: Any = importlib.import_module("aiodev.kernels.linalg.cublas")
    blas.find_library = lambda: library if "DRY_BLAS" in os.environ else None  # one that is installed wants a GPU
    openblas = importlib.import_module("aiodev.kernels.linalg.openblas")
    standin.StandIn(library).give_lapack(openblas.library_name())


if __name__ == "__main__":
    main()
