"""Properties that are found out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["once"]

T = TypeVar("T")


class once(Generic[T]):
    """A property that is found out when it is first asked for, and kept in the instance.

    In place of :class:`functools.cached_property`, which up to Python 3.11 has a lock for each property of all instances: a
    child that was forked while another thread held it would wait for good. Two threads may find it out; all have the first.
    """

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find, self.__doc__ = find, find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        # An instance's own attribute comes before this, which has no `__set__`: it is called once.
        found: T = vars(instance).setdefault(self._name, self._find(instance))
        return found
