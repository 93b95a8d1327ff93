"""Kernels of convolutions for CPUs: correlations of signals that lie in a worker's cache, without a matrix of windows.

**How.** A tile of the result is some images, or some lines or columns of one. What it needs of the source is first copied to
a *signal*: for each channel one row, in which the lines of the tile's images follow each other, with the padding between them.
A tap of the window is then an offset in that row, the same for all positions of the tile. So a row of the result is a sum of
shifted rows times weights, over as long a loop as there are positions, and no element is copied once for each tap. Four rows
and three taps at a time are what vector registers hold. Padding that two neighbours need is there once. Where windows move by
steps, each residue of the step that a tap has is a row of its own, its *phase*.

The three directions are one loop nest and its transpose. Forwards, source and result are what they are called. For the
gradient of the source, the source is the result's gradient, and each phase is a result of its own. For that of
the weights, rows of the result's gradient are laid out as signals are, and multiplied with these.

What a tile consists of is in a plan of integers (:mod:`aiodev.kernels.nn.tiles`); the taps are in a table, for each its offset
and its weight's place, or -1 for none where a group of three is not full; and so are the phases of the source, and those of the
result, with where the taps of each begin.

**Invariant.** Rows of accumulators are :data:`PITCH` elements apart, which compilers must know: so they see that rows do not
overlap, and the loop over positions becomes vector code. No tile has more positions.
"""

# What is called in bodies is numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev

__all__ = ["FIELDS", "PITCH", "add_parts", "correlate_tiles", "multiply_signals"]

#: Elements between rows of accumulators, and positions of a tile at most: with four rows, a quarter of a first-level cache.
PITCH = 512
#: Elements that one index of the last sum takes.
BLOCK = 1 << 10

#: What a plan says, by the places of its integers.
FIELDS = (
    "images", "channels", "groups", "rows",  # of the source; of a group of it, and of its result
    "height", "width",  # of the source
    "result_height", "result_width",
    "outputs_y", "outputs_x",  # positions of the result, of one phase
    "base_y", "base_x",  # where the first position's window begins, in elements of a phase of the source
    "step_y", "step_x", "result_step_y", "result_step_x",  # between elements of a phase
    "tile_images", "tile_lines", "tile_columns", "tiles_y", "tiles_x", "tiles",
    "signal_lines", "signal_columns", "pitch", "image_pitch", "signal",  # of a signal: what is copied, and distances
    "row_step", "group_step",  # of weights
)  # fmt: skip
(
    IMAGES, CHANNELS, GROUPS, ROWS, HEIGHT, WIDTH, RESULT_HEIGHT, RESULT_WIDTH, OUTPUTS_Y, OUTPUTS_X, BASE_Y, BASE_X,
    STEP_Y, STEP_X, RESULT_STEP_Y, RESULT_STEP_X, TILE_IMAGES, TILE_LINES, TILE_COLUMNS, TILES_Y, TILES_X, TILES,
    SIGNAL_LINES, SIGNAL_COLUMNS, LINE_PITCH, IMAGE_PITCH, SIGNAL, ROW_STEP, GROUP_STEP,
) = range(len(FIELDS))  # fmt: skip

_SUMS = frozenset({"reassoc", "contract"})
#: Unsigned: an index that may be negative, as far as the compiler knows, would keep loops out of vectors.
_U = np.uint64


def copy_run(source, begin, step, target, to, count):
    """Copy elements that are ``step`` apart; eight at a time are read before they are written, as one vector."""
    done = 0
    if step == 1:
        done = count & ~7
        for at in range(0, done, 8):
            i, j = _U(begin + at), _U(to + at)
            v0, v1, v2, v3 = source[i], source[i + _U(1)], source[i + _U(2)], source[i + _U(3)]
            v4, v5, v6, v7 = source[i + _U(4)], source[i + _U(5)], source[i + _U(6)], source[i + _U(7)]
            target[j], target[j + _U(1)], target[j + _U(2)], target[j + _U(3)] = v0, v1, v2, v3
            target[j + _U(4)], target[j + _U(5)], target[j + _U(6)], target[j + _U(7)] = v4, v5, v6, v7
    for at in range(done, count):
        target[_U(to + at)] = source[_U(begin + at * step)]


