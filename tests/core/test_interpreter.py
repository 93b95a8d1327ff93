"""An interpreter without its global lock is refused, since every submission relies on that; and so is a subinterpreter."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from aiodev._core import interpreter as checks


@pytest.mark.parametrize(
    ("interpreter", "refused"),
    [({}, False), ({"_is_gil_enabled": lambda: True}, False), ({"_is_gil_enabled": lambda: False}, True)],
    ids=["before 3.13", "with it", "without it"],
)
def test_the_lock_is_required(interpreter: dict[str, object], refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is there and off."""
    monkeypatch.setattr(checks, "sys", SimpleNamespace(**interpreter))
    if refused:
        with pytest.raises(ImportError, match="PYTHON_GIL=1"):
            checks.require_gil()
    else:
        checks.require_gil()


@pytest.mark.parametrize("module", ["aiodev", "aiodev.lang", "aiodev.kernels", "aiodev.testing"])
def test_importing_refuses(module: str) -> None:
    """Whatever of the package is imported, before anything else of it is."""
    code = f"import sys; sys._is_gil_enabled = lambda: False\nimport {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: aiodev needs the global interpreter lock")


def test_subinterpreters_are_refused() -> None:
    """By an error that says what to do; the main one goes on."""
    code = """
import _xxsubinterpreters as interpreters
other = interpreters.create(isolated=False)
try:
    interpreters.run_string(other, "import aiodev")
except interpreters.RunFailedError as error:
    print(error)
import aiodev
print(aiodev.Stream("cpu").call(len, "abc").synchronize_blocking())
"""
    if sys.version_info >= (3, 13):
        pytest.skip("the module that makes subinterpreters has another name")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "aiodev needs the main interpreter, and this is a subinterpreter" in done.stdout
    assert done.stdout.splitlines()[-1] == "3"
