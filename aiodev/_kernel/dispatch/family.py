"""Families: calls of an operation that differ in lengths and strides alone, and when a plan is made for those to come.

To make a plan takes some ten times as long as the call that it is made of, and may come to nothing. So it waits until enough
calls of a family have come that no plan serves, for twice as many each time; from the beginning again where plans have paid.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from aiodev._array.form import Form
from aiodev._kernel.tuning import MOST_PATIENCE, MOST_PLANS, NARROW_PLANS, RECURRING, RECURS, TURNS, WORTH_A_PLAN

__all__ = ["Family"]


class Family:
    """Calls that differ in lengths and strides alone.

    Attributes:
        plan: what serves many of them, that which was made or has served last.
        plans: all of these, that one first.
        served: how many calls they have served since one was last tried.
    """

    __slots__ = ("_calls", "_examples", "_last", "_patience", "plan", "plans", "served")

    def __init__(self) -> None:
        self.plan: Callable[..., Any] = _serve_none
        self.plans: list[Callable[..., Any]] = []
        self.served = 0
        self._examples: list[list[Form]] = []  # the forms of arrays that plans were made of
        self._last: list[list[Form]] = []  # and of those of the last few calls, which may be several that take turns
        self._calls, self._patience = 0, RECURRING  # that no plan has served since one was last tried, and until the next

    def meet(self, forms: list[Form]) -> list[list[Form]] | None:
        """Count a call that no plan serves; if it is time to make one, the forms of others, whose lengths it is to serve, too.

        That is one that differs the least; or where plans of that kind have not sufficed, all.
        """
        others = [other for other in (*self._last, *self._examples) if len(other) == len(forms)]
        self._last = [forms, *self._last[: TURNS - 1]]
        self._calls += 1
        if self.served >= WORTH_A_PLAN:
            self._patience = RECURRING
        if self._calls < self._patience or not forms or not others:
            return None
        self._calls, self.served, self._patience = 0, 0, min(2 * self._patience, MOST_PATIENCE)
        return others if len(self.plans) >= NARROW_PLANS else [min(others, key=functools.partial(_differences, forms))]

    def is_plain_turn(self) -> bool:
        """Whether the next call is none of those that are looked at (``RECURS``)."""
        return self.served % RECURS != 0

    def note(self, plan: Callable[..., Any]) -> None:
        """A plan has served a call; it is tried first the next time."""
        self.served += 1
        if plan is not self.plan:
            self.plans = [plan, *(other for other in self.plans if other is not plan)]
            self.plan = plan

    def put_off(self) -> None:
        """Try at the next such call what could not be tried, since code is still being compiled."""
        self._patience = max(RECURRING, self._patience // 2)
        self._calls = self._patience - 1

    def keep(self, plan: Callable[..., Any]) -> None:
        """Have a plan that was made of the last call; if there are many, that is forgotten that has not served for longest."""
        self.plans = [plan, *self.plans[: MOST_PLANS - 1]]
        self.plan = plan
        self._examples = [*self._last[:1], *self._examples[: MOST_PLANS - 1]]


def _serve_none(*operands: Any) -> None:
    """What a family has before there is a plan."""


def _differences(forms: Sequence[Form], others: Sequence[Form]) -> int:
    """How many lengths and strides of some arrays differ from those of others."""
    count = 0
    for form, other in zip(forms, others, strict=True):
        count += sum(map(operator.ne, form.shape, other.shape))
        if not form.packed:
            count += sum(map(operator.ne, form.strides, other.strides))
    return count
