"""Finalizers, and the end of the interpreter."""

from __future__ import annotations

import atexit
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def until_exit(finalized: _Class) -> _Class:
    """Class decorator: from the end of the program on, ``__del__`` is not called any more.

    The interpreter then takes modules apart in any order, so what a finalizer needs may be gone; and what it would give back
    goes with the process.
    """
    atexit.register(delattr, finalized, "__del__")
    return finalized
