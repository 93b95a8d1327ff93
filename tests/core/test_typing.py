"""The types of the public interface, as a type checker sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_types_of_completions(tmp_path: Path) -> None:
    """Results have the types of the functions and awaitables that they come from, and completions are no tuples."""
    pytest.importorskip("mypy")
    root, checked = Path(__file__).parents[2], Path(__file__).with_name("typed_completions.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--python-version=3.11"]
    command += ["--ignore-missing-imports", "--cache-dir", str(tmp_path), str(checked)]
    finished = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
