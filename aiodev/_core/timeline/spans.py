"""Spans: operations of a timeline that have a mark, thousands of them at little cost.

They are never changed: whoever adds operations gets other spans, and who reads meanwhile, in another thread or in a finalizer,
has the former. They stand in chunks, which both have but for those where something was added: that copies a chunk or two, and a
tuple with a place for each chunk, so that it costs about the same among ten thousand spans as among ten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Span", "Spans"]

_Mark = TypeVar("_Mark")

#: Spans in a chunk. Larger: more to copy; smaller: more chunks, whose tuple is copied, too. A chunk may be twice as long.
_CHUNK: Final = 64


class Span(NamedTuple, Generic[_Mark]):
    """Operations in a row that have one mark."""

    first: int
    last: int
    mark: _Mark


class Spans(Generic[_Mark]):
    """Spans, ascending and apart: no operation is in two, and where two meet their marks differ."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, chunks: tuple[tuple[Span[_Mark], ...], ...] = (), count: int = 0) -> None:
        self._chunks = chunks  # none is empty
        self._count = count

    # Where an operation belongs is found by comparing tuples, without a call of Python's: (n,) comes right before whatever
    # begins at n, and ((n,),) before each chunk that does.

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Span[_Mark]]:
        return chain.from_iterable(self._chunks)

    def at(self, value: int) -> Span[_Mark] | None:
        """The span that operation ``value`` is in, or None."""
        chunks = self._chunks
        place = bisect_left(chunks, ((value + 1,),))
        if place == 0:
            return None
        chunk = chunks[place - 1]
        span = chunk[bisect_left(chunk, (value + 1,)) - 1]
        return span if value <= span.last else None

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Which of the operations ``first`` … ``last`` are in none: the first and the last of each row of them."""
        gaps = []
        low, high = self._near(first, last)
        for chunk in self._chunks[low:high]:
            for span in chunk[max(0, bisect_left(chunk, (first,)) - 1) : bisect_left(chunk, (last + 1,))]:
                if first < span.first:
                    gaps.append((first, span.first - 1))
                first = max(first, span.last + 1)
        if first <= last:
            gaps.append((first, last))
        return gaps

    def filled(self, first: int, last: int, mark: _Mark) -> tuple[Spans[_Mark], list[tuple[int, int]]]:
        """These, and those of the operations ``first`` … ``last`` that are in none, with ``mark``; and which those are."""
        gaps = self.gaps(first, last)
        if not gaps:
            return self, gaps
        low, high = self._near(first - 1, last + 1)
        around = tuple(chain.from_iterable(self._chunks[low:high]))
        begin, end = max(0, bisect_left(around, (first,)) - 1), bisect_left(around, (last + 2,))
        joined: list[Span[_Mark]] = []
        for span in sorted((*around[begin:end], *(Span(*gap, mark) for gap in gaps))):
            if joined and joined[-1].last + 1 == span.first and joined[-1].mark == span.mark:
                span = Span(joined.pop().first, span.last, mark)
            joined.append(span)
        around = (*around[:begin], *joined, *around[end:])
        step = _CHUNK if len(around) > 2 * _CHUNK else len(around)
        renewed = (around[place : place + step] for place in range(0, len(around), step))
        chunks = (*self._chunks[:low], *renewed, *self._chunks[high:])
        return Spans(chunks, self._count + len(joined) - (end - begin)), gaps

    def first_of_newest(self, count: int, passed: int) -> int:
        """Where the newest ``count`` spans, up to a chunk more, and all that reach past ``passed`` begin; 0: all do."""
        first, left = 0, self._count
        for chunk, following in pairwise(self._chunks):
            left -= len(chunk)
            if left < count or passed < chunk[-1].last:
                break
            first = following[0].first
        return first

    def since(self, value: int) -> Spans[_Mark]:
        """Those from operation ``value`` on, and the one that it is in or behind."""
        chunks = self._chunks
        if not chunks:
            return self
        place = max(0, bisect_left(chunks, ((value + 1,),)) - 1)
        chunk = chunks[place]
        begin = max(0, bisect_left(chunk, (value + 1,)) - 1)
        return Spans((chunk[begin:], *chunks[place + 1 :]), self._count - begin - sum(map(len, chunks[:place])))

    def _near(self, first: int, last: int) -> tuple[int, int]:
        """The chunks, from one up to before another, that spans of ``first`` … ``last`` are in or belong into."""
        low = max(0, bisect_left(self._chunks, ((first + 1,),)) - 1)
        return low, max(low + 1, bisect_left(self._chunks, ((last + 1,),)))
