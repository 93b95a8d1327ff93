"""Functions of Python that are generated for calls: how they are made, and what finds the place of the call."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable
from typing import Any

from aiodev._core import callsites

__all__ = ["SITE_NAMES", "define"]

#: What lines that find a site name.
SITE_NAMES: dict[str, Any] = {
    "_getframe": sys._getframe,
    "_site_of": callsites.site_of,
    "_outside": callsites.outside,
}


def define(filename: str, lines: Iterable[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute generated source; tracebacks show its lines."""
    source = "\n".join(lines) + "\n"
    namespace["__name__"] = __name__
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return namespace
