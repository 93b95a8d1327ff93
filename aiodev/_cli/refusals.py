"""What commands refuse before they do anything: in one line, with the status 2 that ``argparse`` has for a mistake, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import aiodev

__all__ = ["refuse", "unusable_device", "unusable_directory"]


def refuse(reason: str) -> int:
    """Say why a command is not run; returns its exit status."""
    print(reason, file=sys.stderr)
    return 2


def unusable_device(device: str) -> str | None:
    """Why nothing can run on a device; None if it is here."""
    try:
        aiodev.get_device_properties(device)
    except aiodev.AiodevError as error:
        return str(error)
    return None


def unusable_directory(directory: Path) -> str | None:
    """Why nothing can be written into a directory, which may be still to be made; None if it seems to be possible."""
    there = next(place for place in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        return f"{there} is no directory"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to"
    return None
