"""Names of this package's files that are the same wherever it is installed, for code that another machine has compiled."""

from __future__ import annotations

from pathlib import Path

__all__ = ["absolute", "relative"]

_FOLDER = Path(__file__).parents[2]
_PACKAGE = str(_FOLDER / "aiodev")
#: What such a name begins with. No file of a program's has such a name, for compiled code says whole ones.
_MARK = "aiodev:"


def relative(filename: str) -> str:
    """The name of a file from the package's folder on; of other files the whole path."""
    if filename.startswith(_PACKAGE) and filename[len(_PACKAGE) :][:1] in ("/", "\\"):
        return _MARK + filename[len(_PACKAGE) + 1 :]
    return filename


def absolute(name: str) -> str:
    """The path, on this machine, of the file that ``relative`` named ``name``."""
    return str(Path(_PACKAGE, name[len(_MARK) :])) if name.startswith(_MARK) else name
