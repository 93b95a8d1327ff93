"""Code that was compiled ahead: packs, who takes what from them, and what becomes of it."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_entry import needs_compiler, spec_of

import aiodev
from aiodev._backends.cpu.code_cache import EXECUTOR
from aiodev._backends.cpu.compile import kernel_code, prebuilt
from aiodev._core.cache_directory import cache
from aiodev._core.config import settings

pytestmark = pytest.mark.skipif(prebuilt.baseline_here() is None, reason="no baseline is known for this processor")
KEY = "ab" * 32


def scale(i: int, factor: float, x: Any) -> None:
    x[i] = factor * x[i]


def raises(i: int, x: Any) -> None:
    if x[i] > 1:
        raise ValueError("bad", x[i])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with one kernel, for this processor's baseline."""
    scratch, folder = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("packs")
    kernel_code.compile_kernel(spec_of(scale, 1, (np.float64(2), np.ones(4)), key=KEY), str(scratch / "0"))
    kernel_code.compile_kernel(spec_of(raises, 1, (np.ones(4),), key="cd" * 32), str(scratch / "1"))
    baseline = prebuilt.baseline_here()
    assert baseline is not None
    kernels = {KEY: scratch / "0", "cd" * 32: scratch / "1", "ef" * 32: scratch / "2"}
    assert prebuilt.write_pack(folder, baseline, kernels) == 1, "one needs numba, one could not be compiled"
    return next(folder.iterdir())


