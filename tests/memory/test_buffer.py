"""What a buffer knows of its uses, whatever their order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from aiodev._core.backend import COUNTER_WORDS
from aiodev._memory.buffer import Buffer


class Line:
    """Stands for a timeline on which nothing is done yet."""

    def __init__(self) -> None:
        self.counters = [0] * COUNTER_WORDS
        self.submitted = 0


class Nowhere:
    """A source that keeps nothing."""

    host_accessible = True


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), max_size=40))
def test_the_last_use_on_each_timeline_is_known(uses: list[tuple[int, bool, int]]) -> None:
    """Reads and writes by turns on several timelines: numbers never go back, and contents are of the last write."""
    lines: list[Any] = [Line() for _ in range(4)]
    buffer = Buffer(0, Nowhere(), None, lines[0], 0)
    last: dict[Any, int] = {}
    written: tuple[Any, int] = (lines[0], 0)
    for which, writes, step in uses:
        line = lines[which]
        line.submitted += step
        last[line] = line.submitted
        if writes:
            buffer._stamp(line, line.submitted)
            written = (line, line.submitted)
        else:
            buffer._stamp_aside(line, line.submitted)
    found: dict[Any, int] = {}
    for line, value in buffer.uses():
        found[line] = max(found.get(line, 0), value)
    assert {line: value for line, value in found.items() if value} == last
    assert buffer.contents() == written
    assert {line for line, _ in buffer.pending()} == set(last)


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_slower_thread_does_not_set_a_number_back(first: int, second: int) -> None:
    """Two threads that launched on one timeline may note it in either order."""
    for stamp in (Buffer._stamp, Buffer._stamp_aside):
        one, other = Line(), Line()
        buffer = Buffer(0, Nowhere(), None, other, 0)
        stamp(buffer, one, first)
        stamp(buffer, one, second)
        assert max(value for line, value in buffer.uses() if line is one) == max(first, second)


def test_a_thread_that_is_late_does_not_bring_contents_back() -> None:
    """What it notes after another timeline has written, a number that was passed there, says nothing new."""
    one, other = Line(), Line()
    buffer = Buffer(0, Nowhere(), None, one, 0)
    buffer._stamp(one, 5)
    buffer._stamp(other, 1)
    buffer._stamp(one, 3)
    assert buffer.contents() == (other, 1)
    assert sorted(value for line, value in buffer.uses() if line is one) == [5]
