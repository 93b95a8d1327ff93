"""Rules of conformance: named functions whose docstring is what a backend promises."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiodev.testing.workbench import Workbench

__all__ = ["ConformanceError", "NotApplicable", "Rule", "rule"]


class ConformanceError(AssertionError):
    """A backend breaks a rule; ``rule`` is its name, ``promise`` what it says.

    Example:
        >>> from aiodev.testing import ConformanceError
        >>> print(ConformanceError("order", "Operations run in order.", "2 ran before 1"))
        order: 2 ran before 1
        The rule: Operations run in order.
    """

    def __init__(self, rule: str, promise: str, detail: str) -> None:
        self.rule = rule
        self.promise = promise
        self.detail = detail
        super().__init__(rule, promise, detail)

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}\nThe rule: {self.promise}"


class NotApplicable(Exception):
    """A rule says nothing about this backend; the message says why.

    Example:
        >>> from aiodev.testing import NotApplicable
        >>> raise NotApplicable("the device has no timing")
        Traceback (most recent call last):
            ...
        aiodev.testing.rule.NotApplicable: the device has no timing
    """


@dataclass(frozen=True)
class Rule:
    """One promise of a backend and the check of it.

    Example:
        >>> from aiodev.testing import RULES
        >>> [rule.promise for rule in RULES if rule.name == "values_count_from_one"]
        ['Submissions return 1, 2, 3, …, SUBMITTED follows at once, and all counters of a fresh queue are zero.']
    """

    name: str
    promise: str
    check: Callable[[Workbench], None]

    def __str__(self) -> str:
        return self.name


def rule(check: Callable[[Workbench], None]) -> Rule:
    """Make a rule of a function, named after it, whose docstring is the promise."""
    promise = inspect.getdoc(check)
    if not promise:
        raise ValueError(f"rule {check.__name__} has no docstring to say what it promises")
    return Rule(check.__name__, " ".join(promise.split()), check)
