"""The library's functions on bfloat16 arrays, next to ml_dtypes' on NumPy and to float32's and float64's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import some

import aiodev
from aiodev import kernels
from aiodev.kernels import linalg, random

B = np.dtype(ml_dtypes.bfloat16)
EVERY = np.arange(2**16, dtype=np.uint16).view(B)
#: The first of each list stand for the others by default: what differs between functions is tested for other dtypes.
UNARY = [
    "exp", "sqrt", "negative", "isnan", "round", "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil",
    "conj", "cos", "cosh", "exp2", "expm1", "floor", "isfinite", "isinf", "log", "log10", "log1p", "log2", "logical_not",
    "positive", "real", "reciprocal", "sign", "signbit", "sin", "sinh", "square", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = ["add", "copysign", "divide", "maximum", "minimum", "multiply", "subtract"]
COMPARISONS = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]
NUMPY = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh"}
NUMPY |= {"round": "rint", "atan2": "arctan2", "pow": "power"}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

patterns = hnp.arrays(np.uint16, st.integers(1, 40)).map(lambda bits: bits.view(B))


def on_device(host: Any) -> aiodev.Array:
    return aiodev.asarray(host, device="cpu")


def ordered(x: Any) -> Any:
    """Integers in the order of the numbers, neighbours next to each other."""
    bits = x.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def assert_same(found: Any, expected: Any, ulps: int = 0) -> None:
    """The same numbers, to so many units in the last place; NaN where NaN is."""
    assert found.dtype == expected.dtype == B
    missing = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), missing)
    distance = np.abs(ordered(found) - ordered(expected))
    assert (distance[~missing] <= ulps).all()


def normals(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(B)


@pytest.mark.parametrize("name", some(UNARY, 5))
def test_unary_functions_of_every_number(name: str) -> None:
    """All 65,536 are rounded from what the function is: the errors of float32 are far below bfloat16's last place."""
    found = getattr(kernels, name)(on_device(EVERY)).numpy_blocking()
    function = getattr(np, NUMPY.get(name, name))
    assert found.dtype == function(EVERY).dtype
    expected = function(EVERY.astype(np.float64))
    if found.dtype == bool:
        np.testing.assert_array_equal(found, expected)
    else:
        assert_same(found, expected.astype(B))


def test_relu_of_every_number() -> None:
    """NumPy has ``maximum``, which takes 0."""
    assert_same(kernels.relu(on_device(EVERY)).numpy_blocking(), np.maximum(EVERY, B.type(0)))


def test_expit_of_every_number() -> None:
    """NumPy has none."""
    expected = 1 / (1 + np.exp(-EVERY.astype(np.float64)))
    assert_same(kernels.expit(on_device(EVERY)).numpy_blocking(), expected.astype(B))


