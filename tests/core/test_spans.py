"""Spans of operations: what is in them, against a table of operations; and how much of them an addition shares."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from aiodev._core.timeline import spans
from aiodev._core.timeline.spans import Spans

MOST = 60  # operations

_lengths = st.sampled_from((1, 1, 1, 2, 3, 20))
_rows = st.tuples(st.integers(1, MOST), _lengths).map(lambda row: (row[0], min(row[0] + row[1] - 1, MOST)))
_additions = st.lists(st.tuples(_rows, st.sampled_from("ab")), min_size=5, max_size=40)


def check(found: Spans[str], expected: dict[int, str]) -> None:
    """Whether spans have the marks of a table, and are as they must be."""
    every = list(found)
    assert len(found) == len(every) and () not in found._chunks
    assert all(span.first <= span.last for span in every)
    for before, after in zip(every, every[1:], strict=False):
        assert before.last + 1 < after.first or (before.last + 1 == after.first and before.mark != after.mark)
    for value in range(MOST + 2):
        span = found.at(value)
        assert (None if span is None else span.mark) == expected.get(value), (value, every)
        assert span is None or (span.first <= value <= span.last and span in every)


def gaps_of(expected: dict[int, str], first: int, last: int) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    for value in range(first, last + 1):
        if value in expected:
            continue
        if gaps and gaps[-1][1] == value - 1:
            gaps[-1] = gaps[-1][0], value
        else:
            gaps.append((value, value))
    return gaps


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which sixty operations have many."""
    monkeypatch.setattr(spans, "_CHUNK", 2)


@settings(deadline=None)
@given(additions=_additions)
def test_additions_fill_gaps(additions: list[tuple[tuple[int, int], str]]) -> None:
    """What has a mark keeps it, the rest gets one; who has the spans of before has what they were."""
    found, expected = Spans[str](), dict[int, str]()
    for (first, last), mark in additions:
        before, known = found, dict(expected)
        gaps = gaps_of(expected, first, last)
        assert found.gaps(first, last) == gaps
        found, filled = found.filled(first, last, mark)
        assert filled == gaps
        for value in range(first, last + 1):
            expected.setdefault(value, mark)
        check(found, expected)
        check(before, known)


@settings(deadline=None)
@given(additions=_additions, since=st.integers(0, MOST + 1))
def test_the_oldest_are_left_out(additions: list[tuple[tuple[int, int], str]], since: int) -> None:
    """All that reaches up to an operation or begins there stays, and one span ahead of that."""
    found = Spans[str]()
    for (first, last), mark in additions:
        found, _ = found.filled(first, last, mark)
    every, left = list(found), found.since(since)
    assert list(left) == every[len(every) - len(left) :]
    assert len([span for span in left if span.last < since]) <= 1
    check(left, {value: span.mark for span in left for value in range(span.first, span.last + 1)})
    assert {span for span in every if span.last >= since} <= set(left)


@settings(deadline=None)
@given(additions=_additions, count=st.integers(0, 12), passed=st.integers(0, MOST + 1))
def test_which_are_the_newest(additions: list[tuple[tuple[int, int], str]], count: int, passed: int) -> None:
    """So many at least, not many more, and those that are not passed."""
    found = Spans[str]()
    for (first, last), mark in additions:
        found, _ = found.filled(first, last, mark)
    every = list(found)
    first = found.first_of_newest(count, passed)
    older = [span for span in every if span.last < first]
    assert all(span.last <= passed for span in older)
    assert not older or len(every) - len(older) >= count
    could_go = [span for span in every[: max(0, len(every) - count)] if span.last <= passed]
    assert len(could_go) - len(older) <= 2 * spans._CHUNK


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_an_addition_copies_what_it_is_near(order: str) -> None:
    """Of a thousand chunks all others are the very same objects as before; and there are not many short ones, or long ones."""
    values = list(range(0, 8000, 4))
    if order == "descending":
        values.reverse()
    elif order == "random":
        random.Random(0).shuffle(values)
    found = Spans[str]()
    for value in values:
        found, _ = found.filled(value, value, "a")
    assert len(found._chunks) <= 1400 and max(map(len, found._chunks)) <= 2 * spans._CHUNK
    for value in (2, 3994, 4001, 7998, 9000):
        after, _ = found.filled(value, value, "a")
        assert len(set(map(id, found._chunks)) - set(map(id, after._chunks))) <= 2
