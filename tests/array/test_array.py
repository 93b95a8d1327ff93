"""Arrays: making them, views, and that they say what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples

import aiodev
from aiodev.testing import SimulatedBackend
from aiodev.testing.latch import Latch

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def test_what_an_array_says_of_itself() -> None:
    """Shape, dtype, strides and sizes are NumPy's; and the repr begins with them."""
    array = aiodev.empty((2, 3), "f4", "cpu")
    host = np.empty((2, 3), "f4")
    for name in ("shape", "dtype", "strides", "ndim", "size", "itemsize", "nbytes"):
        assert getattr(array, name) == getattr(host, name)
    assert array.device == aiodev.Device("cpu")
    assert repr(array).startswith("<aiodev.Array (2, 3) float32 on cpu:0")
    assert len(array) == 2
    assert type(array).__module__ == "aiodev"


def test_what_an_array_is_not() -> None:
    """No length without dimensions, no constructor."""
    array = aiodev.empty((), device="cpu")
    for attempt in (len, lambda _: aiodev.Array()):
        with pytest.raises(TypeError):
            attempt(array)
    with pytest.raises(ValueError, match="arange: step=0"):
        aiodev.arange(0, 3, 0, device="cpu")
    with pytest.raises(AttributeError):
        array.shape = (1,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_filled_arrays(dtype: str) -> None:
    """zeros, ones and full of every dtype."""
    for shape in (5, (2, 0), (), (3, 2)):
        for made, expected in (
            (aiodev.zeros(shape, dtype, "cpu"), np.zeros(shape, dtype)),
            (aiodev.ones(shape, dtype, "cpu"), np.ones(shape, dtype)),
            (aiodev.full(shape, 1, dtype, "cpu"), np.full(shape, 1, dtype)),
        ):
            found = made.numpy_blocking()
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)


def test_dtypes_by_default() -> None:
    """float64, or that of the values."""
    assert aiodev.empty(1, device="cpu").dtype == np.float64
    assert aiodev.full(1, 3, device="cpu").dtype == np.int64
    assert aiodev.full(1, True, device="cpu").dtype == np.bool_
    assert aiodev.arange(3, device="cpu").dtype == np.int64
    assert aiodev.arange(1e19, 3, device="cpu").shape == (0,)  # of which NumPy says that it is too large
    assert aiodev.asarray([1.5], device="cpu").dtype == np.float64
    assert aiodev.empty_like(aiodev.ones(2, "i2", "cpu")).dtype == np.int16


@pytest.mark.parametrize("dtype", ["U3", "O", "M8[s]", "f16", [("a", "i4")]])
def test_dtypes_that_no_device_has(dtype: Any) -> None:
    """Refused by name."""
    with pytest.raises(TypeError, match="device arrays hold"):
        aiodev.empty(1, dtype, "cpu")


def test_the_other_byte_order_is_converted() -> None:
    """Devices have native order only."""
    host = np.arange(5, dtype=">i4")
    array = aiodev.asarray(host, device="cpu")
    assert array.dtype == np.dtype("i4")
    assert np.array_equal(array.numpy_blocking(), host)


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 9), (2, 10, 3), (10, 2, -3), (0.0, 1.0, 0.1), (5, 2), (0,), (1.5,), (0, 50_000)]
)
def test_ranges_are_numpys(arguments: tuple[Any, ...]) -> None:
    """Small ones are made at once, large ones by a thread; both as NumPy makes them."""
    for dtype in (None, "f4", "i8"):
        expected = np.arange(*arguments, dtype=dtype)
        assert np.array_equal(aiodev.arange(*arguments, dtype=dtype, device="cpu").numpy_blocking(), expected)


@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_views_of_views_are_numpys(data: st.DataObject) -> None:
    """Indexing, transposing and reshaping in any order; the memory is shared."""
    host = np.arange(data.draw(st.integers(0, 60)), dtype="i4")
    array = aiodev.asarray(host, device="cpu")
    for _ in range(data.draw(st.integers(0, 3))):
        step = data.draw(st.sampled_from(["index", "transpose", "reshape"]))
        if step == "index" and host.ndim:
            index = data.draw(hnp.basic_indices(host.shape, allow_ellipsis=True, allow_newaxis=True))
            host, array = np.asarray(host[index]), array[index]
        elif step == "transpose":
            axes = data.draw(st.permutations(range(host.ndim)))
            host, array = host.transpose(axes), array.transpose(axes)
        elif step == "reshape" and host.size:
            parts = [n for n in range(1, host.size + 1) if host.size % n == 0]
            first = data.draw(st.sampled_from(parts))
            host, array = host.reshape(first, -1), array.reshape(first, -1)
        assert array.shape == host.shape
        assert array.is_contiguous == host.flags.c_contiguous
    assert np.array_equal(array.numpy_blocking(), host)
    assert np.array_equal(np.asarray(array), host)


