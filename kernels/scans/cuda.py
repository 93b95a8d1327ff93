"""Scans by teams on CUDA: the bodies that go with :func:`aiodev.kernels.scans.cpu.make_scan`.

A team goes through its piece by tiles. Neighbouring threads read neighbouring elements into the team's memory; each thread then
has a few elements in a row, an odd number of them, so that threads which read at once find them in different banks. Their
totals are summed up across the team, each thread goes through its elements from there, and the tile is written as it was read.

This is reduce-then-scan: pieces are summed first, so elements are read twice. See Merrill and Garland, Single-pass Parallel
Prefix Scan with Decoupled Look-back (2016), for it and for what reads them once, by blocks that wait for each other.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.thread_block import TEAM, has_teams, make_running, on_teams, piece_of, pieces_of
from aiodev.lang import team_array, team_barrier, team_rank

__all__ = ["add_scan_teams", "pieces_and_teams"]

#: Elements that a thread has of a tile, and elements of a tile.
_ITEMS = 7
_TILE = _ITEMS * TEAM
#: Rows up to this length are summed up by a thread each.
_SHORT = 16


def pieces_and_teams(rows: int, length: int, device: aiodev.Device) -> tuple[int, int] | None:
    """Pieces of a row, and indices of the launch that makes the totals; None where there are no teams."""
    if not has_teams(device):
        return None
    pieces = pieces_of(rows, length)
    return pieces, -(-rows // TEAM) if length <= _SHORT else rows * pieces


def add_scan_teams(offsets: aiodev.Kernel, totals: aiodev.Kernel, load: Any, combine: Any, identity: Any) -> None:
    """The bodies for the two kernels of a running total."""
    running = make_running(combine)

    def sum_up(i, blocks, identity, parts):
        rank, done, carry = team_rank(), 0, identity
        while done < blocks:
            k = np.uint64(i * blocks + done + rank)
            inside = done + rank < blocks
            before, total = running(parts[k] if inside else identity, identity, parts.dtype)
            if inside:
                parts[k] = combine(carry, before)
            carry = combine(carry, total)
            done += TEAM

    def run_row(x, start, length, total, before, out, target):
        for k in range(length):
            after = combine(total, load(x[np.uint64(start + k)]))
            out[np.uint64(target + k)] = total if before else after
            total = after

    def run_tile(tile, total, before):
        for k in range(_ITEMS):
            place = np.uint64(team_rank() * _ITEMS + k)
            after = combine(total, tile[place])
            tile[place] = total if before else after
            total = after

    def run(i, blocks, x, length, parts, before, width, out):
        tile = team_array(_TILE, parts.dtype)
        rank = team_rank()
        if length <= _SHORT:
            row = i * TEAM + rank
            if row < parts.size:
                start = row * width + (width - length)
                if width > length:
                    out[np.uint64(start - 1)] = parts[row]
                run_row(x, row * length, length, parts[row], before, out, start)
        else:
            row, done, end = piece_of(i, blocks, length)
            carry, start = parts[i], row * width + (width - length)
            if width > length and done == 0 and rank == 0:
                out[np.uint64(start - 1)] = carry
            while done < end:
                k = rank
                while k < _TILE:
                    tile[k] = load(x[np.uint64(row * length + done + k)]) if done + k < end else identity
                    k += TEAM
                team_barrier()
                own = identity
                for k in range(_ITEMS):
                    own = combine(own, tile[np.uint64(rank * _ITEMS + k)])
                ahead, total = running(own, identity, parts.dtype)
                run_tile(tile, combine(carry, ahead), before)
                team_barrier()
                k = rank
                while k < _TILE and done + k < end:
                    out[np.uint64(start + done + k)] = tile[k]
                    k += TEAM
                team_barrier()
                carry = combine(carry, total)
                done += _TILE

    on_teams(offsets, sum_up)
    on_teams(totals, run)
