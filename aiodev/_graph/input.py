"""Inputs of graphs: the arrays and numbers that change between replays."""

from __future__ import annotations

import bisect
import operator
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aiodev._array.array import Array, array_of
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.layout import Layout, is_part, overlaps
from aiodev._array.overlap import overlap
from aiodev._core import arguments
from aiodev._graph.access import accesses, span
from aiodev._graph.recorder import Round
from aiodev._graph.resources import Resources
from aiodev._graph.schedule import Run
from aiodev._memory.allocator import DeviceBuffer
from aiodev._memory.buffer import Buffer

__all__ = ["Input", "Inputs", "Place", "number_of", "packer_of"]

#: Where an address that moves is: its run, the command in it, the byte of the arguments, and how far behind which it is.
Place = tuple[Run, int, int, int]
#: From a value to the bytes that it has on the device; None where :func:`number_of` has to look at it.
Packer = Callable[[Any], bytes | None]
_address = struct.Struct("<q")
_WORD = 8
_FLOATS = [np.dtype(char) for char in "efd"]  # which ``struct`` packs, too, by the same letters


@dataclass(slots=True)
class Input:
    """What :meth:`Graph.update` changes.

    Attributes:
        array: what is there now.
        places: of the addresses that move with it.
        is_number: it is a number in memory of the graph, whose content changes, not the address.
        written: whether the graph writes to it.
        is_torn: the graph uses an array that begins in it, and is no part of it: nothing can take its place.
        pack: gives the bytes of a number, as :func:`packer_of` says.
    """

    array: Array
    is_number: bool
    places: list[Place] = field(default_factory=list)
    written: bool = False
    is_torn: bool = False
    pack: Packer = field(init=False)

    def __post_init__(self) -> None:
        self.pack = packer_of(self.array.dtype)


