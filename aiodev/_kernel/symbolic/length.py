"""Symbolic integers: lengths that are not known, and a trace of what is computed of them and decided by them.

A body that is run with such lengths computes expressions in place of numbers. Where it decides by one, in a comparison or by
taking it as an index, the decision is the one that the length's example leads to, and becomes a condition: what the body does
is the same for all lengths that meet the conditions. PyTorch does so for dynamic shapes, and calls the conditions guards
(https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html).

**Invariants.**

1.  An expression is a polynomial, with integer coefficients, in symbols; a quotient that does not come out even is a symbol of
    its own. So what is equal for all lengths by the rules of rings is known to be equal, and needs no condition.
2.  What bounds of the symbols decide needs no condition either: lengths are 0 or more, and every condition narrows them. Nor
    does what follows from equalities that are conditions: a symbol that is equal to something is replaced by that.
3.  Nothing gets at the example without a condition. As a key of a table, which would outlive the trace, a length is refused.
4.  A refusal counts though the body catches it: what it does then is not what it does with a number.
"""

from __future__ import annotations

import math
import numbers
import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aiodev._kernel.tuning import MOST_LINES, MOST_TERMS

__all__ = ["Condition", "Length", "NotSymbolic", "Quotient", "Trace", "example", "refusals"]

#: A product of symbols, by their names in order; of none for the constant.
Monomial = tuple[str, ...]
Terms = dict[Monomial, int]
#: Least and largest value.
Bounds = tuple[float, float]


class _Refusals(threading.local):
    """Of each thread.

    Attributes:
        count: how many there have been.
    """

    count = 0


_refusals = _Refusals()


def refusals() -> int:
    """How often this thread has been refused something symbolic, caught or not."""
    return _refusals.count