def tile_of(plan, tile):
    """The first image, line and column of a tile, and how many of each it has."""
    column = tile % plan[TILES_X] * plan[TILE_COLUMNS]
    tile //= plan[TILES_X]
    line = tile % plan[TILES_Y] * plan[TILE_LINES]
    image = tile // plan[TILES_Y] * plan[TILE_IMAGES]
    images = min(plan[TILE_IMAGES], plan[IMAGES] - image)
    lines, columns = min(plan[TILE_LINES], plan[OUTPUTS_Y] - line), min(plan[TILE_COLUMNS], plan[OUTPUTS_X] - column)
    return image, line, column, images, lines, columns


def positions_of(plan, images, lines, columns):
    """The length of the loop over a tile: from its first position to its last one."""
    return (images - 1) * plan[IMAGE_PITCH] + (lines - 1) * plan[LINE_PITCH] + columns


def lay_out(
    source, plane, height, width, image_step, y, x, step_y, step_x, images, lines, columns, pitch, image_pitch, row, to
):
    """Copy planes of some images into a row: lines from ``y`` on, columns from ``x`` on, where there are such; pads are 0."""
    first, last = max(0, -(x // step_x)), min(columns, (width - 1 - x) // step_x + 1)
    for image in range(images):
        for line in range(lines):
            at = y + line * step_y
            if at >= 0 and at < height and last > first:
                begin = plane + image * image_step + at * width + x + first * step_x
                copy_run(source, begin, step_x, row, to + image * image_pitch + line * pitch + first, last - first)


def signals_of(plan, phases, source, group, image, line, column, images, signal):
    """Lay out what a tile needs of the source: a row for each channel and phase."""
    height, width, channels = plan[HEIGHT], plan[WIDTH], plan[CHANNELS]
    size, step_y, step_x = plan[SIGNAL], plan[STEP_Y], plan[STEP_X]
    row = signal[: channels * phases.shape[0] * size]
    for j in range(row.size):
        row[j] = 0
    image_step = plan[GROUPS] * channels * height * width
    to = 0
    for channel in range(channels):
        plane = image * image_step + (group * channels + channel) * height * width
        for phase in range(phases.shape[0]):
            y, x = (plan[BASE_Y] + line) * step_y + phases[phase, 0], (plan[BASE_X] + column) * step_x + phases[phase, 1]
            lay_out(
                source, plane, height, width, image_step, y, x, step_y, step_x,
                images, plan[SIGNAL_LINES], plan[SIGNAL_COLUMNS], plan[LINE_PITCH], plan[IMAGE_PITCH], signal, to,
            )  # fmt: skip
            to += size


def weight_at(weights, place, row, zero):
    """A row's weight for a tap, 0 where there is none."""
    return weights[row + place] + zero if place >= 0 else zero


def correlate_four(signal, taps, first, last, weights, row, row_step, count, total):
    """Four rows of sums: of the signal's elements at each tap's offset, times the rows' weights."""
    zero = total.dtype.type(0)
    for clear in range(total.size):
        total[clear] = 0
    for k in range(first, last, 3):
        o0, o1, o2 = _U(taps[k, 0]), _U(taps[k + 1, 0]), _U(taps[k + 2, 0])
        p0, p1, p2 = taps[k, 1], taps[k + 1, 1], taps[k + 2, 1]
        a0, a1, a2 = weight_at(weights, p0, row, zero), weight_at(weights, p1, row, zero), weight_at(weights, p2, row, zero)
        r = row + row_step
        b0, b1, b2 = weight_at(weights, p0, r, zero), weight_at(weights, p1, r, zero), weight_at(weights, p2, r, zero)
        r += row_step
        c0, c1, c2 = weight_at(weights, p0, r, zero), weight_at(weights, p1, r, zero), weight_at(weights, p2, r, zero)
        r += row_step
        d0, d1, d2 = weight_at(weights, p0, r, zero), weight_at(weights, p1, r, zero), weight_at(weights, p2, r, zero)
        for i in range(count):
            j = _U(i)
            x0, x1, x2 = signal[j + o0], signal[j + o1], signal[j + o2]
            total[j] += x0 * a0 + x1 * a1 + x2 * a2
            total[j + _U(PITCH)] += x0 * b0 + x1 * b1 + x2 * b2
            total[j + _U(2 * PITCH)] += x0 * c0 + x1 * c1 + x2 * c2
            total[j + _U(3 * PITCH)] += x0 * d0 + x1 * d1 + x2 * d2


def correlate_one(signal, taps, first, last, weights, row, count, total):
    """The correlation of the signal with the weights of one row."""
    zero = total.dtype.type(0)
    for clear in range(PITCH):
        total[clear] = 0
    for k in range(first, last, 3):
        o0, o1, o2 = _U(taps[k, 0]), _U(taps[k + 1, 0]), _U(taps[k + 2, 0])
        a0 = weight_at(weights, taps[k, 1], row, zero)
        a1 = weight_at(weights, taps[k + 1, 1], row, zero)
        a2 = weight_at(weights, taps[k + 2, 1], row, zero)
        for i in range(count):
            j = _U(i)
            total[j] += signal[j + o0] * a0 + signal[j + o1] * a1 + signal[j + o2] * a2


def deliver(plan, total, begin, out, plane, bias, phase_y, phase_x, image, line, column, images, lines, columns):
    """Write a row of a tile to its plane, with a bias."""
    height, width = plan[RESULT_HEIGHT], plan[RESULT_WIDTH]
    step_y, step_x = plan[RESULT_STEP_Y], plan[RESULT_STEP_X]
    image_step = plan[GROUPS] * plan[ROWS] * height * width
    x = column * step_x + phase_x
    count = min(columns, (width - 1 - x) // step_x + 1)
    for own in range(images):
        for at in range(lines):
            y = (line + at) * step_y + phase_y
            if y < height:
                start = begin + own * plan[IMAGE_PITCH] + at * plan[LINE_PITCH]
                to = plane + (image + own) * image_step + y * width + x
                if step_x == 1:
                    done = count & ~7
                    for k in range(0, done, 8):
                        i, j = _U(start + k), _U(to + k)
                        v0, v1, v2, v3 = total[i], total[i + _U(1)], total[i + _U(2)], total[i + _U(3)]
                        v4, v5, v6, v7 = total[i + _U(4)], total[i + _U(5)], total[i + _U(6)], total[i + _U(7)]
                        out[j], out[j + _U(1)] = v0 + bias, v1 + bias
                        out[j + _U(2)], out[j + _U(3)] = v2 + bias, v3 + bias
                        out[j + _U(4)], out[j + _U(5)] = v4 + bias, v5 + bias
                        out[j + _U(6)], out[j + _U(7)] = v6 + bias, v7 + bias
                    for k in range(done, count):
                        out[_U(to + k)] = total[_U(start + k)] + bias
                else:
                    for k in range(count):
                        out[_U(to + k * step_x)] = total[_U(start + k)] + bias


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=("plan", "phases", "taps", "starts", "source", "weights", "bias"))
def correlate_tiles(
    i: int, pieces: int, has_bias: bool, plan: Any, phases: Any, taps: Any, starts: Any, source: Any, weights: Any, bias: Any,
    signals: Any, totals: Any, out: Any,
) -> None:  # fmt: skip
    """Some tiles of the result, whole; ``starts`` has for each phase of the result its first tap, line and column."""
    signal, total = signals[i], totals[i]
    groups, rows = plan[GROUPS], plan[ROWS]
    items = plan[TILES] * groups
    row_step = plan[ROW_STEP]
    area = plan[RESULT_HEIGHT] * plan[RESULT_WIDTH]
    for item in range(items * i // pieces, items * (i + 1) // pieces):
        group = item % groups
        image, line, column, images, lines, columns = tile_of(plan, item // groups)
        count = positions_of(plan, images, lines, columns)
        signals_of(plan, phases, source, group, image, line, column, images, signal)
        for phase in range(starts.shape[0] - 1):
            first, last, y, x = starts[phase, 0], starts[phase + 1, 0], starts[phase, 1], starts[phase, 2]
            row = 0
            while row < rows:
                begin = group * plan[GROUP_STEP] + row * row_step
                height = 4 if row + 4 <= rows else 1
                if height == 4:
                    correlate_four(signal, taps, first, last, weights, begin, row_step, count, total)
                else:
                    correlate_one(signal, taps, first, last, weights, begin, count, total)
                for own in range(height):
                    place = group * rows + row + own
                    added = bias[place] + total.dtype.type(0) if has_bias else total.dtype.type(0)
                    start = own * PITCH
                    deliver(plan, total, start, out, place * area, added, y, x, image, line, column, images, lines, columns)
                row += height


def multiply_four(signal, taps, grads, count, part, begin, step):
    """Add the products of four rows with the signal at each tap's offset to a part of the weights' gradient."""
    for k in range(0, taps.shape[0], 3):
        o0, o1, o2 = _U(taps[k, 0]), _U(taps[k + 1, 0]), _U(taps[k + 2, 0])
        a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = grads.dtype.type(0)
        for i in range(count):
            j = _U(i)
            x0, x1, x2 = signal[j + o0], signal[j + o1], signal[j + o2]
            g0, g1, g2, g3 = grads[j], grads[j + _U(PITCH)], grads[j + _U(2 * PITCH)], grads[j + _U(3 * PITCH)]
            a0 += x0 * g0
            a1 += x1 * g0
            a2 += x2 * g0
            b0 += x0 * g1
            b1 += x1 * g1
            b2 += x2 * g1
            c0 += x0 * g2
            c1 += x1 * g2
            c2 += x2 * g2
            d0 += x0 * g3
            d1 += x1 * g3
            d2 += x2 * g3
        add_three(part, begin, taps, k, a0, a1, a2)
        add_three(part, begin + step, taps, k, b0, b1, b2)
        add_three(part, begin + 2 * step, taps, k, c0, c1, c2)
        add_three(part, begin + 3 * step, taps, k, d0, d1, d2)


def multiply_one(signal, taps, grads, count, part, begin):
    """Add the products of one row with the signal at each tap's offset to a part of the weights' gradient."""
    for k in range(0, taps.shape[0], 3):
        o0, o1, o2 = _U(taps[k, 0]), _U(taps[k + 1, 0]), _U(taps[k + 2, 0])
        a0 = a1 = a2 = grads.dtype.type(0)
        for i in range(count):
            j = _U(i)
            a0 += signal[j + o0] * grads[j]
            a1 += signal[j + o1] * grads[j]
            a2 += signal[j + o2] * grads[j]
        add_three(part, begin, taps, k, a0, a1, a2)


def add_three(part, begin, taps, k, v0, v1, v2):
    """Add to the places of three taps."""
    if taps[k, 1] >= 0:
        part[begin + taps[k, 1]] += v0
    if taps[k + 1, 1] >= 0:
        part[begin + taps[k + 1, 1]] += v1
    if taps[k + 2, 1] >= 0:
        part[begin + taps[k + 2, 1]] += v2


@aiodev.kernel(fastmath=_SUMS, uniform=True, reads=("plan", "phases", "taps", "source", "grads"))
def multiply_signals(
    i: int, chunks: int, strips: int, plan: Any, phases: Any, taps: Any, source: Any, grads: Any,
    signals: Any, totals: Any, parts: Any,
) -> None:  # fmt: skip
    """What one chunk of tiles contributes to a strip of the rows of the weights' gradient."""
    chunk, strip = i // strips, i % strips
    signal, total, part = signals[i], totals[i], parts[chunk]
    groups, rows, tiles = plan[GROUPS], plan[ROWS], plan[TILES]
    bottom, top = rows * strip // strips, rows * (strip + 1) // strips
    row_step, height, width = plan[ROW_STEP], plan[RESULT_HEIGHT], plan[RESULT_WIDTH]
    area = height * width
    for group in range(groups):
        begin = group * plan[GROUP_STEP]
        mine = part[begin + bottom * row_step : begin + top * row_step]
        for j in range(mine.size):
            mine[j] = 0
    for tile in range(tiles * chunk // chunks, tiles * (chunk + 1) // chunks):
        image, line, column, images, lines, columns = tile_of(plan, tile)
        count = positions_of(plan, images, lines, columns)
        for group in range(groups):
            signals_of(plan, phases, source, group, image, line, column, images, signal)
            row = bottom
            while row < top:
                several = 4 if row + 4 <= top else 1
                for j in range(total.size):
                    total[j] = 0
                for own in range(several):
                    plane = (image * groups * rows + group * rows + row + own) * area
                    lay_out(
                        grads, plane, height, width, groups * rows * area, line, column, 1, 1,
                        images, lines, columns, plan[LINE_PITCH], plan[IMAGE_PITCH], total, own * PITCH,
                    )  # fmt: skip
                begin = group * plan[GROUP_STEP] + row * row_step
                if several == 4:
                    multiply_four(signal, taps, total, count, part, begin, row_step)
                else:
                    multiply_one(signal, taps, total, count, part, begin)
                row += several


@aiodev.kernel(uniform=True)
def add_parts(i: int, parts: Any, out: Any) -> None:
    """The sums of a block of elements over all parts, in their order."""
    first, last = i * BLOCK, min(out.size, (i + 1) * BLOCK)
    total, target = parts[0, first:last], out[first:last]
    for part in range(1, parts.shape[0]):
        own = parts[part, first:last]
        for j in range(total.size):
            total[j] += own[j]
    for j in range(total.size):
        target[j] = total[j]
