"""The GPU's figures run to their end, on the stand-in and without any peer; what they say there means nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import search_path

HERE = Path(__file__).parent
BENCH = HERE.parent / "bench"

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("group", ["launching", "waiting", "moving", "replaying"])
def test_figures_run(group: str, compiled: None, tmp_path: Path) -> None:
    """Each figure is measured, as in a dry run, though its peers are missing, and the outcome is written."""
    written = tmp_path / "figures.json"
    command = [sys.executable, str(HERE / "dry.py"), str(BENCH / "gpu.py"), "--smoke", "--json", str(written), group]
    path = search_path(os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(written.read_text())["figures"]
    assert figures and all("aiodev" in figure["values"] for figure in figures), done.stdout
