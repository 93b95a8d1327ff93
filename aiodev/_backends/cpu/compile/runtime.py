"""numba's runtime, which few kernels call: its allocator, its helpers, hashes, and the environments of functions.

To import this imports numba, and sets up what its generated code looks for.
"""

from __future__ import annotations

from typing import Any

import numba.cpython.hashing  # noqa: F401  # what texts are hashed with in this process, which code looks for
from numba.core.environment import Environment
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

__all__ = ["environment"]

_environments: list[Any] = []


def environment(constants: list[Any]) -> int:
    """The address of an environment with these constants, which lives for ever."""
    made = Environment({})
    made.consts.extend(constants)
    _environments.append(made)
    return id(made)


# Code may allocate (a computed exception does); nothing else would have set up the allocator.
rtsys.initialize(cpu_target.target_context)
