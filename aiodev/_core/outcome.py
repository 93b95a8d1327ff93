"""Where the result of a called function goes, and that of an awaitable."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

__all__ = ["Outcome"]

T = TypeVar("T")


class Outcome(Generic[T]):
    """A result, once there is one. It knows no timeline: who computes the result must not hold the stream."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: T = cast("T", None)  # and so it stays where there is a failure instead
