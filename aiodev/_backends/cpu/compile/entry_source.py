"""Source of range entries, generated from a kernel's types.

An entry reads the argument block of a launch (:mod:`aiodev._core.backend.kernel_arguments`), and runs the flat indices
``lo`` … ``hi - 1`` of its shape in C order. For two and three dimensions it walks rows, so that the innermost loop runs along
the last axis: no division an element, and contiguous arrays are read in order.

With a *tile* (:mod:`aiodev._backends.cpu.compile.tiles`) rows are taken by bands, as many as a tile has, and the flat indices
of a band run down its columns. A tile is run by whoever has the first of its indices in its range, and so is what is left
over at the right end of a band. So ranges may be cut anywhere, and an index is in the same tile however they are.
"""

from __future__ import annotations

from aiodev._backends.cpu.compile.tiles import Tile
from aiodev._core.backend.kernel_arguments import WORD, KernelArgument

__all__ = ["entry_source", "span_source"]

#: Launches of fewer indices than this are not run by tiles: cores would go without.
LEAST = 64


def entry_source(name: str, ndim: int, arguments: list[KernelArgument], tile: Tile | None = None) -> str:
    """Source of ``name(block, lo, hi)``; it needs the names that :func:`aiodev._backends.cpu.compile.compiler` gives it."""
    lines = [f"def {name}(block, lo, hi):", "    if lo >= hi:", "        return 0"]  # a length may be 0, to divide by
    lines += [f"    n{d} = scalar_at(block + {WORD * d}, int64)" for d in range(0 if tile else 1, ndim)]
    for position, argument in enumerate(arguments):
        reader = "array_at" if argument.is_array else "scalar_at"
        lines.append(f"    a{position} = {reader}(block + {argument.offset}, T{position})")
    values = "".join(f", a{position}" for position in range(len(arguments)))
    lines += _LOOPS[ndim](values) if tile is None else _tiled(ndim, values, tile)
    lines.append("    return 0")
    return "\n".join(lines) + "\n"


def _line(values: str) -> list[str]:
    return [
        "    for i in range(lo, hi):",
        f"        body(counted(i){values})",
    ]


def _plane(values: str) -> list[str]:
    return [
        "    i = lo // n1",
        "    j = lo - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n1, j + left)",
        "        left -= end - j",
        "        for column in range(j, end):",
        f"            body(counted(i), counted(column){values})",
        "        j = 0",
        "        i += 1",
    ]


def _volume(values: str) -> list[str]:
    return [
        "    row = lo // n2",
        "    k = lo - row * n2",
        "    i = row // n1",
        "    j = row - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n2, k + left)",
        "        left -= end - k",
        "        for column in range(k, end):",
        f"            body(counted(i), counted(j), counted(column){values})",
        "        k = 0",
        "        j += 1",
        "        if j == n1:",
        "            j = 0",
        "            i += 1",
    ]


_LOOPS = {1: _line, 2: _plane, 3: _volume}


def span_source(ndim: int, arguments: list[KernelArgument]) -> str:
    """Source of ``span(…, first, last, …)``: the body for a part of a row, whose other indices come first."""
    others = "".join(f"{index}, " for index in ("plane", "row")[3 - ndim :])
    values = "".join(f", a{position}" for position in range(len(arguments)))
    counted = "".join(f"counted({index}), " for index in ("plane", "row")[3 - ndim :])
    lines = [f"def span({others}first, last{values}):"]
    lines += ["    for column in range(first, last):", f"        body({counted}counted(column){values})"]
    return "\n".join(lines) + "\n"


def _tiled(ndim: int, values: str, tile: Tile) -> list[str]:
    """The loops of an entry with tiles; few indices, and the last rows, are run one by one."""
    axes = ("plane", "row")[3 - ndim :]
    rows, columns = ("1", "n0") if ndim == 1 else (f"n{ndim - 2}", f"n{ndim - 1}")
    size = " * ".join(f"n{d}" for d in range(ndim))
    height, width = tile
    area = height * width
    tiled = "".join(f"counted({axis}), " for axis in axes)
    others = "".join(f"{axis}, " if axis == "plane" else "row + part, " for axis in axes)
    row = "".join(f"{axis}, " for axis in axes)
    return [
        f"    rows, columns = {rows}, {columns}",
        f"    tiled = rows // {height} * {height} if {size} >= {LEAST} else 0  # rows that are run by tiles",
        "    while lo < hi:",
        "        plane = lo // (rows * columns)",
        "        base = plane * rows * columns",
        "        end = min(hi, base + rows * columns)",
        "        while lo < end:",
        "            row = (lo - base) // columns",
        "            if row < tiled:",
        f"                row = row // {height} * {height}",
        "                start = base + row * columns",
        f"                first = (lo - start + {area - 1}) // {area} * {width}",
        f"                last = min(end - start + {height - 1}, columns * {height}) // {height}",
        f"                for column in range(first, min(last, columns - {width - 1}), {width}):",
        "                    one_by_one()",
        f"                    tile({tiled}counted(column){values})",
        f"                column = columns // {width} * {width}",
        "                if first <= column < last:",
        f"                    for part in range({height}):",
        f"                        span({others}column, columns{values})",
        f"                lo = start + columns * {height}",
        "            else:",
        "                start = base + row * columns",
        "                last = min(end - start, columns)",
        f"                span({row}lo - start, last{values})",
        "                lo = start + last",
    ]
