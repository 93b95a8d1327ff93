"""``sum``, ``sum_squares`` and ``moments`` within a kernel, against exact sums: any length, any type, slices anywhere."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import lang

#: Those of 16,384 elements and more are read in larger groups.
LENGTHS = st.one_of(st.integers(0, 200), st.sampled_from([255, 256, 257, 1000, 4095, 16_383, 16_384, 20_000]))


@aiodev.kernel
def sum_parts(i: int, start: int, size: int, x: Any, out: Any) -> None:
    """The sums of ``size`` elements, each from its own row's ``start`` on."""
    out[i] = lang.sum(x[i, start : start + size])


@aiodev.kernel
def sum_parts_ahead(i: int, start: int, size: int, ahead: int, wide: bool, x: Any, out: Any) -> None:
    """The same, asking for what is read later."""
    out[i] = lang.sum(x[i, start : start + size], ahead, wide)


@aiodev.kernel
def sum_columns(i: int, x: Any, out: Any) -> None:
    """Slices with gaps."""
    out[i] = lang.sum(x[:, i])


@aiodev.kernel
def square_parts(i: int, start: int, size: int, center: Any, x: Any, out: Any) -> None:
    """The sums of the squared distances of ``size`` elements, each from its own row's ``start`` on."""
    out[i] = lang.sum_squares(x[i, start : start + size], center)


@aiodev.kernel
def square_parts_ahead(i: int, start: int, size: int, center: Any, ahead: int, x: Any, out: Any) -> None:
    """The same, asking for what is read later."""
    out[i] = lang.sum_squares(x[i, start : start + size], center, ahead)


@aiodev.kernel
def square_columns(i: int, x: Any, out: Any) -> None:
    """Slices with gaps, from 0."""
    out[i] = lang.sum_squares(x[:, i])


@aiodev.kernel
def moment_parts(i: int, start: int, size: int, x: Any, means: Any, variances: Any) -> None:
    """The moments of ``size`` elements, each from its own row's ``start`` on."""
    means[i], variances[i] = lang.moments(x[i, start : start + size])


@aiodev.kernel
def moment_parts_ahead(i: int, start: int, size: int, ahead: int, x: Any, means: Any, variances: Any) -> None:
    """The same, asking for what is read later."""
    means[i], variances[i] = lang.moments(x[i, start : start + size], ahead)


@aiodev.kernel
def moments_from(i: int, origin: Any, x: Any, means: Any, variances: Any) -> None:
    """Of rows, and from some point."""
    means[i], variances[i] = lang.moments(x[i], 4500, origin)


@aiodev.kernel
def moment_columns(i: int, x: Any, means: Any, variances: Any) -> None:
    """Slices with gaps."""
    means[i], variances[i] = lang.moments(x[:, i])


def moments_of(host: Any, start: int, size: int, ahead: int | None = None) -> tuple[Any, Any]:
    """What the kernel finds."""
    x, variances = aiodev.asarray(host, device="cpu"), aiodev.empty(len(host), "f8", "cpu")
    means = aiodev.empty(len(host), "c16" if host.dtype.kind == "c" else "f8", "cpu")
    if ahead is None:
        moment_parts[len(host)](start, size, x, means, variances).synchronize_blocking()
    else:
        moment_parts_ahead[len(host)](start, size, ahead, x, means, variances).synchronize_blocking()
    return means.numpy_blocking(), variances.numpy_blocking()


def squares_of(host: Any, start: int, size: int, center: Any, ahead: int | None = None) -> Any:
    """What the kernel finds. A Python number would become one of the array's type."""
    center = np.complex128(center) if isinstance(center, complex) else np.float64(center)
    x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(len(host), "f8", "cpu")
    if ahead is None:
        square_parts[len(host)](start, size, center, x, out).synchronize_blocking()
    else:
        square_parts_ahead[len(host)](start, size, center, ahead, x, out).synchronize_blocking()
    return out.numpy_blocking()


