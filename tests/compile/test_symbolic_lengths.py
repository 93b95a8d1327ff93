"""Symbolic lengths: whatever meets a trace's conditions is computed by its expressions as with numbers."""

from __future__ import annotations

import copy
import numbers
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

from aiodev._kernel.symbolic.length import Length, Trace, example


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


def evaluate(trace: Trace, numbers: dict[str, int], results: list[Any]) -> list[int] | None:
    """What the expressions come to; None where a condition is not met."""
    names = dict(numbers)
    for name, text in trace.lines:
        value = eval(text, {}, names)
        if name:
            names[name] = value
        elif not value:
            return None
    return [eval(one.text(), {}, names) if isinstance(one, Length) else one for one in results]


@settings(max_examples=examples(2000), deadline=None)
@given(program=programs, first=lengths, others=st.lists(lengths, max_size=8))
def test_programs_compute_what_they_compute_with_numbers(
    program: list[tuple[int, int, int]], first: list[int], others: list[list[int]]
) -> None:
    """Of every other length that meets the conditions; those of the example meet them."""
    trace = Trace()
    results = run(program, [trace.symbol(f"n{place}", value) for place, value in enumerate(first)])
    expected = run(program, first)
    assert [example(one) for one in results] == expected
    near = [[value + step for value in first] for step in (1, 2)]
    for values in (first, *near, *others):
        found = evaluate(trace, {f"n{place}": value for place, value in enumerate(values)}, results)
        assert found == run(program, values) or (found is None and values is not first)


def test_what_is_known_needs_no_condition() -> None:
    """By arithmetic, by bounds, or since it was decided before."""
    trace = Trace()
    n, m = trace.symbol("n", 6), trace.symbol("m", 4)
    assert (n + m) * (n - m) == n * n - m * m and n * 8 // 4 == 2 * n and n - n == 0
    assert n >= 0 and not n * m < 0 and n + 1 > 0 and n + m + 1 != 0
    assert not trace.lines
    assert n > 2 and n > 1 and n != 0 and n * m // n == m and n * 2 > 3
    assert trace.lines == [("", "2 < n")]
    assert n < 9 and not n >= 9 and n < 10 and n // 16 == 0
    assert trace.lines[1:] == [("", "n < 9")]
    assert m != 5 and m != n + m and m < n and n - m > 0 and n // 2 == n // 2 < 8
    assert trace.lines[2:] == [("", "m != 5"), ("", "m < n"), ("q0", "(n) // (2)")]


def test_an_index_is_the_example() -> None:
    """What takes a length as a plain number has it equal that from then on."""
    trace = Trace()
    n = trace.symbol("n", 3)
    assert list(range(n)) == [0, 1, 2] and float(n) == 3.0 and int(n) == 3 and f"{n}" == "3"
    assert trace.lines == [("", "n == 3")]
    assert n == 3 and n * 2 < 7
    assert len(trace.lines) == 1


def test_whoever_asks_is_told_that_it_is_an_integer() -> None:
    """So that a body decides by it as by the length that it stands for."""
    n = Trace().symbol("n", 3)
    assert isinstance(n, int) and isinstance(n, numbers.Integral) and isinstance(n, Length) and not isinstance(n, str)


def test_a_length_is_no_key_and_stays_in_its_trace() -> None:
    n = Trace().symbol("n", 3)
    for taken in (hash, pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            taken(n)  # type: ignore[operator]
    floats: list[Callable[[], Any]] = [
        lambda: n * 1.5, lambda: n / 2, lambda: n == 3.0, lambda: n != 3.5, lambda: n < 2.5, lambda: n == np.float32(3),
    ]  # fmt: skip
    for refused in floats:
        with pytest.raises(TypeError):
            refused()
    with pytest.raises(ZeroDivisionError):
        7 // Trace().symbol("n", 0)
    assert n != "3" and (n == None) is False  # noqa: E711
