"""Callbacks of a forked child, in one place and one order.

A module whose state a fork spoils (a lock that another thread may have held, threads, descriptors, work of the parent)
registers here what repairs it. The callbacks run in the order in which they were registered, that of the imports: the registry
of backends first, what stands on it later. One that fails does not keep the others from running. The collector
waits until all have run: finalizers would find some of it repaired and some not. What a child could not repair is held while
the process forks (:class:`Whole`).
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from aiodev._core import arguments
from aiodev._core.tuning import FORK_PATIENCE

__all__ = ["Whole", "around_fork", "in_child"]

logger = logging.getLogger("aiodev")

T = TypeVar("T")

_in_child: list[Callable[[], object]] = []


def in_child(callback: Callable[[], T]) -> Callable[[], T]:
    """Have a function called in each forked child, behind what aiodev does there, before the program goes on.

    It is for libraries that keep what a child cannot use: arrays and streams of the parent, a lock that another thread may have
    held. Functions are called in the order in which they were given; one that raises is logged, and those after it are called.

    Args:
        callback: takes no arguments, and lives as long as the process.

    Returns:
        It, so that this is a decorator.

    Raises:
        TypeError: it is no function.

    Example:
        >>> import aiodev
        >>> tables = {}
        >>> @aiodev.in_child
        ... def forget() -> None:
        ...     tables.clear()
    """
    _in_child.append(arguments.function("in_child", "callback", callback))
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

    @staticmethod
    def hold_all() -> None:
        """Before a fork: wait until nobody holds any, for ``FORK_PATIENCE`` seconds at most."""
        deadline = time.monotonic() + FORK_PATIENCE
        while not all(each._hold() for each in Whole._all):
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


def _run() -> None:
    collecting = gc.isenabled()
    gc.disable()
    for callback in _in_child:
        try:
            callback()
        except Exception:  # the others have to make good what is theirs
            logger.exception("after the fork: %r failed", callback)
    if collecting:
        gc.enable()


around_fork(Whole.hold_all, Whole.let_go)
in_child(Whole.renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
