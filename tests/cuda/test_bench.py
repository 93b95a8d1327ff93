"""The GPU's figures run to their end, on the stand-in and without any peer; what they say there means nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("group", ["launching", "waiting", "moving", "replaying"])
def test_figures_run(group: str, run: Callable[..., str], tmp_path: Path) -> None:
    """Each figure is measured, though its peers are missing, and the outcome is written."""
    written = tmp_path / "figures.json"
    said = run(
        f"""
import json
sys.path.insert(0, {str(BENCH)!r})
sys.argv = ["gpu.py", "--smoke", "--json", {str(written)!r}, {group!r}]
import gpu
from aiodev.kernels.fft import cufft
from aiodev.kernels.linalg import cusolver, openblas
cufft.find_library = cusolver.find_library = lambda: library
driver.give_lapack(openblas.library_name())
try:
    gpu.main()
except SystemExit as end:
    figures = json.load(open({str(written)!r}))["figures"]
    print("exit", end.code, len(figures) == len(gpu.GROUPS[{group!r}].FIGURES))
"""
    )
    assert said.endswith("exit 0 True\n"), said
