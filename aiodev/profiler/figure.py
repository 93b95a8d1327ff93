"""The figure of a profile: its layout, as a list of shapes, and how these are written as SVG and as PNG."""

from __future__ import annotations

import importlib
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aiodev.profiler.operations import Operation, by_stream
from aiodev.profiler.recorded import Recorded
from aiodev.profiler.summary import name_of, title_of

__all__ = ["Figure", "draw_timeline", "to_png", "to_svg"]

#: Sizes in pixels: of the picture, of what is left of the time axis, of a stream's row and of a lane for a measured value.
WIDTH, LEFT, RIGHT, TOP, ROW, LANE, GAP, FONT = 1000, 190, 16, 30, 26, 60, 10, 12
#: Operations that are less than this many pixels apart, and alike, are drawn as one.
TELL_APART = 0.5
#: The most arrows; where there are more they tell nothing.
MOST_ARROWS = 400
#: A PNG has so many of its pixels for each of these.
SCALE = 2
_COLOURS = ("#3b7dd8", "#e07b39", "#3aa76d", "#c94c4c", "#8a63c9", "#9c6b4e", "#d872b0", "#5f6b7a", "#a8a12f", "#34a9b8")
_WAIT, _BAD, _GRID, _INK, _MUTED, _PAPER = "#d9dde3", "#c22a2a", "#eceff3", "#22272e", "#66707c", "#ffffff"


