"""Structs in native memory: declared once, as classes, for native code and for Python.

**What is declared.** A field is an annotated name. Its offset is assigned here, in order; all are made of 8-byte words::

    class Waker(Struct):
        descriptor: int  #: what it writes to
        pending: Atomic[int]  #: 1 between a write and the next collect
        fired: Atomic[WaitNode | None]  #: first fired node
        lock: Lock = embedded(Lock)

``int`` is a word. A struct is the address of one, ``| None`` one that may be 0. ``Cell[T]`` and ``Atomic[T]`` are words of kind
``T`` that are used by reference: several threads reach an atomic at once, and its methods say in which order; a cell can be
pointed to. What ``embedded`` and ``words`` declare lies in the struct itself.

**What an instance is.** An address. In native code it is a word that knows its struct: ``waker.descriptor`` is a load, an
assignment to it a store, ``waker.fired.load()`` an atomic load, ``waker.lock`` an address. A name that the struct has not is
refused when the function is translated, and by type checkers. As in C, an index goes on from an address: ``shares[3]``.
In Python the same expressions read and write the memory, for which ``Waker(address)`` is a view.

A plain access, of a field or a cell's ``value``, is for words that only one thread at a time can reach, or can write.
"""

from __future__ import annotations

import ctypes
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, Union, get_args, get_origin

from aiodev._core.once import once

if typing.TYPE_CHECKING:
    from typing import Self

__all__ = ["LINE", "WORD", "Atomic", "Cell", "Field", "Kind", "Memory", "Reference", "Struct", "at", "embedded", "kind_of",
           "offset_of", "sizeof", "word", "words"]  # fmt: skip

WORD = 8  #: bytes of a word
LINE = 64  #: bytes of a cache line

T = TypeVar("T")
S = TypeVar("S", bound="Struct")


class Memory(Protocol):
    """Memory as words at addresses; each method is one access."""

    def get(self, address: int) -> int: ...
    def put(self, address: int, value: int) -> None: ...
    def exchange(self, address: int, value: int) -> int: ...
    def fetch_add(self, address: int, value: int) -> int: ...
    def fetch_min(self, address: int, value: int) -> int: ...
    def compare_exchange(self, address: int, expected: int, value: int) -> bool: ...


class _Process:
    """This process's memory. Python writes words whole, but has no instruction that reads and writes at once."""

    def get(self, address: int) -> int:
        return _word_at(address).value

    def put(self, address: int, value: int) -> None:
        _word_at(address).value = value

    def _refuse(self, address: int, *values: int) -> Any:
        raise TypeError("native code alone changes a word atomically by what it was")

    exchange = fetch_add = fetch_min = compare_exchange = _refuse


_PROCESS: Memory = _Process()
_word_at = ctypes.c_int64.from_address


class Cell(Generic[T]):
    """A word of native memory, by reference."""

    __slots__ = ("_memory", "_wrap", "address")

    def __init__(self, address: int, memory: Memory = _PROCESS, wrap: Callable[[int, Memory], Any] | None = None) -> None:
        self.address, self._memory, self._wrap = address, memory, wrap

    def __getitem__(self, index: int) -> Self:
        """The word so many words further."""
        return type(self)(self.address + WORD * index, self._memory, self._wrap)

    def _content(self, found: int) -> Any:
        return found if self._wrap is None else self._wrap(found, self._memory)

    @property
    def value(self) -> T:
        """The cell's content: a plain access, with no order."""
        content: T = self._content(self._memory.get(self.address))
        return content

    @value.setter
    def value(self, value: T) -> None:
        self._memory.put(self.address, _word_of(value))


