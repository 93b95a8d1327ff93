"""Programs of two numbers at a time, as bodies compute with lengths: for numbers, and for what stands for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

__all__ = ["lengths", "programs", "run"]


def floor_divide(a: Any, b: Any) -> Any:
    return a // b if b > 0 else a - b


def remainder(a: Any, b: Any) -> Any:
    return a % b if b > 0 else b


def ceil_divide(a: Any, b: Any) -> Any:
    return -(-a // b) if b != 0 else 0


def either(a: Any, b: Any) -> Any:
    return a * 2 if a == b else b + 1


def quotient_and_rest(a: Any, b: Any) -> Any:
    whole, rest = divmod(a, b if b > 0 else 3)
    return whole * 5 - rest + divmod(9, a if a > 0 else 2)[1]


def shifted(a: Any, b: Any) -> Any:
    return (a >> 3) + (b << 1)


#: What programs do to two numbers.
STEPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: 7 - a,
    lambda a, b: a * 4 + 128,
    lambda a, b: 4096 // (a if a >= 1 else 1),
    lambda a, b: a * b // (b if b > 0 else 1),
    min,
    max,
    floor_divide,
    remainder,
    ceil_divide,
    either,
    quotient_and_rest,
    lambda a, b: a.bit_length() * b,
    shifted,
    lambda a, b: range(a % 5 if a > 0 else 1)[-1] if a % 5 != 0 and a > 0 else b,
]

programs = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)
lengths = st.lists(st.integers(0, 40) | st.integers(0, 5000), min_size=3, max_size=3)


def run(program: list[tuple[int, int, int]], numbers: list[Any]) -> list[Any]:
    """Each step takes two of the numbers that there are, and adds one."""
    values = [*numbers, 1, 64]
    for step, first, second in program:
        values.append(STEPS[step](values[first % len(values)], values[second % len(values)]))
    return values
