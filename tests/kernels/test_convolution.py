"""Convolution and pooling against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.nn import convolution, tiles
from aiodev.kernels.nn.pooling import avg_pool2d_of_input, largest_of_windows, max_pool2d_of_input
from aiodev.testing import SimulatedBackend

Options = dict[str, Any]

if "sim" not in aiodev.available_backends():
    aiodev.register_backend("sim", SimulatedBackend)


def on_device(host: Any, device: str = "cpu") -> aiodev.Array:
    return aiodev.asarray(np.asarray(host), device=device)


def seen(x: Any, window: Any, stride: Any, padding: Any, dilation: Any, fill: float = 0.0) -> Any:
    """What each tap of a window sees: (images, channels, taps, lines, columns)."""
    height, width = x.shape[2:]
    lines, columns = (
        (size + 2 * pad - gap * (own - 1) - 1) // step + 1
        for size, pad, gap, own, step in zip((height, width), padding, dilation, window, stride, strict=True)
    )
    taps = np.full((*x.shape[:2], window[0] * window[1], lines, columns), fill, x.dtype)
    for p in range(window[0]):
        for q in range(window[1]):
            i = np.arange(lines) * stride[0] + p * dilation[0] - padding[0]
            j = np.arange(columns) * stride[1] + q * dilation[1] - padding[1]
            y, z = (i >= 0) & (i < height), (j >= 0) & (j < width)
            taps[:, :, p * window[1] + q, y[:, None] & z] = x[:, :, i[y][:, None], j[z]].reshape(*x.shape[:2], -1)
    return taps


def convolved(x: Any, weight: Any, bias: Any, options: Options) -> Any:
    """The definition, in double precision."""
    groups = options["groups"]
    taps = seen(x, weight.shape[2:], options["stride"], options["padding"], options["dilation"])
    taps = taps.reshape(x.shape[0], groups, weight.shape[1], *taps.shape[2:])
    own = weight.astype(float).reshape(groups, -1, *weight.shape[1:2], weight.shape[2] * weight.shape[3])
    found = np.einsum("ngctij,grct->ngrij", taps, own).reshape(x.shape[0], len(weight), *taps.shape[-2:])
    return found + bias.astype(float)[:, None, None]


def options_of(draw: Callable[..., Any]) -> Options:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return {
        "stride": draw(pair), "dilation": draw(pair), "padding": draw(st.tuples(st.integers(0, 3), st.integers(0, 3))),
        "groups": draw(st.sampled_from([1, 1, 2, 3])),
    }  # fmt: skip


def operands_of(data: st.DataObject, sizes: list[int]) -> tuple[Any, Any, Any, Options]:
    """Images, windows that fit into them, a bias, and options."""
    options = options_of(data.draw)
    channels, rows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    size = tuple(data.draw(st.sampled_from(sizes)) for _ in range(2))
    window = tuple(data.draw(st.integers(1, 4)) for _ in range(2))
    least = [gap * (own - 1) + 1 for gap, own in zip(options["dilation"], window, strict=True)]
    assume(all(n + 2 * pad >= own for n, pad, own in zip(size, options["padding"], least, strict=True)))
    groups = options["groups"]
    random = np.random.default_rng(rows)
    images = data.draw(st.sampled_from([1, 2, 19]))
    shapes = (images, groups * channels, *size), (groups * rows, channels, *window), (groups * rows,)
    return *(random.standard_normal(shape) for shape in shapes), options  # type: ignore[return-value]


def check_all(x: Any, weight: Any, bias: Any, options: Options, device: str) -> None:
    """The convolution is its definition, and what goes back is its transpose, in each operand."""
    there = [on_device(host, device) for host in (x, weight, bias)]
    expected = convolved(x, weight, bias, options)
    found = kernels.conv2d(*there, **options)
    np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=1e-11, atol=1e-11)
    random = np.random.default_rng(5)
    grads, other, window = (random.standard_normal(shape) for shape in (expected.shape, x.shape, weight.shape))
    back = convolution.conv2d_of_input(on_device(grads, device), there[1], size=x.shape[2:], **options)
    none = np.zeros(len(weight))
    assert np.isclose((back.numpy_blocking() * other).sum(), (grads * convolved(other, weight, none, options)).sum())
    back = convolution.conv2d_of_weight(on_device(grads, device), there[0], window=weight.shape[2:], **options)
    assert np.isclose((back.numpy_blocking() * window).sum(), (grads * convolved(x, window, none, options)).sum())


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_convolutions(data: st.DataObject) -> None:
    """Of images that are smaller than a tile, or larger in one direction or both, with any options."""
    check_all(*operands_of(data, [1, 3, 5, 8, 14, 33, 70, 600]), "cpu")


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_convolutions_that_are_shared(data: st.DataObject) -> None:
    """Among many indices, with tiles as small as they become; parts of a gradient are of tiles, and of rows."""
    with mock.patch.multiple(tiles, CORRELATED_EACH=64, TILE_SIGNALS=1, TILES=3, CORRELATED_PARTS=200):
        tiles.forward_tiling.cache_clear()
        tiles.backward_tiling.cache_clear()
        convolution.conv2d.operation.forget()
        check_all(*operands_of(data, [3, 5, 14, 33]), "cpu")
    for name in ("conv2d", "conv2d_of_input", "conv2d_of_weight"):
        getattr(convolution, name).operation.forget()
    tiles.forward_tiling.cache_clear()
    tiles.backward_tiling.cache_clear()


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_convolutions_as_products(data: st.DataObject) -> None:
    """Where each element has a thread, windows are columns of matrices; as many images at a time as there is memory for."""
    with mock.patch.object(convolution, "WINDOW_COLUMNS", data.draw(st.sampled_from([1, 1 << 20]))):
        for name in ("conv2d", "conv2d_of_input", "conv2d_of_weight"):
            getattr(convolution, name).operation.forget()
        check_all(*operands_of(data, [3, 5, 8]), "sim")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_precision(dtype: str) -> None:
    """What is stored in two bytes is summed in single precision: the error is of rounding the result."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    random = np.random.default_rng(3)
    x, weight, bias = (random.standard_normal(shape).astype(kind) for shape in ((3, 8, 9, 9), (6, 8, 3, 3), (6,)))
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    there = [on_device(host) for host in (x, weight, bias)]
    found = kernels.conv2d(*there, padding=1)
    assert found.dtype == kind
    eps, summed = float(ml_dtypes.finfo(kind).eps), float(np.finfo("f8" if dtype == "float64" else "f4").eps)
    expected = convolved(x.astype(float), weight.astype(float), bias, options)
    np.testing.assert_allclose(found.numpy_blocking().astype(float), expected, rtol=eps, atol=200 * summed)
    grads = random.standard_normal(found.shape).astype(kind)
    back = convolution.conv2d_of_weight(on_device(grads), there[0], window=(3, 3), **options)
    taps = seen(x.astype(float), (3, 3), (1, 1), (1, 1), (1, 1))
    expected = np.einsum("nrij,nctij->rct", grads.astype(float), taps).reshape(weight.shape)
    assert back.dtype == kind
    np.testing.assert_allclose(back.numpy_blocking().astype(float), expected, rtol=eps, atol=1000 * summed)


