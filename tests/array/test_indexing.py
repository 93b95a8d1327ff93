"""Indexing by arrays and assignment: what NumPy does with the same index, of programs that hypothesis draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import aiodev
from aiodev import array_api
from aiodev.testing import Latch

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of any kind into an array of this shape: of views, and of arrays whose shapes broadcast."""
    common = draw(st.sampled_from([(), (1,), (3,), (2, 3), (0,)]))
    items: list[Any] = []
    d = 0
    while d < len(shape):
        kind = draw(st.sampled_from(["slice", "int", "array", "array", "mask", "none", "rest", "stop"]))
        n = shape[d]
        match kind:
            case "slice":
                low, high = draw(st.integers(-n - 1, n + 1)), draw(st.integers(-n - 1, n + 1))
                items.append(slice(low, high, draw(st.sampled_from([None, 1, 2, -1]))))
            case "int":
                items.append(draw(st.integers(-n, n - 1)))
            case "array":
                shown = draw(st.sampled_from([common, common[1:]]))
                count = int(np.prod(shown))
                values = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
                items.append(np.array(values, draw(st.sampled_from(["i8", "i4"]))).reshape(shown))
            case "mask" if not any(isinstance(item, np.ndarray) for item in items):
                width = draw(st.integers(1, len(shape) - d))
                count = int(np.prod(shape[d : d + width]))
                values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
                items.append(np.array(values, bool).reshape(shape[d : d + width]))
                d += width
                break  # others would have to broadcast with how many are true
            case "none":
                items.append(None)
                continue
            case "rest" if ... not in [item for item in items if not isinstance(item, np.ndarray)]:
                items.append(...)
                d += draw(st.integers(0, len(shape) - d))
                continue
            case "stop":
                break
            case _:
                continue
        d += 1
    if ... in [item for item in items if not isinstance(item, np.ndarray)]:  # what is behind it takes the last dimensions
        items += [slice(None)] * (len(shape) - d)
    return tuple(items)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], tuple[Any, ...]]:
    shape = draw(SHAPES)
    return np.arange(np.prod(shape)).reshape(shape) + 1, draw(indices(shape))


def on_device(index: tuple[Any, ...], which: str) -> tuple[Any, ...]:
    """The index with its arrays on the device, or as lists."""
    if which == "host":
        return index
    moved = {"device": lambda item: aiodev.asarray(item, device="cpu"), "lists": lambda item: item.tolist()}[which]
    return tuple(moved(item) if isinstance(item, np.ndarray) and item.ndim and item.size else item for item in index)


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(["host", "device", "lists"]), st.booleans())
def test_reading_is_as_numpy(case: tuple[np.ndarray[Any, Any], tuple[Any, ...]], which: str, transposed: bool) -> None:
    """Of an array and of a view of one, with arrays of the host and of the device."""
    host, index = case
    x = aiodev.asarray(host, device="cpu")
    if transposed:
        x = aiodev.asarray(np.ascontiguousarray(host.T), device="cpu").T
    expected = host[index]
    found = x[on_device(index, which)]
    assert found.shape == expected.shape
    assert np.array_equal(found.numpy_blocking(), expected)


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(["host", "device", "lists"]), st.sampled_from(["number", "row", "all", "alike"]), st.booleans())
def test_assignment_is_as_numpy(
    case: tuple[np.ndarray[Any, Any], tuple[Any, ...]], which: str, kind: str, transposed: bool
) -> None:
    """Where an index occurs twice, with the same value: which of several stays is not defined."""
    host, index = case
    x = aiodev.asarray(host, device="cpu")
    if transposed:
        x = aiodev.asarray(np.ascontiguousarray(host.T), device="cpu").T
    shape = host[index].shape
    match kind:
        case "number":
            value: Any = -7
        case "row":
            value = np.full(shape[-1:], -2.5)
        case "alike":  # in shape and dtype
            value = np.full(shape, -4)
        case _:
            value = np.full(shape, -3, np.int16)
    host = host.copy()
    host[index] = value
    given = aiodev.asarray(value, device="cpu") if which == "device" and kind != "number" else value
    x[on_device(index, which)] = given
    assert np.array_equal(x.numpy_blocking(), host)