def test_views_share_and_a_reshape_that_cannot_copies() -> None:
    """Writing to a view writes to its base; a transposed array reshaped is another one."""
    base = aiodev.zeros((3, 4), "i4", "cpu")
    base[1:, ::2].copy_from(np.full((2, 2), 7, "i4"))
    expected = np.zeros((3, 4), "i4")
    expected[1:, ::2] = 7
    assert np.array_equal(base.numpy_blocking(), expected)
    fixed, known = aiodev.broadcast_to(base, base.shape), expected.copy()
    for _ in range(2):  # found out, and remembered
        copied = base.T.reshape(12)
        assert copied._buffer is not base._buffer
        assert np.array_equal(copied.numpy_blocking(), expected.T.reshape(12))
        base[0] = copied[:4]
        expected[0] = expected.T.reshape(12)[:4]
        assert base.reshape(2, 6)._buffer is base._buffer
        taken = fixed.T.reshape(12)
        assert not fixed.writable and taken.writable
        taken[:] = 1
    assert np.array_equal(base.numpy_blocking(), expected) and not np.array_equal(expected, known)
    given = base._seen_from(0, base.shape, base.strides, base.dtype)  # strides, though there are no gaps
    assert all(given.reshape(12)._buffer is base._buffer for _ in range(3))
    gaps = base[:, :2].reshape(3, 1, 2)
    assert gaps._buffer is base._buffer and gaps.reshape((3, 2))._buffer is base._buffer


def test_keys_are_one_object_for_each_combination() -> None:
    """Kernels compare them by identity."""
    a, b = (aiodev.empty((2, 3), "f4", "cpu") for _ in range(2))
    keys = [array._form.key for array in (a, b, a[:1], a.T)]
    assert keys[0] is keys[1] is keys[2]
    assert tuple(keys[0]) == (a.device, "A2f4C", True)
    assert tuple(keys[3]) == (a.device, "A2f4A", True)
    words = np.frombuffer(a.T._pack(), np.int64)
    assert list(words) == [a._address, 3, 2, 4, 12]
    assert list(np.frombuffer(a._pack(), np.int64)) == [a._address, 2, 3]


def test_asarray_of_an_array_is_itself() -> None:
    """Where nothing has to be copied or converted."""
    array = aiodev.ones(3, "f4", "cpu")
    assert aiodev.asarray(array) is array
    assert aiodev.asarray(array, device="cpu") is array
    assert array.to("cpu:0") is array
    assert aiodev.asarray(array, "f4", "cpu") is array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_asarray_converts_arrays(dtype: str, other: str) -> None:
    """As NumPy, and as ``astype``, of arrays with and without gaps; to an array of its own. Complex numbers stay complex."""
    host = np.array([[0, 1, 2.5], [100.25, 7, 0]]).astype(dtype)
    array = aiodev.asarray(host, device="cpu")
    if np.dtype(dtype).kind == "c" and np.dtype(other).kind not in "bc":
        with pytest.raises(TypeError, match="complex numbers"):
            aiodev.asarray(array, other)
        return
    for view, expected in ((array, host), (array.T, host.T), (array[:, ::2], host[:, ::2]), (array[:0], host[:0])):
        found = aiodev.asarray(view, other)
        assert found.dtype == np.dtype(other) and found.device is array.device
        assert np.array_equal(found.numpy_blocking(), expected.astype(other))


def test_complex_numbers_of_the_host_do_not_become_real() -> None:
    """Nor do those of a device; NumPy drops the imaginary part, with a warning."""
    host, x = np.array([1 + 2j]), aiodev.zeros(1, device="cpu")
    with pytest.raises(TypeError, match="complex128 cannot become float32"):
        aiodev.asarray(host, "float32", device="cpu")
    for value in (host, host[0]):
        with pytest.raises(TypeError, match="complex128 cannot be assigned"):
            x[:] = value
    assert aiodev.asarray(host, "bool", device="cpu").numpy_blocking().tolist() == [True]
    assert x.numpy_blocking().tolist() == [0]


def test_asarray_of_an_array_with_a_copy() -> None:
    """copy=True makes one array of its own, converted or not; copy=False refuses what needs one."""
    array = aiodev.arange(3, device="cpu")
    for dtype in (None, "i8", "f4"):
        found = aiodev.asarray(array, dtype, copy=True)
        assert found.address != array.address and found.numpy_blocking().tolist() == [0, 1, 2]
    assert aiodev.asarray(array, "i8", copy=False) is array
    with pytest.raises(ValueError, match="copy=False"):
        aiodev.asarray(array, "f4", copy=False)


def test_asarray_converts_and_moves(register: Callable[[type[Any]], str]) -> None:
    """To another device, and back."""
    name = register(SimulatedBackend)
    array = aiodev.arange(3, device="cpu")
    there = aiodev.asarray(array, "f4", name)
    assert there.device.type == name and there.dtype == np.float32
    assert aiodev.asarray(there, "i2", "cpu").numpy_blocking().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="copy=False"):
        aiodev.asarray(array, device=name, copy=False)


