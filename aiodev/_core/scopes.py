"""Scopes: what is current for a block of the running task, and for the tasks that are created in it.

A context variable holds an immutable linked scope. A guard enters a scope and leaves it again, so the previous state lives in
the scope, not in the guard: any number of tasks may enter the same guard, nested, at once. Tasks copy the context when
they are created, which is how they inherit, and nothing that they do is seen outside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

__all__ = ["Scope", "Scoped"]


class Scope(Protocol):
    """One link of the chain of scopes.

    Attributes:
        outer: the scope to go back to; None for the outermost.
        owner: the guard that entered it.
    """

    @property
    def outer(self) -> Scope | None: ...

    @property
    def owner(self) -> object: ...


S = TypeVar("S", bound=Scope)


class Scoped(Generic[S]):
    """A scope of the running task.

    Args:
        name: of the context variable.
        outermost: the scope outside of every block.

    Attributes:
        variable: holds the running task's scope.
        get: gives that; a bound method of C, which costs as little as can be.
    """

    __slots__ = ("variable", "get", "set")

    def __init__(self, name: str, outermost: S) -> None:
        self.variable: ContextVar[S] = ContextVar(name, default=outermost)
        self.get: Callable[[], S] = self.variable.get
        self.set: Callable[[S], object] = self.variable.set

    def leave(self, owner: object) -> None:
        """Go back to what was before ``owner`` entered the innermost scope.

        Raises:
            RuntimeError: another guard of this task has entered it.
        """
        scope = self.get()
        outer = scope.outer
        if scope.owner is not owner or outer is None:
            innermost = "none" if outer is None else repr(scope.owner)
            raise RuntimeError(
                f"{owner!r} is left, but the innermost guard of this task is {innermost}; guards must be left in the "
                f"task that entered them, in reverse order"
            )
        self.variable.set(outer)  # type: ignore[arg-type]  # a scope's outer one is of its kind
