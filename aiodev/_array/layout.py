"""Layouts: shapes and strides, as pure functions.

A layout is a shape and strides in bytes; an array adds the address of its first element. Lengths are 0 or more, strides any
integers. Nothing here knows of memory.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.exceptions import AxisError, TooHardError

__all__ = [
    "Index",
    "Layout",
    "NoView",
    "Part",
    "Strided",
    "collapse",
    "extent",
    "index_layout",
    "is_contiguous",
    "is_part",
    "leave",
    "overlaps",
    "packed_strides",
    "parse_shape",
    "permute",
    "reshape_strides",
    "resolve_shape",
    "runs",
    "transposition",
]

Shape = tuple[int, ...]
Index = int | slice | EllipsisType | None | tuple["int | slice | EllipsisType | None", ...]


class Strided(Protocol):
    """What has a layout."""

    @property
    def shape(self) -> Shape: ...

    @property
    def strides(self) -> Shape: ...


class Layout(NamedTuple):
    """A shape and its strides in bytes."""

    shape: Shape
    strides: Shape


class Part(NamedTuple):
    """A layout within another one's memory."""

    layout: Layout
    offset: int  #: bytes from the other's first element


def integers(name: str, value: Any) -> tuple[int, ...]:
    """One integer or several, as ints.

    Raises:
        TypeError: it is something else, or one of them is.
    """
    try:
        if not isinstance(value, tuple | list):
            try:
                return (operator.index(value),)
            except TypeError:  # another kind of sequence, then
                pass
        return tuple(map(operator.index, value))
    except TypeError:
        raise TypeError(f"{name} {value!r}: expected an integer, or a sequence of integers") from None


def parse_shape(shape: Any) -> Shape:
    """A shape as a tuple of ints; an int is a shape of one dimension.

    Raises:
        TypeError: it is neither an integer nor a sequence of them.
        ValueError: a length is negative.
    """
    if type(shape) is tuple:
        for length in shape:
            if type(length) is not int or length < 0:
                break
        else:
            return shape
    lengths = integers("shape", shape)
    if lengths and min(lengths) < 0:
        raise ValueError(f"shape {lengths}: a length cannot be negative")
    return lengths


def packed_strides(shape: Shape, itemsize: int) -> Shape:
    """Strides of rows after rows (C order), with no gaps."""
    strides, stride = [], itemsize
    for length in reversed(shape):
        strides.append(stride)
        stride *= length or 1
    return tuple(reversed(strides))


@functools.lru_cache(4096)
def is_contiguous(layout: Layout, itemsize: int) -> bool:
    """Whether the elements lie in C order with no gaps; as NumPy has it, strides of single elements do not matter."""
    if 0 in layout.shape:
        return True
    expected = itemsize
    for length, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