class Inputs(dict[str, Input]):
    """The inputs of a graph, by name, and what its replays write for them.

    Attributes:
        patches: words, each behind its address, that each replay writes: always all of them, since a replay may be withdrawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patches = b""
        self._packed = bytearray()  # what they are to be; of an address that is there twice the second word counts
        self._places: dict[int, int] = {}  # where the word of each address is in that
        self._rounds: list[Round] = []
        self._runs: Sequence[Run] = ()
        self._taken: tuple[list[int], list[Place]] | None = None  # what _addresses has found
        self._fixed: tuple[list[int], list[Place]] | None = None  # those of _addresses that no input moves

    def take(self, runs: Sequence[Run]) -> None:
        """Take the commands in which inputs are: the capture is over, or the file is read."""
        self._rounds = [node for run in runs for node in run.nodes if isinstance(node, Round)]
        self._runs, self._taken, self._fixed = runs, None, None

    def _addresses(self) -> tuple[list[int], list[Place]]:
        """Each address among the arguments, ascending, and its place, as it was when this was first asked for."""
        if self._taken is None:
            found = [
                (_address.unpack_from(node.block, at)[0], (run, k, at, 0))
                for run in self._runs for k, node in enumerate(run.nodes) for at in node.address_places()
            ]  # fmt: skip
            found.sort(key=operator.itemgetter(0))
            self._taken = [address for address, _ in found], [place for _, place in found]
        return self._taken

    def find(self, held: dict[Buffer, bool]) -> None:
        """Find the addresses of arrays among the arguments of commands, and whether those are written to."""
        for one in self.values():
            if not one.is_number:
                self._find_parts(one, held.get(one.array._buffer, False))

    def _find_parts(self, one: Input, may_be_written: bool) -> None:
        """Find where an array, and parts of it, are among the arguments, and whether something shares some of its elements."""
        array, own = one.array, (one.array._layout, one.array.itemsize)
        for place in self.find_places(*span(array), array._address):
            layout, itemsize, writes = _used(place)
            distance = place[3]
            if is_part(layout, itemsize, *own, distance):
                one.places.append(place)
                one.written |= writes and may_be_written
            else:
                one.is_torn |= overlaps(*own, layout, itemsize, distance)

    def find_places(self, first: int, last: int, base: int) -> list[Place]:
        """Where addresses from ``first`` up to ``last`` are among the arguments, and how far behind ``base`` each is."""
        addresses, places = self._addresses()
        begin, end = _between(addresses, first, last)
        return [(run, k, at, addresses[n] - base) for n, (run, k, at, _) in enumerate(places[begin:end], begin)]

    def set_number(self, array: Array, data: bytes) -> None:
        """Have the next replay write a number, once words are packed."""
        for at in range(0, len(data), _WORD):
            self._set_word(array._address + at, data[at : at + _WORD].ljust(_WORD, b"\0"))

    def _set_word(self, address: int, word: bytes) -> None:
        place = self._places.get(address)
        if place is None:
            place = len(self._packed) + _WORD
            self._packed += _address.pack(address) + word
            self._places[address] = place
        else:
            self._packed[place : place + _WORD] = word

    def words(self) -> dict[int, bytes]:
        """What the next replay writes, by address."""
        return {address: bytes(self._packed[place : place + _WORD]) for address, place in self._places.items()}

    def pack_words(self) -> None:
        """Have replays write the words as they are now; to be called when some were set."""
        self.patches = bytes(self._packed)

    def check_placed(self, placed: Mapping[str, Array]) -> None:
        """Check that arrays which take the places of inputs share no memory with what else is used, where one is written.

        Raises:
            ValueError: one does, or nothing can take its place.
        """
        together: dict[Buffer, list[str]] = {}
        for name, one in self.items():
            if not one.is_number:
                together.setdefault(placed.get(name, one.array)._buffer, []).append(name)
        for name, value in placed.items():
            known = self[name]
            if known.is_torn:
                raise ValueError(f"update: {name}: the graph uses its memory otherwise, too; name the array that has all of it")
            for other in together[value._buffer]:
                one = self[other]
                if one is not known and (known.written or one.written) and overlap(value, placed.get(other, one.array)):
                    raise ValueError(f"update: {name}: it shares memory with input {other!r}, and one of them is written to")
            if value._buffer is known.array._buffer and value._address != known.array._address:
                self._check_fixed(name, value, known.written)

    def _check_fixed(self, name: str, value: Array, is_written: bool) -> None:
        """Check that what the graph uses of a buffer otherwise shares no elements with a value, where one is written."""
        if not isinstance(value._buffer, DeviceBuffer):
            return
        addresses, places = self._unmoved()
        first, last = _between(addresses, value._buffer.address, value._buffer.address + value._buffer.block.size)
        for address, place in zip(addresses[first:last], places[first:last], strict=True):
            layout, itemsize, writes = _used(place)
            distance = address - value._address
            if (writes or is_written) and overlaps(value._layout, value.itemsize, layout, itemsize, distance):
                raise ValueError(f"update: {name}: the graph uses elements of that array otherwise, and writes to one of them")

    def move(self, known: Input, array: Array, resources: Resources) -> None:
        """Have the graph use another array."""
        held, followed = resources.held, resources.followed
        before = known.array._buffer
        for node in self._rounds:
            if _has_rows(known.array, node.rows):
                address = array._address + node.rows._address - known.array._address
                node.rows = array_of(array._buffer, address, node.rows._form)
        known.array = array
        if all(other.array._buffer is not before for other in self.values()) and not self.uses_otherwise(before):
            held.pop(before, None)
        held[array._buffer] = held.get(array._buffer, False) or known.written
        if before in followed:
            followed.add(array._buffer)
            if before not in held:
                followed.remove(before)
        self.rebind(known.places, array._address)

    def uses_otherwise(self, buffer: Buffer, places: Sequence[Place] = ()) -> bool:
        """Whether the graph uses a buffer but by its inputs, and by ``places``; as far as that is known.

        Every update asks, so the addresses that no input moves are listed once: they stay as they are.
        """
        if not isinstance(buffer, DeviceBuffer):
            return True
        first, last = _between(self._unmoved()[0], buffer.address, buffer.address + buffer.block.size)
        return last - first > len(places)

    def _unmoved(self) -> tuple[list[int], list[Place]]:
        """Those of all addresses, ascending, and of their places that no input moves."""
        if self._fixed is None:
            known = {(id(run), k, at) for one in self.values() for run, k, at, _ in one.places}
            found = [pair for pair in zip(*self._addresses(), strict=True) if (id(pair[1][0]), *pair[1][1:3]) not in known]
            self._fixed = [address for address, _ in found], [place for _, place in found]
        return self._fixed

    def rebind(self, places: Sequence[Place], address: int) -> None:
        """Put another address where an array's is."""
        for run, k, at, distance in places:
            word = _address.pack(address + distance)
            node = run.nodes[k]
            node.block = node.block[:at] + word + node.block[at + _WORD :]
            if run.buffer:
                self._set_word(run.places[k] + at, word)