class NotSymbolic(Exception):  # it is caught at once
    """A body does what has no symbolic counterpart, so that its calls are found out one by one."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        _refusals.count += 1


class Condition(NamedTuple):
    """An expression stands to 0 as it did for the example: ``"<"``, ``">="``, ``"=="`` or ``"!="``."""

    terms: Terms
    relation: str

    def __str__(self) -> str:
        left, right = _sides(self.terms)
        return f"{left} {self.relation} {right}"


class Quotient(NamedTuple):
    """A symbol: an expression divided by another, rounded down."""

    name: str
    dividend: Terms
    divisor: Terms

    def __str__(self) -> str:
        return f"({_text(self.dividend)}) // ({_text(self.divisor)})"


class Trace:
    """What is computed of lengths, and decided by them.

    Attributes:
        lines: quotients and conditions, each behind what it names.
    """

    def __init__(self) -> None:
        self.lines: list[Condition | Quotient] = []
        self._lengths: list[str] = []
        self._bounds: dict[str, Bounds] = {}
        self._quotients: dict[Any, Length] = {}
        self._decided: dict[Any, bool] = {}
        self._equal: dict[str, Terms] = {}  # to what a symbol is, which occurs in none of these

    def symbol(self, name: str, value: int, least: float = 0) -> Length:
        """A length of that name, of which ``value`` is an example."""
        self._lengths.append(name)
        self._bounds[name] = least, math.inf
        return Length(self, {(name,): 1}, value)

    def is_general(self) -> bool:
        """Whether there is a symbol that need not be the example."""
        bounds = [self._bounds_of(self.reduced({(name,): 1})) for name in self._lengths]
        return any(least < most for least, most in bounds)

    def reduced(self, terms: Terms) -> Terms:
        """The same for all lengths that meet the conditions so far, without symbols that they make equal to others."""
        if not any(name in self._equal for monomial in terms for name in monomial):
            return terms
        made: Terms = {}
        for monomial, factor in terms.items():
            product: Terms = {(): factor}
            for name in monomial:
                product = _product(product, self._equal.get(name, {(name,): 1}))
            for one, times in product.items():
                made[one] = made.get(one, 0) + times
        return {monomial: factor for monomial, factor in made.items() if factor}

    def decide(self, terms: Terms, value: int, relation: str) -> bool:
        """Whether ``terms``, whose value is now ``value``, is ``"<"`` or ``"=="`` to 0; a condition, if that is not known."""
        terms = self.reduced(terms)
        least, most = self._bounds_of(terms)
        if relation == "<":
            if most < 0 or least >= 0:
                return most < 0
        elif least > 0 or most < 0 or least == most:
            return least == most == 0
        what = frozenset(terms.items()), relation
        known = self._decided.get(what)
        if known is not None:
            return known
        holds = value < 0 if relation == "<" else value == 0
        self._decided[what] = holds
        said = relation if holds else {"<": ">=", "==": "!="}[relation]
        self._write(Condition(terms, said))
        self._narrow(terms, said)
        if said == "==":
            self._equate(terms)
        return holds

    def divide(self, a: Length, b: Length) -> int | Length:
        """The quotient, rounded down."""
        if b == 0:
            raise ZeroDivisionError("division by a length of 0")
        dividend, divisor = self.reduced(a.terms), self.reduced(b.terms)
        even = _divided(dividend, divisor)
        if even is not None:
            return self.made(even, a.value // b.value)
        least, most = _quotient_bounds(self._bounds_of(dividend), self._bounds_of(divisor))
        if least == most:
            return a.value // b.value
        what = frozenset(dividend.items()), frozenset(divisor.items())
        known = self._quotients.get(what)
        if known is None:
            name = f"q{len(self._quotients)}"
            self._write(Quotient(name, dividend, divisor))
            self._bounds[name] = least, most
            known = self._quotients[what] = Length(self, {(name,): 1}, a.value // b.value)
        return known

    def made(self, terms: Terms, value: int) -> int | Length:
        """An expression; if it is constant, the number."""
        terms = {monomial: factor for monomial, factor in terms.items() if factor}
        if not terms or terms.keys() == {()}:
            return terms.get((), 0)
        return Length(self, terms, value)

    def _equate(self, terms: Terms) -> None:
        """Have a symbol that is alone in a term be replaced from now on, by what it is where ``terms`` is 0.

        Not where that makes large expressions, as of a square of a square.
        """
        for monomial, factor in terms.items():
            if len(monomial) == 1 and factor in (1, -1) and sum(monomial[0] in other for other in terms) == 1:
                (name,) = monomial
                own = {other: -factor * times for other, times in terms.items() if other != monomial}
                before, self._equal = self._equal, {name: own}
                after = {symbol: self.reduced(what) for symbol, what in before.items()} | self._equal
                if any(max(len(what), *map(len, what), 0) > MOST_TERMS for what in after.values()):
                    self._equal = before
                    return
                self._equal = after
                if list(own.values()) == [1] and len(other := next(iter(own))) == 1:  # what is known of one is of the other
                    (least, most), (low, high) = self._bounds[name], self._bounds[other[0]]
                    self._bounds[other[0]] = max(least, low), min(most, high)
                return

    def _write(self, line: Condition | Quotient) -> None:
        if len(self.lines) >= MOST_LINES:  # as of a length that is looked for among the elements of a range
            raise NotSymbolic("the body decides too much by lengths")
        self.lines.append(line)

    def _bounds_of(self, terms: Terms) -> Bounds:
        least: float = 0
        most: float = 0
        for monomial, factor in terms.items():
            low: float = factor
            high: float = factor
            for name in monomial:
                corners = [_times(one, other) for one in (low, high) for other in self._bounds[name]]
                low, high = min(corners), max(corners)
            least, most = least + low, most + high
        return least, most

    def _narrow(self, terms: Terms, relation: str) -> None:
        """Narrow the bounds of the only symbol of an expression that is linear in it, which now stands so to 0."""
        symbols = [monomial for monomial in terms if monomial]
        if len(symbols) != 1 or len(symbols[0]) != 1:
            return
        (name,), factor, rest = symbols[0], terms[symbols[0]], terms.get((), 0)
        least, most = self._bounds[name]
        if relation == "==":
            least = most = -rest // factor
        elif relation == "!=":
            if rest % factor == 0:
                least += least == -rest // factor
                most -= most == -rest // factor
        elif (relation == "<") == (factor > 0):  # it is at most so large
            most = min(most, (-rest - 1) // factor if relation == "<" else rest // -factor)
        else:
            least = max(least, -((rest + 1) // factor) if relation == "<" else -(rest // factor))
        self._bounds[name] = least, most


def _of_example(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A method: what comes of the example, which the length is to equal from now on."""
    return lambda length, *args: operation(length.__index__(), *args)


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda length, other: operation(other, length.__index__())


