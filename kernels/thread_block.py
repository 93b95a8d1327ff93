"""Thread blocks: how the library's CUDA bodies share elements out among a team's threads, and what they have in common.

Rows are reduced by a power of two of threads, *lanes*, as many as give each some elements: so a team takes several short rows
or one long one. Neighbouring lanes read neighbouring elements. What the lanes come to is combined in the team's memory, by
halves: the order follows from the shape, and the same bits come out whenever it is run. Few long rows are cut into pieces,
enough for every multiprocessor to have some teams, and the pieces' results are reduced as rows once more.

See Harris, Optimizing Parallel Reduction in CUDA (2007).
"""

# What is called in bodies is numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiodev
from aiodev.kernels.tuning import TEAM_EACH, TEAM_PIECE, TEAMS
from aiodev.lang import team_array, team_barrier, team_rank

__all__ = [
    "TEAM",
    "TEAM_BITS",
    "column_bits",
    "has_teams",
    "lane_bits",
    "make_gather",
    "make_running",
    "on_teams",
    "piece_of",
    "pieces_of",
    "place_in_team",
    "slabs_of",
    "strips_of",
    "teams_for",
]

#: Threads of a team.
TEAM_BITS = 8
TEAM = 1 << TEAM_BITS
#: Columns that a team reduces side by side at most: those that a warp reads at once.
_COLUMN_BITS = 5


def has_teams(device: aiodev.Device) -> bool:
    """Whether the bodies that teams run are used there."""
    return aiodev.capabilities(device).thread_blocks


def on_teams(kernel: aiodev.Kernel, body: Callable[..., Any]) -> None:
    """Have teams run ``body`` on CUDA."""
    kernel.implementation("cuda", block=TEAM, team=True)(body)


# Shares: the host and the bodies come to the same


def lane_bits(length: int) -> int:
    """How many lanes reduce a row of ``length``, as a power of two."""
    bits = 0
    while bits < TEAM_BITS and length > (TEAM_EACH << bits):
        bits += 1
    return bits


def teams_for(rows: int, length: int) -> int:
    """How many teams reduce ``rows`` rows of ``length``."""
    each = TEAM >> lane_bits(length)
    return -(-rows // each)


def pieces_of(rows: int, length: int) -> int:
    """Into how many pieces each row is cut."""
    if rows == 0 or 2 * rows >= TEAMS or length <= 2 * TEAM_PIECE:
        return 1
    return min(-(-TEAMS // rows), -(-length // TEAM_PIECE))


def column_bits(inner: int) -> int:
    """How many columns a team reduces side by side, as a power of two."""
    bits = 0
    while bits < _COLUMN_BITS and (1 << bits) < inner:
        bits += 1
    return bits


def strips_of(inner: int) -> int:
    """How many teams stand side by side over ``inner`` columns."""
    bits = column_bits(inner)
    return (inner + (1 << bits) - 1) >> bits


def slabs_of(columns: int, length: int, inner: int) -> int:
    """Into how many slabs of rows ``columns`` sets of ``inner`` columns of ``length`` are cut."""
    teams = columns * strips_of(inner)
    if teams == 0 or 2 * teams >= TEAMS:
        return 1
    lanes = TEAM >> column_bits(inner)
    return max(1, min(-(-TEAMS // teams), length // (TEAM_EACH * lanes)))


# Bodies


def make_gather(combine: Callable[..., Any]) -> Callable[..., Any]:
    """``gather(value, least, span, dtype)``: combine values of threads that are ``least`` apart, in each ``span`` of the team.

    Both are powers of two; the first ``least`` threads of a span get the results. All threads call it, once for an index.
    """

    def gather(value, least, span, dtype):
        shared = team_array(TEAM, dtype)
        rank = team_rank()
        shared[rank] = value
        step = span >> 1
        while step >= least:
            team_barrier()
            if (rank & (span - 1)) < step:
                value = combine(value, shared[rank + step])
                shared[rank] = value
            step >>= 1
        return value

    return gather


def make_running(combine: Callable[..., Any]) -> Callable[..., Any]:
    """``running(value, identity, dtype)``: what comes before this thread's value in the team, and the total of all values.

    Threads that are 1, 2, 4, … apart combine in turn (Hillis and Steele, Data Parallel Algorithms, 1986). All threads call it.
    """

    def running(value, identity, dtype):
        shared = team_array(TEAM, dtype)
        rank = team_rank()
        shared[rank] = value
        step = 1
        while step < TEAM:
            team_barrier()
            other = shared[rank - step] if rank >= step else identity
            team_barrier()
            value = combine(other, value)
            shared[rank] = value
            step <<= 1
        team_barrier()
        before, total = shared[rank - 1] if rank > 0 else identity, shared[TEAM - 1]
        team_barrier()
        return before, total

    return running


def place_in_team(i: int, bits: int) -> tuple[int, int]:
    """The row of this thread and its lane, where rows have ``1 << bits`` lanes and ``i`` is the team."""
    rank = team_rank()
    return (i << (TEAM_BITS - bits)) + (rank >> bits), rank & ((1 << bits) - 1)


def piece_of(i: int, blocks: int, length: int) -> tuple[int, int, int]:
    """Row, begin and end of piece ``i``, of ``blocks`` a row."""
    if blocks <= 0:  # never; so dividing cannot raise
        return 0, 0, 0
    row, block = i // blocks, i % blocks
    width = (length + blocks - 1) // blocks
    lo = min(block * width, length)
    return row, lo, min(lo + width, length)
