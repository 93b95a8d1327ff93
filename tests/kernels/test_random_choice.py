"""Permutations, choices and categories: what they hold, and that every outcome is as likely as it should be."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from selection import examples

import aiodev
from aiodev.kernels import random
from aiodev.kernels.random import choices
from aiodev.kernels.random.permutations import permute

#: A test at a fixed seed fails if what it saw is less likely than this; so it is no matter of luck from run to run.
SIGNIFICANCE = 1e-3


def generator(seed: int = 5) -> aiodev.Generator:
    """One for the CPU."""
    return aiodev.Generator("cpu").manual_seed(seed)


def host(values: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(values), device="cpu")


def check_counts(found: Any, expected: Any) -> None:
    """A chi-square test of counts."""
    assert stats.chisquare(np.asarray(found), expected).pvalue > SIGNIFICANCE


# Permutations


@given(st.integers(0, 20_000), st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=examples(25))
def test_a_permutation_has_every_number_once(n: int, seed: int) -> None:
    """Of one bucket or several; the same for the same seed."""
    found = random.permutation(n, generator=generator(seed)).numpy_blocking()
    assert found.dtype == np.int64
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    np.testing.assert_array_equal(found, random.permutation(n, generator=generator(seed)).numpy_blocking())


def test_every_order_is_equally_likely() -> None:
    """All 24 orders of four numbers, in 9,600 permutations."""
    orders = {order: number for number, order in enumerate(itertools.permutations(range(4)))}
    g = generator()
    rows = [permute(4, g) for _ in range(9600)]
    found = [orders[tuple(row.numpy_blocking().tolist())] for row in rows]
    check_counts(np.bincount(found, minlength=24), np.full(24, 400))


def test_buckets_leave_no_trace() -> None:
    """In a permutation of many buckets, where a number goes has nothing to do with where it was, nor have neighbours."""
    n = 200_000
    found = random.permutation(n, generator=generator()).numpy_blocking()
    cells = np.histogram2d(np.arange(n), found, bins=20)[0]
    check_counts(cells.ravel(), np.full(400, n / 400))
    for lag in (1, 2, 64):
        correlation = np.corrcoef(found[:-lag], found[lag:])[0, 1]
        assert abs(correlation) < 3.3 / np.sqrt(n)
    # Fixed points: as many as a Poisson number of mean 1.
    assert stats.poisson(1).sf((found == np.arange(n)).sum()) > SIGNIFICANCE


@pytest.mark.parametrize("dtype", ["?", "i2", "f2", "f4", "c16"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (6, 2, 2), (0, 3), (5, 0)])
def test_rows_of_an_array_are_permuted(shape: tuple[int, ...], dtype: str) -> None:
    """A copy of them, by the permutation of that many numbers; ``shuffle`` does it in place."""
    rows = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    order = random.permutation(shape[0], generator=generator()).numpy_blocking()
    x = host(rows)
    np.testing.assert_array_equal(random.permutation(x, generator=generator()).numpy_blocking(), rows[order])
    np.testing.assert_array_equal(x.numpy_blocking(), rows)
    assert random.shuffle(x, generator=generator()) is x
    np.testing.assert_array_equal(x.numpy_blocking(), rows[order])


def test_shuffling_along_another_axis_and_of_views() -> None:
    """What is not in the view stays."""
    rows = np.arange(48).reshape(4, 12)
    order = random.permutation(6, generator=generator()).numpy_blocking()
    x = host(rows)
    random.shuffle(x[:, ::2], -1, generator=generator())
    expected = rows.copy()
    expected[:, ::2] = rows[:, ::2][:, order]
    np.testing.assert_array_equal(x.numpy_blocking(), expected)


# Choices


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("on_device", [True, False])
def test_choices_of_numbers_and_of_rows_agree(replace: bool, weighted: bool, on_device: bool) -> None:
    """The same seed chooses the same; without replacement nothing twice."""
    p: Any = np.linspace(1, 2, 30) if weighted else None
    if weighted and on_device:
        p = host(p)
    numbers = random.choice(30, (4, 5), replace, p, generator=generator()).numpy_blocking()
    assert numbers.shape == (4, 5) and numbers.min() >= 0 and numbers.max() < 30
    assert replace or len(set(numbers.ravel().tolist())) == 20
    rows = np.arange(60.0).reshape(30, 2)
    found = random.choice(host(rows), (4, 5), replace, p, generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(found, rows[numbers])
    out = aiodev.empty((4, 5, 2), np.float64, "cpu")
    assert random.choice(host(rows), None, replace, p, generator=generator(), out=out) is out
    np.testing.assert_array_equal(out.numpy_blocking(), found)


@pytest.mark.parametrize("population", [200, 10**5, 10**12])
def test_a_small_sample_of_a_large_population(population: int) -> None:
    """Without making the population; nothing twice, everything within it, evenly."""
    g = generator()
    samples = [random.choice(population, 10, False, generator=g) for _ in range(1000)]
    found = np.stack([sample.numpy_blocking() for sample in samples])
    assert found.min() >= 0 and found.max() < population
    assert all(len(set(row)) == 10 for row in found.tolist())
    for column in found.T:
        check_counts(np.histogram(column, bins=10, range=(0, population))[0], np.full(10, 100))


def test_a_sparse_sample_is_a_shuffles_beginning() -> None:
    """Pairs of a population of 33: each of the 1,056 ordered ones is equally likely."""
    g = generator()
    samples = [random.choice(33, 2, False, generator=g) for _ in range(10_560)]
    found = np.stack([sample.numpy_blocking() for sample in samples])
    counts = np.bincount(found[:, 0] * 33 + found[:, 1], minlength=33 * 33).reshape(33, 33)
    assert counts.diagonal().sum() == 0
    check_counts(counts[~np.eye(33, dtype=bool)], np.full(1056, 10))


def test_weighted_choices_without_replacement_go_by_what_is_left() -> None:
    """Ordered pairs of four, against the product of the two choices' probabilities."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    g = generator()
    samples = [random.choice(4, 2, False, p, generator=g) for _ in range(5000)]
    found = np.stack([sample.numpy_blocking() for sample in samples])
    counts = np.bincount(found[:, 0] * 4 + found[:, 1], minlength=16).reshape(4, 4)
    expected = 5000 * p[:, None] * p / (1 - p[:, None])
    off = ~np.eye(4, dtype=bool)
    assert counts.diagonal().sum() == 0
    check_counts(counts[off], expected[off])


