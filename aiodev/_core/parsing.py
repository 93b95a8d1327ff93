"""Parsing: ``ast.parse``, in any thread.

In some versions of Python, 3.11.7 among them, all threads of an interpreter share the counter of how deep the syntax tree is
that is being made (CPython issue 106905). Where a finalizer that the collector calls meanwhile lets another thread go on, which
parses as well, both find a depth that is not theirs: ``SystemError: AST constructor recursion depth mismatch``. Nothing is
wrong with the source then.
"""

from __future__ import annotations

import ast
from typing import Final

__all__ = ["parse"]

#: How often a source is parsed until the error is believed. Larger: a defect of another kind takes longer to be told; smaller:
#: where many threads parse for long, a first launch fails.
_ATTEMPTS: Final = 100


def parse(text: str) -> ast.Module:
    """The syntax tree of a source, as ``ast.parse`` gives it; again, where other threads have disturbed that.

    Raises:
        SyntaxError: it has none.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            pass
    return ast.parse(text)