class Rectangle(NamedTuple):
    """A filled rectangle; ``title`` is shown where it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


class Line(NamedTuple):
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0


class Text(NamedTuple):
    """A line of text; ``anchor`` is ``start``, ``middle`` or ``end``."""

    x: float
    y: float
    text: str
    colour: str = _INK
    anchor: str = "start"


class Figure(NamedTuple):
    """Shapes, and the size of what they are drawn on."""

    width: float
    height: float
    shapes: list[Rectangle | Line | Text]


def draw_timeline(profile: Recorded) -> Figure:
    """Lay a profile out."""
    operations = [each for each in profile.operations if each.start_ns is not None]
    rows = by_stream(operations)
    ends = [each.end_ns or profile.ended_ns for each in operations]
    events = profile.memory_events
    begins = [each.submitted_ns for each in operations] + [each.time_ns for each in events[:1]]
    axis = _Axis(min(begins, default=profile.began_ns), max(ends, default=profile.ended_ns))
    colours = _colours(operations)
    shapes: list[Rectangle | Line | Text] = []
    kinds = [("waits", _WAIT)] if not all(map(_is_work, operations)) else []
    kinds += [("failed", _BAD)] if any(each.outcome in _FAILED for each in operations) else []
    top = _legend([*list(colours.items())[: len(_COLOURS)], *kinds], shapes)
    above = top
    tops: dict[int, float] = {}
    for stream_id, group in rows.items():
        tops[stream_id] = top
        shapes.append(Text(LEFT - 8, top + ROW / 2 + 4, _short(name_of(profile, group[0])), _INK, "end"))
        shapes += _bars(profile, group, top, axis, colours)
        top += ROW
    top += GAP
    lanes = (
        ("memory in use", [(each.time_ns, each.allocated / 2**20) for each in events], "MiB", True),
        ("lag of the loop", [(each.time_ns, each.lag_ns / 1e6) for each in list(profile.lag.beats)], "ms", False),
    )
    for title, points, unit, steps in lanes:
        top = _lane(title, points, unit, steps, top, axis, shapes)
    grid = list(_grid(axis, above, top))
    arrows = _arrows(operations, tops, axis)
    shapes[:0] = grid
    return Figure(WIDTH, top + 24, [Rectangle(0, 0, WIDTH, top + 24, _PAPER), *shapes, *arrows])


_FAILED = ("failed", "skipped", "withdrawn")
#: Units of time that are written at the axis, in ns.
_UNITS = ("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1)


class _Axis:
    """The axis of time."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, max(last, first + 1000)
        self._scale = (WIDTH - LEFT - RIGHT) / (self.last - self.first)

    def x(self, time: int) -> float:
        """Where a time is, from the left; what is outside is at the edge."""
        return LEFT + (min(max(time, self.first), self.last) - self.first) * self._scale

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Places of the grid's lines, and what is written below."""
        span = self.last - self.first
        step = 10 ** math.floor(math.log10(span / 4))
        step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 8)
        unit, size = next(unit for unit in _UNITS if step >= unit[1])
        for number in range(int(span // step) + 1):
            yield self.x(self.first + number * step), f"{number * step / size:g} {unit}" if number else "0"


def _is_work(operation: Operation) -> bool:
    """Whether something runs: on the device, or a function."""
    return operation.runs or operation.kind == "call"


def _colours(operations: Iterable[Operation]) -> dict[str, str]:
    """A colour for each kind of work, those that took longest first."""
    totals: dict[str, int] = {}
    for operation in operations:
        if _is_work(operation):
            totals[operation.name] = totals.get(operation.name, 0) + (operation.duration_ns or 0)
    names = sorted(totals, key=lambda name: -totals[name])
    return dict(zip(names, itertools.chain(_COLOURS[:-1], itertools.repeat(_COLOURS[-1])), strict=False))


def _legend(entries: list[tuple[str, str]], shapes: list[Rectangle | Line | Text]) -> float:
    x, y = float(LEFT), 10.0
    for name, colour in entries:
        width = 24 + 7.0 * len(_short(name))
        if x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + 18
        shapes += [Rectangle(x, y, 11, 11, colour), Text(x + 16, y + 10, _short(name))]
        x += width
    return y + TOP


def _bars(
    profile: Recorded, group: list[Operation], top: float, axis: _Axis, colours: dict[str, str]
) -> Iterator[Rectangle]:
    """The operations of a stream; waits are thinner."""
    run: list[Operation] = []
    for operation in group:
        if run and not _is_like(run[-1], operation, axis):
            yield _bar(profile, run, top, axis, colours)
            run = []
        run.append(operation)
    if run:
        yield _bar(profile, run, top, axis, colours)


def _is_like(before: Operation, operation: Operation, axis: _Axis) -> bool:
    """Whether two operations are alike, and so close that they look like one."""
    alike = [(each.name, each.kind, each.outcome, each.nested) for each in (before, operation)]
    if alike[0] != alike[1]:
        return False
    if before.end_ns is None or operation.start_ns is None or before.start_ns is None:
        return False
    gap = axis.x(operation.start_ns) - axis.x(before.end_ns)
    return gap < TELL_APART and axis.x(before.end_ns) - axis.x(before.start_ns) < 4 * TELL_APART


def _bar(profile: Recorded, run: list[Operation], top: float, axis: _Axis, colours: dict[str, str]) -> Rectangle:
    first, last = run[0], run[-1]
    assert first.start_ns is not None
    left, right = axis.x(first.start_ns), axis.x(last.end_ns or profile.ended_ns)
    colour = colours.get(first.name, _WAIT) if _is_work(first) else _WAIT
    if first.outcome in _FAILED:
        colour = _BAD
    height = ROW - 16 if not _is_work(first) else ROW - 10 if first.nested else ROW - 6
    return Rectangle(left, top + (ROW - height) / 2, max(right - left, 0.75), height, colour, _title(profile, run))


def _title(profile: Recorded, run: list[Operation]) -> str:
    first = run[0]
    what = title_of(profile, first)
    total = sum(operation.duration_ns or 0 for operation in run) / 1e3
    parts = [what if len(run) == 1 else f"{len(run)} × {what}", f"{total:,.1f} µs"]
    if len(run) == 1:
        parts += [f"shape {first.shape}"] if first.shape else []
        parts += [f"{first.nbytes:,} bytes"] if first.nbytes else []
    parts += [f"task {first.task}"] if first.task else []
    parts += [first.outcome] if first.outcome != "done" else []
    parts += [first.site] if first.site else []
    return ", ".join(parts)


def _arrows(operations: list[Operation], tops: dict[int, float], axis: _Axis) -> list[Line]:
    """From what was waited for to the end of the wait."""
    ends = {(each.stream_id, each.value): each.end_ns for each in operations if not each.nested}
    lines = []
    for operation in operations:
        if operation.after is None or operation.end_ns is None or operation.after[0] not in tops:
            continue
        ended = ends.get(operation.after) or operation.end_ns
        y0, y1 = tops[operation.after[0]] + ROW / 2, tops[operation.stream_id] + ROW / 2
        lines.append(Line(((axis.x(ended), y0), (axis.x(operation.end_ns), y1)), _INK, 0.6))
    return lines if len(lines) <= MOST_ARROWS else []


def _lane(
    title: str, points: list[tuple[int, float]], unit: str, steps: bool, top: float, axis: _Axis,
    shapes: list[Rectangle | Line | Text],
) -> float:  # fmt: skip
    """A measured value over time: as steps, or as a line for each measurement."""
    seen = [point for point in points if axis.first <= point[0] <= axis.last]
    if not seen:
        return top
    most = max(value for _, value in seen) or 1.0
    bottom = top + LANE - 14

    def y(value: float) -> float:
        return bottom - (LANE - 22) * value / most

    shapes += [
        Text(LEFT - 8, top + 14, title, _INK, "end"),
        Text(LEFT - 8, top + 30, f"up to {most:.3g} {unit}", _MUTED, "end"),
        Line(((LEFT, bottom), (WIDTH - RIGHT, bottom)), _MUTED, 0.6),
    ]
    if steps:
        path: list[tuple[float, float]] = []
        for time, value in _thinned(seen, axis):
            x = axis.x(time)
            path += [(x, path[-1][1])] if path else []
            path.append((x, y(value)))
        path.append((WIDTH - RIGHT, path[-1][1]))
        shapes.append(Line(tuple(path), _COLOURS[0], 1.2))
    else:
        stems = (((axis.x(time), bottom), (axis.x(time), y(value))) for time, value in _thinned(seen, axis))
        shapes += [Line(stem, _COLOURS[1], 1.0) for stem in stems]
    return top + LANE


def _thinned(points: list[tuple[int, float]], axis: _Axis) -> list[tuple[int, float]]:
    """The largest of the points of each pixel."""
    peaks: dict[int, tuple[int, float]] = {}
    for time, value in points:
        pixel = int(axis.x(time))
        if pixel not in peaks or value > peaks[pixel][1]:
            peaks[pixel] = (time, value)
    return list(peaks.values())


def _grid(axis: _Axis, top: float, bottom: float) -> Iterator[Line | Text]:
    for x, label in axis.ticks():
        yield Line(((x, top), (x, bottom)), _GRID, 1.0)
        yield Text(x, bottom + 14, label, _MUTED, "middle")


def _short(text: str) -> str:
    return text if len(text) <= 26 else f"{text[:25]}…"


def to_svg(picture: Figure) -> str:
    """A picture as SVG."""
    from html import escape  # costly to import, and hardly ever needed

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:.0f} {picture.height:.0f}" '
        f'width="{picture.width:.0f}" font-family="sans-serif" font-size="{FONT}">'
    ]
    for shape in picture.shapes:
        if isinstance(shape, Rectangle):
            title = f"<title>{escape(shape.title)}</title>" if shape.title else ""
            place = f'x="{shape.x:.2f}" y="{shape.y:.1f}" width="{shape.width:.2f}" height="{shape.height:.1f}"'
            lines.append(f'<rect {place} fill="{shape.colour}">{title}</rect>')
        elif isinstance(shape, Line):
            points = " ".join(f"{x:.2f},{y:.1f}" for x, y in shape.points)
            lines.append(f'<polyline points="{points}" fill="none" stroke="{shape.colour}" stroke-width="{shape.width}"/>')
        else:
            place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" fill="{shape.colour}" text-anchor="{shape.anchor}"'
            lines.append(f"<text {place}>{escape(shape.text)}</text>")
    return "\n".join([*lines, "</svg>", ""])


