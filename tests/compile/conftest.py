"""Helpers of these tests import each other by name."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis  # noqa: F401  # before trio, whose plugin for it would otherwise warn

sys.path.insert(0, str(Path(__file__).parent))
