"""Copies of every layout between every pair of sides, on the CPU and on a device that the host cannot reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples

import aiodev
from aiodev._array.tuning import PIECES
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

BIG = (7, PIECES + 5, 6)
INDICES = [
    np.s_[:],
    np.s_[::2],
    np.s_[:, ::2],
    np.s_[..., ::2],
    np.s_[::-1, :, ::-3],
    np.s_[1],
    np.s_[..., 2],
    np.s_[:0],
]


@pytest.fixture(scope="module", params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device whose memory the host reaches, and one whose memory it does not."""
    if request.param == "sim" and "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking(request.param)
    yield request.param


def source() -> np.ndarray[Any, np.dtype[np.int32]]:
    """Distinct elements."""
    return np.arange(np.prod(BIG), dtype=np.int32).reshape(BIG)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("there", ["host", "device"])
@pytest.mark.parametrize("here", ["host", "device"])
def test_copies_between_any_layouts(device: str, index: Any, here: str, there: str) -> None:
    """From a strided side to a strided side; what lies between the elements stays as it was."""
    if here == there == "host":
        return
    stream = aiodev.Stream(device)
    with stream:
        values = source()
        src: Any = values[index] if here == "host" else aiodev.asarray(values)[index]
        target = np.full(BIG, -1, np.int32)
        if there == "host":
            stream.copy(target[index], src).synchronize_blocking()
            found = target
        else:
            array = aiodev.asarray(target)
            stream.copy(array[index], src)
            found = array.numpy_blocking()
    expected = np.full(BIG, -1, np.int32)
    expected[index] = values[index]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reads_of_any_layout(device: str, index: Any) -> None:
    """numpy() of a view."""
    values = source()
    assert np.array_equal(aiodev.asarray(values, device=device)[index].numpy_blocking(), values[index])


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "c16"])
@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((3, 900, 12), np.s_[:, 5:895, 1:11]),
        ((2, 40, 5000), np.s_[:, ::2, 3:4990]),
        ((2, 40, 5000), np.s_[::-1, ::-2, 3:4990]),
        ((2000, 4), np.s_[:, :3]),
        ((5, 4, 300, 7), np.s_[:, 1:3, 1:299, 1:6]),
    ],
    ids=str,
)
def test_rows_with_gaps_by_several_indices(shape: tuple[int, ...], index: Any, dtype: str) -> None:
    """From and to a view, again and again, and to the host."""
    values = (np.arange(np.prod(shape)) % 113).reshape(shape).astype(dtype)
    x, into = aiodev.asarray(values, device="cpu"), aiodev.zeros(shape, dtype, "cpu")
    expected = np.zeros(shape, dtype)
    expected[index] = values[index]
    for _ in range(3):
        packed = aiodev.empty(values[index].shape, dtype, "cpu")
        packed.copy_from(x[index])
        assert np.array_equal(packed.numpy_blocking(), values[index])
        into[index].copy_from(x[index])
        assert np.array_equal(into.numpy_blocking(), expected)
    into = aiodev.zeros(shape, dtype, "cpu")
    into[index].copy_from(values[index])
    assert np.array_equal(into.numpy_blocking(), expected)


@given(st.data())
@settings(deadline=None, max_examples=examples(40))
def test_copies_of_random_views(data: st.DataObject) -> None:
    """Any basic index of any shape, either way round."""
    host = data.draw(hnp.arrays(st.sampled_from(["i1", "u2", "f4", "c8", "c16"]), hnp.array_shapes(max_side=6)))
    index = data.draw(hnp.basic_indices(host.shape, allow_newaxis=True))
    part = np.asarray(host[index])
    array = aiodev.zeros(host.shape, host.dtype, "cpu")
    array[index].copy_from(part)
    expected = np.zeros_like(host)
    expected[index] = part
    assert array.numpy_blocking().tobytes() == expected.tobytes()


