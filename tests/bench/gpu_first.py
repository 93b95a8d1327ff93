"""What a machine with a GPU has, and one launch on it: what to read first when anything else fails."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib.metadata
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

NAMES = (
    "numba", "numba-cuda", "llvmlite", "numpy", "cuda-bindings", "cuda-core", "cuda-pathfinder", "cuda-toolkit", "nvidia-nvvm",
    "nvidia-nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-ml-py",
    "torch", "cupy-cuda12x", "cupy-cuda13x", "jax", "anyio", "hypothesis", "pytest", "pytest-asyncio", "trio",
)  # fmt: skip


def versions() -> None:
    """Of everything that decides what happens."""
    print(sys.version)
    for name in NAMES:
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    print({name: value for name, value in os.environ.items() if name.startswith(("CUDA", "AIODEV", "NUMBA"))})


def tools() -> None:
    """Whether numba-cuda can be imported, what it compiles with, and whether it does."""
    from cuda import pathfinder

    from aiodev._backends.cuda.compile import compiler
    from aiodev._core.backend.interface import KernelSpec

    print(compiler.__name__, "imported")
    for name in ("nvvm", "nvrtc", "nvJitLink"):
        try:
            print(pathfinder.load_nvidia_dynamic_lib(name))
        except Exception as error:  # what is compiled below may do without it
            print(f"{name}: {type(error).__name__}: {error}")

    def exponential(i: int, x: Any) -> None:  # needs libdevice, and the linker
        x[i] = np.exp(x[i])

    image = compiler.compile_image(KernelSpec("exponential", exponential, 1, ("A1f4C",)), (9, 0))
    print("compiled for sm_90:", len(image.cubin), "bytes, ELF ABI", image.cubin[8])


def devices() -> None:
    """What the backend finds without being started."""
    from aiodev._backends.cuda import CUDABackend

    backend = CUDABackend()
    print("unavailable:", backend.unavailable_reason())
    for index in range(backend.device_count()):
        print(backend.device_properties(index))


def launch() -> None:
    """The way of everything else: start, allocate, copy, compile, launch, read."""
    import aiodev

    @aiodev.kernel
    def double(i: int, x: Any) -> None:
        x[i] *= 2

    async def steps() -> None:
        await aiodev.init("cuda")
        x = aiodev.asarray(np.arange(8.0), device="cuda")
        print("there and back:", await x.numpy())
        await double.compile(x)
        await double[8](x)
        print("doubled:", await x.numpy())

    asyncio.run(steps())


def main() -> None:
    """One after the other, whichever fails."""
    faulthandler.dump_traceback_later(140, exit=True)
    failed = 0
    steps: list[Callable[[], None]] = [versions, tools, devices, launch]
    for step in steps:
        began = time.perf_counter()
        try:
            step()
        except Exception:  # the others say more about why
            failed += 1
            traceback.print_exc()
        print(f"── {step.__name__}: {time.perf_counter() - began:.1f} s", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
