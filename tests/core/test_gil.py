"""An interpreter without its global lock is refused, since every submission relies on that."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from aiodev._core import gil


@pytest.mark.parametrize(
    ("interpreter", "refused"),
    [({}, False), ({"_is_gil_enabled": lambda: True}, False), ({"_is_gil_enabled": lambda: False}, True)],
    ids=["before 3.13", "with it", "without it"],
)
def test_the_lock_is_required(interpreter: dict[str, object], refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is there and off."""
    monkeypatch.setattr(gil, "sys", SimpleNamespace(**interpreter))
    if refused:
        with pytest.raises(ImportError, match="PYTHON_GIL=1"):
            gil.require_gil()
    else:
        gil.require_gil()


@pytest.mark.parametrize("module", ["aiodev", "aiodev.lang", "aiodev.kernels", "aiodev.testing"])
def test_importing_refuses(module: str) -> None:
    """Whatever of the package is imported, before anything else of it is."""
    code = f"import sys; sys._is_gil_enabled = lambda: False\nimport {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: aiodev needs the global interpreter lock")