def sums_of(
    host: Any, start: int, size: int, dtype: str = "f8", ahead: int | None = None, wide: bool = False
) -> Any:
    """What the kernel finds."""
    x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(len(host), dtype, "cpu")
    if ahead is None:
        sum_parts[len(host)](start, size, x, out).synchronize_blocking()
    else:
        sum_parts_ahead[len(host)](start, size, ahead, wide, x, out).synchronize_blocking()
    return out.numpy_blocking()


@pytest.mark.parametrize(
    ("dtype", "ahead", "wide", "rounding"),
    [
        ("f4", None, False, 5 * 2.0**-24),
        ("f4", 3000, False, 5 * 2.0**-24),
        ("f4", 4500, True, 0.0),
        ("f8", None, False, 0.0),
        ("f8", 1500, True, 0.0),
    ],
)
@given(LENGTHS, st.integers(0, 17), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=examples(40))
def test_floats(
    dtype: str, ahead: int | None, wide: bool, rounding: float, size: int, start: int, seed: int
) -> None:
    """Within the stated error; what lies beside the slice does not count."""
    host = np.random.default_rng(seed).standard_normal((2, start + size + 5)).astype(dtype)
    host[:, :start] = host[:, start + size :] = np.nan
    for row, found in zip(host, sums_of(host, start, size, "f8", ahead, wide), strict=True):
        part = [float(value) for value in row[start : start + size]]
        limit = (rounding + max(size, 1) * 2.0**-53) * math.fsum(map(abs, part))
        assert abs(found - math.fsum(part)) <= limit


def test_equal_numbers_of_single_precision_are_added_exactly() -> None:
    """Twice and thirty-two times a float32 is one."""
    host = np.full((1, 64_000), 0.1, "f4")
    assert sums_of(host, 0, 64_000) == math.fsum(map(float, host[0]))
    assert sums_of(host, 0, 1000) == math.fsum(map(float, host[0, :1000]))


def test_each_float32_may_become_float64_first() -> None:
    """What is lost next to a large number otherwise; also where the sum of two overflows."""
    host = np.full((1, 20_000), 1.0, "f4")
    host.reshape(-1, 16)[::2] = 2.0**30
    assert sums_of(host, 0, 20_000, ahead=0, wide=True) == 10_000 * (2.0**30 + 1)
    assert sums_of(host, 0, 20_000, ahead=0, wide=False) != 10_000 * (2.0**30 + 1)
    host = np.full((1, 64), 3e38, "f4")
    assert sums_of(host, 0, 64, ahead=0, wide=True) == 64 * float(host[0, 0])


@pytest.mark.parametrize("place", [0, 63, 64, 79, 80])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_are_kept(place: int, value: float) -> None:
    """In a group of vectors, in the vectors that are left, and in the elements that are left."""
    host = np.ones((1, 83), "f4")
    host[0, place] = value
    np.testing.assert_array_equal(sums_of(host, 0, 83), [value])


@pytest.mark.parametrize("place", [0, 511, 512, 16_383, 16_384, 19_000, 19_999])
def test_nan_is_kept_in_long_slices(place: int) -> None:
    """In a large group, in one of the small ones that follow, and among the last elements."""
    host = np.ones((1, 20_000), "f4")
    host[0, place] = np.nan
    assert np.isnan(sums_of(host, 0, 20_000)).all()
    host[0, place] = 2
    assert sums_of(host, 0, 20_000) == 20_001


@pytest.mark.parametrize(
    ("dtype", "wide"), [("f2", "f8"), ("i1", "i8"), ("i8", "i8"), ("u4", "u8"), ("b1", "i8"), ("c8", "c16")]
)
def test_other_types_are_added_wide(dtype: str, wide: str) -> None:
    """As NumPy does, when told so."""
    host = np.random.default_rng(1).integers(0, 100, (3, 131)).astype(dtype)
    np.testing.assert_array_equal(sums_of(host, 1, 129, wide), host[:, 1:130].sum(axis=1, dtype=wide))


def test_slices_with_gaps() -> None:
    """One element after the other."""
    host = np.random.default_rng(1).integers(0, 100, (131, 3)).astype("f4")
    out = aiodev.empty(3, "f8", "cpu")
    sum_columns[3](aiodev.asarray(host, device="cpu"), out).synchronize_blocking()
    np.testing.assert_array_equal(out.numpy_blocking(), host.sum(axis=0, dtype="f8"))