@pytest.mark.parametrize("count", [1, 10, 200, 700])
def test_weighted_choices_of_few_and_of_many_are_the_same(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker goes through the population for few of it, and it is sorted for many."""
    weights = np.where(np.arange(1000) % 4 == 0, 0, np.arange(1000.0))
    found = []
    for few in (0, 1 << 20):
        monkeypatch.setattr(choices, "_FEW", few)
        found.append(random.choice(1000, count, False, weights, generator=generator()).numpy_blocking())
    np.testing.assert_array_equal(*found)
    assert len(set(found[0].tolist())) == count and weights[found[0]].all()


# Categories


@pytest.mark.parametrize("on_device", [True, False])
def test_categories_come_in_proportion_to_their_weights(on_device: bool) -> None:
    """Those of weight 0 never, first, last and in between; the weights' sum does not matter."""
    weights = np.array([0, 3, 0, 0, 5, 0.5, 0], np.float32)
    g = generator()
    found = random.categorical(host(weights) if on_device else weights, 100_001, generator=g).numpy_blocking()
    assert found.dtype == np.int64
    counts = np.bincount(found, minlength=7)
    assert (counts[weights == 0] == 0).all()
    check_counts(counts[weights > 0], 100_001 * weights[weights > 0].astype(float) / 8.5)
    assert g.get_offset() == 200_004


def test_very_many_weights_are_summed_by_a_kernel() -> None:
    """The loop would feel it; the draws are the same, and the weights may change right after the call."""
    weights = np.linspace(1, 2, 100_000)
    expected = random.categorical(host(weights), 1000, generator=generator()).numpy_blocking()
    changed = weights.copy()
    found = random.categorical(changed, 1000, generator=generator())
    changed[:] = 0
    np.testing.assert_array_equal(found.numpy_blocking(), expected)
    np.testing.assert_array_equal(expected, random.choice(100_000, 1000, True, weights, generator=generator()).numpy_blocking())
    chosen = random.choice(100_000, 1000, False, weights, generator=generator()).numpy_blocking()
    assert len(set(chosen.tolist())) == 1000


def test_a_category_is_the_first_whose_running_sum_is_greater() -> None:
    """Against NumPy's search, with the same uniform numbers."""
    weights = generator(1).spawn(1)[0]
    p = random.random(1000, generator=weights).numpy_blocking()
    sums = np.cumsum(p)
    u = random.random(10_000, generator=generator()).numpy_blocking()
    expected = np.searchsorted(sums, u * sums[-1], side="right")
    np.testing.assert_array_equal(random.categorical(p, 10_000, generator=generator()).numpy_blocking(), expected)
    small = random.categorical(p, 10_000, dtype="i2", generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(small, expected)


def test_multinomial_counts_categories() -> None:
    """As many as were drawn, those of each experiment apart."""
    p = [0.2, 0, 0.5, 0.3]
    found = random.multinomial(1001, p, (20, 3), generator=generator()).numpy_blocking()
    assert found.shape == (20, 3, 4)
    assert (found.sum(-1) == 1001).all()
    assert (found[..., 1] == 0).all()
    check_counts(found.sum((0, 1))[[0, 2, 3]], 60 * 1001 * np.array([0.2, 0.5, 0.3]))
    drawn = random.categorical(p, 60 * 1001, generator=generator()).numpy_blocking().reshape(20, 3, 1001)
    np.testing.assert_array_equal(found, [[np.bincount(one, minlength=4) for one in row] for row in drawn])
    assert (random.multinomial(0, p, 2, device="cpu").numpy_blocking() == 0).all()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: random.categorical([0.5, -0.5], 1, device="cpu"), "expected weights of 0 or more, got -0.5"),
        (lambda: random.categorical([0.5, float("nan")], 1, device="cpu"), "got nan"),
        (lambda: random.categorical([0, 0], 1, device="cpu"), "positive, finite sum"),
        (lambda: random.categorical([], 1, device="cpu"), "one dimension"),
        (lambda: random.categorical([[1]], 1, device="cpu"), "one dimension"),
        (lambda: random.multinomial(-1, [1], device="cpu"), "n: expected 0 or more"),
        (lambda: random.choice(0, 1, device="cpu"), "nothing to choose from"),
        (lambda: random.choice(-1, device="cpu"), "nothing to choose from"),
        (lambda: random.choice(3, 4, False, device="cpu"), "4 of 3 cannot be chosen"),
        (lambda: random.choice(3, 1, p=[1, 1], device="cpu"), "expected 3 weights"),
        (lambda: random.choice(3, 3, False, [1, 0, 1], device="cpu"), "only 2 weights"),
        (lambda: random.permutation(-1, device="cpu"), "0 or more"),
        (lambda: random.permutation(aiodev.zeros((), device="cpu")), "no dimensions"),
        (lambda: random.shuffle(aiodev.zeros((2, 2), device="cpu"), 2), "axis 2"),
    ],
)
def test_wrong_arguments_name_themselves(draw: Any, message: str) -> None:
    """At the call."""
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize("weights", [[1.0, -1.0, 3.0], [np.nan, 1.0, 1.0], [0.0, 0.0, 0.0], [np.inf, 1.0, 1.0]])
def test_wrong_weights_on_the_device_arrive_where_the_draw_is_waited_for(weights: list[float]) -> None:
    """As the kernel's own ValueError."""
    with aiodev.Stream("cpu"):
        found = random.categorical(host(weights), 5, generator=generator())
        with pytest.raises(aiodev.KernelError) as caught:
            found.numpy_blocking()
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, ValueError):
        error = error.__cause__
    assert "weight" in str(error)


def test_too_few_weights_on_the_device() -> None:
    """Without replacement, more than there are of weight."""
    with aiodev.Stream("cpu"):
        found = random.choice(3, 3, False, host([1.0, 0.0, 1.0]), generator=generator())
        with pytest.raises(aiodev.KernelError, match="fewer elements have a weight"):
            found.numpy_blocking()
