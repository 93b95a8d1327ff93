"""Code that was compiled ahead for all processors of a kind: packs of object files that come with the package or an image.

**Problem.** The disk cache is empty where a program runs for the first time, and in every new container. To compile a function
of the library takes from a tenth of a second to four, after one for importing the compiler.

**Solution.** ``python -m aiodev warm-up --into`` compiles kernels for a *baseline*: the instructions that all processors of a
kind have. What the disk cache does not have is looked for in the pack of the best baseline that this processor has.

**Invariants.**

1.  Code of a pack is found by the kernel's content, types and options and by the sources that it was made from, as in the disk
    cache. The versions of numba, LLVM and NumPy by which it was made are not asked for: it refers to nothing of theirs, or
    it would not be in a pack.
2.  It computes the same numbers, bit by bit, as code for this very processor, which may be faster. So it is *provisional*: the
    compile service has the better code made meanwhile, and puts it in its place.
3.  The package's own packs are trusted as its sources are. Others are, where nobody but this user and root can write.
"""

from __future__ import annotations

import ast
import functools
import logging
import platform
import sys
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

from aiodev._backends.cpu.compile import disk_cache as disk
from aiodev._backends.cpu.compile.kernel_object import KernelObject
from aiodev._backends.cpu.machine import host_features
from aiodev._core.cache_directory import distrusted
from aiodev._core.config import settings
from aiodev._core.sources import compiled_by

__all__ = ["BASELINES", "baseline_here", "baselines_of_machine", "find", "read_pack", "target_variables", "write_pack"]

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
_SOURCES = ("_backends/cpu", "_backends/executor")
_FOLDER = Path(__file__).parents[2] / "prebuilt"


def baselines_of_machine() -> list[str]:
    """Those of processors of this kind, best last, whether or not this one has their instructions."""
    family = _MACHINES.get(platform.machine(), "none")
    return [name for name in BASELINES if name.startswith(family)]


def baseline_here() -> str | None:
    """The best baseline of this processor; None where it has none."""
    has = set(host_features().split(","))
    found = [name for name in baselines_of_machine() if has.issuperset(f"+{each}" for each in BASELINES[name])]
    return found[-1] if found else None


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
    head = {"sources": _sources(), "kernels": index}
    disk.write_file(folder / pack_name(baseline), [repr(head).encode(), *blobs])
    return len(index)


def read_pack(file: Path) -> dict[str, KernelObject]:
    """The kernels in a pack, by their keys; none where it is damaged, or was made from other sources than these."""
    parts = disk.read(file)
    if not parts:
        return {}
    head, *blobs = parts
    found = ast.literal_eval(head.decode())
    if found["sources"] != _sources():
        logger.debug("%s was made by another version of aiodev", file)
        return {}
    return {
        key: KernelObject(blobs[at].decode(), (), zlib.decompress(blobs[at + 1])) for key, at in found["kernels"].items()
    }


def find(key: str) -> KernelObject | None:
    """The kernel of a key, if it was compiled ahead. Blocks: the first call reads the packs."""
    with _lock:
        return _packs().get(key)


def _sources() -> str:
    return compiled_by(*_SOURCES, distributions=())


@functools.cache
def _packs() -> dict[str, KernelObject]:
    baseline = baseline_here()
    if baseline is None:
        return {}
    found = read_pack(_FOLDER / pack_name(baseline))
    if settings.prebuilt_dir:
        obstacle = distrusted(settings.prebuilt_dir)
        if obstacle is None:
            found |= read_pack(Path(settings.prebuilt_dir) / pack_name(baseline))
        else:
            logger.warning("kernels that were compiled ahead are not taken from %s: %s", settings.prebuilt_dir, obstacle)
    return found


_lock = threading.Lock()