@pytest.mark.parametrize(("dtype", "ahead"), [("f4", None), ("f4", 4500), ("f8", None), ("f8", 2000)])
@given(LENGTHS, st.integers(0, 17), st.floats(-1e3, 1e3), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=examples(40))
def test_squares_of_floats(dtype: str, ahead: int | None, size: int, start: int, center: float, seed: int) -> None:
    """Each difference, square and sum is rounded once, in double precision; what lies beside the slice does not count."""
    host = np.random.default_rng(seed).standard_normal((2, start + size + 5)).astype(dtype)
    host[:, :start] = host[:, start + size :] = np.nan
    for row, found in zip(host, squares_of(host, start, size, center, ahead), strict=True):
        exact = sum((Fraction(float(value)) - Fraction(center)) ** 2 for value in row[start : start + size])
        assert abs(Fraction(float(found)) - exact) <= (size + 3) * Fraction(2) ** -53 * exact


@pytest.mark.parametrize("value", [3e38, 1e-40])
def test_squares_that_single_precision_has_not(value: float) -> None:
    """They are float64."""
    host = np.full((1, 83), value, "f4")
    np.testing.assert_allclose(squares_of(host, 0, 83, 0.0), 83 * float(host[0, 0]) ** 2, rtol=1e-14)


@pytest.mark.parametrize("place", [0, 63, 64, 79, 80])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_squares_keep_nan_and_infinities(place: int, value: float) -> None:
    """In a pair of vectors, in the vector that is left, and in the elements that are left."""
    host = np.ones((1, 83), "f4")
    host[0, place] = value
    np.testing.assert_array_equal(squares_of(host, 0, 83, 0.5), [value * value])


@pytest.mark.parametrize("dtype", ["f2", "i1", "i8", "u4", "b1"])
def test_squares_of_other_types(dtype: str) -> None:
    """What they are as float64."""
    host = np.random.default_rng(1).integers(0, 100, (3, 131)).astype(dtype)
    expected = ((host[:, 1:130].astype("f8") - 2.5) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares_of(host, 1, 129, 2.5), expected, rtol=1e-14)


def test_squares_of_complex_numbers() -> None:
    """How far they are from a point of the plane; a real one is one, too."""
    rng = np.random.default_rng(1)
    host = (rng.standard_normal((3, 131)) + 1j * rng.standard_normal((3, 131))).astype("c8")
    for center in (0.5, 0.5 - 2j):
        expected = (np.abs(host[:, 1:130].astype("c16") - center) ** 2).sum(axis=1)
        np.testing.assert_allclose(squares_of(host, 1, 129, center), expected, rtol=1e-14)


def test_squares_of_slices_with_gaps() -> None:
    """One element after the other."""
    host = np.random.default_rng(1).integers(0, 100, (131, 3)).astype("f4")
    out = aiodev.empty(3, "f8", "cpu")
    square_columns[3](aiodev.asarray(host, device="cpu"), out).synchronize_blocking()
    np.testing.assert_array_equal(out.numpy_blocking(), (host.astype("f8") ** 2).sum(axis=0))


@pytest.mark.parametrize(("dtype", "ahead"), [("f4", None), ("f4", 4500), ("f8", None), ("f8", 2000)])
@given(LENGTHS.filter(bool), st.integers(0, 17), st.sampled_from([0.0, 1.0, 1e6]), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=examples(40))
def test_moments_of_floats(dtype: str, ahead: int | None, size: int, start: int, offset: float, seed: int) -> None:
    """Nothing cancels where the mean is far from 0; what lies beside the slice does not count."""
    host = (np.random.default_rng(seed).standard_normal((2, start + size + 5)) + offset).astype(dtype)
    host[:, :start] = host[:, start + size :] = np.nan
    for row, mean, variance in zip(host, *moments_of(host, start, size, ahead), strict=True):
        part = [Fraction(float(value)) for value in row[start : start + size]]
        center = sum(part) / size
        exact = sum((value - center) ** 2 for value in part) / size
        assert abs(Fraction(float(mean)) - center) <= (size + 3) * Fraction(2) ** -53 * sum(map(abs, part)) / size
        assert abs(Fraction(float(variance)) - exact) <= 30 * (size + 5) * Fraction(2) ** -53 * exact


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_moments_of_equal_elements(dtype: str) -> None:
    """No spread at all, and never less, whatever they are rounded to."""
    for size in (1, 15, 16, 17, 64, 1000, 20_000):
        means, variances = moments_of(np.full((1, size), 0.1, dtype), 0, size)
        np.testing.assert_allclose(means, np.full(1, 0.1, dtype), rtol=1e-14)
        assert 0 <= variances[0] < 1e-30


