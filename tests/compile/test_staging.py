"""Results that are put together in blocks: which ones are, and that they are what they would be without."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from kernel_entry import Entry, descriptor, needs_compiler, run
from selection import examples

from aiodev._backends.cpu.compile import staging
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._core.errors import KernelError


def add(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] + y[i]


def add_rows(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    out[i, j] = x[i, j] + y[j]


def either(i: int, x: Any, out: Any) -> None:
    if x[i] > 0:
        out[i] = 1
    else:
        out[i] = -1


def divide(i: int, j: int, x: Any, y: Any, quotient: Any, whole: Any) -> None:
    if y[i, j] == 0:
        raise ZeroDivisionError("no quotient")
    quotient[i, j] = x[i, j] / y[i, j]
    whole[i, j] = x[i, j] // y[i, j]


def sometimes(i: int, x: Any, out: Any) -> None:
    if x[i] > 0:
        out[i] = 1


def early(i: int, x: Any, out: Any) -> None:
    if x[i] > 0:
        return
    out[i] = 1


def accumulated(i: int, x: Any, out: Any) -> None:
    out[i] += x[i]


def shifted(i: int, x: Any, out: Any) -> None:
    out[i + 1] = x[i]


def reassigned(i: int, x: Any, out: Any) -> None:
    if x[i] > 0:
        i = 0
    out[i] = x[i]


def read_elsewhere(i: int, x: Any, out: Any) -> None:
    out[i] = x[i]
    x[i] = out[0]


def passed_on(i: int, x: Any, out: Any) -> None:
    out[i] = x[i]
    _store(out, i)


def _store(out: Any, i: int) -> None:
    out[i] = 3


def sized(i: int, x: Any, out: Any) -> None:
    out[i] = x[i] + out.shape[0]


def transposed(i: int, j: int, x: Any, out: Any) -> None:
    out[j, i] = x[i, j]


def flagged(i: int, x: Any, out: Any) -> None:
    out[i] = 0
    if x[i] > 0:
        out[i] = 1


def repeated(i: int, x: Any, out: Any) -> None:
    out[i] = x[i] + 1
    out[i] = x[i] + 1


def from_view(i: int, x: Any, out: Any) -> None:
    part = x[i : i + 1]
    out[i] = 4
    out[i] = part[0] + 1


def in_rounds(i: int, x: Any, out: Any) -> None:
    k = 0
    while True:
        out[i] = k
        k += 1
        if x[i] < k:
            return


def both(i: int, x: Any, moved: Any, out: Any) -> None:
    moved[i] = x[i] + 1
    out[i] = x[i]


def once(i: int, x: Any, moved: Any, out: Any) -> None:
    value, last, total = x[i], x[x.shape[0] - 1], 0
    for k in range(3):
        total += x[k]
    for k in range(2):
        total -= x[k]
    moved[i] = value + 1
    out[i] = value + last + total


def through_view(i: int, x: Any, out: Any) -> None:
    part = x[i : i + 1]
    part[0] = 2
    out[i] = 3


def added_to_view(i: int, x: Any, out: Any) -> None:
    part = x[i : i + 1]
    part += 2
    out[i] = 3


def moved(i: int, x: Any, y: Any, out: Any) -> None:
    x[i] += y[i]
    out[i] = 3


def planes(i: int, j: int, x: Any, out: Any) -> None:
    out[i, j] = 0
    if x[i, j] > 0:
        out[i, j] = 1


def called(i: int, x: Any, out: Any) -> None:
    out[i] = 0
    out[i] = _first(x, i)


def _first(x: Any, i: int) -> Any:
    return x[i] + 1


@pytest.mark.parametrize(
    ("function", "ndim", "expected", "late", "written"),
    [
        (add, 1, (2,), (), ()),
        (add_rows, 2, (2,), (), ()),
        (either, 1, (1,), (), ()),
        (divide, 2, (2, 3), (2,), ()),
        (flagged, 1, (1,), (1,), ()),
        (repeated, 1, (1,), (1,), ()),
        (from_view, 1, (1,), (1,), ()),
        (in_rounds, 1, (1,), (1,), ()),
        (both, 1, (1, 2), (1,), ()),
        (once, 1, (1, 2), (), ()),
        (planes, 2, (1,), (1,), ()),
        (called, 1, (1,), (1,), (0,)),
        (through_view, 1, (1,), (), (0,)),
        (added_to_view, 1, (1,), (), (0,)),
        (moved, 1, (2,), (), (0,)),
        (sometimes, 1, (), (), (1,)),
        (early, 1, (), (), (1,)),
        (accumulated, 1, (), (), (1,)),
        (shifted, 1, (), (), (1,)),
        (reassigned, 1, (), (), (1,)),
        (read_elsewhere, 1, (), (), (0, 1)),
        (passed_on, 1, (), (), (0, 1)),
        (sized, 1, (), (), (1,)),
        (transposed, 2, (), (), (1,)),
    ],
)
def test_what_is_only_written_at_its_own_index_is_staged(
    function: Any, ndim: int, expected: tuple[int, ...], late: tuple[int, ...], written: tuple[int, ...]
) -> None:
    """Nothing else: not what one way through the body leaves alone, nor what is read, nor another element.

    It is known where something is read behind the write, and what else is written, or may be.
    """
    count = function.__code__.co_argcount - ndim
    arguments = parse_arguments(ndim, (f"A{ndim}f4C",) * count)
    staged = staging.staged_arguments(function, ndim, arguments)
    assert staged == (expected, frozenset(late), frozenset(written))


def test_arrays_that_may_only_be_read_are_not_staged() -> None:
    """Nor are arrays of other dimensions than the launch."""
    assert staging.staged_arguments(add, 1, parse_arguments(1, ("A1f4C", "A1f4C", "A1f4Cr"))) == ((), set(), set())
    assert staging.staged_arguments(add, 1, parse_arguments(1, ("A1f4C", "A1f4C", "A2f4C"))) == ((), set(), {2})


@needs_compiler
def test_a_block_goes_past_the_caches() -> None:
    """The compiled entry has stores that do."""
    arguments = parse_arguments(1, ("A1f4C",) * 3)
    staged = staging.Staged((2,), frozenset(), frozenset())
    assert "!nontemporal" in staging.staging_module("outer", "inner", 1, arguments, staged)


@pytest.fixture(params=[None, 1], ids=["in caches", "past caches"])
def streaming(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own size from which results go past its caches, or none at all."""
    if request.param:
        monkeypatch.setattr(staging, "streaming_bytes", lambda: request.param)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("code", ["b1", "i2", "f4", "f8", "c16"])