@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_copies_between_axes_in_any_order(data: st.DataObject) -> None:
    """Squares, blocks and what is left at their edges; nothing else is written."""
    dtype = data.draw(st.sampled_from(["i1", "f2", "f4", "f8", "c16"]), label="dtype")
    lengths = st.sampled_from([1, 2, 3, 4, 5, 9, 40, 127, 130, 258, 515])
    shape = data.draw(st.lists(lengths, min_size=2, max_size=5), label="shape")
    while math.prod(shape) > 300_000:
        shape[shape.index(max(shape))] //= 3
    edges = [data.draw(st.sampled_from([0, 0, 1, 3]), label="gaps") for _ in shape]
    fro, to = (data.draw(st.permutations(range(len(shape))), label="order") for _ in range(2))
    inside = tuple(slice(edge, edge + length) for edge, length in zip(edges, shape, strict=True))
    whole = np.random.default_rng(0).integers(0, 256, [n + 2 * e for n, e in zip(shape, edges, strict=True)]).astype(dtype)

    def laid(order: Sequence[int], values: np.ndarray[Any, Any]) -> aiodev.Array:
        """An array with these values, whose axes lie in memory in this order."""
        back = np.argsort(order)
        return aiodev.asarray(np.ascontiguousarray(values.transpose(order)), device="cpu").transpose(*back.tolist())

    target = laid(to, np.zeros_like(whole))
    target[inside].copy_from(laid(fro, whole)[inside])
    expected = np.zeros_like(whole)
    expected[inside] = whole[inside]
    assert np.array_equal(target.numpy_blocking(), expected)


@pytest.mark.parametrize(
    ("to", "fro"),
    [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[1:, 1:], np.s_[:-1, :-1]),
        (np.s_[:-1, 1:], np.s_[1:, :-1]),
        (np.s_[:, ::2], np.s_[:, 1::2]),
        (np.s_[:], np.s_[:]),
        (np.s_[2:5], np.s_[0]),
    ],
    ids=str,
)
def test_copies_within_an_array(device: str, to: Any, fro: Any) -> None:
    """Elements that are read are those from before the copy, as in NumPy."""
    host = np.arange(100 * 100.0).reshape(100, 100)
    array = aiodev.asarray(host, device=device)
    expected = host.copy()
    expected[to] = host[fro]
    src = array[fro]
    array[to].copy_from(src if src.ndim == 2 else aiodev.broadcast_to(src, (3, 100)))
    assert np.array_equal(array.numpy_blocking(), expected)


def test_an_array_becomes_its_transpose(device: str) -> None:
    """In place."""
    host = np.arange(100 * 100.0).reshape(100, 100)
    array = aiodev.asarray(host, device=device)
    array.copy_from(array.T)
    assert np.array_equal(array.numpy_blocking(), host.T)


@pytest.mark.parametrize("shape", [(515, 258), (3, 257, 130), (4, 2, 600)], ids=str)
def test_transposes_of_several_blocks(shape: tuple[int, ...]) -> None:
    """From a transposed array, and to one."""
    host = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    x, to = aiodev.asarray(host, device="cpu"), aiodev.zeros((*shape[:-2], *shape[:-3:-1]), "i4", "cpu")
    to.copy_from(x.mT)
    assert np.array_equal(to.numpy_blocking(), host.swapaxes(-1, -2))
    back = aiodev.zeros(shape, "i4", "cpu")
    back.mT.copy_from(to)
    assert np.array_equal(back.numpy_blocking(), host)


def test_a_large_array_moves_by_one() -> None:
    """Several workers share such a copy."""
    host = np.arange(3_000_000, dtype="u4")
    array = aiodev.asarray(host, device="cpu")
    array[1:].copy_from(array[:-1])
    assert np.array_equal(array.numpy_blocking()[1:], host[:-1])


def test_five_dimensions_with_gaps_in_each() -> None:
    """More than a kernel has: the outer ones are taken one by one."""
    host = np.arange(4**5 * 2**5).reshape((8,) * 5)[(slice(None, None, 2),) * 5]
    array = aiodev.asarray(host, device="cpu")
    assert np.array_equal(array.numpy_blocking(), host)


