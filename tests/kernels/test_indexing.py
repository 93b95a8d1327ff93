"""Reading and writing at indices, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.indexing import bodies

DTYPES = st.sampled_from(some(["f4", "u8", "c8", "?"], 2))
SHAPES = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=4)


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def same(found: aiodev.Array, expected: Any) -> None:
    """The same shape, dtype and elements."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy_blocking(), expected)


def make(shape: list[int], dtype: str, flip: bool) -> tuple[Any, aiodev.Array]:
    """Distinct elements on both sides, transposed or every second of more."""
    host = np.arange(2 * np.prod(shape)).reshape(2 * shape[0], *shape[1:]).astype(dtype)
    array = on_device(host)
    return (host[::2].T, array[::2].T) if flip else (host[1::2], array[1::2])


@given(SHAPES, DTYPES, st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(80))
def test_take(shape: list[int], dtype: str, flip: bool, data: st.DataObject) -> None:
    """Along any axis or none, of views, with indices of any shape and sign, within bounds and out of them."""
    host, x = make(shape, dtype, flip)
    axis = data.draw(st.sampled_from([None, *range(-host.ndim, host.ndim)]))
    length = host.size if axis is None else host.shape[axis]
    mode = data.draw(st.sampled_from(["raise", "wrap", "clip"]))
    reach = length if mode == "raise" else 3 * length
    count = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 4]), max_size=2)))
    indices = (
        np.random.default_rng(length).integers(-reach, reach, count).astype(data.draw(st.sampled_from(some(["i8", "i2"]))))
    )
    expected = np.take(host, indices, axis, mode=mode)
    same(kernels.take(x, on_device(indices), axis=axis, mode=mode), expected)
    out = aiodev.zeros((*expected.shape, 2), dtype, "cpu")
    kernels.take(x, on_device(indices), axis=axis, mode=mode, out=out[..., 0])
    same(out[..., 0], expected)
    assert not out[..., 1].numpy_blocking().any()


