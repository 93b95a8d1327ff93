"""Layouts against NumPy's: the same shapes, strides and elements, whatever is done to them."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from hypothesis.extra import numpy as hnp

from aiodev._array import layout
from aiodev._array.layout import Layout

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
ITEM = np.dtype(np.int32).itemsize


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Strided views: slices, transpositions and negative steps of a packed array."""
    shape = draw(SHAPES)
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    if array.ndim:
        array = array[draw(hnp.basic_indices(shape, allow_ellipsis=True, allow_newaxis=True))]
    array = np.asarray(array)
    return array.transpose(draw(st.permutations(range(array.ndim))))


def of(array: np.ndarray[Any, Any]) -> Layout:
    """NumPy's layout."""
    return Layout(array.shape, array.strides)


def offset(view: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> int:
    """Bytes between two first elements."""
    found: int = view.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    return found


@given(SHAPES)
def test_packed_strides_are_numpys(shape: tuple[int, ...]) -> None:
    """A fresh array has the strides that NumPy gives it."""
    assume(0 not in shape)
    assert layout.packed_strides(shape, ITEM) == np.empty(shape, np.int32).strides


@given(views())
def test_contiguity_is_numpys(array: np.ndarray[Any, Any]) -> None:
    """Contiguous is what NumPy's flag says."""
    assert layout.is_contiguous(of(array), ITEM) == array.flags.c_contiguous


@given(st.data())
def test_indexing_is_numpys(data: st.DataObject) -> None:
    """Basic indexing gives the elements that NumPy gives, and its shape."""
    array = data.draw(views())
    index = data.draw(hnp.basic_indices(array.shape, allow_ellipsis=True, allow_newaxis=True))
    found = layout.index_layout(of(array), index)
    expected = np.asarray(array[index])
    assert found.layout.shape == expected.shape
    if expected.size:
        assert found.offset == offset(expected, array) or expected.base is None
        moved = [s for s, n in zip(found.layout.strides, expected.shape, strict=True) if n > 1]
        assert moved == [s for s, n in zip(expected.strides, expected.shape, strict=True) if n > 1]


@pytest.mark.parametrize("index", [5, -6, (0, 0, 0), (..., ...), 1.5, "a"])
def test_what_is_no_basic_index_raises_index_error(index: Any) -> None:
    """Out of bounds, too many, or of another kind."""
    with pytest.raises(IndexError):
        layout.index_layout(Layout((5, 2), (8, 4)), index)


@pytest.mark.parametrize("index", [[0], (0, [1]), np.array([0]), np.array(0), (slice(None), (0, 1)), True, np.False_], ids=repr)
def test_what_chooses_elements_is_no_view(index: Any) -> None:
    """Arrays, and sequences and truth values, which become arrays."""
    with pytest.raises(layout.NoView):
        layout.index_layout(Layout((5, 2), (8, 4)), index)


@given(views(), st.data())
def test_reshaping_finds_a_view_exactly_where_numpy_does(array: np.ndarray[Any, Any], data: st.DataObject) -> None:
    """Strides for the new shape, or None where NumPy must copy."""
    size = array.size
    shape = data.draw(st.sampled_from(_shapes_of(size)))
    strides = layout.reshape_strides(of(array), shape, ITEM)
    expected = array.reshape(shape)
    if size and np.shares_memory(expected, array):
        assert strides is not None
        view = np.lib.stride_tricks.as_strided(array, shape, strides)
        assert np.array_equal(view, expected)
    elif size:
        assert strides is None


def _shapes_of(size: int) -> list[tuple[int, ...]]:
    if size == 0:
        return [(0,), (0, 3), (2, 0)]
    pairs = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    triples = [(a, b, c // b) for a, c in pairs for b in range(1, c + 1) if c % b == 0]
    return [(size,), *pairs, *triples, (1, size, 1)]


def test_reshaping_infers_one_length() -> None:
    """-1 stands for what is left; anything that does not fit raises."""
    assert layout.resolve_shape((2, -1), 12) == (2, 6)
    assert layout.resolve_shape(((3, 4),), 12) == (3, 4)
    assert layout.resolve_shape((), 1) == ()
    for shape in [(5,), (-1, -1), (-1, 5), (-2, -6), ()]:
        with pytest.raises(ValueError):
            layout.resolve_shape(shape, 12)


@given(views())
def test_the_extent_holds_every_element_and_no_more(array: np.ndarray[Any, Any]) -> None:
    """First and last byte of any view."""
    first, last = layout.extent(of(array), ITEM)
    if array.size == 0:
        assert (first, last) == (0, 0)
        return
    low, high = np.lib.array_utils.byte_bounds(array) if hasattr(np.lib, "array_utils") else np.byte_bounds(array)
    start = array.__array_interface__["data"][0]
    assert (start + first, start + last) == (low, high)


@given(views(), st.data())
def test_runs_cover_two_layouts_of_one_shape(array: np.ndarray[Any, Any], data: st.DataObject) -> None:
    """Copying piece by piece is copying the array."""
    target = np.full(array.shape, -1, np.int32)
    if data.draw(st.booleans()):
        wide = np.full(tuple(2 * n for n in array.shape), -1, np.int32)
        target = wide[(..., *(slice(None, None, 2) for _ in array.shape))]
    count, nbytes, offsets = layout.runs(array.shape, target.strides, array.strides, ITEM)
    pairs = list(offsets)
    assert len(pairs) == count
    assert count * nbytes == array.nbytes
    base = array.__array_interface__["data"][0]
    to = target.__array_interface__["data"][0]
    for there, here in pairs:
        ctypes.memmove(to + there, base + here, nbytes)
    assert np.array_equal(target, array)


def test_a_transposition_is_no_other_thing_than_a_permutation() -> None:
    """None given means reversed; a sequence or single axes; anything else raises."""
    source = Layout((2, 3, 4), (48, 16, 4))
    assert layout.permute(source, layout.transposition(3, ())).shape == (4, 3, 2)
    assert layout.permute(source, layout.transposition(3, ((1, 0, 2),))).shape == (3, 2, 4)
    assert layout.permute(source, layout.transposition(3, (-1, 0, 1))).shape == (4, 2, 3)
    for axes in [(0, 1), (0, 0, 1), (0, 1, 3)]:
        with pytest.raises(ValueError):
            layout.permute(source, axes)


@pytest.mark.parametrize("shape", [-1, (2, -1), "ab", 1.5, (1, 2.5)])
def test_what_is_no_shape_raises(shape: Any) -> None:
    """A shape is an int or a sequence of ints, none negative."""
    with pytest.raises((TypeError, ValueError)):
        layout.parse_shape(shape)


@pytest.mark.parametrize("wrong", [2.0, None, "3", (2, 2.0), [None]])
def test_lengths_are_integers(wrong: object) -> None:
    """Of new arrays and of those that are reshaped; the message says what was asked for."""
    for ask in (layout.parse_shape, lambda shape: layout.resolve_shape((shape,), 4)):
        with pytest.raises(TypeError, match="^shape .*: expected an integer, or a sequence of integers"):
            ask(wrong)
    assert layout.parse_shape(np.array([2, 3])) == layout.parse_shape([np.int64(2), 3]) == (2, 3)
    assert layout.parse_shape(np.int64(3)) == layout.parse_shape(range(3, 4)) == (3,)


def _bytes(array: np.ndarray[Any, Any], base: int) -> set[int]:
    """Where an array's bytes are, counted from an address."""
    offsets = np.zeros((1,), np.int64)
    for length, stride in zip(array.shape, array.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(length) * stride).ravel()
    starts = offsets + array.__array_interface__["data"][0] - base
    return set((starts[:, None] + np.arange(array.itemsize)).ravel().tolist())


def _view(chance: np.random.Generator, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A basic slice of an array, its axes in some order."""
    steps = [int(chance.choice([1, 1, 2, -1])) for _ in array.shape]
    first = [int(chance.integers(0, max(1, length // 2))) for length in array.shape]
    sliced = array[tuple(slice(begin, None, 1) for begin in first)][tuple(slice(None, None, step) for step in steps)]
    return sliced.transpose(chance.permutation(array.ndim))


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_layouts(seed: int) -> None:
    """What is said to be a part has no byte that the whole has not; and slices of an array, reshaped, are parts of it."""
    chance = np.random.default_rng(seed)
    base = np.arange(240).reshape([(240,), (12, 20), (4, 5, 12), (2, 3, 4, 10)][seed % 4]).astype("i4")
    address = base.__array_interface__["data"][0]

    def is_part(part: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]) -> bool:
        distance = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        one, other = Layout(part.shape, part.strides), Layout(whole.shape, whole.strides)
        return layout.is_part(one, part.itemsize, other, whole.itemsize, distance)

    whole = _view(chance, base)
    for _ in range(20):
        part = _view(chance, whole)
        assert is_part(part, whole) and is_part(part[:0], whole)
        other = _view(chance, base)
        assert not is_part(other, whole) or _bytes(other, address) <= _bytes(whole, address)
        if whole.size and part.base is not None and part.flags.c_contiguous:
            assert is_part(part.reshape(-1), whole) and is_part(part.reshape(-1).view("u1"), whole)
