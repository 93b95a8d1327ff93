"""Softmax and normalisations against their definitions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.nn import bodies

#: Errors, in units of the last place. Of softmax it is this much and the distance from the row's largest element, since the
#: difference of the two is rounded before its exponential is taken.
ULPS = {"softmax": 8, "norm": 64}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """NumPy warns of infinities and of means of nothing, which are meant."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def reference_softmax(host: Any, axis: int) -> Any:
    """The definition, in more than double precision where there is more."""
    wide = host.astype(np.longdouble)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def check_softmax(found: aiodev.Array, host: Any, axis: int) -> None:
    """The definition's dtype, shape and values, to the error that is stated."""
    expected = reference_softmax(host, axis) if host.size else host
    assert found.dtype == host.dtype and found.shape == expected.shape
    wide = host.astype(np.longdouble)
    distance = wide.max(axis, keepdims=True) - wide if host.size else 0
    sums = host.shape[axis] / 10 if host.dtype == "f8" else 0  # of float32 they are in double precision, or of parts
    allowed = (ULPS["softmax"] + distance + sums) * np.finfo(host.dtype).eps * expected
    assert np.all(abs(found.numpy_blocking() - expected) <= allowed)


def check(found: aiodev.Array, expected: Any, dtype: Any, ulps: int, size: float = 0.0) -> None:
    """The dtype and shape, and values to some ulps of themselves, and of ``size``."""
    assert found.dtype == dtype and found.shape == expected.shape
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=ulps * eps, atol=ulps * eps * size)


arrays = st.tuples(
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 40, 130]), min_size=1, max_size=3),
    st.sampled_from(some(["f4", "f8"])),
    st.sampled_from([1, 2, -1]),
    st.booleans(),
    st.integers(0, 2),
)


def make(drawn: tuple[list[int], str, int, bool, int]) -> tuple[Any, aiodev.Array, int]:
    """A view of random numbers on both sides, and an axis."""
    shape, dtype, step, flip, axis = drawn
    host = (np.random.default_rng(len(shape)).standard_normal(shape) * 4).astype(dtype)
    array = on_device(host)[::step]
    host = host[::step]
    return (host.T, array.T, axis % host.ndim) if flip else (host, array, axis % host.ndim)


@given(arrays)
@settings(deadline=None, max_examples=examples(60))
def test_softmax_over_any_axis(drawn: Any) -> None:
    """Of arrays of any shape and strides; its logarithm too, and into arrays with gaps."""
    host, x, axis = make(drawn)
    expected = reference_softmax(host, axis) if host.size else host
    check_softmax(kernels.softmax(x, axis=axis), host, axis)
    check(kernels.log_softmax(x, axis=axis), np.log(expected), host.dtype, ULPS["softmax"], 16)
    out = aiodev.zeros((2 * host.shape[0], *host.shape[1:]), host.dtype, "cpu")
    kernels.softmax(x, axis=axis, out=out[::2])
    check_softmax(out[::2], host, axis)
    assert not out[1::2].numpy_blocking().any()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("length", [bodies.BLOCK - 1, bodies.BLOCK, 3 * bodies.BLOCK + 5])
def test_long_rows_are_cut_into_blocks(dtype: str, length: int) -> None:
    """The blocks' sums are relative to different elements."""
    host = np.linspace(-20, 20, 2 * length).reshape(2, length).astype(dtype)
    expected = reference_softmax(host, 1)
    check_softmax(kernels.softmax(on_device(host)), host, 1)
    check(kernels.log_softmax(on_device(host)), np.log(expected), dtype, ULPS["softmax"], 64)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(4, 30), (2, bodies.BLOCK + 30)])