def to_png(picture: Figure) -> bytes:
    """A picture as PNG.

    Raises:
        ModuleNotFoundError: Pillow is not installed.
    """
    try:
        modules = (importlib.import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont"))
        image_module, draw_module, font_module = modules
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a PNG needs Pillow: pip install 'aiodev[demo]', or draw an SVG", name="PIL") from error
    image = image_module.new("RGB", (round(SCALE * picture.width), round(SCALE * picture.height)), _PAPER)
    draw, font = draw_module.Draw(image), font_module.load_default(SCALE * FONT)
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for shape in picture.shapes:
        if isinstance(shape, Rectangle):
            left, top = SCALE * shape.x, SCALE * shape.y
            right, bottom = left + max(0.0, SCALE * shape.width - 1), top + max(0.0, SCALE * shape.height - 1)
            draw.rectangle((left, top, right, bottom), fill=shape.colour)
        elif isinstance(shape, Line):
            points = [(SCALE * x, SCALE * y) for x, y in shape.points]
            draw.line(points, fill=shape.colour, width=max(1, round(SCALE * shape.width)))
        else:
            place, anchor = (SCALE * shape.x, SCALE * shape.y), anchors[shape.anchor]
            draw.text(place, shape.text, fill=shape.colour, font=font, anchor=anchor)
    target = io.BytesIO()
    image.save(target, "PNG")
    return target.getvalue()
