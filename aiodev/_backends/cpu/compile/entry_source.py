"""Source of range entries, generated from a kernel's types.

The argument block that an entry reads is a row of 8-byte little-endian words: the launch's shape (``ndim`` words), then
the scalars in order (one word each, ``complex128`` two), then the arrays in order. An array is its data address and its
shape, and its strides in bytes when its layout is ``A``.

An entry runs the flat indices ``lo`` … ``hi - 1`` of the shape in C order. For two and three dimensions it walks rows, so
that the innermost loop runs along the last axis: no division an element, and contiguous arrays are read in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aiodev._core.dtypes import DTYPES

__all__ = ["Argument", "entry_source", "parse_arguments"]

WORD: Final = 8
_ARRAY: Final = re.compile(r"A(\d+)([a-z]+\d+)([CA])(r?)")
_SCALAR: Final = re.compile(r"[a-z]+\d+")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel, parsed from its descriptor (see ``KernelSpec``).

    Attributes:
        dtype: its code in the table of dtypes.
        ndim: the number of dimensions of an array, or -1 for a scalar.
        layout: ``C`` or ``A``; empty for a scalar.
        readonly: whether an array may only be read.
        offset: where its words begin in the argument block, in bytes.
    """

    dtype: str
    ndim: int = -1
    layout: str = ""
    readonly: bool = False
    offset: int = 0

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.ndim >= 0

    @property
    def itemsize(self) -> int:
        """Bytes of a scalar, or of an element."""
        return DTYPES[self.dtype].itemsize

    @property
    def words(self) -> int:
        """How many words it takes."""
        if not self.is_array:
            return 2 if self.dtype == "c16" else 1
        return 1 + self.ndim * (1 if self.layout == "C" else 2)


def parse_arguments(ndim: int, descriptors: tuple[str, ...]) -> list[Argument]:
    """The arguments of a kernel of ``ndim`` dimensions, with their places in the block.

    Raises:
        ValueError: a descriptor that is none.
    """
    parsed = [_parse(descriptor) for descriptor in descriptors]
    offset = WORD * ndim
    placed: dict[int, Argument] = {}
    for wants_array in (False, True):
        for position, argument in enumerate(parsed):
            if argument.is_array is wants_array:
                placed[position] = Argument(argument.dtype, argument.ndim, argument.layout, argument.readonly, offset)
                offset += WORD * argument.words
    return [placed[position] for position in range(len(parsed))]


def _parse(descriptor: str) -> Argument:
    if match := _ARRAY.fullmatch(descriptor):
        ndim, dtype, layout, readonly = match.groups()
        return Argument(dtype, int(ndim), layout, bool(readonly))
    if _SCALAR.fullmatch(descriptor):
        return Argument(descriptor)
    raise ValueError(f"{descriptor!r} describes no argument: expected a dtype code or A<ndim><dtype><C|A>[r]")


def entry_source(name: str, ndim: int, arguments: list[Argument]) -> str:
    """Source of ``name(block, lo, hi)``; it needs the names that :func:`aiodev._backends.cpu.compile.compiler` gives it."""
    lines = [f"def {name}(block, lo, hi):", "    if lo >= hi:", "        return 0"]  # a length may be 0, to divide by
    lines += [f"    n{d} = scalar_at(block + {WORD * d}, int64)" for d in range(1, ndim)]
    for position, argument in enumerate(arguments):
        reader = "array_at" if argument.is_array else "scalar_at"
        lines.append(f"    a{position} = {reader}(block + {argument.offset}, T{position})")
    values = "".join(f", a{position}" for position in range(len(arguments)))
    lines += _LOOPS[ndim](values)
    lines.append("    return 0")
    return "\n".join(lines) + "\n"


def _line(values: str) -> list[str]:
    return [
        "    for i in range(lo, hi):",
        f"        body(counted(i){values})",
    ]


def _plane(values: str) -> list[str]:
    return [
        "    i = lo // n1",
        "    j = lo - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n1, j + left)",
        "        left -= end - j",
        "        for column in range(j, end):",
        f"            body(counted(i), counted(column){values})",
        "        j = 0",
        "        i += 1",
    ]


def _volume(values: str) -> list[str]:
    return [
        "    row = lo // n2",
        "    k = lo - row * n2",
        "    i = row // n1",
        "    j = row - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n2, k + left)",
        "        left -= end - k",
        "        for column in range(k, end):",
        f"            body(counted(i), counted(j), counted(column){values})",
        "        k = 0",
        "        j += 1",
        "        if j == n1:",
        "            j = 0",
        "            i += 1",
    ]


_LOOPS = {1: _line, 2: _plane, 3: _volume}
