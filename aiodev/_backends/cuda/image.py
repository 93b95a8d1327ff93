"""Compiled kernels, and the disk cache that keeps them: one file a kernel and architecture. Imports no compiler."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiodev._backends.cpu import compiler_disk as disk
from aiodev._backends.cpu.preload import quiet_import
from aiodev._backends.cpu.raised import raised
from aiodev._core.backend import KernelSpec
from aiodev._core.errors import KernelError
from aiodev._core.sources import NUMBA, compiled_by

__all__ = ["SOURCES", "Image", "cached_image", "load_image", "made_by"]

#: What a kernel's code comes from in this backend, which takes much from the CPU's; the kernel's key has the rest.
SOURCES = ("_backends/cpu", "_backends/cuda")
#: Distributions whose versions decide what a kernel is compiled to: numba's, and the toolkit's parts under all their names.
_COMPILERS = (
    *NUMBA, "numba-cuda", "cuda-bindings", "cuda-core", "cuda-pathfinder", "cuda-toolkit",
    *(f"nvidia-{part}{suffix}" for part in ("cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "nvjitlink", "nvvm")
      for suffix in ("", "-cu12", "-cu13")),
)  # fmt: skip
#: Variables that say where a toolkit is that pip has not installed, and where one is when they do not.
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
_USUAL_TOOLKIT = "/usr/local/cuda"


@dataclass(frozen=True, slots=True)
class Image:
    """A compiled kernel.

    Attributes:
        cubin: device code for one architecture.
        symbol: the kernel's name in it.
        exceptions: what its statuses mean: (class, arguments, (function, file, line) or None); empty when it cannot fail.
    """

    cubin: bytes
    symbol: str
    exceptions: dict[int, tuple[type[BaseException], Any, Any]] = field(default_factory=dict)

    def explain(self, kernel: str, status: int) -> KernelError:
        """The error for a launch that left ``status``; its cause is what the body raised."""
        kind, arguments, where = self.exceptions[status]
        cause = raised(kind, arguments or ()) if kind is not None else RuntimeError("failed")
        text = str(cause)
        location = f"{where[1]}:{where[2]}" if where else None
        detail = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
        error = KernelError(kernel, detail, location=location)
        error.__cause__ = cause
        return error


def load_image(spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Image:
    """The compiled kernel, from the disk cache, else compiled into it. Blocks.

    Raises:
        CompileError: numba-cuda refused it.
    """
    found = cached_image(spec, directory, architecture)
    if found is not None:
        return found
    if "numba.cuda" in sys.modules:
        from aiodev._backends.cuda import compiler
    else:
        with quiet_import():
            from aiodev._backends.cuda import compiler

    image = compiler.compile_image(spec, architecture)
    disk.write(_path(spec, directory, architecture), (image.cubin, image.symbol, image.exceptions))
    return image


def cached_image(spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Image | None:
    """The compiled kernel, if the disk cache has it. Blocks."""
    found = disk.read(_path(spec, directory, architecture))
    return Image(*found) if isinstance(found, tuple) and len(found) == 3 else None


@functools.cache
def made_by() -> str:
    """What compiles here; part of the name of every file in the disk cache. Blocks: it reads files."""
    return repr((compiled_by(*SOURCES, distributions=_COMPILERS), [*map(_toolkit_at, _toolkit_folders())]))


def _toolkit_folders() -> list[str]:
    """Where a toolkit may be that is no distribution."""
    return list(dict.fromkeys([*filter(None, map(os.environ.get, _TOOLKITS)), _USUAL_TOOLKIT]))


def _toolkit_at(folder: str) -> tuple[str, str] | None:
    """What tells a toolkit from another, if there is one in the folder: it says its version in a file."""
    try:
        return folder, hashlib.sha256(Path(folder, "version.json").read_bytes()).hexdigest()
    except OSError:
        return None


def _path(spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Path | None:
    if not spec.key or not directory:
        return None
    digest = hashlib.sha256(f"{spec.key}\n{made_by()}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in spec.name)[:64]
    major, minor = architecture
    return Path(directory, "cuda", f"sm_{major}{minor}", digest[:2], f"{readable}-{digest[2:34]}.bin")
