"""Python processes that are started: what they import from, and with which flags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aiodev
from aiodev._core.child_process import command

ROOT = str(Path(aiodev.__file__).parents[1])
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
from aiodev._core.child_process import command
print(subprocess.run(command("print(bool({told}))"), capture_output=True, text=True).stdout)
"""
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"], done.stderr


def test_without_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that Python is embedded in has none to start."""
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match="no Python interpreter is known"):
        command("pass")