def test_in_place(code: str) -> None:
    """Where an input is the result, for every length around a block's, and for any part of it."""
    y = np.ones(10_000, code)
    entry = Entry(add, 10_000, y, y, y)
    for lo, hi in [(0, 63), (0, 64), (1, 4097), (5, 4100), (64, 8192), (0, 10_000), (9_999, 10_000), (7, 7)]:
        x = (np.arange(10_000) % 50).astype(code)
        expected = x.copy()
        expected[lo:hi] = expected[lo:hi] + y[lo:hi]
        entry(x, y, x, lo=lo, hi=hi)
        assert (x == expected).all()


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("function", [flagged, repeated, from_view, in_rounds, both, once, called, through_view, moved])
def test_overlaps_in_which_no_index_reads_what_another_writes(function: Any) -> None:
    """Are as the body says, whichever arrays are the same one, or parts of one, where each index has its own element."""
    size = 1_001
    count = function.__code__.co_argcount - 1
    ways = [dict(zip(range(count), places, strict=True)) for places in itertools.product((0, 1), repeat=count)]
    for way in ways:
        for margins in (0, 2):
            memory = [np.arange(size + 3, dtype="f8") + 1 for _ in range(2)]
            expected = [one.copy() for one in memory]
            # parts of one array have the same elements at their indices, and are of different lengths
            arrays, models = (
                [of[way[k]][: size + (margins if k else 0)] for k in range(count)] for of in (memory, expected)
            )
            if function is once:  # its rows of elements 0 to 2 and the last one are read by all
                arrays[0], models[0] = (np.arange(size, dtype="f8") for _ in range(2))
            for i in range(size):
                function(i, *models)
            run(function, size, *arrays)
            assert all((own == model).all() for own, model in zip(arrays, models, strict=True)), (way, margins)


@pytest.mark.usefixtures("streaming")
def test_results_off_the_line() -> None:
    """A result may begin anywhere."""
    x = np.arange(5_000, dtype="f4")
    entry = Entry(add, 5_000, x, x, x)
    for offset in range(20):
        out = np.zeros(5_040, "f4")
        entry(x, x, out[offset : offset + 5_000])
        assert (out[offset : offset + 5_000] == 2 * x).all()
        assert not out[:offset].any()
        assert not out[offset + 5_000 :].any()


@pytest.mark.usefixtures("streaming")
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(1, 40), st.integers(1, 300), st.data())
def test_planes(rows: int, columns: int, data: st.DataObject) -> None:
    """Any range of a plane, which is contiguous or not, and larger than the launch or not; in place, too."""
    lo = data.draw(st.integers(0, rows * columns))
    hi = data.draw(st.integers(lo, rows * columns))
    margin = data.draw(st.integers(0, 1))
    whole = np.arange((rows + margin) * (columns + margin), dtype="f4").reshape(rows + margin, columns + margin)
    x = whole if data.draw(st.booleans()) else whole[:rows, :columns]
    y = np.arange(columns, dtype="f4")
    expected = whole.copy()
    for f in range(lo, hi):
        expected[f // columns, f % columns] += y[f % columns]
    _rows_entry(rows, columns, x, y)(x, y, x, lo=lo, hi=hi)
    assert (whole == expected).all()


def _rows_entry(rows: int, columns: int, x: Any, y: Any) -> Entry:
    """The entry for these types; compiled once."""
    key = (descriptor(x), staging.streaming_bytes())
    if key not in _entries:
        _entries[key] = Entry(add_rows, (rows, columns), x, y, x)
    entry = _entries[key]
    entry.shape = (rows, columns)
    return entry


_entries: dict[Any, Entry] = {}


@pytest.mark.usefixtures("streaming")
def test_two_results_of_different_types() -> None:
    """Each has a block of its own, for the same indices."""
    x = np.arange(6_000, dtype="f8").reshape(60, 100)
    y = np.full((60, 100), 7.0)
    quotient, whole = np.zeros((60, 100), "f8"), np.zeros((60, 100), "i2")
    run(divide, (60, 100), x, y, quotient, whole)
    assert (quotient == x / 7).all()
    assert (whole == x // 7).all()


@pytest.mark.usefixtures("streaming")
def test_a_failure_ends_it() -> None:
    """The error is the body's, and what was written before stands."""
    x = np.ones((1, 9_000))
    y = np.ones((1, 9_000))
    y[0, 8_999] = 0
    quotient, whole = np.zeros((1, 9_000)), np.zeros((1, 9_000), "i2")
    with pytest.raises(KernelError, match="no quotient"):
        run(divide, (1, 9_000), x, y, quotient, whole)
    assert (quotient[0, :8_000] == 1).all()