class Atomic(Cell[T]):
    """A word that several threads reach at once.

    Memory order is named for what it is used for: ``load`` acquires, ``store`` releases, and whatever takes part in a
    store-then-load handshake (``store_fence``, ``load_fence``, ``exchange``, ``compare_exchange``, ``fetch_add``) is
    sequentially consistent.
    """

    __slots__ = ()

    def load(self) -> T:
        """Load with acquire order: what the writer wrote before is visible."""
        return self.value

    def store(self, value: T) -> None:
        """Write it; who loads it sees all that was written before."""
        self.value = value

    def load_fence(self) -> T:
        """Load after any earlier ``store_fence``: one half of a store-then-load handshake."""
        return self.value

    def store_fence(self, value: T) -> None:
        """Write it before any later load: the other half."""
        self.value = value

    def exchange(self, value: T) -> T:
        """Write it, and return what was there."""
        content: T = self._content(self._memory.exchange(self.address, _word_of(value)))
        return content

    def compare_exchange(self, expected: T, value: T) -> bool:
        """Write it if ``expected`` is there; whether it was."""
        return self._memory.compare_exchange(self.address, _word_of(expected), _word_of(value))

    def fetch_add(self: Atomic[int], value: int) -> int:
        """Add to it, and return what was there."""
        return self._memory.fetch_add(self.address, value)

    def fetch_min(self: Atomic[int], value: int) -> int:
        """Lower it to ``value`` if it is higher, and return what was there."""
        return self._memory.fetch_min(self.address, value)


@dataclass(frozen=True)
class Reference:
    """The kind of a cell or an atomic: its class, and the kind of what it holds."""

    form: type[Cell[Any]]
    content: Kind


#: What native code knows of a word: the struct at its address, what it refers to, or (None) nothing.
Kind: TypeAlias = "type[Struct] | Reference | None"


def kind_of(hint: Any) -> Kind:
    """The kind of a word by its annotation."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        known = [part for part in parts if part is not NoneType]
        return kind_of(known[0]) if len(known) == 1 else None
    if origin in (Cell, Atomic):
        return Reference(origin, kind_of(parts[0]) if parts else None)
    return origin if isinstance(origin, type) and issubclass(origin, Struct) else None


@dataclass(frozen=True)
class _Place:
    """How a field is to be placed."""

    line: int | bool = False
    slot: int = 0
    nbytes: int = WORD
    inside: bool = False  #: whether the field lies there, rather than its address
    at: int | None = None  #: its offset, where that is somebody else's choice


def word(*, line: int | bool = False, slot: int = 0) -> Any:
    """A field that does not just follow the one before.

    Args:
        line: True: on a new cache line. A number: on the struct's cache line of that number, behind what is there; so a derived
            struct goes on with a line of its base's.
        slot: which word of that line at least.
    """
    return _Place(line, slot)


def words(count: int, *, line: int | bool = False, slot: int = 0) -> Any:
    """A field for ``count`` cells or atomics; it is the first one, and has an index. 0: as many as follow the struct."""
    return _Place(line, slot, WORD * count, True)


def at(offset: int) -> Any:
    """A field whose offset somebody else has chosen, who has made the struct."""
    return _Place(at=offset)


def embedded(struct: type[S], count: int = 1, *, line: int | bool = False, slot: int = 0) -> S:
    """A field for ``count`` structs that lie in the struct; it is the first one, and has an index. 0: as for ``words``."""
    return typing.cast(S, _Place(line, slot, sizeof(struct) * count, True))


@dataclass(frozen=True)
class Field:
    """One field of a struct, as the struct's classes have it.

    Attributes:
        name: the field's.
        owner: the class that declares it.
        offset: where it begins, in bytes.
        nbytes: how much of the struct it takes.
        inside: whether it lies in the struct, rather than its address.
    """

    name: str
    owner: type[Struct]
    offset: int
    nbytes: int
    inside: bool

    @once
    def _hint(self) -> Any:
        # Here and not when it is declared, since structs refer to each other; and one by one, since a start uses few.
        annotation = self.owner.__annotations__[self.name]
        if not isinstance(annotation, str):
            return annotation
        # Compiled first: CPython takes a KeyboardInterrupt for handled once a string is evaluated, as at exit, and the process
        # would end by its status, not by the signal.
        return eval(compile(annotation, "<annotation>", "eval"), vars(sys.modules[self.owner.__module__]))

    @once
    def kind(self) -> Kind:
        """The kind of the field's word."""
        return kind_of(self._hint)

    @once
    def is_place(self) -> bool:
        """Whether it stands for where it is, rather than for what is there."""
        return self.inside or isinstance(self.kind, Reference)

    @once
    def _wrap(self) -> Callable[[int, Memory], Any]:
        return _wrapper(self._hint)

    def __get__(self, instance: Struct | None, owner: type[Struct]) -> Any:
        if instance is None:
            return self
        address, memory = instance.address + self.offset, instance._memory
        return self._wrap(address if self.is_place else memory.get(address), memory)

    def __set__(self, instance: Struct, value: Any) -> None:
        if self.is_place:
            raise AttributeError(f"{self.owner.__name__}.{self.name} lies in the struct: only what it holds can be assigned")
        instance._memory.put(instance.address + self.offset, _word_of(value))


