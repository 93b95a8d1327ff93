"""Finalizers, and the end of the interpreter."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until_exit", "weakly"]

_Class = TypeVar("_Class", bound=type)


def until_exit(finalized: _Class) -> _Class:
    """Class decorator: from the end of the program on, ``__del__`` is not called any more.

    The interpreter then takes modules apart in any order, so what a finalizer needs may be gone; and what it would give back
    goes with the process.
    """
    atexit.register(delattr, finalized, "__del__")
    return finalized


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A bound method that is called for as long as its object lives, and does not keep it."""
    reference, function = weakref.ref(method.__self__), method.__func__  # type: ignore[attr-defined]

    def call() -> None:
        own = reference()
        if own is not None:
            function(own)

    return call
