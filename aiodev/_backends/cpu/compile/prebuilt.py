"""Prebuilt code, for all processors of a kind: packs of object files that come with the package or an image.

**Problem.** The disk cache is empty where a program runs for the first time, and in every new container. To compile a function
of the library takes from a tenth of a second to four, after one for importing the compiler.

**Solution.** ``python -m aiodev warm-up --into`` compiles kernels, and native code (:mod:`aiodev._native.package`), for a
*baseline*: the instructions that all processors of a kind have. What the disk cache does not have is looked for in the pack of
this one's best baseline.

**Invariants.**

1.  Code of a pack is found by the kernel's content, types and options and by the sources that it was made from, as in the disk
    cache. The versions of numba, LLVM and NumPy by which it was made are not asked for: it refers to nothing of theirs, or
    it would not be in a pack.
2.  Code for this very processor may be faster, and where a kernel lets sums be reordered its last bits may differ. So a
    process keeps what it found first: its results do not change while it runs. What is found here is *provisional*: the
    compile service has better code made, which the next process finds in the disk cache.
3.  The package's own packs are trusted as its sources are. Others are, where nobody but this user and root can write.
"""

from __future__ import annotations

import ast
import functools
import logging
import os
import platform
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aiodev._backends.compile import disk_cache as disk
from aiodev._backends.cpu.compile.kernel_object import KernelObject
from aiodev._core.at_fork import Whole
from aiodev._core.cache_directory import distrusted
from aiodev._core.config import settings
from aiodev._core.sources import compiled_by
from aiodev._native.machine import host_features, make_machine
from aiodev._native.package import NativePackage, packages

__all__ = [
    "BASELINES",
    "Pack",
    "are_there",
    "baseline_here",
    "baselines_of_machine",
    "find_kernel",
    "find_native",
    "look_for_folder",
    "read_pack",
    "target_variables",
    "write_pack",
]

logger = logging.getLogger("aiodev")

_V2 = ("cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: Baselines, best last: LLVM's names of a processor and of what it has, which are those of the System V ABI's levels.
BASELINES: Mapping[str, tuple[str, ...]] = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "aarch64": ("neon",),
}
_MACHINES = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
_SOURCES = ("_backends/compile", "_backends/cpu", "_backends/executor", "_native")
_FOLDER = Path(__file__).parents[3] / "prebuilt"


def baselines_of_machine() -> list[str]:
    """Baselines of this machine's kind, best last, whether or not this processor has their instructions."""
    family = _MACHINES.get(platform.machine(), "none")
    return [name for name in BASELINES if name.startswith(family)]


def baseline_here() -> str | None:
    """The best baseline of this processor; None where it has none."""
    has = set(host_features().split(","))
    baselines = [name for name in baselines_of_machine() if has.issuperset(f"+{each}" for each in BASELINES[name])]
    return baselines[-1] if baselines else None


def target_variables(baseline: str) -> dict[str, str]:
    """The environment of a process in which numba compiles for a baseline."""
    features = ",".join(f"+{each}" for each in BASELINES[baseline])
    name = "generic" if baseline == "aarch64" else baseline
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


def pack_name(baseline: str) -> str:
    """A pack's file: one a baseline and a version of Python, since kernels are known by their byte code."""
    return f"{baseline}-{sys.implementation.cache_tag}.kernels"


def write_pack(folder: Path, baseline: str, kernels: Mapping[str, Path]) -> int:
    """Put kernels, each in a cache of its own, into a pack in place of the one that is there. Returns how many.

    Those that need numba at run time, or could not be compiled, are left out.

    Raises:
        OSError: it cannot be written.
    """
    index: dict[str, int] = {}
    blobs: list[bytes] = []
    for key, place in sorted(kernels.items()):
        parts = next(map(disk.read, place.rglob("*.bin")), None)
        if parts is None or KernelObject.from_parts(parts).needs_numba:
            continue
        symbol, code = parts
        index[key] = len(blobs)
        blobs += symbol, zlib.compress(code, 9)
    native: dict[str, int] = {}
    variables = target_variables(baseline)
    machine = make_machine(variables["NUMBA_CPU_NAME"], variables["NUMBA_CPU_FEATURES"])
    for package in packages:
        native[_identity(package)] = len(blobs)
        blobs.append(zlib.compress(package.emit(machine), 9))
    head = {"sources": _sources(), "kernels": index, "native": native}
    disk.write_file(folder / pack_name(baseline), [repr(head).encode(), *blobs])
    return len(index)


