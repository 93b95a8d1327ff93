"""The native code's disk cache: damage, processes that start at once, processes that end, folders that are none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from selection import some

from aiodev._backends.cpu.backend import CPUBackend
from aiodev._core.cache_directory import UNFINISHED
from aiodev._core.config import Settings
from aiodev._core.errors import BackendUnavailableError
from aiodev._native import code_cache, native_code
from aiodev._native.package import NativePackage

CONTENT = bytes(range(256)) * 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process's native code is cached: nothing is there."""
    place = tmp_path / "native"
    monkeypatch.setattr(code_cache, "native_directory", lambda: str(place))
    return place


def never() -> bytes:
    raise AssertionError("it is made again")


def only(folder: Path) -> Path:
    """The file."""
    (path,) = folder.glob("*.o")
    return path


def flip(position: float) -> Callable[[Path], object]:
    """Change one bit, so far into the file."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        path.write_bytes(data)

    return damage


def cut(share: float) -> Callable[[Path], object]:
    """Leave so much of the file."""
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def replace(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Have something else in the file's place."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def another(path: Path) -> None:
    """Put what was made for another processor there, whole."""
    code_cache.stored("test", "another", lambda: b"other code")
    (other,) = set(path.parent.glob("*.o")) - {path}
    other.replace(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": cut(0),
    "a part of the header": cut(0.005),
    "the header alone": cut(0.02),
    "half": cut(0.5),
    "all but the end": cut(0.999),
    "more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "twice": lambda path: path.write_bytes(2 * path.read_bytes()),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "text": lambda path: path.write_text("no such code"),
    "of another": another,
    "a link to nothing": replace(lambda path: path.symlink_to("nowhere")),
    "a link to itself": replace(lambda path: path.symlink_to(path)),
    "a pipe": replace(os.mkfifo),
    **{f"a bit at {position}": flip(position) for position in (0, 0.01, 0.02, 0.03, 0.04, 0.1, 0.3, 0.5, 0.7, 0.9, 1)},
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_made_again(kind: str, folder: Path) -> None:
    """Nothing of it is used, and it is whole from then on."""
    assert code_cache.stored("test", "identity", lambda: CONTENT) == CONTENT
    path = only(folder)
    DAMAGE[kind](path)
    assert code_cache.stored("test", "identity", lambda: b"made again") == b"made again"
    assert only(folder) == path and not path.is_symlink()
    assert code_cache.stored("test", "identity", never) == b"made again"


def test_a_folder_in_the_files_place_costs_time_alone(folder: Path) -> None:
    """The code is made each time."""
    code_cache.stored("test", "identity", lambda: CONTENT)
    path = only(folder)
    path.unlink()
    path.mkdir()
    for _ in range(2):
        assert code_cache.stored("test", "identity", lambda: CONTENT) == CONTENT
    assert {each.name for each in folder.iterdir()} == {path.name, "lock"}


def test_what_cannot_be_kept_is_made_each_time(folder: Path) -> None:
    """A folder that cannot be is no error."""
    folder.write_text("not a folder")
    for content in (b"one", b"two"):
        assert code_cache.stored("test", "identity", lambda content=content: content) == content


def test_a_disk_that_is_full_costs_time_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written whole is not left, under no name."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert code_cache.stored("test", "identity", lambda: CONTENT) == CONTENT
        assert {each.name for each in folder.iterdir()} == {"lock"}
    assert code_cache.stored("test", "identity", lambda: CONTENT) == CONTENT
    assert only(folder)


def test_each_identity_has_its_file(folder: Path) -> None:
    """What was made for one is not found for another."""
    for identity in ("one", "two"):
        assert code_cache.stored("test", identity, identity.encode) == identity.encode()
    for identity in ("one", "two"):
        assert code_cache.stored("test", identity, never) == identity.encode()
    assert len(list(folder.glob("*.o"))) == 2


MAKER = """
import sys
from aiodev._native import code_cache

def make():
    print("making", flush=True)
    sys.stdin.read()  # until it is closed
    return b"made"

print("here", flush=True)
print(code_cache.stored("test", "identity", make).decode(), flush=True)
"""


def begin(cache: Path) -> subprocess.Popen[str]:
    """A process that wants the code, and is about to look for it."""
    made = subprocess.Popen(
        [sys.executable, "-c", MAKER],
        env={**os.environ, "AIODEV_CACHE_DIR": str(cache)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert line(made) == "here"
    return made


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_that_start_at_once_make_it_once(tmp_path: Path) -> None:
    """One makes it, and the others wait for that."""
    first = begin(tmp_path)
    assert line(first) == "making"
    others = [begin(tmp_path) for _ in range(3)]
    said = [first.communicate()[0], *(other.communicate()[0] for other in others)]  # which closes what they read
    assert said == ["made\n"] * 4


def test_a_process_that_was_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Its lock is free, and what it has left is cleared away by who makes the code."""
    first = begin(tmp_path)
    assert line(first) == "making"
    left = tmp_path / "native" / f"{UNFINISHED}left"
    left.write_bytes(b"half of it")
    second = begin(tmp_path)
    first.kill()
    first.communicate()
    assert line(second) == "making"
    assert second.communicate()[0] == "made\n"
    assert not left.exists()


