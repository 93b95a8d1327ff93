"""Arrays made of where their elements are; differences of neighbours; parts along an axis; how many are not 0: NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.dtypes import DTYPES, parse_dtype

EVERY = [row.name for row in DTYPES.values()]


def on_device(host: np.ndarray[Any, Any]) -> aiodev.Array:
    return aiodev.asarray(host, device="cpu")


@pytest.mark.parametrize("dtype", EVERY)
def test_ones_on_a_diagonal(dtype: str) -> None:
    """Of every dtype; above, below and beyond the matrix."""
    for shape in ((3, 3), (2, 4), (4, 1), (0, 3)):
        for k in (0, 1, -2, 9, -9):
            found = kernels.eye(*shape, k=k, dtype=dtype, device="cpu")
            assert found.dtype == parse_dtype(dtype)
            np.testing.assert_array_equal(found.numpy_blocking().astype("c16"), np.eye(*shape, k=k))
    assert kernels.eye(2, device="cpu").dtype == np.float64


@pytest.mark.parametrize("function", ["tril", "triu"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (5, 3, 2), (2, 2, 3, 3), (0, 3), (3, 0)])
def test_triangles(function: str, shape: tuple[int, ...]) -> None:
    """Of the last two dimensions; of views and into views; in place."""
    host = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    for k in (0, 1, -1, 7, -7):
        expected = getattr(np, function)(host, k)
        compute = getattr(kernels, function)
        for _ in range(3):  # found out, remembered, repeated
            np.testing.assert_array_equal(compute(on_device(host), k=k).numpy_blocking(), expected)
        np.testing.assert_array_equal(compute(on_device(np.swapaxes(host, -1, -2).copy()).mT, k=k).numpy_blocking(), expected)
        room = aiodev.zeros((*shape, 2), "int64", "cpu")
        compute(on_device(host), k=k, out=room[..., 1])
        np.testing.assert_array_equal(room[..., 1].numpy_blocking(), expected)
        assert not room[..., 0].numpy_blocking().any()
        x = on_device(host)
        assert compute(x, k=k, out=x) is x
        np.testing.assert_array_equal(x.numpy_blocking(), expected)


@pytest.mark.parametrize("dtype", EVERY)
def test_triangles_of_every_dtype(dtype: str) -> None:
    """Elements are not computed with: NaN and infinities stay, and become zeros outside."""
    x = kernels.astype(aiodev.ones((3, 3), device="cpu"), dtype)
    np.testing.assert_array_equal(kernels.triu(x).numpy_blocking().astype("c16"), np.triu(np.ones((3, 3))))
    special = np.array([[np.nan, np.inf], [np.nan, -np.inf]])
    np.testing.assert_array_equal(kernels.tril(on_device(special)).numpy_blocking(), np.tril(special))


def test_triangles_need_two_dimensions() -> None:
    """And an integer."""
    with pytest.raises(ValueError, match="tril: expected at least 2 dimensions"):
        kernels.tril(aiodev.ones(3, device="cpu"))
    with pytest.raises(TypeError, match="triu: k: expected an integer"):
        kernels.triu(aiodev.ones((3, 3), device="cpu"), k=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "complex64", "complex128"])
def test_evenly_spaced_numbers(dtype: str, endpoint: bool) -> None:
    """NumPy's to a few units in the last place, and the ends exactly; of integers rounded down."""
    for start, stop, num in ((0, 1, 5), (-3.5, 7.25, 11), (5, 5, 3), (9, -9, 4), (2, 3, 1), (0, 1, 0), (-1, -4, 7)):
        found = kernels.linspace(start, stop, num, dtype=dtype, endpoint=endpoint, device="cpu").numpy_blocking()
        expected = np.linspace(start, stop, num, dtype=dtype, endpoint=endpoint)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if found.dtype.kind == "i":
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
            assert not num or found[0] == expected[0] and found[-1] == expected[-1]


def test_spaces_of_complex_numbers_and_least_numbers() -> None:
    """Bounds decide the dtype; steps that are too small to be one are not lost."""
    found = kernels.linspace(0, 1 + 2j, 3, device="cpu")
    assert found.dtype == np.complex128 and found.numpy_blocking().tolist() == [0, 0.5 + 1j, 1 + 2j]
    tiny = float(np.finfo("f8").smallest_subnormal)
    np.testing.assert_array_equal(kernels.linspace(0, tiny, 4, device="cpu").numpy_blocking(), np.linspace(0, tiny, 4))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, -1), ValueError, "num: expected 0 or more"),
        ((0, 1, 2.5), TypeError, "num: expected an integer"),
        (("a", 1, 2), TypeError, "argument start: expected a number"),
        ((0, 10**400, 2), OverflowError, "argument stop: expected a number that a float"),
    ],
)
def test_spaces_that_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    """By name."""
    with pytest.raises(error, match=f"linspace: {message}"):
        kernels.linspace(*arguments, device="cpu")
    with pytest.raises(TypeError, match="linspace: dtype float32: the bounds are complex"):
        kernels.linspace(0, 1j, 3, dtype="float32", device="cpu")


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_grids(indexing: Any, count: int) -> None:
    """Views of as many dimensions as there are arrays."""
    hosts = [np.arange(3), np.arange(2) / 2, np.arange(4) > 1][:count]
    found = kernels.meshgrid(*map(on_device, hosts), indexing=indexing)
    expected = np.meshgrid(*hosts, indexing=indexing)
    assert len(found) == len(expected) and not any(x.writable for x in found[: count if count > 1 else 0])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy_blocking(), other)
        assert one.dtype == other.dtype


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_differences(axis: int, dtype: str) -> None:
    """Of neighbours along any axis, as often as asked; with what comes before and behind."""
    host = np.random.default_rng(1).integers(0, 9, (4, 5)).astype(dtype)
    first, last = host[:1, :1].repeat(host.shape[1 - axis % 2], 1 - axis % 2), host[-1:, :] if axis == 0 else host[:, -2:]
    for n in (0, 1, 2, 4, 6):
        found = kernels.diff(on_device(host), axis=axis, n=n)
        expected = np.diff(host, n, axis)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy_blocking(), expected)
    found = kernels.diff(on_device(host), axis=axis, prepend=on_device(first), append=on_device(last))
    np.testing.assert_array_equal(found.numpy_blocking(), np.diff(host, axis=axis, prepend=first, append=last))


