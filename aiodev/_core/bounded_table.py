"""Tables of what was found out, which are emptied when they are full."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["enter"]

K = TypeVar("K")
V = TypeVar("V")


def enter(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Remember a value; when there are ``most`` already, all are forgotten first. Whoever needs one finds it out again."""
    if len(table) >= most:
        table.clear()
    table[key] = value
