"""Kernels at the names of a module, for graphs that other processes load."""

from __future__ import annotations

import aiodev


@aiodev.kernel
def scale(i, factor, x):
    x[i] = factor[()] * x[i] + 1


@aiodev.kernel
def divide(i, by, x):
    x[i] = x[i] / by[()]


@aiodev.kernel
def add_to(i, x, out):
    out[i] += x[i]


@aiodev.kernel
def end_round(i, count, rounds, goes_on):
    count[i] += 1
    goes_on[i] = count[i] < rounds[()]


@aiodev.kernel
def write_row(i, count, x, out):
    out[count[0], i] = x[i] + count[0]


@aiodev.kernel
def refuse_at(i, at, x):
    if x[i] == at[()]:
        raise ValueError("refused")
