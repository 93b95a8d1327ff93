"""Compiled kernels, and the disk cache that keeps them: one file a kernel and architecture. Imports no compiler."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiodev._backends.cpu import compiler_disk as disk
from aiodev._backends.cpu.preload import quiet_import
from aiodev._backends.cpu.raised import raised
from aiodev._core.backend import KernelSpec
from aiodev._core.errors import KernelError

__all__ = ["Image", "cached_image", "load_image", "made_by"]

#: Distributions whose versions decide what a kernel is compiled to.
_COMPILERS = (
    "llvmlite", "numba", "numba-cuda", "nvidia-cuda-nvcc-cu12", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12",
)  # fmt: skip


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
    """What compiles here; part of the name of every file in the disk cache."""
    from importlib import metadata  # costly to import

    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("compiler*.py")):
        digest.update(source.read_bytes())
    versions = []
    for name in _COMPILERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return repr((versions, digest.hexdigest()))


def _path(spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Path | None:
    if not spec.key or not directory:
        return None
    digest = hashlib.sha256(f"{spec.key}\n{made_by()}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in spec.name)[:64]
    major, minor = architecture
    return Path(directory, "cuda", f"sm_{major}{minor}", digest[:2], f"{readable}-{digest[2:34]}.bin")
