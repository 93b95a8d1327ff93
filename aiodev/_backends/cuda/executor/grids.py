"""Grids: the blocks and threads of a launch."""

from __future__ import annotations

from aiodev._backends.cuda.structs import Entry, Grid
from aiodev._native.compile import inner
from aiodev._native.fields import Cell


@inner
def lay_out(entry: Entry, shape: Cell[int], grid: Grid) -> None:
    """Decide on the blocks and threads of a launch over ``shape``."""
    ndim = entry.ndim
    threads = entry.block
    most = entry.grid
    along = shape[ndim - 1].value
    team = entry.team != 0
    wide = 32
    while wide < threads and wide < along:
        wide *= 2
    if ndim == 1 or team:
        wide = threads
    wide = min(wide, threads)
    high = max(1, threads // wide) if ndim > 1 else 1
    covered = 1 if team else wide
    columns = min(most, (along + covered - 1) // covered)
    rows = 1
    planes = 1
    if ndim > 1:
        rows = min((shape[ndim - 2].value + high - 1) // high, max(1, most // columns), 65535)
    if ndim > 2:
        planes = min(shape.value, max(1, most // (columns * rows)), 65535)
    grid.columns = columns
    grid.rows = rows
    grid.planes = planes
    grid.wide = wide
    grid.high = high
