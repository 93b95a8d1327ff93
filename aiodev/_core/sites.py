"""Places of submission as integers, cheap enough to take at every launch.

A site is ``index << 32 | instruction``: an index in a table of code objects, and the byte offset of the calling
instruction. Only when an error is shown is it turned into a file and a line. Code objects are few and live as long as their
modules, so the table keeps them.
"""

from __future__ import annotations

import sys
from types import CodeType

_codes: list[CodeType] = []
_indices: dict[int, int] = {}


def here(depth: int = 1) -> int:
    """The site of the caller's caller's … caller, ``depth`` frames up."""
    frame = sys._getframe(depth + 1)
    code = frame.f_code
    index = _indices.get(id(code))
    if index is None:
        index = _indices[id(code)] = len(_codes) + 1
        _codes.append(code)
    return index << 32 | frame.f_lasti


def describe(site: int) -> str | None:
    """``file:line`` of a site, or None for 0, no site."""
    if site == 0:
        return None
    code = _codes[(site >> 32) - 1]
    positions = list(code.co_positions())
    line = positions[(site & 0xFFFFFFFF) // 2][0]
    return f"{code.co_filename}:{line or code.co_firstlineno}"