class Length:
    """An integer expression over symbols. Who asks whether it is an ``int`` is told so, as of the length that it stands for.

    It has what an ``int`` has; where that is no polynomial, it is the example's.

    Attributes:
        terms: its polynomial.
        value: what it is of the example.
    """

    __slots__ = ("_trace", "terms", "value")

    __array_priority__ = math.inf  # NumPy's numbers leave it to this class what comes of the two

    def __init__(self, trace: Trace, terms: Terms, value: int) -> None:
        self._trace, self.terms, self.value = trace, terms, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    @property
    def reduced(self) -> Terms:
        """Its polynomial, by all that the trace knows to be equal by now."""
        return self._trace.reduced(self.terms)

    def text(self) -> str:
        """Its Python source."""
        return _text(self.terms)

    # Arithmetic

    def _lifted(self, other: Any) -> Length | None:
        if isinstance(other, Length):
            return other
        if not isinstance(other, int | np.int64):  # narrower integers of NumPy's wrap
            return None
        return Length(self._trace, {(): int(other)} if other else {}, int(other))

    def _plain(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """Computed with another kind of number, as of a plain one."""
        return operation(self.__index__(), other) if isinstance(other, numbers.Number) else NotImplemented

    def _plus(self, other: Any, factor: int) -> Any:
        own = self._lifted(other)
        if own is None:
            return self._plain(other, operator.add if factor == 1 else operator.sub)
        terms = dict(self.terms)
        for monomial, one in own.terms.items():
            terms[monomial] = terms.get(monomial, 0) + factor * one
        return self._trace.made(terms, self.value + factor * own.value)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        own = self._lifted(other)
        if own is None:
            return self._plain(other, operator.mul)
        return self._trace.made(_product(self.terms, own.terms), self.value * own.value)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, operator.floordiv) if own is None else self._trace.divide(self, own)

    def __rfloordiv__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, lambda a, b: b // a) if own is None else self._trace.divide(own, self)

    def __mod__(self, other: Any) -> Any:
        return self._plain(other, operator.mod) if self._lifted(other) is None else self - self // other * other

    def __rmod__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, lambda a, b: b % a) if own is None else own - own // self * self

    def __divmod__(self, other: Any) -> Any:
        return self._plain(other, divmod) if self._lifted(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, lambda a, b: divmod(b, a)) if own is None else divmod(own, self)

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other) if isinstance(other, int) else NotImplemented

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other) if isinstance(other, int) else NotImplemented

    def __pos__(self) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __invert__(self) -> Any:
        return -self - 1

    __truediv__, __rtruediv__ = _of_example(operator.truediv), _reflected(operator.truediv)
    __pow__, __rpow__ = _of_example(pow), _reflected(pow)
    __and__, __rand__ = _of_example(operator.and_), _reflected(operator.and_)
    __or__, __ror__ = _of_example(operator.or_), _reflected(operator.or_)
    __xor__, __rxor__ = _of_example(operator.xor), _reflected(operator.xor)
    __rlshift__, __rrshift__ = _reflected(operator.lshift), _reflected(operator.rshift)
    __format__ = _of_example(format)

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else round(self.__index__(), digits)

    # Decisions

    def _decide(self, other: Any, relation: str) -> Any:
        """Whether it stands in this relation to another."""
        own = self._lifted(other)
        if own is None:
            return self._plain(other, operator.lt if relation == "<" else operator.eq)
        difference = self - own
        if not isinstance(difference, Length):
            return difference < 0 if relation == "<" else difference == 0
        return self._trace.decide(difference.terms, difference.value, relation)

    def __eq__(self, other: Any) -> Any:
        return self._decide(other, "==")

    def __ne__(self, other: Any) -> Any:
        is_equal = self._decide(other, "==")
        return is_equal if is_equal is NotImplemented else not is_equal

    def __lt__(self, other: Any) -> Any:
        return self._decide(other, "<")

    def __ge__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, operator.ge) if own is None else not self._decide(own, "<")

    def __gt__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, operator.gt) if own is None else own._decide(self, "<")

    def __le__(self, other: Any) -> Any:
        own = self._lifted(other)
        return self._plain(other, operator.le) if own is None else not own._decide(self, "<")

    def __bool__(self) -> bool:
        return bool(self != 0)

    def bit_length(self) -> int:
        """As many bits as the example has, which it is to have from now on."""
        if self < 0:
            return int((-self).bit_length())
        bits = self.value.bit_length()
        if self >= 1 << bits or (bits and self < 1 << bits - 1):
            raise AssertionError(f"{self.text()} has not so many bits as its example")
        return bits

    def __index__(self) -> int:
        """The example, which it is to equal from now on."""
        if self != self.value:
            raise AssertionError(f"{self.text()} differs from its example")
        return self.value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __repr__(self) -> str:
        return str(self.__index__())

    def __hash__(self) -> NoReturn:
        raise NotSymbolic("a symbolic length is no key")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.__index__(), dtype)

    def __getattr__(self, name: str) -> Any:
        """What else an ``int`` has, of the example."""
        if not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self.__index__(), name)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a symbolic length belongs to its trace, and is not pickled or copied")


