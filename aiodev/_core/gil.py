"""The check that this interpreter has a global lock, which the fast paths rely on."""

from __future__ import annotations

import sys

__all__ = ["require_gil"]


def require_gil() -> None:
    """Refuse an interpreter that runs without its global lock.

    A submission is a compiled function that appends to a queue while it holds the lock, and takes no other: that is most of why
    it costs so little. What is known of a stream is replaced by single steps of the interpreter (``dict`` and ``deque``
    operations, assignments), which only the lock keeps whole. Without it two threads that submit to one stream would write
    over each other in native memory.

    Raises:
        ImportError: the lock is disabled.
    """
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # since Python 3.13
    if is_enabled is not None and not is_enabled():
        raise ImportError(
            "aiodev needs the global interpreter lock, which this free-threaded Python runs without: "
            "start it with PYTHON_GIL=1 or -X gil=1, or use a build that has the lock"
        )