#: Of dimensions of three elements, none of which they choose twice.
ITEMS: list[Any] = [
    1, slice(None, None, -1), None, np.array([2, 0, 1]), np.array([[0], [-1]]), np.array([False, True, False]), np.eye(3) > 0,
]  # fmt: skip


@pytest.mark.parametrize("which", ["host", "device"])
def test_an_ellipsis_stands_between_arrays(which: str) -> None:
    """Also where it stands for no dimension: those of the arrays come first then, as of NumPy's."""
    random = np.random.default_rng(5)
    for _ in range(150):
        items = [ITEMS[k] for k in random.integers(len(ITEMS), size=random.integers(2, 5))]
        ndim = sum(2 if np.ndim(item) == 2 and item.dtype == bool else item is not None for item in items) + random.integers(2)
        items.insert(random.integers(len(items) + 1), ...)
        index = tuple(items)
        host, chosen = np.arange(3**ndim).reshape((3,) * ndim), on_device(index, which)
        x = aiodev.asarray(host, device="cpu")
        np.testing.assert_array_equal(x[chosen].numpy_blocking(), host[index], repr(index))
        host = host.copy()
        host[index] = np.arange(host[index].size).reshape(host[index].shape) + 1000
        x[chosen] = host[index]
        np.testing.assert_array_equal(x.numpy_blocking(), host, repr(index))
        host[index] *= 2
        x[chosen] *= 2
        np.testing.assert_array_equal(x.numpy_blocking(), host, repr(index))


@pytest.mark.parametrize("which", ["host", "device", "lists"])
@pytest.mark.parametrize("position", [5, -6, 6])
def test_an_integer_between_an_ellipsis_and_a_mask(position: int, which: str) -> None:
    """A mask takes as many dimensions as it has, so the integer is of the first one."""
    host = np.arange(6 * 4 * 5).reshape(6, 4, 5)
    x, index = aiodev.asarray(host, device="cpu"), (..., position, host[0] % 3 == 1)
    chosen = on_device(index, which)
    if position == 6:
        with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 of length 6"):
            x[chosen]
        return
    assert np.array_equal(x[chosen].numpy_blocking(), host[index])
    x[chosen] = host[index] = -1
    assert np.array_equal(x.numpy_blocking(), host)


@pytest.fixture
def x() -> aiodev.Array:
    return aiodev.arange(12, device="cpu").reshape(3, 4)


def test_a_view_stays_a_view(x: aiodev.Array) -> None:
    """An index without arrays makes no copy."""
    x[1:, ::2][0] = 50
    assert x.numpy_blocking()[1].tolist() == [50, 5, 50, 7]


def test_writing_waits_for_nothing() -> None:
    """An assignment and a read by integers are submitted behind what the stream holds."""
    with aiodev.Stream("cpu") as stream:
        x = aiodev.arange(4, device="cpu")
        with Latch(stream):
            host = np.full(2, 9)
            x[1:3] = host
            host[:] = 8  # which comes too late
            x[aiodev.asarray([0], device="cpu")] = 5
            x[x == 9] = 1
            first = x[[3, 0]]
            x[:] = np.zeros(4, int)
            host[:] = [6, 7]
            x[::2] = host
            host[:] = 8
            assert not stream.query()
        assert first.numpy_blocking().tolist() == [3, 5] and x.numpy_blocking().tolist() == [6, 0, 7, 0]


def test_overlapping_views_are_read_before_they_are_written(x: aiodev.Array) -> None:
    """As if what is assigned had been copied first."""
    host = np.arange(12).reshape(3, 4)
    x[1:] = x[:-1]
    host[1:] = host[:-1].copy()
    x[:, ::-1] = x
    host[:, ::-1] = host.copy()
    assert np.array_equal(x.numpy_blocking(), host)


