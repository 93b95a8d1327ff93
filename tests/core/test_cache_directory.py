"""The directory of compiled code: whose it may be, and what happens where there is none (invariants of ``cache_directory``)."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aiodev
from aiodev._core import cache_directory
from aiodev._core.cache_directory import Cache, write_whole

ROOT = str(Path(aiodev.__file__).parents[1])
#: Users that nobody is.
SOMEBODY, OTHER = 5001, 5002

needs_posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners and modes to look at here")
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a directory to another user"
)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Path], Cache]]:
    """Makes decisions, whose private directories go when the test ends."""
    made: list[Cache] = []
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(cache_directory.atexit, "register", lambda function: function)

    def of(wanted: Path) -> Cache:
        made.append(Cache(str(wanted)))
        return made[-1]

    yield of
    for cache in made:
        cache._remove()
    assert not list(temporary.iterdir())


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory for the temporary files of all users; pytest's own, and what TMPDIR names, may be for one."""
    shared = next((place for place in (tempfile.gettempdir(), "/tmp", "/var/tmp") if _all_may_enter(place)), None)
    if shared is None:
        pytest.skip("no directory for temporary files is everybody's")
    folder = Path(tempfile.mkdtemp(dir=shared))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def _all_may_enter(place: str) -> bool:
    return all(mode(way) & stat.S_IXOTH for way in (Path(place).resolve(), *Path(place).resolve().parents))


