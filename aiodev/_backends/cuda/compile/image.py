"""Images: compiled kernels, and the disk cache that keeps one file a kernel and architecture. Imports no compiler."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiodev._backends.compile import disk_cache as disk
from aiodev._backends.compile.raised import named_class, raised, said
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import KernelError
from aiodev._core.source_names import absolute
from aiodev._core.sources import NUMBA, compiled_by

__all__ = ["SOURCES", "Image", "cached_image", "keep_image", "made_by", "toolkit_of"]

#: What a kernel's code comes from in this backend; the kernel's key has the rest.
SOURCES = ("_backends/compile", "_backends/cuda", "_backends/executor", "_native")
#: Distributions whose versions decide what a kernel is compiled to: numba's, and the toolkit's parts under all their names.
_COMPILERS = (
    *NUMBA, "numba-cuda", "cuda-bindings", "cuda-core", "cuda-pathfinder", "cuda-toolkit",
    *(f"nvidia-{part}{suffix}" for part in ("cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "nvjitlink", "nvvm")
      for suffix in ("", "-cu12", "-cu13")),
)  # fmt: skip
#: Variables that say where a toolkit is that pip has not installed, and where one is when they do not.
_HOMES = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
#: NVVM and the linker in a toolkit's folder, and in one of conda's, which may lack the names without a version.
_LIBRARIES = ("nvvm/lib64/libnvvm.so*", "lib64/libnvJitLink.so*", "lib/libnvJitLink.so*")
_USUAL_HOME = "/usr/local/cuda"
#: The toolkit whose cubins have an ELF ABI; drivers of an earlier major version refuse them.
_TOOLKIT_OF_ABI = {7: 12, 8: 13}


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
    exceptions: dict[int, tuple[type[BaseException] | None, Any, Any]] = field(default_factory=dict)

    def to_parts(self) -> list[bytes]:
        """The parts that the disk cache keeps; of classes, the names."""
        named = {
            status: (None if kind is None else (kind.__module__, kind.__qualname__), arguments, where)
            for status, (kind, arguments, where) in self.exceptions.items()
        }
        return [self.cubin, self.symbol.encode(), disk.pack(named)]

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> Image:
        """The kernel of what was kept.

        Raises:
            Exception: a class is not where it was, or an argument was pickled by other versions than these.
        """
        cubin, symbol, named = parts
        exceptions = {
            status: (None if name is None else named_class(*name), arguments, where)
            for status, (name, arguments, where) in disk.unpack(named).items()
        }
        return cls(cubin, symbol.decode(), exceptions)

    def explain(self, kernel: str, status: int) -> KernelError:
        """The error for a launch that left ``status``; its cause is what the body raised."""
        kind, arguments, where = self.exceptions[status]
        cause = raised(kind, arguments or ()) if kind is not None else RuntimeError("failed")
        location = f"{absolute(where[1])}:{where[2]}" if where else None
        error = KernelError(kernel, said(cause), location=location)
        error.__cause__ = cause
        return error


def toolkit_of(cubin: bytes) -> int:
    """Major version of the toolkit that a cubin needs a driver of; 0 for what is no cubin, or of a toolkit yet unknown."""
    return _TOOLKIT_OF_ABI.get(cubin[8], 0) if cubin.startswith(b"\x7fELF") else 0


def cached_image(spec: KernelSpec, directory: str, architecture: tuple[int, int], driver: int) -> Image | None:
    """The compiled kernel, if the disk cache has it. Blocks.

    Args:
        driver: major version of the CUDA driver that is to load it.
    """
    parts = disk.read(_path(spec, directory, architecture, driver))
    if parts is None:
        return None
    try:
        return Image.from_parts(parts)
    except Exception:  # of whatever class is not where it was
        return None


def keep_image(image: Image, spec: KernelSpec, directory: str, architecture: tuple[int, int], driver: int) -> None:
    """Have the disk cache keep a compiled kernel. Blocks."""
    disk.write(_path(spec, directory, architecture, driver), image.to_parts())


@functools.cache
def made_by() -> str:
    """The compiler and its parts, as a part of the name of every file in the disk cache. Blocks: it reads files."""
    return repr((compiled_by(*SOURCES, distributions=_COMPILERS), _homes()))


def _homes() -> list[str]:
    """Toolkits that are no wheels: the version that each says it is, and when its NVVM and linker were built."""
    homes = []
    for home in dict.fromkeys([*filter(None, map(os.environ.get, _HOMES)), _USUAL_HOME]):
        with contextlib.suppress(OSError):
            homes.append(f"{home} {hashlib.sha256(Path(home, 'version.json').read_bytes()).hexdigest()}")
        for pattern in _LIBRARIES:
            with contextlib.suppress(OSError):
                for library in sorted({path.resolve(strict=True) for path in Path(home).glob(pattern)}):
                    homes.append(f"{library} {library.stat().st_mtime_ns}")
    return homes


def _path(spec: KernelSpec, directory: str, architecture: tuple[int, int], driver: int) -> Path | None:
    if not spec.key or not directory:
        return None
    digest = hashlib.sha256(f"{spec.key}\n{made_by()}\ndriver {driver}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in spec.name)[:64]
    major, minor = architecture
    return Path(directory, "cuda", f"sm_{major}{minor}", digest[:2], f"{readable}-{digest[2:34]}.bin")
