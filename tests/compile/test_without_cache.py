"""Programs that can keep no code: what they compute, what they say, and what they leave behind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_entry import needs_compiler

import aiodev
from aiodev._core.cache_directory import cache
from aiodev._native import code_cache

PROGRAM = """
import aiodev
from aiodev import profiler

TEXT = "negative " * 1000  # so that the code takes more than a page

@aiodev.kernel
def raised(i, x):
    if x[i] < 0:
        raise ValueError(TEXT)
    x[i] = x[i] ** 2 + 1

x = aiodev.full(1, 3.0, device="cpu")
raised[1](x)
found = x.numpy_blocking()[0]
executor = aiodev.get_backend("cpu").executor.kind
print(found, executor, profiler.counters()["kernels_compiled"], profiler.counters()["kernels_loaded"])
"""

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def without_files() -> None:
    """Let this process write no file: the disk is full."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def with_small_files() -> None:
    """Let this process write no more than a page to a file: the disk has as good as no room."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def without_privilege() -> None:
    """Let modes hold for root as well, once another program has been started."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0):
        os._exit(77)


def kind() -> str:
    """The executor that runs here."""
    aiodev.init_blocking("cpu")
    found: str = aiodev.get_backend("cpu").executor.kind
    return found


def run(directory: Path, prepare: Callable[[], None], **environment: str) -> tuple[list[str], str]:
    """What the program prints, and what it says on standard error."""
    root = str(Path(aiodev.__file__).parents[1])
    environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, preexec_fn=prepare, capture_output=True, text=True, timeout=300
    )
    if done.returncode == 77:
        pytest.skip("root cannot be kept from writing here")
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


pytestmark = [
    needs_compiler,
    pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that lets a process be kept from writing"),
]


def test_a_directory_that_can_only_be_read(cache_without_kernels: Path, tmp_path: Path) -> None:
    """What is there is used; what is not is compiled by workers as ever, and gone when the program ends."""
    (temporary := tmp_path / "temporary").mkdir()
    places = [cache_without_kernels, *(path for path in cache_without_kernels.rglob("*") if path.is_dir())]
    before = sorted(cache_without_kernels.rglob("*"))
    for place in places:
        place.chmod(0o500)
    try:
        for _ in range(2):
            printed, said = run(cache_without_kernels, without_privilege, TMPDIR=str(temporary))
            assert printed == ["10.0", kind(), "1", "0"]
            assert said.count("AIODEV_CACHE_DIR") == said.count("\n") == 1 and "Permission denied" in said
    finally:
        for place in places:
            place.chmod(0o700)
    assert sorted(cache_without_kernels.rglob("*")) == before
    assert not list(temporary.iterdir())


def test_a_full_disk_with_code_on_it(cache_without_kernels: Path) -> None:
    """The native executor's code is there; a kernel's is compiled in memory."""
    printed, said = run(cache_without_kernels, without_files)
    assert printed == ["10.0", kind(), "1", "0"]
    assert said.count("AIODEV_CACHE_DIR") == said.count("\n") == 1 and "File too large" in said


def test_a_disk_that_fills_up(cache_without_kernels: Path) -> None:
    """Neither a worker nor this process can keep a kernel; it runs, and there is one warning."""
    printed, said = run(cache_without_kernels, with_small_files)
    assert printed == ["10.0", kind(), "1", "0"]
    assert said.count("AIODEV_CACHE_DIR") == said.count("\n") == 1 and "cannot be kept" in said
    assert not list(cache_without_kernels.rglob("*.bin")) and not list(cache_without_kernels.rglob(".*"))


def test_a_full_disk(tmp_path: Path) -> None:
    """Without any code on it kernels run all the same."""
    printed, said = run(tmp_path / "cache", without_files, AIODEV_EXECUTOR="python")
    assert printed == ["10.0", "python", "1", "0"]
    assert said.count("AIODEV_CACHE_DIR") == said.count("\n") == 1 and "File too large" in said


def test_no_directory_and_no_home(tmp_path: Path) -> None:
    """As of a container's user of whom nothing is known."""
    printed, said = run(
        Path(), lambda: None, AIODEV_CACHE_DIR="", HOME="/proc/nowhere", AIODEV_EXECUTOR="python", TMPDIR=str(tmp_path)
    )
    assert printed == ["10.0", "python", "1", "0"]
    assert said.count("AIODEV_CACHE_DIR") == said.count("\n") == 1 and "/proc/nowhere" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kept", ["nowhere", "where nothing can be written"])
def test_native_code_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    """It is made in memory; that it is not all there is remembered."""
    monkeypatch.setattr(cache, "_warned", True)
    monkeypatch.setattr(cache, "incomplete", False)

    def refuse(*arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    for writer in ("make_folder", "write_whole"):
        monkeypatch.setattr(code_cache, writer, refuse)
    monkeypatch.setattr(code_cache, "native_directory", lambda: "" if kept == "nowhere" else str(tmp_path))
    assert code_cache.stored("some", "identity", lambda: b"code") == b"code"
    assert cache.incomplete is (kept != "nowhere")
    assert not list(tmp_path.iterdir())
