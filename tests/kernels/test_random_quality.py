"""Distributions at fixed seeds: Kolmogorov–Smirnov, chi-square, serial correlation, moments.

Seeds are fixed, so a test passes always or never. Each would fail for one good generator in a thousand; none was chosen for its
outcome. Ten million numbers are drawn where that is cheap; tests that must sort them take their first million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import aiodev
from aiodev.kernels import random

pytestmark = pytest.mark.exhaustive

SEED = 20261121
MANY, MILLION = 10_000_000, 1_000_000
SIGNIFICANCE = 1e-3
#: The same for a normal statistic, two-sided.
SIGMAS = float(stats.norm.isf(SIGNIFICANCE / 2))

Numbers = np.ndarray[Any, Any]


def generator(seed: int = SEED) -> aiodev.Generator:
    """One for the CPU."""
    return aiodev.Generator("cpu").manual_seed(seed)


def draw(function: Callable[..., aiodev.Array], *args: Any, shape: int = MANY, **named: Any) -> Numbers:
    """Numbers on the host."""
    return function(*args, shape=shape, generator=generator(), **named).numpy_blocking()


def check_moments(found: Numbers, distribution: Any) -> None:
    """Mean, variance and third central moment, each as a sum of independent terms."""
    mean, variance = float(distribution.mean()), float(distribution.var())
    centred = found.astype(np.float64) - mean
    for power, expected in ((1, 0.0), (2, variance), (3, float(distribution.stats("s")) * variance**1.5)):
        terms = centred**power
        z = (terms.mean() - expected) / (terms.std() / np.sqrt(found.size))
        assert abs(z) < SIGMAS, f"moment {power}"


def check_serial(found: Numbers) -> None:
    """Correlation with what comes 1 to 8, and 64, later."""
    centred = found.astype(np.float64) - found.mean()
    scale = (centred**2).sum()
    for lag in (*range(1, 9), 64):
        correlation = (centred[:-lag] * centred[lag:]).sum() / scale
        assert abs(correlation) * np.sqrt(found.size) < SIGMAS, f"lag {lag}"


def check_cells(uniform: Numbers, cells: int = 4096) -> None:
    """A chi-square test of uniform numbers in equal cells, and of pairs of neighbours."""
    counts = np.bincount((uniform * cells).astype(np.int64), minlength=cells)
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE
    side = 64
    digits = (uniform[: uniform.size // 2 * 2] * side).astype(np.int64)
    pairs = np.bincount(digits[::2] * side + digits[1::2], minlength=side * side)
    assert stats.chisquare(pairs).pvalue > SIGNIFICANCE


def check_continuous(found: Numbers, distribution: Any) -> None:
    """All of it."""
    assert stats.kstest(found[:MILLION].astype(np.float64), distribution.cdf).pvalue > SIGNIFICANCE
    check_moments(found, distribution)
    check_serial(found)


def test_words() -> None:
    """Every bit is even, and none goes with another; bytes are even; runs of ones are as long as they should be."""
    words = draw(random.random_raw)
    bits = np.array([(words >> np.uint32(bit) & 1).sum() for bit in range(32)])
    z = (bits - MANY / 2) / np.sqrt(MANY / 4)
    assert stats.chi2.sf((z**2).sum(), 32) > SIGNIFICANCE
    sample = words[:MILLION]
    signs = np.stack([1.0 - 2.0 * (sample >> np.uint32(bit) & 1) for bit in range(32)]).astype(np.float32)
    correlations = (signs @ signs.T / np.sqrt(MILLION))[np.triu_indices(32, 1)]
    assert stats.chi2.sf((correlations.astype(np.float64) ** 2).sum(), correlations.size) > SIGNIFICANCE
    assert stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue > SIGNIFICANCE
    ones = np.bincount(np.bitwise_count(words) if hasattr(np, "bitwise_count") else _popcount(words), minlength=33)
    expected = special.comb(32, np.arange(33)) / 2.0**32 * MANY
    middle = expected > 20
    statistic = ((ones - expected) ** 2 / expected)[middle].sum()
    assert stats.chi2.sf(statistic, middle.sum() - 1) > SIGNIFICANCE


def _popcount(words: Numbers) -> Numbers:
    return np.unpackbits(words.view(np.uint8)).reshape(-1, 32).sum(1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_uniform_numbers(dtype: str) -> None:
    """In [0, 1), and between other bounds."""
    found = draw(random.random, dtype=dtype)
    assert found.min() >= 0 and found.max() < 1
    check_continuous(found, stats.uniform())
    check_cells(found.astype(np.float64))
    between = draw(random.uniform, -2, 3, shape=MILLION, dtype=dtype)
    assert between.min() >= -2 and between.max() < 3
    assert stats.kstest(between, stats.uniform(-2, 5).cdf).pvalue > SIGNIFICANCE


def test_uniform_numbers_of_16_bits() -> None:
    """All 2,048 of them."""
    found = draw(random.random, dtype="f2")
    counts = np.bincount((found.astype(np.float32) * 2048).astype(np.int64), minlength=2048)
    assert counts.size == 2048
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_normal_numbers(dtype: str) -> None:
    """Their distribution, their squares' over pairs, and their tails."""
    found = draw(random.standard_normal, dtype=dtype)
    check_continuous(found, stats.norm())
    check_cells(special.ndtr(found.astype(np.float64)))
    squares = (found[::2].astype(np.float64) ** 2 + found[1::2].astype(np.float64) ** 2)[:MILLION]
    assert stats.kstest(squares, stats.chi2(2).cdf).pvalue > SIGNIFICANCE
    for bound in (2, 3, 4, 4.5):
        expected = MANY * 2 * stats.norm.sf(bound)
        beyond = np.count_nonzero(np.abs(found) > bound)
        assert abs(beyond - expected) < SIGMAS * np.sqrt(expected) + 1, f"beyond {bound}"
    shifted = draw(random.normal, 5, 0.5, shape=MILLION, dtype=dtype)
    assert stats.kstest(shifted.astype(np.float64), stats.norm(5, 0.5).cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_exponential_numbers(dtype: str) -> None:
    """Of mean 3; never 0."""
    found = draw(random.exponential, 3, dtype=dtype)
    assert found.min() > 0
    check_continuous(found, stats.expon(scale=3))


@pytest.mark.parametrize("span", [2, 6, 100, 1000, 3 << 30, 2**32, 3 << 40, 2**64])
def test_integers(span: int) -> None:
    """Of ranges that words divide evenly into, and that they do not."""
    low = -(2**63) if span == 2**64 else -3
    found = draw(random.integers, low, low + span, shape=MILLION)
    cells = min(span, 1000)
    # (found - low) * cells // span, in floats where the product would be too large
    offsets = found.astype(np.float64) - low if span > 1000 else found - low
    cell = (offsets * (cells / span)).astype(np.int64) if span > 1000 else offsets
    assert stats.chisquare(np.bincount(np.minimum(cell, cells - 1), minlength=cells)).pvalue > SIGNIFICANCE
    check_serial(found)


@pytest.mark.parametrize("p", [0.5, 0.3, 1e-4, 1 - 1e-4])
def test_tosses(p: float) -> None:
    """As many as a binomial number."""
    found = draw(random.bernoulli, p)
    assert abs(np.count_nonzero(found) - MANY * p) < SIGMAS * np.sqrt(MANY * p * (1 - p))
    check_serial(found)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1, 2.5, 1000])
