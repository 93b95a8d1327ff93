"""Functions of the library that are called again and again: every call is computed from its own arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparing import on_device
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
import aiodev.kernels as kernels

HostArray = np.ndarray[Any, Any]


def _softmax(x: HostArray, axis: int) -> HostArray:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=axis, keepdims=True))


#: Ours with an output, and NumPy's.
_CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "twice": (lambda x, out: kernels.add(x, x, out=out), lambda x: x + x),
    "less": (lambda x, out: kernels.subtract(2.0, x, out=out), lambda x: 2.0 - x),
    "sum": (lambda x, out: kernels.sum(x, out=out), np.sum),
    "sums": (lambda x, out: kernels.sum(x, axis=-1, out=out), lambda x: x.sum(axis=-1)),
    "kept": (
        lambda x, out: kernels.sum(x, axis=-1, keepdims=True, out=out),
        lambda x: x.sum(axis=-1, keepdims=True),
    ),
    "place": (lambda x, out: kernels.argmax(x, axis=-1, out=out), lambda x: x.argmax(axis=-1)),
    "var": (lambda x, out: kernels.var(x, axis=-1, out=out), lambda x: x.var(axis=-1)),
    "var, corrected": (
        lambda x, out: kernels.var(x, axis=-1, correction=1, out=out),
        lambda x: x.var(axis=-1, ddof=1),
    ),
    "places in columns": (lambda x, out: kernels.argmin(x, axis=0, out=out), lambda x: x.argmin(axis=0)),
    "var of columns": (lambda x, out: kernels.var(x, axis=0, out=out), lambda x: x.var(axis=0)),
    "norms of columns": (
        lambda x, out: kernels.linalg.vector_norm(x, axis=0, ord=1, out=out),
        lambda x: np.linalg.norm(x, axis=0, ord=1),
    ),
    "layer norm of columns": (
        lambda x, out: kernels.layer_norm(x, axis=0, eps=0.5, out=out),
        lambda x: (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 0.5),
    ),
    "softmax": (lambda x, out: kernels.softmax(x, out=out), lambda x: _softmax(x, -1)),
    "softmax of columns": (lambda x, out: kernels.softmax(x, axis=0, out=out), lambda x: _softmax(x, 0)),
    "square": (lambda x, out: kernels.matmul(x, x, out=out), lambda x: x @ x),
    "by a vector": (lambda x, out: kernels.matmul(x, x[0], out=out), lambda x: x @ x[0]),
    "of a vector": (lambda x, out: kernels.matmul(x[1], x, out=out), lambda x: x[1] @ x),
    "dots": (lambda x, out: kernels.vecdot(x, x, out=out), lambda x: (x * x).sum(-1)),
    "running sums": (
        lambda x, out: kernels.cumulative_sum(x, axis=-1, out=out),
        lambda x: np.cumsum(x, axis=-1),
    ),
    "running sums down": (
        lambda x, out: kernels.cumulative_sum(x, axis=0, out=out),
        lambda x: np.cumsum(x, axis=0),
    ),
    "running sums before": (
        lambda x, out: kernels.cumulative_sum(x, axis=-1, exclusive=True, out=out),
        lambda x: np.cumsum(x, axis=-1) - x,
    ),
    "sorted": (lambda x, out: kernels.sort(x, out=out), lambda x: np.sort(x)),
    "sorted columns": (lambda x, out: kernels.sort(x, axis=0, out=out), lambda x: np.sort(x, axis=0)),
    "order": (lambda x, out: kernels.argsort(x, out=out), lambda x: np.argsort(x)),
    "norms": (
        lambda x, out: kernels.linalg.vector_norm(x, axis=-1, out=out),
        lambda x: np.linalg.norm(x, axis=-1),
    ),
}
_VIEWS: dict[str, Callable[[HostArray], HostArray]] = {
    "line": lambda x: x.reshape(-1),
    "matrix": lambda x: x,
    "transposed": lambda x: x.T,
    "flipped": lambda x: x[::-1],
    "part": lambda x: x[:3, 1:4],
    "row": lambda x: x[2],
    "column": lambda x: x[:, 2],
    "one": lambda x: x[:1, :1],
}


@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
@given(st.lists(st.tuples(st.sampled_from(sorted(_CALLS)), st.sampled_from(sorted(_VIEWS))), min_size=3, max_size=15))
@settings(deadline=None, max_examples=examples(40))
def test_no_call_takes_anothers_plan(calls: list[tuple[str, str]]) -> None:
    """Of any functions, arguments and views in any order, each several times: NumPy's results."""
    for turn, (name, kind) in enumerate(calls * 3):
        ours, numpys = _CALLS[name]
        whole = np.random.default_rng(turn).uniform(-1, 1, (5, 5)).astype("f4")
        host = _VIEWS[kind](whole)
        if name in ("kept", "square", "by a vector", "of a vector") and (host.ndim == 1 or len(set(host.shape)) > 1):
            continue
        if name == "of a vector" and len(host) == 1:
            continue
        with np.errstate(all="ignore"):
            expected = np.asarray(numpys(host))
        x = _VIEWS[kind](on_device(whole))
        out = aiodev.zeros(expected.shape, expected.dtype, "cpu")
        assert ours(x, out) is out
        np.testing.assert_allclose(out.numpy_blocking(), expected, rtol=1e-5, atol=1e-5, err_msg=f"{name} of {kind}")
        new = ours(x, None)
        assert new is not out and (new.shape, new.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(new.numpy_blocking(), out.numpy_blocking(), err_msg=f"{name} of {kind}")
        if expected.shape == host.shape and expected.ndim == 2:  # what has gaps is written to where it is
            frame = aiodev.zeros((9, 9), expected.dtype, "cpu")
            window = frame[1 : 1 + host.shape[0], 2 : 2 + host.shape[1]]
            assert ours(x, window) is window
            np.testing.assert_allclose(window.numpy_blocking(), expected, rtol=1e-5, atol=1e-5)
            assert np.count_nonzero(frame.numpy_blocking()) <= host.size


@given(st.lists(st.tuples(st.sampled_from([None, "weight", "both"]), st.sampled_from([1e-5, 0.5])), max_size=9))
@settings(deadline=None, max_examples=examples(20))
def test_norms_with_and_without_factors(calls: list[tuple[str | None, float]]) -> None:
    """Each call has its own weight, bias and eps."""
    generator = np.random.default_rng(0)
    for given_factors, eps in calls:
        host, weight, bias = (generator.uniform(-1, 1, shape).astype("f4") for shape in ((3, 4), 4, 4))
        factors = {"weight": [weight], "both": [weight, bias], None: []}[given_factors]
        normal = (host - host.mean(-1, keepdims=True)) / np.sqrt(host.var(-1, keepdims=True) + eps)
        normal = normal * weight if factors else normal
        normal = normal + bias if len(factors) == 2 else normal
        out = aiodev.zeros((3, 4), "f4", "cpu")
        kernels.layer_norm(on_device(host), *map(on_device, factors), eps=eps, out=out)
        np.testing.assert_allclose(out.numpy_blocking(), normal, rtol=1e-5, atol=1e-5)
        root = host / np.sqrt((host * host).mean(-1, keepdims=True) + eps)
        kernels.rms_norm(on_device(host), *map(on_device, factors[:1]), eps=eps, out=out)
        np.testing.assert_allclose(out.numpy_blocking(), root * weight if factors else root, rtol=1e-5, atol=1e-5)


def test_reductions_by_two_launches() -> None:
    """Of lengths with as many parts, of columns, with and without an output, with one that has gaps, again and again."""
    rng = np.random.default_rng(5)
    gapped = aiodev.zeros((300, 2), "f4", "cpu")
    for _ in range(4):
        for shape, axis in [((70_000,), None), ((70_001,), None), ((2, 50_000), 1), ((500, 300), 0), ((501, 300), 0)]:
            host = rng.uniform(0, 1, shape).astype("f4")
            x, expected = on_device(host), host.mean(axis=axis, dtype="f8")
            out = aiodev.empty(expected.shape, "f4", "cpu")
            for found in (kernels.mean(x, axis=axis), kernels.mean(x, axis=axis, out=out)):
                assert np.allclose(found.numpy_blocking(), expected, rtol=1e-6)
            assert np.array_equal(kernels.max(x, axis=axis).numpy_blocking(), host.max(axis=axis))
            if expected.shape == (300,):
                assert np.allclose(kernels.mean(x, axis=axis, out=gapped[:, 0]).numpy_blocking(), expected, rtol=1e-6)
                assert not gapped[:, 1].numpy_blocking().any()


def test_parts_of_one_type_are_of_arrays_of_several() -> None:
    """Sums of both floats are made of double ones, and extremes of small integers, and of floats, of others."""
    rng = np.random.default_rng(7)
    for kind in ("f8", "f4", "i4", "i8") * 3:
        for shape, axis in (((40_000,), None), ((500, 20), 0)):
            host = rng.integers(0, 100, shape).astype(kind)
            x = on_device(host)
            for ours, numpys in ((kernels.sum, np.sum), (kernels.max, np.max)):
                expected = numpys(host, axis=axis)
                found = ours(x, axis=axis).numpy_blocking()
                assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_histograms_again_and_again() -> None:
    """Each with its own elements, range and edges, which are the caller's to write to."""
    rng = np.random.default_rng(6)
    for turn in range(3):
        for size, bins in [(1000, 10), (1000, 7), (1, 10), (0, 10), (1001, 10)]:
            for limits in (None, (-1.0, 1.0 + turn), (0, 2)):
                for host in (rng.normal(size=size), rng.integers(-3, 3, size)):
                    expected, ends = np.histogram(host, bins, limits)
                    found, edges = kernels.histogram(on_device(host), bins, range=limits)
                    assert np.array_equal(found.numpy_blocking(), expected)
                    assert np.allclose(edges.numpy_blocking(), ends, rtol=1e-14, atol=1e-14)
                    assert limits is None or np.array_equal(edges.numpy_blocking(), ends)
                    edges.copy_from(np.full(bins + 1, np.nan))
    for _ in range(3):
        with pytest.raises(ValueError, match="ascending order"):
            kernels.histogram(on_device(host), 10, range=(2, 1))


def test_taking_again_and_again() -> None:
    """Elements, slices, and elements along an axis; by other indices each time, which may be out of bounds."""
    rng = np.random.default_rng(9)
    for turn in range(4):
        host = rng.normal(size=(6, 5))
        x, line = on_device(host), on_device(host.reshape(-1))
        for count in (7, 1):
            places = rng.integers(-5, 5, count)
            where, out = on_device(places), aiodev.empty((6, count), "f8", "cpu")
            assert np.array_equal(kernels.take(line, where).numpy_blocking(), host.reshape(-1)[places])
            assert np.array_equal(kernels.take(x, where, axis=0).numpy_blocking(), host.take(places, 0))
            assert kernels.take(x, where, axis=1, mode="wrap", out=out) is out
            assert np.array_equal(out.numpy_blocking(), host.take(places, 1, mode="wrap"))
            assert np.array_equal(kernels.take(x.T, where, axis=0).numpy_blocking(), host.T.take(places, 0))
        order = np.argsort(host, axis=turn % 2)
        found = kernels.take_along_axis(x, on_device(order), axis=turn % 2)
        assert np.array_equal(found.numpy_blocking(), np.sort(host, axis=turn % 2))
        row = np.sort(host[0])
        assert np.array_equal(kernels.searchsorted(on_device(row), x).numpy_blocking(), np.searchsorted(row, host))
        outside = on_device(np.array([0, 30]))
        stream = aiodev.Stream("cpu")
        stream.wait_stream(aiodev.current_stream("cpu"))
        with stream:
            kernels.take(line, outside)
        with pytest.raises(aiodev.KernelError, match="out of bounds"):
            stream.synchronize_blocking()
        with pytest.raises(TypeError, match="integers as indices"):
            kernels.take(line, line)


def test_in_place_again_and_again() -> None:
    """What may be its own output."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        host = rng.normal(size=(6, 50))
        x = on_device(host)
        assert kernels.sort(x, out=x) is x
        assert np.array_equal(x.numpy_blocking(), np.sort(host))
        x = on_device(host)
        assert kernels.cumulative_sum(x, axis=1, out=x) is x
        assert np.allclose(x.numpy_blocking(), np.cumsum(host, 1))


def test_running_totals_of_all_kinds() -> None:
    """Options, types and shapes in turn, rows of nothing and of one element too."""
    rng = np.random.default_rng(8)
    cases = [((5,), 0), ((1,), 0), ((0,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 1, 3), 1), ((2, 0), 1), ((70, 70), 0)]
    for _ in range(3):
        for shape, axis in cases:
            host = rng.integers(1, 4, shape)
            x, ones = on_device(host), np.ones_like(np.take(host, [0], axis)) if host.size else None
            for dtype in (None, "float32"):
                totals = np.cumsum(host, axis, dtype)
                found = kernels.cumulative_sum(x, axis=axis, dtype=dtype)
                assert found.dtype == totals.dtype and np.array_equal(found.numpy_blocking(), totals)
            before = kernels.cumulative_sum(x, axis=axis, exclusive=True).numpy_blocking()
            assert np.array_equal(before, np.cumsum(host, axis) - host)
            products = kernels.cumulative_prod(x, axis=axis, include_initial=True).numpy_blocking()
            assert products.shape[axis] == shape[axis] + 1
            if ones is not None:
                assert np.array_equal(products, np.concatenate([ones, np.cumprod(host, axis)], axis))


def test_what_is_kept_waits_for_no_stream() -> None:
    """Tables and factors of launches that were met on a stream which is busy are there for all others."""
    host = np.random.default_rng(12).normal(size=(3, 4))
    x, weight = on_device(host), on_device(np.arange(4.0))
    kernels.roll(x, 2).numpy_blocking()  # compiled
    kernels.layer_norm(x, on_device(np.arange(4.0)), weight).numpy_blocking()
    busy, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    gate = busy._gate()
    with busy:
        for _ in range(3):
            kernels.roll(x, 5)
            kernels.layer_norm(x, weight, eps=0.25)
    with other:
        rolled, normal = kernels.roll(x, 5), kernels.layer_norm(x, weight, eps=0.25)
        other.synchronize_blocking()
        assert np.array_equal(rolled.numpy_blocking(), np.roll(host, 5))
        expected = (host - host.mean(-1, keepdims=True)) / np.sqrt(host.var(-1, keepdims=True) + 0.25) * np.arange(4)
        np.testing.assert_allclose(normal.numpy_blocking(), expected, rtol=1e-12)
    gate.open()
    busy.synchronize_blocking()


def test_moving_elements_again_and_again() -> None:
    """Arrays joined, rolled, repeated, extended, each call by what it is asked for; a zero to fill with keeps its sign."""
    rng = np.random.default_rng(11)
    for turn in range(4):
        host, whole = rng.normal(size=(4, 5)), rng.integers(0, 9, (4, 5))
        x, y = on_device(host), on_device(whole)
        fill = [0.0, -0.0, np.nan, 7][turn]
        filled = np.pad(host, 1, constant_values=fill)
        joined, frame = aiodev.empty((8, 5), "f8", "cpu"), aiodev.zeros((9, 6), "f8", "cpu")
        pairs: list[tuple[aiodev.Array, HostArray]] = [
            (kernels.concat([x, y]), np.concatenate([host, whole])),
            (kernels.concat([y, x]), np.concatenate([whole, host])),
            (kernels.concat([x, x], out=joined), np.concatenate([host, host])),
            (kernels.concat([x, x], out=frame[1:, 1:]), np.concatenate([host, host])),
            (kernels.concat([x, y, x], axis=1), np.concatenate([host, whole, host], 1)),
            (kernels.concat((x, y), axis=None), np.concatenate([host, whole], None)),
            (kernels.concat(array for array in (x, y)), np.concatenate([host, whole])),
            (kernels.concat([x] * 5), np.concatenate([host] * 5)),
            (kernels.stack([x, y], axis=-1), np.stack([host, whole], -1)),
            (kernels.stack([x.T, x.T]), np.stack([host.T, host.T])),
            (kernels.roll(x, 3 + turn % 2), np.roll(host, 3 + turn % 2)),
            (kernels.roll(x, [1, 2], axis=[0, 1]), np.roll(host, (1, 2), (0, 1))),
            (kernels.roll(x, 1, axis=1), np.roll(host, 1, 1)),
            (kernels.repeat(x, 3), np.repeat(host, 3)),
            (kernels.repeat(x[0], 3), np.repeat(host[0], 3)),
            (kernels.tile(x, (2, 1, 3)), np.tile(host, (2, 1, 3))),
            (kernels.pad(y, [(1, 2), (0, 3)], "reflect"), np.pad(whole, [(1, 2), (0, 3)], "reflect")),
            (kernels.pad(x, 1, constant_values=fill), filled),
        ]
        for found, expected in pairs:
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.numpy_blocking(), expected)
        assert np.array_equal(np.signbit(pairs[-1][0].numpy_blocking()), np.signbit(filled))
        assert pairs[2][0] is joined and not frame[0].numpy_blocking().any()
        with pytest.raises(ValueError, match="only axis 1 may differ"):
            kernels.concat([x, x.T], axis=1)
        with pytest.raises(ValueError, match="mode='mean'"):
            kernels.pad(x, 1, "mean")