def mode(path: str | Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def warning(caplog: pytest.LogCaptureFixture) -> str:
    """The one warning that there was."""
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    return record.getMessage()


@needs_posix
def test_what_is_made_is_for_its_owner_alone(make: Callable[[Path], Cache], tmp_path: Path) -> None:
    """Whatever the mask of the process allows, for the directory and those that lead to it (1)."""
    before = os.umask(0)
    try:
        found = make(tmp_path / "one" / "two").directory()
    finally:
        os.umask(before)
    assert found == os.path.realpath(tmp_path / "one" / "two")
    assert mode(found) == mode(tmp_path / "one") == 0o700


def test_a_directory_of_ones_own_is_used_silently(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that others may read is no less one's own (1)."""
    (tmp_path / "cache").mkdir(mode=0o755)
    assert make(tmp_path / "cache").directory() == os.path.realpath(tmp_path / "cache")
    assert not caplog.records


@needs_posix
@pytest.mark.parametrize("permissions", [0o777, 0o1777, 0o757])
def test_a_directory_that_others_can_write_to_is_not_used(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture, permissions: int
) -> None:
    """A private one is, and a warning says why; what others have put there is not found (1, 2, 4)."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(permissions)
    (shared / "planted").write_text("code")
    cache = make(shared)
    private = cache.directory()
    assert cache.directory() == private != str(shared)
    assert mode(private) == 0o700 and os.listdir(private) == []
    text = warning(caplog)
    assert all(part in text for part in (str(shared), private, "AIODEV_CACHE_DIR", f"mode {permissions:04o}"))


@needs_root
def test_a_directory_of_another_user_is_not_used(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by root either, whom the user waits for (1)."""
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o700)
    (planted / "code").write_text("code")
    os.chown(planted, SOMEBODY, SOMEBODY)
    assert os.listdir(make(planted).directory()) == []
    assert f"{planted} belongs to user {SOMEBODY}" in warning(caplog)


@needs_root
def test_nothing_is_made_in_the_home_of_another_user(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who could rename it, and put another in its place; and who could not use what root has made there (1)."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, SOMEBODY, SOMEBODY)
    make(home / ".cache" / "aiodev").directory()
    assert os.listdir(home) == []
    assert f"{home} belongs to user {SOMEBODY}" in warning(caplog)


@needs_root
def test_a_link_of_another_user_is_not_followed(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even to a directory of this user, into which nobody has asked to put anything (1)."""
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    os.lchown(tmp_path / "link", SOMEBODY, SOMEBODY)
    make(tmp_path / "link").directory()
    assert f"{tmp_path / 'link'} is a link of user {SOMEBODY}" in warning(caplog)


def test_a_link_of_ones_own_is_followed(make: Callable[[Path], Cache], tmp_path: Path) -> None:
    """Once: the answer is where it leads, wherever it leads later (1)."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("elsewhere")
    assert make(tmp_path / "link").directory() == os.path.realpath(tmp_path / "elsewhere")


@needs_posix
@pytest.mark.parametrize("permissions", [0o777, 0o1777])
def test_what_leads_there_may_be_shared_only_with_the_sticky_bit(
    make: Callable[[Path], Cache], tmp_path: Path, permissions: int
) -> None:
    """In the directory for temporary files nobody can rename what is another's; elsewhere somebody could (1)."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(permissions)
    found = make(shared / "cache").directory()
    assert (found == os.path.realpath(shared / "cache")) is (permissions == 0o1777)


def test_a_file_is_no_directory(
    make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs the cache, not the program (2)."""
    (tmp_path / "file").write_text("")
    assert os.path.isdir(make(tmp_path / "file").directory())
    assert "no directory" in warning(caplog)


@pytest.mark.parametrize("full", ["the directory", "the directory, and that for temporary files"])
def test_a_full_disk(
    make: Callable[[Path], Cache],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    full: str,
) -> None:
    """What was kept is found by links in a private directory (2); where there is no room either, it is only read (3)."""
    wanted = tmp_path / "cache"
    (wanted / "cpu").mkdir(parents=True, mode=0o700)
    (wanted / "cpu" / "kernel.bin").write_text("code")
    (wanted / "cpu" / "kernel.bin").chmod(0o600)

    def probe(directory: str, probe: Callable[[str], None] = cache_directory._probe) -> None:
        if directory == str(wanted) or "temporary files" in full:
            raise OSError(28, "No space left on device")
        probe(directory)

    monkeypatch.setattr(cache_directory, "_probe", probe)
    cache = make(wanted)
    found = cache.directory()
    assert Path(found, "cpu", "kernel.bin").read_text() == "code"
    assert cache.writable is (found != os.path.realpath(wanted)) is ("temporary files" not in full)
    assert "No space left on device" in warning(caplog) and "AIODEV_CACHE_DIR" in warning(caplog)


@needs_posix
def test_no_room_for_what_others_could_write_to(
    make: Callable[[Path], Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Code is compiled in memory then (3)."""

    def probe(directory: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_directory, "_probe", probe)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    cache = make(tmp_path / "shared")
    assert cache.directory() == "" and not cache.writable
    assert "not kept in" in warning(caplog) and "in memory" in warning(caplog)


@needs_posix
def test_no_links_are_made_to_what_others_could_write(
    make: Callable[[Path], Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that looks well may hold files of an earlier time that do not (2)."""
    wanted = tmp_path / "cache"
    wanted.mkdir(mode=0o700)
    for name, permissions in (("good", 0o644), ("bad", 0o666)):
        (wanted / name).write_text(name)
        (wanted / name).chmod(permissions)
    (wanted / "open").mkdir()
    (wanted / "open" / "bad").write_text("bad")
    (wanted / "open").chmod(0o777)
    (wanted / "link").symlink_to("good")

    def probe(directory: str, probe: Callable[[str], None] = cache_directory._probe) -> None:
        if directory == str(wanted):
            raise OSError(30, "Read-only file system")
        probe(directory)

    monkeypatch.setattr(cache_directory, "_probe", probe)
    assert os.listdir(make(wanted).directory()) == ["good"]


@needs_root
def test_what_has_come_in_its_place_is_looked_at(make: Callable[[Path], Cache], tmp_path: Path) -> None:
    """After a cleaner of temporary files took the directory away, another user may have made one (5)."""
    cache = make(tmp_path / "cache")
    first = cache.directory()
    assert first == os.path.realpath(tmp_path / "cache")
    os.rmdir(first)
    assert cache.directory() == first and mode(first) == 0o700
    os.rmdir(first)
    os.mkdir(first, 0o700)
    os.chown(first, SOMEBODY, SOMEBODY)
    assert cache.directory() != first


def test_a_child_says_nothing(make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It uses what it is told to, and leaves warnings to its parent (4)."""
    cache = make(tmp_path / "wanted")
    cache.adopt(str(tmp_path))
    assert cache.directory() == str(tmp_path)
    cache.report(OSError(28, "No space left on device"))
    assert not caplog.records and not (tmp_path / "wanted").exists()


def test_one_warning(make: Callable[[Path], Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However much cannot be kept (4)."""
    cache = make(tmp_path / "cache")
    cache.directory()
    for _ in range(3):
        cache.report(OSError(28, "No space left on device", "kernel.bin"))
    assert "No space left on device (kernel.bin)" in warning(caplog) and "AIODEV_CACHE_DIR" in warning(caplog)


@needs_posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_private_directory_of_a_killed_process_goes_with_the_next(tmp_path: Path, number: int) -> None:
    """And none other: of a process that lives, a link, or what only looks like one (2)."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    (tmp_path / "file").write_text("")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    os.symlink(tmp_path / "kept", temporary / "aiodev-until-exit-link")
    (temporary / "aiodev-1000").mkdir()  # somebody's lasting one
    (temporary / "aiodev-until-exit-file").write_text("")
    others = {each.name for each in temporary.iterdir()}
    program = """
import os, sys
from aiodev._core.cache_directory import cache
directory = cache.directory()
open(os.path.join(directory, "file"), "w").close()
print(directory, flush=True)
sys.stdin.read()
"""
    environment = {
        **os.environ, "PYTHONPATH": ROOT, "AIODEV_CACHE_DIR": str(tmp_path / "file"), "TMPDIR": str(temporary)
    }  # fmt: skip

    def start() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip()).name

    def names() -> set[str]:
        return {each.name for each in temporary.iterdir()} - others

    living, its = start()
    killed, left = start()
    assert names() == {its, left}
    killed.send_signal(number)
    killed.communicate(timeout=60)
    last, own = start()
    assert names() == {its, own}
    for process in (living, last):
        process.communicate("", timeout=60)
        assert process.returncode == 0
    assert names() == set() and others == {each.name for each in temporary.iterdir()} and (tmp_path / "kept" / "file").exists()


def test_a_private_directory_stays_away(make: Callable[[Path], Cache], tmp_path: Path) -> None:
    """Who is still compiling when the process ends makes neither that one again nor another (2)."""
    (tmp_path / "file").write_text("")
    cache = make(tmp_path / "file")
    directory = Path(cache.directory())
    write_whole(directory / "native" / "code.o", b"code")
    cache._remove()
    for place in (directory, directory / "native"):
        with pytest.raises(FileNotFoundError):
            write_whole(place / "code.o", b"code")
    assert cache.directory() == ""
    assert not list(directory.parent.iterdir())


def test_a_file_that_is_written_while_a_private_directory_is_removed(
    make: Callable[[Path], Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not found there any more, and keeps nothing (2)."""
    (tmp_path / "file").write_text("")
    cache = make(tmp_path / "file")
    directory = Path(cache.directory())
    remove, refused = shutil.rmtree, []

    def late(place: str, ignore_errors: bool) -> None:
        try:
            write_whole(directory / "native" / "code.o", b"code")
        except FileNotFoundError as error:
            refused.append(error)
        remove(place, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", late)
    cache._remove()
    assert refused and not list(directory.parent.iterdir())


@needs_posix
def test_a_private_directory_that_another_process_removes_before_it_is_locked(
    make: Callable[[Path], Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is made (2)."""
    (tmp_path / "file").write_text("")
    lock, gone = cache_directory._lock, list[str]()

    def late(directory: str) -> int | None:
        if len(gone) == 2:
            return lock(directory)
        gone.append(directory)
        descriptor = lock(directory) if len(gone) == 2 else None
        os.rmdir(directory)
        return lock(directory) if descriptor is None else descriptor

    monkeypatch.setattr(cache_directory, "_lock", late)
    directory = make(tmp_path / "file").directory()
    assert os.path.isdir(directory) and directory not in gone and len(gone) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_private_directory_of_its_own(tmp_path: Path) -> None:
    """And each removes its own when it exits (2, 5)."""
    (tmp_path / "temporary").mkdir(mode=0o700)
    (tmp_path / "file").write_text("")
    program = """
import os, sys
import aiodev
from aiodev._core.cache_directory import cache
mine = cache.directory()
if os.fork():
    _, status = os.wait()
    assert os.path.isdir(mine), "the child has removed it"
    sys.exit(status != 0)
assert cache.directory() != mine and os.path.isdir(cache.directory())
"""
    environment = {"PYTHONPATH": ROOT, "AIODEV_CACHE_DIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    done = run(program, environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("AIODEV_CACHE_DIR") == 1
    assert not list((tmp_path / "temporary").iterdir())


@needs_root
@pytest.mark.parametrize("permissions", [0o755, 0o777])
def test_a_directory_of_root_is_read_by_others(temporary: Path, permissions: int) -> None:
    """As of an image that root has filled, if nobody else could have (1, 2)."""
    (temporary / "cache" / "cpu").mkdir(parents=True)
    (temporary / "cache" / "cpu" / "kernel.bin").write_text("code")
    (temporary / "cache" / "cpu" / "kernel.bin").chmod(0o644)
    for place, mode_of_it in ((temporary / "cache" / "cpu", 0o755), (temporary / "cache", permissions)):
        place.chmod(mode_of_it)
    program = f"""
import os
from aiodev._core import cache_directory
import tempfile, random, grp, pwd, shutil
tempfile.gettempdir()
os.seteuid({OTHER})
cache = cache_directory.Cache({str(temporary / "cache")!r})
found = cache.directory()
print(cache.writable and found != cache.wanted, os.path.exists(found + "/cpu/kernel.bin"))
"""
    done = run(program, {"PYTHONPATH": ROOT, "TMPDIR": str(temporary)})
    assert done.stdout.split() == ["True", str(permissions == 0o755)], done.stderr
    assert done.stderr.count("AIODEV_CACHE_DIR") == 1
    assert os.listdir(temporary) == ["cache"]


def run(program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program."""
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)


@needs_root
def test_without_a_home_a_directory_that_somebody_planted_is_not_used(temporary: Path) -> None:
    """``aiodev-UID`` among the temporary files is where anybody would expect it (1)."""
    planted = temporary / f"aiodev-{OTHER}"
    planted.mkdir(mode=0o755)
    os.chown(planted, SOMEBODY, SOMEBODY)
    program = f"""
import os
from pathlib import Path
from aiodev._core import config
from aiodev._core import cache_directory
import tempfile, random, grp, pwd, shutil
def home(): raise RuntimeError
Path.home = home
tempfile.gettempdir()
os.seteuid({OTHER})  # after the imports: this user may have no way to them
cache = cache_directory.Cache(config.Settings().cache_dir)
found = cache.directory()
print(found, os.stat(found).st_uid, os.stat(found).st_mode & 0o777 == 0o700)
"""
    done = run(program, {"PYTHONPATH": ROOT, "TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    found, owner, private = done.stdout.split()
    assert found != str(planted) and found.startswith(str(temporary)) and int(owner) == OTHER and private == "True"
    assert f"{planted} belongs to user {SOMEBODY}" in done.stderr and "AIODEV_CACHE_DIR" in done.stderr
    assert not Path(found).exists()
