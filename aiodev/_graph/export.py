"""Graphs for people to look at: as a table, and as a drawing in DOT, Graphviz's language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiodev._core import callsites
from aiodev._graph.schedule import START, CallStep, Run, Step

__all__ = ["as_dot", "as_table"]


class _Row(NamedTuple):
    """An operation: its number, or None of a call; stream, name, size, where it was captured, and which rows it follows."""

    number: int | None
    lane: int
    name: str
    size: str
    site: int
    after: tuple[int, ...]


def _rows(steps: Sequence[Step]) -> list[_Row]:
    """All operations in an order in which they can run; ``after`` are rows."""
    rows: list[_Row] = []
    ends: dict[int, tuple[int, ...]] = {}  # of each stream, what its next operation comes after
    reached: list[tuple[int, ...]] = []
    for step in steps:
        lane = step.lane
        if isinstance(step, Run):
            for k, node in enumerate(step.nodes):
                size = "" if node.kind in ("branch", "signal") else f"{node.size:,}"
                rows.append(_Row(step.first + k, lane, node.name, size, node.site, ends.get(lane, ())))
                ends[lane] = (len(rows) - 1,)
        elif isinstance(step, CallStep):
            rows.append(_Row(None, lane, step.call.name, "", step.call.site, ends.get(lane, ())))
            ends[lane] = (len(rows) - 1,)
        elif step.step != START:
            ends[lane] = tuple(sorted({*ends.get(lane, ()), *reached[step.step]}))
        reached.append(ends.get(lane, ()))
    return rows


def as_table(steps: Sequence[Step], streams: Sequence[int]) -> str:
    """A line for each operation: number, stream, name, size, the operations that it follows on other streams, place."""
    rows = _rows(steps)
    lines = [("node", "stream", "operation", "size", "after", "captured at")]
    for row in rows:
        others = [rows[k] for k in row.after if rows[k].lane != row.lane]
        after = ", ".join(other.name if other.number is None else str(other.number) for other in others)
        number = "" if row.number is None else str(row.number)
        lines.append((number, str(streams[row.lane]), row.name, row.size, after, callsites.describe_site(row.site) or ""))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def as_dot(steps: Sequence[Step], streams: Sequence[int]) -> str:
    """A digraph with a cluster for each stream."""
    rows = _rows(steps)
    lines = ["digraph {", "  node [shape=box, fontname=monospace];"]
    for lane, stream in enumerate(streams):
        lines += [f"  subgraph cluster_{lane} {{", f'    label="stream {stream}";']
        for k, row in enumerate(rows):
            if row.lane == lane:
                number = "" if row.number is None else f"{row.number} "
                lines.append(f'    n{k} [label="{_quoted(number + row.name)}{_quoted("  " + row.size if row.size else "")}"];')
        lines.append("  }")
    lines += [f"  n{before} -> n{k};" for k, row in enumerate(rows) for before in row.after]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