def _has_rows(array: Array, rows: Array) -> bool:
    """Whether rows are in an array; also where they have no elements."""
    (first, last), (begin, end) = span(array), span(rows)
    if rows._buffer is not array._buffer or begin < first or last < end:
        return False
    distance = rows._address - array._address
    return begin == end or overlaps(array._layout, array.itemsize, rows._layout, rows.itemsize, distance)


def _used(place: Place) -> tuple[Layout, int, bool]:
    """What a command uses by an address: its layout, bytes of an element, and whether it may write it.

    Of calls of native functions, which say nothing of that, the first byte.
    """
    run, k, at, _ = place
    for access in accesses(run.nodes[k]):
        if access.at == at:
            return access.layout, access.itemsize, access.writes
    return Layout((), ()), 1, True


def _between(addresses: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """From where to where ascending addresses lie in what begins at ``first`` and ends ahead of ``last``."""
    return bisect.bisect_left(addresses, first), bisect.bisect_left(addresses, max(last, first + 1))


def packer_of(dtype: DType) -> Packer:
    """Packs Python's integers for a dtype of integers, floats for one of floats: as :func:`number_of`, in less time."""
    if dtype.kind in "iu":
        size, signed = dtype.itemsize, dtype.kind == "i"

        def pack_integer(value: Any) -> bytes | None:
            if value.__class__ is not int:
                return None
            try:
                return value.to_bytes(size, sys.byteorder, signed=signed)
            except OverflowError:
                return None

        return pack_integer
    if dtype in _FLOATS:
        pack = struct.Struct("=" + dtype.char).pack  # which refuses, as without "=" it would not, what would be infinite

        def pack_float(value: Any) -> bytes | None:
            if value.__class__ is not float:
                return None
            try:
                return pack(value)
            except OverflowError:
                return None

        return pack_float
    return lambda value: None


def number_of(function: str, name: str, value: Any, dtype: DType | None, expected: str = "a number") -> np.ndarray[Any, DType]:
    """A number as its bytes are on the device."""
    if isinstance(value, bool | int | float | complex | np.generic):
        try:
            number = np.asarray(value) if dtype is None else _converted(value, dtype)
        except OverflowError:
            raise OverflowError(f"{function}: {name}: {arguments.shown(value)} is out of bounds for {dtype}") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"{function}: {name}: {arguments.shown(value)} {error}") from None
        if dtype is not None or number.dtype.kind in "biufc":
            parse_dtype(number.dtype)
            return number
    raise TypeError(f"{function}: {name}: expected {expected}, got {type(value).__name__}")


def _converted(value: Any, dtype: DType) -> np.ndarray[Any, DType]:
    """A number of another dtype: rounded if need be, but neither wrapped nor cut off, nor made infinite."""
    if dtype.kind != "c" and isinstance(value, complex | np.complexfloating):
        raise TypeError(f"cannot become {dtype}; complex numbers have two parts")
    if dtype.kind in "iu":
        if not isinstance(value, int | np.integer) and not np.isinf(value) and value % 1 != 0:  # nor is NaN
            raise ValueError(f"cannot become {dtype}, which has whole numbers only")
        return np.asarray(int(value), dtype)  # which NumPy does not wrap
    if dtype.kind == "b":
        return np.asarray(value, dtype)
    if isinstance(value, int):
        value = float(value)
    with np.errstate(over="ignore"):
        number = np.asarray(value, dtype)
    parts = [(number.real, value.real), (number.imag, value.imag)] if dtype.kind == "c" else [(number, value)]
    if any(np.isinf(stored) and not np.isinf(given) for stored, given in parts):
        raise OverflowError
    return number
