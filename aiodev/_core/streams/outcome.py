"""Outcomes: the results of called functions and of awaitables, and how what they raise reaches a waiter."""

from __future__ import annotations

import sys
from typing import Generic, TypeVar, cast

from aiodev._core.errors import CallError

__all__ = ["Outcome", "to_await"]

T = TypeVar("T")


class Outcome(Generic[T]):
    """A result, once there is one. It holds no timeline: the thread that computes a result must not keep the stream alive."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: T = cast("T", None)  # and so it stays where there is a failure instead


#: What cancels a task that raises it, by the module of who defines it: none is imported for that.
_CANCELLATIONS = (("asyncio", "CancelledError"), ("trio", "Cancelled"))


def to_await(error: BaseException, operation: str) -> BaseException:
    """``error`` as a waiter can raise it: itself, or :class:`CallError` with it as the cause.

    In a coroutine ``StopIteration`` and ``GeneratorExit`` say that it ends, and a cancellation that somebody wanted this task
    to end. What a function of the host raised says nothing of the task that waits for it.
    """
    kinds: list[type[BaseException]] = [StopIteration, StopAsyncIteration, GeneratorExit]
    for module, name in _CANCELLATIONS:
        if module in sys.modules:
            kinds.append(getattr(sys.modules[module], name))
    if not isinstance(error, tuple(kinds)):
        return error
    wrapped = CallError(operation)
    wrapped.__cause__ = error
    return wrapped