def test_convolution_repeats_to_the_bit() -> None:
    """Whoever computes the tiles: sums, those of the weights' gradient too, are in one order."""
    random = np.random.default_rng(0)
    x, weight, grads = (
        on_device(random.standard_normal(shape).astype("f4")) for shape in ((40, 16, 8, 8), (32, 16, 3, 3), (40, 32, 8, 8))
    )
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    found = {
        (
            kernels.conv2d(x, weight, padding=1).numpy_blocking().tobytes(),
            convolution.conv2d_of_input(grads, weight, size=(8, 8), **options).numpy_blocking().tobytes(),
            convolution.conv2d_of_weight(grads, x, window=(3, 3), **options).numpy_blocking().tobytes(),
        )
        for _ in range(5)
    }
    assert len(found) == 1


def test_convolution_of_views_into_views() -> None:
    """Operands with gaps are packed, and a result with gaps is filled."""
    random = np.random.default_rng(0)
    x, weight = random.standard_normal((4, 6, 7, 3)), random.standard_normal((3, 5, 4, 4))
    out = aiodev.zeros((4, 5, 4, 12), device="cpu")
    views = on_device(x).transpose(0, 3, 1, 2), on_device(weight).transpose(1, 0, 2, 3)[:, :, ::2, ::2]
    found = kernels.conv2d(*views, padding=(0, 1), dilation=(2, 1), out=out[:, :, :, 1:9])
    options = {"stride": (1, 1), "padding": (0, 1), "dilation": (2, 1), "groups": 1}
    expected = convolved(x.transpose(0, 3, 1, 2), weight.transpose(1, 0, 2, 3)[:, :, ::2, ::2], np.zeros(5), options)
    np.testing.assert_allclose(found.numpy_blocking(), expected)
    assert not out.numpy_blocking()[:, :, :, [0, 9, 10, 11]].any()


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_steps_that_are_larger_than_all_else(device: str) -> None:
    """Cost no memory for what no window sees."""
    random = np.random.default_rng(0)
    options = {"stride": (10**6, 7), "padding": (10**6, 9), "dilation": (1, 1), "groups": 1}
    check_all(*(random.standard_normal(shape) for shape in ((2, 2, 5, 5), (3, 2, 3, 3), (3,))), options, device)