def _wrapper(hint: Any) -> Callable[[int, Memory], Any]:
    """How Python sees a word of a kind."""
    kind = kind_of(hint)
    if kind is None:
        return lambda found, memory: found
    if isinstance(kind, Reference):
        form, content = kind.form, _wrapper(get_args(hint)[0])
        return lambda found, memory: form(found, memory, content)
    if NoneType in get_args(hint):
        return lambda found, memory: kind(found, memory) if found else None
    return kind


def _word_of(value: Any) -> int:
    """The word that is written for a value."""
    if value is None:
        return 0
    return value if isinstance(value, int) else int(value.address)


class _StructType(type):
    """Classes of structs: their fields have offsets, and an instance has no others."""

    fields: dict[str, Field]
    _taken: set[int]  #: offsets of words that are fields' already
    _alignment: int  #: the size is a multiple of this
    _size: int

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], alignment: int = 0) -> _StructType:
        names = list(namespace.get("__annotations__", {})) if bases else []
        places: list[_Place] = [namespace.pop(key, _Place()) for key in names]
        namespace.setdefault("__slots__", ())
        made = super().__new__(mcls, name, bases, namespace)
        base = typing.cast(_StructType, bases[0]) if bases else made
        made.fields, made._taken = (dict(base.fields), set(base._taken)) if bases else ({}, set())
        made._alignment = alignment or (base._alignment if bases else WORD)
        at = made._end()
        for key, place in zip(names, places, strict=True):
            at = made._find_room(at, place)
            made._taken.update(range(at, at + place.nbytes, WORD))
            made.fields[key] = Field(key, typing.cast("type[Struct]", made), at, place.nbytes, place.inside)
            setattr(made, key, made.fields[key])
            at += place.nbytes
        made._size = -(-made._end() // made._alignment) * made._alignment
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], alignment: int = 0) -> None:
        super().__init__(name, bases, namespace)

    def _end(cls) -> int:
        """Where all fields end."""
        return max(cls._taken, default=-WORD) + WORD

    def _find_room(cls, at: int, place: _Place) -> int:
        """Where a field goes that would follow at an offset."""
        if place.at is not None:
            return place.at
        if place.line is True:
            at = -(-cls._end() // LINE) * LINE
        elif place.line is not False:
            at = place.line * LINE + place.slot * WORD
        while not cls._taken.isdisjoint(range(at, at + place.nbytes, WORD)):
            at += WORD
        return at


class Struct(metaclass=_StructType):
    """A struct at an address; subclasses declare its fields (see the module).

    With ``class Queue(Struct, alignment=64)`` its size is a multiple of that, so that each of several has its own cache lines.

    Args:
        address: where it is; another struct, or None, is the same address as this struct.
    """

    fields: ClassVar[dict[str, Field]]
    __slots__ = ("_memory", "address")

    def __init__(self, address: int | Struct | None, memory: Memory = _PROCESS) -> None:
        if isinstance(address, Struct):
            self.address: int = address.address
            self._memory: Memory = address._memory
        else:
            self.address, self._memory = address or 0, memory

    def __getitem__(self, index: int) -> Self:
        """The struct so many structs of this kind further."""
        return type(self)(self.address + sizeof(type(self)) * index, self._memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address:#x})"


def sizeof(struct: type[Struct]) -> int:
    """Bytes of a struct."""
    return typing.cast(_StructType, struct)._size


def offset_of(struct: type[Struct], name: str) -> int:
    """Where a field begins, in bytes; for what addresses words by itself."""
    return struct.fields[name].offset