@pytest.mark.parametrize("axis", [0, 1])
def test_slices_that_are_written_from_the_same_array(axis: int) -> None:
    """At indices, as if what is assigned had been copied first."""
    host = np.arange(5 * 700).reshape(5, 700) if axis == 0 else np.arange(5 * 700).reshape(700, 5)
    order = np.array([3, 0, -1, 1, 2])
    with aiodev.Stream("cpu") as stream, Latch(stream):
        x = aiodev.asarray(host, device="cpu")
        index = (slice(None),) * axis + (aiodev.asarray(order, device="cpu"),)
        x[index] = x
        x[(slice(None),) * axis + ([0, 2],)] = 1
    host = host.copy()
    host[(slice(None),) * axis + (order,)] = host.copy()
    host[(slice(None),) * axis + ([0, 2],)] = 1
    assert np.array_equal(x.numpy_blocking(), host)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([3], "index 3 is out of bounds for dimension 0 of length 3"),
        ((0, [1, -5]), "index -5 is out of bounds"),
        (([0, 3], [0, 0]), "index 3 is out of bounds for dimension 0"),
        ([True, False], r"a mask of the shape \(2,\)"),
        ([1.5], "of integers or booleans, not of float64"),
        (([0], [0], [0]), "3 indices for an array of 2 dimensions"),
        ("a", "not by str"),
        ((..., [0], ...), "one ellipsis"),
    ],
)
def test_indices_that_do_not_fit(x: aiodev.Array, index: Any, message: str) -> None:
    """They are refused at once, in reading and in writing."""
    with pytest.raises(IndexError, match=message):
        _ = x[index]
    with pytest.raises(IndexError, match=message):
        x[index] = 1


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("place", [lambda m: m, lambda m: (1, m), lambda m: (slice(None), m, 0), lambda m: (m, ..., [2]),
                                   lambda m: (m, m, None)])  # fmt: skip
def test_masks_of_no_dimensions(x: aiodev.Array, place: Callable[[Any], Any], value: bool) -> None:
    """Python's, NumPy's, and arrays, on the host and the device: a dimension of one element, or of none."""
    host = x.numpy_blocking()
    wanted, written = host[place(value)], host.copy()
    written[place(value)] = 7
    for mask in (value, np.bool_(value), np.array(value), aiodev.asarray(value, device="cpu")):
        assert np.array_equal(x[place(mask)].numpy_blocking(), wanted), mask
        other = aiodev.asarray(host, device="cpu")
        other[place(mask)] = 7
        assert np.array_equal(other.numpy_blocking(), written), mask


class Foreign:
    """Another library's array, which NumPy can read."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values, dtype)


def test_other_libraries_arrays_are_indices(x: aiodev.Array) -> None:
    """As lists are; what only says that it is one is refused, and a class is no array."""
    host = x.numpy_blocking()
    assert np.array_equal(x[Foreign([2, 0])].numpy_blocking(), host[[2, 0]])
    assert np.array_equal(x[Foreign([True, False, True])].numpy_blocking(), host[[0, 2]])
    x[Foreign([1])] = 7
    assert np.array_equal(x[1].numpy_blocking(), [7, 7, 7, 7])
    liar = Foreign(0)
    liar.__class__ = type("Liar", (), {"__array__": lambda self, *args, **named: "liar"})  # type: ignore[assignment]
    for wrong in (Foreign(["a"]), Foreign, liar):
        with pytest.raises(IndexError):
            _ = x[wrong]


def test_indices_on_the_device_that_are_out_of_bounds(x: aiodev.Array) -> None:
    """The operation fails, and the stream goes on; of several dimensions together, too."""
    wrong = aiodev.asarray([0, 4], device="cpu")
    for index in (wrong, (aiodev.asarray([0, 1], device="cpu"), wrong), (wrong, aiodev.asarray([0, 1], device="cpu"))):
        with pytest.raises(aiodev.KernelError) as caught:
            x[index].numpy_blocking()
        assert isinstance(caught.value.__cause__, IndexError)
    assert int(x[2, 3]) == 11


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1, 2, 3], ValueError, r"shape \(3,\) cannot be assigned to elements of the shape \(3, 4\)"),
        (2**70, OverflowError, "elements of int64"),
        (1j, TypeError, "1j cannot be assigned"),
        ("a", ValueError, "elements of int64"),
        (None, TypeError, "None cannot be assigned"),
    ],
)
def test_values_that_do_not_fit(x: aiodev.Array, value: Any, error: type[Exception], message: str) -> None:
    """They are refused at once, and nothing is written."""
    with pytest.raises(error, match=message):
        x[:] = value
    assert np.array_equal(x.numpy_blocking(), np.arange(12).reshape(3, 4))


def test_what_is_read_only_is_not_assigned_to() -> None:
    """What repeats elements, for one."""
    with pytest.raises(ValueError, match="read-only"):
        aiodev.broadcast_to(aiodev.ones(3, device="cpu"), (2, 3))[0] = 1


async def test_the_value_of_an_element(x: aiodev.Array) -> None:
    """``await x.item()`` and ``await x.tolist()`` give Python's numbers."""
    assert await x.item(1, 2) == 6 and type(await x[0, 0].item()) is int
    assert await x.tolist() == np.arange(12).reshape(3, 4).tolist() and await x[2, 1].tolist() == 9
    with pytest.raises(ValueError, match="one element"):
        await x.item()