def test_logarithms_of_large_elements_are_accurate(dtype: str, shape: tuple[int, int]) -> None:
    """What is far from 0, and near each other, loses nothing to the sum of the largest and a logarithm."""
    host = (1e4 + np.random.default_rng(2).uniform(-30, 0, shape)).astype(dtype)
    wide = host.astype(np.longdouble)
    for axis in (0, 1):
        less = wide - wide.max(axis, keepdims=True)
        exact = less - np.log(np.exp(less).sum(axis, keepdims=True))
        found = kernels.log_softmax(on_device(host), axis=axis).numpy_blocking()
        units = 8 * np.finfo(dtype).eps * np.maximum(1, np.abs(exact))
        assert (np.abs(found - exact) <= units * (1 if dtype == "f4" else 1 + shape[axis] / 80)).all()


def test_softmax_of_what_is_not_ordinary() -> None:
    """Nothing overflows; NaN and infinities go as in the definition, in short and long rows, along any axis."""
    row = np.array([0.0, 1000.0, -1000.0, 1000.0])
    check(kernels.softmax(on_device(row)), np.array([0, 0.5, 0, 0.5]), "f8", 2)
    assert kernels.log_softmax(on_device(row)).numpy_blocking()[2] == -2000 - np.log(2)
    for length in (4, 2 * bodies.BLOCK):
        for value in (np.nan, np.inf, -np.inf):
            host = np.zeros((2, length))
            host[0, length - 3] = value
            for axis, array in ((1, host), (0, host.T.copy())):
                found = kernels.softmax(on_device(array), axis=axis).numpy_blocking()
                np.testing.assert_allclose(found, reference_softmax(array, axis), rtol=1e-12)
    everything = np.full((2, 3), -np.inf)
    assert np.isnan(kernels.softmax(on_device(everything)).numpy_blocking()).all()
    masked = np.full(2 * bodies.BLOCK + 1, -np.inf)  # but for one element: whole blocks weigh nothing
    masked[-1] = 7.0
    assert np.array_equal(kernels.softmax(on_device(masked)).numpy_blocking(), np.exp(masked - 7))
    assert np.array_equal(kernels.log_softmax(on_device(masked)).numpy_blocking(), masked - 7)


@pytest.mark.parametrize("shape", [(3, bodies.BLOCK + 30), (70, 60)])
def test_in_place_the_bits_are_the_same(shape: tuple[int, int]) -> None:
    """Along either axis, with factors and without, and where the array has gaps."""
    host = np.random.default_rng(4).standard_normal(shape).astype("f4")
    for axis in (0, 1):
        factors = on_device(np.linspace(1, 2, shape[axis], dtype="f4"))
        for function, more in (
            (kernels.softmax, ()),
            (kernels.log_softmax, ()),
            (kernels.layer_norm, ()),
            (kernels.layer_norm, (factors, factors)),
            (kernels.rms_norm, ()),
            (kernels.rms_norm, (factors,)),
        ):
            expected = function(on_device(host), *more, axis=axis).numpy_blocking()
            wide = on_device(np.repeat(host, 2, axis=0))
            for x in (on_device(host), wide[::2]):
                function(x, *more, axis=axis, out=x)
                np.testing.assert_array_equal(x.numpy_blocking(), expected)
            np.testing.assert_array_equal(wide[1::2].numpy_blocking(), host)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_short_rows_and_few_columns(dtype: str) -> None:
    """Of 1 to 20 elements, and of 31 to 33, of which many are worked on at once, with some left; one is special."""
    for n in (*range(1, 21), 31, 32, 33):
        host = (np.random.default_rng(n).standard_normal((2, 301 + n, n)) * 4).astype(dtype)
        host[0, 0, 0], host[1, 100, n - 1], host[1, 200, 0] = np.nan, np.inf, -np.inf
        for axis in (1, 2):
            expected = reference_softmax(host, axis)
            for function, wanted in ((kernels.softmax, expected), (kernels.log_softmax, np.log(expected))):
                x = on_device(host)
                found = function(x, axis=axis)
                size = 0.1 if function is kernels.softmax else 16
                check(found, wanted, dtype, ULPS["softmax"] + (16 if dtype == "f8" else 0), size)
                function(x, axis=axis, out=x)
                np.testing.assert_array_equal(x.numpy_blocking(), found.numpy_blocking())


