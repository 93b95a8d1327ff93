"""How a convolution is cut into tiles on a CPU, and which taps it has there (:mod:`aiodev.kernels.nn.correlation`)."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from aiodev.kernels.nn.correlation import FIELDS, PITCH
from aiodev.kernels.tuning import (
    CORRELATED_EACH,
    CORRELATED_MOST,
    CORRELATED_PARTS,
    TILE_POSITIONS,
    TILE_SIGNALS,
    TILES,
)

__all__ = ["Geometry", "Tiling", "backward_tiling", "forward_tiling"]


class Geometry(NamedTuple):
    """A convolution: of ``groups`` groups, each from ``channels`` to ``rows``; pairs are of lines and columns."""

    images: int
    groups: int
    channels: int
    rows: int
    size: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def positions(self) -> tuple[int, int]:
        """Lines and columns of the result; less than 1 where the window does not fit."""
        height, width = (
            (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
            for size, window, stride, padding, dilation in zip(
                self.size, self.window, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return height, width

    @property
    def work(self) -> int:
        """Multiplications, of all."""
        taps = self.window[0] * self.window[1]
        return self.images * self.groups * self.channels * self.rows * taps * self.positions[0] * self.positions[1]


class Tiling(NamedTuple):
    """What kernels are launched with.

    Attributes:
        plan: see :data:`~aiodev.kernels.nn.correlation.FIELDS`.
        taps: for each tap its offset in a signal, and its weight's place or -1.
        phases: of the source, line and column of each that has a tap.
        starts: for each phase of the result its first tap, line and column; and the end of the taps.
        signal: elements of all signals of a tile.
        pieces: indices of a launch.
        chunks: pieces of the tiles, where the gradient of weights is computed.
        strips: pieces of its rows.
    """

    plan: np.ndarray[Any, Any]
    phases: np.ndarray[Any, Any]
    taps: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    signal: int
    pieces: int
    chunks: int
    strips: int


class _Axis(NamedTuple):
    """Lines or columns: the positions of the result, and what they need of a phase of the source.

    Attributes:
        outputs: positions.
        base: where the first one's window begins.
        span: how much further the last tap is than the first.
        share: zeros that neighbours have in common.
    """

    outputs: int
    base: int
    span: int
    share: int


def _shifts(window: int, stride: int, padding: int, dilation: int) -> list[tuple[int, int]]:
    """For each tap, by how many steps it is shifted, and its phase."""
    return [divmod(tap * dilation - padding, stride) for tap in range(window)]


@functools.lru_cache(1024)
def forward_tiling(own: Geometry) -> Tiling:
    """From the source to the result."""
    shifts = [_shifts(*given) for given in zip(own.window, own.stride, own.padding, own.dilation, strict=True)]
    axes = []
    for size, outputs, stride, along in zip(own.size, own.positions, own.stride, shifts, strict=True):
        least, most = along[0][0], along[-1][0]
        behind = outputs + most - -(-size // stride)
        axes.append(_Axis(outputs, least, most - least, max(0, min(-least, behind, most - least))))
    taps = own.window[0] * own.window[1]
    phases = list(dict.fromkeys((y, x) for _, y in shifts[0] for _, x in shifts[1]))
    cut = _cut(own, axes, own.channels * len(phases))
    pitch, signal = cut["pitch"], cut["signal"]
    table = []
    for channel in range(own.channels):
        for line, (down, phase_y) in enumerate(shifts[0]):
            for column, (across, phase_x) in enumerate(shifts[1]):
                row = channel * len(phases) + phases.index((phase_y, phase_x))
                offset = row * signal + (down - axes[0].base) * pitch + across - axes[1].base
                table.append((offset, channel * taps + line * own.window[1] + column))
    plan = {
        **cut, "channels": own.channels, "rows": own.rows, "height": own.size[0], "width": own.size[1],
        "result_height": own.positions[0], "result_width": own.positions[1], "step_y": own.stride[0], "step_x": own.stride[1],
        "result_step_y": 1, "result_step_x": 1, "row_step": own.channels * taps, "group_step": own.rows * own.channels * taps,
    }  # fmt: skip
    return _tiling(own, plan, phases, {(0, 0): table})


@functools.lru_cache(1024)
def backward_tiling(own: Geometry) -> Tiling:
    """From the gradient of the result to that of the source."""
    shifts = [_shifts(*given) for given in zip(own.window, own.stride, own.padding, own.dilation, strict=True)]
    axes = []
    for size, positions, stride, along in zip(own.size, own.positions, own.stride, shifts, strict=True):
        least, most, outputs = along[0][0], along[-1][0], -(-size // stride)
        axes.append(_Axis(outputs, -most, most - least, max(0, min(most, outputs - least - positions, most - least))))
    taps = own.window[0] * own.window[1]
    cut = _cut(own, axes, own.rows)
    pitch, signal = cut["pitch"], cut["signal"]
    steps = (min(pair) for pair in zip(own.stride, own.size, strict=True))  # beyond its size an image has no phases
    tables: dict[tuple[int, int], list[tuple[int, int]]] = {(y, x): [] for y, x in itertools.product(*map(range, steps))}
    for row in range(own.rows):
        for line, (down, phase_y) in enumerate(shifts[0]):
            for column, (across, phase_x) in enumerate(shifts[1]):
                offset = row * signal + (shifts[0][-1][0] - down) * pitch + shifts[1][-1][0] - across
                place = row * own.channels * taps + line * own.window[1] + column
                if (phase_y, phase_x) in tables:
                    tables[phase_y, phase_x].append((offset, place))
    plan = {
        **cut, "channels": own.rows, "rows": own.channels, "height": own.positions[0], "width": own.positions[1],
        "result_height": own.size[0], "result_width": own.size[1], "step_y": 1, "step_x": 1,
        "result_step_y": own.stride[0], "result_step_x": own.stride[1],
        "row_step": taps, "group_step": own.rows * own.channels * taps,
    }  # fmt: skip
    return _tiling(own, plan, [(0, 0)], tables)


def _cut(own: Geometry, axes: list[_Axis], signals: int) -> dict[str, int]:
    """Tiles: of several images where one is small, else of lines of one, or of columns of a line."""
    down, across = axes
    room = max(TILE_POSITIONS, min(PITCH, TILE_SIGNALS // signals))
    pitch, height = across.outputs + across.span - across.share, down.outputs + down.span - down.share
    lines, columns, images = down.outputs, across.outputs, 1
    if pitch * height <= room:
        images = max(1, min(room // (pitch * height), -(-own.images // TILES)))
        images = -(-own.images // -(-own.images // images))  # alike
    elif pitch <= room:
        lines = min(lines, max(1, room // pitch))
        lines = -(-down.outputs // -(-down.outputs // lines))
    else:
        lines, columns = 1, -(-columns // -(-columns // room))
    if columns < across.outputs:
        pitch = columns + across.span
    whole = lines == down.outputs
    image_pitch = pitch * (height if whole else lines + down.span)
    tiles_y, tiles_x = -(-down.outputs // lines), -(-across.outputs // columns)
    # Behind the last image there is what it shares with the next.
    tail = (down.share if whole else 0) * pitch + across.span
    return {
        "images": own.images, "groups": own.groups, "outputs_y": down.outputs, "outputs_x": across.outputs,
        "base_y": down.base, "base_x": across.base, "tile_images": images, "tile_lines": lines, "tile_columns": columns,
        "tiles_y": tiles_y, "tiles_x": tiles_x, "tiles": -(-own.images // images) * tiles_y * tiles_x,
        "signal_lines": lines + down.span, "signal_columns": columns + across.span,
        "pitch": pitch, "image_pitch": image_pitch, "signal": images * image_pitch + tail,
    }  # fmt: skip


def _tiling(
    own: Geometry, plan: dict[str, int], phases: list[tuple[int, int]], tables: dict[tuple[int, int], list[tuple[int, int]]]
) -> Tiling:
    starts: list[tuple[int, int, int]] = []
    taps: list[tuple[int, int]] = []
    for phase, table in tables.items():
        starts.append((len(taps), *phase))
        taps += table + [(0, -1)] * (-len(table) % 3)
    starts.append((len(taps), 0, 0))
    items = plan["tiles"] * plan["groups"]
    wanted = max(1, min(own.work // CORRELATED_EACH, CORRELATED_MOST))
    weights = plan["groups"] * plan["group_step"]
    chunks = max(1, min(wanted, plan["tiles"], CORRELATED_PARTS // weights))
    return Tiling(
        np.array([plan[field] for field in FIELDS], np.int64),
        np.array(phases, np.int64),
        np.array(taps, np.int64).reshape(len(taps), 2),
        np.array(starts, np.int64),
        plan["channels"] * len(phases) * plan["signal"],
        min(wanted, items),
        chunks,
        max(1, min(wanted // chunks, plan["rows"] // 8)),
    )
