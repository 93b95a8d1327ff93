"""Reductions against NumPy's: axes, shapes, strides, types, and what has no elements or no order."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples, some

import aiodev
import aiodev.kernels as kernels

SUMS = ["sum", "prod", "mean", "var", "std"]
EXTREMES = ["min", "max"]
TRUTHS = ["any", "all"]
PLACES = ["argmin", "argmax"]


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random elements, some of which are equal."""
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind in "biu":
        return rng.integers(0, 9, shape).astype(dtype)
    values = rng.standard_normal(shape).round(1)
    return values.astype(dtype) if dtype[0] == "f" else (values + 1j * rng.standard_normal(shape)).astype(dtype)


def expected_of(name: str, x: np.ndarray[Any, Any], axis: Any, keepdims: bool = False) -> np.ndarray[Any, Any]:
    """NumPy's result, of twice the precision, in the type that it has."""
    function = getattr(np, name)
    with np.errstate(all="ignore"):
        result = np.asarray(function(x, axis=axis, keepdims=keepdims))
        if x.dtype.kind in "fc" and name in SUMS:
            wide = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
            result = np.asarray(function(wide, axis=axis, keepdims=keepdims)).astype(result.dtype)
    return result


def check(name: str, found: aiodev.Array, expected: np.ndarray[Any, Any]) -> None:
    """The same shape, dtype and values; sums to some units in the last place."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    values = found.numpy_blocking()
    if name in SUMS and expected.dtype.kind in "fc":
        eps = np.finfo(expected.dtype).eps
        scale = np.abs(expected).max(initial=1.0) if expected.size else 1.0
        np.testing.assert_allclose(values, expected, rtol=64 * eps, atol=64 * eps * float(scale), equal_nan=True)
    else:
        np.testing.assert_array_equal(values, expected)


#: Each kind of number that a function treats in a way of its own; sums for all, since others differ only in what is added.
KINDS = {
    "sum": ["f4", "f8", "i4", "u1", "b1", "c8"],
    "prod": ["f4", "i4", "b1", "c8"],
    "mean": ["f4", "u1", "c8"],
    "var": ["f4", "f8", "i4", "c8"],
    "std": ["f4", "b1", "c8"],
    "min": ["f4", "i4", "b1", "c8"],
    "max": ["f8", "u1", "b1", "c8"],
    "any": ["f4", "i4", "b1", "c8"],
    "all": ["f8", "u1", "b1"],
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in KINDS.items() for dtype in some(dtypes)])
def test_axes(name: str, dtype: str) -> None:
    """Any axes, one or several or none, kept or not."""
    if dtype[0] == "c" and name in EXTREMES:
        with pytest.raises(TypeError, match="no order"):
            getattr(kernels, name)(on_device(np.ones(3, dtype)))
        return
    host = numbers((3, 4, 17), dtype)
    x = on_device(host)
    for axis in (None, 0, 1, -1, (0, 1), (0, 2), (1, 2), ()):
        for keepdims in (False, True):
            found = getattr(kernels, name)(x, axis=axis, keepdims=keepdims)
            if axis == () and dtype in ("f4", "c8") and name == "prod":
                continue
            check(name, found, expected_of(name, host, axis, keepdims))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("name", ["sum", "max", "var", "argmax"])
def test_transposed_arrays_are_reduced_where_they_lie(name: str, order: tuple[int, ...]) -> None:
    """Along one axis, or all; nothing is copied first where what is kept stays in order, and of equals the first one counts."""
    host = numbers((7, 30, 50), "f4").transpose(order)
    x = on_device(numbers((7, 30, 50), "f4")).transpose(*order)
    for axis, keepdims in itertools.product((None, 0, 1, -1), (False, True)):
        check(name, getattr(kernels, name)(x, axis=axis, keepdims=keepdims), expected_of(name, host, axis, keepdims))
    aiodev.memory.reset_peak_memory_stats("cpu")
    before = aiodev.memory.memory_allocated("cpu")
    getattr(kernels, name)(x, axis=order.index(2))
    copied = aiodev.memory.max_memory_allocated("cpu") - before >= x.nbytes
    assert copied == ([d for d in order if d != 2] == [1, 0])


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in KINDS.items() for dtype in some(dtypes, 2)])
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_axes_with_others_between(name: str, dtype: str, data: st.DataObject) -> None:
    """Groups of neighbours, with what is kept between them; of packed and of transposed arrays, to results of any strides."""
    if dtype[0] == "c" and name in EXTREMES:
        dtype = "f2"
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 0]), min_size=3, max_size=6), label="shape"))
    if name == "prod":
        shape = tuple(min(length, 3) for length in shape)
    if name in EXTREMES:
        shape = tuple(max(length, 1) for length in shape)
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=2), label="axes"))
    order = data.draw(st.permutations(range(len(shape))), label="order")
    keepdims, strided = data.draw(st.booleans(), label="keepdims"), data.draw(st.booleans(), label="strided")
    host = np.ascontiguousarray(numbers(shape, dtype)).transpose(order)
    with warnings.catch_warnings(action="ignore"):  # NumPy warns of means of nothing
        expected = expected_of(name, host, axes, keepdims)
    x = on_device(numbers(shape, dtype)).transpose(*order)
    out = aiodev.zeros(expected.shape[::-1], expected.dtype, "cpu").T if strided else None
    found = getattr(kernels, name)(x, axis=axes, keepdims=keepdims, out=out)
    check(name, found, expected)


def test_what_is_reduced_in_turn_is_rounded_once() -> None:
    """Parts are as wide as what is combined: no digit is lost, and no sum overflows, between one axis and the next."""
    host = np.full((4, 3, 5000), 7, "f2")
    host[1:, 1], host[:, 2, 0] = -7, 0.001
    for name in ("sum", "mean"):
        check(name, getattr(kernels, name)(on_device(host), axis=(0, 2)), expected_of(name, host, (0, 2)))
    assert kernels.sum(on_device(host), axis=(0, 2)).numpy_blocking()[0] == np.inf  # beyond the largest float16
    bytes_ = np.full((3, 2, 1000), 255, "u1")
    check("sum", kernels.sum(on_device(bytes_), axis=(0, 2)), bytes_.sum((0, 2)))
    assert kernels.count_nonzero(on_device(bytes_), axis=(0, 2)).numpy_blocking().tolist() == [3000, 3000]


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var", "all"])
@pytest.mark.parametrize("shape", [(70_001,), (200_001,), (2, 140_000), (300, 40), (300, 700), (1000, 3)])
def test_long_and_wide(name: str, shape: tuple[int, ...]) -> None:
    """Blocks of rows, strips of columns, and their edges."""
    host = numbers(shape, "f4")
    x = on_device(host)
    for axis in range(len(shape)):
        check(name, getattr(kernels, name)(x, axis=axis), expected_of(name, host, axis))


@pytest.mark.parametrize(
    ("name", "dtype"),
    some(
        [("sum", "f4"), ("max", "f8"), ("argmax", "f4"), ("prod", "i4"), ("any", "b1")]
        + [("sum", "f2"), ("sum", "c8"), ("prod", "c16"), ("mean", "u1"), ("mean", "f8")]
        + [("all", "f4"), ("max", "u8"), ("min", "f2"), ("argmax", "b1"), ("argmin", "i8")],
        5,
    ),
)
def test_few_beside_many(name: str, dtype: str) -> None:
    """Rows of few elements and few columns, so many that some are left where vectors and slabs end."""
    for few in some((3, 8, 17, 33, 1, 2, 4, 5, 6, 7, 9, 12, 15, 16, 20), 4):
        host = numbers((5003, few), dtype)
        for axis in (0, 1):
            check(name, getattr(kernels, name)(on_device(host), axis=axis), expected_of(name, host, axis))


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var"])
@pytest.mark.parametrize("shape", [(5003, 3, 4), (600, 50, 3), (90, 3, 1100), (3, 4099, 5), (2, 70_001, 2), (41, 300, 40)])
def test_few_between(name: str, shape: tuple[int, ...]) -> None:
    """Columns that are few, or short, of more than one array of them."""
    host = numbers(shape, "f4")
    check(name, getattr(kernels, name)(on_device(host), axis=1), expected_of(name, host, 1))


@pytest.mark.parametrize("name", ["sum", "min", "var"])
def test_what_a_cache_keeps_a_part_of(name: str) -> None:
    """Elements of which others are asked for ahead: of all, and of rows that begin anywhere."""
    host = numbers((7, 1_000_003), "f4")
    x = on_device(host)
    for axis in (None, 1):
        check(name, getattr(kernels, name)(x, axis=axis), expected_of(name, host, axis))
    rows = host.reshape(-1)[:7_000_000].reshape(7000, 1000)
    check(name, getattr(kernels, name)(on_device(rows), axis=1), expected_of(name, rows, 1))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i8"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((150_000,), 0), ((300, 40_000), 1), ((3, 40_000), 1), ((1000, 40), 0), ((130, 1030), 0), ((9, 50), 0)]
)
def test_variance_far_from_zero(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    """Of blocks, rows, slabs and columns whose means differ, and of which none is near 0."""
    rng = np.random.default_rng(1)
    host = rng.standard_normal(shape) * 100 + np.linspace(1e6, 1e6 + 1e3, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    host = (host + 1j * rng.standard_normal(shape)).astype(dtype) if dtype[0] == "c" else host.astype(dtype)
    wide = host.astype(np.clongdouble if dtype[0] == "c" else np.longdouble)
    for name in ("var", "std"):
        found = getattr(kernels, name)(on_device(host), axis=axis).numpy_blocking()
        expected = getattr(np, name)(wide, axis=axis).astype(found.dtype)
        np.testing.assert_allclose(found, expected, rtol=1e-12 if found.dtype == np.float64 else 2e-7)


@pytest.mark.parametrize("offset", [1e2, 1e6, 1e8])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((150_000,), 0), ((300, 40_000), 1), ((3, 140_000), 1), ((4096, 16), 0), ((130, 1030), 0), ((9, 50), 0)]
)
def test_variance_that_is_small_next_to_the_mean(shape: tuple[int, ...], axis: int, dtype: str, offset: float) -> None:
    """The elements have digits left for it, their means would not."""
    rng = np.random.default_rng(1)
    spread = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype == "c16" else 0)
    host = (spread * 1e-3 + offset).astype(dtype)
    near = host - np.take(host, [0], axis)  # exact
    exact = np.var(near.astype(np.clongdouble if dtype == "c16" else np.longdouble), axis=axis)
    found = kernels.var(on_device(host), axis=axis).numpy_blocking()
    np.testing.assert_allclose(found, exact.astype(np.float64), rtol=1e-13)


@pytest.mark.parametrize(
    "values",
    [
        [1.5e308, -1.5e308],
        [1e308, -1e308, 5, 5],
        [9e153] + [-1e152] * 15,
        [-1e308] + [1e307] * 4,
        [5e-324, 0, 0, 0],
        [1e-300] * 40,
    ],
)
def test_variance_at_the_ends_of_the_range(values: list[float]) -> None:
    """Infinite only where it is; and never less than 0, nor its negative."""
    host = np.array(values)
    column = host[:, None]
    for x in (host, np.tile(host, 300), np.tile(column, (1, 3)), np.tile(column, (30, 33)), np.tile(column, (300, 33))):
        with np.errstate(over="ignore"):
            mean = x.astype(np.longdouble).mean(axis=0).astype(np.float64)  # a sum may overflow on the way
            expected = np.mean((x - mean) ** 2, axis=0)
        found = kernels.var(on_device(x), axis=0).numpy_blocking()
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-320)
        assert not np.signbit(found).any()


@pytest.mark.parametrize("shape", [(150_000,), (3, 140_000), (300, 40_000), (1000, 40), (260, 700), (9, 50)])
def test_variance_of_what_is_no_number(shape: tuple[int, ...]) -> None:
    """NaN and infinities are NaN's, in the first place and in others; squares that overflow are infinite."""
    for axis in range(len(shape)):
        for place in (0, shape[axis] // 2, shape[axis] - 1):
            for value in (np.nan, np.inf, -np.inf):
                host = np.ones(shape)
                host[tuple(place if axis == a else 0 for a in range(len(shape)))] = value
                found = kernels.var(on_device(host), axis=axis).numpy_blocking().reshape(-1)
                assert np.isnan(found[0]) and not found[1:].any()
        host = np.where(np.arange(host.size).reshape(shape) % 3, -1e200, 1e200)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(kernels.var(on_device(host), axis=axis).numpy_blocking(), host.var(axis=axis))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_views(data: st.DataObject) -> None:
    """Of any view of an array: steps, negative ones too, and axes in another order."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=9))
    base = numbers(shape, "f8", seed=1)
    index = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1, -3]))) for _ in shape)
    axes = data.draw(st.permutations(range(len(shape))))
    host, x = base[index].transpose(axes), on_device(base)[index].transpose(*axes)
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    name = data.draw(st.sampled_from(["sum", "min", "argmin", "any", "std"]))
    check(name, getattr(kernels, name)(x, axis=axis), expected_of(name, host, axis))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", EXTREMES + PLACES)
def test_what_has_no_number(name: str, dtype: str) -> None:
    """NaN wins, wherever it stands and whatever its sign; infinities have their order; zeros of both signs are equal."""
    function = getattr(kernels, name)
    for values in (
        [1, np.nan, 3],
        [np.nan, np.inf],
        [-np.inf, -np.nan, np.inf],
        [-np.nan, np.nan],
        [np.nan, -np.nan, 1],
        [np.inf, 1, -np.inf],
        [-0.0, 0.0],
        [0.0, -0.0],
        [-1.0, -2.0],
    ):
        host = np.array(values, dtype)
        found = function(on_device(host)).numpy_blocking()
        np.testing.assert_array_equal(found, getattr(np, name)(host))


@pytest.mark.parametrize("name", EXTREMES + PLACES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_has_no_number_beside_many(name: str, dtype: str) -> None:
    """The same in rows of few elements and in few columns; of equal ones the first has the place, whichever is beside it."""
    rng = np.random.default_rng(3)
    for few in (2, 3, 7, 16):
        host = rng.choice([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], (6001, few)).astype(dtype)
        signs = rng.choice([0.0, -0.0], (6001, few)).astype(dtype)
        late = np.zeros((6001, few), dtype)
        late[rng.integers(4000, 6000, 3)] = 1.0 - 2.0 * (name in ("min", "argmin"))
        for values in (host, signs, late):
            for axis in (0, 1):
                found = getattr(kernels, name)(on_device(values), axis=axis).numpy_blocking()
                np.testing.assert_array_equal(found, getattr(np, name)(values, axis=axis))


def test_no_elements() -> None:
    """Sums of nothing are 0, products 1, means NaN; nothing has no extreme."""
    x = aiodev.empty((0, 3), dtype="f4", device="cpu")
    assert kernels.sum(x).numpy_blocking() == 0 and kernels.prod(x, axis=0).numpy_blocking().tolist() == [1, 1, 1]
    assert np.isnan(kernels.mean(x).numpy_blocking()) and np.isnan(kernels.var(x).numpy_blocking())
    assert not kernels.any(x).numpy_blocking() and kernels.all(x).numpy_blocking()
    assert kernels.max(x, axis=1).shape == (0,)
    for name in EXTREMES + PLACES:
        with pytest.raises(ValueError, match="no elements"):
            getattr(kernels, name)(x, axis=0)


def test_wide_sums() -> None:
    """Small integers do not overflow, and float32 is summed in more than its own precision."""
    assert kernels.sum(on_device(np.full(300, 200, "u1"))).numpy_blocking() == 60_000
    host = np.full(1_000_000, 0.1, "f4")
    exact = np.float32(np.sum(host, dtype="f8"))
    assert kernels.sum(on_device(host)).numpy_blocking() == exact
    assert kernels.sum(on_device(host), dtype="f8").dtype == np.float64
    assert kernels.sum(on_device(np.array([1.5, 2.5])), dtype="i8").numpy_blocking() == 3


@pytest.mark.parametrize(("shape", "axis"), [((1_000_000,), 0), ((3_000_000,), 0), ((4000, 1000), 1), ((4000, 1000), 0)])
def test_sums_of_float32(shape: tuple[int, ...], axis: int) -> None:
    """Within the stated error: what is near and what is not, rows and columns; exactly where float64 was asked for."""
    host = numbers(shape, "f4")
    exact, absolute = host.sum(axis, dtype="f8"), np.abs(host).sum(axis, dtype="f8")
    found = kernels.sum(on_device(host), axis=axis).numpy_blocking().astype("f8")
    assert (np.abs(found - exact) <= 3e-7 * absolute + 2.0**-24 * np.abs(found)).all()
    host = np.ones(shape, "f4")  # every one would be lost next to a large one
    host.reshape(-1, 16)[::2] = 2.0**30
    found = kernels.sum(on_device(host), axis=axis, dtype="f8").numpy_blocking()
    np.testing.assert_array_equal(found, host.sum(axis, dtype="f8"))
    found = kernels.sum(on_device(np.full(shape, 3e38, "f4")), axis=axis, dtype="f8").numpy_blocking()
    np.testing.assert_allclose(found, shape[axis] * np.float64(np.float32(3e38)), rtol=1e-10)


def test_out_and_errors() -> None:
    """``out`` is written and returned; what does not fit is refused, by name."""
    x, out = on_device(numbers((4, 5), "f8")), aiodev.empty(4, dtype="f8", device="cpu")
    assert kernels.sum(x, axis=1, out=out) is out
    check("sum", out, expected_of("sum", numbers((4, 5), "f8"), 1))
    with pytest.raises(ValueError, match="shape"):
        kernels.sum(x, axis=0, out=out)
    with pytest.raises(TypeError, match="float64"):
        kernels.sum(x, axis=1, out=aiodev.empty(4, dtype="f4", device="cpu"))
    with pytest.raises(ValueError, match="axis 2"):
        kernels.sum(x, axis=2)
    with pytest.raises(ValueError, match="twice"):
        kernels.sum(x, axis=(0, -2))
    for axis in (True, (0, True), 1.0):
        kernels.sum(x, axis=1)  # which could be found for them
        with pytest.raises(TypeError, match="expected an integer"):
            kernels.sum(x, axis=axis)
    with pytest.raises(ValueError, match="0 dimensions"):
        kernels.sum(x[0, 0], axis=0)
    for dtype in ("U3", "M8[s]", object):
        for function in (kernels.sum, kernels.prod, kernels.cumulative_sum):
            with pytest.raises(TypeError, match="dtype .*: device arrays hold booleans"):
                function(x[0], dtype=dtype)
    with pytest.raises(TypeError, match="asarray"):
        kernels.sum(np.ones(3))


def test_half_precision() -> None:
    """It is combined in double precision and rounded once; its extremes and their places are as of other floats."""
    host = np.arange(-1500, 1500).reshape(300, 10).astype("f2")
    host[7, 3] = host[200, 3] = np.nan
    x, wide = on_device(host), host.astype("f8")
    assert kernels.sum(on_device(np.full(5000, 1, "f2"))).numpy_blocking() == 5000
    for axis in (0, 1):
        for name in ("sum", "var", "max"):
            with np.errstate(over="ignore"):
                expected = getattr(np, name)(wide, axis=axis).astype("f2")
            found = getattr(kernels, name)(x, axis=axis)
            assert found.dtype == np.float16
            np.testing.assert_array_equal(found.numpy_blocking(), expected)
        np.testing.assert_array_equal(kernels.argmin(x, axis=axis).numpy_blocking(), np.argmin(host, axis=axis))
        assert kernels.any(x, axis=axis).numpy_blocking().all()


def test_out_may_have_gaps() -> None:
    """Results go to slices and to transposed arrays, too, and to nothing else."""
    host = numbers((4, 5, 6), "f4")
    x = on_device(host)
    for name in ("sum", "var", "argmax"):
        dtype = np.int64 if name == "argmax" else np.float32
        out = aiodev.zeros((6, 8), dtype, "cpu")
        getattr(kernels, name)(x, axis=1, out=out[:, ::2].T)
        check(name, out[:, ::2].T, expected_of(name, host, 1))
        assert not out[:, 1::2].numpy_blocking().any()


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2)])
def test_results_of_no_elements(axis: Any) -> None:
    """Where a kept dimension has the length 0 there is nothing to compute."""
    x = aiodev.empty((3, 0, 2) if axis != 1 else (0, 3, 2), dtype="f4", device="cpu")
    for name in ("sum", "var", "max"):
        check(name, getattr(kernels, name)(x, axis=axis), expected_of(name, np.empty(x.shape, "f4"), axis))


def test_a_place_is_of_one_axis() -> None:
    """As NumPy has it."""
    with pytest.raises(TypeError, match="one axis"):
        kernels.argmax(on_device(np.ones((2, 2))), axis=(0, 1))


@pytest.mark.parametrize(("shape", "axis"), [((500_000,), 0), ((100_003, 5), 0), ((100_003, 5), 1)])
def test_the_same_bits_every_time(shape: tuple[int, ...], axis: int) -> None:
    """However blocks, slabs and rows fall to the threads."""
    x = on_device(np.random.default_rng(0).standard_normal(shape))
    assert len({kernels.sum(x, axis=axis).numpy_blocking().tobytes() for _ in range(20)}) == 1
