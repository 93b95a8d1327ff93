"""Declarations of native functions: in Python, for words, compiled by :mod:`aiodev._native.translate`.

Every value is a word, a signed integer of 64 bits that wraps; truth is 0 or 1. Annotations say which words are addresses of
structs (:mod:`aiodev._native.fields`); type checkers read them too. A declared function is a plain function of
Python that is never called as one: other native functions call it, and what is exported Python calls, or others by its address.

The kinds of words matter only where code of somebody else is met: in the signatures of what is exported and of C functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """The type of a word as Python or C sees it."""

    name: str

    def __call__(self, *parameters: Kind) -> Signature:
        return Signature(self, parameters)


@dataclass(frozen=True)
class Signature:
    """Of a function that returns ``result``."""

    result: Kind
    parameters: tuple[Kind, ...]


int64, int32, boolean, void = Kind("int64"), Kind("int32"), Kind("boolean"), Kind("void")
#: A ``bytes`` of Python, without a copy; as a word the object's address: see ``bytes_address`` and ``bytes_length``.
bytes_type = Kind("bytes")


@dataclass(frozen=True, eq=False)
class Function:
    """A native function.

    Attributes:
        py_func: what it was written as.
        role: who calls it: other native functions alone (``inner``), Python too, with words (``exported``) or with objects
            (``method``), workers as they call kernels (``entry``) or C (``callback``).
        signature: what Python gives and gets, of an exported one.
        nogil: whether Python's calls let go of the GIL.
    """

    py_func: Any
    role: str = "inner"
    signature: Signature | None = None
    nogil: bool = False

    @property
    def name(self) -> str:
        """Its name in this package."""
        return f"{self.py_func.__module__}.{self.py_func.__qualname__}"


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """An operation that is no function: its ``emit(builder, *words)`` gives the word, or None for 0."""

    emit: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class External:
    """A C function of this process. It gets the low half of a word for an ``int32``, and one it returns is signed."""

    name: str
    signature: Signature

    def __call__(self, *words: Any) -> int:
        """How native code calls it; Python does not."""
        raise TypeError(f"{self.name} is called by native code")


# Type checkers see the functions as they are written: what calls them is written in the same way, and checked.


def inner(function: F) -> F:
    """A function that only native code calls."""
    return cast(F, Function(function))


def exported(signature: Signature, *, nogil: bool = False) -> Callable[[F], F]:
    """A function that Python calls."""

    def declare(function: F) -> F:
        return cast(F, Function(function, "exported", signature, nogil))

    return declare


def method(function: F) -> F:
    """A function that Python calls with any objects, as a method of an object of its own: see :mod:`aiodev._native.objects`.

    It takes the addresses of that object, of the arguments' addresses, how many are given by position, and the tuple of the
    names of those behind them, or 0. It gives a new reference, or 0 where it has set an exception.
    """
    return cast(F, Function(function, "method"))


def entry(function: F) -> F:
    """A function that native code calls by its address, as workers call kernels: see ``call_entry``; 1 says that it raised."""
    return cast(F, Function(function, "entry"))


def callback(function: F) -> F:
    """A function that C calls by its address, with words or pointers; it gives nothing back and needs no GIL."""
    return cast(F, Function(function, "callback"))


def intrinsic(emit: Callable[..., Any]) -> Any:
    """An operation, by how it is emitted."""
    return Intrinsic(emit)
