"""Memory that nodes use: for each address among a node's arguments, which bytes from there on, and whether they are written."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiodev._array.array import Array
from aiodev._array.layout import Layout, extent, packed_strides
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
        layout: of what is used, as an array from that address on.
        itemsize: of that, in bytes.
    """

    at: int
    address: int
    first: int
    last: int
    writes: bool
    layout: Layout
    itemsize: int


def accesses(node: Node) -> Iterator[Access]:
    """What a node uses. Not of calls of native functions, whose arguments say nothing of that."""
    words = struct.unpack(f"<{len(node.block) // _WORD}q", node.block[: len(node.block) // _WORD * _WORD])
    if isinstance(node, Round):
        return
    if isinstance(node, Branch):
        if words[1]:
            yield _run(0, words[0], _WORD, False)
    elif node.kind == "copy":
        for at, writes in ((0, True), (1, False)):
            yield _run(_WORD * at, words[at], node.size, writes)
    elif node.kind == "fill":
        yield _run(0, words[0], node.size * (len(node.block) - _WORD), True)
    elif node.kernel is not None:
        for argument in node.kernel.spec.parse_arguments():
            if argument.is_array:
                place = argument.offset // _WORD
                address, *lengths = words[place : place + argument.words]
                shape, strides, itemsize = tuple(lengths[: argument.ndim]), tuple(lengths[argument.ndim :]), argument.itemsize
                layout = Layout(shape, strides or packed_strides(shape, itemsize))
                low, high = extent(layout, itemsize)
                yield Access(argument.offset, address, address + low, address + high, not argument.readonly, layout, itemsize)


def _run(at: int, address: int, nbytes: int, writes: bool) -> Access:
    """Bytes without gaps."""
    return Access(at, address, address, address + nbytes, writes, Layout((nbytes,), (1,)), 1)