def test_moments_where_the_first_elements_are_far_from_all_others() -> None:
    """The center is then far from the mean, but no farther than what spreads."""
    for few in (1, 62, 63, 500):
        host = np.random.default_rng(few).standard_normal((1, 1000))
        host[0, :few] = 1e9
        exact = np.var(host.astype(np.longdouble))
        np.testing.assert_allclose(moments_of(host, 0, 1000)[1], [float(exact)], rtol=1e-13)


@pytest.mark.parametrize("place", [0, 63, 64, 79, 80])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_moments_of_what_is_no_number(place: int, dtype: str) -> None:
    """NaN, also where an element is infinite, as in NumPy; wherever it stands."""
    for value in (np.nan, np.inf, -np.inf):
        host = np.ones((1, 83), dtype)
        host[0, place] = value
        means, variances = moments_of(host, 0, 83)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(means, host.mean(axis=1, dtype=means.dtype))
        assert np.isnan(variances).all()


@pytest.mark.parametrize("dtype", ["f8", "c16", "i8"])
def test_a_mean_from_a_point_that_is_near(dtype: str) -> None:
    """It has the digits that the mean itself has lost."""
    wide = np.complex128 if dtype == "c16" else np.float64
    host = np.random.default_rng(1).integers(0, 1000, (3, 200)).astype(dtype)
    origin = wide(2.0**52 + 2.0**51 * 1j) if dtype == "c16" else wide(2.0**52)
    x = aiodev.asarray(host + origin.astype(dtype), device="cpu")
    means, variances = aiodev.empty(3, wide, "cpu"), aiodev.empty(3, "f8", "cpu")
    moments_from[3](origin, x, means, variances).synchronize_blocking()
    np.testing.assert_allclose(means.numpy_blocking(), host.mean(axis=1), rtol=1e-13)
    np.testing.assert_allclose(variances.numpy_blocking(), host.var(axis=1), rtol=1e-13)


def test_moments_that_overflow_and_those_of_nothing() -> None:
    """Infinite if squares are; NaN without elements."""
    host = np.array([[1e200, -1e200, 3e200] * 20])
    means, variances = moments_of(host, 0, 60)
    np.testing.assert_allclose(means, [1e200])
    assert variances == [np.inf]
    for values in ([1.5e308, -1.5e308], [9e153] + [-1e152] * 15, [1e308] * 20, [-1e308] + [1e307] * 4):
        means, variances = moments_of(np.array([values]), 0, len(values))
        with np.errstate(over="ignore"):
            expected = np.mean(values), np.var(values)
        if values[0] != 1e308:  # whose sum is infinite, and neither their mean nor their spread
            np.testing.assert_allclose((means[0], variances[0]), expected)
        else:
            assert (means[0], variances[0]) == (1e308, 0)
    assert np.isnan(moments_of(host, 0, 0)).all()