@pytest.mark.parametrize("name", some(BINARY, 3))
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_arithmetic(name: str, data: st.DataObject) -> None:
    """To the bit what ml_dtypes has, which computes in float32 and rounds, too."""
    x = data.draw(patterns)
    y = data.draw(hnp.arrays(np.uint16, x.shape)).view(B)
    assert_same(getattr(kernels, name)(on_device(x), on_device(y)).numpy_blocking(), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", some(COMPARISONS))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_comparisons(name: str, data: st.DataObject) -> None:
    """Of any numbers, zeros of both signs, infinities and NaN among them."""
    x = data.draw(patterns)
    y = np.where(data.draw(hnp.arrays(bool, x.shape)), x, data.draw(hnp.arrays(np.uint16, x.shape)).view(B))
    np.testing.assert_array_equal(
        getattr(kernels, name)(on_device(x), on_device(y)).numpy_blocking(), getattr(np, name)(x, y)
    )


@pytest.mark.parametrize("name", some(["pow", "floor_divide", "atan2", "hypot", "logaddexp", "remainder"], 2))
def test_functions_of_two_numbers(name: str) -> None:
    """Computed in float32, and rounded once."""
    x, y = normals(1000, seed=1), normals(1000, seed=2)
    x = np.abs(x) if name == "pow" else x
    wide = getattr(np, NUMPY.get(name, name))(x.astype(np.float32), y.astype(np.float32))
    assert_same(getattr(kernels, name)(on_device(x), on_device(y)).numpy_blocking(), wide.astype(B), ulps=1)


@pytest.mark.parametrize(
    "other", some(["f2", "f4", "i4", "c8", "b1", "i1", "u1", "i2", "u2", "u4", "i8", "u8", "f8", "c16"], 4)
)
@pytest.mark.parametrize("name", ["add", "where"])
def test_promotion_with_other_dtypes(name: str, other: str) -> None:
    """As of ml_dtypes: float32 with float16, which neither holds."""
    x, y = normals(50), np.arange(50).astype(other)
    found: Any
    if name == "where":
        mask = np.arange(50) % 3 == 0
        found = kernels.where(on_device(mask), on_device(x), on_device(y)).numpy_blocking()
        dtype = np.add(x, y).dtype
        expected = np.where(mask, x.astype(dtype), y.astype(dtype))
    else:
        found, expected = getattr(kernels, name)(on_device(x), on_device(y)).numpy_blocking(), getattr(np, name)(x, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype("c16"), expected.astype("c16"))


@pytest.mark.parametrize("number", [0.1, 3, True, np.float32(0.1), B.type(0.3)])
def test_numbers_beside_an_array(number: Any) -> None:
    """Python's are weak, and become bfloat16 first; so do they when the call is repeated."""
    x = normals(100)
    weak = isinstance(number, int | float) and not isinstance(number, np.generic)
    beside = B.type(number) if weak else number
    expected = np.multiply(x, beside)
    for _ in range(3):
        found = kernels.multiply(on_device(x), number).numpy_blocking()
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert kernels.multiply(on_device(x), 1j).dtype == np.complex64


def test_clip() -> None:
    """Bounds are numbers or arrays; NaN stays."""
    found = kernels.clip(on_device(EVERY), -1.5, 2).numpy_blocking()
    assert_same(found, np.minimum(np.maximum(EVERY, B.type(-1.5)), B.type(2)))


@pytest.mark.parametrize("dtype", ["b1", "i1", "u1", "i4", "u8", "f2", "f4", "f8", "c8", "bfloat16"])
def test_astype(dtype: str) -> None:
    """To and from every dtype."""
    x = np.abs(normals(200) * B.type(30))
    there = kernels.astype(on_device(x), dtype)
    assert there.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(there.numpy_blocking(), x.astype(dtype))
    if dtype != "c8":
        y = x.astype(dtype)
        np.testing.assert_array_equal(kernels.astype(on_device(y), B).numpy_blocking(), y.astype(B))


@pytest.mark.parametrize("shape, axis", [((40_000,), None), ((300, 70), 0), ((9,), 0)])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std", "any", "all"])
def test_reductions(name: str, shape: tuple[int, ...], axis: Any) -> None:
    """Rounded once: what is summed is summed wide, as of float16."""
    x = normals(*shape) if name != "prod" else (normals(*shape) * B.type(0.01) + B.type(1))
    found = getattr(kernels, name)(on_device(x), axis=axis).numpy_blocking()
    expected = getattr(np, name)(x.astype(np.float64), axis=axis)
    if name in ("any", "all"):
        np.testing.assert_array_equal(found, expected)
    else:
        assert_same(found, np.asarray(expected).astype(B), ulps=1)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name: str) -> None:
    """The first of equal ones, NaN before all."""
    x = normals(4, 1000)
    x[1, 700] = np.nan
    found = getattr(kernels, name)(on_device(x), axis=1).numpy_blocking()
    np.testing.assert_array_equal(found, getattr(np, name)(x.astype(np.float32), axis=1))


@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int) -> None:
    """Every running sum is rounded from a wide one."""
    x = normals(30, 2000)
    found = kernels.cumulative_sum(on_device(x), axis=axis).numpy_blocking()
    assert_same(found, np.cumsum(x.astype(np.float64), axis=axis).astype(B), ulps=1)