def test_no_images() -> None:
    """Give no results, and windows' gradients that are 0."""
    x, weight = aiodev.empty((0, 2, 5, 5), device="cpu"), aiodev.ones((3, 2, 3, 3), device="cpu")
    assert kernels.conv2d(x, weight).shape == (0, 3, 3, 3)
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    back = convolution.conv2d_of_weight(aiodev.empty((0, 3, 3, 3), device="cpu"), x, window=(3, 3), **options)
    assert not back.numpy_blocking().any()
    assert kernels.max_pool2d(x, 2).shape == kernels.avg_pool2d(x, 2).shape == (0, 2, 2, 2)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 3, 5), (1, 3, 3, 3)), {}, "argument x: expected 4 dimensions"),
        (((2, 3, 5, 5), (1, 3, 3)), {}, "argument weight: expected 4 dimensions"),
        (((2, 3, 5, 5), (1, 2, 3, 3)), {}, "with groups=1"),
        (((2, 4, 5, 5), (3, 2, 3, 3)), {"groups": 2}, "a multiple of that many windows"),
        (((2, 3, 5, 5), (1, 3, 6, 3)), {}, "the window \\(6, 3\\) is larger"),
        (((2, 3, 5, 5), (1, 3, 3, 3)), {"stride": 0}, "stride: expected 1 or more, got 0"),
        (((2, 3, 5, 5), (1, 3, 3, 3)), {"stride": 10**30}, "stride: expected 2147483647 or less"),
        (((2, 3, 5, 5), (1, 3, 3, 3)), {"padding": -1}, "padding: expected 0 or more, got -1"),
        (((2, 3, 5, 5), (1, 3, 3, 3)), {"dilation": (1, 2, 3)}, "an integer, or one for lines and one for columns"),
        (((2, 3, 5, 5), (1, 3, 3, 3)), {"groups": 0}, "groups: expected 1 or more"),
        (((2, 3, 5, 5), (1, 3, 3, 3), (2,)), {}, "bias has the shape"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, options: Options, message: str) -> None:
    """Are told, with what was expected."""
    with pytest.raises(ValueError, match=message):
        kernels.conv2d(*(aiodev.ones(shape, device="cpu") for shape in shapes), **options)


def test_dtypes_that_do_not_fit() -> None:
    """Numbers are of floating point, and all of one dtype."""
    x, weight = aiodev.ones((1, 1, 3, 3), device="cpu"), aiodev.ones((1, 1, 2, 2), device="cpu")
    whole = kernels.astype(x, "int64")
    with pytest.raises(TypeError, match="floating point, got int64"):
        kernels.conv2d(whole, weight)
    with pytest.raises(TypeError, match="weight is float32, x float64"):
        kernels.conv2d(x, kernels.astype(weight, "float32"))
    with pytest.raises(TypeError, match="stride 1.5: expected an integer"):
        kernels.conv2d(x, weight, stride=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="floating point, got int64"):
        kernels.avg_pool2d(whole, 2)


# Pooling


def pooled(x: Any, options: Options, reduce: Callable[..., Any], fill: float) -> Any:
    taps = seen(x, options["kernel_size"], options["stride"], options["padding"], options["dilation"], fill)
    return reduce(taps, axis=2)