@pytest.mark.parametrize("shape", [(200_000, 3), (3, 200_000), (200_000, 20), (70_000, 100)])
def test_sums_of_many_exponentials_are_accurate(shape: tuple[int, int]) -> None:
    """Down columns no more than some elements are added up in single precision."""
    host = np.random.default_rng(8).uniform(-1, 0, shape).astype("f4")
    for axis in (0, 1):
        check_softmax(kernels.softmax(on_device(host), axis=axis), host, axis)


def test_softmax_in_place_and_of_integers() -> None:
    """``out`` may be the argument; integers become double precision."""
    host = np.random.default_rng(1).standard_normal((50, 70))
    for axis in (0, 1):
        x = on_device(host)
        assert kernels.softmax(x, axis=axis, out=x) is x
        check_softmax(x, host, axis)
    whole = np.arange(6).reshape(2, 3)
    check_softmax(kernels.softmax(on_device(whole)), whole.astype("f8"), 1)


@given(arrays, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_normalisations(drawn: Any, weighted: bool, shifted: bool) -> None:
    """Along any axis, with and without weights and biases."""
    host, x, axis = make(drawn)
    rng, length = np.random.default_rng(2), host.shape[axis]
    weight, bias = (rng.standard_normal(length).astype(host.dtype) for _ in range(2))
    rows = np.moveaxis(host.astype("f8"), axis, -1)
    w, b = weight if weighted else 1.0, bias if shifted else 0.0
    layer = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-3) * w + b
    root = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-3) * w
    given_weight, given_bias = on_device(weight) if weighted else None, on_device(bias) if shifted else None
    found = kernels.layer_norm(x, given_weight, given_bias, axis=axis, eps=1e-3)
    check(found, np.moveaxis(layer, -1, axis), host.dtype, ULPS["norm"], 8)
    check(
        kernels.rms_norm(x, given_weight, axis=axis, eps=1e-3), np.moveaxis(root, -1, axis), host.dtype, ULPS["norm"], 8
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_half_precision(axis: int) -> None:
    """Stored in half precision, computed in single: some units in the last place of the largest result."""
    host = np.linspace(-3, 3, 60).reshape(3, 20).astype("f2")
    check(kernels.softmax(on_device(host), axis=axis), reference_softmax(host, axis), "f2", 4, 0.1)
    wide = host.astype("f8")
    layer = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-5)
    check(kernels.layer_norm(on_device(host), axis=axis), layer, "f2", 4, 1)


@pytest.mark.parametrize(("shift", "scale"), [(1000, 1), (-100, 1), (0, 1e-6), (0, 6e4)])
def test_half_precision_is_computed_with_in_single_precision(shift: float, scale: float) -> None:
    """The mean and the factor of a row need not be numbers that ``float16`` has."""
    host = (shift + scale * np.random.default_rng(7).uniform(-1, 1, (5, 40))).astype("f2")
    wide = host.astype("f8")
    layer = (wide - wide.mean(axis=1, keepdims=True)) / wide.std(axis=1, keepdims=True)
    root = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True))
    for found, expected in ((kernels.layer_norm, layer), (kernels.rms_norm, root)):
        np.testing.assert_allclose(found(on_device(host), eps=0.0).numpy_blocking(), expected, rtol=1e-3, atol=1e-3)


def test_variance_does_not_cancel() -> None:
    """A large mean takes no digits from the variance beyond those that the numbers lack."""
    host = 1e8 + np.random.default_rng(3).standard_normal((2, 1000))
    expected = (host - host.mean(1, keepdims=True)) / host.std(1, keepdims=True)
    np.testing.assert_allclose(kernels.layer_norm(on_device(host), eps=0).numpy_blocking(), expected, atol=1e-6)


