"""What a buffer knows of its uses, whatever their order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS, FAULTS
from aiodev._core.timeline import faults
from aiodev._memory.buffer import Buffer, Uses


class Line:
    """Stands for a timeline, whose operations a test completes."""

    lost = recording = None
    withdrew = False

    def __init__(self) -> None:
        self.counters = [0] * COUNTER_WORDS
        self.submitted = 0
        self.frontier: tuple[int, dict[Any, int]] = (0, {})
        self.failed: set[int] = set()
        self.told: set[int] = set()

    def submit(self, fails: bool = False) -> int:
        """Append an operation."""
        self.submitted += 1
        if fails:
            self.failed.add(self.submitted)
        return self.submitted

    def join(self, other: Line) -> None:
        """Order what comes after all that ``other`` was given."""
        self.frontier = (self.submit(), {**self.frontier[1], other: other.submitted})

    def complete(self) -> None:
        """Have done what was submitted."""
        self.counters[COMPLETED] = self.submitted
        self.counters[FAULTS] = len(self.failed)

    def tell(self) -> None:
        """Tell somebody of all that has failed so far."""
        self.told |= {value for value in self.failed if value <= self.counters[COMPLETED]}
        faults.tellings += 1

    def failure_told(self, value: int) -> bool | None:
        """See :class:`Timeline`."""
        return value in self.told if value in self.failed else None

    def is_over(self, value: int) -> bool:
        """Whether there is nothing to learn of an operation any more."""
        return self.counters[COMPLETED] >= value and self.failure_told(value) is not False

    def follows(self, other: Line, value: int) -> bool:
        """Whether what is submitted from now on does."""
        return self.frontier[1].get(other, 0) >= value


class Nowhere:
    """A source that keeps nothing."""

    host_accessible = True


def lines_and_buffer(count: int) -> tuple[list[Any], Buffer]:
    """Some timelines, and a buffer that was made for the first."""
    lines: list[Any] = [Line() for _ in range(count)]
    return lines, Buffer(0, Nowhere(), None, lines[0], 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), max_size=40))
def test_the_last_use_on_each_timeline_is_known(uses: list[tuple[int, bool, int]]) -> None:
    """Reads and writes by turns on several timelines that nothing orders: numbers never go back, and no writer is lost."""
    lines, buffer = lines_and_buffer(4)
    last: dict[Any, int] = {}
    written: dict[Any, int] = {}
    for which, writes, step in uses:
        line = lines[which]
        line.submitted += step
        last[line] = line.submitted
        if writes:
            buffer._record_write(line, line.submitted)
            written[line] = line.submitted
        else:
            buffer._record_read(line, line.submitted)
    found: dict[Any, int] = {}
    for line, value in buffer.uses():
        found[line] = max(found.get(line, 0), value)
    assert {line: value for line, value in found.items() if value} == last
    assert {line: value for line, value in buffer.contents() if value} == written
    assert {line for line, _ in buffer.pending()} == set(last)


STEPS = ("write", "fail", "read", "join", "complete", "tell")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 3)), max_size=60))
def test_every_write_that_somebody_may_have_to_know_of_is_known(steps: list[tuple[str, int, int]]) -> None:
    """That is one that is not done, or failed, unless a later one stands for it (2); what was told of stays away."""
    lines, buffer = lines_and_buffer(4)
    needed: dict[Any, int] = {}
    gone: set[tuple[Any, int]] = set()  # failed, told, and written over
    reads: dict[Any, int] = {}
    for step, which, whom in steps:
        line, other = lines[which], lines[whom]
        if step in ("write", "fail"):
            value = line.submit(fails=step == "fail")
            buffer._record_write(line, value)
            gone |= {(t, v) for t, v in needed.items() if v in t.told}
            needed = {t: v for t, v in needed.items() if t is not line and not t.is_over(v) and not line.follows(t, v)}
            needed[line] = value
        elif step == "read":
            reads[line] = line.submit()
            buffer._record_read(line, reads[line])
        elif step == "join" and other is not line:
            line.join(other)
        elif step == "complete":
            line.complete()
        elif step == "tell":
            line.tell()
        contents = buffer.contents()
        assert set(contents) >= set(needed.items())
        assert len({t for t, _ in contents}) == len(contents)
        assert not gone & set(contents)
        pending = set(buffer.pending())
        assert pending >= {(t, v) for t, v in (*reads.items(), *needed.items()) if t.counters[COMPLETED] < v}


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_slower_thread_does_not_set_a_number_back(first: int, second: int) -> None:
    """Two threads that launched on one timeline may note it in either order."""
    for stamp in (Buffer._record_write, Buffer._record_read):
        one, other = Line(), Line()
        buffer = Buffer(0, Nowhere(), None, other, 0)
        stamp(buffer, one, first)
        stamp(buffer, one, second)
        assert max(value for line, value in buffer.uses() if line is one) == max(first, second)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_thread_that_is_late_does_not_bring_contents_back(ordered: bool) -> None:
    """What it notes after another timeline has written, a number that was passed, says nothing new."""
    lines, buffer = lines_and_buffer(2)
    one, other = lines
    one.submitted = 5
    buffer._record_write(one, 5)
    if ordered:
        other.join(one)
    buffer._record_write(other, other.submit())
    buffer._record_write(one, 3)
    assert buffer.contents() == ([] if ordered else [(one, 5)]) + [(other, other.submitted)]


def test_a_writer_that_follows_the_others_stands_for_them() -> None:
    """Then a launch compares timelines again, and nothing else is kept."""
    lines, buffer = lines_and_buffer(4)
    for line in lines[:3]:
        buffer._record_write(line, line.submit())
    assert isinstance(buffer._writer, Uses)
    last = lines[3]
    for line in lines[:3]:
        last.join(line)
    for _ in range(30):  # a look at all of them is taken now and then
        buffer._record_write(last, last.submit())
    assert buffer._writer is last and buffer._written == last.submitted
    assert buffer.uses() == [(last, last.submitted)]


@pytest.mark.parametrize("writes", [False, True])
def test_what_is_done_is_not_kept(writes: bool) -> None:
    """An array that a thousand streams have used in turn does not hold them all, nor takes longer for each."""
    lines, buffer = lines_and_buffer(1000)
    for line in lines:
        (buffer._record_write if writes else buffer._record_read)(line, line.submit())
        line.complete()
        assert len(buffer.uses()) <= 20


@pytest.mark.parametrize("writes", [False, True])
def test_many_uses_at_once_are_noted_in_linear_time(writes: bool) -> None:
    """All of them are known while none is done, and they are looked through a few times, not at each use."""
    lines, buffer = lines_and_buffer(1000)
    looks = 0

    class Counters(list[int]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(index)

    for line in lines:
        line.counters = Counters(line.counters)
        (buffer._record_write if writes else buffer._record_read)(line, line.submit())
    assert len(buffer.pending()) == 1000
    assert looks < 10 * 1000


def test_who_has_looked_need_not_look_again() -> None:
    """Once all writers are done, and did not fail, the last one stands for them."""
    lines, buffer = lines_and_buffer(2)
    for line in lines:
        line.reached = lambda value, line=line: line.counters[COMPLETED] >= value
        buffer._record_write(line, line.submit())
    buffer.check()
    assert buffer.contents() == [(line, 1) for line in lines]
    for line in lines:
        line.complete()
    buffer.check()
    assert buffer.contents() == [(lines[1], 1)]


def test_operation_0_is_no_use() -> None:
    """A stream that was given nothing has not written: what others write stays known."""
    lines, buffer = lines_and_buffer(2)
    buffer._record_write(lines[0], lines[0].submit())
    buffer._record_write(lines[1], 0)
    assert buffer.contents() == [(lines[0], 1)]
