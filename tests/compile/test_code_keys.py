"""Keys of compiled code: whatever it is made by is in them, so that no edit and no upgrade finds old code."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from kernel_entry import needs_compiler

import aiodev
from aiodev._backends.cpu import code_cache as cpu_codecache
from aiodev._backends.cuda import code_cache as cuda_codecache
from aiodev._backends.cuda.compile import image
from aiodev._core import sources
from aiodev._core.backend.interface import KernelSpec
from aiodev._kernel.compile import keys as cache
from aiodev._kernel.compile.snapshot import capture

PACKAGE = Path(aiodev.__file__).parent


def body(i: int, x: Any) -> None:
    x[i] = 1


def kernel_key() -> str:
    return cache.cache_key(KernelSpec("body", body, 1, ("A1f8C",)), capture(body))


def cpu_kernel() -> str:
    from aiodev._backends.cpu.compile import kernel_code

    return kernel_key() + kernel_code.target()


def cuda_kernel() -> str:
    image.made_by.cache_clear()
    return kernel_key() + image.made_by()


#: Each kind of code: its key, the folders and files that it comes from, and the modules that compile it.
KINDS: dict[str, tuple[Callable[[], str], tuple[str, ...], tuple[str, ...]]] = {
    "kernels of the CPU": (
        cpu_kernel,
        ("_kernel", "lang", "_backends/compile", "_backends/cpu", "_backends/executor", "_native"),
        ("_backends/cpu/compile/compiler.py",),
    ),
    "kernels of CUDA": (
        cuda_kernel,
        ("_kernel", "lang", "_backends/compile", "_backends/cuda", "_backends/executor", "_native"),
        ("_backends/cuda/compile/compiler.py",),
    ),
    "the CPU's executor": (
        cpu_codecache.EXECUTOR.key,
        ("_native", "_backends/executor", "_backends/cpu/structs.py", "_backends/cpu/tuning.py", "_backends/cpu/executor"),
        ("_backends/cpu/executor/__init__.py",),
    ),
    "the CUDA executor": (
        cuda_codecache.EXECUTOR.key,
        ("_native", "_backends/executor", "_backends/cuda/structs.py", "_backends/cuda/tuning.py", "_backends/cuda/executor"),
        ("_backends/cuda/executor/__init__.py",),
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What is remembered of the sources is of this test."""
    yield
    sources.compiled_by.cache_clear()
    image.made_by.cache_clear()


def current(kind: str) -> str:
    """The key, from the sources as they are now."""
    if "CPU" in kind and kind.startswith("kernels"):
        pytest.importorskip("numba")
    sources.compiled_by.cache_clear()
    return KINDS[kind][0]()


def files_of(folder: Path, places: tuple[str, ...]) -> list[Path]:
    return [f for place in places for f in ([folder / place] if place.endswith(".py") else (folder / place).rglob("*.py"))]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that the keys are made of."""
    folder = tmp_path / "aiodev"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    monkeypatch.setattr(sources, "_PACKAGE", folder)
    return folder


@each_kind
def test_every_source_is_in_the_key(kind: str, copy: Path) -> None:
    """Edited by a comment, each file changes it; put back, it is as before."""
    before = current(kind)
    found = files_of(copy, KINDS[kind][1])
    assert len(found) > 10
    for path in found:
        content = path.read_bytes()
        path.write_bytes(content + b"# edited\n")
        assert current(kind) != before, path
        path.write_bytes(content)
    assert current(kind) == before


@each_kind
def test_files_that_come_go_or_move_are_in_the_key(kind: str, copy: Path) -> None:
    """At any depth of a folder, whatever they are called."""
    before = current(kind)
    folder = next(copy / place for place in KINDS[kind][1] if not place.endswith(".py"))
    inner = folder / "inner"
    inner.mkdir()
    (inner / "new.py").write_text("")
    added = current(kind)
    (inner / "new.py").rename(inner / "other.py")
    assert len({before, added, current(kind)}) == 3


@each_kind
def test_what_compiles_is_in_the_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions of this package, of numba, llvmlite and NumPy, and variables that change what numba does."""
    keys = [current(kind)]
    with monkeypatch.context() as patched:
        patched.setattr(aiodev, "__version__", "99")
        keys.append(current(kind))
    version = metadata.version
    for distribution in ("numba", "llvmlite", "numpy"):
        with monkeypatch.context() as patched:
            patched.setattr(metadata, "version", lambda name, d=distribution: "99" if name == d else version(name))
            keys.append(current(kind))
    with monkeypatch.context() as patched:
        patched.setenv("NUMBA_OPT", "1")
        keys.append(current(kind))
    assert len(set(keys)) == 6