def test_no_difference_is_an_array_of_its_own() -> None:
    """What is written to it stays there; and differences end where nothing is left to compare."""
    x = aiodev.zeros(3, device="cpu")
    kernels.diff(x, n=0)[:] = 1
    assert not x.numpy_blocking().any()
    for n in (3, 2**63 - 1):
        assert kernels.diff(x, n=n).shape == (0,)
    empty = aiodev.zeros(0, device="cpu")
    assert kernels.diff(empty, n=2**63 - 1) is not empty
    with pytest.raises(ValueError, match="diff: n: expected 0 or more"):
        kernels.diff(x, n=-1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_along_an_axis(axis: int) -> None:
    """Views, which stack puts together."""
    x = on_device(np.arange(12).reshape(3, 4))
    parts = kernels.unstack(x, axis=axis)
    assert isinstance(parts, tuple) and len(parts) == x.shape[axis]
    np.testing.assert_array_equal(kernels.stack(parts, axis=axis).numpy_blocking(), x.numpy_blocking())
    parts[0][:] = -1
    assert (kernels.unstack(x, axis=axis)[0].numpy_blocking() == -1).all()
    with pytest.raises(ValueError):
        kernels.unstack(x[0, 0])


@pytest.mark.parametrize("dtype", EVERY)
def test_counting_what_is_not_zero(dtype: str) -> None:
    """Along any axes, of short rows and long ones; NaN is not."""
    host = np.random.default_rng(2).integers(0, 2, (3, 50, 40))
    x = kernels.astype(on_device(host), dtype)
    for axis, keepdims in ((None, False), (0, False), (1, True), ((0, 2), False), (-1, False)):
        found = kernels.count_nonzero(x, axis=axis, keepdims=keepdims)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy_blocking(), np.count_nonzero(host, axis=axis, keepdims=keepdims))
    assert kernels.count_nonzero(on_device(np.array([np.nan, 0.0, -0.0, 0.25]))).numpy_blocking() == 2


def test_counting_among_many() -> None:
    """By blocks; more than the dtype itself could count."""
    host = np.arange(300_000) % 3 != 0
    for dtype in ("bool", "uint8", "float32"):
        assert int(kernels.count_nonzero(on_device(host.astype(dtype)))) == 200_000


@pytest.mark.parametrize("like", [None, "float32"])
def test_filled_like_another_array(like: str | None) -> None:
    """In its shape, dtype and device unless told otherwise."""
    x = aiodev.empty((2, 3), "int16", "cpu").T
    made_of = {0: aiodev.zeros_like(x, like), 1: aiodev.ones_like(x, dtype=like), 7: aiodev.full_like(x, 7, like)}
    for value, made in made_of.items():
        assert made.shape == (3, 2) and made.dtype == (like or "int16") and made.device == x.device
        assert (made.numpy_blocking() == value).all()
    with pytest.raises(TypeError, match="full_like: argument x: expected an array"):
        aiodev.full_like(3, 7)  # type: ignore[arg-type]


def test_values_that_no_dtype_has_are_refused_by_name() -> None:
    """By the function that was called, with the value."""
    whole, x = 2**65, aiodev.zeros(2, "int16", "cpu")
    with pytest.raises(ValueError, match=f"^full: argument fill_value: .*fits a dtype of integers, got int {whole}"):
        aiodev.full(2, whole, device="cpu")
    with pytest.raises(ValueError, match=f"^full_like: argument fill_value: expected a number that int16 has, got int {whole}"):
        aiodev.full_like(x, whole)
    with pytest.raises(ValueError, match="^full_like: argument fill_value: expected one number"):
        aiodev.full_like(x, [1, 2])  # type: ignore[arg-type]
    assert aiodev.full(1, 2**64 - 1, device="cpu").dtype == np.uint64


def test_ranges_count_on_from_their_first_two_values() -> None:
    """In the dtype, as NumPy's do: these must be numbers that it has, those behind wrap around."""
    for stop in (300, 300_000):
        found = aiodev.arange(0, stop, dtype="uint8", device="cpu").numpy_blocking()
        np.testing.assert_array_equal(found, np.arange(0, stop, dtype="uint8"))
    with pytest.raises(OverflowError):
        aiodev.arange(300, 302, dtype="uint8", device="cpu")


def test_shapes_of_other_sizes_are_refused_by_name() -> None:
    """By the function, which a method is as well."""
    x = aiodev.zeros((2, 3), device="cpu")
    for reshaped in (lambda: kernels.reshape(x, (4, 4)), lambda: x.reshape(4, 4), lambda: x.T.reshape(-1, 4)):
        with pytest.raises(ValueError, match="^reshape: 6 elements cannot have the shape"):
            reshaped()
