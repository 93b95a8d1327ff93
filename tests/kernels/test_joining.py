"""Joined, extended, rotated and repeated arrays, and views, against NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
import aiodev.kernels as kernels

SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=4).map(tuple)
DTYPES = st.sampled_from(some(["f4", "f8", "f2", "i1", "c16", "?"], 2))


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def same(found: aiodev.Array, expected: Any) -> None:
    """The same shape, dtype and elements."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy_blocking(), expected)


def make(shape: tuple[int, ...], dtype: str, flip: bool) -> tuple[Any, aiodev.Array]:
    """Elements that differ, transposed if ``flip``."""
    host = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return (host.T, on_device(host).T) if flip else (host, on_device(host))


@given(
    SHAPES.filter(bool),
    st.lists(st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from("fdi")), min_size=1, max_size=3),
    st.data(),
)
@settings(deadline=None, max_examples=examples(60))
def test_concat_and_stack(shape: tuple[int, ...], parts: list[tuple[int, str]], data: st.DataObject) -> None:
    """Along any axis or none; lengths may differ there; types are promoted."""
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    hosts = []
    for length, dtype in parts:
        lengths = list(shape)
        lengths[axis or 0] = length
        hosts.append(make(tuple(lengths), dtype, False)[0])
    arrays = [on_device(host) for host in hosts]
    expected = np.concatenate(hosts, axis)
    same(kernels.concat(arrays, axis=axis), expected)
    out = aiodev.empty((2, *expected.shape), expected.dtype, "cpu")
    kernels.concat(arrays, axis=axis, out=out[1])
    same(out[1], expected)
    at = data.draw(st.integers(-len(shape) - 1, len(shape)))
    same(kernels.stack([arrays[0]] * 3, axis=at), np.stack([hosts[0]] * 3, at))


@pytest.mark.parametrize("count", [5, 8, 67])
@pytest.mark.parametrize("width", [1, 3, 1000])
def test_concat_and_stack_of_many(count: int, width: int) -> None:
    """Several small ones by one launch, others by one each, whatever they are beside; the first time and later ones."""
    random = np.random.default_rng(count * width)
    hosts = [random.normal(size=(2, 0 if n % 5 == 3 else width * (1 + n % 3), 2)) for n in range(count)]
    for _ in range(3):
        same(kernels.concat([on_device(host) for host in hosts], axis=1), np.concatenate(hosts, 1))
        same(kernels.concat([on_device(host) for host in hosts], axis=None), np.concatenate(hosts, None))
        alike = [host[:, :1] for host in hosts if host.size]
        for axis in (0, 1, -1):
            same(kernels.stack([on_device(host) for host in alike], axis=axis), np.stack(alike, axis))
    mixed = [host.astype("f4") if n % 2 else host for n, host in enumerate(hosts)]
    same(kernels.concat([on_device(host) for host in mixed], axis=1), np.concatenate(mixed, 1))
    turned = [on_device(host.T.copy()).T for host in hosts]
    same(kernels.concat(turned, axis=1), np.concatenate(hosts, 1))


def test_small_arrays_are_joined_four_at_a_time() -> None:
    """Of twenty, by five launches."""
    x = on_device(np.arange(200.0))
    pieces = [x[10 * n : 10 * n + 10] for n in range(20)]
    for function in (kernels.concat, kernels.stack):
        for _ in range(3):
            aiodev.synchronize_blocking("cpu")
            before = aiodev.current_stream("cpu").timeline.submitted
            joined = function(pieces)
            assert aiodev.current_stream("cpu").timeline.submitted == before + 5
            np.testing.assert_array_equal(joined.numpy_blocking().ravel(), np.arange(200.0))


@given(SHAPES, DTYPES.filter(lambda d: d != "f2"), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(80))
def test_pad(shape: tuple[int, ...], dtype: str, flip: bool, data: st.DataObject) -> None:
    """Every mode, by more than there is, of any view."""
    host, x = make(shape, dtype, flip)
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    widths = [tuple(data.draw(st.integers(0, 9 if n else 0)) for _ in range(2)) for n in host.shape]
    options = {"constant_values": 1} if mode == "constant" else {}
    expected = np.pad(host, widths, mode, **options) if host.ndim else host
    same(kernels.pad(x, widths, mode, **options) if host.ndim else kernels.pad(x, 2, mode), expected)