@pytest.mark.parametrize("length", [7, 300, 20_000])
def test_sorting(length: int) -> None:
    """Rows of all lengths, and the places of what is sorted; NaN comes last."""
    x = EVERY[np.random.default_rng(0).permutation(EVERY.size)][:length]
    found, wide = kernels.sort(on_device(x)).numpy_blocking(), x.astype(np.float32)
    assert_same(found, np.sort(wide).astype(B))
    places = kernels.argsort(on_device(x)).numpy_blocking()
    np.testing.assert_array_equal(places, np.argsort(wide, kind="stable"))
    clean = np.sort(wide[~np.isnan(wide)])
    at = kernels.searchsorted(on_device(clean.astype(B)), on_device(x[~np.isnan(wide)])).numpy_blocking()
    np.testing.assert_array_equal(at, np.searchsorted(clean, wide[~np.isnan(wide)]))


@pytest.mark.anyio
async def test_unique_and_histogram() -> None:
    """What is built on sorting, and on edges that are float64."""
    x = np.round(normals(5000) * B.type(4)).astype(B)
    different = await kernels.unique_values(on_device(x))
    np.testing.assert_array_equal(different.numpy_blocking(), np.unique(x.astype("f4")).astype(B))
    counts, edges = kernels.histogram(on_device(x), 20, range=(-10, 10))
    expected, at = np.histogram(x.astype(np.float64), 20, range=(-10, 10))
    np.testing.assert_array_equal(counts.numpy_blocking(), expected)
    np.testing.assert_allclose(edges.numpy_blocking(), at)


@pytest.mark.parametrize("shape", [(8,), (40, 100), (3, 5000), (2, 9000), (400, 20)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_normalization(name: str, shape: tuple[int, ...]) -> None:
    """Computed in float32 along an axis, rounded where it is stored."""
    x = normals(*shape)
    wide = x.astype(np.float64)
    if "softmax" in name:
        shifted = wide - wide.max(-1, keepdims=True)
        sums = np.exp(shifted).sum(-1, keepdims=True)
        expected = shifted - np.log(sums) if name == "log_softmax" else np.exp(shifted) / sums
    elif name == "layer_norm":
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    else:
        expected = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    found = getattr(kernels, name)(on_device(x)).numpy_blocking()
    assert found.dtype == B
    np.testing.assert_allclose(found.astype("f8"), expected, rtol=2**-7, atol=2**-9 if name != "softmax" else 0)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((70, 300), (300, 90)), ((2, 40, 50), (50, 30)), ((500,), (500, 20))])
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Summed in float32, and rounded once."""
    x, y = normals(*shapes[0], seed=1), normals(*shapes[1], seed=2)
    found = kernels.matmul(on_device(x), on_device(y)).numpy_blocking()
    exact = x.astype("f8") @ y.astype("f8")
    assert found.dtype == B
    np.testing.assert_allclose(found.astype("f8"), exact, rtol=2**-8, atol=1e-5 * shapes[0][-1])


def test_float16_products_are_summed_in_float32() -> None:
    """As those of bfloat16: sums of thousands keep the digits that float16 has."""
    x, y = (np.abs(np.random.default_rng(n).standard_normal(4096)).astype("f2") for n in (1, 2))
    exact = float(x.astype("f8") @ y.astype("f8"))
    found = kernels.matmul(on_device(x[None]), on_device(y[:, None])).numpy_blocking()
    assert abs(float(found[0, 0]) - exact) <= exact * 2**-11


def test_dots_and_norms() -> None:
    """Vectors, long ones too, whose parts are summed apart."""
    x, y = normals(3, 70_000, seed=1), normals(3, 70_000, seed=2)
    exact = (x.astype("f8") * y.astype("f8")).sum(-1)
    found = kernels.vecdot(on_device(x), on_device(y)).numpy_blocking()
    np.testing.assert_allclose(found.astype("f8"), exact, rtol=2**-8, atol=1e-2)
    for order in (1, 2, 3.3, np.inf):
        norm = linalg.vector_norm(on_device(x), axis=1, ord=order).numpy_blocking()
        np.testing.assert_allclose(norm.astype("f8"), np.linalg.norm(x.astype("f8"), order, axis=1), rtol=2**-8)


def test_moves() -> None:
    """What is only moved keeps its bits, those of NaN too."""
    bits = EVERY.view(np.uint16)
    x, plane, few = on_device(EVERY), bits.reshape(256, 256), bits[-100:]
    square, short = x.reshape(256, 256), on_device(EVERY[-100:])
    tenth = B.type(0.1).view(np.uint16)
    for found, expected in [
        (kernels.concat([x, x]), np.tile(bits, 2)),
        (kernels.concat([short, short[::-1]]), np.concatenate([few, few[::-1]])),
        (kernels.roll(square, 3, axis=1), np.roll(plane, 3, axis=1)),
        (kernels.take(x, on_device([5, 65535, 0x7F81])), np.array([5, 65535, 0x7F81])),
        (kernels.pad(x[:100], 2, constant_values=0.1), np.pad(bits[:100], 2, constant_values=tenth)),
        (square.T.reshape(65536), plane.T.ravel()),
    ]:
        np.testing.assert_array_equal(found.numpy_blocking().view(np.uint16), expected)


def test_writes() -> None:
    """Elements are put, and added to where several indices are one place."""
    x = aiodev.zeros(10, B, "cpu")
    kernels.put(x, on_device([1, 3]), 0.1)
    assert x.numpy_blocking()[3] == B.type(0.1)
    sums = aiodev.zeros(4, B, "cpu")
    kernels.scatter_add(sums, on_device(np.arange(200) % 4), on_device(np.ones(200, B)))
    np.testing.assert_array_equal(sums.numpy_blocking().astype("f4"), [50] * 4)


def test_fused_functions() -> None:
    """Computed in float32 throughout; the result's dtype is what promotion gives."""
    fused = kernels.fused(lambda a, x, y: a * x + np.exp(y))
    x, y = normals(500, seed=1), normals(500, seed=2)
    found = fused(0.5, on_device(x), on_device(y)).numpy_blocking()
    expected = np.float32(0.5) * x.astype("f4") + np.exp(y.astype("f4"))
    assert_same(found, expected.astype(B), ulps=1)
    assert fused(0.5, on_device(x), on_device(y.astype("f2"))).dtype == np.float32