@pytest.mark.parametrize("distribution", ["numba-cuda", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink", "nvidia-nvvm"])
def test_the_cuda_toolkit_is_in_the_key(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip installed of it, under each of its names."""
    version, before = metadata.version, current("kernels of CUDA")
    monkeypatch.setattr(metadata, "version", lambda name: "99" if name == distribution else version(name))
    assert current("kernels of CUDA") != before


def test_a_toolkit_that_pip_has_not_installed_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the version that its folder says."""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    keys = [current("kernels of CUDA")]
    for version in ("12.4", "12.9"):
        (tmp_path / "version.json").write_text(version)
        keys.append(current("kernels of CUDA"))
    assert len(set(keys)) == 3


@each_kind
def test_nothing_that_compiles_is_imported_from_elsewhere(kind: str) -> None:
    """The compiler's imports, followed through the package, end in what the key holds, or in the core, which holds no code."""
    _, places, todo = KINDS[kind]
    hashed = {path.relative_to(PACKAGE).as_posix() for path in files_of(PACKAGE, places)}
    # Packages name their backend, and the caches keep what was compiled.
    caches = "cpu/__init__.py", "cuda/__init__.py", "executor/code_cache.py", "cpu/code_cache.py", "cuda/code_cache.py"
    aside = {f"_backends/{name}" for name in caches}
    found: set[str] = set()
    pending = list(todo)
    while pending:
        path = pending.pop()
        if path not in found | aside:
            found.add(path)
            pending += imports(PACKAGE / path)
    assert len(found) > 10
    assert found - hashed == set()


def imports(path: Path) -> Iterator[str]:
    """Files of the package that a module of it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "aiodev":
            base = PACKAGE.joinpath(*node.module.split(".")[1:])
            for candidate in (base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)):
                if candidate.exists() and not candidate.is_relative_to(PACKAGE / "_core"):
                    yield candidate.relative_to(PACKAGE).as_posix()
            if (base / "__init__.py").exists() and base != PACKAGE:
                yield (base / "__init__.py").relative_to(PACKAGE).as_posix()


PROGRAM = """
import aiodev
from aiodev import lang, profiler

@aiodev.kernel
def raised(i, x):
    x[i] = lang.pow(x[i], 2.0)

x = aiodev.full(1, -2.0, device="cpu")
raised[1](x)
print(x.numpy_blocking()[0], profiler.counters()["kernels_loaded"], profiler.counters()["kernels_compiled"])
"""

@needs_compiler
def _archived(folder: Path, package: Path = PACKAGE) -> Path:
    """A zip file of the package's sources."""
    made = folder / "application.pyz"
    with zipfile.ZipFile(made, "w") as file:
        for place, _, names in os.walk(package, followlinks=True):
            for name in names:
                if name.endswith(".py"):
                    file.write(os.path.join(place, name), Path("aiodev", os.path.relpath(os.path.join(place, name), package)))
    return made


def test_a_package_in_a_zip_file_has_the_same_keys(tmp_path: Path) -> None:
    """What was compiled for the one is found by the other, and kernels run there."""
    program = """
import aiodev
from aiodev._core.sources import compiled_by
from aiodev._kernel.compile.keys import SOURCES

@aiodev.kernel
def seven(i, x):
    x[i] = 7

x = aiodev.zeros(3, device="cpu")
seven[3](x)
print(compiled_by(*SOURCES), x.numpy_blocking().tolist(), aiodev.__file__)
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    archive = _archived(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(sources.compiled_by(*cache.SOURCES)) and "7.0, 7.0, 7.0" in done.stdout
    assert str(archive) in done.stdout


def test_a_zip_file_without_sources_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does any other place that is no folder."""
    (tmp_path / "empty").mkdir()
    archive = _archived(tmp_path, tmp_path / "empty")
    monkeypatch.setattr(sources, "_PACKAGE", archive / "aiodev")
    for loader in (zipimport.zipimporter(str(archive)), None):
        monkeypatch.setattr(aiodev, "__loader__", loader)
        with pytest.raises(FileNotFoundError, match="unpack the package"):
            sources.compiled_by.__wrapped__("lang")


def test_an_edit_of_the_language_reaches_kernels_that_were_compiled(
    tmp_path: Path, cache_without_kernels: Path
) -> None:
    """A second process loads nothing that the first has compiled with what a function of the language was then."""
    folder = tmp_path / "copy"
    shutil.copytree(PACKAGE, folder / "aiodev", ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run() -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(folder), "AIODEV_CACHE_DIR": str(cache_without_kernels)}
        command = [sys.executable, str(program)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run() == ["4.0", "0", "1"]
    assert run() == ["4.0", "1", "0"]
    source = folder / "aiodev" / "lang" / "numeric.py"
    source.write_text(source.read_text() + "# edited\n")
    assert run() == ["4.0", "0", "1"]