def example(value: Any) -> Any:
    """The example of a length; anything else as it is."""
    return value.value if isinstance(value, Length) else value


def _product(terms: Terms, by: Terms) -> Terms:
    """The product of two polynomials; factors may be 0."""
    made: Terms = {}
    for one, factor in terms.items():
        for another, times in by.items():
            monomial = tuple(sorted(one + another))
            made[monomial] = made.get(monomial, 0) + factor * times
    return made


def _times(one: float, other: float) -> float:
    return 0 if one == 0 or other == 0 else one * other


def _quotient_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Of a quotient, rounded down, by what is 1 or more; of any other it may be anything."""
    if b[0] < 1:
        return -math.inf, math.inf
    return _quotient(a[0], b[a[0] >= 0]), _quotient(a[1], b[a[1] < 0])


def _quotient(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    return -(a < 0) if math.isinf(b) else a // b


def _divided(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Terms | None:
    """A quotient by a single term, which comes out even for every length; else None."""
    if len(b) != 1:
        return None
    ((divisor, by),) = b.items()
    terms: Terms = {}
    for monomial, factor in a.items():
        rest = list(monomial)
        for name in divisor:
            if name not in rest:
                return None
            rest.remove(name)
        if factor % by:
            return None
        terms[tuple(rest)] = factor // by
    return terms


def _text(terms: Mapping[Monomial, int]) -> str:
    """Python source; a constant is last."""
    if not terms:
        return "0"
    text = ""
    for monomial, factor in sorted(terms.items(), key=lambda item: (-len(item[0]), item[0])):
        size = abs(factor)
        product = " * ".join([*monomial, *([str(size)] if size != 1 or not monomial else [])])
        sign = ("" if not text else " + ") if factor > 0 else ("-" if not text else " - ")
        text += sign + product
    return text


def _sides(terms: Mapping[Monomial, int]) -> tuple[str, str]:
    """Of an expression that is compared with 0: what is added, and what is subtracted."""
    left = {monomial: factor for monomial, factor in terms.items() if factor > 0}
    right = {monomial: -factor for monomial, factor in terms.items() if factor < 0}
    return _text(left), _text(right)
