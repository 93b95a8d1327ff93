"""What functions that are generated for calls have in common: how they are made, and the lines that submit.

Operations are called by functions that are generated for what was called before (:mod:`aiodev._kernel.dispatch.repeated`). A
generic loop over what is submitted would cost several times the submission itself.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from aiodev._core import callsites
from aiodev._kernel.dispatch.signature import ARRAY, READ
from aiodev._memory.buffer import record_torn

__all__ = ["SITE_NAMES", "SUBMISSION_NAMES", "define", "submission"]

#: What lines that find a site name.
SITE_NAMES: dict[str, Any] = {
    "_getframe": sys._getframe,
    "_site_of": callsites.site_of,
    "_outside": callsites.outside,
}
#: What lines of a submission name.
SUBMISSION_NAMES: dict[str, Any] = {**SITE_NAMES, "_record_torn": record_torn}


def define(filename: str, lines: Iterable[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute generated source; tracebacks show its lines."""
    source = "\n".join(lines) + "\n"
    namespace["__name__"] = __name__
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return namespace


def submission(launches: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> list[str]:
    """Source lines that launch on ``_timeline``, and note which buffers each launch uses: expressions, ``ARRAY`` or ``READ``.

    ``_value`` is the number of the last launch then.
    """
    lines, every = ["try:"], list[tuple[str, str]]()
    for launch, buffers in launches:
        every += buffers
        lines.append(f"    _value = {launch}")
        for buffer, kind in buffers:
            lines.append(f"    _buffer = {buffer}")
            lines += [f"    {line}" for line in _record_use(kind)]
    written, read = ("".join(f"{buffer}, " for buffer, use in every if use == kind) for kind in (ARRAY, READ))
    return [
        *lines,
        "except BaseException as _error:",
        f"    _record_torn(_error, _timeline, ({written}), ({read}))",
        "    raise",
    ]


def _record_use(kind: str) -> list[str]:
    """Note that operation ``_value`` of ``_timeline`` uses ``_buffer``, as :class:`Buffer` notes it."""
    timeline, value, method = (
        ("_writer", "_written", "_record_write") if kind == ARRAY else ("_reader", "_read", "_record_read")
    )
    return [
        f"if _buffer.{timeline} is _timeline:",
        f"    if _value > _buffer.{value}:",  # another thread's later launch may have been faster here
        f"        _buffer.{value} = _value",
        "else:",
        f"    _buffer.{method}(_timeline, _value)",
    ]
