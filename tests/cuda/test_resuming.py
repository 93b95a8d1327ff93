"""What ``gpu_check.sh`` relies on: tests that hang or crash cost themselves, and all others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

TESTS = """
import os, threading

def test_first():
    pass

def test_that_crashes():
    os.abort()

def test_that_hangs():
    threading.Event().wait()

def test_that_fails():
    assert False

def test_last():
    pass
"""


def test_every_test_is_begun_once(tmp_path: Path) -> None:
    """A run that ends early is taken up behind the test at which it ended; the last one says that it is the last."""
    (tmp_path / "test_some.py").write_text(TESTS)
    begun = tmp_path / "begun"
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parent), "AIODEV_TESTS_BEGUN": str(begun), "AIODEV_TESTS_LIMIT": "0.2"
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "resuming", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(tmp_path), "test_some.py"]
    runs = []
    while not begun.exists() or not begun.read_text().endswith("finished\n"):
        runs.append(subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60))
        assert len(runs) <= 3, runs[-1].stdout
    names = [line.rpartition("::")[2] for line in begun.read_text().splitlines()]
    assert names == ["test_first", "test_that_crashes", "test_that_hangs", "test_that_fails", "test_last", "finished"]
    assert "test_that_hangs" in runs[1].stderr, "the stacks were not written"
    assert "1 failed, 1 passed, 3 deselected" in runs[2].stdout
    assert "── failed: test_some.py::test_that_fails: " in runs[2].stderr and "assert False" in runs[2].stderr
