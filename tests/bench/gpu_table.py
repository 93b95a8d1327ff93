"""The table of a GPU's figures: ``python tests/bench/gpu_table.py FIGURES.json DEVICE >docs/performance-gpu.txt``.

FIGURES.json is what ``gpu_check.sh measured`` leaves, of which the parts ``launching``, ``moving``, ``replaying`` and
``waiting`` are taken; DEVICE is the card and its driver, in words. The table is made where the documentation is, not where the
GPU is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness import rst_of

PARTS = ("launching", "moving", "replaying", "waiting")


def main() -> None:
    """Print the parts' figures as one table, with the machine and the versions of the last."""
    path, device = sys.argv[1:]
    parts = json.loads(Path(path).read_text())
    found = [parts[name] for name in PARTS if name in parts]
    figures = [figure for part in found for figure in part["figures"]]
    print(rst_of(found[-1] | {"figures": figures}, device), end="")


if __name__ == "__main__":
    main()
