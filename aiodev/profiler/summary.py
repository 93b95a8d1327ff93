"""The table of a profile."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from aiodev.profiler.operations import Operation, by_stream
from aiodev.profiler.recorded import Recorded

__all__ = ["busy_ns", "name_of", "table_of", "title_of"]

_HEAD = ("operation", "count", "total", "mean", "longest", "delay", "bytes", "not done")


def table_of(profile: Recorded, rows: int) -> str:
    """Rows by name, with totals; of streams, how busy they were; and the loop's lag."""
    operations = profile.operations
    groups: dict[str, list[Operation]] = {}
    for operation in operations:
        groups.setdefault(title_of(profile, operation), []).append(operation)
    ordered = sorted(groups.items(), key=lambda item: (not item[1][0].runs, -_total(item[1])))
    shown = ordered[: rows or None]
    cells = [_HEAD, *(_row(title, group) for title, group in shown)]
    lines = _aligned(cells)
    if len(shown) < len(ordered):
        lines.append(f"… and {len(ordered) - len(shown)} more")
    lines.append("")
    for group in by_stream(operations).values():
        began, ended = profile.began_ns, max([profile.ended_ns, *(each.end_ns or 0 for each in group)])
        busy = busy_ns(each for each in group if each.runs and not each.nested)
        part = busy / max(1, ended - began)
        count = sum(not each.nested for each in group)
        lines.append(f"{name_of(profile, group[0])}: {count:,} operations, busy {part:.1%} of the time")
    lag = profile.lag
    lines.append(
        f"loop lag: median {_time(1e9 * lag.percentile(50))}, 99 % {_time(1e9 * lag.percentile(99))}, "
        f"longest {_time(1e9 * lag.max)}"
    )
    if profile.dropped:
        lines.append(f"{profile.dropped:,} operations were dropped: there was no room for them (most=…)")
    return "\n".join(lines)


def name_of(profile: Recorded, operation: Operation) -> str:
    """What pictures and tables call the stream of an operation."""
    known = profile.names.get(operation.stream_id)
    return f"{operation.device} stream {operation.stream_id}" if known is None else known


def title_of(profile: Recorded, operation: Operation) -> str:
    """What they call the operation: work by its name, all else with what it is."""
    name = operation.name
    if operation.after is not None:
        name = profile.names.get(operation.after[0], name)
    return name if operation.runs or name == operation.kind else f"{operation.kind}: {name}"


def busy_ns(operations: Iterable[Operation]) -> int:
    """How long a stream was at work, whose operations do not overlap."""
    return sum(operation.duration_ns or 0 for operation in operations)


def _total(group: Iterable[Operation]) -> int:
    return sum(operation.duration_ns or 0 for operation in group)


def _row(title: str, group: Sequence[Operation]) -> tuple[str, ...]:
    durations = [operation.duration_ns for operation in group if operation.duration_ns is not None]
    delays = [operation.delay_ns for operation in group if operation.delay_ns is not None]
    nbytes = sum(operation.nbytes or 0 for operation in group)
    undone = sum(operation.outcome != "done" for operation in group)
    return (
        title,
        f"{len(group):,}",
        _time(sum(durations)),
        _time(sum(durations) / max(1, len(durations))),
        _time(max(durations, default=0)),
        _time(sum(delays) / max(1, len(delays))),
        _bytes(nbytes) if nbytes else "",
        f"{undone:,}" if undone else "",
    )


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [str.ljust, *itertools.repeat(str.rjust, len(widths) - 1)]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip() for row in cells
    ]


def _time(nanoseconds: float) -> str:
    """A time with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}" if nanoseconds < 1000 * size else f"{nanoseconds / size:,.0f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