def test_many_dimensions_are_few_operations() -> None:
    """Of more than three dimensions that do not lie together the shortest ones count how many operations a copy is."""
    x = aiodev.asarray(np.arange(40 * 30 * 3 * 2 * 8, dtype=np.int32).reshape(40, 30, 3, 2, 8), device="cpu")
    turned, stream = x.transpose(2, 0, 3, 1, 4), aiodev.Stream("cpu")
    copied = aiodev.empty(x.shape, x.dtype, "cpu")
    apart = aiodev.asarray(np.ascontiguousarray(turned.numpy_blocking()), device="cpu")
    stream.synchronize_blocking()
    before = stream.timeline.submitted
    stream.copy(copied, apart.transpose(1, 3, 0, 2, 4))
    assert stream.timeline.submitted - before <= 2 * 3 * 2  # a launch each, and a wait for code that is not there yet
    stream.synchronize_blocking()
    assert (copied.numpy_blocking() == x.numpy_blocking()).all()


@pytest.mark.parametrize("over", ["withdrawn", "told"])
def test_copy_of_nothing_behind_what_is_over(device: str, over: str) -> None:
    """It is submitted afterwards, and so has nothing to do with what was withdrawn, or with a failure that was told."""
    stream = aiodev.Stream(device)
    x, y = (aiodev.empty(0, device=device) for _ in range(2))
    latch = Latch(stream)
    if over == "withdrawn":
        assert stream.call(int).cancel()
        copied = stream.copy(x, y)
        assert not copied.query()
        latch.release()
    else:
        failed = stream.call(int, "x")
        latch.release()
        with pytest.raises(ValueError):
            failed.synchronize_blocking(30)
        copied = stream.copy(x, y)
    copied.synchronize_blocking(30)
    assert not copied.cancel()


def test_what_cannot_be_copied_says_why() -> None:
    """Other shapes, other dtypes, read-only targets, host to host, no array."""
    stream = aiodev.default_stream("cpu")
    array = aiodev.zeros((2, 3), "f4", "cpu")
    frozen = np.zeros((2, 3), "f4")
    frozen.flags.writeable = False
    for dst, src, error in [
        (array, np.zeros((3, 2), "f4"), ValueError),
        (array, np.zeros((2, 3), "f8"), ValueError),
        (frozen, array, ValueError),
        (aiodev.from_dlpack(np.frombuffer(b"abcd", "u1")) if np.__version__ >= "2.1" else frozen, array, ValueError),
        (np.zeros(3), np.zeros(3), TypeError),
        ([1, 2], array, TypeError),
    ]:
        with pytest.raises(error):
            stream.copy(dst, src)


def test_a_stream_of_the_host_cannot_copy_from_a_device(device: str) -> None:
    """The CPU's workers do not reach it; a stream of the device does."""
    if device == "cpu":
        return
    array = aiodev.zeros(3, device=device)
    with pytest.raises(ValueError, match="cannot reach"):
        aiodev.default_stream("cpu").copy(np.zeros(3), array)


def test_to_another_device_and_back(device: str) -> None:
    """Ordered by itself: behind the work on the source, before later work on it."""
    if device == "cpu":
        return
    here = aiodev.Stream("cpu")
    with here, aiodev.Stream(device):
        array = aiodev.zeros(1000, "i4", "cpu")
        latch = Latch(aiodev.current_stream("cpu"))
        array.copy_from(np.full(1000, 1, "i4"))
        moved = array.to(device)
        array.copy_from(np.full(1000, 2, "i4"))
        back = moved.to("cpu")
        latch.release()
        assert moved.device == aiodev.Device(device)
        assert (back.numpy_blocking() == 1).all()
        assert (moved.numpy_blocking() == 1).all()
        assert (array.numpy_blocking() == 2).all()


