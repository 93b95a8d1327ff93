"""What the host knows of failures on a timeline."""

from __future__ import annotations

from aiodev._core.backend import Fault
from aiodev._core.errors import DependencyError

__all__ = ["KnownFault", "dependency_error", "root_cause"]


class KnownFault:
    """A fault as the host knows it; ``cause`` is the fault of another timeline that it comes from.

    ``told``: a waiter of this timeline was told, so that it has ended. ``retrieved``: somebody knows of it, if only through
    a timeline that depends on this one, so that it need not be reported.
    """

    __slots__ = ("cause", "error", "first", "last", "retrieved", "told")

    def __init__(self, fault: Fault, error: BaseException) -> None:
        self.first = fault.first
        self.last = fault.last
        self.cause: KnownFault | None = None
        self.error = error
        self.told = False
        self.retrieved = False

    def explain(self) -> None:
        """Put the failure at the origin of ``cause`` into ``error``, which says that an operation did not run."""
        chain: list[KnownFault] = []
        fault = self
        while fault.cause is not None and fault.error.__cause__ is None:
            chain.append(fault)
            fault = fault.cause
        origin = root_cause(fault.error)
        for explained in chain:
            explained.error.__cause__ = origin

    def covers(self, value: int) -> bool:
        """Whether operation ``value`` failed or did not run because of this."""
        return self.first <= value and (self.last is None or value <= self.last)


def root_cause(error: BaseException) -> BaseException:
    """The failure at the origin of a chain of dependencies."""
    while isinstance(error, DependencyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def dependency_error(operation: str, cause: BaseException | None) -> DependencyError:
    error = DependencyError(operation)
    error.__cause__ = cause
    return error
