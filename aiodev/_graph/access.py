"""Memory that nodes use: for each address among a node's arguments, which bytes from there on, and whether they are written."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiodev._array.array import Array
from aiodev._array.layout import extent
from aiodev._graph.recorder import Branch, Node, Round

__all__ = ["Access", "accesses", "span"]

_WORD = 8


def span(array: Array) -> tuple[int, int]:
    """The addresses of an array's elements, from the first to behind the last."""
    first, last = extent(array._layout, array.itemsize)
    return array._address + first, array._address + last


class Access(NamedTuple):
    """What a node uses by one of its addresses.

    Attributes:
        at: where the address is among the arguments, in bytes.
        address: what it is.
        first: the first byte that is used.
        last: behind the last one; as ``first`` where nothing is.
        writes: whether it may be written.
    """

    at: int
    address: int
    first: int
    last: int
    writes: bool


def accesses(node: Node) -> Iterator[Access]:
    """What a node uses. Not of calls of native functions, whose arguments say nothing of that."""
    words = struct.unpack(f"<{len(node.block) // _WORD}q", node.block[: len(node.block) // _WORD * _WORD])
    if isinstance(node, Round):
        return
    if isinstance(node, Branch):
        if words[1]:
            yield Access(0, words[0], words[0], words[0] + _WORD, False)
    elif node.kind == "copy":
        for at, writes in ((0, True), (1, False)):
            yield Access(_WORD * at, words[at], words[at], words[at] + node.size, writes)
    elif node.kind == "fill":
        yield Access(0, words[0], words[0], words[0] + node.size * (len(node.block) - _WORD), True)
    elif node.kernel is not None:
        for argument in node.kernel.spec.parse_arguments():
            if argument.is_array:
                place = argument.offset // _WORD
                address, *lengths = words[place : place + argument.words]
                low, high = _extent(lengths[: argument.ndim], lengths[argument.ndim :], argument.itemsize)
                yield Access(argument.offset, address, address + low, address + high, not argument.readonly)


def _extent(shape: list[int], strides: list[int], itemsize: int) -> tuple[int, int]:
    """Where elements begin and end, in bytes from the first one."""
    if 0 in shape:
        return 0, 0
    if not strides:
        return 0, math.prod(shape) * itemsize
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return sum(step for step in reach if step < 0), sum(step for step in reach if step > 0) + itemsize
