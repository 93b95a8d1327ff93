"""Programs: a trace's conditions and expressions as words that native code follows, one register for each value.

Instructions follow each other without jumps. What an instruction computes is in the next register; the first one holds 0. An
expression is a sum of products, so it is written as one: how many, and of each the factor, how many registers, and which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiodev._kernel.dispatch.states import EQUALS, IS_FIXED, LENGTH, LESS, MOST_REGISTERS, QUOTIENT, SUM
from aiodev._kernel.symbolic.length import Condition, Length, NotSymbolic, Quotient, Terms, Trace

__all__ = ["Program"]

_SIDES = ("shape", "strides")
#: Of a relation to 0: the instruction, and whether it is to hold.
_RELATIONS = {"<": (LESS, 1), ">=": (LESS, 0), "==": (EQUALS, 1), "!=": (EQUALS, 0)}


class Program:
    """What native code computes of operands' lengths before it submits.

    Attributes:
        words: the instructions.
    """

    def __init__(self) -> None:
        self.words: list[int] = []
        self._symbols: dict[str, tuple[int, int, int] | Quotient] = {}
        self._registers: dict[Any, int] = {frozenset(): 0}
        self._count = 1

    def fix(self, operand: int, side: str, axis: int, value: int) -> None:
        """Have a call be another one, where a length or a stride of an operand is not ``value``."""
        self.words += (IS_FIXED, operand, _SIDES.index(side), axis, value)

    def name(self, symbol: str, operand: int, side: str, axis: int) -> None:
        """Say which length or stride a symbol is."""
        self._symbols[symbol] = operand, _SIDES.index(side), axis

    def decide(self, trace: Trace) -> None:
        """Have a call be another one, where a condition is not met. What is less than 0 need not be told from 0 before."""
        less = {_without_sign(line.terms) for line in trace.lines if isinstance(line, Condition) and line.relation == "<"}
        for line in trace.lines:
            if isinstance(line, Quotient):
                self._symbols[line.name] = line
            elif line.relation != "!=" or _without_sign(line.terms) not in less:
                code, holds = _RELATIONS[line.relation]
                self.words += (code, self._sum(line.terms), holds)

    def register(self, length: Any) -> int:
        """Which register holds a length, of a call that meets all conditions; 0 for a number."""
        return self._sum(length.reduced) if isinstance(length, Length) else 0

    def value(self, length: Any) -> int:
        """Which register holds a length, or a number."""
        return self._sum(length.reduced if isinstance(length, Length) else {(): length} if length else {})

    def _sum(self, terms: Terms) -> int:
        key = frozenset(terms.items())
        known = self._registers.get(key)
        if known is not None:
            return known
        if len(terms) == 1 and len(next(iter(terms))) == 1 and 1 in terms.values():
            ((symbol,),) = terms
            made = self._symbol(symbol)
        else:
            made = self._added(terms)
        self._registers[key] = made
        return made

    def _added(self, terms: Mapping[tuple[str, ...], int]) -> int:
        words = [SUM, len(terms)]
        for monomial, factor in terms.items():
            words += (factor, len(monomial), *[self._sum({(symbol,): 1}) for symbol in monomial])
        return self._next(*words)

    def _symbol(self, symbol: str) -> int:
        of = self._symbols[symbol]
        if isinstance(of, Quotient):
            return self._next(QUOTIENT, self._sum(of.dividend), self._sum(of.divisor))
        return self._next(LENGTH, *of)

    def _next(self, *words: int) -> int:
        if self._count >= MOST_REGISTERS:
            raise NotSymbolic("more values than native code has room for")
        self.words += words
        self._count += 1
        return self._count - 1


def _without_sign(terms: Terms) -> frozenset[Any]:
    """What an expression and its negative have in common."""
    negative = {monomial: -factor for monomial, factor in terms.items()}
    return frozenset([frozenset(terms.items()), frozenset(negative.items())])