def pooling_of(data: st.DataObject) -> tuple[Any, Options]:
    window = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)) | st.just((2, 2)))
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3)) | st.just((2, 2))
    options = {
        "kernel_size": window, "stride": data.draw(pair), "dilation": data.draw(pair | st.just((1, 1))),
        "padding": tuple(data.draw(st.integers(0, own // 2)) for own in window),
    }  # fmt: skip
    size = tuple(data.draw(st.sampled_from([2, 4, 5, 9])) for _ in range(2))
    least = [gap * (own - 1) + 1 for gap, own in zip(options["dilation"], window, strict=True)]
    assume(all(n + 2 * pad >= own for n, pad, own in zip(size, options["padding"], least, strict=True)))
    # With padding and dilation a window may see padding alone: then there is no largest element.
    assume(options["dilation"] == (1, 1) or options["padding"] == (0, 0))
    return np.random.default_rng(1).integers(-4, 4, (data.draw(st.sampled_from([1, 30])), 2, *size)).astype(float), options


def places_of_largest(x: Any, options: Options) -> Any:
    """The place, among all elements, of the first largest one of each window; a NaN is larger than all."""
    own = options["kernel_size"], options["stride"], options["padding"], options["dilation"]
    places = seen(np.arange(x.size).reshape(x.shape), *own, -1).astype(int)
    found = places[:, :, 0].copy()
    for at in np.ndindex(found.shape):
        inside = [place for place in places[(*at[:2], slice(None), *at[2:])] if place >= 0]
        found[at] = max(inside, key=lambda place: (np.isnan(x.flat[place]), x.flat[place], -place))
    return found


@pytest.mark.parametrize("device", ["cpu", "sim"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_largest_of_windows(device: str, data: st.DataObject) -> None:
    """And where the first of them is, by which gradients go back; a NaN is larger than all."""
    x, options = pooling_of(data)
    x[x == 3] = data.draw(st.sampled_from([3, np.inf, -np.inf]))
    x[x == 2] = data.draw(st.sampled_from([2, np.nan]))
    there, places = on_device(x, device), places_of_largest(np.where(np.isnan(x), np.inf, x), options)
    if not np.isnan(x).any():
        found = kernels.max_pool2d(there, **options)
        np.testing.assert_array_equal(found.numpy_blocking(), x.ravel()[places])
        grads = np.random.default_rng(2).standard_normal(places.shape)
        own = np.arange(x.size, dtype=float).reshape(x.shape)
        np.testing.assert_array_equal(largest_of_windows(on_device(own, device), there, **options).numpy_blocking(), places)
        back = np.zeros(x.size)
        np.add.at(back, places.ravel(), grads.ravel())
        found = max_pool2d_of_input(on_device(grads, device), there, **options)
        np.testing.assert_allclose(found.numpy_blocking(), back.reshape(x.shape), atol=1e-12)
    else:
        own = options["kernel_size"], options["stride"], options["padding"], options["dilation"]
        has = np.isnan(seen(x, *own, -np.inf)).any(axis=2)
        assert (np.isnan(kernels.max_pool2d(there, **options).numpy_blocking()) == has).all()


@pytest.mark.parametrize("device", ["cpu", "sim"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), include=st.booleans())
def test_means_of_windows(device: str, data: st.DataObject, include: bool) -> None:
    """With or without the padding; what goes back is the transpose."""
    x, options = pooling_of(data)
    options["dilation"] = 1, 1
    own = {name: value for name, value in options.items() if name != "dilation"}
    count = pooled(np.ones_like(x), options, np.sum, 1.0 if include else 0.0)
    expected = pooled(x, options, np.sum, 0.0) / count
    found = kernels.avg_pool2d(on_device(x, device), **own, count_include_pad=include)
    np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=1e-12)
    grads, other = np.random.default_rng(2).standard_normal(expected.shape), np.random.default_rng(3).standard_normal(x.shape)
    back = avg_pool2d_of_input(on_device(grads, device), size=x.shape[2:], **own, count_include_pad=include)
    assert np.isclose((back.numpy_blocking() * other).sum(), (grads * pooled(other, options, np.sum, 0.0) / count).sum())


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("size", [(4, 6), (5, 7)])
def test_means_of_halves(size: tuple[int, int], dtype: str) -> None:
    """Windows of two by two, side by side: no element beyond the last whole one has a gradient; half precision rounds once."""
    random = np.random.default_rng(4)
    x = random.integers(-1000, 1000, (3, 2, *size)).astype(dtype)
    blocks = x[..., :4, :6].reshape(3, 2, 2, 2, 3, 2).astype("f8")
    expected = blocks.mean((3, 5)).astype(dtype)
    assert (kernels.avg_pool2d(on_device(x), 2).numpy_blocking() == expected).all()
    grads = random.standard_normal(expected.shape).astype(dtype)
    whole = np.zeros_like(x)
    whole[..., :4, :6] = np.repeat(np.repeat(grads / 4, 2, 2), 2, 3)
    options: dict[str, Any] = {"kernel_size": 2, "stride": None, "padding": 0, "count_include_pad": True}
    back = avg_pool2d_of_input(on_device(grads), size=size, **options)
    np.testing.assert_allclose(back.numpy_blocking(), whole.astype(dtype), 1e-3 if dtype == "f2" else 0)


@pytest.mark.parametrize("function", [kernels.max_pool2d, kernels.avg_pool2d])
def test_windows_that_do_not_fit(function: Any) -> None:
    """Are told."""
    x = aiodev.ones((1, 1, 3, 3), device="cpu")
    with pytest.raises(ValueError, match="expected 4 dimensions"):
        function(x[0], 2)
    with pytest.raises(ValueError, match="larger than the padded images"):
        function(x, 4)
    with pytest.raises(ValueError, match="half of a window"):
        function(x, 2, padding=2)
    with pytest.raises(ValueError, match="stride: expected 1 or more"):
        function(x, 2, stride=0)
    with pytest.raises(TypeError, match="kernel_size 'two': expected an integer"):
        function(x, "two")
