"""What a body may call that a team runs: the threads of one block, on devices that have them.

A hand-written body says so with ``team=True`` (:meth:`aiodev.Kernel.implementation`); its threads run it together for each
index. Here, in plain Python, a team is one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["team_array", "team_barrier", "team_rank", "team_size"]


def team_rank() -> int:
    """The number of this thread in its team, from 0. On CUDA it is ``threadIdx.x``.

    Example:
        >>> from aiodev import lang
        >>> lang.team_rank(), lang.team_size()
        (0, 1)
    """
    return 0


def team_size() -> int:
    """How many threads a team has: the ``block`` of the body.

    Example:
        >>> from aiodev import lang
        >>> list(range(lang.team_rank(), 3, lang.team_size()))  # the share of this thread
        [0, 1, 2]
    """
    return 1


def team_barrier() -> None:
    """Wait until every thread of the team is here; then each sees what the others wrote to arrays of the team.

    Every thread must come by, or none. What one wrote to an argument the others need not see: arguments do not alias.

    Example:
        >>> from aiodev import lang
        >>> shared = lang.team_array(4, "f8")
        >>> shared[lang.team_rank()] = 7.0
        >>> lang.team_barrier()
        >>> float(shared[0])
        7.0
    """


def team_array(size: int, dtype: Any) -> Any:
    """An array of one dimension in the memory that the team shares; its elements are not defined at first.

    Each place in the source that calls this has one array, however often it is called. ``size`` is a constant. On CUDA it is
    shared memory, of which a body has 48 KiB.

    Example:
        >>> from aiodev import lang
        >>> lang.team_array(4, "f8").shape
        (4,)
    """
    return np.empty(size, dtype)