def test_the_last_two_dimensions_exchanged(x: aiodev.Array) -> None:
    """As NumPy's ``mT``."""
    assert np.array_equal(x[None].mT.numpy_blocking(), np.arange(12).reshape(1, 3, 4).mT)
    with pytest.raises(ValueError, match="2 dimensions"):
        _ = x[0].mT


@pytest.mark.parametrize(
    "index",
    [
        [3, 1], (slice(None, 2), [3, 1]), ([3, 1], slice(0, 4, -1), 0), ([0, 2], 5, [1, 1]), (5, 5, [-1]),
        ([True] * 2 + [False] * 98, 2, slice(3)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("on_device", [False, True])
def test_an_assignment_takes_the_memory_of_what_is_chosen(index: Any, on_device: bool) -> None:
    """Not of the array: places are not looked up among those of all elements."""
    x = aiodev.zeros((100, 200, 300), "uint8", "cpu")
    aiodev.synchronize_blocking("cpu")
    if on_device:
        items = index if isinstance(index, tuple) else (index,)
        index = tuple([aiodev.asarray(item, device="cpu") if isinstance(item, list) else item for item in items])
    expected = x[index].size
    aiodev.memory.reset_peak_memory_stats("cpu")
    before = aiodev.memory.memory_allocated("cpu")
    x[index] = [7]  # a mask takes other ways for a single number
    assert aiodev.memory.max_memory_allocated("cpu") - before < x.nbytes / 2
    assert np.count_nonzero(x.numpy_blocking() == 7) == expected


def test_places_out_of_bounds_stay_out_of_bounds() -> None:
    """Whatever is added to them for the other dimensions."""
    x = aiodev.zeros((3, 4), "int64", "cpu")
    for far in (3, -4, 2**40):
        x[aiodev.asarray([0, far], device="cpu"), ::-1] = 1
        with pytest.raises(aiodev.KernelError, match="out of bounds"):
            x.numpy_blocking()
    x[:] = 0
    assert not x.numpy_blocking().any()


# Masks that are written, and masks that are not

FINISHED: dict[str, tuple[Callable[[aiodev.Array, aiodev.Array], Any], Callable[[Any, Any], Any]]] = {
    "mask": (lambda x, m: x[m], lambda x, m: x[m]),
    "mask of a dimension": (lambda x, m: x[:, m[0]], lambda x, m: x[:, m[0]]),
    "mask beside an integer": (lambda x, m: x[m[:, 0], 1], lambda x, m: x[m[:, 0], 1]),
    "nonzero": (lambda x, m: array_api.nonzero(x)[1], lambda x, m: np.nonzero(x)[1]),
    "unique_all": (lambda x, m: array_api.unique_all(x).indices, lambda x, m: np.unique_all(x).indices),
    "unique_counts": (lambda x, m: array_api.unique_counts(x).counts, lambda x, m: np.unique_counts(x).counts),
    "unique_inverse": (
        lambda x, m: array_api.unique_inverse(x).inverse_indices,
        lambda x, m: np.unique_inverse(x).inverse_indices,
    ),
    "unique_values": (lambda x, m: array_api.unique_values(x), lambda x, m: np.unique(x)),
    "in": (lambda x, m: 5 in x, lambda x, m: True),
    "not in": (lambda x, m: -5 in x, lambda x, m: False),
}


@pytest.mark.parametrize("shape", [(3, 4), (200, 100)])
@pytest.mark.parametrize("case", FINISHED)
@pytest.mark.parametrize("mode", ["default", "error"])
async def test_what_is_written_is_not_waited_for(mode: Any, case: str, shape: tuple[int, int]) -> None:
    """Whatever else the stream has to do: the host answers, or another stream, for much unless nothing may hold the loop."""
    host = np.arange(math.prod(shape)).reshape(shape) // 2
    x, mask = on_cpu(host), on_cpu(host % 4 == 1)
    function, expected = FINISHED[case]
    with aiodev.Stream("cpu") as stream:
        aiodev.set_sync_debug_mode(mode)
        with Latch(stream):
            found = function(x, mask)
            assert not stream.query()
        aiodev.set_sync_debug_mode("default")
        values = found if isinstance(found, bool) else await found.numpy()
        np.testing.assert_array_equal(values, expected(host, host % 4 == 1))
        assert np.asarray(values).dtype == np.asarray(expected(host, host % 4 == 1)).dtype


def on_cpu(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


CUBE = np.arange(24.0).reshape(2, 3, 4)
WHICH = CUBE % 5 < 2
#: An index with the mask of the first so many dimensions, and a value.
MASKED: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "values": (lambda m: m, WHICH, -np.arange(1.0, 1 + WHICH.sum())),
    "a list": (lambda m: m, WHICH[0, 0, :2], [[[-1.0] * 4] * 3]),
    "rows": (lambda m: m, WHICH[:, :, 0], -np.arange(1.0, 1 + 4 * WHICH[:, :, 0].sum()).reshape(-1, 4)),
    "a row": (lambda m: m, WHICH[:, :, 0], -np.arange(4.0)),
    "one row": (lambda m: m, WHICH[:, :, 0], -np.arange(4.0).reshape(1, 4)),
    "a number beside an integer": (lambda m: (m, 0), WHICH[:, :, 0], 5),
    "values beside an integer": (lambda m: (m, 0), WHICH[:, :, 0], -np.arange(1.0, 1 + WHICH[:, :, 0].sum())),
    "last dimensions": (lambda m: (slice(None), m), WHICH[0], 5),
    "values of last dimensions": (lambda m: (slice(None), m), WHICH[0], -np.ones((2, WHICH[0].sum()))),
    "the same for all": (lambda m: (slice(None), m), WHICH[0], -np.arange(1.0, 1 + WHICH[0].sum())),
    "the same for each": (lambda m: (slice(None), m), WHICH[0], [[-1.0], [-2.0]]),
    "behind an ellipsis": (lambda m: (..., m), WHICH[1, 1], -np.ones((2, 3, WHICH[1, 1].sum()))),
    "apart from an integer": (lambda m: (0, slice(None), m), WHICH[1, 1], -np.ones((WHICH[1, 1].sum(), 3))),
    "a new dimension": (lambda m: (None, m), WHICH[:, 0, 0], -np.ones((1, WHICH[:, 0, 0].sum(), 3, 4))),
    "nothing": (lambda m: m, WHICH & False, np.ones(0)),
}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("case", MASKED)
async def test_assignments_by_masks_wait_for_nothing(case: str, written: bool) -> None:
    """Whether the mask is written or not; with gaps between the elements, too."""
    index, mask, value = MASKED[case]
    for turned in (False, True):
        expected = CUBE.copy()
        expected[index(mask)] = value
        with aiodev.Stream("cpu") as stream:
            x = on_cpu(CUBE.T.copy()).T if turned else on_cpu(CUBE)
            which = on_cpu(mask)
            aiodev.set_sync_debug_mode("error")
            with Latch(stream):
                x[index(which if written else which ^ False)] = value
                assert not stream.query()
            aiodev.set_sync_debug_mode("default")
            np.testing.assert_array_equal(await x.numpy(), expected)


async def test_as_many_values_as_a_mask_chooses() -> None:
    """Too few and too many are refused at once where the mask is written; else the operation fails, and writes nothing."""
    host = np.array([True, False, True, True])
    for count in (2, 4, 5):
        x = aiodev.zeros(4, device="cpu")
        with pytest.raises(ValueError, match="cannot be assigned"):
            x[on_cpu(host)] = np.ones(count)
        with aiodev.Stream("cpu") as stream:
            x = aiodev.zeros(4, device="cpu")
            copied = x + 0
            with Latch(stream):
                mask = on_cpu(host) ^ False
                if count > 4:
                    with pytest.raises(ValueError, match="5 values cannot be assigned"):
                        x[mask] = np.ones(count)
                    continue
                x[mask] = np.ones(count)
            with pytest.raises(aiodev.KernelError) as caught:
                await x.numpy()
            assert isinstance(caught.value.__cause__, ValueError) and "as many values" in str(caught.value.__cause__)
            assert await copied.tolist() == [0, 0, 0, 0]


async def test_masks_of_another_shape_are_refused_before_they_are_written() -> None:
    """By an assignment, whose other parts are known."""
    x = aiodev.zeros((3, 4), device="cpu")
    with aiodev.Stream("cpu") as stream, Latch(stream):
        mask = on_cpu([True, False]) ^ False
        with pytest.raises(IndexError, match=r"a mask of the shape \(2,\) .* \(4,\)"):
            x[0, mask] = 1
        with pytest.raises(ValueError, match="cannot be assigned"):
            x[on_cpu([True, False, True]) ^ False] = np.ones((3, 5))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (0, 0)])
def test_a_mask_without_elements_chooses_nothing(x: aiodev.Array, shape: tuple[int, ...], on_device: bool) -> None:
    """Each of its lengths may be 0, as of NumPy's."""
    mask = aiodev.zeros(shape, "bool", "cpu") if on_device else np.zeros(shape, bool)
    host = x.numpy_blocking()
    assert x[mask].shape == host[np.zeros(shape, bool)].shape
    x[mask] = 5
    x[mask] = np.zeros((0, *x.shape[len(shape) :]))
    assert (x.numpy_blocking() == host).all()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "index",
    [slice(2, 2), (slice(3, 0), slice(None, None, 2)), ..., np.zeros(0, int), ([], 0), (slice(0), [1, 0]), np.zeros(4, bool)],
    ids=repr,
)
def test_values_of_what_chooses_no_elements(index: Any, on_device: bool) -> None:
    """Are refused where they do not broadcast to its shape, as NumPy's are."""
    host = np.ones((4, 0) if index is ... else (4, 6))
    x = aiodev.asarray(host, device="cpu")
    if on_device and isinstance(index, np.ndarray):
        index = aiodev.asarray(index, device="cpu")
    shape = host[index.numpy_blocking() if isinstance(index, aiodev.Array) else index].shape
    for value in (2.5, np.zeros(shape), np.zeros((1, *shape)), np.zeros(shape[1:]), np.zeros((1,) * len(shape), "i4")):
        x[index] = aiodev.asarray(value, device="cpu") if on_device else value
    for value in (np.zeros((2, *shape)), np.zeros((5, *shape[1:])), np.zeros((*shape[:-1], 7)), [1.0, 2.0, 3.0, 4.0]):
        with pytest.raises(ValueError, match="cannot be assigned to elements of the shape"):
            x[index] = aiodev.asarray(value, device="cpu") if on_device else value
    assert (x.numpy_blocking() == 1).all()


def test_indices_that_do_not_fit_each_other_are_index_errors() -> None:
    """As NumPy's, whether they are on the device or on the host."""
    x = aiodev.zeros((3, 4), device="cpu")
    three, two = np.arange(3), np.arange(2)
    for indices in ((three, two), (aiodev.asarray(three, device="cpu"), aiodev.asarray(two, device="cpu"))):
        with pytest.raises(IndexError, match=r"index: the shapes \(3,\) and \(2,\) do not broadcast"):
            x[indices]
        with pytest.raises(IndexError, match=r"index: the shapes \(3,\) and \(2,\) do not broadcast"):
            x[indices] = 1.0


def test_nan_and_infinity_are_no_integers() -> None:
    """What is said is why."""
    x = aiodev.zeros(3, dtype="int64", device="cpu")
    with pytest.raises(ValueError, match="nan cannot be assigned to elements of int64: cannot convert float NaN to integer"):
        x[0] = float("nan")
    with pytest.raises(OverflowError, match="inf cannot be assigned to elements of int64: cannot convert float infinity"):
        x[0] = float("inf")
