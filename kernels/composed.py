"""Functions that call others: on a bounded stream they are submitted whole or refused whole, as every function is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import aiodev

__all__ = ["composed"]

P = ParamSpec("P")
R = TypeVar("R")


def composed(function: Callable[P, R]) -> Callable[P, R]:
    """A function that submits several operations, which count as one, to the current stream of its first array's device."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for value in (*args, *kwargs.values()):
            if isinstance(value, aiodev.Array):
                with aiodev.current_stream(value.device).as_one():
                    return function(*args, **kwargs)
        return function(*args, **kwargs)  # which says what it expected

    return call