def test_gamma_numbers(alpha: float) -> None:
    """Of small and large parameters."""
    found = draw(random.gamma, alpha, 2, shape=MILLION)
    check_continuous(found, stats.gamma(alpha, scale=2))


@pytest.mark.parametrize("lam", [0.01, 1, 9.99, 10, 30.5, 1000, 1e6])
def test_poisson_numbers(lam: float) -> None:
    """Around where the methods change, and far from it."""
    found = draw(random.poisson, lam, shape=MILLION)
    distribution = stats.poisson(lam)
    check_moments(found, distribution)
    check_serial(found)
    edges = np.unique(distribution.ppf(np.linspace(0.001, 0.999, 100)))
    # Every value up to an edge, and above the one before it, is one cell.
    probabilities = np.diff(np.concatenate([[0], distribution.cdf(edges), [1]]))
    counts = np.bincount(np.searchsorted(edges, found), minlength=edges.size + 1)
    likely = probabilities * MILLION > 5
    statistic = ((counts - probabilities * MILLION) ** 2 / np.maximum(probabilities * MILLION, 1e-300))[likely].sum()
    assert stats.chi2.sf(statistic, max(1, likely.sum() - 1)) > SIGNIFICANCE


# Streams


def sequences(kind: str, count: int) -> list[aiodev.Generator]:
    """Generators that one might fear to be alike."""
    if kind == "spawned":
        return generator().spawn(count)
    if kind == "grandchildren":
        return [child.spawn(1)[0] for child in generator().spawn(count)]
    if kind == "bits":
        return [generator(1 << bit) for bit in range(count)]
    return [generator(seed) for seed in range(count)]


@pytest.mark.parametrize("kind", ["spawned", "grandchildren", "bits", "neighbours"])
def test_sequences_have_nothing_to_do_with_each_other(kind: str) -> None:
    """All pairs of 60: words in step with each other, and together as one sequence across all of them."""
    length = 40_000
    rows = [random.random(length, dtype="f4", generator=g) for g in sequences(kind, 60)]
    found = np.stack([row.numpy_blocking() for row in rows]) - np.float32(0.5)
    correlations = (found @ found.T)[np.triu_indices(60, 1)] * 12 / np.sqrt(length)
    assert stats.chi2.sf((correlations.astype(np.float64) ** 2).sum(), correlations.size) > SIGNIFICANCE
    across = np.ascontiguousarray(found.T).ravel()
    check_serial(across)
    check_cells(across.astype(np.float64) + 0.5)


def test_the_first_numbers_of_many_seeds_are_uniform() -> None:
    """20,000 children; and the words of neighbouring seeds differ in half of their bits."""
    first = [random.random_raw(2, generator=g) for g in generator().spawn(20_000)]
    words = np.stack([words.numpy_blocking() for words in first])
    assert stats.kstest(words[:, 0] / 2**32, "uniform").pvalue > SIGNIFICANCE
    near = np.stack([random.random_raw(1000, generator=generator(seed)).numpy_blocking() for seed in range(50)])
    flips = _popcount((near[1:] ^ near[:-1]).ravel())
    z = (flips.mean() - 16) / (np.sqrt(8) / np.sqrt(flips.size))
    assert abs(z) < SIGMAS
