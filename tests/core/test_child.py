"""Python processes that are started: what they import from, and with which flags."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiodev._backends.cpu import build
from aiodev._core.cachedir import cache
from aiodev._core.child import command

ROOT = str(Path(__file__).resolve().parents[2])
#: What the standard library and a compiler import.
NAMES = ("numba", "numpy", "random", "pickle", "subprocess", "aiodev")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules that nobody has asked for, and a path that does not lead there."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the current directory')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def outcome(code: str, *arguments: str) -> str:
    """What a child prints."""
    done = subprocess.run(command(code, *arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_of_the_current_directory_are_not_imported(planted: Path) -> None:
    """Unless they are by the parent."""
    code = "import random, pickle, subprocess, numpy, aiodev; print(aiodev.__file__.startswith(sys.argv[1]))"
    assert outcome(code, ROOT) == "True\n"


def test_a_child_imports_from_where_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order, with the current directory by its name; what is no text is ignored, as imports ignore it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/somewhere", tmp_path, *filter(None, sys.path)])
    found = json.loads(outcome("import json; print(json.dumps([sys.path, sys.argv[1:]]))", "one", "two"))
    expected = [str(tmp_path), "/somewhere", *(entry for entry in sys.path[3:])]
    assert found == [expected if ROOT in expected else [*expected, ROOT], ["one", "two"]]


def test_a_child_finds_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the path has ceased to lead here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry and Path(entry).resolve() != Path(ROOT)])
    assert outcome("import aiodev; print(aiodev.__file__)").startswith(ROOT)


@pytest.mark.skipif(sys.platform == "win32", reason="a current directory cannot be removed here")
def test_a_current_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported from it, and that is all."""
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(sys, "path", ["", *filter(None, sys.path)])
    monkeypatch.chdir(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")
    assert outcome("print('' in sys.path)") == "False\n"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-I"], "sys.flags.isolated"),
        (["-P"], "sys.flags.safe_path"),
        (["-E"], "sys.flags.ignore_environment"),
        (["-X", "dev"], "sys.flags.dev_mode"),
        (["-W", "error::ResourceWarning"], "'error::ResourceWarning' in sys.warnoptions"),
        (["-OO"], "sys.flags.optimize == 2"),
    ],
)
def test_the_flags_of_the_interpreter_are_handed_on(flags: list[str], told: str) -> None:
    """They were given for a program, whatever processes it is made of."""
    program = f"""
import sys
sys.path.append({ROOT!r})
import subprocess
from aiodev._core.child import command
print(subprocess.run(command("print(bool({told}))"), capture_output=True, text=True).stdout)
"""
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"], done.stderr


def test_without_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that Python is embedded in has none to start."""
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match="no Python interpreter is known"):
        command("pass")


def compiling(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a module of the path run as those do that fill the cache."""
    (folder / "lib").mkdir()
    (folder / "lib" / "fills.py").write_text(f"def main():\n    {body}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "lib")])
    build.run_elsewhere("fills")


def test_the_first_start_imports_nothing_from_the_current_directory(
    planted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It compiles with the modules of the program, into the directory that the program uses."""
    body = "import random, numpy, numba; from aiodev._core.cachedir import cache; open('done', 'w').write(cache.directory())"
    compiling(planted, body, monkeypatch)
    assert (planted / "done").read_text() == cache.directory()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_process_that_fails_to_compile_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its status and the end of what it said; this process compiles in its place."""
    compiling(tmp_path, "raise RuntimeError('no room for code')", monkeypatch)
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelno == logging.WARNING and "exit status 1" in text and text.endswith("RuntimeError: no room for code")


def test_what_a_process_says_that_compiles_can_be_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level for details."""
    caplog.set_level(logging.DEBUG, "aiodev")
    compiling(tmp_path, "print('half way')", monkeypatch)
    assert [record.getMessage() for record in caplog.records] == ["the process that compiles said: half way"]


def test_nothing_is_compiled_elsewhere_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be lost."""
    cache.directory()
    monkeypatch.setattr(cache, "writable", False)
    compiling(tmp_path, f"open({str(tmp_path / 'done')!r}, 'w')", monkeypatch)
    assert not (tmp_path / "done").exists()
