"""Bodies that loop, compiled for several indices at once: which ones are, and that each index computes what it would alone."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings, strategies as st
from kernel_entry import Entry, descriptor, needs_compiler
from loop_programs import bodies
from numba.core import ir
from numba.core.compiler import run_frontend
from selection import examples

from aiodev._backends.cpu.compile import compiler
from aiodev._backends.cpu.compile.loop_nest import LoopNest
from aiodev._backends.cpu.compile.tiles import Tile, _Tiling, tile_of
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._core.errors import KernelError

Body = Callable[..., None]
ROUNDS = 5


# Bodies that are tiled: of x, of the launch's shape; y, square; and out, of the launch's shape.


def product(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(y.shape[0]):
        total += x[i, k % x.shape[1]] * y[k, j % y.shape[1]]
    out[i, j] = total


def branching(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """Branches before, in and after the loop; one goes on with the next round."""
    total = x[i, j] if x[i, j] > 0 else 1.0
    for k in range(y.shape[0]):
        if y[k, 0] < 0:
            continue
        if x[i, j] > y[k, 0]:
            total += y[k, 0]
        else:
            total -= i + k
    if total > 3:
        out[i, j] = total
    elif j % 2:
        out[i, j] = -total


def nested(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """Loops in a loop, with something before and after, and a loop behind."""
    rows, columns = y.shape
    total, most = 0.0, x[i, j]
    for a in range(rows):
        part = x[i, j] * a
        for b in range(a, columns, 2):
            part += y[a, b]
        most = max(most, part)
        total += part
    for c in range(rows - 1, -1, -1):
        total = total / 2 + y[c, 0]
    out[i, j] = total + most


def rebinding(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """The loop's number, an argument, and the index itself are given other values."""
    row, column = i, j
    value = x[i, j]
    for k in range(y.shape[0]):
        k = k // 2 + 1
        value += y[k % y.shape[0], 0]
        i += k
        last = value
    j = j + i
    out[row, column] = last - j


