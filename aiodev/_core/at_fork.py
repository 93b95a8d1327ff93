"""Callbacks of a forked child, in one place and one order.

A module whose state a fork spoils (a lock that another thread may have held, threads, descriptors, work of the parent)
registers here what repairs it. One that fails does not keep the others from running. What a child could not repair is held
while the process forks (:class:`Whole`), and imports of threads that a child lacks are waited for (:class:`Imports`).

**Problem.** Objects of the parent have finalizers, which open gates, wake the watcher and give memory back. In the child a
worker of the parent may hold a lock for good; and a descriptor of the parent is closed, and its number is that of a file which
the child opens next. But finalizers run whenever something is dropped: the interpreter itself drops what was local to the
parent's other threads, before it calls anybody here.

Invariants:

1.  Callbacks run in two rounds, each in the order in which they were registered, that of the imports. The first round makes
    harmless what the parent has: locks are renewed, streams lost, descriptors left to the parent. It drops nothing that was
    given to a backend. The second round drops things, and finds all of them harmless, whatever was imported first.
2.  From before the fork until the first round is over, a finalizer starts no thread, writes no descriptor and opens no gate
    (:data:`forking`): it leaves that to the watcher, which does it in the parent, and forgets it in the child.
3.  The collector waits until both rounds are over.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aiodev._core import arguments
from aiodev._core.tuning import FORK_PATIENCE

__all__ = ["Whole", "around_fork", "first_in_child", "in_child"]

logger = logging.getLogger("aiodev")

T = TypeVar("T")

_first: list[Callable[[], object]] = []
_in_child: list[Callable[[], object]] = []

#: Whether the process forks: in the parent from before that until it is done, in the child until the first round is over.
forking = False


def first_in_child(callback: Callable[[], object]) -> None:
    """Have a function called in the first round of each forked child: it makes the parent's things harmless, and drops none."""
    _first.append(callback)


def in_child(callback: Callable[[], T]) -> Callable[[], T]:
    """Have a function called in each forked child, behind what aiodev does there, before the program goes on.

    It is for libraries that keep what a child cannot use: arrays and streams of the parent, a lock that another thread may have
    held. Functions are called in the order in which they were given; one that raises is logged, and those after it are called.

    Args:
        callback: takes no arguments, and lives as long as the process.

    Returns:
        It, so that this is a decorator.

    Raises:
        TypeError: it is no function, or makes coroutines.

    Example:
        >>> import aiodev
        >>> tables = {}
        >>> @aiodev.in_child
        ... def forget() -> None:
        ...     tables.clear()
    """
    _in_child.append(arguments.callback("in_child", "callback", callback))
    return callback


def around_fork(before: Callable[[], object], in_parent: Callable[[], object]) -> None:
    """Have ``before`` called before each fork, and ``in_parent`` after it, in the parent."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent)


class Whole:
    """A lock for what a child must find done or not begun: a fork waits until nobody holds it.

    It is for calls into libraries with locks of their own. The child has only the thread that forked, so that a lock which
    another thread holds there stays locked for good. Re-entrant.
    """

    _all: list[Whole] = []

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = False  # around a fork, by the thread that forks
        Whole._all.append(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def held_elsewhere(self) -> bool:
        """Whether another thread holds it, now."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        return True

    @staticmethod
    def hold_all() -> None:
        """Before a fork: wait until nobody holds any, and no thread of aiodev imports; ``FORK_PATIENCE`` seconds at most."""
        deadline = time.monotonic() + FORK_PATIENCE
        while not all(each._hold() for each in Whole._all) or imports.in_progress():
            if time.monotonic() > deadline:
                return
            Whole.let_go()  # who holds that one may wait for another
            time.sleep(0.001)

    def _hold(self) -> bool:
        self._held = self._lock.acquire(blocking=False)
        return self._held

    @staticmethod
    def let_go() -> None:
        """After a fork."""
        for each in Whole._all:
            if each._held:
                each._held = False
                each._lock.release()

    @staticmethod
    def renew() -> None:
        """In the child: what another thread of the parent holds is free."""
        for each in Whole._all:
            if not each._held:
                each._lock = threading.RLock()
        Whole.let_go()


class Imports:
    """Modules that threads of aiodev import. In a child such a module would stay what it was, and its lock locked for good.

    A fork waits for them. One that begins behind that, or takes longer, begins anew in the child, where somebody needs it.
    Imports by threads of the program are its own affair, as they are without aiodev: one may be the whole program.
    """

    def __init__(self) -> None:
        self._locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})  # weak references
        self._threads: set[int | None] = set()  # idents

    def in_progress(self) -> list[str]:
        """Their names."""
        self._threads = {thread.ident for thread in threading.enumerate() if thread.name.startswith("aiodev-")}
        return self._names()

    def _names(self) -> list[str]:
        locks = {name: reference() for name, reference in list(self._locks.items())}
        return [name for name, lock in locks.items() if lock is not None and lock.owner in self._threads]

    def forget(self) -> None:
        """In the child, which has none of these threads."""
        self._threads.discard(threading.get_ident())
        for name in self._names():
            del self._locks[name]
            sys.modules.pop(name, None)


imports = Imports()


def _run() -> None:
    global forking
    collecting = gc.isenabled()
    gc.disable()
    try:
        _call(_first)
    finally:
        forking = False
    _call(_in_child)
    if collecting:
        gc.enable()


def _call(callbacks: list[Callable[[], object]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:  # the others have to make good what is theirs
            logger.exception("after the fork: %r failed", callback)


def _begin() -> None:
    global forking
    Whole.hold_all()
    forking = True  # last, for what is waited for may need the watcher


def _end() -> None:
    global forking
    forking = False
    Whole.let_go()


around_fork(_begin, _end)  # whose first part is the last thing that aiodev does before a fork
first_in_child(Whole.renew)
first_in_child(imports.forget)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
