"""Callbacks of a forked child, in one place and one order.

A module whose state a fork spoils (a lock that another thread may have held, threads, descriptors, work of the parent)
registers here what repairs it. The callbacks run in the order in which they were registered, that of the imports: the registry
of backends first, what stands on it later. One that fails does not keep the others from running.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

__all__ = ["around_fork", "in_child"]

logger = logging.getLogger("aiodev")

_in_child: list[Callable[[], object]] = []


def in_child(callback: Callable[[], object]) -> None:
    """Have ``callback`` called in each forked child, before anything else runs there."""
    _in_child.append(callback)


def around_fork(before: Callable[[], object], in_parent: Callable[[], object]) -> None:
    """Have ``before`` called before each fork, and ``in_parent`` after it, in the parent."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent)


def _run() -> None:
    for callback in _in_child:
        try:
            callback()
        except Exception:  # the others have to make good what is theirs
            logger.exception("after the fork: %r failed", callback)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
