"""The examples run as they are, and the README shows the first of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from selection import some

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", some(EXAMPLES, 4), ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """Run as a script, from elsewhere, it ends well and leaves nothing on stderr."""
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_readme_shows_an_example_that_runs() -> None:
    """The README's program is examples/quickstart.py, letter for letter, without its introduction."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block == (ROOT / "examples" / "quickstart.py").read_text().split('"""\n\n', 1)[1]
