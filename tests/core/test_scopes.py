"""What holds for a block of a task: one rule for devices, streams, pools and generators."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import aiodev

GUARDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "device": lambda: aiodev.device("cpu"),
    "stream": lambda: aiodev.Stream("cpu"),
    "pool": lambda: aiodev.memory.MemoryPool("cpu"),
    "generator": lambda: aiodev.fork_rng(),
}


@pytest.mark.parametrize("kind", GUARDS)
def test_guards_are_left_in_reverse_order(kind: str) -> None:
    """The error names both; and afterwards they can be left as they should."""
    outer, inner = GUARDS[kind](), GUARDS[kind]()

    def cross() -> None:
        with outer, inner, pytest.raises(RuntimeError, match="innermost guard of this task is .*; guards must be left in"):
            outer.__exit__(None, None, None)

    contextvars.copy_context().run(cross)


@pytest.mark.parametrize("kind", GUARDS)
def test_a_guard_is_left_where_it_was_entered(kind: str) -> None:
    """Not in another context, which has not entered it."""
    guard = GUARDS[kind]()
    with guard, pytest.raises(RuntimeError, match="the innermost guard of this task is none"):
        contextvars.Context().run(guard.__exit__, None, None, None)
