"""Where programs of tests, which run in interpreters of their own, find aiodev and what tests share."""

from __future__ import annotations

import os
from pathlib import Path

import aiodev

#: The modules that tests share.
SUPPORT = Path(__file__).parent
#: What is tested, installed or not.
PACKAGE = Path(aiodev.__file__).parents[1]


def search_path(*more: str | Path) -> str:
    """A value for PYTHONPATH that has both, and what else is named."""
    return os.pathsep.join(map(str, (PACKAGE, SUPPORT, *more)))
