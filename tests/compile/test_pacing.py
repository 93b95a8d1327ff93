"""Which parameters say how long an index of a body takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev._backends.cpu.structs import Entry
from aiodev._kernel.analysis.pacing import paced_by

ROUNDS, TABLE, ARRAY = 16, (1, 2, 3), np.arange(16.0)


def constant(i, x, out):
    for k in range(ROUNDS):
        out[i] += x[i] * k


def scalar(i, n, x, out):
    for _ in range(n):
        out[i] += x[i]


def lengths(i, rows, weights, out):
    total = 0.0
    for k in range(1, weights.shape[0]):
        for j in range(len(rows)):
            total += rows[j] * weights[k]
    out[i] = total


def derived(i, n, x, out):
    half = max(1, n // 2)
    last = half + 1
    for k in range(half, last * 2):
        for j in range(k):
            out[i] += x[j]


def through_math(i, n, out):
    for k in range(int(math.sqrt(n))):
        out[i] += k


def through_an_array(i, n, x, out):
    for k in range(n):
        out[i] += x[i] * ARRAY[k]


def branches(i, n, x, out):
    for k in range(n):
        if x[i] > k:
            out[i] = x[i]
        elif n > 3:
            out[i] = k


def early(i, n, x, out):
    if n < 3:
        return
    for k in range(x.size):
        if k > n:
            break
        out[i] += x[k]


def updated(i, n, out):
    n = n + 1
    n *= 2
    for k in range(n):
        out[i] += k


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (constant, ""),
        (scalar, "n"),
        (lengths, "rows weights"),
        (derived, "n"),
        (through_math, "n"),
        (through_an_array, "n"),
        (branches, "n"),
        (early, "n x"),
        (updated, "n"),
    ],
)
def test_what_loops_go_by(body: Callable[..., None], names: str) -> None:
    """Scalars and lengths that bounds are made of, and nothing else that the body uses."""
    assert paced_by(body, 1) == frozenset(names.split())


def until(i, x):
    while x[i] > 1:
        x[i] /= 2


def triangle(i, x):
    for j in range(i):
        x[i] += x[j]


def element(i, counts, x):
    for _ in range(counts[i]):
        x[i] += 1


def of_an_element(i, counts, x):
    n = 3
    if counts[i] > 0:
        n = 1000
    for _ in range(n):
        x[i] += 1


def in_a_branch(i, n, x):
    if x[i] > 0:
        for _ in range(n):
            x[i] += 1


def left(i, n, x):
    for _ in range(n):
        if x[i] > 10:
            break
        x[i] += 1


def returned(i, n, x):
    if x[i] > 10:
        return
    for _ in range(n):
        x[i] += 1


def passed_on(i, n, x):
    m = n
    for _ in range(m):
        m = x[i]
        for _ in range(m):
            x[i] += 1


def over_elements(i, x, out):
    for value in x:
        out[i] += value


def part(i, n, x, out):
    for _ in range(3):
        out[i] += x[:n].sum()


def calling(i, n, x):
    for _ in range(3):
        scalar(i, n, x, x)


def from_a_table(i, x):
    for _ in range(TABLE[i]):
        x[i] += 1


@pytest.mark.parametrize(
    "body",
    [until, triangle, element, of_an_element, in_a_branch, left, returned, passed_on, over_elements, part, calling,
     from_a_table],
)  # fmt: skip
def test_what_depends_on_elements_or_the_index_is_not_known(body: Callable[..., None]) -> None:
    """One index may then take a thousand times as long as another one, or as the same did in the last launch."""
    assert paced_by(body, 1) is None


def test_a_body_without_source_is_not_known() -> None:
    names: dict[str, Any] = {}
    exec("def body(i, n, x):\n    for _ in range(n):\n        x[i] += 1\n", names)
    assert paced_by(names["body"], 1) is None


@aiodev.kernel
def smooth(i, x, n, factor, weights, out):
    for k in range(n):
        for j in range(weights.shape[0]):
            out[i] += factor * x[k] * weights[j]


async def test_a_kernels_entry_knows_the_words_that_count() -> None:
    """Of the argument block: shape, scalars, then each array's address and lengths."""
    await aiodev.init("cpu")
    x, weights, out = (aiodev.ones(size, np.float64, "cpu") for size in (8, 3, 8))
    await smooth[8](x, 2, 0.5, weights, out)
    (specialization,) = smooth._specializations.all()
    entry = Entry(specialization.loading.entry)
    # words: 0 the shape, 1 n, 2 factor, 3 and 4 x, 5 and 6 weights, 7 and 8 out
    assert entry.pacing == 1 << 1 | 1 << 6 and not entry.uniform and not entry.irregular