def test_asarray_copies_as_asked() -> None:
    """copy=False shares a NumPy array's memory or raises; copy=True has its own, of our arrays too."""
    host = np.arange(3)
    assert aiodev.asarray(host, device="cpu", copy=False)._address == host.ctypes.data
    assert aiodev.asarray(host, device="cpu")._address != host.ctypes.data
    array = aiodev.asarray(host, device="cpu")
    copied = aiodev.asarray(array, copy=True)
    assert copied._address != array._address
    assert np.array_equal(copied.numpy_blocking(), host)
    for obj, dtype in ((host, "f4"), ([1, 2], None), (host.astype(">i8"), None)):
        with pytest.raises(ValueError):
            aiodev.asarray(obj, dtype, "cpu", copy=False)


@given(hnp.arrays(hnp.scalar_dtypes().filter(lambda d: d.kind in "biufc" and d.itemsize <= 16), SHAPES))
@settings(deadline=None, max_examples=examples(40))
def test_round_trip(host: np.ndarray[Any, Any]) -> None:
    """What goes in comes out, bit by bit."""
    found = aiodev.asarray(host, device="cpu").numpy_blocking()
    assert found.tobytes() == host.astype(host.dtype.newbyteorder("=")).tobytes()


def test_the_current_device_and_stream_are_used() -> None:
    """No argument means the running task's."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(1 << 20)  # a smaller one is written by the host
        assert array.device == stream.device
        assert array._buffer._writer is stream.timeline
        assert stream.timeline.submitted == 1


@aiodev.kernel
def double(i, x, out):
    """Twice x."""
    out[i] = 2 * x[i]


@pytest.mark.anyio
async def test_a_freed_array_is_an_error_wherever_it_is_used() -> None:
    """By kernels that are compiled already, copies, reads, views and exports; never memory of somebody else's."""
    x, out = aiodev.ones(8, device="cpu"), aiodev.empty(8, device="cpu")
    place = (8, aiodev.default_stream("cpu"))
    await double[place](x, out)
    x.free()
    uses: list[Callable[[], Any]] = [
        lambda: double[place](x, out), lambda: double[place](out, x), lambda: x[1:], lambda: x.reshape(2, 4), lambda: x.T,
        lambda: x.numpy_blocking(), lambda: np.asarray(x), lambda: x.__dlpack__(), lambda: out.copy_from(x),
        lambda: x.copy_from(out), lambda: x.free(), lambda: x.record_stream(aiodev.default_stream("cpu")),
        lambda: aiodev.current_stream("cpu").copy(out, x), lambda: x.device, lambda: x.to("cpu"), lambda: aiodev.asarray(x),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(aiodev.ClosedError, match=r"shape \(8,\) and dtype float64, which was freed,"):
            use()
    assert (x.shape, x.dtype, x.nbytes) == ((8,), np.float64, 64)
    assert "freed" in repr(x)
    assert (await out.numpy() == 2).all()


def test_memory_is_freed_in_stream_order() -> None:
    """At once for the allocator, later for the work that uses it; not while others share it."""
    stream = aiodev.Stream("cpu")
    with aiodev.stream(stream):
        x = aiodev.empty(3 << 20, "u1")
        view = x[1:]
        with pytest.raises(ValueError, match="1 more"):
            x.free()
        del view
        allocated = aiodev.memory.memory_allocated("cpu")
        with Latch(stream):
            done = stream.copy(x[:4], bytearray(b"abcd"))
            x.free()
            assert aiodev.memory.memory_allocated("cpu") == allocated - (3 << 20)
        done.synchronize_blocking()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 1, 3), (2, 0, 3)])
def test_broadcast_to(shape: tuple[int, ...]) -> None:
    """A read-only view with NumPy's shape rules."""
    host = np.arange(3.0)
    array = aiodev.asarray(host, device="cpu")
    found = aiodev.broadcast_to(array, shape)
    np.testing.assert_array_equal(found.numpy_blocking(), np.broadcast_to(host, shape))
    with pytest.raises(ValueError, match="read-only"):
        found.copy_from(np.zeros(shape))
    with pytest.raises(ValueError, match="cannot be repeated"):
        aiodev.broadcast_to(array, (*shape, 2))


@pytest.mark.parametrize("wrong", [None, {1, 2}, iter([1, 2]), object()], ids=["none", "set", "iterator", "other"])
def test_what_is_no_array_is_refused_by_name(wrong: Any) -> None:
    """With what there was."""
    with pytest.raises(TypeError, match="asarray: argument obj: expected an array, a number, or sequences of numbers"):
        aiodev.asarray(wrong, device="cpu")