def test_wrong_arguments_name_themselves() -> None:
    """What was expected, what was found."""
    x = on_device(np.ones((2, 3)))
    with pytest.raises(ValueError, match="softmax: axis 2"):
        kernels.softmax(x, axis=2)
    with pytest.raises(TypeError, match="complex128"):
        kernels.softmax(on_device(np.ones(3, "c16")))
    with pytest.raises(TypeError, match=r"argument x: .*asarray"):
        kernels.softmax(np.ones(3))
    with pytest.raises(ValueError, match=r"weight has the shape \(2,\), the axis the length 3"):
        kernels.layer_norm(x, on_device(np.ones(2)))
    with pytest.raises(TypeError, match="bias is float32"):
        kernels.layer_norm(x, bias=on_device(np.ones(3, "f4")))
    with pytest.raises(ValueError, match="out: expected the shape"):
        kernels.rms_norm(x, out=aiodev.empty(3, device="cpu"))
    with pytest.raises(ValueError, match="1 dimension"):
        kernels.softmax(on_device(1.0))


def test_cross_entropy() -> None:
    """Of classes along the last dimension: their mean, and one for each label; large scores do not overflow."""
    logits = np.random.default_rng(0).standard_normal((2, 3, 5)) * 1000
    labels = np.array([[0, 4, 2], [1, 1, -1]])
    low = logits - logits.max(-1, keepdims=True)
    expected = np.log(np.exp(low).sum(-1)) - np.take_along_axis(low, labels[..., None], -1)[..., 0]
    given = on_device(logits), on_device(labels)
    assert np.allclose(kernels.cross_entropy(*given, reduction="none").numpy_blocking(), expected)
    assert np.isclose(kernels.cross_entropy(*given).numpy_blocking(), expected.mean())
    assert np.isclose(kernels.cross_entropy(*given, reduction="sum").numpy_blocking(), expected.sum())


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_cross_entropy_ignores_a_label(dtype: str) -> None:
    """Whatever its scores are: it adds nothing, and is not counted; where all are ignored there is no mean."""
    ignored = 255 if dtype == "uint8" else -100
    logits = np.random.default_rng(0).standard_normal((2, 3, 5))
    labels = np.array([[0, ignored, 2], [1, ignored, ignored]], dtype)
    counts = labels != ignored
    given = on_device(logits), on_device(labels)
    every = kernels.cross_entropy(given[0], on_device(np.where(counts, labels, 0)), reduction="none").numpy_blocking()
    expected = np.where(counts, every, 0)
    for reduction, value in (("none", expected), ("sum", expected.sum()), ("mean", expected.sum() / counts.sum())):
        found = kernels.cross_entropy(*given, reduction=reduction, ignore_index=ignored).numpy_blocking()
        assert found.dtype == logits.dtype and np.allclose(found, value), reduction
    nothing = on_device(np.full((2, 3), ignored, dtype))
    assert np.isnan(kernels.cross_entropy(given[0], nothing, ignore_index=ignored).numpy_blocking())
    unseen = kernels.cross_entropy(*given, ignore_index=-7, reduction="sum") if dtype == "uint8" else None
    if unseen is not None:
        with pytest.raises(aiodev.DependencyError):  # 255 is no class either
            unseen.numpy_blocking()


@pytest.mark.parametrize(("labels", "options", "error"), [
    (np.zeros(2), {}, TypeError),
    (np.zeros(3, int), {}, ValueError),
    (np.zeros((2, 1), int), {}, ValueError),
    (np.zeros(2, int), {"reduction": "median"}, ValueError),
    (np.zeros(2, int), {"ignore_index": 0.5}, TypeError),
])  # fmt: skip
def test_what_cross_entropy_refuses(labels: np.ndarray, options: dict[str, Any], error: type[Exception]) -> None:
    """Labels that are no integers or do not fit, reductions that there are not, and labels to ignore that there cannot be."""
    with pytest.raises(error, match="cross_entropy: "):
        kernels.cross_entropy(on_device(np.ones((2, 3))), on_device(labels), **options)


def test_a_label_that_is_no_class() -> None:
    """It is told to who waits."""
    found = kernels.cross_entropy(on_device(np.ones((2, 3))), on_device(np.array([0, 3])))
    with pytest.raises(aiodev.DependencyError) as caught:
        found.numpy_blocking()
    error = caught.value.__cause__
    assert isinstance(error, aiodev.KernelError) and isinstance(error.__cause__, IndexError)
