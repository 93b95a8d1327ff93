"""Symbolic lengths: whatever meets a trace's conditions is computed by its expressions as with numbers."""

from __future__ import annotations

import copy
import math
import numbers
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from length_programs import lengths, programs, run
from selection import examples

from aiodev._kernel.symbolic.length import Length, NotSymbolic, Quotient, Trace, example, refusals
from aiodev._kernel.tuning import MOST_TERMS


def evaluate(trace: Trace, numbers: dict[str, int], results: list[Any]) -> list[int] | None:
    """What the expressions come to, as they are and reduced; None where a condition is not met."""
    names = dict(numbers)
    for line in trace.lines:
        value = eval(str(line), {}, names)
        if isinstance(line, Quotient):
            names[line.name] = value
        elif not value:
            return None
    found = [eval(one.text(), {}, names) if isinstance(one, Length) else one for one in results]
    reduced = [Length(trace, one.reduced, 0).text() if isinstance(one, Length) else str(one) for one in results]
    assert [eval(text, {}, names) for text in reduced] == found
    return found


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


def written(trace: Trace) -> list[str]:
    """The lines of a trace."""
    return [str(line) for line in trace.lines]


def test_what_is_known_needs_no_condition() -> None:
    """By arithmetic, by bounds, or since it was decided before."""
    trace = Trace()
    n, m = trace.symbol("n", 6), trace.symbol("m", 4)
    assert (n + m) * (n - m) == n * n - m * m and n * 8 // 4 == 2 * n and n - n == 0
    assert n >= 0 and not n * m < 0 and n + 1 > 0 and n + m + 1 != 0
    assert not trace.lines
    assert n > 2 and n > 1 and n != 0 and n * m // n == m and n * 2 > 3
    assert written(trace) == ["2 < n"]
    assert n < 9 and not n >= 9 and n < 10 and n // 16 == 0
    assert written(trace)[1:] == ["n < 9"]
    assert m != 5 and m != n + m and m < n and n - m > 0 and n // 2 == n // 2 < 8
    assert written(trace)[2:] == ["m != 5", "m < n", "(n) // (2)"]


def test_what_is_equal_is_replaced() -> None:
    """By what it is equal to, whatever that is; nothing is asked twice that follows from it."""
    trace = Trace()
    n, m, stride = trace.symbol("n", 6), trace.symbol("m", 6), trace.symbol("s", 24)
    assert n > 2 and n == m and stride == 4 * n
    assert written(trace) == ["2 < n", "n == m", "s == m * 4"]
    assert m > 2 and n * n == m * n and stride * m == 4 * n * n and stride // 4 == n and stride - 4 * m == 0
    assert len(trace.lines) == 3
    assert stride.reduced == (m * 4).terms and trace.is_general()
    assert m % 2 == 0 and n - 2 * (m // 2) == 0
    assert written(trace)[3:] == ["(m) // (2)", "m == q0 * 2"]
    assert m == 6 and n == 6 and stride == 24 and len(trace.lines) == 6 and not trace.is_general()


def test_squares_of_squares_are_not_multiplied_out() -> None:
    """A length that is equal to another one's square, and so on, stays what it is before the expressions get large."""
    trace = Trace()
    lengths = [trace.symbol(f"n{place}", 1) for place in range(40)]
    for one, other in zip(lengths, lengths[1:], strict=False):
        assert one == other * other
    assert len(trace.lines) == 39
    assert all(max(map(len, one.reduced)) <= MOST_TERMS for one in lengths)
    assert lengths[0] == lengths[39] and len(trace.lines) == 40


def test_an_index_is_the_example() -> None:
    """What takes a length as a plain number has it equal that from then on."""
    trace = Trace()
    n = trace.symbol("n", 3)
    assert list(range(n)) == [0, 1, 2] and float(n) == 3.0 and int(n) == 3 and f"{n}" == "3"
    assert written(trace) == ["n == 3"]
    assert n == 3 and n * 2 < 7
    assert len(trace.lines) == 1


#: What is no polynomial, of a number that may be a length.
OTHERWISE: list[Callable[[Any], Any]] = [
    lambda n: n * 1.5, lambda n: n / 2, lambda n: 7 / n, lambda n: n == 3.0, lambda n: n != 3.5, lambda n: n < 2.5,
    lambda n: n <= 2.5, lambda n: n == np.float32(3), lambda n: n**2, lambda n: 2**n, lambda n: n & 6, lambda n: 6 & n,
    lambda n: n | 8, lambda n: n ^ 1, lambda n: 1 << n, lambda n: 99 >> n, lambda n: math.isqrt(n), lambda n: math.ceil(n / 2),
    lambda n: round(n, -1), lambda n: f"{n:03d}", lambda n: str(n), lambda n: np.min_scalar_type(n).name,
    lambda n: np.array([n, 1]).dtype.name, lambda n: np.asarray(n).tobytes(), lambda n: n.to_bytes(4, "big"),
    lambda n: getattr(n, "real", 0), lambda n: n.as_integer_ratio(), lambda n: n + np.uint8(200), lambda n: np.int8(100) * n,
    lambda n: n // np.uint8(64), lambda n: n in {3.5: 0} if n > 1e3 else [n].index(n), lambda n: int(n), lambda n: complex(n),
]  # fmt: skip


@pytest.mark.parametrize("compute", OTHERWISE)
@pytest.mark.parametrize("value", [2, 3, 300])
def test_what_is_no_polynomial_is_that_of_the_example(compute: Callable[[Any], Any], value: int) -> None:
    """For no other length: a condition says so."""
    trace = Trace()

    def result(n: Any) -> Any:
        try:
            return compute(n)
        except Exception as error:
            return type(error)

    with np.errstate(over="ignore"):
        found, expected = result(trace.symbol("n", value)), result(value)
    assert found == expected and (isinstance(found, Length) or type(found) is type(expected))
    assert evaluate(trace, {"n": value + 1}, []) is None


def test_integers_that_are_polynomials_after_all() -> None:
    """And others that need a comparison only."""
    trace = Trace()
    n = trace.symbol("n", 5)
    assert [example(one) for one in (+n, ~n, abs(n - 9), round(n), math.floor(n), math.ceil(n), math.trunc(n))] == [
        5, -6, 4, 5, 5, 5, 5,
    ]  # fmt: skip
    assert written(trace) == ["n < 9"]


def test_a_trace_is_bounded() -> None:
    """A range is searched one by one for what is no plain number."""
    with pytest.raises(NotSymbolic):
        assert Trace().symbol("n", 5) in range(1000, 1 << 31)


def test_whoever_asks_is_told_that_it_is_an_integer() -> None:
    """So that a body decides by it as by the length that it stands for."""
    n = Trace().symbol("n", 3)
    assert isinstance(n, int) and isinstance(n, numbers.Integral) and isinstance(n, Length) and not isinstance(n, str)


def test_a_length_is_no_key_and_stays_in_its_trace() -> None:
    n = Trace().symbol("n", 3)
    for taken in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            taken(n)
    before = refusals()
    with pytest.raises(NotSymbolic):
        hash(n)
    assert refusals() == before + 1
    with pytest.raises(ZeroDivisionError):
        7 // Trace().symbol("n", 0)
    assert n != "3" and (n == None) is False  # noqa: E711