@pytest.mark.parametrize("size", [2, 8, 60, 600, 20_000])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_moments_of_sums_that_overflow_on_the_way(dtype: str, size: int) -> None:
    """The mean is a number and the variance is infinite, whatever the order in which elements are added."""
    host = np.tile(np.array([1.5e308, -1.5e308], dtype), (1, size // 2))
    means, variances = aiodev.empty(1, dtype, "cpu"), aiodev.empty(1, "f8", "cpu")
    moment_columns[1](aiodev.asarray(host.T.copy(), device="cpu"), means, variances).synchronize_blocking()
    for mean, variance in (moments_of(host, 0, size), (means.numpy_blocking(), variances.numpy_blocking())):
        assert abs(mean[0]) < 1e295 and variance == [np.inf]


@pytest.mark.parametrize("dtype", ["f2", "i1", "i8", "u8", "b1", "c8", "c16"])
def test_moments_of_other_types(dtype: str) -> None:
    """What they are in double precision; sums of large integers do not overflow."""
    rng = np.random.default_rng(1)
    host = rng.integers(0, 100, (3, 131)).astype(dtype)
    if dtype[0] == "c":
        host -= 50j * rng.random((3, 131))
    if dtype in ("i8", "u8"):
        host *= np.iinfo(dtype).max // 100
    wide = host[:, 1:130].astype("c16" if dtype[0] == "c" else "f8")
    means, variances = moments_of(host, 1, 129)
    np.testing.assert_allclose(means, wide.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(variances, wide.var(axis=1), rtol=1e-13)
    means, variances = (aiodev.empty(3, kind, "cpu") for kind in (wide.dtype, "f8"))
    moment_columns[3](aiodev.asarray(host[:, 1:130].T.copy(), device="cpu"), means, variances).synchronize_blocking()
    np.testing.assert_allclose(means.numpy_blocking(), wide.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(variances.numpy_blocking(), wide.var(axis=1), rtol=1e-13)


@pytest.mark.parametrize("name", ["sum", "sum_squares", "moments"])
def test_what_is_no_row_of_numbers_is_refused(name: str) -> None:
    """By the compiler, with the kernel's line."""
    function = getattr(lang, name)

    @aiodev.kernel
    def flat(i: int, x: Any, out: Any) -> None:
        out[i] = function(x)

    x, out = aiodev.zeros((2, 2), "f4", "cpu"), aiodev.empty(1, "f8", "cpu")
    with pytest.raises(aiodev.CompileError, match=f"{name}: expected a one-dimensional array of numbers"):
        flat[1](x, out).synchronize_blocking()


@pytest.mark.parametrize(
    ("center", "ahead", "message"),
    [(np.complex128(1j), 0, "expected a real number as the center"), (0.5, 2.5, "expected an integer for how many elements")],
)
def test_a_center_off_the_line_and_half_an_element_are_refused(center: Any, ahead: Any, message: str) -> None:
    """By the compiler, too."""
    x, out = aiodev.ones((1, 8), "f4", "cpu"), aiodev.empty(1, "f8", "cpu")
    with pytest.raises(aiodev.CompileError, match=message):
        square_parts_ahead[1](0, 8, center, ahead, x, out).synchronize_blocking()


def test_an_origin_off_the_line_is_refused() -> None:
    """As a center is."""
    x, means, variances = aiodev.ones((1, 8), "f4", "cpu"), aiodev.empty(1, "f8", "cpu"), aiodev.empty(1, "f8", "cpu")
    with pytest.raises(aiodev.CompileError, match="moments: expected a real number as the origin"):
        moments_from[1](np.complex128(1j), x, means, variances).synchronize_blocking()


def test_plain_function_does_the_same() -> None:
    """Where a body is read or debugged."""
    assert lang.sum(np.array([0.5, 1.0], "f4")) == 1.5
    assert lang.sum(np.array([True, True])).dtype == np.int64
    assert lang.sum(np.array([200, 100], "u1")) == 300
    assert lang.sum_squares(np.array([1.0, 3.0], "f4"), 0.5) == 6.5
    assert lang.sum_squares(np.array([200, 100], "u1")) == 50_000
    assert lang.sum_squares(np.array([3j, 4.0]), -1j) == 33
    with pytest.raises(TypeError, match="complex"):
        lang.sum_squares(np.ones(3), 1j)
    assert lang.moments(np.array([200, 100], "u1")) == (150, 2500)
    assert lang.moments(np.array([200, 100], "u1"), None, 100) == (50, 2500)
    assert lang.moments(np.array([3j, 3], "c8")) == (1.5 + 1.5j, 4.5)