def test_pad_by_numbers_and_pairs() -> None:
    """A number for all, a pair for all; nothing becomes a constant."""
    host = np.arange(6.0).reshape(2, 3)
    same(kernels.pad(on_device(host), 2), np.pad(host, 2))
    same(kernels.pad(on_device(host), (1, 2), "edge"), np.pad(host, (1, 2), "edge"))
    same(
        kernels.pad(aiodev.zeros((0, 2), device="cpu"), 1, constant_values=7),
        np.pad(np.zeros((0, 2)), 1, constant_values=7),
    )
    out = aiodev.zeros((6, 14), device="cpu")
    kernels.pad(on_device(host), 2, out=out[:, ::2])
    same(out[:, ::2], np.pad(host, 2))
    with pytest.raises(ValueError, match="no elements to repeat"):
        kernels.pad(aiodev.zeros((0, 2), device="cpu"), 1, "edge")
    with pytest.raises(ValueError, match="no pair, and not 2 pairs"):
        kernels.pad(on_device(host), [(1, 2)] * 3)
    with pytest.raises(ValueError, match="mode='mean'"):
        kernels.pad(on_device(host), 1, "mean")
    with pytest.raises(ValueError, match="0 or more"):
        kernels.pad(on_device(host), -1)


@given(SHAPES, DTYPES, st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_roll(shape: tuple[int, ...], dtype: str, flip: bool, data: st.DataObject) -> None:
    """Along no axis, one, or several, the same one again too; by any number."""
    host, x = make(shape, dtype, flip)
    shift = data.draw(st.integers(-9, 9))
    same(kernels.roll(x, shift), np.roll(host, shift))
    if host.ndim:
        axes = data.draw(st.lists(st.integers(-host.ndim, host.ndim - 1), min_size=1, max_size=3))
        shifts = [data.draw(st.integers(-9, 9)) for _ in axes]
        same(kernels.roll(x, shifts, axis=axes), np.roll(host, shifts, axes))


@pytest.mark.parametrize("dtype", ["b1", "f2", "f4", "c16"])
@pytest.mark.parametrize("shape", [(2003, 3), (3001, 2), (700, 64), (101, 65), (3, 40_000), (20, 30, 17), (20_001,)])
def test_roll_of_many(shape: tuple[int, ...], dtype: str) -> None:
    """Rows that are short, long, longer than an index's share; by less and more than half of them; again, and to ``out``."""
    host = (np.arange(math.prod(shape)) % 2003).reshape(shape).astype(dtype)
    x, out = on_device(host), aiodev.empty(shape, dtype, "cpu")
    wide = aiodev.empty((*shape, 2), dtype, "cpu")[..., 1]
    for axis in (None, *range(host.ndim)):
        for shift in (1, -1, 20, host.shape[axis or 0] // 2 + 1, host.shape[axis or 0]):
            expected = np.roll(host, shift, axis)
            for _ in range(2):
                same(kernels.roll(x, shift, axis=axis), expected)
            same(kernels.roll(x, shift, axis=axis, out=out), expected)
            same(kernels.roll(x, shift, axis=axis, out=wide), expected)
    same(kernels.roll(x, (), axis=()), host)
    same(kernels.roll(x.T, 1, axis=0), np.roll(host.T, 1, 0))
    same(kernels.roll(x.T, 1), np.roll(host.T, 1))
    same(kernels.roll(x, (2, -2, 3), axis=(0, 0, -1)), np.roll(host, (2, -2, 3), (0, 0, -1)))


@given(SHAPES, DTYPES, st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_repeat_and_tile(shape: tuple[int, ...], dtype: str, flip: bool, data: st.DataObject) -> None:
    """Elements, and whole arrays, some times or never."""
    host, x = make(shape, dtype, flip)
    times = data.draw(st.lists(st.integers(0, 3), max_size=5))
    same(kernels.tile(x, times), np.tile(host, times))
    axis = data.draw(st.sampled_from([None, *range(-host.ndim, host.ndim)]))
    count = data.draw(st.integers(0, 3))
    same(kernels.repeat(x, count, axis=axis), np.repeat(host, count, axis))
    length = host.size if axis is None else host.shape[axis]
    counts = data.draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
    for each in (counts, tuple(counts), np.array(counts, np.int32), [count], np.array(count)):
        expected = np.repeat(host, np.asarray(each, np.int64), axis)
        same(kernels.repeat(x, each, axis=axis), expected)


@pytest.mark.parametrize("call", [
    lambda x: kernels.tile(x, (1,) * 70),
    lambda x: kernels.tile(x, (2,) * 40),
    lambda x: kernels.tile(x, 1 << 64),
    lambda x: kernels.repeat(x, 1 << 64),
], ids=["dimensions", "dimensions between", "tile", "repeat"])  # fmt: skip
def test_shapes_that_no_array_can_have(call: Callable[[aiodev.Array], aiodev.Array]) -> None:
    """They are refused by the name of the function."""
    with pytest.raises(ValueError, match=r"^(tile|repeat): shape .*(at most 64|no 64-bit number)"):
        call(aiodev.ones((2, 3), device="cpu"))


def test_repeats_that_do_not_fit() -> None:
    """As many as places, not negative, integers; counts on the device are refused with what to do."""
    x = aiodev.ones((2, 3), device="cpu")
    for repeats, error, message in (
        ([1, 2], ValueError, "2 repeats for 3 places"),
        ([1, -1, 2], ValueError, "repeats -1"),
        ([1.0, 2.0, 3.0], TypeError, "expected an integer, or one for each"),
        ([[1, 2, 3]], TypeError, "expected an integer, or one for each"),
        ("abc", TypeError, "expected an integer, or one for each"),
        (aiodev.ones(3, "i8", "cpu"), TypeError, r"await repeats\.numpy\(\)"),
    ):
        with pytest.raises(error, match=message):
            kernels.repeat(x, repeats, axis=1)
    large = np.arange(5000) % 4
    same(kernels.repeat(aiodev.arange(5000, device="cpu"), large), np.repeat(np.arange(5000), large))


@given(SHAPES, st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_views(shape: tuple[int, ...], flip: bool, data: st.DataObject) -> None:
    """As NumPy's functions of the same names."""
    host, x = make(shape, "i4", flip)
    at = data.draw(st.integers(-host.ndim - 1, host.ndim))
    same(kernels.expand_dims(x, axis=at), np.expand_dims(host, at))
    same(kernels.squeeze(kernels.expand_dims(x, axis=at), at), host)
    same(kernels.flip(x), np.flip(host))
    same(kernels.reshape(x, (-1,) if host.size else (0,)), host.reshape(-1))
    order = data.draw(st.permutations(range(host.ndim)))
    same(kernels.permute_dims(x, order), np.transpose(host, order))
    if host.ndim:
        axis, place = (data.draw(st.integers(-host.ndim, host.ndim - 1)) for _ in range(2))
        same(kernels.flip(x, axis=axis), np.flip(host, axis))
        same(kernels.moveaxis(x, axis, place), np.moveaxis(host, axis, place))
    for found, expected in zip(kernels.broadcast_arrays(x, on_device(1)), np.broadcast_arrays(host, 1), strict=True):
        np.testing.assert_array_equal(found.numpy_blocking(), expected)


def test_wrong_arguments_name_themselves() -> None:
    """What was expected, what was found."""
    x = on_device(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"concat: array 1 has the shape \(3, 2\)"):
        kernels.concat([x, x.T])
    with pytest.raises(ValueError, match="at least one"):
        kernels.concat([])
    with pytest.raises(TypeError, match=r"argument arrays\[1\]"):
        kernels.stack([x, np.ones((2, 3))])
    with pytest.raises(ValueError, match="one shape"):
        kernels.stack([x, x.T])
    with pytest.raises(ValueError, match="other lengths than 1"):
        kernels.squeeze(x, 0)
    with pytest.raises(ValueError, match="name one twice"):
        kernels.permute_dims(x, (0, 0))
    with pytest.raises(ValueError, match="2 shifts for 1 axes"):
        kernels.roll(x, (1, 2), axis=0)
    with pytest.raises(ValueError, match="axis 3"):
        kernels.flip(x, axis=3)
    with pytest.raises(ValueError, match="stack: axis 3"):
        kernels.stack([x, x], axis=3)
    with pytest.raises(ValueError, match=r"broadcast_arrays: the shapes \(2, 3\) and \(3, 2\)"):
        kernels.broadcast_arrays(x, x.T)
    with pytest.raises(TypeError, match=r"broadcast_arrays: argument arrays\[1\]"):
        kernels.broadcast_arrays(x, np.ones(3))
    for repeats, error in ((-1, ValueError), (1.5, TypeError), (x, TypeError), ([[1, 2, 3]], TypeError)):
        with pytest.raises(error, match="repeat: repeats"):
            kernels.repeat(x, repeats, axis=1)


@pytest.mark.parametrize(("shape", "axes"), [((), (0,)), ((2, 3), ()), ((2, 3), (1,)), ((2, 3), (0, 1, 1))])
def test_dimensions_are_permuted_by_all_axes_or_not_at_all(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """None of them says nothing of the order, and is no reversal."""
    with pytest.raises(ValueError, match="permute_dims: ax"):
        kernels.permute_dims(aiodev.zeros(shape, device="cpu"), axes)


def test_reshape_copies_as_it_is_told() -> None:
    """``copy`` is the array API's: True always, False never, which may be an error."""
    x = on_device(np.arange(6).reshape(2, 3))
    assert kernels.reshape(x, (6,), copy=False).address == x.address
    assert kernels.reshape(x.T, (2, 3), copy=None).address != x.address
    with pytest.raises(ValueError, match=r"reshape: copy=False, but no view of the shape \(3, 2\)"):
        kernels.reshape(x.T, (6,), copy=False)
    with pytest.raises(TypeError, match="reshape: copy: expected True or False, got ndarray"):
        kernels.reshape(x, (6,), copy=np.arange(4))
    for view in (x, x.T):
        copied = kernels.reshape(view, (6,), copy=True)
        assert copied.address != x.address
        same(copied, view.numpy_blocking().reshape(6))
    assert kernels.reshape(x[:0].T, (0, 3), copy=False).shape == (0, 3)
    assert kernels.broadcast_to(x, shape=(4, 2, 3)).shape == (4, 2, 3)


def test_numpys_integers_are_integers() -> None:
    """Wherever one integer or several may stand."""
    host, one = np.arange(12.0).reshape(1, 3, 4), np.int64(1)
    x = on_device(host)
    for found, expected in (
        (kernels.roll(x, one), np.roll(host, 1)),
        (kernels.roll(x, np.array([1, 2]), axis=(one, 2)), np.roll(host, (1, 2), axis=(1, 2))),
        (kernels.tile(x, np.int64(2)), np.tile(host, 2)),
        (kernels.flip(x, axis=one), np.flip(host, 1)),
        (kernels.moveaxis(x, one, np.int64(0)), np.moveaxis(host, 1, 0)),
        (kernels.tensordot(x, x, axes=(one, 1)), np.tensordot(host, host, axes=(1, 1))),
        (kernels.tensordot(x, x.T, axes=one), np.tensordot(host, host.T, axes=1)),
    ):
        assert np.array_equal(found.numpy_blocking(), expected)
    assert kernels.squeeze(x, axis=np.int64(0)).shape == (3, 4)
    assert kernels.random.choice(5, np.int64(3), device="cpu").shape == (3,)
    assert kernels.random.multinomial(5, [0.5, 0.5], [2, one], device="cpu").shape == (2, 1, 2)
    for wrong in (lambda: kernels.flip(x, axis=1.0), lambda: kernels.random.choice(5, 2.0, device="cpu")):
        with pytest.raises(TypeError, match="expected an integer"):
            wrong()


def test_almost_as_many_dimensions_as_there_may_be() -> None:
    """Of more than 32 the places of few elements are not found ahead."""
    x = aiodev.arange(3, device="cpu")
    wide = x.reshape((1,) * 62 + (3,))
    for made, expected in (
        (kernels.tile(x, (1,) * 62 + (2,)), [0, 1, 2] * 2),
        (kernels.concat([wide, wide], axis=-1), [0, 1, 2] * 2),
        (kernels.roll(wide, 1, axis=-1), [2, 0, 1]),
        (kernels.repeat(wide, 2, axis=-1), [0, 0, 1, 1, 2, 2]),
    ):
        assert made.ndim == 63
        assert made.reshape(-1).numpy_blocking().tolist() == expected
