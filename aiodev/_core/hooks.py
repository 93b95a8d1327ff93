"""Hooks: functions that a layer calls and a layer above it provides.

Imports point down, and some work of a lower layer is done by what stands above it: arrays are copied by kernels, streams copy
arrays. The lower layer has a :class:`Hook`, which names the module that provides its function, when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, ParamSpec, TypeVar

__all__ = ["Hook"]

P = ParamSpec("P")
T = TypeVar("T")


class Hook(Generic[P, T]):
    """A function of a layer above.

    Args:
        provider: the module that provides it.

    Attributes:
        call: the function itself, called without a step in between. It raises RuntimeError until the provider is imported.
    """

    __slots__ = ("call", "provider")

    call: Callable[P, T]

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.call = self._missing

    def _missing(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        raise RuntimeError(f"{self.provider} provides this; import aiodev, which imports that")

    def provide(self, function: Callable[P, T]) -> Callable[P, T]:
        """Have ``function`` called from now on; for use as a decorator."""
        self.call = function
        return function