@pytest.fixture
def taken_from(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That pack is where this process looks."""
    monkeypatch.setattr(prebuilt, "settings", dataclasses.replace(settings, prebuilt_dir=str(made.parent)))
    forget()
    yield made.parent
    forget()


def forget() -> None:
    prebuilt._folder.cache_clear()
    prebuilt._packs.cache_clear()


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "files", "reason"),
    [
        (None, (), "there is no such directory"),
        (0o777, (), "can be written by other users"),
        (0o700, ("x86-64-v9-cpython-311.kernels", "README"), "found x86-64-v9-cpython-311.kernels"),
        (0o700, (), "found nothing"),
    ],
)
def test_a_directory_that_is_no_use_is_told_of_once(
    mode: int | None, files: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Where a device starts, whether or not the cache has all that it needs; what comes with the package is found."""
    folder = tmp_path / "packs"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
        for name in files:
            (folder / name).write_text("")
    monkeypatch.setattr(prebuilt, "settings", dataclasses.replace(settings, prebuilt_dir=str(folder)))
    forget()
    try:
        prebuilt.look_for_folder()
        assert len(caplog.messages) == 1 and str(folder) in caplog.text and reason in caplog.text
        assert prebuilt.find_kernel(KEY) is None
        assert len(caplog.messages) == 1
    finally:
        forget()


@needs_compiler
def test_a_start_tells_of_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """With a cache that has everything, too."""
    program = "import aiodev; aiodev.init_blocking('cpu')"
    environment = os.environ | {"AIODEV_PREBUILT_DIR": str(tmp_path / "typo"), "AIODEV_EXECUTOR": "native"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stderr.count("\n") == 1 and "typo: there is no such directory" in done.stderr


@needs_compiler
def test_a_pack_gives_back_what_was_put_in(made: Path) -> None:
    """Kernels by their keys, and the code of the executor and of calls."""
    pack = prebuilt.read_pack(made)
    assert pack.kernels.keys() == {KEY} and len(pack.native) >= 2
    assert not pack.kernel(KEY).needs_numba
    assert made.name.startswith(str(prebuilt.baseline_here())) and sys.implementation.cache_tag in made.name


@needs_compiler
def test_a_pack_that_is_damaged_or_of_other_sources_is_empty(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then everything is compiled, as without it."""
    file, whole = tmp_path / "pack", made.read_bytes()
    file.write_bytes(whole[:-1])
    assert prebuilt.read_pack(file) == ({}, {})
    assert prebuilt.read_pack(tmp_path / "nothing") == ({}, {})
    file.write_bytes(whole)
    assert prebuilt.read_pack(file).kernels
    monkeypatch.setattr(prebuilt, "_sources", lambda: "others")
    assert prebuilt.read_pack(file) == ({}, {})


@needs_compiler
def test_what_is_not_in_the_cache_is_taken_from_a_pack(
    taken_from: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process keeps it: code for this very processor that is in the cache later is for the next one."""
    spec = spec_of(scale, 1, (np.float64(2), np.ones(4)), key=KEY)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_code, "_loaded", {})
        patch.setattr(kernel_code, "_provisional", set())
        found = kernel_code.cached_kernel(spec, str(tmp_path))
        assert found is not None and kernel_code.is_provisional(spec)
        kernel_code.compile_kernel(spec, str(tmp_path))
        assert kernel_code.cached_kernel(spec, str(tmp_path)) == found
    monkeypatch.setattr(kernel_code, "_loaded", {})
    assert kernel_code.cached_kernel(spec, str(tmp_path)) not in (None, found)
    assert not kernel_code.is_provisional(spec)


@needs_compiler
@pytest.mark.skipif(os.name != "posix", reason="modes of files mean something else here")
def test_packs_that_others_could_have_written_are_refused(
    taken_from: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They hold machine code. A warning says why."""
    taken_from.chmod(0o777)
    try:
        with caplog.at_level(logging.WARNING, "aiodev"):
            assert prebuilt.find_kernel(KEY) is None and prebuilt.find_native(EXECUTOR) is None
    finally:
        taken_from.chmod(0o700)
    (record,) = caplog.records
    assert "can be written by other users" in record.getMessage()


PROGRAM = """
import hashlib, sys, threading, time
import numpy as np
import aiodev
from aiodev import profiler, kernels as k
from aiodev._kernel.compile.service import service
from aiodev._kernel.dispatch.native_functions import are_there

improved, submit = threading.Semaphore(0), service.improvers.submit
service.improvers.submit = lambda job, done: submit(job, lambda error: improved.release())
x = aiodev.asarray(np.random.default_rng(1).standard_normal((37, 53)).astype("f4"), device="cpu")

def results():
    return [f(x).numpy_blocking().tobytes() for f in (k.exp, k.sum, lambda x: k.sum(x, axis=0))]

first, found = results(), profiler.counters()
while not are_there():
    time.sleep(0.01)
emits = "aiodev._native.emit" in sys.modules
loaded, heavy = found["kernels_loaded"], "numba" in sys.modules
if sys.argv[1] == "wait":
    for _ in range(loaded):
        assert improved.acquire(timeout=240)
    assert results() == first
print(hashlib.sha256(b"".join(first)).hexdigest(), found["kernels_compiled"], loaded, heavy, emits)
"""


def run(arguments: list[str], **environment: str) -> str:
    environment = {"PYTHONPATH": str(Path(aiodev.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_a_program_with_an_empty_cache(tmp_path: Path) -> None:
    """It compiles nothing, computes what one computes that compiles, and has better code made for the next."""
    program, packs = tmp_path / "program.py", tmp_path / "packs"
    program.write_text(PROGRAM)
    oldest = prebuilt.baselines_of_machine()[0]
    here = {"AIODEV_CACHE_DIR": str(tmp_path / "cache")}
    names = ["exp", "sum"]
    said = run(["-m", "aiodev", "warm-up", *names, "--dtype", "float32", "--into", str(packs), "--target", oldest], **here)
    assert f"{oldest}: " in said
    compiled = run([str(program), ""], **here).split()
    assert compiled[1] == "0" and compiled[3:] == ["False", "False"]
    (pack,) = packs.iterdir()
    pack.rename(pack.with_name(prebuilt.pack_name(str(prebuilt.baseline_here()))))  # any processor runs an older one's
    elsewhere = {"AIODEV_CACHE_DIR": str(tmp_path / "other"), "AIODEV_PREBUILT_DIR": str(packs)}
    assert run([str(program), "wait"], **elsewhere).split() == compiled
    kept = {path.name.partition("-")[0] for path in (tmp_path / "other").rglob("*.bin")}
    assert {"exp", "sum"} <= kept


COMMON = """
import asyncio, sys
import numpy as np
import aiodev
from aiodev import profiler, kernels as k

def array(*shape):
    return aiodev.asarray(np.random.default_rng(1).standard_normal(shape).astype("f4"))

async def main():
    async with aiodev.Stream("cpu"):
        arrays = [array(100), array(300_000), array(3, 5), array(300, 400), array(2000, 10)]
        for x in arrays:
            for function in (k.add, k.multiply):
                for other in (x, x[:1], 2.0):
                    await function(x, other).numpy()
            for function in (k.sum, k.softmax, k.argmax, k.sort):
                for options in ({}, {"axis": 0}):
                    await function(x, **options).numpy()
        for a, b in ((array(8, 8), array(8, 8)), (array(200, 300), array(300, 100)), (array(300, 200), array(200))):
            await k.matmul(a, b).numpy()

asyncio.run(main())
print(profiler.counters()["kernels_compiled"], "numba" in sys.modules)
"""


@needs_compiler
@pytest.mark.exhaustive  # compiles some sixty kernels
def test_common_functions_with_an_empty_cache(tmp_path: Path) -> None:
    """Where the package has packs, the start of the device and the first results of any size wait for no compiler."""
    program, package = tmp_path / "program.py", tmp_path / "site" / "aiodev"
    program.write_text(COMMON)
    shutil.copytree(Path(aiodev.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "prebuilt"))
    names = ["add", "multiply", "sum", "softmax", "matmul", "argmax", "sort"]
    target, into = str(prebuilt.baseline_here()), str(package / "prebuilt")
    command = ["-m", "aiodev", "warm-up", *names, "--dtype", "float32", "--into", into, "--target", target]
    run(command, AIODEV_CACHE_DIR=cache.directory() or str(tmp_path / "cache"))  # where other tests have compiled most of them
    there = {"AIODEV_CACHE_DIR": str(tmp_path / "other"), "PYTHONPATH": str(package.parent)}
    assert run([str(program)], **there).split() == ["0", "False"]  # better code is made meanwhile, which nobody waits for


@needs_compiler
def test_a_package_brings_its_own_packs(made: Path, tmp_path: Path) -> None:
    """In its folder ``prebuilt``, where ``pyproject.toml`` has a wheel take them from."""
    package = tmp_path / "aiodev"
    shutil.copytree(Path(aiodev.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "prebuilt"))
    (package / "prebuilt").mkdir()
    shutil.copy(made, package / "prebuilt")
    program = tmp_path / "program.py"
    program.write_text(f"from aiodev._backends.cpu.compile import prebuilt\nprint(prebuilt.find_kernel({KEY!r}) is not None)")
    assert run([str(program)], PYTHONPATH=str(tmp_path)).split() == ["True"]


def test_baselines_are_levels() -> None:
    """Each has all that the one before it has; this processor's is among those of its kind."""
    names = prebuilt.baselines_of_machine()
    assert prebuilt.baseline_here() in names
    for one, other in zip(names, names[1:], strict=False):
        assert set(prebuilt.BASELINES[one]) < set(prebuilt.BASELINES[other])