@functools.lru_cache(4096)
def extent(layout: Layout, itemsize: int) -> tuple[int, int]:
    """(first, last): the bytes from ``first`` up to ``last`` hold all elements, relative to the first element."""
    if 0 in layout.shape:
        return 0, 0
    steps = [(length - 1) * stride for length, stride in zip(layout.shape, layout.strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


@functools.lru_cache(4096)
def overlaps(first: Layout, itemsize: int, second: Layout, other_size: int, distance: int) -> bool:
    """Whether two layouts have a byte in common, where the second begins ``distance`` bytes behind the first.

    Columns beside columns have none, nor have even rows and odd ones. True where it takes too long to find that out.
    """
    (begin, end), (low, high) = extent(first, itemsize), extent(second, other_size)
    if not begin < high + distance or not low + distance < end or begin == end or low == high:
        return False
    try:
        return np.shares_memory(
            _Placed(first, itemsize, _ANYWHERE).seen(), _Placed(second, other_size, _ANYWHERE + distance).seen(), _EFFORT
        )
    except TooHardError:
        return True


def is_part(part: Layout, itemsize: int, whole: Layout, whole_size: int, distance: int) -> bool:
    """Whether all bytes of a layout, which begins ``distance`` bytes behind another, are bytes of that.

    As far as that is seen axis by axis: of basic slices, reshaped, it is; False of an antidiagonal, too.
    """
    low, high = extent(part, itemsize)
    if low == high:
        return True
    axes = [(abs(stride), length) for length, stride in zip(whole.shape, whole.strides, strict=True) if length > 1 and stride]
    axes = sorted([*axes, (1, whole_size)])
    merged = axes[:1]
    for stride, length in axes[1:]:
        inner, count = merged[-1]
        merged[-1:] = [(inner, count * length)] if stride == inner * count else [(inner, count), (stride, length)]
    merged.reverse()

    def steps(nbytes: int) -> list[int]:
        """How far that is along each axis, from the longest strides on."""
        found = []
        for stride, _ in merged:
            found.append(nbytes // stride)
            nbytes %= stride
        return found

    first = low + distance - extent(whole, whole_size)[0]
    if first < 0:
        return False
    reached = steps(first)
    for length, stride in [*zip(part.shape, part.strides, strict=True), (itemsize, 1)]:
        reached = [at + (length - 1) * step for at, step in zip(reached, steps(abs(stride)), strict=True)]
    return all(at < length for at, (_, length) in zip(reached, merged, strict=True))


#: Beyond this many bytes no library takes a stride.
_FARTHEST = 1 << 63
#: An address, in the middle of all.
_ANYWHERE = 1 << 46
#: How many steps, of some nanoseconds, a byte in common is looked for. Larger: longer calls; smaller: more copies without need.
_EFFORT: Any = 10_000


class _Placed:
    """A layout as an array of NumPy's, where no memory need be: nobody looks at elements."""

    def __init__(self, layout: Layout, itemsize: int, address: int) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (address, True), "shape": layout.shape, "strides": layout.strides, "typestr": f"|V{itemsize}",
        }  # fmt: skip

    def seen(self) -> np.ndarray[Any, Any]:
        return np.asarray(self)


def permute(layout: Strided, axes: Sequence[int]) -> Layout:
    """The layout with its dimensions in the order ``axes``.

    Raises:
        ValueError: ``axes`` is no permutation.
    """
    ndim = len(layout.shape)
    try:
        order = [axis + ndim if axis < 0 else axis for axis in map(operator.index, axes)]
    except TypeError:
        raise TypeError(f"axes {axes!r}: expected integers") from None
    if order and not -1 < min(order) <= max(order) < ndim:
        raise AxisError(f"axes {tuple(axes)}: one is out of bounds for an array of {ndim} dimensions")
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes {tuple(axes)} are not a permutation of {ndim} dimensions")
    return Layout(tuple(layout.shape[a] for a in order), tuple(layout.strides[a] for a in order))


def transposition(ndim: int, axes: tuple[Any, ...]) -> Sequence[int]:
    """The permutation that ``transpose(*axes)`` means: none given, reversed; else a sequence, or the axes themselves."""
    if not axes or (len(axes) == 1 and axes[0] is None):
        return range(ndim - 1, -1, -1)
    if len(axes) == 1 and isinstance(axes[0], Sequence):
        return axes[0]
    return axes


def index_layout(layout: Strided, index: Index) -> Part:
    """Basic indexing: integers, slices, one ellipsis and None (a new dimension).

    Raises:
        IndexError: out of bounds, too many indices, two ellipses, or an index of another kind.
        NoView: one of them is an array, a sequence, or a truth value.
    """
    items = index if isinstance(index, tuple) else (index,)
    given_shape, given_strides = layout.shape, layout.strides
    ndim = len(given_shape)
    used = dots = 0
    for item in items:
        if item is Ellipsis:
            dots += 1
        elif item is not None:
            if item.__class__ is not int and item.__class__ is not slice and _is_array(item):
                raise NoView  # a mask takes as many dimensions as it has, so which is whose is not known here
            used += 1
    if used > ndim:
        raise IndexError(f"{used} indices for an array of {ndim} dimensions")
    if dots > 1:
        raise IndexError("an index can have one ellipsis ('...') only")
    parts: list[Any] = []
    distance = axis = 0
    for item in items:
        if isinstance(item, slice):
            try:
                parts.append(item.indices(given_shape[axis]))
            except (TypeError, ValueError):
                raise IndexError(f"index {item}: a slice has integers or None, and a step other than 0") from None
            axis += 1
        elif item is None or item is Ellipsis:
            parts.append(item)
            axis += 0 if item is None else ndim - used
        else:
            distance += _position(item, axis, given_shape[axis]) * given_strides[axis]
            parts.append(0)
            axis += 1
    shape, strides, offset = leave(given_shape, given_strides, parts)
    return Part(Layout(shape, strides), offset + distance)


def leave(shape: Shape, strides: Shape, parts: Sequence[Any]) -> tuple[Shape, Shape, int]:
    """What an index leaves of a layout, and the bytes that its slices skip; :func:`index_layout` knows what is valid.

    ``parts`` are the index: of a slice its bounds, as ``slice.indices`` gives them, 0 for an integer, None and ``...``.
    """
    lengths: list[int] = []
    steps: list[int] = []
    offset = axis = 0
    for part in parts:
        if part.__class__ is tuple:
            start, stop, step = part
            stride = strides[axis]
            length = stop - start if step == 1 else len(range(start, stop, step))
            if length > 0:
                offset += start * stride
                lengths.append(length)
            else:
                lengths.append(0)
            if step != 1:
                stride *= step
                if not -_FARTHEST < stride < _FARTHEST:  # of one element, or none
                    stride = 0
            steps.append(stride)
            axis += 1
        elif part is None:
            lengths.append(1)
            steps.append(0)
        elif part is Ellipsis:
            rest = axis + len(shape) - sum([own is not None and own is not Ellipsis for own in parts])
            lengths += shape[axis:rest]
            steps += strides[axis:rest]
            axis = rest
        else:
            axis += 1
    return (*lengths, *shape[axis:]), (*steps, *strides[axis:]), offset


class NoView(Exception):  # it is caught at once
    """An index holds an array, or what becomes one, so that no view has its elements."""


def _is_array(item: Any) -> bool:
    """Whether an item of an index is an array, or becomes one, as a truth value becomes a mask of no dimensions."""
    if isinstance(item, list | tuple | bool | np.bool_):
        return True
    return hasattr(type(item), "__array__") and not isinstance(item, np.generic)


def _position(item: Any, axis: int, length: int) -> int:
    try:
        position = operator.index(item)
    except TypeError:
        got = type(item).__name__
        raise IndexError(f"arrays are indexed by integers, slices, '...', None and arrays; not by {got}") from None
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of bounds for dimension {axis} of length {length}")
    return position + length if position < 0 else position


def resolve_shape(shape: tuple[Any, ...], size: int) -> Shape:
    """The shape that ``reshape(*shape)`` means for ``size`` elements; one length may be -1.

    Raises:
        TypeError: a length is no integer.
        ValueError: the shape does not have that many elements.
    """
    lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if lengths.__class__ is tuple:
        for length in lengths:
            if length.__class__ is not int or length < 0:
                break
        else:
            if math.prod(lengths) == size:
                return lengths
    resolved = list(integers("shape", lengths))
    if resolved.count(-1) == 1:
        known = math.prod(length for length in resolved if length != -1)
        resolved[resolved.index(-1)] = size // known if known else -1
    if min(resolved, default=0) < 0 or math.prod(resolved) != size:
        raise ValueError(f"reshape: {size} elements cannot have the shape {tuple(lengths)}")
    return tuple(resolved)


@functools.lru_cache(4096)
def reshape_strides(layout: Layout, shape: Shape, itemsize: int) -> Shape | None:
    """Strides that show the same elements, in C order, in another shape; None if no strides do.

    Both shapes are cut into groups of dimensions with as many elements; a group of the old one must be evenly spaced.
    """
    if math.prod(shape) == 0:
        return packed_strides(shape, itemsize)
    pairs = zip(layout.shape, layout.strides, strict=True)
    old = [(length, stride) for length, stride in pairs if length != 1]
    strides: list[int] = []
    i = j = 0
    while i < len(old) and j < len(shape):
        first, begin = i, j
        have, want = old[i][0], shape[j]
        while have != want:
            if have < want:
                i += 1
                have *= old[i][0]
            else:
                j += 1
                want *= shape[j]
        for k in range(first, i):
            if old[k][1] != old[k + 1][0] * old[k + 1][1]:
                return None
        strides += packed_strides(shape[begin : j + 1], old[i][1])
        i, j = i + 1, j + 1
    last = strides[-1] if strides else itemsize
    return tuple(strides + [last] * (len(shape) - len(strides)))


def collapse(shape: Shape, *strides: Shape) -> tuple[Shape, tuple[Shape, ...]]:
    """The fewest dimensions that visit the same elements of several layouts of one shape, in the same order."""
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        here = [layout[axis] for layout in strides]
        if lengths and all(own[-1] == step * length for own, step in zip(steps, here, strict=True)):
            lengths[-1] *= length
            for own, step in zip(steps, here, strict=True):
                own[-1] = step
        else:
            lengths.append(length)
            for own, step in zip(steps, here, strict=True):
                own.append(step)
    return tuple(lengths), tuple(tuple(own) for own in steps)


def runs(shape: Shape, first: Shape, second: Shape, itemsize: int) -> tuple[int, int, Iterator[tuple[int, int]]]:
    """How to copy between two layouts by runs of bytes that have no gaps in either.

    Returns how many runs there are, the bytes of each, and their offsets in both.
    """
    lengths, (a, b) = collapse(shape, first, second)
    nbytes = itemsize
    if lengths and a[-1] == itemsize == b[-1]:
        nbytes *= lengths[-1]
        lengths, a, b = lengths[:-1], a[:-1], b[:-1]
    return math.prod(lengths), nbytes, _offsets(lengths, a, b)


def _offsets(lengths: Shape, a: Shape, b: Shape) -> Iterator[tuple[int, int]]:
    if not lengths:
        yield 0, 0
        return
    for i in range(lengths[0]):
        for p, q in _offsets(lengths[1:], a[1:], b[1:]):
            yield i * a[0] + p, i * b[0] + q
