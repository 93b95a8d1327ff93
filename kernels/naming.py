"""Wrap a generated body as a kernel named after the public function, so that errors name it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import aiodev

__all__ = ["named_kernel"]


def named_kernel(
    name: str, body: Callable[..., Any], *, fastmath: bool | Collection[str] = False, uniform: bool | None = None
) -> aiodev.Kernel:
    """The kernel that a body is, called after its operation, under which errors name it. What it calls ``x`` it only reads."""
    body.__name__ = body.__qualname__ = name
    code = body.__code__
    reads = {"x"}.intersection(code.co_varnames[: code.co_argcount])
    return aiodev.kernel(fastmath=fastmath, uniform=uniform, reads=reads)(body)
