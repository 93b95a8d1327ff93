"""What compiled code is made by, for the keys of disk caches: sources of this package, and the versions of what compiles.

**Problem.** Code in a disk cache outlives the sources that made it. A key that leaves one of them out finds the old code after
an upgrade, or an edit, and nobody notices.

**Invariants.**

1.  A key holds the contents of whole folders, recursively, with the names of the files: a file that is added, moved or edited
    is in it without anybody saying so. Each cache names the folders that its code comes from; a test follows the imports of
    its compiler and finds nothing outside of them.
2.  Contents are read, never times: an installer, a checkout and a copy set those as they like. To read and hash a hundred files
    takes 2 ms, once a process, where the first code is looked for and off the loop.
3.  This package's version, those of the distributions that compile, and the variables by which numba is told how to compile
    are in every key.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NUMBA", "compiled_by"]

#: The distributions behind all code that is compiled for the host.
NUMBA = ("llvmlite", "numba", "numpy")
#: Variables that change what numba compiles; its own cache ignores them.
_VARIABLES = (
    "NUMBA_BOUNDSCHECK", "NUMBA_CPU_FEATURES", "NUMBA_CPU_NAME", "NUMBA_DEBUGINFO", "NUMBA_ENABLE_AVX", "NUMBA_FULL_TRACEBACKS",
    "NUMBA_LLVM_REFPRUNE_FLAGS", "NUMBA_LLVM_REFPRUNE_PASS", "NUMBA_LOOP_VECTORIZE", "NUMBA_OPT", "NUMBA_SLP_VECTORIZE",
    "NUMBA_USE_RVSDG_FRONTEND",
)  # fmt: skip
_PACKAGE = Path(__file__).parents[1]


@functools.cache
def compiled_by(*places: str, distributions: tuple[str, ...] = NUMBA) -> str:
    """Hash of files and folders of this package, and of what compiles.

    Reads files: call it off the loop. The result is remembered for the process, whose modules do not change any more either.

    Args:
        places: paths from the package's folder: a file, or a folder with all that is below it.
        distributions: whose versions count; one that is not installed counts as absent.
    """
    import hashlib  # here, and so off the loop: it loads OpenSSL

    digest = hashlib.sha256()
    for name, content in _files(places):
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    own = sys.modules[__name__.partition(".")[0]].__version__
    settings = [(name, os.environ.get(name)) for name in _VARIABLES]
    digest.update(repr((own, _versions(distributions), settings)).encode())
    return digest.hexdigest()


def _files(places: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """The source files among the given paths, each once: their names, from the package's folder on, and what is in them."""
    if not _PACKAGE.is_dir():
        yield from _archived(places)
        return
    files: set[Path] = set()
    for place in places:
        path = _PACKAGE / place
        files.update([path] if path.suffix == ".py" else path.rglob("*.py"))
    for path in sorted(files):
        yield path.relative_to(_PACKAGE).as_posix(), path.read_bytes()


def _archived(places: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """As ``_files``, where the package is imported from a zip file.

    Raises:
        FileNotFoundError: the archive has no sources.
    """
    import zipfile

    loader = sys.modules[__name__.partition(".")[0]].__loader__
    archive = getattr(loader, "archive", None)
    if archive is None:
        raise FileNotFoundError(f"{_PACKAGE} is no folder, and no zip file: unpack the package")
    within = _PACKAGE.relative_to(archive).as_posix() + "/"
    with zipfile.ZipFile(archive) as file:
        names = {name[len(within) :]: name for name in file.namelist() if name.startswith(within) and name.endswith(".py")}
        for place in places:
            if not any(name == place or name.startswith(f"{place}/") for name in names):
                raise FileNotFoundError(f"{archive} has no source of {within}{place}: unpack the package")
        for name in sorted(names, key=lambda name: name.split("/")):
            if any(name == place or name.startswith(f"{place}/") for place in places):
                yield name, file.read(names[name])


def _versions(distributions: tuple[str, ...]) -> list[tuple[str, str | None]]:
    from importlib import metadata  # costly to import

    versions: list[tuple[str, str | None]] = []
    for name in distributions:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            versions.append((name, None))
    return versions