@pytest.mark.parametrize("name", ["random", "standard_normal", "exponential"])
def test_random_numbers(name: str) -> None:
    """Those of float32, rounded; uniform ones from as many bits of the same words as there are digits."""

    def draw(dtype: Any) -> Any:
        return getattr(random, name)(10_000, dtype=dtype, generator=aiodev.Generator("cpu").manual_seed(3)).numpy_blocking()

    found, single = draw(B), draw("f4")
    expected = np.floor(single * 256) / 256 if name == "random" else single
    assert_same(found, expected.astype(B))
    assert name != "random" or (found.astype("f4").max() < 1 and len(np.unique(found.view("u2"))) == 256)


def test_other_distributions() -> None:
    """Bounds are kept, and counts that bfloat16 has no room for are refused."""
    g = aiodev.Generator("cpu").manual_seed(1)
    x = random.uniform(1, 2, 5000, dtype=B, generator=g).numpy_blocking().astype("f4")
    assert x.min() >= 1 and x.max() < 2
    assert random.normal(3, 0.5, 1000, dtype=B, generator=g).numpy_blocking().astype("f4").mean() == pytest.approx(3, abs=0.1)
    assert random.bernoulli(0.5, 10, dtype=B, generator=g).dtype == B
    with pytest.raises(ValueError, match="may be too large for bfloat16, which counts up to 256"):
        random.poisson(200, 10, dtype=B, generator=g)


def test_what_is_not_defined() -> None:
    """Errors name the dtype."""
    x = on_device(normals(3))
    with pytest.raises(TypeError, match="bitwise_and: not defined for bfloat16"):
        kernels.bitwise_and(x, x)
    with pytest.raises(TypeError, match="nextafter: bfloat16 is computed with in float32"):
        kernels.nextafter(x, x)