@pytest.mark.parametrize("inner", [1, 7, bodies.BLOCK + 3])
def test_take_of_many(inner: int) -> None:
    """Enough items, and items long enough, for several indices of the launch; unsigned indices."""
    host = np.arange(50 * inner, dtype="f4").reshape(50, inner)
    indices = np.random.default_rng(0).integers(0, 50, 20_000 // inner + 3).astype("u8")
    same(kernels.take(on_device(host), on_device(indices), axis=0), host[indices])
    same(kernels.take(on_device(host.reshape(-1)), on_device(indices)), host.reshape(-1)[indices])


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("inner", [3, bodies.SHORT, bodies.SHORT + 1])
def test_take_of_short_items(inner: int, mode: Any) -> None:
    """Within each of the outer dimensions, wherever their indices point to."""
    host = np.arange(3 * 50 * inner, dtype="f4").reshape(3, 50, inner)
    far = 50 if mode == "raise" else 400
    indices = np.random.default_rng(0).integers(-far if mode != "clip" else 0, far, 5000)
    x = on_device(host)
    same(kernels.take(x, on_device(indices), axis=1, mode=mode), host.take(indices, 1, mode=mode))
    if mode == "raise":
        indices[4000] = 50
        with pytest.raises(aiodev.KernelError, match="out of bounds"):
            kernels.take(x, on_device(indices), axis=1).numpy_blocking()


@given(SHAPES, DTYPES, st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_take_along_axis(shape: list[int], dtype: str, flip: bool, data: st.DataObject) -> None:
    """Each place its own index; other dimensions broadcast."""
    host, x = make(shape, dtype, flip)
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    lengths = [n if data.draw(st.booleans()) else 1 for n in host.shape]
    lengths[axis] = data.draw(st.sampled_from([0, 1, 4]))
    length = host.shape[axis]
    indices = np.random.default_rng(length).integers(-length, length, lengths)
    same(kernels.take_along_axis(x, on_device(indices), axis=axis), np.take_along_axis(host, indices, axis))


def test_an_index_out_of_bounds_reaches_the_waiter() -> None:
    """As a KernelError with an IndexError for its cause; the stream works again afterwards."""
    x = on_device(np.arange(6.0).reshape(2, 3))
    bad = on_device(np.array([0, 2]))
    for submit in (
        lambda: kernels.take(x, bad, axis=0),
        lambda: kernels.take(x.reshape(6), on_device(np.array([-7]))),
        lambda: kernels.take_along_axis(x, on_device(np.array([[3]])), axis=1),
        lambda: kernels.scatter_add(aiodev.zeros((2, 3), device="cpu"), bad, 1.0, axis=0),
        lambda: kernels.put(aiodev.zeros(2, device="cpu"), bad, 1.0),
    ):
        with pytest.raises(aiodev.KernelError) as caught:
            submit().numpy_blocking()
        assert isinstance(caught.value.__cause__, IndexError)
        assert "out of bounds" in str(caught.value)
    same(kernels.take(x, on_device(np.array([1])), axis=0), [[3.0, 4.0, 5.0]])


@given(SHAPES, st.sampled_from(some(["f4", "i2", "c16", "?"], 2)), st.booleans(), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(40))
def test_put(shape: list[int], dtype: str, flip: bool, scalar: bool, data: st.DataObject) -> None:
    """In place, in C order of whatever view it is, numbers and arrays."""
    host, x = make(shape, dtype, flip)
    expected = host.copy()
    indices = np.random.default_rng(3).permutation(host.size)[: data.draw(st.integers(0, host.size))]
    values = np.dtype(dtype).type(1) if scalar else np.arange(indices.size).astype(dtype)
    np.put(expected, indices, values)
    assert kernels.put(x, on_device(indices), values if scalar else on_device(values)) is x
    same(x, expected)


@given(SHAPES, st.sampled_from(some(["f4", "f8", "i1", "u8"], 2)), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_scatter_add(shape: list[int], dtype: str, flip: bool, data: st.DataObject) -> None:
    """As often as an index occurs, along any axis or none, into any view."""
    host, x = make(shape, dtype, flip)
    axis = data.draw(st.sampled_from([None, *range(host.ndim)]))
    length = host.size if axis is None else host.shape[axis]
    indices = np.random.default_rng(4).integers(-length, length, data.draw(st.sampled_from([(0,), (1,), (9,), (2, 3)])))
    expected = host.reshape(-1).copy() if axis is None else np.moveaxis(host, axis, 0).copy()
    taken = np.take(host, indices, axis)
    values = np.arange(taken.size).reshape(taken.shape).astype(dtype)
    moved = values if axis is None else np.moveaxis(values, range(axis, axis + indices.ndim), range(indices.ndim))
    np.add.at(expected, indices, moved)
    expected = expected.reshape(host.shape) if axis is None else np.moveaxis(expected, 0, axis)
    assert kernels.scatter_add(x, on_device(indices), on_device(values), axis=axis) is x
    same(x, expected)


@pytest.mark.parametrize(("items", "inner"), [(300_000, 1), (40_000, 5), (3_000, 64), (200, 3000)])
def test_scatter_add_of_many_to_few(items: int, inner: int) -> None:
    """No addition is lost, whichever workers make them."""
    indices = np.random.default_rng(5).integers(0, 7, items)
    for dtype in ("i8", "f4"):  # the sums are whole numbers that a float32 has
        x = aiodev.zeros((7, inner), dtype, "cpu")
        kernels.scatter_add(x, on_device(indices), 1, axis=0)
        expected = np.bincount(indices, minlength=7)[:, None] * np.ones(inner)
        same(x, expected.astype(dtype))
        if inner == 1:
            flat = kernels.scatter_add(aiodev.zeros(7, dtype, "cpu"), on_device(indices), 1)
            same(flat, expected[:, 0].astype(dtype))


def test_unsigned_indices_beyond_signed_ones() -> None:
    """They are out of bounds, and count from no end."""
    x, indices = on_device(np.arange(10)), np.array([3, 2**63, 2**64 - 1], np.uint64)
    same(kernels.take(x, on_device(indices), mode="clip"), np.array([3, 9, 9]))
    same(kernels.take(x, on_device(indices), mode="wrap"), (indices % np.uint64(10)).astype(int))
    for submit in (
        lambda: kernels.take(x, on_device(indices)),
        lambda: kernels.put(aiodev.zeros(10, device="cpu"), on_device(indices), 1.0),
        lambda: kernels.scatter_add(aiodev.zeros(10, device="cpu"), on_device(indices), 1.0),
        lambda: kernels.scatter_add(aiodev.zeros(10, device="cpu"), on_device(np.tile(indices, 9000)), 1.0),
    ):
        with pytest.raises(aiodev.KernelError, match="out of bounds"):
            submit().numpy_blocking()


def test_take_of_short_items_that_are_far() -> None:
    """Those ahead are asked for, whatever their indices are."""
    host = np.arange(3 * 10**6, dtype="f4").reshape(3, 10**5, 10)
    indices = np.random.default_rng(0).integers(-(10**5), 10**5, 3000)
    x, beyond = on_device(host), np.append(indices, [10**5, 10**9])
    same(kernels.take(x, on_device(indices), axis=1), host[:, indices])
    same(kernels.take(x, on_device(beyond), axis=1, mode="wrap"), host.take(beyond, 1, mode="wrap"))
    with pytest.raises(aiodev.KernelError, match="out of bounds"):
        kernels.take(x, on_device(beyond), axis=1).numpy_blocking()


@pytest.mark.parametrize(("outer", "items", "inner"), [(3, 30_000, 1), (3, 30_000, 5), (1, 6000, 1), (90, 330, 1)])
def test_scatter_add_to_few_is_the_same_every_time(outer: int, items: int, inner: int) -> None:
    """Blocks are summed apart, or one after the other, as the shapes say; an index out of bounds is an error of the sum."""
    rng = np.random.default_rng(6)
    host, indices = rng.normal(size=(outer, 40, inner)).astype("f4"), rng.integers(-60, 60, items)
    values = rng.normal(size=(outer, items, inner)).astype("f4")
    for mode in ("wrap", "clip"):
        exact, found = np.moveaxis(host, 1, 0).astype("f8"), []
        places = indices % 40 if mode == "wrap" else indices.clip(0, 39)
        np.add.at(exact, places, np.moveaxis(values, 1, 0))
        for _ in range(5):
            x = kernels.scatter_add(on_device(host), on_device(indices), on_device(values), axis=1, mode=mode)
            found.append(x.numpy_blocking())
        np.testing.assert_allclose(found[0], np.moveaxis(exact, 0, 1), rtol=1e-4, atol=1e-3)
        if not aiodev.capabilities(x.device).simt:  # whose atomic additions come in any order
            assert all((again == found[0]).all() for again in found)
    x = on_device(host)
    with pytest.raises(aiodev.KernelError, match="out of bounds"):
        kernels.scatter_add(x, on_device(indices), on_device(values), axis=1).numpy_blocking()


def test_wrong_arguments_name_themselves() -> None:
    """What was expected, what was found."""
    x, i = on_device(np.ones((2, 3), "f4")), on_device(np.array([0, 1]))
    with pytest.raises(TypeError, match="take: expected integers as indices, got float32"):
        kernels.take(x, x)
    with pytest.raises(ValueError, match="axis 2"):
        kernels.take(x, i, axis=2)
    with pytest.raises(ValueError, match="mode='nearest'"):
        kernels.take(x, i, axis=0, mode="nearest")
    with pytest.raises(ValueError, match="no elements"):
        kernels.take(aiodev.zeros((0, 3), device="cpu"), i, axis=0)
    with pytest.raises(ValueError, match=r"scatter_add: values: the shapes \(3, 3\) and \(2, 3\) do not broadcast"):
        kernels.scatter_add(x, i, on_device(np.ones((3, 3), "f4")), axis=0)
    with pytest.raises(TypeError, match="complex128"):
        kernels.scatter_add(on_device(np.ones(2, "c16")), i, 1)
    with pytest.raises(TypeError, match="int64"):
        kernels.put(i, i, 1.5)
    with pytest.raises(TypeError, match="cannot be written"):
        kernels.put(i, i, on_device(np.ones(2)))
    with pytest.raises(ValueError, match="dimensions"):
        kernels.take_along_axis(x, i)


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_elements_of_many_rows(mode: Any) -> None:
    """Each row's at the same places, in groups of rows; an index that is out of bounds fails in any of them."""
    rng = np.random.default_rng(3)
    for rows in (16, 17, 40):
        host = rng.normal(size=(rows, 300))
        indices = rng.integers(-300, 300, 290) if mode != "clip" else rng.integers(-400, 400, 290)
        expected = host.take(indices, 1, mode=mode)
        for x in (on_device(host), on_device(host.T.copy()).T):
            found = kernels.take(x, on_device(indices), axis=1, mode=mode).numpy_blocking()
            np.testing.assert_array_equal(found, expected)
            out = aiodev.empty((290, rows), "f8", "cpu").T
            kernels.take(x, on_device(indices), axis=1, mode=mode, out=out)
            np.testing.assert_array_equal(out.numpy_blocking(), expected)
    if mode == "raise":
        with pytest.raises(aiodev.KernelError, match="out of bounds"):
            kernels.take(x, on_device(np.array([0, 300])), axis=1).numpy_blocking()
