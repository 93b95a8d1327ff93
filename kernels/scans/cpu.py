"""Kernels behind scans: blocks are reduced, what comes before each is summed up, then blocks are run through.

What is short, or one block, is run through at once.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.reductions.bodies import BLOCK, NEAR, Plain
from aiodev.kernels.scans.cuda import add_scan_teams

__all__ = ["STRIP", "make_columns", "make_scan"]

#: Columns that are run through side by side.
STRIP = 1 << 8
#: Elements of rows that are run through one by one, at most: others four at a time, since each sum waits for the one before it.
#: Of what is not near those are longer and have small elements: a core reads four rows at once slower than one after the other.
SHORT, LONG, WORD = 32, 128, 4


def make_scan(name: str, load: Plain, combine: Plain, identity: Any) -> tuple[aiodev.Kernel, aiodev.Kernel, aiodev.Kernel]:
    """Running totals.

    (i, group, lines, x, length, inner, identity, before, width, out) writes those of ``group`` whole lines out of ``lines``:
    rows, or columns, whose elements are ``inner`` apart, each to one of ``width`` elements. Or, where elements lie side by side
    and rows are cut:

    (i, blocks, identity, parts) turns what the blocks of row ``i`` come to into what comes before each of them; then
    (i, blocks, x, length, parts, before, width, out) writes the totals of four blocks of a row to a row of ``width``: before
    each element, or after it and behind the others if the row is wider. There are ``(blocks + 3) // 4`` such fours in a row.
    """

    def start_of(line, length, inner):
        return np.uint64(line * length if inner == 1 else line // inner * length * inner + line % inner)

    def run_one(line, x, length, inner, identity, before, width, out):
        source, target = start_of(line, length, inner), start_of(line, width, inner)
        total = identity
        if width > length:
            out[target] = total
        for k in range(length):
            after = combine(total, load(x[source + np.uint64(k * inner)]))
            out[target + np.uint64((k + width - length) * inner)] = total if before else after
            total = after

    def run_four(line, last, x, length, inner, identity, before, width, out):
        second, third, fourth = line + 1, min(line + 2, last), min(line + 3, last)  # the last one again comes to the same
        a, b = start_of(line, length, inner), start_of(second, length, inner)
        c, d = start_of(third, length, inner), start_of(fourth, length, inner)
        to_a, to_b = start_of(line, width, inner), start_of(second, width, inner)
        to_c, to_d = start_of(third, width, inner), start_of(fourth, width, inner)
        s = t = u = v = identity
        if width > length:
            out[to_a] = out[to_b] = out[to_c] = out[to_d] = identity
        for k in range(length):
            near, far = np.uint64(k * inner), np.uint64((k + width - length) * inner)
            s_on, t_on = combine(s, load(x[a + near])), combine(t, load(x[b + near]))
            u_on, v_on = combine(u, load(x[c + near])), combine(v, load(x[d + near]))
            out[to_a + far], out[to_b + far] = s if before else s_on, t if before else t_on
            out[to_c + far], out[to_d + far] = u if before else u_on, v if before else v_on
            s, t, u, v = s_on, t_on, u_on, v_on

    def run_lines(line, end, x, length, inner, identity, before, width, out):
        near = out.nbytes <= NEAR
        if inner > 1 or (length > (SHORT if near else LONG) and (near or out.itemsize <= WORD)):
            while end - line > 1:
                run_four(line, end - 1, x, length, inner, identity, before, width, out)
                line += 4
        for rest in range(line, end):
            run_one(rest, x, length, inner, identity, before, width, out)

    def whole(i, group, lines, x, length, inner, identity, before, width, out):
        if inner <= 0:  # never; so dividing cannot raise
            return
        first, end = i * group, min((i + 1) * group, lines)
        if inner == 1:  # which the compiler then knows
            run_lines(first, end, x, length, 1, identity, before, width, out)
        else:
            run_lines(first, end, x, length, inner, identity, before, width, out)

    def offsets(i, blocks, identity, parts):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            part = parts[k]
            parts[k] = total
            total = combine(total, part)

    def totals(i, blocks, x, length, parts, before, width, out):
        groups = (blocks + 3) // 4
        row, first = i // groups, 4 * (i % groups)
        start = row * width + (width - length)
        if width > length and first == 0:
            out[start - 1] = parts[row * blocks]
        lo = first * BLOCK
        if lo + 4 * BLOCK <= length:  # four sums at once: each waits for its last one
            near, far = row * length + lo, start + lo
            a, b = x[near : near + BLOCK], x[near + BLOCK : near + 2 * BLOCK]
            c, d = x[near + 2 * BLOCK : near + 3 * BLOCK], x[near + 3 * BLOCK : near + 4 * BLOCK]
            to_a, to_b = out[far : far + BLOCK], out[far + BLOCK : far + 2 * BLOCK]
            to_c, to_d = out[far + 2 * BLOCK : far + 3 * BLOCK], out[far + 3 * BLOCK : far + 4 * BLOCK]
            known = row * blocks + first
            s, t, u, v = parts[known], parts[known + 1], parts[known + 2], parts[known + 3]
            for k in range(BLOCK):
                s_on, t_on = combine(s, load(a[k])), combine(t, load(b[k]))
                u_on, v_on = combine(u, load(c[k])), combine(v, load(d[k]))
                to_a[k], to_b[k] = s if before else s_on, t if before else t_on
                to_c[k], to_d[k] = u if before else u_on, v if before else v_on
                s, t, u, v = s_on, t_on, u_on, v_on
        else:
            for block in range(first, min(first + 4, blocks)):
                total = parts[row * blocks + block]
                for k in range(block * BLOCK, min((block + 1) * BLOCK, length)):
                    after = combine(total, load(x[row * length + k]))
                    out[start + k] = total if before else after
                    total = after

    first, second, third = (
        named_kernel(name, body, fastmath={"reassoc", "contract"}, uniform=True) for body in (whole, offsets, totals)
    )
    add_scan_teams(second, third, load, combine, identity)
    return first, second, third


def make_columns(name: str, load: Plain, combine: Plain) -> aiodev.Kernel:
    """Running totals down columns, strips of which are run through side by side, row after row.

    (i, strips, x, identity, before, totals, out): of strip ``i % strips`` of matrix ``i // strips``; row ``i`` of ``totals`` is
    room for its totals. They are written before each element or after it; the result may have a first row more than ``x``.
    """

    def begin(totals, identity):
        for k in range(totals.size):
            totals[k] = identity

    def go_on(totals, source):
        for k in range(source.size):
            totals[k] = combine(totals[k], load(source[k]))

    def write(totals, target):
        for k in range(target.size):
            target[k] = totals[k]

    def write_and_go_on(totals, source, target):
        for k in range(target.size):  # which may be the source
            total = totals[k]
            totals[k] = combine(total, load(source[k]))
            target[k] = total

    def columns(i, strips, x, identity, before, totals, out):
        matrix, lo = i // strips, i % strips * STRIP
        hi = min(lo + STRIP, out.shape[2])
        mine = totals[i, : hi - lo]
        begin(mine, identity)
        more = out.shape[1] - x.shape[1]
        if more > 0:
            write(mine, out[matrix, 0, lo:hi])
        for row in range(x.shape[1]):
            source, target = x[matrix, row, lo:hi], out[matrix, row + more, lo:hi]
            if before:
                write_and_go_on(mine, source, target)
            else:
                go_on(mine, source)
                write(mine, target)

    return named_kernel(name, columns, uniform=True)
