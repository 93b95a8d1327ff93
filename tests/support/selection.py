"""What of the tests runs by default, within minutes from an empty cache, and what with ``--exhaustive`` alone.

What takes long is compiling: a kernel for each function, type and layout. By default

1. a test that has several parameters runs with each value of each of them, but not with every combination; of a ``dtype`` the
   first value and the last suffice, beside whatever other parameters; parameters that say which executor or device it runs on
   are combined with all other values;
2. a test that is marked ``exhaustive`` does not run, nor one that ``tests/slow.txt`` names: with all its parameters it took
   longer than a second when it ran by default, from an empty cache;
3. lists that are given to ``some`` are cut to their first values, and numbers that are given to ``examples`` to a tenth;
   hypothesis draws the same each time.

With ``--exhaustive --share=K/N`` runs, of what does not run by default, the K-th of N parts: of tests, of what ``some`` would
cut, and of how many more examples there are, which are others each time.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["COLLECTED", "SLOW", "covering", "examples", "in_share", "share_of", "some", "without_parameters"]

Value = TypeVar("Value")
#: A value of parameters that are given together: (place, their names, what tells it from others).
Given = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]

#: Where pytest's configuration keeps what was collected, before any of it was left out.
COLLECTED = pytest.StashKey[list[pytest.Item]]()

#: What takes long: ``FILE::TEST``, without parameters, a line each.
SLOW = frozenset(Path(__file__).parents[1].joinpath("slow.txt").read_text().split())

#: Whether more runs than by default: set before tests are imported. Programs that import tests without pytest run all of them.
exhaustive = True

#: Of what does not run by default the K-th of N parts is to, as (K, N).
share = (1, 1)

#: Fewest examples: enough that hypothesis goes beyond the simplest ones.
FEWEST = 5

#: What a parameter's values are when it says where a test runs.
PLACES = {"native", "python", "cpu", "sim", "cuda"}


def some(values: Sequence[Value], count: int = 1) -> Sequence[Value]:
    """The first ``count`` of the values, which stand for the others; with ``--exhaustive`` the share of those, too."""
    part, parts = share
    return [*values[:count], *(values[count:][part - 1 :: parts] if exhaustive else ())]


def examples(count: int) -> int:
    """How many examples hypothesis is to make where ``count`` are wanted with ``--exhaustive``, of all shares together."""
    few = min(count, max(FEWEST, count // 10))
    return few + -(-(count - few) // share[1]) if exhaustive else few


def share_of(text: str) -> tuple[int, int]:
    """Which part of how many a share ``"K/N"`` is.

    Raises:
        ValueError: it is none.
    """
    part, _, parts = text.partition("/")
    found = int(part), int(parts)
    if not 1 <= found[0] <= found[1]:
        raise ValueError(f"expected the K-th of N parts, as in 1/3, got {text}")
    return found


def in_share(name: str, share: tuple[int, int]) -> bool:
    """Whether a test of this id is in a share of those that do not run by default."""
    part, parts = share
    return zlib.crc32(name.encode()) % parts == part - 1


def without_parameters(name: str) -> str:
    """``FILE::TEST`` of an id."""
    return name.partition("[")[0]


def covering(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of each test's items, few that together have each value of each parameter, for each place.

    The next one is always that which has the most values that none before it has; of those one of a type that is needed, if
    there is one; and of those the one whose values the fewest have: where two parameters are combined, the items of a diagonal.
    """
    tests: dict[tuple[object, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive") is None and without_parameters(item.nodeid) not in SLOW:
            tests.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    chosen: set[pytest.Item] = set()
    for group in tests.values():
        left = {item: _values(item) for item in group}
        needed, uses = _needed(left.values()), Counter[object]()
        spare = {value for values in left.values() for value in values if _is_type(value)} - needed
        missing = set(needed)
        while missing:
            best = max(left, key=functools.partial(_rank, left, missing, spare, uses))
            values = left.pop(best)
            missing -= values
            uses.update(values)
            chosen.add(best)
        chosen.update(item for item in group if not _values(item))
    return chosen


def _rank(
    left: dict[pytest.Item, frozenset[Given]], missing: set[Given], spare: set[Given], uses: Counter[object], item: pytest.Item
) -> tuple[int, ...]:
    """How good it is to choose an item next; the larger, the better."""
    values = left[item]
    return len(values & missing), -len(values & spare), -sum(uses[value] for value in values)


def _is_type(value: Given) -> bool:
    return value[1] == ("dtype",)


def _needed(items: Iterable[frozenset[Given]]) -> set[Given]:
    """What is to occur: all values, but for types that others stand for."""
    found = dict.fromkeys(value for values in items for value in sorted(values, key=lambda value: value[1]))
    types: dict[object, list[Given]] = {}
    for value in found:
        if _is_type(value):
            types.setdefault(value[0], []).append(value)
    return set(found).difference(*(own[1:-1] for own in types.values()))


def _values(item: pytest.Item) -> frozenset[Given]:
    """What a test's parameters are."""
    specification = getattr(item, "callspec", None)
    if specification is None:
        return frozenset()
    parameters = specification.params
    place = tuple(value for value in parameters.values() if isinstance(value, str) and value in PLACES)
    together = [_names(mark) for mark in item.iter_markers("parametrize")]
    named = {name for names in together for name in names}
    together += [(name,) for name in parameters if name not in named]  # those of fixtures
    return frozenset((place, names, tuple(id(parameters[name]) for name in names)) for names in together)


def _names(mark: pytest.Mark) -> tuple[str, ...]:
    """Parameters of one ``parametrize``."""
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