def in_place(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """Writes its element, reads it again, and has another one of its own from then on."""
    total = 0.0
    for k in range(y.shape[0]):
        total += out[i, j] * y[k, k]
    out[i, j] = total
    out[i, j] += out[i, j] + x[i, j]


def counts(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """Integers and truths; a length that an element says, and what a function of Python's makes of the index."""
    found = 0
    for k in range(int(y[0, 0]) % 7):
        found += x[i, j] > y[k % y.shape[0], 0]
    out[i, j] = found + _halved(j)


def _halved(value: int) -> int:
    return value // 2


def never(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = x[i, j]
    for k in range(3, y.shape[0] - 20):
        total += k
    out[i, j] = total


def last_found(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """What a branch assigns differs between indices, though it is assigned at one place only."""
    for k in range(y.shape[0]):
        if k == 0 or y[k, 0] > x[i, j]:
            last = k
    place = last
    weight = place + 1
    total = 0.0
    for q in range(y.shape[0]):
        total += weight * y[q, 1] + place
    out[i, j] = total + last


def largest_found(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """What is read where a branch says differs, too."""
    best = -100.0
    for k in range(y.shape[0]):
        value = y[k, 0] * x[i, j]
        if value > best:
            best = value
            at = k
    total = 0.0
    for q in range(y.shape[1]):
        total += y[at, q]
    out[i, j] = total


def gone_on(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """What is not assigned in all rounds differs."""
    for k in range(y.shape[0]):
        if k > (i + j) % 3:
            continue
        last = k
    total = 0.0
    for q in range(y.shape[1]):
        total += y[last, q]
    out[i, j] = total


FACTORS = np.arange(3.0)


def own_array(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """An array that an index has made is its own, though it was made of what is the same for all."""
    parts, factors = np.abs(y[0]), np.abs(FACTORS)
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0] * x[i, j] * FACTORS[k % 3]
    parts[0] += total
    factors[1] += total
    out[i, j] = parts[0] + factors[1]


def own_row(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """An array that is made of what a row has in common is each index's own."""
    row = y[i % y.shape[0]] * 2.0
    total = 0.0
    for k in range(y.shape[1]):
        total = total + row[k]
    row[0] = row[0] + 1.0
    out[i, j] = row[0] + total


def computed_for_nothing(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """A loop that the compiler leaves out, and a product that it may reorder."""
    t = x[i, j]
    for k in range(y.shape[0]):
        v = t * k
    out[i, j] = t * y[1, 1] * t * t * y[1, 1] + 1 + 0 * v


PLANES: list[Body] = [product, branching, nested, rebinding, in_place, counts, never, last_found, largest_found, gone_on]
PLANES += [own_array, own_row, computed_for_nothing]


def on_line(body: Body) -> Body:
    """The body for a launch of one dimension, on the same arrays."""
    namespace: dict[str, Any] = {"body": body}
    exec("def line(i, x, y, out):\n    body(0, i, x, y, out)\n", namespace)
    line: Body = namespace["line"]
    return line


def power(i: int, x: Any, y: Any, out: Any) -> None:
    total = 1.0
    for k in range(y.shape[0]):
        total = total * x[i] + y[k, 0]
    out[i] = total


def windows(i: int, j: int, k: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for a in range(y.shape[0]):
        for b in range(y.shape[1]):
            total += x[i, (j + a) % x.shape[1], (k + b) % x.shape[2]] * y[a, b]
    out[i, j, k] = total


# Bodies that are not


def short(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(3):
        total += y[k, 0]
    out[i, j] = total


def straight(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    out[i, j] = x[i, j] + y[0, 0]


def own_range(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(j):
        total += y[k % 2, 0]
    out[i, j] = total


def left_early(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0]
        if total > x[i, j]:
            break
    out[i, j] = total


def returned_early(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    if x[i, j] > 0:
        return
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0]
    out[i, j] = total


def skipped(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    if x[i, j] > 0:
        for k in range(y.shape[0]):
            total += y[k, 0]
    out[i, j] = total


def while_loop(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total, k = 0.0, 0
    while k < y.shape[0]:
        total += y[k, 0]
        k += 1
    out[i, j] = total


def elements(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for value in y[0]:
        total += value
    out[i, j] = total


def written_in_loop(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    for k in range(y.shape[0]):
        out[i, j] += y[k, 0]


def written_before(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    out[i, j] = 0
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0]
    out[i, j] += total


def passed_before(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    _clear(out, i, j)
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0]
    out[i, j] += total


def _clear(out: Any, i: int, j: int) -> None:
    out[i, j] = 0


def through_view(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    part = out[i, j : j + 1]
    part += 1
    total = 0.0
    for k in range(y.shape[0]):
        total += y[k, 0]
    out[i, j] += total


def costly(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(y.shape[0]):
        total += math.exp(y[k, 0])
    out[i, j] = total


def range_of_a_branch(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    for k in range(y.shape[0]):
        if k == 0 or y[k, 0] > x[i, j]:
            last = k
    rounds = last
    total = 0.0
    for q in range(rounds):
        total += y[q, 1]
    out[i, j] = total


UNTILED: list[Body] = [range_of_a_branch, short, straight, own_range, left_early, returned_early, skipped, while_loop, elements]
UNTILED += [written_in_loop, written_before, passed_before, through_view, costly]


def operands(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(len(shape))
    return rng.normal(size=shape), rng.normal(size=(ROUNDS, ROUNDS)) * 3, rng.normal(size=shape)


def descriptors(ndim: int) -> tuple[str, ...]:
    return tuple(map(descriptor, operands((2,) * ndim)))


def by_itself(body: Body, shape: tuple[int, ...], x: Any, y: Any, out: Any) -> Any:
    """What each index computes, one after the other, by Python."""
    result = out.copy()
    for index in np.ndindex(shape):
        body(*index, x, y, result)
    return result


@pytest.fixture
def untiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled for more than one index at once."""
    monkeypatch.setattr(compiler, "tile_of", lambda *_: None)
    yield


@pytest.mark.parametrize("body", PLANES)
def test_loops_that_all_indices_go_through_as_often_are_tiled(body: Body) -> None:
    """With branches in them and around them, one in another, and one behind another."""
    assert tile_of(body, 2, parse_arguments(2, descriptors(2))) == Tile(4, 2)


@pytest.mark.parametrize("body", UNTILED)
def test_other_bodies_are_not(body: Body) -> None:
    """What has a range of its own, leaves early, or writes or calls what may write before its last loop is over."""
    assert tile_of(body, 2, parse_arguments(2, descriptors(2))) is None


def test_tiles_by_dimensions() -> None:
    """Lines are cut into fours; of three dimensions the last two make tiles."""
    assert tile_of(power, 1, parse_arguments(1, descriptors(1))) == Tile(1, 4)
    assert tile_of(windows, 3, parse_arguments(3, descriptors(3))) == Tile(4, 2)


SHAPES = [(8, 8), (9, 9), (4, 17), (3, 40), (70, 1), (1, 70), (21, 7), (5, 12), (7, 10), (64, 2)]


@functools.cache
def entry_of(body: Body, ndim: int, fastmath: bool = False) -> Entry:
    """A body compiled once, for launches of any shape."""
    shape = (2,) * ndim
    return Entry(body, shape, *operands(shape), fastmath=fastmath)


@pytest.mark.parametrize("body", PLANES)
def test_each_index_has_what_it_would_have_by_itself(body: Body) -> None:
    """To the bit, for shapes that tiles fill and that they do not."""
    for shape in SHAPES:
        x, y, out = operands(shape)
        expected = by_itself(body, shape, x, y, out)
        entry_of(body, 2)(x, y, out, shape=shape)
        assert (out == expected).all()


@pytest.mark.parametrize(("body", "shape"), [(power, (67,)), (power, (64,)), (windows, (3, 5, 7)), (windows, (2, 9, 4))])
def test_lines_and_volumes(body: Body, shape: tuple[int, ...]) -> None:
    """As planes; a launch of too few indices for tiles, too."""
    for part in (shape, (*shape[:-1], 2)):
        x, y, out = operands(part)
        expected = by_itself(body, part, x, y, out)
        entry_of(body, len(part))(x, y, out, shape=part)
        assert (out == expected).all()


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 0)])
def test_empty_launches(shape: tuple[int, int]) -> None:
    """Have nothing to run."""
    x, y, out = operands(shape)
    entry_of(product, 2)(x, y, out, shape=shape)


@pytest.mark.parametrize("fastmath", [False, True])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_launch_may_be_cut_anywhere(fastmath: bool, data: st.DataObject) -> None:
    """The pieces, in any order, give what the whole gives, to the bit: even where the compiler may reorder sums."""
    body: Body = data.draw(st.sampled_from([product, nested, in_place, computed_for_nothing]))
    shape = data.draw(st.sampled_from(SHAPES))
    x, y, out = operands(shape)
    entry = entry_of(body, 2, fastmath)
    size = out.size
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=12)))
    pieces = data.draw(st.permutations(list(zip([0, *cuts], [*cuts, size], strict=True))))
    whole = out.copy()
    entry(x, y, whole, shape=shape)
    for lo, hi in pieces:
        entry(x, y, out, lo=lo, hi=hi, shape=shape)
    assert (out == whole).all()


@needs_compiler
@pytest.mark.usefixtures("untiled")
def test_without_tiles_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """For single precision, too, which Python does not compute in."""
    x, y, out = (array.astype("f4") for array in operands((13, 11)))
    plain, tiled = out.copy(), out.copy()
    Entry(nested, (13, 11), x, y, out)(x, y, plain)
    monkeypatch.undo()
    Entry(nested, (13, 11), x, y, out)(x, y, tiled)
    assert (plain == tiled).all()


def test_in_place_rows() -> None:
    """The result may be an input, where no index reads what another writes: a column of what is summed by rows."""

    def sums(i: int, x: Any, y: Any, out: Any) -> None:
        total = 0.0
        for k in range(x.shape[1]):
            total += x[i, k]
        out[i] = total

    x = np.random.default_rng(0).normal(size=(101, 6))
    expected = np.array([sum(row) for row in x.tolist()])
    y, column = np.zeros((1, 1)), x[:, 2]
    Entry(sums, 101, x, y, column)(x, y, column)
    assert (x[:, 2] == expected).all()


@needs_compiler
def test_a_failure_is_an_index_s() -> None:
    """What one index of a tile raises is what the launch raises."""

    def quotients(i: int, x: Any, y: Any, out: Any) -> None:
        total = 0
        for k in range(y.shape[0]):
            total += y[k] // x[i]
        out[i] = total

    x, y, out = np.arange(100) + 1, np.arange(5), np.zeros(100, int)
    entry = Entry(quotients, 100, x, y, out)
    entry(x, y, out)
    assert (out == (y[:, None] // x).sum(0)).all()
    x[42] = 0
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        entry(x, y, out)


@needs_compiler
def test_an_index_out_of_bounds_is_found() -> None:
    """Where that is asked for, nothing is tiled."""

    def ahead(i: int, x: Any, out: Any) -> None:
        total = 0.0
        for k in range(x.shape[0]):
            total += x[i + k]
        out[i] = total

    x, out = np.zeros(100), np.zeros(100)
    with pytest.raises(KernelError, match="IndexError"):
        Entry(ahead, 100, x, out, boundscheck=True)(x, out)


def dense(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    total = 0.0
    for k in range(x.shape[1]):
        total += x[i, k] * y[j, k]
    out[i, j] = total


def test_what_indices_share_is_computed_once() -> None:
    """A tile of four rows by two columns loads four elements and two in a round, and has eight sums."""
    arguments = parse_arguments(2, descriptors(2))
    code = run_frontend(dense)
    _Tiling(code, LoopNest(code, 2, arguments), Tile(4, 2), 2).apply()
    loads: Counter[str] = Counter()
    for block in code.blocks.values():
        loads.update(one.value.name for one in block.find_exprs("getitem"))
        loads["sums"] += sum(1 for _ in block.find_exprs("inplace_binop"))
        loads["out"] += sum(1 for _ in block.find_insts(ir.SetItem))
    assert (loads["x"], loads["y"], loads["sums"], loads["out"]) == (4, 2, 8, 8)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(source=bodies(), n=st.integers(0, 6), shape=st.sampled_from([(9, 9), (5, 13), (33, 2)]))
def test_bodies_at_random(source: str, n: int, shape: tuple[int, int]) -> None:
    """Each index has what Python makes of it, whether they are tiled or not."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<body>", "exec"), namespace)
    body, rng = namespace["body"], np.random.default_rng(n)
    x, y, out = rng.normal(size=shape), rng.normal(size=(5, 5)), np.zeros(shape)
    expected = out.copy()
    with np.errstate(all="ignore"):
        for index in np.ndindex(shape):
            body(*index, x, y, n, expected)
    values = (x, y, np.int64(n), out)
    Entry(body, shape, *values)(*values)
    assert np.array_equal(out, expected, equal_nan=True)
    event("tiled" if tile_of(body, 2, parse_arguments(2, tuple(map(descriptor, values)))) else "not tiled")
