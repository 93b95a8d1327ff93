"""Finalizers, weak references, and the end of the interpreter."""

from __future__ import annotations

import _imp
import atexit
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from aiodev._core.tuning import IMPORT_PATIENCE

__all__ = ["WeakTable", "behind_all_handlers", "program", "until_exit", "weakly"]

_Class = TypeVar("_Class", bound=type)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Program:
    """This process.

    Attributes:
        ends: whether finalizers have begun to go (see ``until_exit``).
    """

    ends = False


program = _Program()


def until_exit(finalized: _Class) -> _Class:
    """Class decorator: from the end of the program on, ``__del__`` is not called any more.

    The interpreter then takes modules apart in any order, so what a finalizer needs may be gone; and what it would give back
    goes with the process.
    """
    atexit.register(_forget_finalizer, finalized)
    return finalized


def _forget_finalizer(finalized: type) -> None:
    program.ends = True
    del finalized.__del__  # type: ignore[attr-defined]


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A bound method that is called for as long as its object lives, and does not keep it."""
    reference, function = weakref.ref(method.__self__), method.__func__  # type: ignore[attr-defined]

    def call() -> None:
        own = reference()
        if own is not None:
            function(own)

    return call


class _LastAct:
    """Has the main thread do something at the very end of the program, behind all handlers of ``atexit``.

    A handler may wait for other threads, and so let them run. So this is not done when it is called as one, but when it is
    dropped as one: all have been called then, and daemon threads are ended where they next wait for the GIL.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._program_ends = False

    def __call__(self) -> None:
        self._program_ends = True

    def __del__(self) -> None:
        if self._program_ends:  # else somebody has cleared the handlers, as the child processes of multiprocessing do
            self._act()


def behind_all_handlers(act: Callable[[], None]) -> Callable[[], None]:
    """Decorator: the function is called at the very end of the program, those that were decorated first before others."""
    atexit.register(_LastAct(act))
    return act


@behind_all_handlers
def _keep_the_import_lock() -> None:
    """Take Python's import lock, for good.

    A daemon thread is ended where it waits for the GIL, as it does in the system calls by which a module is looked for. Then it
    has the lock, and whatever is imported from there on waits for ever: to print a traceback, of what a finalizer raised, takes
    an import. Threads that come to an import from now on wait for the lock, until the process ends.
    """
    deadline = time.monotonic() + IMPORT_PATIENCE
    while _imp.lock_held() and time.monotonic() < deadline:
        time.sleep(0.001)
    if not _imp.lock_held():
        _imp.acquire_lock()


class WeakTable(Generic[_Key, _Value]):
    """Living objects by key, for what is made often: weakref's own dictionary takes five times as long, in Python.

    Each step is atomic, so that any thread may enter, look and let go. A key must not be entered again.
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: dict[_Key, weakref.ref[_Value]] = {}

    def enter(self, key: _Key, value: _Value) -> None:
        """Have ``value`` be known for as long as it lives."""
        references = self._references
        references[key] = weakref.ref(value, partial(references.pop, key))

    def get(self, key: _Key) -> _Value | None:
        """The living object of a key, if there is one."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def values(self) -> list[_Value]:
        """All that live."""
        return [value for reference in list(self._references.values()) if (value := reference()) is not None]