def test_a_fork_while_it_is_made_keeps_nobody_waiting(folder: Path) -> None:
    """The lock is free once its holder is through, though a child lives that has its descriptor."""
    children: list[int] = []
    gate = os.pipe()

    def make() -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other threads, which the child does without
            child = os.fork()
        if child == 0:
            os.close(gate[1])
            os.read(gate[0], 1)
            os._exit(0)
        children.append(child)
        return CONTENT

    code_cache.stored("test", "identity", make)
    only(folder).unlink()
    try:
        with code_cache.folder_lock(folder) as locked:
            assert locked
    finally:
        os.close(gate[1])
        os.waitpid(children[0], 0)


def test_who_waits_for_the_lock_gets_it_when_it_is_free(folder: Path) -> None:
    """A thread waits in its place."""
    found: list[bool] = []

    def wait() -> None:
        with code_cache.folder_lock(folder) as locked:
            found.append(locked)

    waiter = threading.Thread(target=wait)
    with code_cache.folder_lock(folder) as locked:
        assert locked
        waiter.start()
        while not any(thread.name == "aiodev-cache-lock" for thread in threading.enumerate()):
            os.sched_yield()
        assert not found
    waiter.join(60)
    assert found == [True]


def test_who_has_waited_too_long_leaves_no_lock_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the thread gets that waited in its place, it lets go of."""
    monkeypatch.setattr(code_cache, "_PATIENCE", 0.0)
    with code_cache.folder_lock(folder) as first, code_cache.folder_lock(folder) as second:
        assert (first, second) == (True, False)
        threads = [thread for thread in threading.enumerate() if thread.name == "aiodev-cache-lock"]
    for thread in threads:
        thread.join(60)
    with code_cache.folder_lock(folder) as locked:
        assert locked


START = """
import asyncio, sys

events = []
sys.addaudithook(lambda event, _: events.append(event) if event in STARTS else None)
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
import aiodev

async def main():
    async with aiodev.Stream("cpu") as stream:
        print(await stream.call(lambda: "called"), aiodev.get_backend("cpu").executor_kind, events)

asyncio.run(main())
"""


def start(cache: Path, folder: Path, compiler: str = "late") -> str:
    environment = {**os.environ, "AIODEV_CACHE_DIR": str(cache), "AIODEV_EXECUTOR": "native"}
    environment["AIODEV_COMPILER_START"] = compiler
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def made(cache: Path) -> dict[str, Path]:
    """The files, by what the code is of: the executor, and calls."""
    return {path.name.rpartition("-")[0]: path for path in sorted((cache / "native").glob("*.o"))}


def test_a_first_start_starts_no_other_process(tmp_path: Path) -> None:
    """So none is left behind by one that is interrupted, and none runs what lies about."""
    assert start(tmp_path, tmp_path) == "called native []"
    assert set(made(tmp_path)) - {"kernel-dispatch-native"} == {"cpu-executor"}  # that is of a thread that may be late


def test_a_compile_worker_starts_with_the_device_where_nothing_is_cached(tmp_path: Path) -> None:
    """It imports its compiler meanwhile. Where there are kernels, none may be needed."""
    assert start(tmp_path, tmp_path, "auto").count("subprocess.Popen") == 1
    kept = tmp_path / "cpu" / "ab" / "kernel.bin"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.write_bytes(b"")
    assert start(tmp_path, tmp_path, "auto") == "called native []"
    assert start(tmp_path, tmp_path, "early").count("subprocess.Popen") == 1


@pytest.mark.parametrize("kind", some(["half", "empty", "a bit at 0.5"]))
def test_the_device_starts_with_a_damaged_file(kind: str, tmp_path: Path) -> None:
    """As if nothing were there, and the file is whole again."""
    start(tmp_path, tmp_path)
    path = made(tmp_path)["cpu-executor"]
    whole = path.read_bytes()
    DAMAGE[kind](path)
    assert start(tmp_path, tmp_path) == "called native []"
    assert path.read_bytes() == whole


def test_code_that_cannot_be_made_is_a_reason_for_the_portable_executor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning; unless the native executor was asked for."""

    def refuse(package: NativePackage) -> native_code.NativeCode:
        raise native_code.NativeCodeError("no such processor")

    monkeypatch.setattr(NativePackage, "load", refuse)
    backend = CPUBackend(Settings.from_environment({"AIODEV_EXECUTOR": "auto"}))
    with caplog.at_level(logging.WARNING, "aiodev"):
        backend.start()
    backend.stop()
    (record,) = caplog.records
    assert "no such processor" in record.getMessage()
    assert backend.executor_kind == "python" and "no such processor" in backend.executor_reason
    asked = CPUBackend(Settings.from_environment({"AIODEV_EXECUTOR": "native"}))
    with pytest.raises(BackendUnavailableError, match="no such processor"):
        asked.start()
