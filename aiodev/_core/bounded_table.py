"""Tables of what was found out, which forget what they have had for longest when they are full."""

from __future__ import annotations

import itertools
from typing import TypeVar

__all__ = ["enter", "oldest"]

K = TypeVar("K")
V = TypeVar("V")

#: Of a full table, one part in so many is forgotten at once. Larger: the beginning of the table, where others were, is walked
#: through more often; smaller: whoever enters something waits for longer.
_PARTS = 16


def enter(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Remember a value; when there are ``most`` already, the oldest are forgotten first. Who needs one finds it out again."""
    if len(table) >= most:
        for old in oldest(table):
            table.pop(old, None)
    table[key] = value


def oldest(table: dict[K, V]) -> list[K]:
    """The keys that a full table is to forget."""
    while True:
        try:
            return list(itertools.islice(table, max(1, len(table) // _PARTS)))
        except RuntimeError:  # another thread, or a finalizer, has changed it meanwhile
            continue