class Pack(NamedTuple):
    """A pack of prebuilt kernels.

    Attributes:
        kernels: the symbol and the compressed code of each, by its key.
        native: the compressed code of packages of native functions, by what is to be the same of these.
    """

    kernels: dict[str, tuple[bytes, bytes]]
    native: dict[str, bytes]

    def kernel(self, key: str) -> KernelObject:
        """The kernel of a key that is among those."""
        symbol, code = self.kernels[key]
        return KernelObject(symbol.decode(), (), zlib.decompress(code))


def read_pack(file: Path) -> Pack:
    """The content of a pack; nothing where it is damaged, or was made from other sources than these."""
    parts = disk.read(file)
    if not parts:
        return Pack({}, {})
    head, *blobs = parts
    index = ast.literal_eval(head.decode())
    if index["sources"] != _sources():
        logger.debug("%s was made by another version of aiodev", file)
        return Pack({}, {})
    kernels = {key: (blobs[at], blobs[at + 1]) for key, at in index["kernels"].items()}
    return Pack(kernels, {key: blobs[at] for key, at in index["native"].items()})


def are_there() -> bool:
    """Whether any kernel was compiled ahead that runs here. Blocks, like ``find_kernel``."""
    with _lock:
        return any(pack.kernels for pack in _packs())


def find_kernel(key: str) -> KernelObject | None:
    """The kernel of a key, if it was compiled ahead. Blocks: the first call reads the packs."""
    with _lock:
        return next((pack.kernel(key) for pack in _packs() if key in pack.kernels), None)


def find_native(package: NativePackage) -> bytes | None:
    """The code of a package of native functions, if it was compiled ahead. Blocks, like ``find_kernel``."""
    key = _identity(package)
    with _lock:
        return next((zlib.decompress(pack.native[key]) for pack in _packs() if key in pack.native), None)


def _identity(package: NativePackage) -> str:
    return f"{package.name} {package.key(distributions=())}"


def _sources() -> str:
    return compiled_by(*_SOURCES, distributions=())


@functools.cache
def _folder() -> Path | None:
    """The directory that the setting names, if its packs may be taken; else a warning says what the matter is."""
    if not settings.prebuilt_dir:
        return None
    baseline, folder = baseline_here(), Path(settings.prebuilt_dir)
    obstacle = distrusted(settings.prebuilt_dir) if os.path.lexists(folder) else "there is no such directory"
    if obstacle is None and not (baseline and (folder / pack_name(baseline)).exists()):
        there = ", ".join(sorted(path.name for path in folder.glob("*.kernels"))) or "nothing"
        wanted = pack_name(baseline) if baseline else "a pack for a processor of this kind"
        obstacle = f"expected {wanted} there, found {there}"
    if obstacle is None:
        return folder
    logger.warning("code that was compiled ahead is not taken from %s: %s", settings.prebuilt_dir, obstacle)
    return None


def look_for_folder() -> None:
    """Have the warning come where a device starts, and not only where the cache lacks something. Blocks; reads no pack."""
    with _lock:
        _folder()


@functools.cache
def _packs() -> tuple[Pack, ...]:
    baseline = baseline_here()
    folders = filter(None, (_folder(), _FOLDER))
    return tuple(read_pack(folder / pack_name(baseline)) for folder in folders) if baseline is not None else ()


_lock = Whole()