def test_the_source_lives_until_the_copy_is_done() -> None:
    """A NumPy array whose last reference is the copy."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.empty(100_000, "i4")
        latch = Latch(stream)
        array.copy_from(np.full(100_000, 5, "i4"))
        for _ in range(20):
            np.full(100_000, 6, "i4")  # would take its place
        latch.release()
        assert (array.numpy_blocking() == 5).all()


def test_bounded_streams_copy_as_one_operation() -> None:
    """Pieces would never fit in a stream of one place."""
    stream = aiodev.Stream("cpu", maxsize=2)
    with stream:
        host = np.arange(40).reshape(4, 10)[:, :5]
        array = aiodev.empty(host.shape, host.dtype)
        stream.copy(array, host).synchronize_blocking()
        assert np.array_equal(array.numpy_blocking(), host)
        latch = Latch(stream)
        stream.copy(array, np.zeros((4, 5), host.dtype))
        with pytest.raises(aiodev.StreamFullError):
            stream.copy(array, np.zeros((4, 5), host.dtype))
        latch.release()


def test_copies_that_recur_are_one_operation_each() -> None:
    """Of few pieces too, to any row, on a stream that is not current, and from others of the same memory."""
    stream, host = aiodev.Stream("cpu"), np.zeros((4, 6, 3), np.float32)
    with stream:
        x = aiodev.asarray(host)
    submitted = []
    for turn in range(8):
        row = np.full((4, 3), turn + 1, np.float32)
        with stream:
            source = aiodev.asarray(row)
        stream.synchronize_blocking()
        before = stream.timeline.submitted
        host[:, turn % 6] = row
        stream.copy(x[:, turn % 6], source).synchronize_blocking(timeout=60)
        submitted.append(stream.timeline.submitted - before)
        assert np.array_equal(x.numpy_blocking(), host)
    assert submitted[0] == 4 and submitted[-1] == 1
    stream.copy(x[:, 0], x[:, 1])
    host[:, 0] = host[:, 1]
    stream.copy(x[:, 2], aiodev.from_dlpack(np.ones((4, 3), np.float32), device="cpu", copy=False))
    host[:, 2] = 1
    stream.synchronize_blocking()
    assert np.array_equal(x.numpy_blocking(), host)


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_parts_of_one_array_are_copied_to_others_of_it(data: st.DataObject) -> None:
    """In the same few ways, from and to other places each time: what is known of a way says nothing of whether they overlap."""
    rows, columns = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 6))
    host = np.arange(12 * 9, dtype="i4").reshape(12, 9)
    array = aiodev.asarray(host, device="cpu")
    steps = st.sampled_from([1, 2, -1])
    ways = [[(data.draw(steps), data.draw(steps)) for _ in range(2)] for _ in range(2)]

    def part(way: tuple[int, int]) -> tuple[slice, slice]:
        slices = []
        for count, length, step in zip((rows, columns), host.shape, way, strict=True):
            reach = (count - 1) * abs(step) + 1
            if reach > length:
                step, reach = 1, count
            low = data.draw(st.integers(0, length - reach))
            stop = low - 1 if step < 0 else low + reach
            slices.append(slice(low if step > 0 else low + reach - 1, None if stop < 0 else stop, step))
        return slices[0], slices[1]

    for _ in range(12):
        to, fro = map(part, data.draw(st.sampled_from(ways)))
        if data.draw(st.booleans()):  # whole rows, which have no gaps
            to, fro = ((rows_of, slice(None)) for (rows_of, _) in (to, fro))
        host[to] = host[fro].copy()
        array[to].copy_from(array[fro])
        assert np.array_equal(array.numpy_blocking(), host)


def test_a_copy_that_recurs_orders_its_readers() -> None:
    """Whole arrays and parts: who reads the target waits for the copy, which waits for what is ahead on its stream."""
    stream = aiodev.Stream("cpu")
    x, y = (aiodev.zeros((2, 8), "float32", "cpu") for _ in range(2))
    ones = aiodev.ones((2, 8), "float32", "cpu")
    aiodev.synchronize_blocking("cpu")
    for _ in range(4):
        stream.copy(x, ones).synchronize_blocking(timeout=60)
        stream.copy(y[:, 1:5], ones[:, 1:5]).synchronize_blocking(timeout=60)
    x[...] = 0
    y[...] = 0
    aiodev.synchronize_blocking("cpu")
    latch = Latch(stream)
    copied = [stream.copy(x, ones), stream.copy(y[:, 1:5], ones[:, 1:5])]
    assert not any(done.query() for done in copied)
    assert not x._buffer.is_written() and not y._buffer.is_written()
    latch.release()
    assert x.numpy_blocking().sum() == 16 and y.numpy_blocking().sum() == 8
